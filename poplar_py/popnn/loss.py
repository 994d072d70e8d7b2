"""Losses with their gradients, and what classifiers are measured by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.popnn.norm import log_softmax
from poplar_py.popops.arithmetic import one_hot
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.reduction import reduce
from poplar_py.popops.search import arg_max as arg_max_along
from poplar_py.popops.search import arg_min as arg_min_along
from poplar_py.types import u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

__all__ = ["LOSSES", "arg_max", "arg_min", "calc_accuracy", "calc_loss", "max_and_arg_max"]

LOSSES = ("sum_squared", "cross_entropy", "softmax_cross_entropy")


def calc_loss(
    graph: Graph,
    outputs: Tensor,
    expected: Tensor,
    loss_type: str,
    prog: Sequence,
    name: str = "loss",
) -> tuple[Tensor, Tensor]:
    """(loss [N], gradient [N, C]) of outputs [N, C].

    `expected` are labels [N] of an int type, or wanted outputs [N, C]. sum_squared: half the sum of
    squared differences. cross_entropy: outputs are probabilities from a softmax, and the gradient
    is that of what went into it, outputs - expected. softmax_cross_entropy: outputs go through the
    softmax here. Raises OptionError or ShapeError.
    """
    kind = loss_type.lower()
    if kind not in LOSSES:
        fail(
            OptionError, f"there is no loss {loss_type!r}", remedy=f"use one of {', '.join(LOSSES)}"
        )
    if outputs.rank != 2:
        fail(ShapeError, f"outputs [N, C], not {tuple(outputs.shape)}")
    wanted, dtype = _wanted(graph, outputs, expected, prog, name), outputs.dtype
    if kind == "sum_squared":
        deltas = map_expr(graph, "sub($0,$1)", [outputs, wanted], prog, f"{name}/deltas", dtype)
        half = map_expr(graph, "mul(mul($0,c(0.5)),$0)", [deltas], prog, f"{name}/half", dtype)
        return reduce(graph, half, (1,), "sum", prog, name), deltas
    logs, shown = outputs, outputs
    if kind == "softmax_cross_entropy":
        logs = log_softmax(graph, outputs, 1, prog, f"{name}/log")
        shown = map_expr(graph, "exp($0)", [logs], prog, f"{name}/exp", dtype)
    else:
        logs = map_expr(graph, "log($0)", [outputs], prog, f"{name}/log", dtype)
    deltas = map_expr(graph, "sub($0,$1)", [shown, wanted], prog, f"{name}/deltas", dtype)
    # where nothing is wanted the logarithm may be infinite and does not count
    text = "select(equal($1,c(0)),c(0),neg(mul($0,$1)))"
    each = map_expr(graph, text, [logs, wanted], prog, f"{name}/each", dtype)
    return reduce(graph, each, (1,), "sum", prog, name), deltas


def _wanted(graph: Graph, outputs: Tensor, expected: Tensor, prog: Sequence, name: str) -> Tensor:
    """Wanted outputs [N, C] from labels [N] or as they are."""
    n, classes = outputs.shape
    if tuple(expected.shape) == (n,) and expected.dtype.kind in "iu":
        return one_hot(graph, expected, classes, outputs.dtype, prog, f"{name}/labels")
    if tuple(expected.shape) != (n, classes) or expected.dtype is not outputs.dtype:
        fail(
            ShapeError,
            f"expected {expected.dtype}{list(expected.shape)} for {outputs.dtype}[{n}, {classes}]",
            remedy="give integer labels [N], or wanted outputs of the outputs' type and shape",
        )
    return expected


def _rows(x: Tensor) -> Tensor:
    if x.rank != 2:
        fail(ShapeError, f"outputs [N, C], not {tuple(x.shape)}")
    return x


def arg_max(graph: Graph, x: Tensor, prog: Sequence, name: str = "arg_max") -> Tensor:
    """u32 [N]: the place of the largest element of each row of x [N, C], the first of equals."""
    return _unsigned(graph, arg_max_along(graph, _rows(x), 1, prog, name), prog, name)


def arg_min(graph: Graph, x: Tensor, prog: Sequence, name: str = "arg_min") -> Tensor:
    """u32 [N]: the place of the smallest element of each row of x [N, C], the first of equals."""
    return _unsigned(graph, arg_min_along(graph, _rows(x), 1, prog, name), prog, name)


def _unsigned(graph: Graph, t: Tensor, prog: Sequence, name: str) -> Tensor:
    return map_expr(graph, "cast($0,u32)", [t.flatten()], prog, f"{name}/u32", u32)


def max_and_arg_max(
    graph: Graph, x: Tensor, prog: Sequence, name: str = "max_and_arg_max"
) -> tuple[Tensor, Tensor]:
    """(largest element [N], its place u32 [N]) of each row of x [N, C]."""
    top = reduce(graph, _rows(x), (1,), "max", prog, f"{name}/max")
    return top, arg_max(graph, x, prog, name)


def calc_accuracy(
    graph: Graph, outputs: Tensor, labels: Tensor, prog: Sequence, name: str = "accuracy"
) -> Tensor:
    """u32 [1]: how many rows of outputs [N, C] have their largest element at the label [N]."""
    if tuple(labels.shape) != tuple(outputs.shape[:1]):
        fail(ShapeError, f"labels {tuple(labels.shape)} for {tuple(outputs.shape)}")
    best = arg_max(graph, outputs, prog, f"{name}/arg_max")
    text = "cast(equal(cast($0,u32),cast($1,u32)),u32)"
    right = map_expr(graph, text, [best, labels], prog, f"{name}/right", u32)
    return reduce(graph, right, (0,), "sum", prog, name).reshape((1,))
