"""What C++ codelets do and a porter writes down in Python: the same values, or a word of help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forms import compiled, run_both

from poplar_py.codelets import CodeletLibrary
from poplar_py.diagnostics import PoplarPyError

F, S, U = np.float32, np.int32, np.uint32


def vertex(body: str, fields: str, top: str = "", base: str = "Vertex") -> str:
    """A source with one vertex class V."""
    lines = [top, "@vertex", f"class V({base}):", *(f"    {f}" for f in fields.split("; "))]
    return "\n".join(
        [*lines, "    def compute(self):", *(f"        {b}" for b in body.split("\n"))]
    )


def outcome(body: str, dtypes: tuple[Any, Any], x: Any, n: int = 1, top: str = "") -> Any:
    """y[n] after a vertex with x and y of these types."""
    names = {np.uint8: "u8", np.int8: "i8", np.uint16: "u16", np.int16: "i16"}
    names |= {S: "i32", U: "u32", F: "f32"}
    fields = f"x: Input[Vector[{names[dtypes[0]]}]]; y: Output[Vector[{names[dtypes[1]]}]]"
    row = {"x": np.array(x, dtypes[0]), "y": np.zeros(n, dtypes[1])}
    return run_both(compiled(vertex(body, fields, top), "V"), row)["y"]


# ---------------------------------------------------------------- integers as in C

NARROW = {
    "self.y[0] = (self.x[0] + self.x[1]) // 2": 150,
    "self.y[0] = self.x[0] << 8 | self.x[1]": 200 * 256 + 100,
    "self.y[0] = self.x[1] - self.x[0]": -100,
    "self.y[0] = -self.x[0]": -200,
    "self.y[0] = ~self.x[0]": -201,
    "self.y[0] = self.x[0] * self.x[0]": 40000,
    "self.y[0] = self.x[0] + 1000": 1200,
    "b = u8(self.x[0] + self.x[1])\nself.y[0] = b": 44,
    "b = self.x[0]\nb += self.x[1]\nself.y[0] = b": 44,
    "self.y[0] = 1 if self.x[1] - self.x[0] < 0 else 0": 1,
}


@pytest.mark.parametrize("body", NARROW)
def test_bytes_count_as_ints(body: str) -> None:
    assert outcome(body, (np.uint8, S), [200, 100])[0] == NARROW[body]


def test_mixed_narrow_types_compare_as_ints() -> None:
    source = vertex(
        "self.y[0] = 1 if self.a > self.b else 0",
        "a: Input[u16]; b: Input[i8]; y: Output[Vector[i32]]",
    )
    row = {"a": np.array(2, np.uint16), "b": np.array(-128, np.int8), "y": np.zeros(1, S)}
    assert run_both(compiled(source, "V"), row)["y"][0] == 1


def test_remainder_of_a_hash_by_a_length() -> None:
    """u32 % i32 is the remainder of the numbers, not of a negative int."""
    body = "self.y[0] = self.x[0] % len(self.x)\nself.y[1] = self.x[0] // len(self.x)"
    value = 0x9E3779B9
    got = outcome(body, (U, U), [value, 0, 0], n=2)
    assert got.tolist() == [value % 3, value // 3]


def test_quotients_as_c_has_them() -> None:
    body = "self.y[0] = quot(self.x[0], self.x[1])\nself.y[1] = rem(self.x[0], self.x[1])"
    assert outcome(body, (S, S), [-7, 2], n=2).tolist() == [-3, -1]


# ---------------------------------------------------------------- statements

ROUNDS = """for i in range(self.a, self.b, self.s):
    if i == 5:
        continue
    self.y[self.n] = i
    self.n += 1"""


@pytest.mark.parametrize(
    ("a", "b", "s"), [(0, 10, 3), (10, 0, -4), (2, 9, 1), (7, 7, 2), (5, 1, 2), (0, 10, 5)]
)
def test_a_step_that_the_vertex_knows(a: int, b: int, s: int) -> None:
    source = vertex(ROUNDS, "y: Output[Vector[i32]]; n: InOut[i32]; a: i32; b: i32; s: i32")
    codelet = compiled(source, "V")
    row = {"y": np.full(12, -1, S), "n": np.zeros(1, S), "a": a, "b": b, "s": s}
    want = [i for i in range(a, b, s) if i != 5]
    assert run_both(codelet, row)["y"].tolist() == want + [-1] * (12 - len(want))


def test_strided_rounds_are_counted_in_the_cycles() -> None:
    body = "for i in range(0, len(self.y), self.s):\n    self.y[i] = 1.0 / self.y[i]"
    codelet = compiled(vertex(body, "y: InOut[Vector[f32]]; s: u32"), "V")
    sizes = {"y": np.full(3, 600)}
    cycles = codelet.cycles(sizes, {"s": np.array([1, 2, 6])})
    assert cycles[0] - cycles[1] == pytest.approx(300 * 11, rel=0.2)
    assert cycles[2] < cycles[1] < cycles[0]


EVERY = "for i in range(len(self.y)):\n    {}"
WHILES = {
    "i = 0\nwhile i < len(self.y):\n    {}\n    i += 1": EVERY,
    "i = len(self.y) - 1\nwhile i >= 0:\n    {}\n    i -= 1": EVERY,
    "i = 2\nwhile i <= self.n:\n    {}\n    i += 3": "for i in range(2, self.n + 1, 3):\n    {}",
    "i = u32(0)\nwhile i != self.n:\n    {}\n    i += 1": "for i in range(self.n):\n    {}",
}


@pytest.mark.parametrize("loop", WHILES)
def test_whiles_that_count_cost_their_rounds(loop: str) -> None:
    """As many cycles as the `for` of the same rounds, but for the counter."""
    cycles = []
    for text in (loop, WHILES[loop]):
        body = text.format("self.y[i] = exp(self.y[i])")
        codelet = compiled(vertex(body, "y: InOut[Vector[f32]]; n: u32"), "V")
        sizes, state = {"y": np.array([100, 400])}, {"n": np.array([100, 400])}
        cycles.append(codelet.cycles(sizes, state).astype(float))
    rounds = cycles[1][1] / 9
    assert abs(cycles[0] - cycles[1]).max() <= 4 * rounds
    assert cycles[0][1] > 3.5 * cycles[0][0]


def test_whiles_on_data_keep_the_nominal_rounds() -> None:
    moved = "i = 0\nn = len(self.y)\nwhile i < n:\n    self.y[i] = 1.0\n    i += 1\n    n -= 1"
    loaded = "i = 0\nwhile self.y[i] > 0.0:\n    i += 1"
    for body in (moved, loaded):
        codelet = compiled(vertex(body, "y: InOut[Vector[f32]]"), "V")
        cycles = codelet.cycles({"y": np.array([10, 1000])}, {})
        assert cycles[0] == cycles[1]


def test_masked_vectors_cost_by_lane() -> None:
    """The rest of a run: as much of a vector as it has elements, two floats or one int a time."""
    body = (
        "n = len(self.y)\nfor i in range(0, n, 16):\n"
        "    store16(self.y, i, load16(self.y, i, n - i) * load16(self.y, i, n - i), n - i)"
    )
    sizes = {"y": np.array([0, 1, 2, 4, 16, 32])}
    for kind in ("f32", "i32"):
        cycles = compiled(vertex(body, f"y: InOut[Vector[{kind}]]"), "V").cycles(sizes, {})
        empty, one, two, four, whole, both = (cycles - cycles[0]).tolist()
        assert empty == 0
        assert two <= 2 * one
        assert two == pytest.approx(whole / 8, abs=1)
        assert four == pytest.approx(whole / 4, abs=1)
        assert both == pytest.approx(2 * whole, abs=2)
        assert (one == two) == (kind == "f32")


def test_the_rest_of_a_run_costs_by_lane() -> None:
    body = (
        "n = len(self.y)\nrest = n & 15\nfor i in range(0, n - rest, 16):\n"
        "    store16(self.y, i, load16(self.y, i) + 1.0)\nif rest > 0:\n"
        "    store16(self.y, n - rest, load16(self.y, n - rest, rest) + 1.0, rest)"
    )
    codelet = compiled(vertex(body, "y: InOut[Vector[f32]]"), "V")
    cycles = codelet.cycles({"y": np.array([16, 17, 24, 31, 32])}, {})
    assert (np.diff(cycles) >= 0).all()
    assert cycles[3] - cycles[2] > cycles[1] - cycles[0] - 2


ROUNDS_OF_ANY_STATE = {
    "for i in range(i32(self.f)):\n    self.y[i] = 1.0": [np.nan, np.inf, -np.inf, 3e38],
    "for i in range(self.n):\n    for j in range(self.n):\n        self.y[i] = 1.0": [2**62, -1],
    "for i in range(0, self.n, self.n):\n    self.y[i] = 1.0": [0, -(2**62)],
    "for i in range(self.n * self.n * self.n):\n    self.y[i] = 1.0": [2**62],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("body", ROUNDS_OF_ANY_STATE)
def test_cycles_of_any_state(body: str) -> None:
    """State that makes no sense gives a figure, without a word of NumPy's."""
    codelet = compiled(vertex(body, "y: Output[Vector[f32]]; n: i64; f: f32"), "V")
    for value in ROUNDS_OF_ANY_STATE[body]:
        state = {"n": np.array([0 if isinstance(value, float) else value])}
        state["f"] = np.array([float(value)])
        cycles = codelet.cycles({"y": np.array([4.0])}, state)
        assert 0 < cycles[0] <= 2**53


