"""Tensors of counted size in ops that move elements: see `bounded`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from poplar_py.frontends.onnx.bounded_rule import (
    Lift,
    first_of,
    plain,
    rank_of,
    refused,
    with_filler,
    wrapped,
)
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node
from poplar_py.frontends.onnx.slice_ranges import slice_ranges
from poplar_py.frontends.onnx.values import Bounded, Item, Val
from poplar_py.ops.tensor import check_axis
from poplar_py.types import i64


def _gather(b: Builder, n: Node) -> Sequence[Item]:
    data, indices = n.raw(0), n.raw(1)
    axis = check_axis(n.int("axis"), rank_of(data))
    if isinstance(indices, Bounded):
        if isinstance(data, Bounded) and data.axis != axis:
            raise refused(n)
        places = with_filler(b, indices, 0)
        if isinstance(data, Bounded):
            places = _from_front(b, places, data)
        return wrapped(plain(b, n, i1=places), indices.count, axis + indices.axis)
    assert isinstance(data, Bounded)
    if data.axis == axis:
        return plain(b, n, i1=_from_front(b, n[1], data))
    moved = data.axis if data.axis < axis else data.axis - 1 + rank_of(indices)
    return wrapped(plain(b, n), data.count, moved)


def _from_front(b: Builder, places: Val, data: Bounded) -> Val:
    """Indices into a counted axis, negative ones counted from where it ends."""
    if places.dtype.kind == "u":
        return places
    return b.select(b.less(places, 0), places + b.cast(data.count, places.dtype), places)


def _gather_nd(b: Builder, n: Node) -> Sequence[Item]:
    indices = n.raw(1)
    if not isinstance(indices, Bounded) or isinstance(n.raw(0), Bounded):
        raise refused(n)
    if n.int("batch_dims") or indices.axis == indices.val.rank - 1:
        raise refused(n)
    places = with_filler(b, indices, 0)
    return wrapped(plain(b, n, i1=places), indices.count, indices.axis)


def _squeeze(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    rank = item.val.rank
    axes = n.axes(b)
    if axes is None:
        axes = tuple(a for a, d in enumerate(item.val.shape) if d == 1 and a != item.axis)
    gone = {check_axis(a, rank) for a in axes}
    if item.axis in gone:
        raise refused(n)
    kept = [a for a in range(rank) if a not in gone]
    shape = [item.val.shape[a] for a in kept]
    return [Bounded(b.reshape(item.val, shape), item.count, kept.index(item.axis))]


def _unsqueeze(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    axes = n.axes(b) or ()
    rank = item.val.rank + len(axes)
    added = {check_axis(a, rank) for a in axes}
    kept = [a for a in range(rank) if a not in added]
    return wrapped(plain(b, n), item.count, kept[item.axis])


def _reshape(b: Builder, n: Node) -> Sequence[Item]:
    """The counted axis leads, in the operand and, as -1, in the result."""
    item = first_of(n)
    wanted = b.ints(n[1], "the shape")
    lead = next((i for i, d in enumerate(wanted) if d != 1), 0)
    if math.prod(item.val.shape[: item.axis]) != 1 or not wanted or wanted[lead] not in (-1, 0):
        raise refused(n)
    before = math.prod(item.val.shape[item.axis + 1 :])
    shape = [item.val.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    after = math.prod(shape[lead + 1 :])
    if wanted[lead] == 0 and lead != item.axis:
        raise refused(n)
    return [_led(b, n, item, shape, lead, before, after)]


def _led(
    b: Builder, n: Node, item: Bounded, shape: list[int], lead: int, before: int, after: int
) -> Bounded:
    if after < 1 or (before % after and after % before):
        raise refused(n)
    size = item.val.shape[item.axis] * before // after
    if size * after != item.val.numel:
        raise refused(n)
    count = item.count
    if before > after:
        count = b.mul(count, before // after)
    elif after > before:
        count = b.div(count, after // before)
    shape[lead] = size
    return Bounded(b.reshape(item.val, shape), count, lead)


def _flatten(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    if n.int("axis", 1) != 1 or item.axis != 0:
        raise refused(n)
    return wrapped(plain(b, n), item.count, 0)


def _slice(b: Builder, n: Node) -> Sequence[Item]:
    """Other axes as they come; the counted one may be cut to its first places."""
    item = first_of(n)
    starts, ends, axes, steps = slice_ranges(b, n)
    count = item.count
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        if check_axis(axis, item.val.rank) != item.axis:
            continue
        if start != 0 or step != 1 or end < 0:
            raise refused(n)
        if end < item.val.shape[item.axis]:
            count = b.minimum(count, end)
    return wrapped(plain(b, n), count, item.axis)


def _transpose(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    perm = n.ints("perm", range(item.val.rank)[::-1])
    return wrapped(plain(b, n), item.count, list(perm).index(item.axis))


def _concat(b: Builder, n: Node) -> Sequence[Item]:
    items = [item for item in n.inputs if item is not None]
    axis = check_axis(n.int("axis", 1), rank_of(items[0]))
    bounded = [item for item in items if isinstance(item, Bounded)]
    if any(item.axis == axis for item in bounded):
        return [_joined(b, n, items, axis)]
    count = bounded[0].count
    if len(bounded) != len(items) or any(item.count is not count for item in bounded):
        raise refused(n)
    return wrapped(plain(b, n), count, bounded[0].axis)


def _joined(b: Builder, n: Node, items: Sequence[Item], axis: int) -> Bounded:
    """Parts one after the other along the counted axis: the counted places move up."""
    vals: list[Val] = []
    flags: list[Val] = []
    for item in items:
        if isinstance(item, Bounded) and item.axis != axis:
            raise refused(n)
        val = item.val if isinstance(item, Bounded) else item
        assert isinstance(val, Val)
        size = val.shape[axis]
        vals.append(b.swap(val, 0, axis))
        known = b.const(np.ones(size, bool))
        flags.append(b.less(b.iota(size), item.count) if isinstance(item, Bounded) else known)
    rows = b.concat(vals, 0)
    flat = b.reshape(rows, (rows.shape[0], rows.numel // max(rows.shape[0], 1)))
    packed, count = b.packed(flat, b.concat(flags, 0))
    return Bounded(b.swap(b.reshape(packed, rows.shape), 0, axis), count, axis)


def _split(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    if check_axis(n.int("axis"), item.val.rank) == item.axis:
        raise refused(n)
    return wrapped(plain(b, n), item.count, item.axis)


def _shape(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    rank = item.val.rank
    start, end, _ = slice(n.int("start"), n.int("end", rank)).indices(rank)
    dims = [b.const(np.int64(d).reshape(1)) for d in item.val.shape]
    dims[item.axis] = b.reshape(b.cast(item.count, i64), (1,))
    return [b.concat(dims[start:end], 0) if start < end else b.const(np.zeros(0, np.int64))]


def _size(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    others = item.val.numel // max(item.val.shape[item.axis], 1)
    return [b.mul(b.cast(item.count, i64), others)]


def _compress(b: Builder, n: Node) -> Sequence[Item]:
    """A condition of counted size: nothing behind it is kept."""
    cond = n.raw(1)
    keep = with_filler(b, cond, 0) if isinstance(cond, Bounded) else n[1]
    data = n.raw(0)
    if isinstance(data, Bounded):
        axis = check_axis(n.int("axis"), data.val.rank) if n.set("axis") else -1
        flat = data.val.rank == 1 and axis < 0
        if axis != data.axis and not flat:
            raise refused(n)
        keep = with_filler(b, Bounded(keep, data.count), 0)
    return plain(b, n, i1=keep)


def _non_zero(b: Builder, n: Node) -> Sequence[Item]:
    return plain(b, n, i0=with_filler(b, first_of(n), 0))


def _identity(b: Builder, n: Node) -> Sequence[Item]:
    return [n.raw(0)]


LAYOUT_LIFTS: dict[str, Lift] = {
    "Compress": _compress,
    "Concat": _concat,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Identity": _identity,
    "NonZero": _non_zero,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
