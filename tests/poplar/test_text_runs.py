"""A program read back from its text runs to the same bits; one graph end to end against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poplar_py import poplar
from poplar_py.poplar import FLOAT, Graph, Target, program
from poplar_py.poplar.tile_parse import parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module

SOURCE = """
@vertex
class Heat(Vertex):
    rows: Vector[Input[Vector[f32]]]
    out: Output[Vector[f32]]
    k: f32
    def compute(self) -> bool:
        for i in range(len(self.out)):
            middle = self.rows[1][i + 1]
            around = self.rows[0][i + 1] + self.rows[2][i + 1]
            around += self.rows[1][i] + self.rows[1][i + 2]
            self.out[i] = middle + self.k * (around - 4 * middle)
        return True
"""
H, W, STEPS = 18, 34, 5


def build() -> tuple[Graph, program.Program]:
    g = Graph(Target.ipu("gc200", 1, 16))
    g.add_codelets(SOURCE)
    a, b = g.add_variable(FLOAT, (H, W), "a"), g.add_variable(FLOAT, (H, W), "b")
    for i in range(H):
        for t in (a, b):
            g.set_tile_mapping(t[i], min(max(i - 1, 0), 15))

    def step(src: poplar.Tensor, dst: poplar.Tensor) -> program.Execute:
        cs = g.add_compute_set("heat")
        for i in range(1, H - 1):
            rows = [src[i - 1], src[i], src[i + 1]]
            v = g.add_vertex(cs, "Heat", {"rows": rows, "out": dst[i].slice(1, W - 1)})
            g.set_initial_value(v["k"], 0.2)
            g.set_tile_mapping(v, i - 1)
        return program.Execute(cs)

    g.create_host_write("a", a)
    g.create_host_read("a", a)
    both = program.Sequence(step(a, b), step(b, a))
    return g, program.Sequence(program.Copy(a, b), program.Repeat(STEPS, both))


def run(g: Graph, programs: Sequence[program.Program], x: np.ndarray) -> np.ndarray:
    engine: Any = poplar.Engine(g, programs)  # type: ignore[attr-defined]
    engine.load()
    engine.write_tensor("a", x)
    engine.run(0)
    out = np.array(engine.read_tensor("a")).reshape(H, W)
    engine.close()
    return out


def test_heat_from_graph_and_from_text() -> None:
    g, prog = build()
    x = np.random.default_rng(0).standard_normal((H, W)).astype(np.float32)
    got = run(g, [prog], x)
    want, k, four = x.copy(), np.float32(0.2), np.float32(4)
    for _ in range(2 * STEPS):
        new = want.copy()
        around = (want[:-2, 1:-1] + want[2:, 1:-1]) + (want[1:-1, :-2] + want[1:-1, 2:])
        middle = want[1:-1, 1:-1]
        new[1:-1, 1:-1] = middle + k * (around - four * middle)
        want = new
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5)
    tables: dict[str, Any] = {}
    text = print_tile_module(g, [prog], resources=tables)
    found = parse_tile_module(text, "heat.pir", tables)
    assert np.array_equal(run(found.graph, found.programs, x), got)
