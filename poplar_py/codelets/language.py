"""Names of the vertex language for Python and type checkers.

A codelet source is parsed, never run; but a class handed over as a Python object must be a valid
Python class first, and editors want to know the names. Nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

__all__ = [
    "COMPACT_PTR",
    "ONE_PTR",
    "SCALED_PTR32",
    "SCALED_PTR64",
    "SCALED_PTR128",
    "SHORT_SPAN",
    "SPAN",
    "BoolParam",
    "Generic",
    "InOut",
    "Input",
    "IntParam",
    "MultiVertex",
    "Output",
    "TypeVar",
    "Vec",
    "Vector",
    "Vertex",
    "array",
    "bf16",
    "bitcast",
    "bool_",
    "cast",
    "device",
    "f16",
    "f32",
    "f64",
    "fma",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "unroll",
    "vertex",
]

_C = TypeVar("_C")


class f16(float):
    """IEEE half."""


class bf16(float):
    """bfloat16."""


class f32(float):
    """IEEE single."""


class f64(float):
    """IEEE double."""


class i8(int): ...


class i16(int): ...


class i32(int): ...


class i64(int): ...


class u8(int): ...


class u16(int): ...


class u32(int): ...


class u64(int): ...


bool_ = bool


class _Subscript:
    """Stands for a field type; `Input[Vector[f32]]` gives itself."""

    def __class_getitem__(cls, _item: Any) -> Any:
        return Any


class Input(_Subscript):
    """An edge the vertex reads."""


class Output(_Subscript):
    """An edge the vertex writes."""


class InOut(_Subscript):
    """An edge the vertex reads and writes."""


class Vector(_Subscript):
    """A run of elements, or a list of edges."""


class Vec(_Subscript):
    """A short vector: `Vec[f32, 16]`."""


class Vertex:
    """Base of a vertex that one worker runs."""


class MultiVertex:
    """Base of a vertex that all six workers of a tile run."""


SPAN = "span"
SHORT_SPAN = "short_span"
ONE_PTR = "one_ptr"
SCALED_PTR32 = "scaled_ptr32"
SCALED_PTR64 = "scaled_ptr64"
SCALED_PTR128 = "scaled_ptr128"
COMPACT_PTR = "compact_ptr"


class IntParam(int):
    """A compile-time int parameter: `N = IntParam("N")`."""

    def __new__(cls, _name: str) -> IntParam:
        return super().__new__(cls, 0)


class BoolParam(int):
    """A compile-time bool parameter: `B = BoolParam("B")`."""

    def __new__(cls, _name: str) -> BoolParam:
        return super().__new__(cls, 0)


def vertex(cls: _C) -> _C:
    """Marks a vertex class."""
    return cls


def device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a helper function."""
    return function


def _only_on_tiles(*_args: Any) -> Any:
    raise TypeError("this function exists in codelets only: it runs on tiles, not in Python")


def unroll(*_args: int) -> Iterator[int]:
    """A compile-time loop."""
    return _only_on_tiles()


array: Callable[..., Any] = _only_on_tiles
bitcast: Callable[..., Any] = _only_on_tiles
cast: Callable[..., Any] = _only_on_tiles
fma: Callable[..., Any] = _only_on_tiles
