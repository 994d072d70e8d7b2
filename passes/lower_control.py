"""Lowering rules of core.*: constants, control flow on the device, random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from poplar_py import popops, poprand
from poplar_py.ir import Graph as ModelGraph
from poplar_py.ir import Value, use_counts
from poplar_py.ops import core as ops
from poplar_py.ops import tensor as tensor_ops
from poplar_py.passes.lower_context import LowerContext, lower_ops, rule
from poplar_py.poplar import Tensor, program
from poplar_py.poputil.layout import clone_layout, fresh
from poplar_py.types import DType, bool_, i32

__all__: list[str] = []


@rule("core.constant")
def lower_constant(ctx: LowerContext, op: ops.Constant) -> None:
    ctx.set_array(op.result, op.value)


def _like(ctx: LowerContext, t: Tensor, dtype: DType, name: str) -> Tensor:
    """A variable to hold a value like `t`: its layout where it has one."""
    made = None if t.contains_constant() else clone_layout(ctx.graph, t, dtype, name)
    return fresh(ctx.graph, dtype, t.shape, name) if made is None else made[0]


@rule("core.if")
def lower_if(ctx: LowerContext, op: ops.If) -> None:
    name = ctx.name(op)
    cond = ctx.tensor(op.cond).flatten()
    place = ctx.graph
    held: list[Tensor] = []
    bodies: list[program.Sequence] = []
    for region in op.regions():
        with ctx.into(program.Sequence()) as body:
            lower_ops(ctx, region)
            ctx.graph = place
            outs = [ctx.tensor(v) for v in region.outputs]
            if not bodies:
                held = [_like(ctx, t, t.dtype, f"{name}/{i}") for i, t in enumerate(outs)]
            _hand_over(body, outs, held)
        bodies.append(body)
    for result, var in zip(op.results, held, strict=True):
        ctx.set(result, var)
    flag = _scalar(ctx, cond, bool_, f"{name}/condition")
    ctx.prog.add(program.If(flag, bodies[0], bodies[1]))


def _hand_over(body: program.Sequence, results: list[Tensor], held: list[Tensor]) -> None:
    """The results of a body into the variables that hold them for whichever body ran."""
    for t, var in zip(results, held, strict=True):
        if t.numel:
            body.add(program.Copy(t, var))


def _scalar(ctx: LowerContext, t: Tensor, dtype: DType, name: str) -> Tensor:
    """A copy of one element in a variable of its own on one tile."""
    var = ctx.graph.add_variable(dtype, (1,), name, mapping=0)
    ctx.prog.add(program.Copy(t.flatten(), var))
    return var


@rule("core.loop")
def lower_loop(ctx: LowerContext, op: ops.Loop) -> None:
    name = ctx.name(op)
    place = ctx.graph
    carried = [_carried(ctx, op, i, f"{name}/carried{i}") for i in range(len(op.carried))]
    counter = ctx.graph.add_variable(i32, (1,), f"{name}/iteration", mapping=0)
    popops.fill(ctx.graph, counter, 0, ctx.prog, f"{name}/start")
    flag = None
    if op.cond is not None:
        flag = _scalar(ctx, ctx.tensor(op.cond), bool_, f"{name}/condition")
    limit = None if op.limit is None else ctx.tensor(op.limit).flatten()
    with ctx.into(program.Sequence()) as body:
        _body(ctx, op.body, carried, counter, flag, name)
        ctx.graph = place
        text = "add($0,c(1))"
        popops.map_with_output(ctx.graph, text, [counter], counter, body, f"{name}/next")
    if flag is None and limit is None:
        ctx.prog.add(program.Repeat(op.trip, body))
    else:
        _while(ctx, op, counter, flag, limit, body, name)
    for result, var in zip(op.results, carried, strict=True):
        ctx.set(result, var)


def _carried(ctx: LowerContext, op: ops.Loop, index: int, name: str) -> Tensor:
    """A variable that starts as the initial value.

    A buffer that the body only updates row by row becomes a table that is updated in place.
    """
    t = ctx.tensor(op.carried[index])
    update = _only_update(op, index)
    if update is not None and t.numel:
        axis = update.axis % len(t.shape)
        var = _buffer(ctx, t, axis, update, op.body.inputs[index + 1], name)
    else:
        var = _like(ctx, t, t.dtype, name)
    if t.numel:
        ctx.prog.add(program.Copy(t, var))
    return var


def _only_update(op: ops.Loop, index: int) -> tensor_ops.DynamicUpdate | None:
    """The update that makes a carried value's next state, when nothing else uses the value."""
    first = 0 if op.cond is None else 1
    owner = op.body.outputs[first + index].owner
    value = op.body.inputs[index + 1]
    if not isinstance(owner, tensor_ops.DynamicUpdate) or owner.x is not value:
        return None
    uses = use_counts(op.body)
    alone = uses.get(value, 0) == 1 and uses.get(owner.result, 0) == 1
    return owner if alone and owner in op.body.ops else None


