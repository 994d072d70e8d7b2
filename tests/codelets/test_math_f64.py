"""f64 functions: error against extended precision, special values, equal bits, no C library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from poplar_py.codegen.emit import emit_kernel
from poplar_py.codegen.run_codelet import run_codelet
from poplar_py.codelets import map_codelet
from poplar_py.types import f64

LONG = np.longdouble
EXTENDED = np.finfo(LONG).nmant >= 63
LIMITS = {
    "exp": 0.56, "exp2": 0.56, "expm1": 0.56, "log": 0.51, "log2": 0.51, "log10": 0.51,
    "log1p": 0.51, "sin": 0.75, "cos": 0.75, "tan": 0.85, "asin": 0.51, "acos": 0.51,
    "atan": 0.51, "sinh": 0.56, "cosh": 0.56, "tanh": 0.56, "asinh": 0.51, "acosh": 0.51,
    "atanh": 0.51, "sigmoid": 0.7, "erf": 0.9, "rsqrt": 1.5,
}  # fmt: skip
"""Units of the last place, measured with a margin."""
REFERENCE: dict[str, Callable[[Any], Any]] = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "rsqrt": lambda v: 1 / np.sqrt(v),
}  # fmt: skip
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e300, -1e300, 5e-324,
     -5e-324, 1e-310, 709.9, -745.2, 1.7976931348623157e308, -1.7976931348623157e308]
)  # fmt: skip
# erf at 40 digits, rounded: where the reference has no extended form
ERF = {
    0.1: 0.1124629160182849, 0.5: 0.5204998778130465, 0.9: 0.7969082124228322,
    0.9999: 0.8426592780487595, 1.0: 0.8427007929497149, 1.5: 0.9661051464753108,
    2.5: 0.9995930479825550, 4.0: 0.9999999845827421, 6.0: 1.0,
}  # fmt: skip


def run(name: str, *arrays: np.ndarray, cpu: str = "native") -> np.ndarray:
    text = f"{name}({','.join(f'${i}' for i in range(len(arrays)))})"
    codelet = map_codelet(text, [f64] * len(arrays), f64, ["full"] * len(arrays))
    row = {"out": np.zeros(arrays[0].size), "rows": 1, "cols": arrays[0].size}
    row |= {f"in{i}": a for i, a in enumerate(arrays)}
    return run_codelet(codelet, row, cpu=cpu)["out"]


def samples(seed: int, count: int = 4000) -> np.ndarray:
    """All magnitudes, and where cancellation or reduction is hard."""
    rng = np.random.default_rng(seed)
    sign = rng.choice([-1.0, 1.0], count)
    near = np.pi / 2 * rng.integers(-1000, 1000, count)
    return np.concatenate(
        [
            np.exp2(rng.uniform(-1074, 1023.9, count)) * sign,
            rng.standard_normal(count) * 3,
            rng.standard_normal(count) * np.exp2(rng.integers(-60, 3, count)),
            rng.uniform(-1, 1, count),
            rng.uniform(-760, 760, count),
            1 + rng.standard_normal(count) * np.exp2(rng.integers(-52, -2, count)),
            near * (1 + rng.integers(-2, 3, count) * 2.0**-52),
        ]
    )


def worst(got: np.ndarray, want: Any) -> float:
    """Largest error in units of the last place of the exact value."""
    with np.errstate(all="ignore"):
        narrow = want.astype(np.float64)
    finite = np.isfinite(narrow) & np.isfinite(got)
    same = (np.isnan(narrow) & np.isnan(got)) | (narrow == got)
    if (~finite & ~same).any():
        return math.inf
    size = np.maximum(np.spacing(np.abs(narrow[finite])), 5e-324).astype(LONG)
    return float((np.abs(got[finite].astype(LONG) - want[finite]) / size).max())


@pytest.mark.skipif(not EXTENDED, reason="the host has no wider floats to compare with")
@pytest.mark.parametrize("name", [n for n in LIMITS if n != "erf"])
def test_error(name: str) -> None:
    x = samples(len(name))
    if name in ("sin", "cos", "tan"):  # the host's own wide functions lose beyond 2^63
        x = x[np.abs(x) < 2.0**60]
    with np.errstate(all="ignore"):
        reference: Any = REFERENCE.get(name) or getattr(np, name)
        want = reference(x.astype(LONG))
    assert worst(run(name, x), want) <= LIMITS[name]


def test_erf() -> None:
    x = np.array([*ERF, *(-v for v in ERF)])
    want = np.array([*ERF.values(), *(-v for v in ERF.values())])
    np.testing.assert_allclose(run("erf", x), want, rtol=2.3e-16)
    x = np.concatenate([np.random.default_rng(1).uniform(-7, 7, 5000), samples(2)])
    np.testing.assert_allclose(run("erf", x), special.erf(x), rtol=6e-16)  # SciPy errs too


@pytest.mark.skipif(not EXTENDED, reason="the host has no wider floats to compare with")
def test_functions_of_two() -> None:
    rng = np.random.default_rng(3)
    x, y = samples(4), rng.permutation(samples(5))
    with np.errstate(all="ignore"):
        assert worst(run("atan2", x, y), np.arctan2(x.astype(LONG), y.astype(LONG))) <= 0.51
        base, power = np.abs(x), np.where(rng.random(x.size) < 0.5, y, rng.uniform(-99, 99, x.size))
        want = np.power(base.astype(LONG), power.astype(LONG))
    got = run("pow", base, power)
    inside = (want > 1e-307) & (want < 1e307)
    assert worst(got[inside], want[inside]) <= 0.6


def test_large_arguments_are_reduced_exactly() -> None:
    """Worst cases: close to a multiple of pi / 2, and powers of ten (values to 17 digits)."""
    x = np.array([6381956970095103.0 * 2.0**797, 1e22, 1e300, -1e300])
    want = np.array([1.0, -0.8522008497671888, -0.8178819121159085, 0.8178819121159085])
    np.testing.assert_allclose(run("sin", x), want, rtol=1e-15)
    got = run("cos", x)
    np.testing.assert_allclose(got[0], -4.6871659242546277e-19, rtol=1e-15)
    np.testing.assert_allclose(got[1:], [0.5232147853951389, -0.5753861119575491,
                                         -0.5753861119575491], rtol=1e-15)  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_special_values(name: str) -> None:
    with np.errstate(all="ignore"):
        known: dict[str, Any] = {**REFERENCE, "erf": special.erf, "sigmoid": special.expit}
        want = (known.get(name) or getattr(np, name))(SPECIAL)
    got = run(name, SPECIAL)
    np.testing.assert_allclose(got, want, rtol=1e-14)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize(("name", "function"), [("pow", np.power), ("atan2", np.arctan2)])
def test_special_pairs(name: str, function: Any) -> None:
    a, b = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
    with np.errstate(all="ignore"):
        want = function(a, b)
    got = run(name, a, b)
    np.testing.assert_allclose(got, want, rtol=1e-14)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


QUICK = ("exp", "log1p", "sin", "erf", "pow", "atan2")
EVERY = [
    pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in (*LIMITS, "pow", "atan2")
]


@pytest.mark.parametrize("name", EVERY)
def test_bits_and_symbols(name: str) -> None:
    """Equal on an older CPU; the code calls no function of the C library."""
    x = np.concatenate([SPECIAL, samples(7, 30)])
    arrays = (x, x[::-1].copy()) if name in ("pow", "atan2") else (x,)
    native, old = run(name, *arrays), run(name, *arrays, cpu="x86-64-v2")
    np.testing.assert_array_equal(native.view(np.uint64), old.view(np.uint64))
    text = f"{name}({','.join(f'${i}' for i in range(len(arrays)))})"
    codelet = map_codelet(text, [f64] * len(arrays), f64, ["full"] * len(arrays))
    declared = [
        line for line in emit_kernel(codelet, checked=False)[1].splitlines()
        if line.startswith("declare") and "@llvm." not in line
    ]  # fmt: skip
    assert not declared
