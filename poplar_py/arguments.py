"""Arguments of the Python API: what is not of its kind is refused where it is given."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from poplar_py.diagnostics import InputError, OptionError

__all__ = ["names_of", "number", "text", "whole"]


def _no_option(message: str, remedy: str) -> NoReturn:
    raise OptionError(message, remedy=remedy)


def whole(value: Any, what: str, refuse: Callable[[str, str], NoReturn] = _no_option) -> int:
    """A count as an int; NumPy's integers are taken. Floats and texts are refused: by OptionError,
    or by what ``refuse(message, remedy)`` raises."""
    try:
        return operator.index(value)
    except TypeError:
        refuse(f"{what} is {value!r}", "give a whole number")


def number(value: Any, what: str) -> float:
    """Raises OptionError for what is no number."""
    if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
        raise OptionError(f"{what} is {value!r}", remedy="give a number")
    return float(value)


def text(value: Any, what: str) -> str:
    """Raises OptionError for what is no text."""
    if not isinstance(value, str):
        raise OptionError(f"{what} is {value!r}", remedy="give a text")
    return value


def names_of(value: Any, what: str) -> Mapping[str, Any]:
    """A dict by names; None is an empty one. Raises InputError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(n, str) for n in cast("Any", value)):
        raise InputError(f"{what} are no dict by names", remedy="give a dict from name to value")
    return cast("Mapping[str, Any]", value)
