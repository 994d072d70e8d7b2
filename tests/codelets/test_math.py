"""The function library: error against f64, special values, and the same bits on every CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from poplar_py.codegen.run_codelet import run_codelet
from poplar_py.codelets import Codelet, map_codelet
from poplar_py.codelets.expr import evaluate
from poplar_py.types import DTYPES, bf16, f16, f32, f64

LIMITS = {
    "exp": 1.5, "exp2": 1.5, "expm1": 2.0, "log": 1.5, "tanh": 2.6, "sigmoid": 2.6, "erf": 1.6,
    "rsqrt": 1.6, "log2": 0.6, "log10": 0.6, "log1p": 0.6, "sin": 0.6, "cos": 0.6, "tan": 0.6,
    "asin": 0.6, "acos": 0.6, "atan": 0.6, "sinh": 0.6, "cosh": 0.6, "asinh": 0.6, "acosh": 0.6,
    "atanh": 0.6,
}  # fmt: skip
REFERENCE = {
    "sigmoid": special.expit, "erf": special.erf, "rsqrt": lambda v: 1 / np.sqrt(v),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 1.17549435e-38, 3.4e38, -3.4e38, 0.5,
     2, 88.7, -87.3, -103.9, 1.5707964, 3.1415927, 1e30, -7e22],
    np.float32,
)  # fmt: skip


def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    parts = [
        SPECIAL,
        rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32),
        rng.standard_normal(20000) * 3,
        rng.standard_normal(5000) * np.exp2(rng.integers(-30, 3, 5000)),
        rng.uniform(-1, 1, 10000),
        rng.uniform(-110, 110, 10000),
        1 + rng.standard_normal(5000) * np.exp2(rng.integers(-22, -2, 5000)),
    ]
    return np.concatenate([np.asarray(p, np.float32) for p in parts])


def run_map(codelet: Codelet, *arrays: np.ndarray, cpu: str = "native") -> np.ndarray:
    n = arrays[0].size
    row = {"out": np.zeros(n, codelet.fields[0].dtype.numpy)}
    row |= {f"in{i}": a for i, a in enumerate(arrays)}
    return run_codelet(codelet, row | {"rows": 1, "cols": n}, cpu=cpu)["out"]


def worst_ulp(got: np.ndarray, want: np.ndarray) -> float:
    """Largest error in units of the last place; infinite when a special value is wrong."""
    with np.errstate(all="ignore"):
        narrow = want.astype(np.float32)
    same = (np.isnan(narrow) & np.isnan(got)) | (narrow == got)
    finite = np.isfinite(narrow) & np.isfinite(got)
    if (~finite & ~same).any():
        return math.inf
    zero = (narrow == 0) & (got == 0)
    if (np.signbit(narrow[zero]) != np.signbit(got[zero])).any():
        return math.inf
    size = np.spacing(np.abs(narrow[finite])).astype(np.float64)
    return float((np.abs(got[finite].astype(np.float64) - want[finite]) / size).max())


@pytest.mark.parametrize("name", LIMITS)
def test_f32_functions(name) -> None:
    x = samples()
    with np.errstate(all="ignore"):
        want = REFERENCE.get(name, getattr(np, name, None))(x.astype(np.float64))
    codelet = map_codelet(f"{name}($0)", [f32], f32, ["full"])
    got = run_map(codelet, x)
    assert worst_ulp(got, want) <= LIMITS[name]
    some = np.concatenate([x[:21], x[21::37]])
    old = run_map(codelet, some, cpu="x86-64-v2")
    np.testing.assert_array_equal(old.view(np.uint32), run_map(codelet, some).view(np.uint32))


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_f32_functions_of_two(name) -> None:
    x = samples()
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.permutation(x)[: x.size // 2], np.round(x[x.size // 2 :] / 8)])
    a = np.concatenate([np.repeat(SPECIAL, SPECIAL.size), x])
    b = np.concatenate([np.tile(SPECIAL, SPECIAL.size), y.astype(np.float32)])
    with np.errstate(all="ignore"):
        function = np.power if name == "pow" else np.arctan2
        want = function(a.astype(np.float64), b.astype(np.float64))
    got = run_map(map_codelet(f"{name}($0,$1)", [f32, f32], f32, ["full", "full"]), a, b)
    assert worst_ulp(got, want) <= 0.6


def test_f64_functions() -> None:
    x = np.random.default_rng(6).uniform(0.1, 0.9, 100)
    for name in LIMITS:
        got = run_map(map_codelet(f"{name}($0)", [f64], f64, ["full"]), x + (name == "acosh"))
        want = REFERENCE.get(name, getattr(np, name, None))(x + (name == "acosh"))
        np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
def test_every_half_converts(cpu) -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = run_map(map_codelet("cast($0,f32)", [f16], f32, ["full"]), every, cpu=cpu)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    near = np.concatenate([np.nextafter(wide, np.float32(s)) for s in (-np.inf, np.inf)] + [wide])
    middle = (wide[:-1].astype(np.float64) + wide[1:]) / 2
    with np.errstate(all="ignore"):
        x = np.concatenate([near, middle.astype(np.float32), samples()])
        want = x.astype(np.float16)
    got = run_map(map_codelet("cast($0,f16)", [f32], f16, ["full"]), x, cpu=cpu)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_f64_is_rounded_once(dtype) -> None:
    step = 2.0**-11 if dtype is f16 else 2.0**-8
    tie = 1 + step
    x = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-45, 1e300, -1e300, 5e-324])
    got = run_map(map_codelet(f"cast($0,{dtype.name})", [f64], dtype, ["full"]), x)
    up = 1 + 2 * step
    want = [1.0, up, 1.0, -up, np.inf, -np.inf, 0.0]
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_min_max_and_nan() -> None:
    a = np.array([1, np.nan, 2, np.nan, -0.0, 0.0], np.float32)
    b = np.array([2, 1, np.nan, np.nan, 0.0, -0.0], np.float32)
    pair = ["full", "full"]
    for name, want in (
        ("max", [2, np.nan, np.nan, np.nan, -0.0, 0.0]),
        ("min", [1, np.nan, np.nan, np.nan, -0.0, 0.0]),
        ("fmax", [2, 1, 2, np.nan, -0.0, 0.0]),
        ("fmin", [1, 1, 2, np.nan, -0.0, 0.0]),
    ):
        got = run_map(map_codelet(f"{name}($0,$1)", [f32, f32], f32, pair), a, b)
        np.testing.assert_array_equal(got, np.array(want, np.float32))
        np.testing.assert_array_equal(np.signbit(got[4:]), np.signbit(want[4:]))
    relu = run_map(map_codelet("relu($0)", [f32], f32, ["full"]), a)
    np.testing.assert_array_equal(relu, np.array([1, np.nan, 2, np.nan, 0, 0], np.float32))


@pytest.mark.parametrize("source", ["f16", "f32", "f64", "bf16", "i8", "i32", "u32", "i64", "bool"])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
def test_casts(source, cpu) -> None:
    rng = np.random.default_rng(7)
    if DTYPES[source].is_float:
        edge = [0, -0.0, np.inf, -np.inf, np.nan, 255.5, -1.5, 1e10, -1e10, 1e19, 2.0**31, 127.9]
        x = np.concatenate([edge, rng.standard_normal(50) * 1e5]).astype(np.float64)
    else:
        x = rng.integers(-(2**40), 2**40, 60)
    with np.errstate(all="ignore"):
        x = x.astype(DTYPES[source].numpy)
    for target in DTYPES.values():
        text = f"cast($0,{target.name})"
        got = run_map(map_codelet(text, [DTYPES[source]], target, ["full"]), x, cpu=cpu)
        want = evaluate(text, [x])
        if target is bf16:  # NumPy does not know that two of its NaNs are alike
            got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(got, want, err_msg=text)
