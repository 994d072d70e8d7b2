"""Lowering rules of tensor.*: views, padding, indexing, reductions, searches."""

from __future__ import annotations

from math import prod

import numpy as np

from poplar_py import popops
from poplar_py.ops import tensor as ops
from poplar_py.passes.lower_context import LowerContext, rule
from poplar_py.poplar import Tensor, concat

__all__: list[str] = []


@rule("tensor.reshape")
def lower_reshape(ctx: LowerContext, op: ops.Reshape) -> None:
    array = ctx.constant_array(op.x)
    if array is not None:
        ctx.set_array(op.result, array.reshape(op.result.type.static_shape))
        return
    ctx.set(op.result, ctx.tensor(op.x).reshape(op.result.type.static_shape))


@rule("tensor.transpose")
def lower_transpose(ctx: LowerContext, op: ops.Transpose) -> None:
    array = ctx.constant_array(op.x)
    if array is not None:
        ctx.set_array(op.result, array.transpose(op.perm))
        return
    ctx.set(op.result, ctx.tensor(op.x).dim_shuffle(op.perm))


@rule("tensor.expand")
def lower_expand(ctx: LowerContext, op: ops.Expand) -> None:
    shape = op.result.type.static_shape
    array = ctx.constant_array(op.x)
    if array is not None:
        ctx.set_array(op.result, np.broadcast_to(array, shape))
        return
    ctx.set(op.result, ctx.tensor(op.x).broadcast_to(shape))


@rule("tensor.slice")
def lower_slice(ctx: LowerContext, op: ops.Slice) -> None:
    sizes = op.result.type.static_shape
    array = ctx.constant_array(op.x)
    if array is not None:
        index = [
            slice(start, (start + n * step) if start + n * step >= 0 else None, step)
            if n
            else slice(0, 0)
            for start, n, step in zip(op.starts, sizes, op.steps, strict=True)
        ]
        ctx.set_array(op.result, array[tuple(index)])
        return
    out = ctx.tensor(op.x)
    for d, (start, n, step) in enumerate(zip(op.starts, sizes, op.steps, strict=True)):
        out = strided(out, start, n, step, d)
    ctx.set(op.result, out)


def strided(t: Tensor, start: int, n: int, step: int, dim: int) -> Tensor:
    """`n` elements of a dim from `start`, `step` apart (negative: backwards)."""
    if n == 0:
        return t.slice(0, 0, dim)
    if start == 0 and step == 1 and n == t.shape[dim]:
        return t
    last = start + (n - 1) * step
    if step > 0:
        return t.slice(start, last + 1, dim).sub_sample(step, dim)
    return t.slice(last, start + 1, dim).reverse(dim).sub_sample(-step, dim)


@rule("tensor.concat")
def lower_concat(ctx: LowerContext, op: ops.Concat) -> None:
    axis = op.axis % op.result.rank
    arrays = [ctx.constant_array(v) for v in op.inputs]
    if all(a is not None for a in arrays):
        ctx.set_array(op.result, np.concatenate([a for a in arrays if a is not None], axis))
        return
    parts = [ctx.tensor(v) for v in op.inputs if v.shape[axis] != 0]
    if not parts:
        parts = [ctx.tensor(op.inputs[0])]
    ctx.set(op.result, concat(parts, axis) if len(parts) > 1 else parts[0])


@rule("tensor.pad")
def lower_pad(ctx: LowerContext, op: ops.Pad) -> None:
    value = np.asarray(op.value).astype(op.x.dtype.numpy).item()
    x = ctx.tensor(op.x)
    out = popops.pad(ctx.graph, x, op.before, op.after, value, ctx.prog, ctx.name(op))
    ctx.set(op.result, out)


@rule("tensor.bitcast")
def lower_bitcast(ctx: LowerContext, op: ops.Bitcast) -> None:
    array = ctx.constant_array(op.x)
    if array is not None:
        ctx.set_array(op.result, np.ascontiguousarray(array).view(op.dtype.numpy))
        return
    ctx.set(op.result, ctx.tensor(op.x).reinterpret(op.dtype))


@rule("tensor.iota")
def lower_iota(ctx: LowerContext, op: ops.Iota) -> None:
    shape = op.result.type.static_shape
    axis = op.axis % len(shape)
    line = np.arange(shape[axis]).astype(op.dtype.numpy)
    line = line.reshape(tuple(n if d == axis else 1 for d, n in enumerate(shape)))
    ctx.set_array(op.result, np.broadcast_to(line, shape))


