"""Functions of the `.pml` language: arithmetic and reductions."""

from __future__ import annotations

import math
from typing import cast

from poplar_py.diagnostics import TypeMismatch
from poplar_py.frontends.pml.builtin_table import builtin, flag_of, tensor_of
from poplar_py.frontends.pml.values import PmlValue, as_ints, as_tensor, describe
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import Value
from poplar_py.ops import elementwise, tensor
from poplar_py.ops.tensor import check_axis
from poplar_py.types import DType


@builtin
def sqrt(b: Builder, x: PmlValue) -> PmlValue:
    """The square root of a tensor or of a number."""
    if isinstance(x, (int, float)):
        if x < 0:
            raise TypeMismatch(f"the square root of {x}")
        return math.sqrt(x)
    return b.add(elementwise.Sqrt, tensor_of(x, "x"))


@builtin
def cast_(b: Builder, x: PmlValue, dtype: PmlValue) -> PmlValue:
    """x as another element type."""
    if not isinstance(dtype, DType):
        raise TypeMismatch(f"cast takes an element type, not {describe(dtype)}")
    return b.add(elementwise.Cast, tensor_of(x, "x"), dtype)


@builtin
def clip(b: Builder, x: PmlValue, low: PmlValue = None, high: PmlValue = None) -> PmlValue:
    """x held between two bounds."""
    value = tensor_of(x, "x")
    if low is not None:
        value = b.add(elementwise.Max, value, as_tensor(low, b, value.dtype))
    if high is not None:
        value = b.add(elementwise.Min, value, as_tensor(high, b, value.dtype))
    return value


@builtin
def silu(b: Builder, x: PmlValue) -> PmlValue:
    """x * sigmoid(x)."""
    value = tensor_of(x, "x")
    return b.add(elementwise.Mul, value, b.add(elementwise.Sigmoid, value))


@builtin
def square(b: Builder, x: PmlValue) -> PmlValue:
    value = tensor_of(x, "x")
    return b.add(elementwise.Mul, value, value)


def _reduce(b: Builder, x: PmlValue, kind: str, axes: PmlValue, keep: PmlValue) -> Value:
    value = tensor_of(x, "x")
    given = tuple(range(value.rank)) if axes is None else axes
    listed = as_ints(given if isinstance(given, tuple) else (given,), "axes")
    ordered = tuple(sorted({check_axis(a, value.rank) for a in listed}))
    return b.add(tensor.Reduce, value, kind, ordered, flag_of(keep, "keep"))


@builtin
def sum_(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The sum over axes (all by default)."""
    return _reduce(b, x, "sum", axes, keep)


@builtin
def prod(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The product over axes (all by default)."""
    return _reduce(b, x, "prod", axes, keep)


@builtin
def reduce_max(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The largest element over axes (all by default)."""
    return _reduce(b, x, "max", axes, keep)


@builtin
def reduce_min(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The smallest element over axes (all by default)."""
    return _reduce(b, x, "min", axes, keep)


@builtin
def mean(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The mean over axes (all by default), whose sizes must be known."""
    value = tensor_of(x, "x")
    total = _reduce(b, x, "sum", axes, keep)
    owner = cast("tensor.Reduce", total.owner)
    count = math.prod(tensor.static_dim(value, a) for a in owner.axes)
    return b.add(elementwise.Div, total, b.constant(float(count), dtype=value.dtype))
