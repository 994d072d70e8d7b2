"""ONNX reductions."""

from __future__ import annotations

from collections.abc import Callable

from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import IMPORT, Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import tensor
from poplar_py.ops.tensor import check_axis
from poplar_py.types import bool_, f32, i32, i64

__all__: list[str] = []

_INPUT_AXES = {"ReduceSum": 13}
"""Opset from which the axes are an input (18 for the others)."""


def _axes(b: Builder, n: Node) -> tuple[int, ...] | None:
    """Axes to reduce; None where nothing is to be done."""
    x = n[0]
    as_input = n.version >= _INPUT_AXES.get(n.op_type, 18)
    axes = n.ints("axes")
    if as_input:
        axes = b.ints(n[1], "the axes") if n.has(1) else ()
    if not axes:
        return None if n.int("noop_with_empty_axes") else tuple(range(x.rank))
    return tuple(sorted({check_axis(a, x.rank) for a in axes}))


def _plain(
    kind: str, before: Callable[[Builder, Val], Val] | None, after: Callable[[Builder, Val], Val]
) -> Callable[[Builder, Node], Val]:
    def rule(b: Builder, n: Node) -> Val:
        x = n[0]
        axes = _axes(b, n)
        y = x if before is None else before(b, x)
        if axes is not None:
            y = b.reduce(y, kind, axes, bool(n.int("keepdims", 1)))
        y = after(b, y)
        return b.cast(y, x.dtype)

    return rule


def _same(b: Builder, y: Val) -> Val:
    return y


def _square(b: Builder, x: Val) -> Val:
    return x * x


def _absolute(b: Builder, x: Val) -> Val:
    return b.emit(ew.Abs, x)


def _log(b: Builder, y: Val) -> Val:
    return b.emit(ew.Log, y if y.dtype.is_float else b.cast(y, f32))


def _root(b: Builder, y: Val) -> Val:
    return b.emit(ew.Sqrt, y if y.dtype.is_float else b.cast(y, f32))


IMPORT["", "ReduceSum"] = _plain("sum", None, _same)
IMPORT["", "ReduceProd"] = _plain("prod", None, _same)
IMPORT["", "ReduceL1"] = _plain("sum", _absolute, _same)
IMPORT["", "ReduceL2"] = _plain("sum", _square, _root)
IMPORT["", "ReduceSumSquare"] = _plain("sum", _square, _same)
IMPORT["", "ReduceLogSum"] = _plain("sum", None, _log)


@imports("ReduceMax", "ReduceMin")
def extreme(b: Builder, n: Node) -> Val:
    x = n[0]
    axes = _axes(b, n)
    if axes is None:
        return x
    kind = "max" if n.op_type == "ReduceMax" else "min"
    if x.dtype is bool_:
        kind = "or" if kind == "max" else "and"
    return b.reduce(x, kind, axes, bool(n.int("keepdims", 1)))


@imports("ReduceMean")
def mean(b: Builder, n: Node) -> Val:
    axes = _axes(b, n)
    return n[0] if axes is None else b.mean(n[0], axes, bool(n.int("keepdims", 1)))


@imports("ReduceLogSumExp")
def log_sum_exp(b: Builder, n: Node) -> Val:
    x = n[0]
    axes = _axes(b, n)
    if axes is None or not axes:
        return x
    keep = bool(n.int("keepdims", 1))
    wide = x if x.dtype.is_float else b.cast(x, f32)
    top = b.reduce(wide, "max", axes, True)
    top = b.select(b.emit(ew.IsInf, top), 0.0, top)
    total = b.emit(ew.Log, b.sum(b.emit(ew.Exp, wide - top), axes, True)) + top
    if not keep:
        total = b.reshape(total, [d for i, d in enumerate(x.shape) if i not in axes])
    return b.cast(total, x.dtype)


@imports("ArgMax", "ArgMin")
def arg_extreme(b: Builder, n: Node) -> Val:
    x = n[0]
    axis = check_axis(n.int("axis"), x.rank)
    cls = tensor.ArgMax if n.op_type == "ArgMax" else tensor.ArgMin
    out = b.emit(cls, x, axis=axis, last=bool(n.int("select_last_index")))
    if n.int("keepdims", 1):
        out = b.unsqueeze(out, axis)
    return b.cast(out, i64)


@imports("CumSum", "CumProd")
def cumulative(b: Builder, n: Node) -> Val:
    x = n[0]
    axis = check_axis(b.integer(n[1], "the axis"), x.rank)
    return b.emit(
        tensor.Cumulative,
        x,
        kind="sum" if n.op_type == "CumSum" else "prod",
        axis=axis,
        exclusive=bool(n.int("exclusive")),
        reverse=bool(n.int("reverse")),
    )


@imports("TopK")
def top_k(b: Builder, n: Node) -> tuple[Val, Val]:
    x = n[0]
    axis = check_axis(n.int("axis", -1), x.rank)
    k = b.integer(n[1], "k") if n.has(1) else n.int("k")
    values, places = b.emit(tensor.TopK, x, k=k, axis=axis, largest=bool(n.int("largest", 1)))
    return values, b.cast(b.cast(places, i32), i64)
