"""Ops over tensors whose size the device counts (`Bounded`): the rule runs at full size.

What lies behind the counted places is filler, so an op may go on with it where each place of the
result comes from the same place of the operand. `LIFTS` tells per op where the counted axis ends
up; ops that look across the axis fill it with a value that changes nothing first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from poplar_py.frontends.onnx.bounded_layout import LAYOUT_LIFTS
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
from poplar_py.frontends.onnx.values import Bounded, Item, Val
from poplar_py.ops.tensor import check_axis

__all__ = ["lift", "with_filler"]

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
        raise refused(n)
    if n.op_type in _ELEMENTWISE:
        return _elementwise(b, n)
    if n.op_type in _REDUCTIONS:
        return _reduction(b, n)
    if n.op_type in _ALONG:
        return _beside(b, n)
    rule = LIFTS.get(n.op_type)
    if rule is None:
        raise refused(n)
    return rule(b, n)


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
    rank = max(rank_of(item) for item in n.inputs)
    where = {item.axis - item.val.rank for _, item in bounded}
    count = bounded[0][1].count
    back = where.pop()
    if where or any(item.count is not count for _, item in bounded):
        raise refused(n, f"{n.op_type}: operands whose sizes the device counts apart")
    for item in n.inputs:
        if isinstance(item, Val) and item.rank >= -back and item.shape[back] != 1:
            raise refused(n, f"{n.op_type}: an operand of known size meets one of counted size")
    changed: dict[str, Item] = {}
    if n.op_type in ("Div", "Mod") and isinstance(n.inputs[1], Bounded):
        changed["i1"] = with_filler(b, n.inputs[1], 1)
    return wrapped(plain(b, n, **changed), count, rank + back)


def _beside(b: Builder, n: Node) -> Sequence[Item]:
    """Ops along an axis that is not the counted one, or that only looks back (CumSum)."""
    item = first_of(n)
    if n.op_type == "CumSum":
        along = b.integer(n[1], "the axis")
    else:
        old = n.version < 13 and n.op_type != "LpNormalization"
        along = n.int("axis", 1 if old else -1)
        if old and along % item.val.rank != item.val.rank - 1:
            raise refused(n)
    same = check_axis(along, item.val.rank) == item.axis
    if same and (n.op_type != "CumSum" or n.int("reverse")):
        raise refused(n)
    return wrapped(plain(b, n), item.count, item.axis)


def _reduction(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    rank = item.val.rank
    if n.op_type.startswith("Arg"):
        axes: tuple[int, ...] = (check_axis(n.int("axis"), rank),)
    else:
        given = n.axes(b)
        axes = tuple(check_axis(a, rank) for a in given or range(rank))
    if item.axis in axes:
        fill = with_filler(b, item, _extreme(item.val, _REDUCTIONS[n.op_type]))
        return plain(b, n, i0=fill)
    gone = 0 if n.int("keepdims", 1) else sum(a < item.axis for a in axes)
    return wrapped(plain(b, n), item.count, item.axis - gone)


def _matmul(b: Builder, n: Node) -> Sequence[Item]:
    """Rows of the left operand may be counted, or what is summed over (filled with zeros)."""
    left, right = n.raw(0), n.raw(1)
    if isinstance(left, Bounded) and isinstance(right, Bounded):
        if left.count is not right.count or left.axis != left.val.rank - 1:
            raise refused(n)
        if right.axis != max(right.val.rank - 2, 0):
            raise refused(n)
        return plain(b, n, i0=with_filler(b, left, 0), i1=with_filler(b, right, 0))
    if not isinstance(left, Bounded) or left.axis == left.val.rank - 1:
        raise refused(n)
    right_rank = rank_of(right)
    if left.axis < left.val.rank - 2 and right_rank > 2:
        raise refused(n)
    return wrapped(plain(b, n), left.count, left.axis + max(0, right_rank - left.val.rank))


def _gemm(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    if n.int("transA") or item.axis != 0 or (n.has(2) and n[2].rank == 2 and n[2].shape[0] != 1):
        raise refused(n)
    return wrapped(plain(b, n), item.count, 0)


def _norm(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    if check_axis(n.int("axis", -1), item.val.rank) <= item.axis:
        raise refused(n)
    return wrapped(plain(b, n), item.count, item.axis)


def _mean(b: Builder, n: Node) -> Sequence[Item]:
    item = first_of(n)
    given = n.axes(b)
    axes = {check_axis(a, item.val.rank) for a in given or range(item.val.rank)}
    if item.axis not in axes:
        return _reduction(b, n)
    means = plain(b, n, i0=with_filler(b, item, 0))[0]
    assert isinstance(means, Val)
    size = item.val.shape[item.axis]
    return [means * b.like(size, means) / b.cast(item.count, means.dtype)]


LIFTS: dict[str, Lift] = {
    **LAYOUT_LIFTS,
    "Gemm": _gemm,
    "LayerNormalization": _norm,
    "MatMul": _matmul,
    "ReduceMean": _mean,
}
