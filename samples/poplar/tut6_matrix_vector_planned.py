"""Tutorial 6: matrix times vector, the columns split into parts by a search over predicted cycles.

The product of the tutorial on a whole IPU, with the profile of every step:

    python tut6_matrix_vector_planned.py --system ipu --rows 10000 --cols 1000 --steps
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from common import finish, new_graph, parser

from poplar_py import poplar
from poplar_py.poplar.program import Copy, Execute, Sequence
from poplar_py.poputil import map_tensor_linearly


def vertex_cycles(n: int) -> int:
    """What the tutorial charges a worker for a dot product or sum of n floats."""
    return 5 + -(-n // 2)


@dataclass(frozen=True)
class Plan:
    """A split of the columns and its predicted cycles."""

    split: int
    multiply: int
    fetch: int
    gather: int
    reduce: int

    @property
    def total(self) -> int:
        return self.multiply + self.fetch + self.gather + self.reduce


def predict(rows: int, cols: int, split: int, target: poplar.Target) -> Plan:
    """Rounds of six workers times the cycles of a vertex; bytes received over the exchange rate."""
    tiles, workers, rate = target.num_tiles, target.num_workers, target.exchange_bytes_per_cycle
    part, reduced = -(-cols // split), -(-rows // tiles)
    multiplied = -(-rows * split // tiles)
    return Plan(
        split,
        multiply=-(-multiplied // workers) * workers * vertex_cycles(part),
        fetch=part * 4 // rate,
        gather=reduced * split * 4 // rate if split > 1 else 0,
        reduce=-(-reduced // workers) * workers * vertex_cycles(split) if split > 1 else 0,
    )


def search(rows: int, cols: int, target: poplar.Target) -> Plan:
    """The split with fewest predicted cycles."""
    splits = range(1, min(cols, target.num_tiles) + 1)
    return min((predict(rows, cols, s, target) for s in splits), key=lambda plan: plan.total)


def multiply(
    graph: poplar.Graph,
    matrix: poplar.Tensor,
    vector: poplar.Tensor,
    out: poplar.Tensor,
    split: int,
) -> Sequence:
    """Vertices for every row and part of the columns, then one a row that adds the parts."""
    (rows, cols), tiles = matrix.shape, graph.target.num_tiles
    products, sums = graph.add_compute_set("multiply"), graph.add_compute_set("reduce")
    partials = graph.add_variable(poplar.FLOAT, [split, rows], "partials")
    for part in range(split):
        begin, end = part * cols // split, (part + 1) * cols // split
        first, last = part * tiles // split, (part + 1) * tiles // split
        piece, values = matrix.slice([0, begin], [rows, end]), vector[begin:end]
        for row in range(rows):
            a, result = piece[row], partials[part, row]
            vertex = graph.add_vertex(products, "DotProduct", {"a": a, "b": values, "out": result})
            tile = first + row * (last - first) // rows
            graph.set_tile_mapping(a, tile)
            graph.set_tile_mapping(result, tile)
            graph.set_tile_mapping(vertex, tile)
            graph.set_perf_estimate(vertex, vertex_cycles(end - begin))
    for row in range(rows):
        edges = {"partials": partials[:, row], "out": out[row]}
        vertex = graph.add_vertex(sums, "Reduce", edges)
        graph.set_tile_mapping(out[row], row * tiles // rows)
        graph.set_tile_mapping(vertex, row * tiles // rows)
        graph.set_perf_estimate(vertex, vertex_cycles(split))
    return Sequence(Execute(products), Execute(sums))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=200)
    options.add_argument("--cols", type=int, default=100)
    options.add_argument("--steps", action="store_true", help="print the profile of every step")
    args = options.parse_args()
    graph = new_graph(args, "tutorial.py")
    plan = search(args.rows, args.cols, graph.target)
    print(
        f"split {plan.split}: {plan.total:,} cycles predicted = {plan.multiply:,} multiply + "
        f"{plan.fetch:,} fetch + {plan.gather:,} gather + {plan.reduce:,} reduce"
    )

    # the host's order of elements, spread evenly; tiles rearrange it to what they multiply
    arrived = graph.add_variable(poplar.FLOAT, [args.rows, args.cols], "arrived", mapping="linear")
    matrix = graph.add_variable(poplar.FLOAT, [args.rows, args.cols], "matrix")
    vector = graph.add_variable(poplar.FLOAT, [args.cols], "vector")
    out = graph.add_variable(poplar.FLOAT, [args.rows], "out")
    map_tensor_linearly(graph, vector)
    run_it = multiply(graph, matrix, vector, out, plan.split)
    matrix_in = graph.add_host_to_device_fifo("matrix", poplar.FLOAT, matrix.numel)
    vector_in = graph.add_host_to_device_fifo("vector", poplar.FLOAT, vector.numel)
    out_back = graph.add_device_to_host_fifo("out", poplar.FLOAT, out.numel)
    load = Sequence(
        Copy(matrix_in, arrived, name="matrix from host"),
        Copy(arrived, matrix, name="rearrange matrix"),
        Copy(vector_in, vector, name="vector from host"),
    )
    engine = poplar.Engine(graph, Sequence(load, run_it, Copy(out, out_back, name="out to host")))

    rng = np.random.default_rng(6)
    a = rng.standard_normal((args.rows, args.cols), np.float32)
    x = rng.standard_normal((args.cols,), np.float32)
    result = np.zeros(args.rows, np.float32)
    for name, array in (("matrix", a), ("vector", x), ("out", result)):
        engine.connect_stream(name, array)
    engine.run()
    engine.print_profile_summary(options={"showExecutionSteps": "true"} if args.steps else {})
    error = float(np.abs(result - a.astype(np.float64) @ x).max())
    finish(error < 1e-3, f"{args.rows} x {args.cols}: largest error {error:.1e}")


if __name__ == "__main__":
    main()
