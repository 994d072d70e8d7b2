"""ONNX element-wise arithmetic, comparisons, logic and casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from poplar_py.diagnostics import InputError, TypeMismatch
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import IMPORT, Node, imports
from poplar_py.frontends.onnx.rules_narrow import convert
from poplar_py.frontends.onnx.values import ABSENT, Absent, Item, Strings, Val
from poplar_py.ir.core import Op
from poplar_py.ops import elementwise as ew
from poplar_py.ops import tensor
from poplar_py.types import DType, bool_, f32, f64

__all__: list[str] = []

_UNARY: dict[str, type[Op]] = {
    "Abs": ew.Abs,
    "Neg": ew.Neg,
    "Sign": ew.Sign,
    "Exp": ew.Exp,
    "Log": ew.Log,
    "Sqrt": ew.Sqrt,
    "Reciprocal": ew.Reciprocal,
    "Sin": ew.Sin,
    "Cos": ew.Cos,
    "Tan": ew.Tan,
    "Asin": ew.Asin,
    "Acos": ew.Acos,
    "Atan": ew.Atan,
    "Sinh": ew.Sinh,
    "Cosh": ew.Cosh,
    "Tanh": ew.Tanh,
    "Asinh": ew.Asinh,
    "Acosh": ew.Acosh,
    "Atanh": ew.Atanh,
    "Erf": ew.Erf,
    "Sigmoid": ew.Sigmoid,
    "Floor": ew.Floor,
    "Ceil": ew.Ceil,
    "Round": ew.Round,
    "Not": ew.Not,
    "BitwiseNot": ew.BitwiseNot,
}

_BINARY: dict[str, type[Op]] = {
    "Add": ew.Add,
    "Sub": ew.Sub,
    "Mul": ew.Mul,
    "Div": ew.Div,
    "And": ew.And,
    "Or": ew.Or,
    "Xor": ew.Xor,
    "BitwiseAnd": ew.BitwiseAnd,
    "BitwiseOr": ew.BitwiseOr,
    "BitwiseXor": ew.BitwiseXor,
    "Less": ew.Less,
    "LessOrEqual": ew.LessEqual,
    "Greater": ew.Greater,
    "GreaterOrEqual": ew.GreaterEqual,
}


def _aligned(b: Builder, n: Node) -> Val:
    """The second operand; before opset 7 its first axis lies at axis `axis` of the first one."""
    x, y = n[0], n[1]
    if n.version >= 7 or n.domain or not n.set("axis"):
        return y
    return b.reshape(y, [*y.shape, *(1,) * (x.rank - n.int("axis") - y.rank)])


def _enter_tables() -> None:
    def unary(cls: type[Op]) -> Callable[[Builder, Node], Val]:
        return lambda b, n: b.emit(cls, n[0])

    def binary(cls: type[Op]) -> Callable[[Builder, Node], Val]:
        return lambda b, n: b.emit(cls, n[0], _aligned(b, n))

    for name, cls in _UNARY.items():
        IMPORT["", name] = unary(cls)
    for name, cls in _BINARY.items():
        IMPORT["", name] = binary(cls)


_enter_tables()


@imports("Equal")
def equal(b: Builder, n: Node) -> Val:
    if isinstance(n.raw(0), Strings) and isinstance(n.raw(1), Strings):
        return b.const(np.asarray(n.text(0) == n.text(1), dtype=np.bool_))
    return b.emit(ew.Equal, n[0], n[1])


@imports("Pow")
def power(b: Builder, n: Node) -> Val:
    base, exponent = n[0], n[1]
    known = exponent.const
    if known is not None and exponent.pure and known.size == 1 and base.dtype.is_float:
        value = float(known.reshape(-1)[0])
        if exponent.rank <= base.rank and value in (1.0, 2.0):
            return base if value == 1.0 else base * base
        if exponent.rank <= base.rank and value == 0.5:
            return b.emit(ew.Sqrt, base)
    work = _power_type(base.dtype, exponent.dtype)
    out = b.emit(ew.Pow, b.cast(base, work), b.cast(exponent, work))
    return b.cast(out, base.dtype)


def _power_type(base: DType, exponent: DType) -> DType:
    if base.is_float and exponent.is_float:
        return base if base.size >= exponent.size else exponent
    if base.is_float:
        return base if base.size >= 4 or exponent.size <= 1 else f32
    return f64


@imports("Mod")
def mod(b: Builder, n: Node) -> Val:
    fmod = bool(n.int("fmod"))
    return b.emit(ew.Mod, n[0], n[1], fmod=fmod)


@imports("BitShift")
def bit_shift(b: Builder, n: Node) -> Val:
    direction = n.str("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise InputError(f"direction is {direction!r}, not LEFT or RIGHT", n.loc)
    x, count = n[0], n[1]
    bits = 8 * x.dtype.size
    cls = ew.ShiftLeft if direction == "LEFT" else ew.ShiftRight
    shifted = b.emit(cls, x, count)
    if count.pure and count.const is not None and ((count.const >= 0) & (count.const < bits)).all():
        return shifted
    far = b.greater_equal(count, bits)
    if count.dtype.kind == "i":
        far = b.emit(ew.Or, far, b.less(count, 0))
    rest: Val | float = 0
    if direction == "RIGHT" and x.dtype.kind == "i":
        rest = b.emit(ew.ShiftRight, x, b.like(bits - 1, count))
    return b.select(far, rest, shifted)


def _chain(b: Builder, n: Node, cls: type[Op]) -> Val:
    values = n.tensors()
    if not values:
        raise InputError(f"{n.op_type} of nothing", n.loc)
    total = values[0]
    for value in values[1:]:
        total = b.emit(cls, total, value)
    return total


@imports("Max")
def maximum(b: Builder, n: Node) -> Val:
    return _chain(b, n, ew.Max)


@imports("Min")
def minimum(b: Builder, n: Node) -> Val:
    return _chain(b, n, ew.Min)


@imports("Sum")
def sum_(b: Builder, n: Node) -> Val:
    return _chain(b, n, ew.Add)


@imports("Mean")
def mean(b: Builder, n: Node) -> Val:
    count = len(n.tensors())
    total = _chain(b, n, ew.Add)
    return total if count == 1 else total / count


@imports("Where")
def where(b: Builder, n: Node) -> Item:
    if isinstance(n.raw(1), Strings) or isinstance(n.raw(2), Strings):
        cond = b.known(n[0], "the condition of a choice of strings")
        return Strings(np.where(cond, n.text(1), n.text(2)))  # type: ignore[arg-type]
    if n[1].dtype is not n[2].dtype or n[0].dtype is not bool_:
        raise TypeMismatch(f"{n[0].type} chooses between {n[1].type} and {n[2].type}", n.loc)
    return b.select(n[0], n[1], n[2])


@imports("Clip")
def clip(b: Builder, n: Node) -> Val:
    x = n[0]
    low, high = n.get(1), n.get(2)
    if n.version < 11:
        low = b.like(n.float("min"), x) if n.set("min") else None
        high = b.like(n.float("max"), x) if n.set("max") else None
    out = x
    if low is not None:
        out = b.maximum(out, b.reshape(low, ()))
    return out if high is None else b.minimum(out, b.reshape(high, ()))


@imports("IsNaN")
def is_nan(b: Builder, n: Node) -> Val:
    return b.emit(ew.IsNan, n[0])


@imports("IsInf")
def is_inf(b: Builder, n: Node) -> Val:
    negative, positive = bool(n.int("detect_negative", 1)), bool(n.int("detect_positive", 1))
    return b.emit(ew.IsInf, n[0], negative=negative, positive=positive)


@imports("Identity")
def identity(b: Builder, n: Node) -> Item:
    item = n.inputs[0]
    return ABSENT if item is None or isinstance(item, Absent) else item


@imports("Cast")
def cast(b: Builder, n: Node) -> Item:
    item = n.raw(0)
    to = n.int("to")
    if to == 8:
        return _to_strings(b, n)
    dtype, tag = n.dtype("to", 1)
    if isinstance(item, Strings):
        return _from_strings(b, n, item, dtype, tag)
    saturate, mode = bool(n.int("saturate", 1)), n.str("round_mode", "up")
    return convert(b, n[0], dtype, tag, saturate, mode)


def _to_strings(b: Builder, n: Node) -> Strings:
    item = n.raw(0)
    if isinstance(item, Strings):
        return item
    known = b.known(n[0], "a tensor cast to strings")
    texts: list[Any] = [_number_text(v) for v in known.reshape(-1)]
    return Strings(np.asarray(texts, dtype=object).reshape(known.shape))


def _number_text(value: Any) -> str:
    if isinstance(value, np.bool_):
        return "1" if value else "0"
    return np.format_float_positional(value, trim="-") if value.dtype.kind == "f" else str(value)


def _from_strings(b: Builder, n: Node, item: Strings, dtype: DType, tag: str) -> Val:
    try:
        numbers = [float(t) for t in item.array.reshape(-1)]
    except ValueError as error:
        raise InputError(f"{error}", n.loc) from None
    wide = b.const(np.asarray(numbers, np.float64).reshape(item.array.shape))
    return convert(b, wide, dtype, tag, True, "up")


@imports("CastLike")
def cast_like(b: Builder, n: Node) -> Item:
    if isinstance(n.raw(1), Strings):
        return _to_strings(b, n)
    like = n[1]
    item = n.raw(0)
    if isinstance(item, Strings):
        return _from_strings(b, n, item, like.dtype, like.tag)
    saturate, mode = bool(n.int("saturate", 1)), n.str("round_mode", "up")
    return convert(b, n[0], like.dtype, like.tag, saturate, mode)


@imports("BitCast")
def bit_cast(b: Builder, n: Node) -> Val:
    dtype, tag = n.dtype("to", 1)
    out = b.emit(tensor.Bitcast, n[0], dtype=dtype)
    out.tag = tag
    return out
