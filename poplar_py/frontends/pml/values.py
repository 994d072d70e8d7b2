"""What an expression of a `.pml` file may be, and the conversions between these.

A value is a tensor (`ir.Value`), or known while the model is built: int, float, bool, str, none, an
element type, a free dim, or a tuple (list) of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from poplar_py.diagnostics import InputError, TypeMismatch
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import Value
from poplar_py.types import DType, Shape

__all__ = [
    "BROKEN",
    "Broken",
    "FreeDim",
    "PmlValue",
    "as_dim",
    "as_int",
    "as_ints",
    "as_shape",
    "as_tensor",
    "describe",
    "dim_value",
]


@dataclass(frozen=True, slots=True)
class FreeDim:
    """A dim without a size yet."""

    name: str


class Broken(Exception):
    """Raised where a value is used whose making has failed: the error is told already."""


class _BrokenValue:
    """Stands for the result of a statement that failed."""


BROKEN = _BrokenValue()

PmlValue = Any  # Value | int | float | bool | str | None | DType | FreeDim | tuple[PmlValue, ...]


def describe(value: PmlValue) -> str:
    """A value as words, for messages."""
    if isinstance(value, Value):
        return f"a tensor {value.type}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, FreeDim):
        return f"the free dim {value.name}"
    if isinstance(value, DType):
        return f"the element type {value}"
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, str):
        return f"the string {value!r}"
    return f"the number {value}"


def as_int(value: PmlValue, what: str) -> int:
    """An int known while the model is built. Raises TypeMismatch."""
    if isinstance(value, FreeDim):
        raise TypeMismatch(
            f"{what} must be a known integer, the size of dim {value.name} is not known",
            remedy=f"bind it: --dim {value.name}=N",
        )
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeMismatch(f"{what} must be an integer, not {describe(value)}")
    return value


def as_ints(value: PmlValue, what: str, count: int | None = None) -> tuple[int, ...]:
    """Several ints; one int stands for `count` equal ones. Raises TypeMismatch."""
    if isinstance(value, int) and not isinstance(value, bool) and count is not None:
        return (value,) * count
    if not isinstance(value, tuple):
        raise TypeMismatch(f"{what} must be a list of integers, not {describe(value)}")
    items = cast("tuple[PmlValue, ...]", value)
    if count is not None and len(items) != count:
        raise TypeMismatch(f"{what} must have {count} entries, not {len(items)}")
    return tuple(as_int(v, what) for v in items)


def as_dim(value: PmlValue, what: str) -> int | str:
    """One dim of a shape: a size of 0 or more, or the name of a free dim."""
    if isinstance(value, FreeDim):
        return value.name
    size = as_int(value, what)
    if size < 0:
        raise TypeMismatch(f"{what} is negative: {size}")
    return size


def as_shape(value: PmlValue, what: str) -> Shape:
    if not isinstance(value, tuple):
        value = (value,)
    return tuple(as_dim(v, what) for v in cast("tuple[PmlValue, ...]", value))


def dim_value(dim: int | str) -> PmlValue:
    """The pml value of a dim of a shape."""
    return FreeDim(dim) if isinstance(dim, str) else dim


def as_tensor(value: PmlValue, builder: Builder, like: DType | None) -> Value:
    """A tensor; numbers and lists of numbers become constants of element type `like`.

    Raises TypeMismatch for what is no number or does not fit the element type.
    """
    if isinstance(value, Value):
        return value
    array = number_array(value)
    if like is None:
        raise TypeMismatch(
            f"{describe(value)} stands where a tensor is needed",
            remedy="one operand must be a tensor",
        )
    return builder.constant(fit_array(array, like, describe(value)))


def number_array(value: PmlValue) -> np.ndarray[Any, Any]:
    """A number, bool or list of them as an array. Raises TypeMismatch."""
    if isinstance(value, (bool, int, float)) or _is_number_list(value):
        try:
            array = np.asarray(value)
        except ValueError:
            raise TypeMismatch("the lists in a list have different lengths") from None
        if array.dtype.kind in "biuf":
            return array
    raise TypeMismatch(f"{describe(value)} stands where a tensor is needed")


def _is_number_list(value: PmlValue) -> bool:
    if not isinstance(value, tuple):
        return isinstance(value, (bool, int, float))
    return all(map(_is_number_list, cast("tuple[PmlValue, ...]", value)))


def fit_array(array: np.ndarray[Any, Any], dtype: DType, what: str) -> np.ndarray[Any, Any]:
    """The array as `dtype`: floats may round, finite numbers must fit.

    Raises TypeMismatch, InputError.
    """
    kind = array.dtype.kind
    allowed = {"f": "iufbV", "i": "iub", "u": "iub", "b": "b"}[dtype.kind]
    if kind not in allowed:
        raise TypeMismatch(f"{what} ({array.dtype}) does not fit the element type {dtype}")
    with np.errstate(all="ignore"):
        out = array.astype(dtype.numpy)
    if dtype.is_integer and not np.array_equal(out.astype(object), array.astype(object)):
        raise InputError(f"{what} is out of range for {dtype}")
    if dtype.is_float and (np.isinf(out.astype(np.float64)) & np.isfinite(array)).any():
        raise InputError(f"{what} is out of range for {dtype}", remedy="write inf if that is meant")
    return out
