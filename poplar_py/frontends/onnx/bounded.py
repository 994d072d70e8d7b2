"""Ops over tensors whose size the device counts (`Bounded`): the rule runs at full size.

What lies behind the counted places is filler, so an op may go on with it where each place of the
result comes from the same place of the operand. `LIFTS` tells per op where the counted axis ends
up; ops that look across the axis fill it with a value that changes nothing first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from poplar_py.diagnostics import UnsupportedOp
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import IMPORT, Node
from poplar_py.frontends.onnx.values import Bounded, Item, Val
from poplar_py.ops.tensor import check_axis
from poplar_py.types import i64

__all__ = ["lift", "with_filler"]

Lift = Callable[[Builder, Node], Sequence[Item]]

_ELEMENTWISE = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
    "BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater "
    "GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min "
    "Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh "
    "Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor".split()
)
_REDUCTIONS = {
    "ReduceSum": "zero",
    "ReduceL1": "zero",
    "ReduceL2": "zero",
    "ReduceSumSquare": "zero",
    "ReduceMax": "low",
    "ReduceMin": "high",
    "ArgMax": "low",
    "ArgMin": "high",
}
_ALONG = frozenset(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "CumSum"))


def lift(b: Builder, n: Node) -> Sequence[Item]:
    """The results of a node with bounded operands. Raises UnsupportedOp where there is no way."""
    if n.domain:
        raise _refused(n)
    if n.op_type in _ELEMENTWISE:
        return _elementwise(b, n)
    if n.op_type in _REDUCTIONS:
        return _reduction(b, n)
    if n.op_type in _ALONG:
        return _beside(b, n)
    rule = LIFTS.get(n.op_type)
    if rule is None:
        raise _refused(n)
    return rule(b, n)


def _refused(n: Node, why: str = "") -> UnsupportedOp:
    which = next(i for i, item in enumerate(n.inputs) if isinstance(item, Bounded))
    return UnsupportedOp(
        why or f"{n.op_type}: the size of input {which} depends on values computed on the device",
        n.loc,
        "let the host do what follows, or use a mask of fixed size",
    )


def _plain(b: Builder, n: Node, **changed: object) -> list[Item]:
    """Results of the op's own rule with every bounded operand at full size."""
    inputs = [item.val if isinstance(item, Bounded) else item for item in n.inputs]
    node = replace(n, inputs=inputs)
    for place, item in changed.items():
        node.inputs[int(place[1:])] = item  # type: ignore[call-overload]
    result = IMPORT["", n.op_type](b, node)
    return list(result) if isinstance(result, Sequence) else [result]


def _first(n: Node) -> Bounded:
    """Operand 0, which has to be the bounded one, alone."""
    item = n.raw(0)
    if not isinstance(item, Bounded) or sum(isinstance(i, Bounded) for i in n.inputs) > 1:
        raise _refused(n)
    return item


def _wrapped(results: Sequence[Item], count: Val, axis: int) -> list[Item]:
    return [Bounded(r, count, axis) if isinstance(r, Val) else r for r in results]


def with_filler(b: Builder, item: Bounded, value: float) -> Val:
    """The tensor at full size with `value` behind the counted places."""
    val = item.val
    shape = [1] * val.rank
    shape[item.axis] = val.shape[item.axis]
    meant = b.less(b.reshape(b.iota(val.shape[item.axis]), shape), item.count)
    return b.select(meant, val, b.like(value, val))


def _extreme(val: Val, kind: str) -> float:
    if kind == "zero":
        return 0
    kept = val.dtype.numpy
    if val.dtype.is_float:
        return -math.inf if kind == "low" else math.inf
    info = np.iinfo(kept) if kept.kind in "iu" else None
    if info is None:
        return 0 if kind == "low" else 1
    return info.min if kind == "low" else info.max


def _elementwise(b: Builder, n: Node) -> Sequence[Item]:
    bounded = [(i, item) for i, item in enumerate(n.inputs) if isinstance(item, Bounded)]
    rank = max(_rank(item) for item in n.inputs)
    where = {item.axis - item.val.rank for _, item in bounded}
    count = bounded[0][1].count
    back = where.pop()
    if where or any(item.count is not count for _, item in bounded):
        raise _refused(n, f"{n.op_type}: operands whose sizes the device counts apart")
    for item in n.inputs:
        if isinstance(item, Val) and item.rank >= -back and item.shape[back] != 1:
            raise _refused(n, f"{n.op_type}: an operand of known size meets one of counted size")
    changed: dict[str, Item] = {}
    if n.op_type in ("Div", "Mod") and isinstance(n.inputs[1], Bounded):
        changed["i1"] = with_filler(b, n.inputs[1], 1)
    return _wrapped(_plain(b, n, **changed), count, rank + back)


def _rank(item: Item | None) -> int:
    if isinstance(item, Bounded):
        return item.val.rank
    return item.rank if isinstance(item, Val) else 0


