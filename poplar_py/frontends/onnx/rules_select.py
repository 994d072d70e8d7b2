"""ONNX ops whose result size depends on values.

Compress, NonZero, Unique and NonMaxSuppression fill a result of their natural bound and count; the
host cuts it (see `Bounded`, and `bounded.py` for the ops that go on with it).
"""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.frontends.onnx.builder import MAX_TABLE, Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_control import counted
from poplar_py.frontends.onnx.values import Bounded, Item, Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import tensor
from poplar_py.ops.tensor import check_axis
from poplar_py.types import bool_, f32, i32, i64

__all__: list[str] = []


@imports("Compress")
def compress(b: Builder, n: Node) -> Item:
    x = n[0]
    if n.set("axis"):
        axis = check_axis(n.int("axis"), x.rank)
    else:
        x, axis = b.reshape(x, (x.numel,)), 0
    if n[1].const is None:
        return _compressed(b, x, n[1], axis)
    keep = np.flatnonzero(b.known(n[1], "the condition of Compress"))
    if keep.size and keep.max() >= x.shape[axis]:
        raise ShapeError(f"the condition is longer than axis {axis} of {x.type}", n.loc)
    return b.gather(x, b.const(keep, i32), axis)


def _compressed(b: Builder, x: Val, cond: Val, axis: int) -> Bounded:
    """By a condition that the device computes; it may be shorter than the axis."""
    size = cond.shape[0]
    if size > x.shape[axis]:
        raise ShapeError(f"the condition is longer than axis {axis} of {x.type}", b.loc)
    moved = b.swap(b.slice(x, axis, 0, size), 0, axis)
    rows, count = b.packed(b.reshape(moved, (size, moved.numel // max(size, 1))), cond)
    return Bounded(b.swap(b.reshape(rows, moved.shape), 0, axis), count, axis)


@imports("NonZero")
def non_zero(b: Builder, n: Node) -> Item:
    x = n[0]
    if x.const is not None and x.pure:
        found = np.asarray(np.nonzero(x.const), np.int64)
        return b.const(found.reshape(max(x.rank, 1), -1))
    shape = x.shape or (1,)
    b.table(x.numel * len(shape))
    flags = b.reshape(x if x.dtype is bool_ else b.flag(x), (x.numel,))
    table = np.stack([i.reshape(-1) for i in np.indices(shape)], 1)
    rows, count = b.packed(b.const(table, i64), flags)
    return Bounded(b.transpose(rows, (1, 0)), count, 1)


@imports("Unique")
def unique(b: Builder, n: Node) -> list[Item]:
    """By comparing all pairs of rows: fine for the few hundred rows people ask this of."""
    x = n[0]
    axis = check_axis(n.int("axis"), x.rank) if n.set("axis") else None
    moved = b.reshape(x, (x.numel,)) if axis is None else b.swap(x, 0, axis)
    size = moved.shape[0]
    width = moved.numel // size if size else 0
    if size * size * max(width, 1) > MAX_TABLE:
        raise b.refuse(f"Unique of {size} rows is too large")
    flat = b.reshape(moved, (size, width))
    equal, less = _compared(b, flat)
    earlier = b.const(np.tri(size, k=-1, dtype=bool))
    first = b.negate(b.reduce(b.both(equal, earlier), "or", (1,)))
    ones = b.cast(first, i32)
    origin = b.emit(tensor.ArgMax, b.cast(equal, i32), axis=1)
    if n.int("sorted", 1):
        place = b.sum(b.cast(b.both(b.unsqueeze(first, 0), less), i32), (1,))
        inverse = place
    else:
        place = b.emit(tensor.Cumulative, ones, axis=0, exclusive=True)
        inverse = b.gather(place, origin, 0)
    to = b.select(first, place, b.const(size, i32))
    values = b.reshape(b.scattered(flat, to, size), moved.shape)
    if axis is not None:
        values = b.swap(values, 0, axis)
    columns = b.concat(
        [b.const(np.arange(size)[:, None], i32), b.unsqueeze(b.sum(b.cast(equal, i32), (1,)), 1)], 1
    )
    columns = b.cast(b.scattered(columns, to, size), i64)
    count = b.sum(ones, (0,))
    return [
        Bounded(values, count, axis or 0),
        Bounded(b.pick(columns, 1, 0), count),
        b.cast(inverse, i64),
        Bounded(b.pick(columns, 1, 1), count),
    ]


def _compared(b: Builder, rows: Val) -> tuple[Val, Val]:
    """equal[i, j] and (row j < row i)[i, j] in the order of their elements."""
    size, width = rows.shape
    equal = b.const(np.broadcast_to(np.True_, (size, size)))
    less = b.const(np.broadcast_to(np.False_, (size, size)))
    for k in range(width):
        column = b.pick(rows, 1, k)
        mine, other = b.unsqueeze(column, 1), b.unsqueeze(column, 0)
        less = b.emit(ew.Or, less, b.both(equal, b.emit(ew.Less, other, mine)))
        equal = b.both(equal, b.equal(mine, other))
    return equal, less


@imports("NonMaxSuppression")
def non_max_suppression(b: Builder, n: Node) -> Bounded:
    """Boxes by descending score, each dropping those that overlap it too much."""
    boxes, scores = b.cast(n[0], f32), b.cast(n[1], f32)
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape[2] != 4:
        raise ShapeError(f"boxes are {boxes.type}, scores {scores.type}", n.loc)
    batch, classes, size = scores.shape
    if batch * classes * size * size > MAX_TABLE:
        raise b.refuse(f"suppression among {size} boxes of {classes} classes is too large")
    limit = b.reshape(b.cast(n[2], i32), ()) if n.has(2) else b.const(0, i32)
    share = b.reshape(n[3], ()) if n.has(3) else b.const(0.0, f32)
    ranked, order = b.emit(tensor.TopK, scores, k=size, axis=2)
    overlap = _overlaps(b, boxes, bool(n.int("center_point_box")), share)  # [B, N, N]
    start = np.arange(batch).reshape(-1, 1, 1, 1) * size * size
    pairs = b.unsqueeze(order, 3) * size + b.unsqueeze(order, 2) + b.const(start, i32)
    clash = b.gather(b.reshape(overlap, (batch * size * size,)), pairs, 0)  # [B, C, N, N]
    alive = b.const(np.broadcast_to(np.True_, scores.shape))
    if n.has(4):
        alive = b.emit(ew.Greater, ranked, b.reshape(n[4], ()))
    keep = _suppressed(b, alive, clash, limit)
    table = np.stack([i.reshape(-1) for i in np.indices(scores.shape)[:2]], 1)
    index = b.reshape(b.cast(order, i64), (scores.numel, 1))
    rows = b.concat([b.const(table, i64), index], 1)
    packed, count = b.packed(rows, b.reshape(keep, (scores.numel,)))
    return Bounded(packed, count)


def _suppressed(b: Builder, alive: Val, clash: Val, limit: Val) -> Val:
    """Which of the boxes in order of score stay: bool[B, C, N]."""
    batch, classes, size = alive.shape
    none = b.const(np.zeros((batch, classes, size)), bool_)
    taken = b.const(np.zeros((batch, classes, 1)), i32)

    def step(i: Val, values: list[Val]) -> tuple[Val | None, list[Val]]:
        alive, keep, taken = values
        mine = b.emit(tensor.DynamicSlice, alive, i, axis=2, size=1)
        mine = b.both(mine, b.emit(ew.Less, taken, limit))
        row = b.emit(tensor.DynamicSlice, clash, i, axis=2, size=1)
        gone = b.both(b.reshape(row, (batch, classes, size)), mine)
        alive = b.both(alive, b.negate(gone))
        keep = b.emit(tensor.DynamicUpdate, keep, mine, i, axis=2)
        return None, [alive, keep, taken + b.cast(mine, i32)]

    return counted(b, size, [alive, none, taken], step, 8)[1]


def _overlaps(b: Builder, boxes: Val, centred: bool, share: Val) -> Val:
    """Whether intersection over union of every pair of boxes exceeds `share`: [B, N, N]."""
    a, c, d, e = (b.pick(boxes, 2, i) for i in range(4))
    if centred:
        spans = [(c - e / 2, c + e / 2), (a - d / 2, a + d / 2)]
    else:
        spans = [(b.minimum(a, d), b.maximum(a, d)), (b.minimum(c, e), b.maximum(c, e))]
    shared: Val | None = None
    area: Val | None = None
    for low, high in spans:
        begin = b.maximum(b.unsqueeze(low, 2), b.unsqueeze(low, 1))
        end = b.minimum(b.unsqueeze(high, 2), b.unsqueeze(high, 1))
        side = b.maximum(end - begin, 0)
        shared = side if shared is None else shared * side
        area = high - low if area is None else area * (high - low)
    assert shared is not None
    assert area is not None
    union = b.unsqueeze(area, 2) + b.unsqueeze(area, 1) - shared
    return b.emit(ew.Greater, shared, union * share)


@imports("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch")
def strings(b: Builder, n: Node) -> Val:
    raise b.refuse(f"{n.op_type} works on strings, which tiles do not hold")


@imports("ImageDecoder")
def image_decoder(b: Builder, n: Node) -> Val:
    raise b.refuse("ImageDecoder: the size of the result depends on the file", "decode before")
