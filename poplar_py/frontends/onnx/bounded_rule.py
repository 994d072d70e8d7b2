"""What the rules for tensors of counted size share: see `bounded`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from poplar_py.diagnostics import UnsupportedOp
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import IMPORT, Node
from poplar_py.frontends.onnx.values import Bounded, Item, Val

Lift = Callable[[Builder, Node], Sequence[Item]]


def refused(n: Node, why: str = "") -> UnsupportedOp:
    """The error for a node that has no way with its bounded operand."""
    which = next(i for i, item in enumerate(n.inputs) if isinstance(item, Bounded))
    return UnsupportedOp(
        why or f"{n.op_type}: the size of input {which} depends on values computed on the device",
        n.loc,
        "let the host do what follows, or use a mask of fixed size",
    )


def plain(b: Builder, n: Node, **changed: object) -> list[Item]:
    """Results of the op's own rule with every bounded operand at full size."""
    inputs = [item.val if isinstance(item, Bounded) else item for item in n.inputs]
    node = replace(n, inputs=inputs)
    for place, item in changed.items():
        node.inputs[int(place[1:])] = item  # type: ignore[call-overload]
    result = IMPORT["", n.op_type](b, node)
    return list(result) if isinstance(result, Sequence) else [result]


def first_of(n: Node) -> Bounded:
    """Operand 0, which has to be the bounded one, alone."""
    item = n.raw(0)
    if not isinstance(item, Bounded) or sum(isinstance(i, Bounded) for i in n.inputs) > 1:
        raise refused(n)
    return item


def wrapped(results: Sequence[Item], count: Val, axis: int) -> list[Item]:
    """Results of which the device counts the size of an axis."""
    return [Bounded(r, count, axis) if isinstance(r, Val) else r for r in results]


def with_filler(b: Builder, item: Bounded, value: float) -> Val:
    """The tensor at full size with `value` behind the counted places."""
    val = item.val
    shape = [1] * val.rank
    shape[item.axis] = val.shape[item.axis]
    meant = b.less(b.reshape(b.iota(val.shape[item.axis]), shape), item.count)
    return b.select(meant, val, b.like(value, val))


def rank_of(item: Item | None) -> int:
    """Dims of a tensor, counted or not; 0 for anything else."""
    if isinstance(item, Bounded):
        return item.val.rank
    return item.rank if isinstance(item, Val) else 0
