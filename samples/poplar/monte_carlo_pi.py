"""Monte Carlo pi: a MultiVertex on every tile throws points with all six workers."""

from __future__ import annotations

import math

from common import finish, new_graph, parser

from poplar_py import poplar, popops
from poplar_py.poplar.program import Execute, Sequence


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--points", type=int, default=2000, help="points of every worker")
    args = options.parse_args()
    graph = new_graph(args, "algorithms.py")
    tiles, workers = graph.target.num_tiles, graph.target.num_workers
    hits = graph.add_variable(poplar.UNSIGNED_INT, [tiles, workers], "hits")
    compute_set = graph.add_compute_set("throw")
    for tile in range(tiles):
        vertex = graph.add_vertex(compute_set, "CountHits", {"hits": hits[tile]})
        graph.set_tile_mapping(hits[tile], tile)
        graph.set_tile_mapping(vertex, tile)
        graph.set_initial_value(vertex["seed"], tile + 1)
        graph.set_initial_value(vertex["points"], args.points)
    program = Sequence(Execute(compute_set))
    total = popops.reduce(graph, hits, [0, 1], "sum", program, "total")
    graph.create_host_read("total", total)
    engine = poplar.Engine(graph, program)
    engine.run()
    points = tiles * workers * args.points
    pi = 4 * int(engine.read_tensor("total")[0]) / points
    deviation = math.sqrt(math.pi * (4 - math.pi) / points)
    finish(abs(pi - math.pi) < 5 * deviation, f"pi is about {pi:.5f} after {points:,} points")


if __name__ == "__main__":
    main()
