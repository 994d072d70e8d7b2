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
    "abort_if",
    "acos",
    "acosh",
    "array",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bf16",
    "bf16x2",
    "bf16x4",
    "bf16x8",
    "bf16x16",
    "bf16x32",
    "bitcast",
    "bool_",
    "boolx2",
    "boolx4",
    "boolx8",
    "boolx16",
    "boolx32",
    "cast",
    "ceil",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "device",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "f16",
    "f16x2",
    "f16x4",
    "f16x8",
    "f16x16",
    "f16x32",
    "f32",
    "f32x2",
    "f32x4",
    "f32x8",
    "f32x16",
    "f32x32",
    "f64",
    "f64x2",
    "f64x4",
    "f64x8",
    "f64x16",
    "f64x32",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "gather",
    "i8",
    "i8x2",
    "i8x4",
    "i8x8",
    "i8x16",
    "i8x32",
    "i16",
    "i16x2",
    "i16x4",
    "i16x8",
    "i16x16",
    "i16x32",
    "i32",
    "i32x2",
    "i32x4",
    "i32x8",
    "i32x16",
    "i32x32",
    "i64",
    "i64x2",
    "i64x4",
    "i64x8",
    "i64x16",
    "i64x32",
    "inf",
    "insert",
    "iota",
    "iota16",
    "is_float",
    "isinf",
    "isnan",
    "limit_max",
    "limit_min",
    "load",
    "load16",
    "load_raw",
    "log",
    "log1p",
    "log2",
    "log10",
    "lowest",
    "max16",
    "min16",
    "nan",
    "num_workers",
    "popcount",
    "pow",
    "prefetch",
    "prod",
    "prod16",
    "quot",
    "reduce_max",
    "reduce_min",
    "rem",
    "rsqrt",
    "select",
    "shuffle",
    "sigmoid",
    "sin",
    "sinh",
    "size_of",
    "splat",
    "splat16",
    "sqrt",
    "store",
    "store16",
    "store_raw",
    "sum16",
    "tan",
    "tanh",
    "transpose16",
    "trunc",
    "u8",
    "u8x2",
    "u8x4",
    "u8x8",
    "u8x16",
    "u8x32",
    "u16",
    "u16x2",
    "u16x4",
    "u16x8",
    "u16x16",
    "u16x32",
    "u32",
    "u32x2",
    "u32x4",
    "u32x8",
    "u32x16",
    "u32x32",
    "u64",
    "u64x2",
    "u64x4",
    "u64x8",
    "u64x16",
    "u64x32",
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


