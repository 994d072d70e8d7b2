"""Breadth-first search on a random graph, level by level, until a level reaches nobody."""

from __future__ import annotations

import numpy as np
from common import finish, new_graph, parser

from poplar_py import poplar, popops
from poplar_py.poplar.program import Copy, Execute, RepeatWhileTrue, Sequence


def random_graph(nodes: int, degree: int) -> list[np.ndarray]:
    """Neighbours of every node of an undirected random graph."""
    rng = np.random.default_rng(6)
    pairs = rng.integers(0, nodes, (nodes * degree // 2, 2))
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return [np.unique(both[both[:, 0] == v, 1]).astype(np.int32) for v in range(nodes)]


def reference(near: list[np.ndarray], source: int) -> np.ndarray:
    """Depths by a queue; -1 for nodes that cannot be reached."""
    depth = np.full(len(near), -1, np.int32)
    depth[source] = 0
    queue = [source]
    for v in queue:
        for w in near[v]:
            if depth[w] < 0:
                depth[w] = depth[v] + 1
                queue.append(int(w))
    return depth


def search(graph: poplar.Graph, near: list[np.ndarray]) -> RepeatWhileTrue:
    """The program: every tile owns some nodes and their lists of neighbours."""
    nodes = len(near)
    owners = min(graph.target.num_tiles, nodes)
    depth = graph.add_variable(poplar.INT, [nodes], "depth")
    frontier = graph.add_variable(poplar.INT, [nodes], "frontier", mapping="linear")
    reached = graph.add_variable(poplar.INT, [nodes], "reached")
    level = graph.add_variable(poplar.INT, [], "level", mapping=0)
    compute_set = graph.add_compute_set("visit")
    for tile in range(owners):
        low, high = nodes * tile // owners, nodes * (tile + 1) // owners
        first = np.cumsum([0] + [len(near[v]) for v in range(low, high)])
        lists = np.concatenate([*near[low:high], np.zeros(1, np.int32)])
        edges = graph.add_constant(poplar.INT, lists.shape, lists, "edges")
        starts = graph.add_constant(poplar.INT, first.shape, first, "first")
        mine = {"depth": depth.slice(low, high), "reached": reached.slice(low, high)}
        more = {"edges": edges, "first": starts, "frontier": frontier, "level": level}
        vertex = graph.add_vertex(compute_set, "Visit", mine | more)
        for thing in (vertex, edges, starts, *mine.values()):
            graph.set_tile_mapping(thing, tile)
    body = Sequence(Execute(compute_set), Copy(reached, frontier))
    popops.map_in_place(graph, "add($0,c(1))", [level], body, "next level")
    found = popops.reduce(graph, reached, [0], "max", body, "found")
    written = {"depth": depth, "frontier": frontier, "level": level, "found": found}
    for name, tensor in written.items():
        graph.create_host_write(name, tensor)
    graph.create_host_read("depth", depth)
    return RepeatWhileTrue(Sequence(), found, body)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--nodes", type=int, default=600)
    options.add_argument("--degree", type=int, default=3)
    args = options.parse_args()
    graph = new_graph(args, "algorithms.py")
    near = random_graph(args.nodes, args.degree)
    program = search(graph, near)

    start = np.full(args.nodes, -1, np.int32)
    start[0] = 0
    engine = poplar.Engine(graph, program)
    engine.write_tensor("depth", start)
    engine.write_tensor("frontier", (start == 0).astype(np.int32))
    engine.write_tensor("level", np.array(1, np.int32))
    engine.write_tensor("found", np.array(1, np.int32))
    engine.run()
    got = engine.read_tensor("depth")
    finish(
        np.array_equal(got, reference(near, 0)),
        f"{(got >= 0).sum()} of {args.nodes} nodes within {got.max()} steps of node 0",
    )


if __name__ == "__main__":
    main()
