"""Vertices of one compute set moved to another."""

from __future__ import annotations

import numpy as np

from poplar_py.poplar import Engine, Graph, Target, Tensor, program
from poplar_py.popops import map_in_place
from poplar_py.types import f32

CODELET = """
@vertex
class Twice(Vertex):
    x: InOut[Vector[f32]]

    def compute(self) -> bool:
        for i in range(len(self.x)):
            self.x[i] = 2.0 * self.x[i]
        return True
"""


def _one_by_one(graph: Graph, t: Tensor) -> program.Execute:
    cs = graph.add_compute_set("twice")
    for tile in range(4):
        vertex = graph.add_vertex(cs, "Twice", {"x": t.slice(3 * tile, 3 * tile + 3)})
        graph.set_tile_mapping(vertex, tile)
    return program.Execute(cs)


def test_vertices_are_moved() -> None:
    """Groups added as arrays and vertices added one by one run in one superstep afterwards."""
    graph, prog = Graph(Target.ipu("gc200", 1, 4)), program.Sequence()
    graph.add_codelets(CODELET)
    x = np.arange(12, dtype=np.float32)
    a, b = (graph.add_variable(f32, (12,), mapping="linear") for _ in range(2))
    graph.set_initial_value(a, x)
    graph.set_initial_value(b, x)
    map_in_place(graph, "add($0,c(1))", [a], prog, "more")
    whole = prog.steps[-1].compute_set
    count = whole.num_vertices
    other = _one_by_one(graph, b).compute_set
    whole.take_over(other)
    assert (whole.num_vertices, other.num_vertices) == (count + 4, 0)
    assert [g.id for g in whole.groups] == list(range(len(whole.groups)))
    numbers = np.concatenate([g.seq for g in whole.groups])
    assert sorted(numbers) == list(range(count + 4))
    graph.create_host_read("a", a)
    graph.create_host_read("b", b)
    engine = Engine(graph, prog, threads=1)
    engine.run(timeout=60)
    np.testing.assert_array_equal(engine.read_tensor("a"), x + 1)
    np.testing.assert_array_equal(engine.read_tensor("b"), 2 * x)
    engine.close()
