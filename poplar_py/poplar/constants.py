"""Values the host gives for elements: as arrays of the element type, none of them changed."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.errors import TensorCreationError
from poplar_py.poplar.faults import fail
from poplar_py.types import DType, limits

__all__ = ["as_array", "misfit", "values_of_type"]

_NUMBERS = "biufV"  # V: bfloat16


def as_array(values: Any, what: str) -> npt.NDArray[Any]:
    """Numbers as an array of whatever type they have. Raises TensorCreationError."""
    try:
        data = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        fail(TensorCreationError, f"{what} of {values!r}", "give numbers, all rows equally long")
    if data.dtype.kind == "O" and _all_ints(data):
        return data
    if data.dtype.kind not in _NUMBERS:
        fail(TensorCreationError, f"{what} of {data.dtype} values", "give numbers")
    return data


def _all_ints(data: npt.NDArray[Any]) -> bool:
    """Whether an array of objects holds whole numbers too large for NumPy's types."""
    return data.size > 0 and all(isinstance(x, int) for x in data.flat)


def values_of_type(values: Any, dtype: DType, what: str) -> npt.NDArray[Any]:
    """Numbers as an array of an element type. Raises TensorCreationError for what a whole-number
    type does not hold: a value out of its range, a fraction, NaN."""
    data = as_array(values, what)
    bad = misfit(data, dtype)
    if bad is not None:
        low, high = limits(dtype)
        remedy = f"{dtype.name} holds the whole numbers {low} to {high}"
        fail(TensorCreationError, f"{what} of type {dtype.name} with value {bad}", remedy)
    try:
        with np.errstate(over="ignore"):  # an infinity, as on the device
            return data.astype(dtype.numpy, copy=False)
    except OverflowError:
        fail(TensorCreationError, f"{what} of type {dtype.name} with a value beyond all floats")


def misfit(data: npt.NDArray[Any], dtype: DType) -> Any:
    """A value that a whole-number type does not hold, or None."""
    if not dtype.is_integer or data.dtype == dtype.numpy or data.dtype.kind == "b" or not data.size:
        return None
    low, high = cast("tuple[int, int]", limits(dtype))
    if data.dtype.kind not in "iuO":
        real = data.astype(np.float64)
        broken = ~np.isfinite(real) | (np.trunc(real) != real)
        if bool(broken.any()):
            return data[broken].flat[0].item()
    least, most = data.min(), data.max()
    if int(least) < low:
        return least
    return most if int(most) > high else None
