"""Functions of the `.pml` language: dims, shapes, parts of tensors and rows by number."""

from __future__ import annotations

import math
from typing import Any, cast

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.frontends.pml.builtin_table import builtin, tensor_of, tensors_of
from poplar_py.frontends.pml.values import (
    PmlValue,
    as_dim,
    as_int,
    as_ints,
    as_shape,
    as_tensor,
    describe,
    dim_value,
)
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import Value
from poplar_py.ops import elementwise, tensor
from poplar_py.ops.tensor import check_axis
from poplar_py.types import DType, Shape, i32


@builtin
def shape(b: Builder, x: PmlValue) -> PmlValue:
    """The dims of a tensor as a list."""
    return tuple(dim_value(d) for d in tensor_of(x, "x").shape)


@builtin
def dim(b: Builder, x: PmlValue, axis: PmlValue) -> PmlValue:
    """One dim of a tensor."""
    value = tensor_of(x, "x")
    return dim_value(value.shape[check_axis(as_int(axis, "axis"), value.rank)])


@builtin
def rank(b: Builder, x: PmlValue) -> PmlValue:
    """The number of dims of a tensor."""
    return tensor_of(x, "x").rank


@builtin
def len_(b: Builder, items: PmlValue) -> PmlValue:
    """The length of a list."""
    if not isinstance(items, tuple):
        raise TypeMismatch(f"len takes a list, not {describe(items)}")
    return len(cast("tuple[PmlValue, ...]", items))


@builtin
def reshape(b: Builder, x: PmlValue, shape: PmlValue) -> PmlValue:
    """The elements in row-major order in another shape; one entry may be -1."""
    value = tensor_of(x, "x")
    entries = cast("tuple[PmlValue, ...]", shape if isinstance(shape, tuple) else (shape,))
    missing = [i for i, d in enumerate(entries) if d == -1]
    if len(missing) > 1:
        raise ShapeError("only one dim may be -1")
    dims = [1 if d == -1 else as_dim(d, "a dim") for d in entries]
    if missing:
        dims[missing[0]] = _missing_dim(value, tuple(dims))
    return b.add(tensor.Reshape, value, tuple(dims))


def _missing_dim(x: Value, known: Shape) -> int | str:
    """What -1 stands for: sizes are divided, free dims on both sides cancel."""
    symbols = [d for d in x.shape if isinstance(d, str)]
    for d in known:
        if not isinstance(d, str):
            continue
        if d not in symbols:
            raise ShapeError(f"-1 cannot be found: dim {d} is not in {x.type}")
        symbols.remove(d)
    size = math.prod(d for d in x.shape if isinstance(d, int))
    part = math.prod(d for d in known if isinstance(d, int))
    if part == 0 or size % part or (symbols and size != part) or len(symbols) > 1:
        raise ShapeError(f"-1 cannot be found for {x.type} and [{', '.join(map(str, known))}]")
    return symbols[0] if symbols else size // part


@builtin
def flatten(b: Builder, x: PmlValue, axis: PmlValue = 1) -> PmlValue:
    """Dims from `axis` on joined into one."""
    value = tensor_of(x, "x")
    at = check_axis(as_int(axis, "axis"), value.rank)
    return reshape(b, value, (*(dim_value(d) for d in value.shape[:at]), -1))


@builtin
def transpose(b: Builder, x: PmlValue, perm: PmlValue = None) -> PmlValue:
    """Dims in the order `perm`; by default the last two change places."""
    value = tensor_of(x, "x")
    if perm is None:
        if value.rank < 2:
            raise ShapeError(f"{value.type} has no two dims to swap")
        n = value.rank
        return b.add(tensor.Transpose, value, (*range(n - 2), n - 1, n - 2))
    return b.add(tensor.Transpose, value, as_ints(perm, "perm"))


