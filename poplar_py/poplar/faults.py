"""Refusals at the user's line, and the checks of arguments that lead to them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from poplar_py.arguments import whole
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar.errors import GraphError, TensorIndexError, TensorTypeError
from poplar_py.poplar.where import caller, source_text
from poplar_py.types import DType

__all__ = [
    "a_text",
    "an_instance",
    "element_type",
    "fail",
    "int_array",
    "listed",
    "whole_number",
    "whole_numbers",
]

T = TypeVar("T")


def fail(kind: type[PoplarPyError], message: str, remedy: str = "") -> NoReturn:
    """Raise an error at the user's line, or that of the op that is lowered."""
    loc = caller()
    raise kind(message, loc, remedy, source_text(loc))


def whole_number(value: Any, what: str, kind: type[GraphError] = TensorIndexError) -> int:
    """An index or a size as an int: floats are not cut. Raises ``kind``."""
    return whole(value, what, lambda message, remedy: fail(kind, message, remedy))


def whole_numbers(
    values: Any, what: str, kind: type[GraphError] = TensorIndexError
) -> tuple[int, ...]:
    """Sizes, dims or indices as a tuple of ints. Raises ``kind``."""
    try:
        return tuple([operator.index(v) for v in values])
    except TypeError:
        fail(kind, f"{what} are {values!r}", "give a list of whole numbers")


def int_array(
    values: Any, what: str, kind: type[GraphError] = TensorIndexError
) -> npt.NDArray[np.int64]:
    """Whole numbers as an int64 array of any rank. Raises ``kind``."""
    if type(values) is np.ndarray and values.dtype == np.int64:
        return cast("npt.NDArray[np.int64]", values)
    try:
        found: npt.NDArray[Any] = np.asarray(cast("npt.ArrayLike", values))
    except ValueError:
        fail(kind, f"{what} are {values!r}", "give whole numbers, all rows equally long")
    if found.dtype.kind not in "iu" and (found.size or found.dtype.kind == "O"):
        fail(kind, f"{what} are {values!r}", "give whole numbers")
    return found.astype(np.int64, copy=False)


def a_text(value: Any, what: str, kind: type[GraphError] = TensorTypeError) -> str:
    """A handle or a title. Raises ``kind``."""
    if not isinstance(value, str):
        fail(kind, f"{what} is {value!r}", "give a text")
    return value


def element_type(dtype: Any) -> DType:
    """An element type, not its name or NumPy's. Raises TensorTypeError."""
    if not isinstance(dtype, DType):
        fail(TensorTypeError, f"{dtype!r} is no element type", "for example poplar.FLOAT")
    return dtype


def an_instance(
    value: Any, wanted: type[T], what: str, remedy: str, kind: type[GraphError] = TensorTypeError
) -> T:
    """An object of a class of this package. Raises ``kind``."""
    if not isinstance(value, wanted):
        fail(kind, f"{what} is {value!r}", remedy)
    return value


def listed(
    values: Any, what: str, remedy: str, kind: type[GraphError] = TensorTypeError
) -> list[Any]:
    """A list or another iterable, but no text, as a list. Raises ``kind``."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        fail(kind, f"{what} are {values!r}", remedy)
    return list(cast("Iterable[Any]", values))
