"""Expression codelets against their NumPy meaning; hypothesis makes the trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py.codegen.run_codelet import run_codelet
from poplar_py.codelets import expr, get
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import bool_, f16, f32, i8, i32, u8

SHAPES = {"full": (3, 37), "row": (1, 37), "col": (3, 1), "scalar": (1, 1)}


def run_block(text: str, arrays: list[np.ndarray], modes: list[str], **options: Any) -> np.ndarray:
    """Run over a 3 x 37 block; the same codelet also comes back from its name and its text."""
    codelet = expr.map_codelet(text, [expr.dtype_of(a) for a in arrays], None, modes)
    assert get(codelet.name) is codelet or get(codelet.name).digest == codelet.digest
    printed = print_codelet(codelet.ir)
    assert print_codelet(parse_codelet(printed)) == printed
    row = {"out": np.zeros(111, codelet.fields[0].dtype.numpy)}
    row |= {f"in{i}": a.reshape(-1) for i, a in enumerate(arrays)}
    return run_codelet(codelet, row | {"rows": 3, "cols": 37}, **options)["out"].reshape(3, 37)


def array(dtype: Any, mode: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is bool_:
        return rng.random(SHAPES[mode]) > 0.5
    if dtype.is_float:
        return (rng.standard_normal(SHAPES[mode]) * 3).astype(dtype.numpy)
    return rng.integers(-100, 100, SHAPES[mode]).astype(dtype.numpy)


@pytest.mark.parametrize("modes", [a + " " + b for a in SHAPES for b in SHAPES])
def test_modes(modes) -> None:
    a, b = modes.split()
    x, y = array(f32, a, 1), array(f32, b, 2)
    for checked in (False, True):
        got = run_block("add(mul($0,$1),c(0.5))", [x, y], [a, b], checked=checked)
        np.testing.assert_array_equal(got, np.broadcast_to(x * y + np.float32(0.5), (3, 37)))


def test_large_expressions_use_one_masked_loop() -> None:
    x, text = array(f32, "full", 3), "$0"
    for k in range(40):
        text = f"add(mul({text},c(0.5)),c({k}))"
    want = expr.evaluate(text, [x])
    np.testing.assert_array_equal(run_block(text, [x], ["full"]), want)


UNARY = ["neg", "abs", "relu", "sign", "square", "not", "bitwise_not", "floor", "is_nan"]
BINARY = ["add", "sub", "mul", "min", "max", "div", "mod", "fmod", "equal", "less", "greater_equal"]
BINARY += ["and", "or", "bitwise_xor", "shift_left", "shift_right"]


@st.composite
def trees(draw: Any, depth: int = 0) -> str:
    kind = draw(st.integers(0, 5))
    if depth >= 4 or kind == 0:
        return draw(st.sampled_from(["$0", "$1", "$2", "c(2)", "c(-3)", "c(0.25)", "c(1,i32)"]))
    inner = lambda: draw(trees(depth + 1))  # noqa: E731
    if kind == 1:
        return f"{draw(st.sampled_from(UNARY))}({inner()})"
    if kind == 2:
        return f"select({inner()},{inner()},{inner()})"
    if kind == 3:
        return f"cast({inner()},{draw(st.sampled_from(['f16', 'f32', 'i8', 'i32', 'u8', 'bool']))})"
    return f"{draw(st.sampled_from(BINARY))}({inner()},{inner()})"


DTYPE = st.sampled_from([f16, f32, i8, i32, u8, bool_])


@settings(max_examples=120, deadline=None, derandomize=True)
@given(trees(), st.tuples(DTYPE, DTYPE, DTYPE), st.booleans())
def test_random_trees(text, dtypes, checked) -> None:
    modes = ["full", "row", "full"]
    arrays = [array(d, m, k) for k, (d, m) in enumerate(zip(dtypes, modes, strict=True))]
    try:
        want = expr.evaluate(text, arrays)
    except PoplarPyError:
        return
    got = run_block(text, arrays, modes, checked=checked)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, np.broadcast_to(want, (3, 37)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add($0)", "takes 2 values"),
        ("foo($0)", "no function 'foo'"),
        ("add($0,1)", "write numbers as"),
        ("add($0,$1", "is wanted"),
        ("$0 $1", "nothing more"),
        ("$7", "has 1 inputs"),
        ("cast($0,f99)", "no element type"),
        ("exp(cast($0,i32))", "wants floats"),
        ("bitwise_and($0,$0)", "wants integers"),
        ("neg(" * 500 + "$0" + ")" * 500, "too deeply"),
        ("", "value is wanted"),
        ("c(300,i8)", "does not fit"),
    ],
)
def test_refused(text, message) -> None:
    with pytest.raises(PoplarPyError, match=message):
        expr.map_codelet(text, [f32], None, ["full"])


def test_constants_keep_their_bits() -> None:
    for value in (np.float16(0.1), np.float32(np.nan), np.int64(-(2**63)), np.bool_(True)):
        text = expr.constant(value)
        assert expr.to_text(expr.parse(text)) == text
        got = expr.evaluate(text, [])
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(got, value)


def test_deep_expressions() -> None:
    text = "$0"
    for _ in range(74):
        text = f"clamp(neg({text}),c(-2.0),c(2.5))"
    x = array(f16, "full", 4)
    np.testing.assert_array_equal(run_block(text, [x], ["full"]), expr.evaluate(text, [x]))