@builtin
def split(b: Builder, x: PmlValue, parts: PmlValue, axis: PmlValue = -1) -> PmlValue:
    """A list of parts along an axis: a number of equal ones, or a list of sizes."""
    value = tensor_of(x, "x")
    at = check_axis(as_int(axis, "axis"), value.rank)
    size = tensor.static_dim(value, at)
    if isinstance(parts, tuple):
        sizes = as_ints(cast("PmlValue", parts), "parts")
    else:
        count = as_int(parts, "parts")
        if count < 1 or size % count:
            raise ShapeError(f"{size} elements do not split into {count} equal parts")
        sizes = (size // count,) * count
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise ShapeError(f"parts {list(sizes)} of {size} elements")
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(_part(b, value, at, s, n) for s, n in zip(begins, sizes, strict=True))


def _part(b: Builder, x: Value, axis: int, start: int, size: int) -> Value:
    starts, sizes = [0] * x.rank, list(x.shape)
    starts[axis], sizes[axis] = start, size
    return b.add(tensor.Slice, x, tuple(starts), tuple(sizes), (1,) * x.rank)


def slice_tensor(b: Builder, x: Value, items: tuple[Any, ...]) -> Value:
    """x[items]: an int drops its axis, a pair (begin, end) keeps part; ends may be None."""
    if len(items) > x.rank:
        raise ShapeError(f"{len(items)} indices for {x.type}")
    starts, sizes = [0] * x.rank, list(x.shape)
    dropped: list[int] = []
    for axis, item in enumerate(items):
        if item == (None, None):
            continue
        if not isinstance(item, tuple):
            dropped.append(axis)
        starts[axis], sizes[axis] = _kept(x, axis, item)
    y = b.add(tensor.Slice, x, tuple(starts), tuple(sizes), (1,) * x.rank)
    if not dropped:
        return y
    return b.add(tensor.Reshape, y, tuple(d for i, d in enumerate(y.shape) if i not in dropped))


def _kept(x: Value, axis: int, item: Any) -> tuple[int, int]:
    """Start and size of what an index or a pair of ends takes of an axis."""
    size = tensor.static_dim(x, axis)
    if isinstance(item, tuple):
        begin, end = cast("tuple[PmlValue, PmlValue]", item)
        first = _bound(0 if begin is None else begin, size)
        return first, max(0, _bound(size if end is None else end, size) - first)
    at = as_int(item, "an index")
    if not -size <= at < size:
        raise ShapeError(f"index {at} for axis {axis} of {x.type}")
    return at % size, 1


def _bound(value: PmlValue, size: int) -> int:
    at = as_int(value, "an index")
    return min(max(at + size if at < 0 else at, 0), size)


@builtin
def concat(b: Builder, inputs: PmlValue, axis: PmlValue = -1) -> PmlValue:
    """Tensors one after the other along an axis."""
    return b.add(tensor.Concat, tensors_of(inputs, "inputs"), as_int(axis, "axis"))


@builtin
def stack(b: Builder, inputs: PmlValue, axis: PmlValue = 0) -> PmlValue:
    """Tensors of one shape side by side along a new axis."""
    values = tensors_of(inputs, "inputs")
    if not values:
        raise ShapeError("nothing to stack")
    at = check_axis(as_int(axis, "axis"), values[0].rank + 1)
    wide = tuple(b.add(tensor.Reshape, v, (*v.shape[:at], 1, *v.shape[at:])) for v in values)
    return b.add(tensor.Concat, wide, at)


@builtin
def embedding(b: Builder, table: PmlValue, ids: PmlValue) -> PmlValue:
    """Rows of `table` by number."""
    return b.add(tensor.Gather, tensor_of(table, "table"), _index(b, ids), 0)


@builtin
def gather(b: Builder, x: PmlValue, indices: PmlValue, axis: PmlValue = 0) -> PmlValue:
    """Slices of x along an axis by number; indices of other integer types are cast to i32."""
    return b.add(tensor.Gather, tensor_of(x, "x"), _index(b, indices), as_int(axis, "axis"))


def _index(b: Builder, value: PmlValue) -> Value:
    indices = as_tensor(value, b, i32)
    if indices.dtype.is_integer and indices.dtype is not i32:
        return b.add(elementwise.Cast, indices, i32)
    return indices


@builtin
def full(b: Builder, shape: PmlValue, value: PmlValue, dtype: PmlValue) -> PmlValue:
    """A tensor that repeats one number."""
    if not isinstance(dtype, DType):
        raise TypeMismatch(f"full takes an element type, not {describe(dtype)}")
    return b.add(tensor.Expand, as_tensor(value, b, dtype), as_shape(shape, "a dim"))
