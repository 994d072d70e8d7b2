"""Sample sort: sort on tiles, choose splitters, exchange buckets, merge.

Exchange is planned before the data is known, so every bucket has room for SLACK times its share;
a bucket that overflows raises a TileException.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import finish, new_graph, parser

from poplar_py import poplar
from poplar_py.poplar.program import Copy, Execute, Sequence

SLACK = 4


def sorter(graph: poplar.Graph, p: int, share: int) -> Sequence:
    """The program that sorts p shares of keys, one on each of p tiles."""
    room = min(share, max(8, SLACK * share // p))

    def spread(dtype: poplar.DType, shape: list[int], name: str) -> poplar.Tensor:
        """A variable whose row i lies on tile i."""
        made = graph.add_variable(dtype, shape, name)
        for tile in range(p):
            graph.set_tile_mapping(made[tile], tile)
        return made

    keys = spread(poplar.FLOAT, [p, share], "keys")
    ordered = spread(poplar.FLOAT, [p, share], "ordered")
    buckets = spread(poplar.FLOAT, [p, p, room], "buckets")
    counts = spread(poplar.INT, [p, p], "counts")
    result = spread(poplar.FLOAT, [p, SLACK * share], "result")
    sizes = spread(poplar.INT, [p], "sizes")
    samples = graph.add_variable(poplar.FLOAT, [p * p], "samples", mapping=0)
    sorted_samples = graph.add_variable(poplar.FLOAT, [p * p], "sorted samples", mapping=0)

    local, choose = graph.add_compute_set("sort"), graph.add_compute_set("choose")
    deal, merge = graph.add_compute_set("deal"), graph.add_compute_set("merge")
    graph.set_tile_mapping(
        graph.add_vertex(choose, "SortShare", {"x": samples, "out": sorted_samples}), 0
    )
    splitters = sorted_samples.slice(p // 2, p * p).sub_sample(p, 0).slice(0, p - 1)
    for t in range(p):
        column: dict[str, Any] = {
            "runs": [buckets[s][t] for s in range(p)],
            "out": result[t],
            "total": sizes[t],
        }
        column["counts"] = [counts[s].slice(t, t + 1) for s in range(p)]
        dealt: dict[str, Any] = {"x": ordered[t], "splitters": splitters, "counts": counts[t]}
        dealt["buckets"] = [buckets[t][b] for b in range(p)]
        for compute_set, name, edges in (
            (local, "SortShare", {"x": keys[t], "out": ordered[t]}),
            (deal, "Split", dealt),
            (merge, "Collect", column),
        ):
            graph.set_tile_mapping(graph.add_vertex(compute_set, name, edges), t)
    step = share // p
    every = [ordered[t].slice(0, step * p).sub_sample(step, 0) for t in range(p)]
    program = Sequence(Execute(local), Copy(poplar.concat(every), samples))
    for compute_set in (choose, deal, merge):
        program.add(Execute(compute_set))
    graph.create_host_write("keys", keys)
    graph.create_host_read("result", result)
    graph.create_host_read("sizes", sizes)
    return program


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--keys", type=int, default=4096)
    options.add_argument("--sorters", type=int, default=16, help="tiles that sort")
    args = options.parse_args()
    graph = new_graph(args, "algorithms.py")
    p = min(args.sorters, graph.target.num_tiles)
    share = args.keys // p
    program = sorter(graph, p, share)

    data = np.random.default_rng(5).standard_normal((p * share,)).astype(np.float32)
    engine = poplar.Engine(graph, program)
    engine.write_tensor("keys", data)
    engine.run()
    rows = engine.read_tensor("result").reshape(p, -1)
    got = np.concatenate(
        [row[:n] for row, n in zip(rows, engine.read_tensor("sizes"), strict=True)]
    )
    finish(np.array_equal(got, np.sort(data)), f"{got.size} keys in order, by {p} tiles")


if __name__ == "__main__":
    main()
