"""Codelets at the edges of their types equal NumPy; what has no value raises a TileException."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from codelet_cases import TEXT, draw, edge_values, run
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from poplar_py.diagnostics import InternalError, PoplarPyError, RunTimeout, TileException
from poplar_py.poplar import Engine, Graph, Target, program
from poplar_py.types import DTYPES, i32


def tries(count: int) -> settings:
    """So many examples, in any time."""
    checks = list(HealthCheck)
    return settings(max_examples=count, deadline=None, suppress_health_check=checks, database=None)


N = 61


def equals_numpy(number: int) -> None:
    """A random expression in checked and unchecked code."""
    rng = np.random.default_rng(number)
    trial = draw(rng)
    x, y = edge_values(rng, trial.a, N), edge_values(rng, trial.b, N)
    with np.errstate(all="ignore"):
        want = trial.account(x, y)
    text = TEXT.format(a=trial.a.name, b=trial.b.name, c=trial.c.name, expr=trial.expr)
    for checked in (True, False):
        got = run(text, {"x": x, "y": y}, trial.c, N, checked=checked)
        np.testing.assert_array_equal(got, want, err_msg=f"{number}: {trial.expr} of {trial.a}")


@seed(1)
@tries(25)
@given(st.integers(0, 1 << 30))
def test_arithmetic(number: int) -> None:
    equals_numpy(number)


@pytest.mark.slow
@seed(2)
@tries(400)
@given(st.integers(0, 1 << 30))
def test_arithmetic_long(number: int) -> None:
    equals_numpy(number)


@pytest.mark.parametrize("op", ["//", "%"])
@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u32", "u64"])
def test_division(name: str, op: str) -> None:
    """By zero and INT_MIN by -1: an exception naming the vertex, never the end of the process."""
    t = DTYPES[name]
    text = TEXT.format(a=name, b=name, c=name, expr=f"{name}(a {op} b)")
    info = np.iinfo(t.numpy)
    lowest = t.kind == "i" and t.size >= 4  # smaller ints divide as i32
    bad = [(5, 0), (0, 0)] + ([(info.min, -1)] if lowest and op == "//" else [])
    for a, b in bad:
        x, y = np.ones(4, t.numpy), np.ones(4, t.numpy)
        x[2], y[2] = a, b
        with pytest.raises(TileException, match="division"):
            run(text, {"x": x, "y": y}, t, 4, checked=True)
    x, y = np.array([7, 100, 3], t.numpy), np.array([2, 7, 5], t.numpy)
    want = x // y if op == "//" else x % y
    np.testing.assert_array_equal(run(text, {"x": x, "y": y}, t, 3), want)


INDEX = """
@vertex
class V(Vertex):
    x: {kind}
    k: Input[Vector[i32]]
    out: Output[Vector[i32]]

    def compute(self) -> None:
        {body}
"""
PLACES: dict[str, tuple[str, str]] = {
    "read": ("Input[Vector[i32]]", "self.out[0] = self.x[self.k[0]]"),
    "write": ("Input[Vector[i32]]", "self.out[self.k[0]] = self.x[0]"),
    "array": ("Input[Vector[i32]]", "t = array(i32, 8)\n        self.out[0] = t[self.k[0]]"),
    "store": ("Input[Vector[i32]]", "t = array(i32, 8)\n        t[self.k[0]] = self.x[0]"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("index", [-1, 8, 1 << 20, (1 << 31) - 1, -(1 << 31)])
def test_wrong_index(place: str, index: int) -> None:
    kind, body = PLACES[place]
    text = INDEX.format(kind=kind, body=body)
    x = np.arange(8, dtype=np.int32)
    with pytest.raises(TileException, match="out of range") as caught:
        run(text, {"x": x, "k": np.array([index], np.int32)}, i32, 8, checked=True)
    assert str(index) in caught.value.message


NESTED = """
@vertex
class V(Vertex):
    rows: Vector[Input[Vector[i32]]]
    k: i32
    j: i32
    out: Output[i32]

    def compute(self) -> None:
        self.out = self.rows[self.k][self.j]
