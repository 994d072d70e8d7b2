"""NumPy meaning of the pure part of codelet IR: arithmetic, conversions, elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from poplar_py.codelets.codelet_ir import Expr
from poplar_py.codelets.depth import deep
from poplar_py.types import DType, bool_

__all__ = ["cast_array", "evaluate_ir"]

Array = np.ndarray[Any, Any]


@deep
def evaluate_ir(expr: Expr, inputs: dict[str, Array]) -> Array:
    """The value of a scalar expression tree, element by element over broadcast arrays."""
    with np.errstate(all="ignore"):
        return _value(expr, inputs, {})


def _value(e: Expr, inputs: dict[str, Array], memo: dict[Expr, Array]) -> Array:
    found = memo.get(e)
    if found is not None:
        return found
    if e.op == "const":
        value = np.asarray(e.attr[0]).astype(e.ty.dtype.numpy)
    elif e.op == "local":
        value = inputs[str(e.attr[0])]
    else:
        args = [_value(a, inputs, memo) for a in e.args]
        value = _apply(e, args)
    memo[e] = value
    return value


def _apply(e: Expr, args: list[Array]) -> Array:
    d = e.ty.dtype
    if e.op == "cast":
        return cast_array(args[0], d)
    if e.op == "bitcast":
        return np.ascontiguousarray(args[0]).view(d.numpy)
    if e.op == "fma":
        return _fma(*args)
    if e.op == "select":
        return np.where(args[0], args[1], args[2]).astype(d.numpy, copy=False)
    if e.op in ("quot", "rem", "floordiv", "mod") and d.is_integer:
        return _divide(e.op, args[0], args[1])
    if e.op in ("shl", "shr"):
        count = np.bitwise_and(args[1], d.bits - 1).astype(d.numpy)
        return (np.left_shift if e.op == "shl" else np.right_shift)(args[0], count)
    if e.op == "pow" and d.is_integer:
        return _int_power(args[0], args[1])
    return np.asarray(_FUNCTIONS[e.op](*args)).astype(d.numpy, copy=False)


def cast_array(x: Array, dtype: DType) -> Array:
    """Conversion as codelets do it: float to int truncates and saturates, NaN gives 0."""
    if dtype is bool_:
        return np.asarray(x != 0)
    is_float = x.dtype.kind == "f" or x.dtype.name == "bfloat16"
    if not (is_float and dtype.is_integer):
        return x.astype(dtype.numpy)
    low = -(1 << dtype.bits - 1) if dtype.kind == "i" else 0
    high = (1 << dtype.bits - (dtype.kind == "i")) - 1
    wide = x.astype(np.float64)
    inside = (wide > float(low) - 1) & (wide < float(high) + 1) & np.isfinite(wide)
    if dtype.bits == 64:
        inside = (wide >= float(low)) & (wide < float(high))
    safe = np.where(inside, np.trunc(wide), 0.0).astype(dtype.numpy)
    out = np.where(inside, safe, np.where(wide > 0, high, low).astype(dtype.numpy))
    return np.where(np.isnan(wide), np.zeros((), dtype.numpy), out).astype(dtype.numpy)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """One rounding for f32 (by f64); f64 is done with split products."""
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return np.vectorize(_fma_exact, otypes=[np.float64])(a, b, c)


def _fma_exact(a: float, b: float, c: float) -> float:
    from fractions import Fraction

    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return float(exact) if exact else a * b + c


def _divide(op: str, a: Array, b: Array) -> Array:
    """Divisor 0 counts as 1; the smallest number over -1 wraps."""
    b = np.where(b == 0, np.ones((), b.dtype), b)
    floor = np.floor_divide(a, b)
    mod = np.remainder(a, b)
    if op == "floordiv":
        return floor.astype(a.dtype)
    if op == "mod":
        return mod.astype(a.dtype)
    fix = (mod != 0) & ((a < 0) != (b < 0))
    if op == "quot":
        return (floor + fix.astype(a.dtype)).astype(a.dtype)
    return np.where(fix, mod - b, mod).astype(a.dtype)


def _int_power(a: Array, b: Array) -> Array:
    a, b = np.broadcast_arrays(a, b)
    value, square, rest = np.ones_like(a), a.copy(), b.copy()
    for _ in range(a.dtype.itemsize * 8):
        value = np.where(rest & 1, value * square, value)
        square, rest = square * square, rest >> 1
    if a.dtype.kind != "i":
        return value.astype(a.dtype)
    inverse = np.where(a == -1, np.where(b & 1, a, 1), np.where(a == 1, a, 0))
    return np.where(b < 0, inverse, value).astype(a.dtype)


def _min_max(small: bool, nan_wins: bool) -> Callable[[Array, Array], Array]:
    def function(a: Array, b: Array) -> Array:
        if a.dtype == np.bool_:
            return a & b if small else a | b
        best = np.where(b < a if small else a < b, b, a)
        wins = b if nan_wins else a
        return np.where(wins != wins, b, best) if a.dtype.kind == "f" else best

    return function


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))


def _sigmoid(x: Array) -> Array:
    wide = x.astype(np.float64)
    t = np.exp(-np.abs(wide))
    return np.where(wide < 0, t, 1.0) / (1.0 + t)


def _float_mod(a: Array, b: Array) -> Array:
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _count_bits(x: Array) -> Array:
    unsigned = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    return np.bitwise_count(unsigned)


def _leading_zeros(x: Array) -> Array:
    bits = x.dtype.itemsize * 8
    unsigned = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").astype(object)
    lengths = [bits - int(v).bit_length() for v in unsigned.reshape(-1)]
    return np.array(lengths, np.int64).reshape(x.shape)


def _rsqrt(x: Array) -> Array:
    return x.dtype.type(1) / np.sqrt(x)


def _invert(x: Array) -> Array:
    return np.invert(x)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "not": np.logical_not,
    "inv": _invert,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "popcount": _count_bits,
    "clz": _leading_zeros,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fmod": np.fmod,
    "mod": _float_mod,
    "pow": np.power,
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": _min_max(True, True),
    "max": _min_max(False, True),
    "fmin": _min_max(True, False),
    "fmax": _min_max(False, False),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
