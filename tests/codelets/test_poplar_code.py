"""Statements and functions of public Poplar codelets: enums, switch, SIMD types, intrinsics."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from forms import compiled, run_both

from poplar_py.codelets import CodeletLibrary
from poplar_py.diagnostics import PoplarPyError

F = np.float32

# ---------------------------------------------------------------- enums and match

ENUMS = """
NAMESPACE = "my"

class Kind(Enum):
    ADD = 0
    SUB = 1
    SCALE = -7

K = EnumParam("K", Kind)
T = TypeVar("T", f32, i32)

@vertex
class Op(Vertex, Generic[T, K]):
    x: InOut[Vector[T]]

    def compute(self):
        for i in range(len(self.x)):
            if K is Kind.ADD:
                self.x[i] = self.x[i] + self.x[i]
            elif K == Kind.SUB:
                self.x[i] = -self.x[i]
            else:
                self.x[i] = self.x[i] * cast(K, T)
"""


@pytest.mark.parametrize("form", ["my::Kind::{}", "Kind::{}", "Kind.{}", "{}"])
def test_enum_parameters(form: str) -> None:
    x = np.array([1, 2, 3], np.int32)
    for member, want in (("ADD", 2 * x), ("SUB", -x), ("SCALE", -7 * x)):
        codelet = compiled(ENUMS, f"my::Op<int,{form.format(member)}>")
        assert codelet.name == f"my::Op<int,my::Kind::{member}>"
        np.testing.assert_array_equal(run_both(codelet, {"x": x})["x"], want)


def test_match_is_a_switch() -> None:
    text = """
class Step(IntEnum):
    LEFT = 3
    RIGHT = 4

@vertex
class Walk(Vertex):
    steps: Input[Vector[i32]]
    out: Output[Vector[i32]]

    def name(self, step):
        match step:
            case 0:
                return 100
            case 1 | 2:
                return 200
            case Step.LEFT:
                return 300
            case Step.RIGHT if self.out[0] == 100:
                return 400
            case _:
                return -1

    def compute(self):
        for i in range(len(self.steps)):
            self.out[i] = self.name(self.steps[i])
"""
    steps = np.array([0, 1, 2, 3, 4, 5, -9], np.int32)
    got = run_both(compiled(text, "Walk"), {"steps": steps, "out": np.zeros(7, np.int32)})["out"]
    assert got.tolist() == [100, 200, 200, 300, 400, -1, -1]
    steps[0] = 7
    got = run_both(compiled(text, "Walk"), {"steps": steps, "out": np.zeros(7, np.int32)})["out"]
    assert got.tolist() == [-1, 200, 200, 300, -1, -1, -1]


def test_a_subject_is_evaluated_once() -> None:
    text = """
@vertex
class Once(Vertex):
    n: i32
    out: Output[i32]
    def next(self):
        self.n = self.n + 1
        return self.n
    def compute(self):
        match self.next():
            case 7:
                self.out = 70
            case 8:
                self.out = 80
            case _:
                self.out = 0
"""
    row = {"n": np.array([7], np.int32), "out": np.zeros(1, np.int32)}
    result = run_both(compiled(text, "Once"), row)
    assert (result["n"][0], result["out"][0]) == (8, 80)


def test_only_the_chosen_operand_of_a_conditional_runs() -> None:
    text = """
@vertex
class Choose(Vertex):
    n: i32
    out: Output[Vector[i32]]
    def bump(self, by):
        self.n = self.n + by
        return self.n
    def compute(self):
        for i in range(len(self.out)):
            self.out[i] = self.bump(1) if i % 2 == 0 else self.bump(10)
"""
    row = {"n": np.array([0], np.int32), "out": np.zeros(4, np.int32)}
    assert run_both(compiled(text, "Choose"), row)["out"].tolist() == [1, 11, 12, 22]


# ---------------------------------------------------------------- vectors and intrinsics


def test_poplar_vector_types() -> None:
    text = """
