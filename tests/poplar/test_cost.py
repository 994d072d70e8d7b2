"""What building costs on the host, in empty method calls timed in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from poplar_py.poplar import FLOAT, Edges, Graph, Target
from poplar_py.poplar.verify import verify_compute_set

SOURCE = """
@vertex
class Scale(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    k: f32
    def compute(self) -> bool:
        for i in range(len(self.y)):
            self.y[i] = self.x[i] * self.k
        return True
"""
N = 94_208


class _Empty:
    def call(self) -> None:
        pass


def _seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def _empty_call() -> float:
    e = _Empty()

    def loop() -> None:
        for _ in range(N):
            e.call()

    return min(_seconds(loop) for _ in range(3)) / N


def _graph() -> Graph:
    g = Graph(Target.of("pod64"))
    g.add_codelets(SOURCE)
    g.add_variable(FLOAT, (N * 8,), "x", "linear")
    g.codelets.get("Scale")
    return g


def _one_by_one(g: Graph) -> None:
    x, y = g.add_variable(FLOAT, (N * 8,), "a"), g.add_variable(FLOAT, (N * 8,), "b")
    cs = g.add_compute_set()
    for i in range(N):
        a, b = i * 8, i * 8 + 8
        v = g.add_vertex(cs, "Scale", {"x": x.slice(a, b), "y": y.slice(a, b)})
        g.set_initial_value(v["k"], 2.0)
        g.set_tile_mapping(v, i)


def _at_once(g: Graph) -> None:
    x, y = g.add_variable(FLOAT, (N * 8,), "a"), g.add_variable(FLOAT, (N * 8,), "b")
    i = np.arange(N)
    edges = {"x": Edges.flat(x, i * 8, i * 8 + 8), "y": Edges.flat(y, i * 8, i * 8 + 8)}
    g.add_vertices(g.add_compute_set(), "Scale", i, edges, {"k": 2.0})


def _ratio(build: Callable[[Graph], None], tries: int = 4) -> float:
    """The best of several: other work on the machine only adds."""
    return min(_seconds(lambda: build(_graph())) / (N * _empty_call()) for _ in range(tries))


@pytest.mark.slow
def test_a_vertex_costs_at_most_150_empty_calls() -> None:
    assert _ratio(_one_by_one) < 150


def test_an_array_vertex_costs_at_most_4_empty_calls() -> None:
    assert _ratio(_at_once) < 4


def test_checks_cost_little() -> None:
    g = _graph()
    _at_once(g)
    for v in g.variables:
        if v.has_unmapped:
            v.log(v.base, v.base + v.size, 0)
    (cs,) = g.compute_sets
    assert min(_seconds(lambda: verify_compute_set(g, cs)) for _ in range(3)) < 0.5
