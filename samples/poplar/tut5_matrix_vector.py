"""Tutorial 5: matrix times vector, one vertex a row."""

from __future__ import annotations

import numpy as np
from common import finish, new_graph, parser

from poplar_py import poplar
from poplar_py.poplar.program import Copy, Execute, Program, Sequence
from poplar_py.poputil import map_tensor_linearly


def multiply(
    graph: poplar.Graph, matrix: poplar.Tensor, vector: poplar.Tensor, out: poplar.Tensor
) -> Program:
    """Adds a vertex for every row, rows spread evenly over the tiles."""
    rows, tiles = matrix.dim(0), graph.target.num_tiles
    compute_set = graph.add_compute_set("multiply")
    for row in range(rows):
        vertex = graph.add_vertex(
            compute_set, "DotProduct", {"a": matrix[row], "b": vector, "out": out[row]}
        )
        tile = row * tiles // rows
        graph.set_tile_mapping(matrix[row], tile)
        graph.set_tile_mapping(out[row], tile)
        graph.set_tile_mapping(vertex, tile)
        graph.set_perf_estimate(vertex, 5 + matrix.dim(1) // 2)
    return Execute(compute_set)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=200)
    options.add_argument("--cols", type=int, default=100)
    args = options.parse_args()
    graph = new_graph(args, "tutorial.py")
    matrix = graph.add_variable(poplar.FLOAT, [args.rows, args.cols], "matrix")
    vector = graph.add_variable(poplar.FLOAT, [args.cols], "vector")
    out = graph.add_variable(poplar.FLOAT, [args.rows], "out")
    map_tensor_linearly(graph, vector)
    run_it = multiply(graph, matrix, vector, out)
    streams = {
        "matrix": graph.add_host_to_device_fifo("matrix", poplar.FLOAT, matrix.numel),
        "vector": graph.add_host_to_device_fifo("vector", poplar.FLOAT, vector.numel),
        "out": graph.add_device_to_host_fifo("out", poplar.FLOAT, out.numel),
    }
    load = Sequence(Copy(streams["matrix"], matrix), Copy(streams["vector"], vector))
    engine = poplar.Engine(graph, [load, run_it, Copy(out, streams["out"])])

    rng = np.random.default_rng(2)
    a = rng.standard_normal((args.rows, args.cols)).astype(np.float32)
    x = rng.standard_normal((args.cols,)).astype(np.float32)
    result = np.zeros(args.rows, np.float32)
    for name, array in (("matrix", a), ("vector", x), ("out", result)):
        engine.connect_stream(name, array)
    for program in range(3):
        engine.run(program)
    error = float(np.abs(result - a.astype(np.float64) @ x).max())
    finish(error < 1e-4, f"{args.rows} x {args.cols}: largest error {error:.1e}")


if __name__ == "__main__":
    main()