FORMS = {
    "a = b = self.x[0]\nself.y[0] = a + b": 2.0,
    "(a, b), c = (self.x[0], self.x[1]), 4.0\nself.y[0] = a + b * c": 9.0,
    "t = 0.0\nfor i, v in enumerate(self.x):\n    t += v * f32(i)\nself.y[0] = t": 2 + 6 + 12.0,
    "t = 0.0\nfor a, b in zip(self.x, self.x):\n    t += a * b\nself.y[0] = t": 30.0,
    "t = 0.0\nfor a, b in ((1.0, 2.0), (3.0, 4.0)):\n    t += a * b\nself.y[0] = t": 14.0,
    "v = float2(self.x[0], self.x[1])\nv[0] = self.x[3]\nself.y[0] = v[0] * 10.0 + v[1]": 42.0,
    "a = array(f32, [self.x[1], 5.0])\nfor v in self.x:\n    a[0] += v\nself.y[0] = a[0]": 12.0,
    "i = len(self.x) - 2\nself.y[0] = TABLE[i]": 7.5,
    "t: float = 0.0\nfor k in unroll(3):\n    t += TABLE[k]\nself.y[0] = t": 12.0,
    "self.y[0] = fabs(0.0 - self.x[2]) + math.fabs(-1.0 * self.x[0])": 4.0,
    "self.y[0] = scaled(self.x[1], k=3.0)": 6.0,
    "self.y[0] = scaled(k=3.0, v=self.x[1])": 6.0,
    "self.y[0] = scaled(self.x[1])": 1.0,
}
TOP = "TABLE = (1.5, 3.0, 7.5)\ndef scaled(v: float, k: float = 0.5) -> float:\n    return v * k\n"


