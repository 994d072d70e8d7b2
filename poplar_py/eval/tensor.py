"""NumPy meaning of tensor.*."""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py.diagnostics import TileException
from poplar_py.eval.registry import Array, meaning, narrow, widen
from poplar_py.ops import tensor as ops
from poplar_py.types import DType

__all__ = ["highest", "lowest"]


@meaning(ops.Reshape)
def reshape(op: ops.Reshape, x: Array) -> Array:
    return x.reshape(_ints(op.result.shape))


@meaning(ops.Transpose)
def transpose(op: ops.Transpose, x: Array) -> Array:
    return np.transpose(x, op.perm)


@meaning(ops.Expand)
def expand(op: ops.Expand, x: Array) -> Array:
    return np.broadcast_to(x, _ints(op.result.shape))


@meaning(ops.Slice)
def slice_(op: ops.Slice, x: Array) -> Array:
    index: list[slice] = []
    for start, size, step in zip(op.starts, _ints(op.result.shape), op.steps, strict=True):
        stop = start + size * step
        if size == 0:
            start, stop = 0, 0
        index.append(slice(start, None if stop < 0 else stop, step))
    return x[tuple(index)]


@meaning(ops.Concat)
def concat(op: ops.Concat, *inputs: Array) -> Array:
    return np.concatenate(inputs, op.axis)


@meaning(ops.Pad)
def pad(op: ops.Pad, x: Array) -> Array:
    pads = list(zip(op.before, op.after, strict=True))
    if x.ndim == 0:
        return x
    value = np.asarray(op.value).astype(x.dtype)
    out = np.full(_ints(op.result.shape), value, dtype=x.dtype)
    out[tuple(slice(b, b + d) for (b, _), d in zip(pads, x.shape, strict=True))] = x
    return out


@meaning(ops.Bitcast)
def bitcast(op: ops.Bitcast, x: Array) -> Array:
    return np.ascontiguousarray(x).view(op.dtype.numpy).reshape(x.shape)


@meaning(ops.Iota)
def iota(op: ops.Iota) -> Array:
    shape = _ints(op.shape)
    axis = op.axis % len(shape)
    line = np.arange(shape[axis]).astype(op.dtype.numpy)
    line = line.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(line, shape)


@meaning(ops.Gather)
def gather(op: ops.Gather, x: Array, indices: Array) -> Array:
    axis = op.axis % x.ndim
    _check_range(indices, x.shape[axis])
    return np.take(x, indices, axis)


def _check_range(indices: Array, size: int) -> None:
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        bad = indices[(indices < 0) | (indices >= size)].flat[0]
        raise TileException(f"index {bad} is out of range 0 to {size - 1}")


_SCATTER: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@meaning(ops.Scatter)
def scatter(op: ops.Scatter, x: Array, indices: Array, updates: Array) -> Array:
    _check_range(indices, x.shape[0])
    out = np.array(widen(x))
    if op.reduction == "none":
        for row, update in zip(indices, widen(updates), strict=True):
            out[row] = update
        return narrow(out, x)
    _SCATTER[op.reduction].at(out, indices, widen(updates))
    return narrow(out, x)


@meaning(ops.DynamicSlice)
def dynamic_slice(op: ops.DynamicSlice, x: Array, start: Array) -> Array:
    axis = op.axis % x.ndim
    first = min(max(int(start.reshape(())), 0), x.shape[axis] - op.size)
    return x[(*(slice(None),) * axis, slice(first, first + op.size))]


@meaning(ops.DynamicUpdate)
def dynamic_update(op: ops.DynamicUpdate, x: Array, update: Array, start: Array) -> Array:
    axis = op.axis % x.ndim
    size = update.shape[axis]
    first = min(max(int(start.reshape(())), 0), x.shape[axis] - size)
    out = np.array(x)
    out[(*(slice(None),) * axis, slice(first, first + size))] = update
    return out


_REDUCE: dict[str, Any] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "and": np.all,
    "or": np.any,
}


@meaning(ops.Reduce)
def reduce(op: ops.Reduce, x: Array) -> Array:
    axes = tuple(a % x.ndim for a in op.axes)
    options: dict[str, Any] = {"axis": axes, "keepdims": op.keep}
    if op.kind in ("sum", "prod"):
        wide = widen(x)
        options["dtype"] = wide.dtype
        return narrow(np.asarray(_REDUCE[op.kind](wide, **options)), x)
    if op.kind == "max":
        options["initial"] = lowest(op.x.dtype)
    if op.kind == "min":
        options["initial"] = highest(op.x.dtype)
    return narrow(np.asarray(_REDUCE[op.kind](x, **options)), x)


def lowest(dtype: DType) -> Any:
    """The least value of a type: -inf for floats."""
    if dtype.is_float:
        return dtype.numpy.type(-np.inf)
    return dtype.numpy.type(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> Any:
    """The greatest value of a type: inf for floats."""
    if dtype.is_float:
        return dtype.numpy.type(np.inf)
    return dtype.numpy.type(np.iinfo(dtype.numpy).max)


@meaning(ops.Cumulative)
def cumulative(op: ops.Cumulative, x: Array) -> Array:
    wide = np.moveaxis(widen(x), op.axis, 0)
    if op.reverse:
        wide = wide[::-1]
    running: Any = np.cumsum if op.kind == "sum" else np.cumprod
    out = running(wide, axis=0, dtype=wide.dtype)
    if op.exclusive:
        neutral = np.full_like(out[:1], 0 if op.kind == "sum" else 1)
        out = np.concatenate([neutral, out[:-1]])
    if op.reverse:
        out = out[::-1]
    return narrow(np.moveaxis(out, 0, op.axis), x)


@meaning(ops.TopK)
def top_k(op: ops.TopK, x: Array) -> tuple[Array, Array]:
    axis = op.axis % x.ndim
    dim = x.shape[axis]
    if op.largest:
        order = dim - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    order = np.take(order, np.arange(op.k), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


@meaning(ops.ArgMax, ops.ArgMin)
def arg_extreme(op: ops.ArgMax | ops.ArgMin, x: Array) -> Array:
    axis = op.axis % x.ndim
    find = np.argmax if isinstance(op, ops.ArgMax) else np.argmin
    wide = widen(x)
    if not op.last:
        return np.asarray(find(wide, axis), dtype=np.int32)
    found = x.shape[axis] - 1 - np.asarray(find(np.flip(wide, axis), axis))
    return np.asarray(found, dtype=np.int32)


def _ints(shape: tuple[int | str, ...]) -> tuple[int, ...]:
    return tuple(int(d) for d in shape)