"""


@pytest.mark.parametrize(
    ("k", "j"), [(0, 3), (1, 5), (0, -1), (2, 0), (-1, 0), (0, 1 << 30), (1 << 30, 0)]
)
def test_wrong_index_in_nested_edge(k: int, j: int) -> None:
    """Rows of 3 and 5 elements; both the row and the place in it are checked."""
    graph = Graph(Target.ipu("gc200", 1, 4))
    graph.add_codelets(NESTED)
    x = graph.add_constant(i32, (8,), np.arange(8), "x", 1)
    out = graph.add_variable(i32, (), "out", mapping=0)
    cs = graph.add_compute_set("nested")
    vertex = graph.add_vertex(cs, "V")
    graph.connect(vertex["rows"], [x.slice(0, 3), x.slice(3, 8)])
    graph.connect(vertex["out"], out)
    graph.set_initial_value(vertex["k"], k)
    graph.set_initial_value(vertex["j"], j)
    graph.set_tile_mapping(vertex, 2)
    engine = Engine(graph, program.Execute(cs), threads=1, checked=True)
    with pytest.raises(TileException, match="out of range"):
        engine.run(timeout=10)
    engine.close()


ENDLESS = {
    "while": "while self.out[0] >= -1:\n            self.out[0] = 1",
    "nested": "while True:\n            for i in range(8):\n                self.out[i] = i",
    "empty": "while self.x[0] == self.x[0]:\n            pass",
}


@pytest.mark.parametrize("body", ENDLESS)
def test_endless(body: str) -> None:
    text = INDEX.format(kind="Input[Vector[i32]]", body=ENDLESS[body])
    values = {"x": np.zeros(8, np.int32), "k": np.zeros(1, np.int32)}
    with pytest.raises(RunTimeout):
        run(text, values, i32, 8, timeout=0.2, checked=True)


REFUSED = {
    "unknown name": "self.out[0] = nothing",
    "unknown field": "self.out[0] = self.nothing",
    "writes an input": "self.x[0] = 1",
    "a call of nothing": "self.out[0] = self.x[0](3)",
    "a string": "self.out[0] = 'text'",
    "an import": "import os",
    "a lambda": "f = lambda: 1",
    "a dict": "t = {1: 2}",
    "a comprehension": "t = sum(i for i in range(3))",
    "try": "try:\n            pass\n        finally:\n            pass",
    "eval": "self.out[0] = eval('1')",
    "attribute of a number": "self.out[0] = self.x[0].real",
    "too few arguments": "self.out[0] = min()",
    "a local before it is set": "self.out[0] = t\n        t = 1",
    "index by a float": "self.out[0] = self.x[1.5]",
    "huge local array": "t = array(i32, 100000000)\n        self.out[0] = t[0]",
    "array of no size": "t = array(i32, self.x[0])\n        self.out[0] = t[0]",
    "syntax": "self.out[0] = = 1",
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    text = INDEX.format(kind="Input[Vector[i32]]", body=REFUSED[what])
    values = {"x": np.zeros(8, np.int32), "k": np.zeros(1, np.int32)}
    with pytest.raises(PoplarPyError) as caught:
        run(text, values, i32, 8)
    assert not isinstance(caught.value, InternalError)
    assert caught.value.loc.line, caught.value


def mangled(number: int) -> str:
    """A good codelet with a few characters or words changed."""
    rng = np.random.default_rng(number)
    text = TEXT.format(a="i32", b="i32", c="i32", expr="(a * 3 + b) % 7")
    tokens = [
        "self",
        "[",
        "]",
        "(",
        ")",
        ":",
        "0",
        "-1",
        "1e400",
        "f16",
        "**",
        "lambda",
        "\n",
        "  ",
    ]
    change: list[Callable[[str, int], str]] = [
        lambda s, i: s[:i] + s[i + int(rng.integers(1, 9)) :],
        lambda s, i: s[:i] + str(rng.choice(tokens)) + s[i:],
        lambda s, i: s[:i] + chr(int(rng.integers(1, 0x2FF))) + s[i + 1 :],
    ]
    for _ in range(int(rng.integers(1, 4))):
        text = change[int(rng.integers(3))](text, int(rng.integers(len(text))))
    return text


def survives(number: int) -> None:
    """A mangled source runs (with any values) or raises one of our errors."""
    values = {name: np.arange(8, dtype=np.int32) for name in ("x", "y")}
    try:
        run(mangled(number), values, i32, 8, timeout=2, checked=True)
    except InternalError:
        raise
    except PoplarPyError:
        return


@seed(3)
@tries(60)
@given(st.integers(0, 1 << 30))
def test_mangled(number: int) -> None:
    survives(number)


@pytest.mark.slow
@seed(4)
@tries(2000)
@given(st.integers(0, 1 << 30))
def test_mangled_long(number: int) -> None:
    survives(number)
