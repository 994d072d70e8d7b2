"""ONNX If and Loop: chosen, unrolled, or kept as device control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from poplar_py.diagnostics import InputError, PoplarPyError, ShapeError, UnsupportedOp
from poplar_py.frontends.onnx import protos
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Bounded, Item, NeedsStatic, Seq, Val
from poplar_py.ir.core import Graph, Op
from poplar_py.ops import core, tensor
from poplar_py.types import TensorType, i32, i64

__all__ = ["UNROLL_NODES", "counted", "device_loop", "stack_values"]

UNROLL_NODES = 256
"""Unroll a loop when trips times nodes of its body is at most this."""

_MAX_TRIPS = 50_000
_ENDLESS = 2**31 - 1

Step = Callable[[Val, list[Val]], "tuple[Val | None, list[Val]]"]


@imports("If")
def if_(b: Builder, n: Node) -> Sequence[Item]:
    cond = n[0]
    if cond.numel != 1:
        raise ShapeError(f"the condition is {cond.type}, not one bool", n.loc)
    branches = n.graph("then_branch"), n.graph("else_branch")
    if cond.const is not None:
        chosen = branches[0] if bool(cond.const.reshape(-1)[0]) else branches[1]
        return n.scope.import_subgraph(chosen, [])
    blocks: list[list[Op]] = []
    results: list[list[Item]] = []
    try:
        for branch in branches:
            with b.region() as ops:
                results.append(n.scope.import_subgraph(branch, []))
            blocks.append(ops)
        return _device_if(b, n, b.reshape(b.flag(cond), ()), blocks, results)
    except PoplarPyError as error:
        if isinstance(error, NeedsStatic) and error.deps - cond.deps:
            raise
        if not cond.deps:
            raise
        raise NeedsStatic(
            f"the condition has to be known at compile time, as its branches differ "
            f"({error.message})",
            cond.deps,
            n.loc,
        ) from None


def _device_if(
    b: Builder, n: Node, cond: Val, blocks: list[list[Op]], results: list[list[Item]]
) -> list[Item]:
    graphs: list[Graph] = []
    deps = cond.deps
    for name, ops, outs in zip(("then", "else"), blocks, results, strict=True):
        graph = Graph(name, (), ops)
        for out in _flat(outs, n):
            deps = deps | out.deps
            graph.outputs.append(b.use(out))
        graphs.append(graph)
    if [_length(v) for v in results[0]] != [_length(v) for v in results[1]]:
        raise ShapeError("the branches give sequences of different lengths", n.loc)
    made = core.If(b.use(cond), graphs[0], graphs[1], loc=n.loc)
    b.block.append(made)
    flat = iter(
        Val(b, r.type, r, None, False, deps, out.tag)
        for r, out in zip(made.results, _flat(results[0], n), strict=True)
    )
    return [
        Seq([next(flat) for _ in out.items]) if isinstance(out, Seq) else next(flat)
        for out in results[0]
    ]


def _flat(outs: Sequence[Item], n: Node) -> list[Val]:
    """Tensors of a branch, those of sequences one by one."""
    items = [item for out in outs for item in (out.items if isinstance(out, Seq) else [out])]
    flat = [item for item in items if isinstance(item, Val)]
    if len(flat) < len(items):
        raise UnsupportedOp("a branch gives something that is no tensor", n.loc)
    return flat


def _length(item: Item) -> int:
    return len(item.items) if isinstance(item, Seq) else -1


def device_loop(
    b: Builder,
    step: Step,
    carried: Sequence[Val],
    *,
    trip: int = -1,
    limit: Val | None = None,
    cond: Val | None = None,
) -> list[Val]:
    """A core.loop whose body `step(iteration, carried)` builds; types of carried values stay."""
    deps = frozenset[str]().union(*(c.deps for c in carried))
    body = Graph("body")
    number = Val(b, TensorType(i32, ()), body.add_input(TensorType(i32, ()), "iteration"))
    inner = [Val(b, c.type, body.add_input(c.type, ""), deps=deps, tag=c.tag) for c in carried]
    number.deps = deps
    loc = b.loc
    with b.region() as ops:
        again, outs = step(number, inner)
        for before, after in zip(carried, outs, strict=True):
            if before.type != after.type:
                raise ShapeError(f"a carried value changes from {before.type} to {after.type}", loc)
        body.outputs = [b.use(v) for v in outs]
        if cond is not None:
            assert again is not None
            body.outputs.insert(0, b.use(b.reshape(b.flag(again), ())))
    body.ops = ops
    made = core.Loop(
        tuple(b.use(c) for c in carried),
        None if limit is None else b.use(limit),
        None if cond is None else b.use(cond),
        body,
        trip=trip,
        loc=loc,
    )
    b.block.append(made)
    return [
        Val(b, r.type, r, None, False, deps, c.tag)
        for r, c in zip(made.results, carried, strict=True)
    ]


def counted(b: Builder, trip: int, carried: Sequence[Val], step: Step, size: int) -> list[Val]:
    """`trip` steps: unrolled where that is small (`size` ops a step), else a loop."""
    if trip * size > UNROLL_NODES:
        return device_loop(b, step, carried, trip=trip)
    values = list(carried)
    for i in range(trip):
        _, values = step(b.const(i, i32), values)
    return values


@dataclass
class _Loop:
    """An ONNX Loop: trip count and condition as far as known, and its body."""

    b: Builder
    n: Node
    body: protos.GraphProto
    limit: Val | None
    cond: Val | None
    carried: list[Item]

    @property
    def scans(self) -> int:
        return len(self.body.output) - 1 - len(self.carried)

    @property
    def trip(self) -> int | None:
        """The known trip count; None also where it is "for ever" (exporters write 2^63 - 1)."""
        if self.limit is None or self.limit.const is None:
            return None
        count = int(self.limit.const.reshape(-1)[0])
        return None if self.endless else max(0, count)

    @property
    def endless(self) -> bool:
        known = None if self.limit is None else self.limit.const
        return known is not None and int(known.reshape(-1)[0]) > _ENDLESS

    def run(self, i: Val, values: Sequence[Item]) -> tuple[Val, list[Item], list[Item]]:
        """One pass through the body: next condition, carried values, scan outputs."""
        go = self.b.const(True)
        outs = self.n.scope.import_subgraph(self.body, [i, go, *values])
        first = outs[0]
        if not isinstance(first, Val):
            raise InputError("the body's condition is no tensor", self.n.loc)
        count = len(self.carried)
        return first, outs[1 : 1 + count], outs[1 + count :]


@imports("Loop")
def loop(b: Builder, n: Node) -> Sequence[Item]:
    body = n.graph("body")
    carried = [n.raw(i) if n.inputs[i] is not None else b.const(0) for i in range(2, len(n))]
    state = _Loop(b, n, body, n.get(0), n.get(1), carried)
    if state.scans < 0 or len(body.input) != len(carried) + 2:
        raise InputError(f"the body does not fit {len(carried)} carried values", n.loc)
    plain = all(isinstance(v, Val) for v in carried)
    trip = state.trip
    small = trip is not None and trip * max(1, len(body.node)) <= UNROLL_NODES
    start_known = state.cond is None or state.cond.const is not None
    unlimited = state.limit is None or state.endless
    ends = trip is not None or unlimited  # an unknown trip count is none to unroll for
    if start_known and (small or (not plain and ends) or (unlimited and _constant_cond(state))):
        mark = len(b.block)
        found = _unroll(state)
        if found is not None:
            return found
        del b.block[mark:]
    if not plain:
        raise _need(state, "a loop over sequences")
    try:
        return _on_device(state)
    except (ShapeError, NeedsStatic) as error:
        if trip is None or not start_known:
            need = _need(state, f"a loop ({error.message})")
            raise need if isinstance(need, NeedsStatic) and need.deps else error from None
        found = _unroll(state)
        if found is None:
            raise error from None
        return found


def _constant_cond(state: _Loop) -> bool:
    return state.cond is not None and state.cond.const is not None


def _need(state: _Loop, what: str) -> PoplarPyError:
    deps = frozenset[str]()
    for part in (state.limit, state.cond):
        if part is not None and part.const is None:
            deps |= part.deps
    return NeedsStatic(f"{what} wants a trip count known at compile time", deps, state.n.loc)


def _unroll(state: _Loop) -> list[Item] | None:
    """All passes one after the other; None where a condition is not known."""
    b, values = state.b, list(state.carried)
    going = state.cond is None or bool(state.cond.const.reshape(-1)[0])  # type: ignore[union-attr]
    scans: list[list[Val]] = [[] for _ in range(state.scans)]
    trip = state.trip
    i = 0
    while going and (trip is None or i < trip):
        if i >= _MAX_TRIPS:
            raise UnsupportedOp(f"the loop has more than {_MAX_TRIPS} passes", state.n.loc)
        again, values, parts = state.run(b.const(np.int64(i)), values)
        for stack, part in zip(scans, parts, strict=True):
            if not isinstance(part, Val):
                raise InputError("a scan output is no tensor", state.n.loc)
            stack.append(part)
        if again.const is None:
            return None
        going = bool(again.const.reshape(-1)[0])
        i += 1
    if not i and state.scans:
        return [*values, *_empty_scans(state)]
    return [*values, *(stack_values(b, parts) for parts in scans)]


def stack_values(b: Builder, parts: list[Val]) -> Val:
    return b.concat([b.unsqueeze(p, 0) for p in parts], 0)


def _empty_scans(state: _Loop) -> list[Val]:
    with state.b.region():
        _, _, parts = state.run(state.b.const(np.int64(0)), state.carried)
    vals = [p for p in parts if isinstance(p, Val)]
    return [state.b.const(np.zeros((0, *p.shape), p.dtype.numpy)) for p in vals]


def _probe(state: _Loop) -> tuple[Val, list[Val]]:
    """Condition and scan outputs of a pass over unknown values, thrown away."""
    b = state.b
    deps = frozenset[str]().union(*(c.deps for c in state.carried if isinstance(c, Val)))
    unknown: list[Item] = []
    for c in state.carried:
        assert isinstance(c, Val)
        stand_in = Graph("probe").add_input(c.type)
        unknown.append(Val(b, c.type, stand_in, deps=deps, tag=c.tag))
    number = Val(b, TensorType(i64, ()), Graph("probe").add_input(TensorType(i64, ())), deps=deps)
    with b.region():
        again, _, parts = state.run(number, unknown)
    vals = [p for p in parts if isinstance(p, Val)]
    return again, vals


def _on_device(state: _Loop) -> list[Item]:
    b = state.b
    carried = [c for c in state.carried if isinstance(c, Val)]
    if state.scans and state.trip is None:
        raise _need(state, "a loop that collects outputs")
    again, parts = _probe(state)
    steady = again.const is not None and bool(again.const.reshape(-1)[0])
    trip = state.trip
    if parts and trip is None:
        raise _need(state, "a loop that collects outputs")
    stops = bool(parts) and not (steady and (state.cond is None or _true(state.cond)))
    buffers = [
        b.const(np.broadcast_to(np.zeros((), p.dtype.numpy), (trip or 0, *p.shape))) for p in parts
    ]
    count = len(carried)
    passes = [b.const(0, i32)] if stops else []

    def step(i: Val, values: list[Val]) -> tuple[Val | None, list[Val]]:
        go, outs, scans = state.run(b.cast(i, i64), values[:count])
        kept = [v for v in outs if isinstance(v, Val)]
        for buffer, part in zip(values[count : count + len(buffers)], scans, strict=True):
            assert isinstance(part, Val)
            update = b.unsqueeze(part, 0)
            kept.append(b.emit(tensor.DynamicUpdate, buffer, update, i, axis=0))
        return go, [*kept, *(done + 1 for done in values[count + len(buffers) :])]

    cond = None if state.cond is None else b.reshape(b.flag(state.cond), ())
    if steady and (cond is None or _true(cond)):
        cond = None
    elif cond is None:
        cond = b.const(True)
    limit = None
    if trip is None and state.limit is not None and not state.endless:
        limit = b.reshape(b.cast(b.minimum(state.limit, _ENDLESS), i32), ())
    if trip is None and limit is None and cond is None:
        raise UnsupportedOp("the loop never ends", state.n.loc)
    start = [*carried, *buffers, *passes]
    found = device_loop(b, step, start, trip=-1 if trip is None else trip, limit=limit, cond=cond)
    if not stops:
        return list(found)
    *ends, done = found
    return [*ends[:count], *(Bounded(end, done) for end in ends[count:])]


def _true(val: Val) -> bool:
    return val.const is not None and bool(val.const.reshape(-1)[0])
