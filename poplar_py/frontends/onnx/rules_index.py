"""ONNX gathers and scatters: all become row gathers and row scatters of a flattened tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import tensor
from poplar_py.ops.tensor import check_axis
from poplar_py.types import bool_, i32, u8

__all__ = ["gather_nd", "one_hot", "scatter_rows"]


@imports("Gather")
def gather(b: Builder, n: Node) -> Val:
    x, axis = n[0], check_axis(n.int("axis"), n[0].rank)
    indices = b.index(n[1], x.shape[axis])
    known = indices.const if indices.pure else None
    if known is not None and known.size == 1:
        _check(known, x.shape[axis], n)
        cut = b.slice(x, axis, int(known.reshape(-1)[0]), 1)
        out = b.reshape(cut, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])
    else:
        out = b.gather(x, indices, axis)
    out.tag = x.tag
    return out


def _check(known: np.ndarray, dim: int, n: Node) -> None:
    if known.size and (known.min() < 0 or known.max() >= dim):
        raise ShapeError(f"an index is out of range for an axis of {dim}", n.loc)


def _linear(b: Builder, idx: Val, shape: Sequence[int], axis: int) -> Val:
    """Flat positions in a tensor of `shape` of elements whose place along `axis` is idx."""
    b.table(idx.numel)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    offset = np.zeros((1,) * idx.rank, np.int64)
    for i, size in enumerate(idx.shape):
        if i != axis:
            view = [-1 if j == i else 1 for j in range(idx.rank)]
            offset = offset + (np.arange(size) * strides[i]).reshape(view)
    scaled = idx if strides[axis] == 1 else idx * strides[axis]
    return scaled if not offset.any() else scaled + b.const(offset, i32)


@imports("GatherElements")
def gather_elements(b: Builder, n: Node) -> Val:
    x, axis = n[0], check_axis(n.int("axis"), n[0].rank)
    if n[1].rank != x.rank:
        raise ShapeError(f"indices {n[1].type} for {x.type}", n.loc)
    idx = b.index(n[1], x.shape[axis])
    return b.gather(b.reshape(x, (x.numel,)), _linear(b, idx, x.shape, axis), 0)


@imports("GatherND")
def gather_nd_rule(b: Builder, n: Node) -> Val:
    return gather_nd(b, n[0], n[1], n.int("batch_dims"))


def gather_nd(b: Builder, x: Val, indices: Val, batch: int = 0) -> Val:
    """x[indices[..., 0], indices[..., 1], ...] behind `batch` common axes."""
    depth = indices.shape[-1] if indices.rank else 0
    if not 1 <= depth <= x.rank - batch or indices.rank <= batch:
        raise ShapeError(f"indices {indices.type} for {x.type}", b.loc)
    lin = _nd_linear(b, indices, x.shape[batch : batch + depth])
    groups = math.prod(x.shape[:batch])
    rows = math.prod(x.shape[batch : batch + depth])
    if batch:
        b.table(groups)
        start = np.arange(groups).reshape(*x.shape[:batch], *(1,) * (lin.rank - batch)) * rows
        lin = lin + b.const(start, i32)
    flat = b.reshape(x, (groups * rows, *x.shape[batch + depth :]))
    return b.gather(flat, lin, 0)


def _nd_linear(b: Builder, indices: Val, dims: Sequence[int]) -> Val:
    """Row numbers for index vectors in the last axis."""
    idx = b.cast(indices, i32)
    sizes = b.const(np.asarray(dims), i32)
    if indices.const is not None and indices.pure:
        assert idx.const is not None
        known = np.where(idx.const < 0, idx.const + np.asarray(dims), idx.const)
        idx = b.const(known, i32)
    elif indices.dtype.kind != "u":
        idx = b.select(b.less(idx, 0), idx + sizes, idx)
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
    if len(dims) == 1:
        return b.pick(idx, -1, 0)
    return b.sum(idx * b.const(np.asarray(strides), i32), (-1,))


def scatter_rows(b: Builder, x: Val, rows: Val, updates: Val, reduction: str) -> Val:
    """tensor.scatter; bools go through u8."""
    if x.dtype is bool_:
        kind = {"add": "max", "mul": "min"}.get(reduction, reduction)
        wide = b.emit(tensor.Scatter, b.cast(x, u8), rows, b.cast(updates, u8), reduction=kind)
        return b.cast(wide, bool_)
    return b.emit(tensor.Scatter, x, rows, updates, reduction=reduction)


@imports("ScatterElements", "Scatter")
def scatter_elements(b: Builder, n: Node) -> Val:
    x, axis = n[0], check_axis(n.int("axis"), n[0].rank)
    if n[1].rank != x.rank or n[1].shape != n[2].shape:
        raise ShapeError(f"indices {n[1].type} and updates {n[2].type} for {x.type}", n.loc)
    idx = b.index(n[1], x.shape[axis])
    lin = b.reshape(_linear(b, idx, x.shape, axis), (idx.numel,))
    flat, updates = b.reshape(x, (x.numel, 1)), b.reshape(n[2], (n[2].numel, 1))
    out = scatter_rows(b, flat, lin, updates, n.str("reduction", "none"))
    return b.reshape(out, x.shape)


@imports("ScatterND")
def scatter_nd(b: Builder, n: Node) -> Val:
    x, indices, updates = n[0], n[1], n[2]
    depth = indices.shape[-1]
    if not 1 <= depth <= x.rank:
        raise ShapeError(f"indices {indices.type} for {x.type}", n.loc)
    if updates.shape != indices.shape[:-1] + x.shape[depth:]:
        raise ShapeError(f"updates {updates.type} for {indices.type} in {x.type}", n.loc)
    lin = _nd_linear(b, indices, x.shape[:depth])
    width = math.prod(x.shape[depth:])
    flat = b.reshape(x, (math.prod(x.shape[:depth]), width))
    rows = b.reshape(updates, (lin.numel, width))
    out = scatter_rows(b, flat, b.reshape(lin, (lin.numel,)), rows, n.str("reduction", "none"))
    return b.reshape(out, x.shape)


@imports("TensorScatter")
def tensor_scatter(b: Builder, n: Node) -> Val:
    """Write `update` into a cache along `axis`, from write_indices[batch]."""
    past, update = n[0], n[1]
    axis = check_axis(n.int("axis", -2), past.rank)
    if axis == 0 or update.rank != past.rank:
        raise ShapeError(f"update {update.type} along axis {axis} of {past.type}", n.loc)
    size, room = update.shape[axis], past.shape[axis]
    start = b.cast(n[2], i32) if n.has(2) else b.const(np.zeros(past.shape[0]), i32)
    b.table(update.numel)
    line = [1] * past.rank
    line[0], line[axis] = past.shape[0], 1
    steps = np.arange(size).reshape([size if i == axis else 1 for i in range(past.rank)])
    places = b.reshape(start, line) + b.const(steps, i32)
    if n.str("mode", "linear") == "circular":
        places = b.emit(ew.Mod, places, b.const(room, i32))
    idx = b.expand(places, update.shape)
    lin = b.reshape(_linear(b, idx, past.shape, axis), (idx.numel,))
    flat, rows = b.reshape(past, (past.numel, 1)), b.reshape(update, (update.numel, 1))
    return b.reshape(scatter_rows(b, flat, lin, rows, "none"), past.shape)


@imports("OneHot")
def one_hot_rule(b: Builder, n: Node) -> Val:
    depth = b.integer(n[1], "the depth")
    values = n[2]
    if values.shape != (2,) or depth < 0:
        raise ShapeError(f"depth {depth}, values {values.type}", n.loc)
    hit = one_hot(b, n[0], depth, n.int("axis", -1))
    return b.select(hit, b.pick(values, 0, 1), b.pick(values, 0, 0))


def one_hot(b: Builder, indices: Val, depth: int, axis: int) -> Val:
    """bool: where a new axis of `depth` equals the index; none for an index out of range."""
    idx = b.cast(indices, i32)
    if indices.dtype.kind != "u":
        idx = b.select(b.less(idx, 0), idx + depth, idx)
    rank = indices.rank + 1
    axis = check_axis(axis, rank)
    b.table(depth)
    places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)])
    return b.equal(b.const(places, i32), b.unsqueeze(idx, axis))


@imports("ReverseSequence")
def reverse_sequence(b: Builder, n: Node) -> Val:
    x = n[0]
    time, batch = n.int("time_axis"), n.int("batch_axis", 1)
    if {time, batch} != {0, 1} or x.rank < 2:
        raise InputError(f"time axis {time} and batch axis {batch}", n.loc)
    return reverse_steps(b, x, n[1], time)


def reverse_steps(b: Builder, x: Val, lengths: Val, time: int) -> Val:
    """Reverse the first lengths[batch] steps along `time` (axis 0 or 1; the other is the batch)."""
    steps = x.shape[time]
    line = (-1, 1) if time == 0 else (1, -1)
    b.table(steps)
    t = b.const(np.arange(steps).reshape(line), i32)
    count = b.unsqueeze(b.cast(lengths, i32), time)
    source = b.select(b.less(t, count), count - 1 - t, t)
    lin = _linear(b, source, x.shape[:2], time)
    flat = b.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    return b.gather(flat, lin, 0)
