"""Conway's Game of Life on a torus: a glider comes back to where it started."""

from __future__ import annotations

import numpy as np
from blocks import blocks, rolled
from common import finish, new_graph, parser

from poplar_py import poplar
from poplar_py.poplar.program import Copy, Execute, Repeat, Sequence

GLIDER = ((0, 1), (1, 2), (2, 0), (2, 1), (2, 2))
AROUND = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--size", type=int, default=24, help="a glider needs 4 x SIZE generations")
    args = options.parse_args()
    graph = new_graph(args, "grids.py")
    size = args.size
    cells = graph.add_variable(poplar.INT, [size, size], "cells")
    fresh = graph.add_variable(poplar.INT, [size, size], "fresh")
    near = [rolled(cells, dy, dx) for dy, dx in AROUND]
    compute_set = graph.add_compute_set("generation")
    for tile, top, bottom, left, right in blocks(size, size, graph.target.num_tiles):
        corner = ([top, left], [bottom, right])
        edges = {
            "near": [view.slice(*corner).flatten() for view in near],
            "cells": cells.slice(*corner).flatten(),
            "out": fresh.slice(*corner).flatten(),
        }
        vertex = graph.add_vertex(compute_set, "Life", edges)
        graph.set_tile_mapping(vertex, tile)
        for grid in (cells, fresh):
            graph.set_tile_mapping(grid.slice(*corner), tile)
    generation = Sequence(Execute(compute_set), Copy(fresh, cells))
    graph.create_host_write("cells", cells)
    graph.create_host_read("cells", cells)

    start = np.zeros((size, size), np.int32)
    for y, x in GLIDER:
        start[y, x] = 1
    engine = poplar.Engine(graph, [Repeat(4 * size - 4, generation), Repeat(4, generation)])
    engine.write_tensor("cells", start)
    engine.run(0)
    before = engine.read_tensor("cells").reshape(size, size)
    engine.run(1)
    after = engine.read_tensor("cells").reshape(size, size)
    moved = np.array_equal(before, np.roll(start, (-1, -1), (0, 1)))
    finish(
        moved and np.array_equal(after, start),
        f"the glider crossed a torus of {size} x {size} in {4 * size} generations",
    )


if __name__ == "__main__":
    main()