abort_if: Callable[..., Any] = _only_on_tiles
acos: Callable[..., Any] = _only_on_tiles
acosh: Callable[..., Any] = _only_on_tiles
array: Callable[..., Any] = _only_on_tiles
asin: Callable[..., Any] = _only_on_tiles
asinh: Callable[..., Any] = _only_on_tiles
atan: Callable[..., Any] = _only_on_tiles
atan2: Callable[..., Any] = _only_on_tiles
atanh: Callable[..., Any] = _only_on_tiles
bitcast: Callable[..., Any] = _only_on_tiles
cast: Callable[..., Any] = _only_on_tiles
ceil: Callable[..., Any] = _only_on_tiles
clz: Callable[..., Any] = _only_on_tiles
copysign: Callable[..., Any] = _only_on_tiles
cos: Callable[..., Any] = _only_on_tiles
cosh: Callable[..., Any] = _only_on_tiles
erf: Callable[..., Any] = _only_on_tiles
exp: Callable[..., Any] = _only_on_tiles
exp2: Callable[..., Any] = _only_on_tiles
expm1: Callable[..., Any] = _only_on_tiles
floor: Callable[..., Any] = _only_on_tiles
fma: Callable[..., Any] = _only_on_tiles
fmax: Callable[..., Any] = _only_on_tiles
fmin: Callable[..., Any] = _only_on_tiles
fmod: Callable[..., Any] = _only_on_tiles
gather: Callable[..., Any] = _only_on_tiles
inf: Callable[..., Any] = _only_on_tiles
insert: Callable[..., Any] = _only_on_tiles
iota: Callable[..., Any] = _only_on_tiles
iota16: Callable[..., Any] = _only_on_tiles
is_float: Callable[..., Any] = _only_on_tiles
isinf: Callable[..., Any] = _only_on_tiles
isnan: Callable[..., Any] = _only_on_tiles
num_workers: Callable[..., Any] = _only_on_tiles
limit_max: Callable[..., Any] = _only_on_tiles
limit_min: Callable[..., Any] = _only_on_tiles
load: Callable[..., Any] = _only_on_tiles
load16: Callable[..., Any] = _only_on_tiles
load_raw: Callable[..., Any] = _only_on_tiles
log: Callable[..., Any] = _only_on_tiles
log10: Callable[..., Any] = _only_on_tiles
log1p: Callable[..., Any] = _only_on_tiles
log2: Callable[..., Any] = _only_on_tiles
lowest: Callable[..., Any] = _only_on_tiles
max16: Callable[..., Any] = _only_on_tiles
min16: Callable[..., Any] = _only_on_tiles
nan: Callable[..., Any] = _only_on_tiles
popcount: Callable[..., Any] = _only_on_tiles
pow: Callable[..., Any] = _only_on_tiles
prefetch: Callable[..., Any] = _only_on_tiles
prod: Callable[..., Any] = _only_on_tiles
prod16: Callable[..., Any] = _only_on_tiles
quot: Callable[..., Any] = _only_on_tiles
reduce_max: Callable[..., Any] = _only_on_tiles
reduce_min: Callable[..., Any] = _only_on_tiles
rem: Callable[..., Any] = _only_on_tiles
rsqrt: Callable[..., Any] = _only_on_tiles
select: Callable[..., Any] = _only_on_tiles
shuffle: Callable[..., Any] = _only_on_tiles
sigmoid: Callable[..., Any] = _only_on_tiles
sin: Callable[..., Any] = _only_on_tiles
sinh: Callable[..., Any] = _only_on_tiles
size_of: Callable[..., Any] = _only_on_tiles
splat: Callable[..., Any] = _only_on_tiles
splat16: Callable[..., Any] = _only_on_tiles
sqrt: Callable[..., Any] = _only_on_tiles
store: Callable[..., Any] = _only_on_tiles
store16: Callable[..., Any] = _only_on_tiles
store_raw: Callable[..., Any] = _only_on_tiles
sum16: Callable[..., Any] = _only_on_tiles
tan: Callable[..., Any] = _only_on_tiles
tanh: Callable[..., Any] = _only_on_tiles
transpose16: Callable[..., Any] = _only_on_tiles
trunc: Callable[..., Any] = _only_on_tiles

f16x2: Any = Any
f16x4: Any = Any
f16x8: Any = Any
f16x16: Any = Any
f16x32: Any = Any
f32x2: Any = Any
f32x4: Any = Any
f32x8: Any = Any
f32x16: Any = Any
f32x32: Any = Any
f64x2: Any = Any
f64x4: Any = Any
f64x8: Any = Any
f64x16: Any = Any
f64x32: Any = Any
bf16x2: Any = Any
bf16x4: Any = Any
bf16x8: Any = Any
bf16x16: Any = Any
bf16x32: Any = Any
i8x2: Any = Any
i8x4: Any = Any
i8x8: Any = Any
i8x16: Any = Any
i8x32: Any = Any
i16x2: Any = Any
i16x4: Any = Any
i16x8: Any = Any
i16x16: Any = Any
i16x32: Any = Any
i32x2: Any = Any
i32x4: Any = Any
i32x8: Any = Any
i32x16: Any = Any
i32x32: Any = Any
i64x2: Any = Any
i64x4: Any = Any
i64x8: Any = Any
i64x16: Any = Any
i64x32: Any = Any
u8x2: Any = Any
u8x4: Any = Any
u8x8: Any = Any
u8x16: Any = Any
u8x32: Any = Any
u16x2: Any = Any
u16x4: Any = Any
u16x8: Any = Any
u16x16: Any = Any
u16x32: Any = Any
u32x2: Any = Any
u32x4: Any = Any
u32x8: Any = Any
u32x16: Any = Any
u32x32: Any = Any
u64x2: Any = Any
u64x4: Any = Any
u64x8: Any = Any
u64x16: Any = Any
u64x32: Any = Any
boolx2: Any = Any
boolx4: Any = Any
boolx8: Any = Any
boolx16: Any = Any
boolx32: Any = Any
