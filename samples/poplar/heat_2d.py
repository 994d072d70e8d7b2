"""The heat equation in two dimensions: one block a tile, halos exchanged every step."""

from __future__ import annotations

import numpy as np
from blocks import blocks, row_list
from common import finish, new_graph, parser

from poplar_py import poplar
from poplar_py.poplar.program import Execute, Program, Repeat, Sequence

ALPHA = 0.2


def step(graph: poplar.Graph, a: poplar.Tensor, b: poplar.Tensor) -> Program:
    """b = a one step later; the outermost cells stay."""
    compute_set = graph.add_compute_set("heat")
    height, width = a.dim(0) - 2, a.dim(1) - 2
    for tile, top, bottom, left, right in blocks(height, width, graph.target.num_tiles):
        edges = {
            "x": row_list(a, top, bottom + 2, left, right + 2),
            "out": row_list(b, top + 1, bottom + 1, left + 1, right + 1),
        }
        vertex = graph.add_vertex(compute_set, "Heat", edges)
        graph.set_tile_mapping(vertex, tile)
        for name, value in (("alpha", ALPHA), ("rows", bottom - top), ("halo", 0)):
            graph.set_initial_value(vertex[name], value)
        inside = b.slice([top + 1, left + 1], [bottom + 1, right + 1])
        graph.set_tile_mapping(inside, tile)
    return Execute(compute_set)


def reference(grid: np.ndarray, steps: int) -> np.ndarray:
    """The same in NumPy, in float64."""
    grid = grid.astype(np.float64)
    for _ in range(steps):
        mid = grid[1:-1, 1:-1]
        around = grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]
        grid[1:-1, 1:-1] = mid + ALPHA * (around - 4 * mid)
    return grid


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--size", type=int, default=96)
    options.add_argument("--steps", type=int, default=40)
    args = options.parse_args()
    graph = new_graph(args, "grids.py")
    shape = [args.size + 2, args.size + 2]
    a = graph.add_variable(poplar.FLOAT, shape, "a", mapping="linear")
    b = graph.add_variable(poplar.FLOAT, shape, "b", mapping="linear")
    program = Repeat(args.steps // 2, Sequence(step(graph, a, b), step(graph, b, a)))
    for name, grid in (("a", a), ("b", b)):
        graph.create_host_write(name, grid)
    graph.create_host_read("result", a)

    start = np.zeros(shape, np.float32)
    start[0] = 1.0
    start[args.size // 3 : args.size // 2, args.size // 4 : args.size // 2] = 2.0
    engine = poplar.Engine(graph, program)
    engine.write_tensor("a", start)
    engine.write_tensor("b", start)
    engine.run()
    got = engine.read_tensor("result").reshape(shape)
    error = float(np.abs(got - reference(start, args.steps // 2 * 2)).max())
    finish(error < 1e-5, f"{args.size} squared, {args.steps} steps: largest error {error:.1e}")


if __name__ == "__main__":
    main()