@pytest.mark.parametrize("body", FORMS)
def test_statement_forms(body: str) -> None:
    assert outcome(body, (F, F), [1, 2, 3, 4], top=TOP)[0] == FORMS[body]


def test_a_table_is_checked() -> None:
    source = vertex("self.y[0] = TABLE[self.k]", "y: Output[Vector[f32]]; k: i32", TOP)
    codelet = compiled(source, "V")
    from poplar_py.codegen.run_codelet import run_codelet

    result = run_codelet(codelet, {"y": np.zeros(1, F), "k": 3}, checked=True)
    assert int(result.ctx[1]) == 1


# ---------------------------------------------------------------- spellings

SPELLED = """
    from poplar_py.codelets import language as pl

    class Mode(pl.IntEnum):
        SUM = 0
        LAST = 1

    @pl.vertex
    class Spelled(pl.MultiVertex):
        in_: pl.Input[pl.Vector[float, poplar.VectorLayout.ONE_PTR]]
        out: 'pl.Output[pl.Vector[pl.f32]]'
        mode: Mode
        n: int

        @staticmethod
        def last(run: pl.Input[pl.Vector[float]], n: int) -> float:
            return run[n - 1]

        def compute(self, worker_id: pl.u32) -> 'bool':
            if worker_id > 0:
                return True
            if self.mode == Mode.LAST:
                self.out[0] = Spelled.last(self.in_, self.n)
                return True
            self.out[0] = 0.0
            for i in range(worker_id, self.n * self.num_workers(), self.num_workers()):
                self.out[0] += self.in_[i // self.num_workers()]
            return True

    if __name__ == "__main__":
        raise SystemExit("codelets may stand in the file of their program")
"""


