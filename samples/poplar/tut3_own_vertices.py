"""Tutorial 3: a codelet of our own, and a vertex of it on each of four tiles."""

from __future__ import annotations

import numpy as np
from common import arguments, finish, new_graph, run

from poplar_py import poplar
from poplar_py.poplar.program import Copy, Execute, Sequence


def main() -> None:
    graph = new_graph(arguments(__doc__), "tutorial.py")
    v1 = graph.add_variable(poplar.FLOAT, [4], "v1")
    v2 = graph.add_variable(poplar.FLOAT, [4], "v2")
    for i in range(4):
        graph.set_tile_mapping(v1[i], i)
        graph.set_tile_mapping(v2[i], i)
    c1 = graph.add_constant(poplar.FLOAT, [4], [1.0, 1.5, 2.0, 2.5], "c1")
    graph.set_tile_mapping(c1, 0)

    compute_set = graph.add_compute_set("suffix sums")
    for i in range(4):
        vertex = graph.add_vertex(compute_set, "SumVertex")
        graph.connect(vertex["x"], v1.slice(i, 4))
        graph.connect(vertex["out"], v2[i])
        graph.set_tile_mapping(vertex, i)
        graph.set_perf_estimate(vertex, 20)
    graph.create_host_read("v2", v2)

    engine = run(graph, Sequence(Copy(c1, v1), Execute(compute_set)))
    got = engine.read_tensor("v2")
    finish(np.array_equal(got, [7.0, 6.0, 4.5, 2.5]), f"suffix sums {got}")


if __name__ == "__main__":
    main()
