"""Element types and tensor types, shared by all levels."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from poplar_py.diagnostics import ShapeError, TypeMismatch, quote_name

__all__ = [
    "DTYPES",
    "DType",
    "Dim",
    "Shape",
    "TensorType",
    "bf16",
    "bool_",
    "broadcast_shapes",
    "dtype_of",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "is_identifier",
    "sum_type",
    "u8",
    "u16",
    "u32",
    "u64",
]

Dim = int | str
Shape = tuple[Dim, ...]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


def is_identifier(text: str) -> bool:
    """Whether a name needs no quotes in `.pir`: letters, digits, `_` and `.`, no digit first."""
    return _IDENTIFIER.match(text) is not None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class DType:
    """An element type. One object per type: compare with `is` or `==`.

    `size` is in bytes; `kind` is f (float), i (signed), u (unsigned) or b (bool).
    """

    name: str
    size: int
    kind: str
    poplar: str
    numpy: np.dtype[Any]

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def bits(self) -> int:
        return 8 * self.size

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return DTYPES.__getitem__, (self.name,)


f16 = DType("f16", 2, "f", "half", np.dtype(np.float16))
f32 = DType("f32", 4, "f", "float", np.dtype(np.float32))
f64 = DType("f64", 8, "f", "double", np.dtype(np.float64))
bf16 = DType("bf16", 2, "f", "bfloat16", np.dtype(ml_dtypes.bfloat16))
i8 = DType("i8", 1, "i", "signed char", np.dtype(np.int8))
i16 = DType("i16", 2, "i", "short", np.dtype(np.int16))
i32 = DType("i32", 4, "i", "int", np.dtype(np.int32))
i64 = DType("i64", 8, "i", "longlong", np.dtype(np.int64))
u8 = DType("u8", 1, "u", "unsigned char", np.dtype(np.uint8))
u16 = DType("u16", 2, "u", "unsigned short", np.dtype(np.uint16))
u32 = DType("u32", 4, "u", "unsigned int", np.dtype(np.uint32))
u64 = DType("u64", 8, "u", "unsigned longlong", np.dtype(np.uint64))
bool_ = DType("bool", 1, "b", "bool", np.dtype(np.bool_))

DTYPES: dict[str, DType] = {
    t.name: t for t in (f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool_)
}
_BY_NUMPY: dict[np.dtype[Any], DType] = {t.numpy: t for t in DTYPES.values()}


def dtype_of(source: Any) -> DType:
    """The DType of a NumPy dtype, scalar type or array. Raises TypeMismatch for others."""
    dtype = np.dtype(getattr(source, "dtype", source))
    found = _BY_NUMPY.get(dtype.newbyteorder("="))
    if found is None:
        names = ", ".join(DTYPES)
        raise TypeMismatch(f"element type {dtype} is not supported", remedy=f"use one of {names}")
    return found


@dataclass(frozen=True, repr=False, slots=True)
class TensorType:
    """Element type and shape; a `str` in the shape is a free dim, bound before lowering."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def free_dims(self) -> tuple[str, ...]:
        """Free dims in order of first appearance."""
        return tuple(dict.fromkeys(d for d in self.shape if isinstance(d, str)))

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints. Raises ShapeError when a dim is free."""
        dims = tuple(d for d in self.shape if isinstance(d, int))
        if len(dims) != len(self.shape):
            free = ", ".join(self.free_dims)
            raise ShapeError(f"the shape {self} has free dims", remedy=f"bind {free}")
        return dims

    @property
    def numel(self) -> int:
        """Number of elements. Raises ShapeError when a dim is free."""
        return math.prod(self.static_shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.size

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(_dim_text(d) for d in self.shape)}]"

    def __repr__(self) -> str:
        return str(self)


def _dim_text(dim: Dim) -> str:
    if isinstance(dim, int):
        return str(dim)
    return dim if is_identifier(dim) else quote_name(dim)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """NumPy broadcasting of shapes that may hold free dims.

    A free dim matches itself and 1; against another size it is taken to become that size (checked
    again once it is bound). Raises ShapeError when two known sizes differ.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            out[axis] = _broadcast_dim(out[axis], dim, shapes)
    return tuple(out)


def _broadcast_dim(a: Dim, b: Dim, shapes: tuple[Shape, ...]) -> Dim:
    if a == b or b == 1:
        return a
    if a == 1 or isinstance(a, str):
        return b
    if isinstance(b, str):
        return a
    texts = " and ".join("[" + ",".join(map(str, s)) + "]" for s in shapes)
    raise ShapeError(f"shapes {texts} do not broadcast: {a} against {b}")


def sum_type(dtype: DType) -> DType:
    """What sums of a float type are taken in: f64 for f64, f32 for all others."""
    return f64 if dtype is f64 else f32


def limits(dtype: DType) -> tuple[float | int, float | int]:
    """Lowest and highest finite value of a type."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.is_float:
        finfo: Any = vars(ml_dtypes)["finfo"]
        floats = finfo(dtype.numpy)
        return float(floats.min), float(floats.max)
    integers = np.iinfo(dtype.numpy)
    return int(integers.min), int(integers.max)
