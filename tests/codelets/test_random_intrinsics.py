"""Random intrinsics: distributions, state from run to run, seeds, independence of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forms import compiled, run_both
from scipy import stats

from poplar_py.codelets.lower_random import first_seeds
from poplar_py.poplar import Engine, Graph, Target, program
from poplar_py.poplar.tile_parse import parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module
from poplar_py.types import f32, u32, u64

DRAW = """
@vertex
class Draw(Vertex):
    words: Output[Vector[u32]]
    longs: Output[Vector[u64]]
    unit: Output[Vector[f32]]
    normal: Output[Vector[f32]]

    def compute(self) -> None:
        for i in range(len(self.words)):
            self.words[i] = urand32()
            self.longs[i] = __builtin_ipu_urand64()
            self.unit[i] = ipu.urand_f32()
            pair = f32v2grand()
            self.normal[2 * i] = pair[0]
            self.normal[2 * i + 1] = pair[1]
"""
N = 20_000


def splitmix(counter: int) -> tuple[int, int]:
    """The published generator: (next counter, word)."""
    mask = (1 << 64) - 1
    counter = z = (counter + 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return counter, z ^ (z >> 31)


def test_distributions() -> None:
    row = {
        "words": np.zeros(N, np.uint32),
        "longs": np.zeros(N, np.uint64),
        "unit": np.zeros(N, np.float32),
        "normal": np.zeros(2 * N, np.float32),
        "prng": np.array([12345], np.uint64),
    }
    got = run_both(compiled(DRAW, "Draw"), row)
    counter, word = splitmix(12345)
    assert got["words"][0] == word >> 32
    counter, word = splitmix(counter)
    assert got["longs"][0] == word
    assert got["prng"][0] == (12345 + 4 * N * 0x9E3779B97F4A7C15) % (1 << 64)
    unit = got["unit"].astype(np.float64)
    assert unit.min() >= -0.5
    assert unit.max() < 0.5
    assert stats.kstest(unit, "uniform", (-0.5, 1.0)).pvalue > 0.01
    assert stats.kstest(got["words"] / 2.0**32, "uniform").pvalue > 0.01
    assert stats.kstest(got["longs"] / 2.0**64, "uniform").pvalue > 0.01
    assert stats.kstest(got["normal"].astype(np.float64), "norm").pvalue > 0.01
    pairs = got["normal"].reshape(-1, 2).astype(np.float64)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 4 / np.sqrt(N)
    bytes_of = got["longs"].view(np.uint8)
    assert stats.chisquare(np.bincount(bytes_of, minlength=256)).pvalue > 0.01


NOISE = """
@vertex
class Noise(Vertex):
    out: Output[Vector[u32]]
{field}
    def compute(self) -> None:
        for i in range(len(self.out)):
            self.out[i] = urand32()
"""


def draw_in_graph(
    seeds: list[int] | None = None, runs: int = 1, text: bool = False, **options: Any
) -> np.ndarray:
    """Words of 12 vertices on 3 tiles after some runs: u32[runs, 12, 4]."""
    graph = Graph(Target.ipu("gc200", 1, 4))
    graph.add_codelets(NOISE.format(field="    prng: u64\n" if seeds else ""))
    out = graph.add_variable(u32, (12, 4), "out", mapping="linear")
    graph.create_host_read("out", out)
    cs = graph.add_compute_set("noise")
    for v in range(12):
        vertex = graph.add_vertex(cs, "Noise", {"out": out[v]})
        graph.set_tile_mapping(vertex, v % 3)
        if seeds:
            graph.set_initial_value(vertex["prng"], seeds[v])
    prog: program.Program = program.Execute(cs)
    if text:
        tables: dict[str, Any] = {}
        read = parse_tile_module(print_tile_module(graph, [prog], resources=tables), "n", tables)
        graph, prog = read.graph, read.programs[0]
    engine = Engine(graph, prog, **options)
    found: list[np.ndarray] = []
    for _ in range(runs):
        engine.run()
        found.append(engine.read_tensor("out").reshape(12, 4))
    engine.close()
    return np.stack(found)


def test_unseeded_vertices_draw_apart_and_go_on_from_run_to_run() -> None:
    got = draw_in_graph(runs=3, threads=1)
    assert len(np.unique(got)) == got.size
    starts = first_seeds(np.arange(12, dtype=np.int32) % 3, np.arange(12))
    for v in range(12):
        counter = int(starts[v])
        for word in got[:, v].ravel().tolist():
            counter, made = splitmix(counter)
            assert word == made >> 32


@pytest.mark.parametrize(
    "options", [{"threads": 2}, {"faithful_exchange": True}, {"checked": False}, {"text": True}]
)
def test_the_way_of_running_changes_nothing(options: dict[str, Any]) -> None:
    got = draw_in_graph(runs=2, **{"threads": 1, **options})
    np.testing.assert_array_equal(got, draw_in_graph(runs=2, threads=1))


def test_seeds_are_state() -> None:
    got = draw_in_graph(seeds=[7] * 6 + list(range(100, 106)), threads=1)[0]
    assert (got[:6] == got[0]).all()
    assert len(np.unique(got[5:])) == 28
    assert got[0, 0] == splitmix(7)[1] >> 32


def test_groups_are_seeded_too() -> None:
    """`add_vertices` takes seeds as an array, or starts every vertex apart."""
    from poplar_py.poplar.edges import Edges

    for seeds in (None, np.arange(6, dtype=np.uint64)):
        graph = Graph(Target.ipu("gc200", 1, 4))
        graph.add_codelets(NOISE.format(field=""))
        out = graph.add_variable(u32, (24,), "out", mapping=0)
        graph.create_host_read("out", out)
        cs = graph.add_compute_set("noise")
        at = np.arange(6) * 4
        edges = {"out": Edges.flat(out, at, at + 4)}
        state = {} if seeds is None else {"prng": seeds}
        graph.add_vertices(cs, "Noise", np.zeros(6, np.int32), edges, state)
        engine = Engine(graph, program.Execute(cs), threads=1)
        engine.run()
        got = engine.read_tensor("out").reshape(6, 4)
        engine.close()
        assert len(np.unique(got)) == 24
        if seeds is not None:
            assert got[:, 0].tolist() == [splitmix(k)[1] >> 32 for k in range(6)]


def test_a_short_circuit_draws_only_what_it_needs() -> None:
    text = """
@vertex
class Lazy(Vertex):
    out: Output[Vector[f32]]
    prng: u64

    def compute(self):
        a = urand_f32() if self.out[0] > 0.0 else 2.0
        if self.out[1] > 0.0 and urand_f32() < 1.0:
            self.out[1] = a
        while urand_f32() < 0.0:
            self.out[2] = self.out[2] + 1.0
"""
    codelet = compiled(text, "Lazy")
    assert codelet.field("prng").dtype is u64
    assert codelet.field("out").dtype is f32
    step = 0x9E3779B97F4A7C15
    for out, least in (([0.0, 0.0, 0.0], 1), ([1.0, 1.0, 0.0], 3)):
        row = {"out": np.array(out, np.float32), "prng": np.array([99], np.uint64)}
        got = run_both(codelet, row)
        rounds = int(got["out"][2])
        assert got["prng"][0] == (99 + (least + rounds) * step) % (1 << 64)