def _beside(b: Builder, n: Node) -> Sequence[Item]:
    """Ops along an axis that is not the counted one, or that only looks back (CumSum)."""
    item = _first(n)
    if n.op_type == "CumSum":
        along = b.integer(n[1], "the axis")
    else:
        old = n.version < 13 and n.op_type != "LpNormalization"
        along = n.int("axis", 1 if old else -1)
        if old and along % item.val.rank != item.val.rank - 1:
            raise _refused(n)
    same = check_axis(along, item.val.rank) == item.axis
    if same and (n.op_type != "CumSum" or n.int("reverse")):
        raise _refused(n)
    return _wrapped(_plain(b, n), item.count, item.axis)


def _reduction(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    rank = item.val.rank
    if n.op_type.startswith("Arg"):
        axes: tuple[int, ...] = (check_axis(n.int("axis"), rank),)
    else:
        given = n.axes(b)
        axes = tuple(check_axis(a, rank) for a in given or range(rank))
    if item.axis in axes:
        fill = with_filler(b, item, _extreme(item.val, _REDUCTIONS[n.op_type]))
        return _plain(b, n, i0=fill)
    gone = 0 if n.int("keepdims", 1) else sum(a < item.axis for a in axes)
    return _wrapped(_plain(b, n), item.count, item.axis - gone)


def _gather(b: Builder, n: Node) -> Sequence[Item]:
    data, indices = n.raw(0), n.raw(1)
    axis = check_axis(n.int("axis"), _rank(data))
    if isinstance(indices, Bounded):
        if isinstance(data, Bounded) and data.axis != axis:
            raise _refused(n)
        places = with_filler(b, indices, 0)
        if isinstance(data, Bounded):
            places = _from_front(b, places, data)
        return _wrapped(_plain(b, n, i1=places), indices.count, axis + indices.axis)
    assert isinstance(data, Bounded)
    if data.axis == axis:
        return _plain(b, n, i1=_from_front(b, n[1], data))
    moved = data.axis if data.axis < axis else data.axis - 1 + _rank(indices)
    return _wrapped(_plain(b, n), data.count, moved)


def _from_front(b: Builder, places: Val, data: Bounded) -> Val:
    """Indices into a counted axis, negative ones counted from where it ends."""
    if places.dtype.kind == "u":
        return places
    return b.select(b.less(places, 0), places + b.cast(data.count, places.dtype), places)


def _gather_nd(b: Builder, n: Node) -> Sequence[Item]:
    indices = n.raw(1)
    if not isinstance(indices, Bounded) or isinstance(n.raw(0), Bounded):
        raise _refused(n)
    if n.int("batch_dims") or indices.axis == indices.val.rank - 1:
        raise _refused(n)
    places = with_filler(b, indices, 0)
    return _wrapped(_plain(b, n, i1=places), indices.count, indices.axis)


def _squeeze(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    rank = item.val.rank
    axes = n.axes(b)
    if axes is None:
        axes = tuple(a for a, d in enumerate(item.val.shape) if d == 1 and a != item.axis)
    gone = {check_axis(a, rank) for a in axes}
    if item.axis in gone:
        raise _refused(n)
    kept = [a for a in range(rank) if a not in gone]
    shape = [item.val.shape[a] for a in kept]
    return [Bounded(b.reshape(item.val, shape), item.count, kept.index(item.axis))]


def _unsqueeze(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    axes = n.axes(b) or ()
    rank = item.val.rank + len(axes)
    added = {check_axis(a, rank) for a in axes}
    kept = [a for a in range(rank) if a not in added]
    return _wrapped(_plain(b, n), item.count, kept[item.axis])


def _reshape(b: Builder, n: Node) -> Sequence[Item]:
    """The counted axis leads, in the operand and, as -1, in the result."""
    item = _first(n)
    wanted = b.ints(n[1], "the shape")
    lead = next((i for i, d in enumerate(wanted) if d != 1), 0)
    if math.prod(item.val.shape[: item.axis]) != 1 or not wanted or wanted[lead] not in (-1, 0):
        raise _refused(n)
    before = math.prod(item.val.shape[item.axis + 1 :])
    shape = [item.val.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    after = math.prod(shape[lead + 1 :])
    if wanted[lead] == 0 and lead != item.axis:
        raise _refused(n)
    return [_led(b, n, item, shape, lead, before, after)]


def _led(
    b: Builder, n: Node, item: Bounded, shape: list[int], lead: int, before: int, after: int
) -> Bounded:
    if after < 1 or (before % after and after % before):
        raise _refused(n)
    size = item.val.shape[item.axis] * before // after
    if size * after != item.val.numel:
        raise _refused(n)
    count = item.count
    if before > after:
        count = b.mul(count, before // after)
    elif after > before:
        count = b.div(count, after // before)
    shape[lead] = size
    return Bounded(b.reshape(item.val, shape), count, lead)


def _flatten(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    if n.int("axis", 1) != 1 or item.axis != 0:
        raise _refused(n)
    return _wrapped(_plain(b, n), item.count, 0)


def _slice(b: Builder, n: Node) -> Sequence[Item]:
    """Other axes as they come; the counted one may be cut to its first places."""
    item = _first(n)
    if n.version < 10:
        starts, ends = n.ints("starts"), n.ints("ends")
        axes, steps = n.ints("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = b.ints(n[1], "the starts"), b.ints(n[2], "the ends")
        axes = b.ints(n[3], "the axes") if n.has(3) else tuple(range(len(starts)))
        steps = b.ints(n[4], "the steps") if n.has(4) else (1,) * len(starts)
    count = item.count
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        if check_axis(axis, item.val.rank) != item.axis:
            continue
        if start != 0 or step != 1 or end < 0:
            raise _refused(n)
        if end < item.val.shape[item.axis]:
            count = b.minimum(count, end)
    return _wrapped(_plain(b, n), count, item.axis)


def _transpose(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    perm = n.ints("perm", range(item.val.rank)[::-1])
    return _wrapped(_plain(b, n), item.count, list(perm).index(item.axis))


def _concat(b: Builder, n: Node) -> Sequence[Item]:
    items = [item for item in n.inputs if item is not None]
    axis = check_axis(n.int("axis", 1), _rank(items[0]))
    bounded = [item for item in items if isinstance(item, Bounded)]
    if any(item.axis == axis for item in bounded):
        return [_joined(b, n, items, axis)]
    count = bounded[0].count
    if len(bounded) != len(items) or any(item.count is not count for item in bounded):
        raise _refused(n)
    return _wrapped(_plain(b, n), count, bounded[0].axis)


def _joined(b: Builder, n: Node, items: Sequence[Item], axis: int) -> Bounded:
    """Parts one after the other along the counted axis: the counted places move up."""
    vals: list[Val] = []
    flags: list[Val] = []
    for item in items:
        if isinstance(item, Bounded) and item.axis != axis:
            raise _refused(n)
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
    item = _first(n)
    if check_axis(n.int("axis"), item.val.rank) == item.axis:
        raise _refused(n)
    return _wrapped(_plain(b, n), item.count, item.axis)


def _matmul(b: Builder, n: Node) -> Sequence[Item]:
    """Rows of the left operand may be counted, or what is summed over (filled with zeros)."""
    left, right = n.raw(0), n.raw(1)
    if isinstance(left, Bounded) and isinstance(right, Bounded):
        if left.count is not right.count or left.axis != left.val.rank - 1:
            raise _refused(n)
        if right.axis != max(right.val.rank - 2, 0):
            raise _refused(n)
        return _plain(b, n, i0=with_filler(b, left, 0), i1=with_filler(b, right, 0))
    if not isinstance(left, Bounded) or left.axis == left.val.rank - 1:
        raise _refused(n)
    right_rank = _rank(right)
    if left.axis < left.val.rank - 2 and right_rank > 2:
        raise _refused(n)
    return _wrapped(_plain(b, n), left.count, left.axis + max(0, right_rank - left.val.rank))


def _gemm(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    if n.int("transA") or item.axis != 0 or (n.has(2) and n[2].rank == 2 and n[2].shape[0] != 1):
        raise _refused(n)
    return _wrapped(_plain(b, n), item.count, 0)


def _norm(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    if check_axis(n.int("axis", -1), item.val.rank) <= item.axis:
        raise _refused(n)
    return _wrapped(_plain(b, n), item.count, item.axis)


def _shape(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    rank = item.val.rank
    start, end, _ = slice(n.int("start"), n.int("end", rank)).indices(rank)
    dims = [b.const(np.int64(d).reshape(1)) for d in item.val.shape]
    dims[item.axis] = b.reshape(b.cast(item.count, i64), (1,))
    return [b.concat(dims[start:end], 0) if start < end else b.const(np.zeros(0, np.int64))]


def _size(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
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
            raise _refused(n)
        keep = with_filler(b, Bounded(keep, data.count), 0)
    return _plain(b, n, i1=keep)


def _non_zero(b: Builder, n: Node) -> Sequence[Item]:
    return _plain(b, n, i0=with_filler(b, _first(n), 0))


def _mean(b: Builder, n: Node) -> Sequence[Item]:
    item = _first(n)
    given = n.axes(b)
    axes = {check_axis(a, item.val.rank) for a in given or range(item.val.rank)}
    if item.axis not in axes:
        return _reduction(b, n)
    means = _plain(b, n, i0=with_filler(b, item, 0))[0]
    assert isinstance(means, Val)
    size = item.val.shape[item.axis]
    return [means * b.like(size, means) / b.cast(item.count, means.dtype)]


def _identity(b: Builder, n: Node) -> Sequence[Item]:
    return [n.raw(0)]


LIFTS: dict[str, Lift] = {
    "Compress": _compress,
    "Concat": _concat,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "Identity": _identity,
    "LayerNormalization": _norm,
    "MatMul": _matmul,
    "NonZero": _non_zero,
    "ReduceMean": _mean,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