def _buffer(
    ctx: LowerContext,
    t: Tensor,
    axis: int,
    update: tensor_ops.DynamicUpdate,
    value: Value,
    name: str,
) -> Tensor:
    """A table in the shape of `t`, entered in `ctx.tables` for the rule of the update."""
    order = (axis, *(d for d in range(len(t.shape)) if d != axis))
    moved = tuple(t.shape[d] for d in order)
    size = update.update.type.static_shape[axis]
    shape = (moved[0], prod(moved[1:]))
    table = popops.create_update_table(ctx.graph, t.dtype, shape, size, name)
    ctx.tables[value] = table
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d] = i
    return table.tensor.reshape(moved).dim_shuffle(tuple(inverse))


def _body(
    ctx: LowerContext,
    region: ModelGraph,
    carried: Sequence[Tensor],
    counter: Tensor,
    flag: Tensor | None,
    name: str,
) -> None:
    """One iteration: the region, then its outputs copied to the carried variables."""
    ctx.set(region.inputs[0], counter.reshape(()))
    for value, var in zip(region.inputs[1:], carried, strict=True):
        ctx.set(value, var)
    lower_ops(ctx, region)
    outs = list(region.outputs)
    targets = list(carried)
    if flag is not None:
        targets = [flag, *targets]
    moves: list[tuple[Tensor, Tensor]] = []
    for value, var in zip(outs, targets, strict=True):
        t = ctx.tensor(value).reshape(var.shape)
        if t.numel == 0 or _same(t, var):
            continue
        if any(t.intersects_with(other) for other in (*targets, counter)):
            kept = fresh(ctx.graph, t.dtype, t.shape, f"{name}/kept")
            ctx.prog.add(program.Copy(t, kept))
            t = kept
        moves.append((t, var))
    for t, var in moves:
        ctx.prog.add(program.Copy(t, var))


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors list the same elements in the same order."""
    if a.view is b.view:
        return True
    (s, n), (s2, n2) = a.runs(), b.runs()
    return np.array_equal(s, s2) and np.array_equal(n, n2)


def _while(
    ctx: LowerContext,
    op: ops.Loop,
    counter: Tensor,
    flag: Tensor | None,
    limit: Tensor | None,
    body: program.Sequence,
    name: str,
) -> None:
    """RepeatWhileTrue on: condition and iteration < limit and iteration < trip."""
    tests: list[str] = []
    tensors = [counter]
    if limit is not None:
        tensors.append(limit)
        tests.append(f"less($0,${len(tensors) - 1})")
    if op.trip >= 0:
        tests.append(f"less($0,c({op.trip}))")
    if flag is not None:
        tensors.append(flag)
        tests.append(f"${len(tensors) - 1}")
    text = tests[0]
    for test in tests[1:]:
        text = f"and({text},{test})"
    again = ctx.graph.add_variable(bool_, (1,), f"{name}/again", mapping=0)
    check = program.Sequence()
    if text.startswith("$"):
        check.add(program.Copy(tensors[-1], again))
    else:
        popops.map_with_output(ctx.graph, text, tensors, again, check, f"{name}/test")
    ctx.prog.add(program.RepeatWhileTrue(check, again, body))


@rule("core.random_uniform")
def lower_random_uniform(ctx: LowerContext, op: ops.RandomUniform) -> None:
    out = poprand.uniform(
        ctx.graph,
        op.seed,
        op.result.type.static_shape,
        op.low,
        op.high,
        ctx.prog,
        ctx.name(op),
        dtype=op.dtype,
    )
    ctx.set(op.result, out)


@rule("core.random_normal")
def lower_random_normal(ctx: LowerContext, op: ops.RandomNormal) -> None:
    out = poprand.normal(
        ctx.graph,
        op.seed,
        op.result.type.static_shape,
        op.mean,
        op.scale,
        ctx.prog,
        ctx.name(op),
        dtype=op.dtype,
    )
    ctx.set(op.result, out)