@pytest.mark.parametrize(("mode", "want"), [(0, 6.0), (1, 3.0)])
def test_spellings(mode: int, want: float) -> None:
    codelet = compiled("\ufeff" + SPELLED, "Spelled")
    assert [f.name for f in codelet.fields] == ["in", "out", "mode", "n"]
    row = {"in": np.array([1, 2, 3], F), "out": np.zeros(1, F), "mode": mode, "n": 3}
    assert run_both(codelet, row)["out"][0] == want


# ---------------------------------------------------------------- words of help

HELP = {
    "n = self.x.size()": "write len(x)",
    "return true": "write True",
    "print(self.x[0])": "PrintTensor",
    "self.y[0] = std.max(self.x[0], 1.0)": "max(a, b)",
    "self.y[0] = sqrtf(self.x[0])": "write sqrt",
    "self.y[0] = math.hypot(self.x[0], 1.0)": "x * x",
    "self.y[:] = 0.0": "loop over the elements",
    "if (n := 3) > 2:\n    pass": "on a line of its own",
    "f = lambda a: a": "helper function",
    "try:\n    pass\nfinally:\n    pass": "abort_if",
    "raise ValueError()": "abort_if",
    "global n": "field of the vertex",
    "a = [0.0] * 4": "array(T, n)",
    "a = (1.0, 2.0)\na[0] = 3.0": "array(f32",
    "for i in range(3):\n    pass\nself.y[0] = f32(i)": "local set before the loop",
    "self.y[0] = x[0]": "self.x",
    "self.y[0] = max(self.x)": "loop over the elements",
    "n: uint32_t = 3": "the type is u32",
    "v: float3 = 1.0": "float4",
    "k = len(self.x) / 2": "quot(a, b)",
}


@pytest.mark.parametrize("body", HELP)
def test_errors_say_what_to_write(body: str) -> None:
    library = CodeletLibrary()
    library.add_source(vertex(body, "x: Input[Vector[f32]]; y: Output[Vector[f32]]"), "v.py")
    with pytest.raises(PoplarPyError) as caught:
        library.get("V")
    assert HELP[body] in caught.value.remedy
    assert caught.value.loc.line >= 6


CPP = [
    "#include <poplar/Vertex.hpp>\nclass V : public poplar::Vertex {\n};\n",
    "@vertex\nclass V(Vertex):\n    def compute(self):\n        float acc = 0.0\n",
    "@vertex\nclass V(Vertex):\n    def compute(self):\n        i++\n",
    "template <typename T>\nclass V {};\n",
]


@pytest.mark.parametrize("text", CPP)
def test_cpp_is_recognised(text: str) -> None:
    with pytest.raises(PoplarPyError) as caught:
        CodeletLibrary().add_source(text, "v.cpp")
    assert "looks like C++" in caught.value.remedy


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        ("def compute(self) -> f32:\n        return 1.0", "a bool, or nothing"),
        (
            "def compute(self) -> bool:\n        if self.k:\n            return True",
            "some paths only",
        ),
    ],
)
def test_what_compute_returns(compute: str, message: str) -> None:
    library = CodeletLibrary()
    library.add_source(f"@vertex\nclass V(Vertex):\n    k: Input[i32]\n    {compute}\n", "v.py")
    with pytest.raises(PoplarPyError, match=message):
        library.get("V")


def test_calls_of_helpers_by_name_are_checked() -> None:
    for call in ("scaled(1.0, q=2.0)", "scaled(1.0, v=2.0)", "scaled(k=2.0)", "sqrt(x=1.0)"):
        library = CodeletLibrary()
        library.add_source(vertex(f"self.y[0] = {call}", "y: Output[Vector[f32]]", TOP), "v.py")
        with pytest.raises(PoplarPyError, match=r"no parameter|wants|for helpers only"):
            library.get("V")