@rule("tensor.gather")
def lower_gather(ctx: LowerContext, op: ops.Gather) -> None:
    axis = op.axis % op.x.rank
    index = ctx.constant_array(op.indices)
    array = ctx.constant_array(op.x)
    if index is not None and array is not None:
        ctx.set_array(op.result, np.take(array, index, axis=axis))
        return
    name = ctx.name(op)
    if index is not None:
        x = ctx.tensor(op.x)
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        ctx.set(op.result, x.take(index.ravel(), axis).reshape(shape))
        return
    x = ctx.tensor(op.x) if array is None else _table(ctx, op, array, axis)
    out = popops.gather(ctx.graph, x, ctx.tensor(op.indices), axis, ctx.prog, name)
    ctx.set(op.result, out)


def _table(ctx: LowerContext, op: ops.Gather, array: np.ndarray, axis: int) -> Tensor:
    """A constant table in the parts that gather wants."""
    moved = np.moveaxis(array, axis, 0)
    rows, rest = moved.shape[0], moved.shape[1:]
    count = prod(op.indices.type.static_shape)
    if moved.size == 0 or count == 0:
        return ctx.tensor(op.x)
    t = popops.constant_table(
        ctx.graph, moved.reshape((rows, prod(rest))), count, op.x.name or "table"
    )
    t = t.reshape((rows, *rest))
    perm = (*range(1, axis + 1), 0, *range(axis + 1, array.ndim))
    return t.dim_shuffle(perm)


@rule("tensor.scatter")
def lower_scatter(ctx: LowerContext, op: ops.Scatter) -> None:
    x, index, updates = ctx.tensor(op.x), ctx.tensor(op.indices), ctx.tensor(op.updates)
    if updates.numel == 0:
        ctx.set(op.result, x)
        return
    out = popops.scatter(
        ctx.graph, x, index, updates, ctx.prog, ctx.name(op), reduction=op.reduction
    )
    ctx.set(op.result, out)


@rule("tensor.dynamic_slice")
def lower_dynamic_slice(ctx: LowerContext, op: ops.DynamicSlice) -> None:
    axis = op.axis % op.x.rank
    x, start = ctx.tensor(op.x), ctx.tensor(op.start)
    out = popops.dynamic_slice(ctx.graph, x, start, axis, op.size, ctx.prog, ctx.name(op))
    ctx.set(op.result, out)


@rule("tensor.dynamic_update")
def lower_dynamic_update(ctx: LowerContext, op: ops.DynamicUpdate) -> None:
    axis = op.axis % op.x.rank
    x, update, start = ctx.tensor(op.x), ctx.tensor(op.update), ctx.tensor(op.start)
    table = ctx.tables.get(op.x)
    if table is not None:
        order = (axis, *(d for d in range(op.x.rank) if d != axis))
        rows = update.dim_shuffle(order).reshape((update.shape[axis], table.tensor.shape[1]))
        popops.update_table(ctx.graph, table, rows, start, ctx.prog, ctx.name(op))
        ctx.set(op.result, x)
        return
    out = popops.dynamic_update(ctx.graph, x, update, start, axis, ctx.prog, ctx.name(op))
    ctx.set(op.result, out)


@rule("tensor.reduce")
def lower_reduce(ctx: LowerContext, op: ops.Reduce) -> None:
    x = ctx.tensor(op.x)
    axes = tuple(a % max(op.x.rank, 1) for a in op.axes)
    if not axes:
        ctx.set(op.result, x)
        return
    out = popops.reduce(ctx.graph, x, axes, op.kind, ctx.prog, ctx.name(op))
    ctx.set(op.result, out.reshape(op.result.type.static_shape))


@rule("tensor.cumulative")
def lower_cumulative(ctx: LowerContext, op: ops.Cumulative) -> None:
    axis = op.axis % op.x.rank
    out = popops.cumulative(
        ctx.graph,
        ctx.tensor(op.x),
        axis,
        op.kind,
        ctx.prog,
        ctx.name(op),
        exclusive=op.exclusive,
        reverse=op.reverse,
    )
    ctx.set(op.result, out)


@rule("tensor.top_k")
def lower_top_k(ctx: LowerContext, op: ops.TopK) -> None:
    axis = op.axis % op.x.rank
    x = ctx.tensor(op.x)
    found = popops.top_k(ctx.graph, x, op.k, axis, op.largest, ctx.prog, ctx.name(op))
    for result, tensor in zip(op.results, found, strict=True):
        ctx.set(result, tensor)


@rule("tensor.arg_max")
def lower_arg_max(ctx: LowerContext, op: ops.ArgMax) -> None:
    axis = op.axis % op.x.rank
    x = ctx.tensor(op.x)
    ctx.set(op.result, popops.arg_max(ctx.graph, x, axis, ctx.prog, ctx.name(op), op.last))


@rule("tensor.arg_min")
def lower_arg_min(ctx: LowerContext, op: ops.ArgMin) -> None:
    axis = op.axis % op.x.rank
    x = ctx.tensor(op.x)
    ctx.set(op.result, popops.arg_min(ctx.graph, x, axis, ctx.prog, ctx.name(op), op.last))