@vertex
class Vectors(Vertex):
    x: Input[Vector[f32]]
    h: Input[Vector[half]]
    k: Input[Vector[unsigned]]
    out: Output[Vector[f32]]
    ints: Output[Vector[u32]]

    def compute(self):
        acc: float2 = float2(0.0)
        for i in range(len(self.x) // 2):
            acc = ipu.fma(load(self.x, 2 * i, 2), float2(2.0), acc)
        store(self.out, 0, acc)
        wide: half4 = load_raw(self.h, 0, 4)
        self.out[2] = ipu.sum(float4(wide))
        self.out[3] = __builtin_ipu_fabs(acc[0]) + ipu.ln(f32(1.0))
        self.out[4] = ipu.maxnum(nan(f32), ipu.copysign(3.0, acc[1]))
        self.ints[0] = ipu.andc(self.k[0], self.k[1])
        self.ints[1] = u32(ipu.isfinite(self.x[0])) + 2 * u32(isfinite(inf(f32)))
        pair: uint2 = uint2(self.k[0])
        self.ints[2] = pair[1] + u32(isfinite(nan(f32)))
"""
    rng = np.random.default_rng(2)
    x = -np.abs(rng.standard_normal(8)).astype(F)
    h = np.arange(4).astype(np.float16)
    k = np.array([0b1101, 0b0110], np.uint32)
    row = {"x": x, "h": h, "k": k, "out": np.zeros(5, F), "ints": np.zeros(3, np.uint32)}
    got = run_both(compiled(text, "Vectors"), row)
    sums = x.reshape(4, 2).astype(np.float64).sum(0) * 2
    np.testing.assert_allclose(got["out"][:2], sums, rtol=1e-6)
    np.testing.assert_allclose(got["out"][2:], [6, -got["out"][0], -3], rtol=1e-6)
    assert got["ints"].tolist() == [0b1001, 1, 13]


REFUSED = {
    "x = ipu.get(3)": "registers of the machine",
    "x = __builtin_ipu_get_tile_id()": "as state",
    "x = ipu.load_postinc(self.x, 1)": "index the field",
    "x = __builtin_ipu_get_scount_l()": "cycle_count",
    "x = ipu.nothing(3)": "",
}


@pytest.mark.parametrize("body", REFUSED)
def test_refused_intrinsics(body: str) -> None:
    text = "@vertex\nclass V(Vertex):\n    x: Input[Vector[f32]]\n    def compute(self):\n"
    text += f"        {body}\n"
    with pytest.raises(PoplarPyError, match="intrinsic") as caught:
        compiled(text, "V")
    assert REFUSED[body] in str(caught.value)
    assert (caught.value.loc.file, caught.value.loc.line) == ("forms.py", 5)


@pytest.mark.parametrize("name", ["my::Op<int,Other::ADD>", "my::Op<int,DIV>", "my::Op<int,0>"])
def test_unknown_members(name: str) -> None:
    with pytest.raises(PoplarPyError, match="cannot be"):
        compiled(ENUMS, name)


def test_refused_patterns() -> None:
    text = """
@vertex
class V(Vertex):
    x: Input[i32]
    def compute(self):
        match self.x:
            case [a, b]:
                pass
"""
    with pytest.raises(PoplarPyError, match="a case is a value") as caught:
        compiled(text, "V")
    assert (caught.value.loc.line, caught.value.loc.col) == (7, 18)
    with pytest.raises(PoplarPyError, match="has no member DIV"):
        compiled(ENUMS.replace("Kind.SUB:", "Kind.DIV:"), "my::Op<int,SUB>")


def test_a_class_of_a_python_file_takes_its_enums_along(tmp_path) -> None:
    """The source is valid Python too: int and enum parameters stand in Generic[...]."""
    path = tmp_path / "forms_module.py"
    text = ENUMS.replace("Generic[T, K]", "Generic[T, K, N]").replace(
        "T = ", 'N = IntParam("N")\nT = '
    )
    path.write_text("from poplar_py.codelets.language import *\n" + text)
    scope: dict[str, object] = {"__name__": "forms_module"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    module = types.ModuleType("forms_module")
    module.__file__ = str(path)
    module.__dict__.update(scope)
    sys.modules["forms_module"] = module
    try:
        library = CodeletLibrary()
        assert library.add_class(scope["Op"]) == "my::Op"  # type: ignore[arg-type]
        assert library.get("my::Op<int,SUB,4>").name == "my::Op<int,my::Kind::SUB,4>"
    finally:
        del sys.modules["forms_module"]
