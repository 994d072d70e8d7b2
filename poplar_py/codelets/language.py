"""Names of the vertex language for Python and type checkers: `from ... import *`.

A codelet source is parsed, never run; but a class handed over as a Python object must be a valid
Python class first, and editors want to know the names. Nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Callable as _Callable
from collections.abc import Iterator as _Iterator
from enum import Enum as Enum
from enum import IntEnum as IntEnum
from typing import TYPE_CHECKING
from typing import Any as _Any
from typing import TypeVar as TypeVar

_C = TypeVar("_C")
_M = TypeVar("_M")


# ---------------------------------------------------------------- element types


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
half = f16
unsigned = u32


# ---------------------------------------------------------------- vertices and fields


class _Subscript:
    """Stands for a field type; `Input[Vector[f32]]` gives itself."""

    def __class_getitem__(cls, _item: _Any) -> _Any:
        return _Any


if TYPE_CHECKING:
    from typing import Generic as Generic
else:

    class Generic:
        """Names the parameters of a class, types and numbers: `Generic[T, N]`."""

        def __class_getitem__(cls, _item: _Any) -> _Any:
            return cls


class Input(_Subscript):
    """An edge the vertex reads."""


class Output(_Subscript):
    """An edge the vertex writes."""


class InOut(_Subscript):
    """An edge the vertex reads and writes."""


class Vector(_Subscript):
    """A run of elements, or a list of edges."""


class VectorList(_Subscript):
    """A list of rows behind one base pointer: `Input[VectorList[f32, DELTANELEMENTS]]`."""


class Vec(_Subscript):
    """A short vector: `Vec[f32, 16]`."""


class Vertex:
    """Base of a vertex that one worker runs."""


class MultiVertex:
    """Base of a vertex that all six workers of a tile run."""

    @staticmethod
    def num_workers() -> int:
        """Workers of a tile."""
        return 6


class SupervisorVertex:
    """Base of a vertex that the supervisor of a tile runs, alone."""


SPAN = "span"
SHORT_SPAN = "short_span"
ONE_PTR = "one_ptr"
SCALED_PTR32 = "scaled_ptr32"
SCALED_PTR64 = "scaled_ptr64"
SCALED_PTR128 = "scaled_ptr128"
COMPACT_PTR = "compact_ptr"
DELTAN = "deltan"
DELTANELEMENTS = "deltanelements"
COMPACT_DELTAN = "compact_deltan"


class VectorListLayout:
    """Layouts of a VectorList under Poplar's name."""

    DELTAN = DELTAN
    DELTANELEMENTS = DELTANELEMENTS
    COMPACT_DELTAN = COMPACT_DELTAN


class VectorLayout:
    """Layouts of a Vector under Poplar's name."""

    SPAN = SPAN
    SHORT_SPAN = SHORT_SPAN
    ONE_PTR = ONE_PTR
    SCALED_PTR32 = SCALED_PTR32
    SCALED_PTR64 = SCALED_PTR64
    SCALED_PTR128 = SCALED_PTR128
    COMPACT_PTR = COMPACT_PTR


class IntParam(int):
    """A compile-time int parameter: `N = IntParam("N")`."""

    def __new__(cls, _name: str) -> IntParam:
        return super().__new__(cls, 0)


class BoolParam(int):
    """A compile-time bool parameter: `B = BoolParam("B")`."""

    def __new__(cls, _name: str) -> BoolParam:
        return super().__new__(cls, 0)


def EnumParam(_name: str, _enum: type[_M]) -> _M:
    """A compile-time parameter of an enum: `K = EnumParam("K", Kind)`."""
    return next(iter(_enum))  # type: ignore[call-overload]


def vertex(cls: _C) -> _C:
    """Marks a vertex class."""
    return cls


def constraint(_text: str) -> _Callable[[_C], _C]:
    """Poplar's placement constraint, `elem(*a) != elem(*b)`; it changes no value."""
    return lambda cls: cls


def device(function: _Callable[..., _Any]) -> _Callable[..., _Any]:
    """Marks a helper function."""
    return function


# ---------------------------------------------------------------- functions


def _only_on_tiles(*_args: _Any) -> _Any:
    raise TypeError("this function exists in codelets only: it runs on tiles, not in Python")


def unroll(*_args: int) -> _Iterator[int]:
    """A compile-time loop."""
    return _only_on_tiles()


abort_if = acos = acosh = andc = array = asin = asinh = atan = atan2 = atanh = _only_on_tiles
bitcast = cast = ceil = clz = copysign = cos = cosh = erf = exp = exp2 = expm1 = _only_on_tiles
f32v2grand = fabs = floor = fma = fmax = fmin = fmod = gather = inf = insert = iota = _only_on_tiles
iota16 = is_float = isfinite = isinf = isnan = limit_max = limit_min = load = _only_on_tiles
load16 = load_raw = log = log10 = log1p = log2 = lowest = max16 = min16 = nan = _only_on_tiles
num_workers = popcount = pow = prefetch = prod = prod16 = quot = reduce_max = _only_on_tiles
reduce_min = rem = rsqrt = select = shuffle = sigmoid = sin = sinh = size_of = _only_on_tiles
splat = splat16 = sqrt = store = store16 = store_raw = sum16 = tan = tanh = _only_on_tiles
transpose16 = trunc = urand32 = urand64 = urand_f32 = _only_on_tiles


class ipu:
    """Poplar's intrinsics under their names: `ipu.fabs(x)`, also `__builtin_ipu_fabs(x)`."""

    fabs = ln = maxnum = minnum = fma = sqrt = rsqrt = exp = exp2 = log = sin = cos = _only_on_tiles
    floor = erf = sigmoid = copysign = tanh = isnan = isinf = isfinite = andc = sum = _only_on_tiles
    urand32 = urand64 = urand_f32 = f32v2grand = _only_on_tiles


# ---------------------------------------------------------------- short vectors

f16x2 = f16x4 = f16x8 = f16x16 = f16x32 = _Any
f32x2 = f32x4 = f32x8 = f32x16 = f32x32 = _Any
f64x2 = f64x4 = f64x8 = f64x16 = f64x32 = _Any
bf16x2 = bf16x4 = bf16x8 = bf16x16 = bf16x32 = _Any
i8x2 = i8x4 = i8x8 = i8x16 = i8x32 = _Any
i16x2 = i16x4 = i16x8 = i16x16 = i16x32 = _Any
i32x2 = i32x4 = i32x8 = i32x16 = i32x32 = _Any
i64x2 = i64x4 = i64x8 = i64x16 = i64x32 = _Any
u8x2 = u8x4 = u8x8 = u8x16 = u8x32 = _Any
u16x2 = u16x4 = u16x8 = u16x16 = u16x32 = _Any
u32x2 = u32x4 = u32x8 = u32x16 = u32x32 = _Any
u64x2 = u64x4 = u64x8 = u64x16 = u64x32 = _Any
boolx2 = boolx4 = boolx8 = boolx16 = boolx32 = _Any
float2 = float4 = float8 = _Any
half2 = half4 = half8 = _Any
int2 = int4 = int8 = _Any
uint2 = uint4 = uint8 = _Any
short2 = short4 = short8 = _Any
ushort2 = ushort4 = ushort8 = _Any
char2 = char4 = char8 = _Any
uchar2 = uchar4 = uchar8 = _Any
longlong2 = longlong4 = longlong8 = _Any
ulonglong2 = ulonglong4 = ulonglong8 = _Any
