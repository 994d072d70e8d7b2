"""Operators of the `.pml` language on tensors, numbers and lists."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from poplar_py.diagnostics import InputError, TypeMismatch
from poplar_py.frontends.pml.values import FreeDim, PmlValue, as_tensor, describe
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import Op, Value
from poplar_py.ops import elementwise, nn

__all__ = ["binary", "negate"]

_TENSOR_OPS: dict[str, type[Op]] = {
    "+": elementwise.Add,
    "-": elementwise.Sub,
    "*": elementwise.Mul,
    "/": elementwise.Div,
    "%": elementwise.Mod,
    "@": nn.MatMul,
    "<": elementwise.Less,
    "<=": elementwise.LessEqual,
    ">": elementwise.Greater,
    ">=": elementwise.GreaterEqual,
    "==": elementwise.Equal,
}

_NUMBER_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": operator.mod,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_MAX_INT = 1 << 128


def binary(b: Builder, sign: str, left: PmlValue, right: PmlValue) -> PmlValue:
    """`left sign right`. Raises TypeMismatch when they do not fit the operator."""
    if isinstance(left, Value) or isinstance(right, Value):
        return _tensors(b, sign, left, right)
    if sign == "==":
        return left == right
    if sign == "!=":
        return left != right
    if sign == "+" and isinstance(left, tuple) and isinstance(right, tuple):
        return (*cast("tuple[Any, ...]", left), *cast("tuple[Any, ...]", right))
    if not _is_number(left) or not _is_number(right):
        free = left if isinstance(left, FreeDim) else right
        if isinstance(free, FreeDim):
            raise TypeMismatch(
                f"dim {free.name} has no size to compute with yet",
                remedy=f"bind it: --dim {free.name}=N",
            )
        raise TypeMismatch(f"{describe(left)} {sign} {describe(right)}: no such operation")
    return _numbers(sign, left, right)


def _numbers(sign: str, left: PmlValue, right: PmlValue) -> PmlValue:
    fn = _NUMBER_OPS.get(sign)
    if fn is None:
        raise TypeMismatch(f"{describe(left)} {sign} {describe(right)}: no such operation")
    try:
        value = fn(left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise InputError(f"{left} {sign} {right}: {error}") from None
    if isinstance(value, int) and abs(value) > _MAX_INT:
        raise InputError(f"the result of {sign} is beyond 2^128")
    return value


def _tensors(b: Builder, sign: str, left: PmlValue, right: PmlValue) -> Value:
    like = left.dtype if isinstance(left, Value) else right.dtype
    x, y = as_tensor(left, b, like), as_tensor(right, b, like)
    if sign == "!=":
        return b.add(elementwise.Not, b.add(elementwise.Equal, x, y))
    cls = _TENSOR_OPS.get(sign)
    if cls is None:
        raise TypeMismatch(f"{describe(left)} {sign} {describe(right)}: no such operation")
    return b.add(cls, x, y)


def negate(b: Builder, value: PmlValue) -> PmlValue:
    """`-value`."""
    if isinstance(value, Value):
        return b.add(elementwise.Neg, value)
    if not _is_number(value):
        raise TypeMismatch(f"-{describe(value)}: no such operation")
    return -value


def _is_number(value: PmlValue) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
