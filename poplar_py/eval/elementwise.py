"""NumPy meaning of math.*: f16 and bf16 are computed in f32 with one rounding per op."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from poplar_py.diagnostics import TileException
from poplar_py.eval.registry import EVAL, Array, meaning, narrow, widen
from poplar_py.ir.core import Op
from poplar_py.ops import elementwise as ops
from poplar_py.types import DType, bool_

__all__ = ["cast_array", "erf", "sigmoid"]

Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]


def erf(x: Array) -> Array:
    """Error function, correctly rounded from f64."""
    wide = np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64))
    return np.asarray(wide, dtype=np.float64).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def _reciprocal(x: Array) -> Array:
    return x.dtype.type(1) / x


def _rsqrt(x: Array) -> Array:
    return x.dtype.type(1) / np.sqrt(x)


_UNARY: dict[type[Op], Unary] = {
    ops.Abs: np.abs,
    ops.Neg: np.negative,
    ops.Sign: np.sign,
    ops.Exp: np.exp,
    ops.Log: np.log,
    ops.Sqrt: np.sqrt,
    ops.Rsqrt: _rsqrt,
    ops.Reciprocal: _reciprocal,
    ops.Sin: np.sin,
    ops.Cos: np.cos,
    ops.Tan: np.tan,
    ops.Asin: np.arcsin,
    ops.Acos: np.arccos,
    ops.Atan: np.arctan,
    ops.Sinh: np.sinh,
    ops.Cosh: np.cosh,
    ops.Tanh: np.tanh,
    ops.Asinh: np.arcsinh,
    ops.Acosh: np.arccosh,
    ops.Atanh: np.arctanh,
    ops.Erf: erf,
    ops.Sigmoid: sigmoid,
    ops.Floor: np.floor,
    ops.Ceil: np.ceil,
    ops.Round: np.rint,
    ops.Not: np.logical_not,
    ops.BitwiseNot: np.bitwise_not,
}


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    if np.any(b == 0):
        raise TileException("integer division by zero")
    if a.dtype.kind == "i" and np.any((b == -1) & (a == np.iinfo(a.dtype).min)):
        raise TileException("integer overflow in a division")
    floor = np.floor_divide(a, b)
    short = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return floor + short.astype(a.dtype)


def _shift(fn: Callable[..., Array]) -> Binary:
    def shift(a: Array, b: Array) -> Array:
        mask = a.dtype.type(8 * a.dtype.itemsize - 1)
        return fn(a, np.bitwise_and(b, mask))

    return shift


_BINARY: dict[type[Op], Binary] = {
    ops.Add: np.add,
    ops.Sub: np.subtract,
    ops.Mul: np.multiply,
    ops.Div: _divide,
    ops.Pow: np.power,
    ops.Min: np.minimum,
    ops.Max: np.maximum,
    ops.And: np.logical_and,
    ops.Or: np.logical_or,
    ops.Xor: np.logical_xor,
    ops.BitwiseAnd: np.bitwise_and,
    ops.BitwiseOr: np.bitwise_or,
    ops.BitwiseXor: np.bitwise_xor,
    ops.ShiftLeft: _shift(np.left_shift),
    ops.ShiftRight: _shift(np.right_shift),
}

_COMPARE: dict[type[Op], Binary] = {
    ops.Equal: np.equal,
    ops.Less: np.less,
    ops.LessEqual: np.less_equal,
    ops.Greater: np.greater,
    ops.GreaterEqual: np.greater_equal,
}


def _enter_tables() -> None:
    def unary(fn: Unary) -> Callable[[Op, Array], Array]:
        return lambda op, x: narrow(np.asarray(fn(widen(x))), x)

    def binary(fn: Binary) -> Callable[[Op, Array, Array], Array]:
        return lambda op, a, b: narrow(np.asarray(fn(widen(a), widen(b))), a)

    def compare(fn: Binary) -> Callable[[Op, Array, Array], Array]:
        return lambda op, a, b: np.asarray(fn(a, b), dtype=np.bool_)

    EVAL.update({cls: unary(fn) for cls, fn in _UNARY.items()})
    EVAL.update({cls: binary(fn) for cls, fn in _BINARY.items()})
    EVAL.update({cls: compare(fn) for cls, fn in _COMPARE.items()})


_enter_tables()


@meaning(ops.IsNan)
def is_nan(op: ops.IsNan, x: Array) -> Array:
    return np.asarray(np.isnan(widen(x)))


@meaning(ops.IsInf)
def is_inf(op: ops.IsInf, x: Array) -> Array:
    wide = widen(x)
    wanted = ((wide < 0) & op.negative) | ((wide > 0) & op.positive)
    return np.asarray(np.isinf(wide) & wanted)


@meaning(ops.Mod)
def mod(op: ops.Mod, a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and np.any(b == 0):
        raise TileException("integer division by zero")
    fn = np.fmod if op.fmod else np.remainder
    return narrow(np.asarray(fn(widen(a), widen(b))), a)


@meaning(ops.Select)
def select(op: ops.Select, cond: Array, a: Array, b: Array) -> Array:
    return np.where(cond, a, b)


@meaning(ops.Cast)
def cast(op: ops.Cast, x: Array) -> Array:
    return cast_array(x, op.dtype)


def cast_array(x: Array, dtype: DType) -> Array:
    """x as another element type: floats truncate and saturate to integers, NaN becomes 0."""
    target: np.dtype[Any] = dtype.numpy
    if x.dtype == target:
        return x
    if dtype is bool_:
        return np.asarray(widen(x) != 0)
    if dtype.is_integer and x.dtype.kind not in "iub":
        return _saturate(widen(x).astype(np.float64), target)
    if x.dtype.kind in "iub" and dtype.name == "bf16":
        return x.astype(np.float32).astype(target)
    return x.astype(target)


def _saturate(x: Array, target: np.dtype[Any]) -> Array:
    info = np.iinfo(target)
    whole = np.trunc(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))
    high, low = whole >= float(info.max), whole <= float(info.min)
    inside = np.where(high | low, 0.0, whole).astype(target)
    inside = np.where(high, target.type(info.max), inside)
    return np.where(low, target.type(info.min), inside).astype(target)
