"""Step code of every kind of step: `STEPS` by kind; control flow is `emit`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from poplar_py.codegen.program_words import Op
from poplar_py.executable.cycles import compute_step, copy_step, host_step, vertex_cycles
from poplar_py.executable.executable import (
    ALL_MODES,
    DEFAULT_MODE,
    FAITHFUL_MODE,
    HostCall,
    Message,
    Region,
    StepInfo,
)
from poplar_py.executable.layout import Span, span
from poplar_py.executable.records import Records, join
from poplar_py.passes.steps import Step
from poplar_py.poplar import program as prg
from poplar_py.poplar.arrays import Ints
from poplar_py.poplar.streams import DataStream, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.variable import Variable
from poplar_py.types import u32

if TYPE_CHECKING:
    from poplar_py.executable.emit import Emitter


def step_execute(e: Emitter, s: Step, p: prg.Execute) -> None:
    cs, c = p.compute_set, e.code
    if cs.id not in e.sets:
        cost = [vertex_cycles(g) for g in cs.groups]
        info = compute_step(e.graph.target, cs, e.plan.places, e.plan.exchange[cs.id], cost)
        e.sets[cs.id] = (e.groups.compute_set(cs, [_host_cost(k) for k in cost]), info)
    tables, info = e.sets[cs.id]
    e.begin(s, _again(info, s))
    if p.predicate is not None:
        c.emit(Op.CONSENSUS, -1)
        c.barrier()
    _around(e, cs.id, "fetch", tables.fetch, tables.all_fetch)
    for number in tables.vertices:
        consensus = 0 if p.predicate is None else 1
        other = tables.instead.get(number)
        if other is not None:
            c.emit(Op.CALL, other, 0, consensus, mode=DEFAULT_MODE)
        c.emit(Op.CALL, number, 0, consensus, mode=ALL_MODES if other is None else FAITHFUL_MODE)
    c.barrier()
    _around(e, cs.id, "store", tables.store, tables.all_store)
    if p.predicate is not None:
        c.emit(Op.CONSENSUS, e.layout.scalar(p.predicate))
        c.barrier()


def _around(e: Emitter, cs: int, what: str, default: Records, faithful: Records) -> None:
    """The copies before or after a compute set; tables are shared by its executions."""
    for mode, r in ((DEFAULT_MODE, default), (FAITHFUL_MODE, faithful)):
        if mode == FAITHFUL_MODE and not e.groups.faithful:
            continue
        if len(r) == 0:
            continue
        key = (cs, what, mode)
        if key in e.calls:
            for number in e.calls[key]:
                e.code.call_copy(number, mode)
        else:
            first = len(e.tables)
            e.records(r, mode)
            e.calls[key] = list(range(first, len(e.tables)))
        e.code.barrier(mode)


def step_copy(e: Emitter, s: Step, p: prg.Copy) -> None:
    assert isinstance(p.src, Tensor)
    assert isinstance(p.dst, Tensor)
    e.begin(s, copy_step(e.graph.target, s, e.plan.places, p.src, p.dst))
    source, target = e.layout.tensor(p.src), e.layout.tensor(p.dst)
    forward = e.forwards.copies.get(s.id)
    if forward is None:
        e.copy_rows(source, target)
    else:
        stream, variable = forward
        e.copy_rows(source, target, FAITHFUL_MODE)
        region = e.regions[e.find_region("stream_in", stream.handle)]
        e.copy_rows(_inside(region, p.src, variable), target, DEFAULT_MODE, stream.id)
    e.code.barrier()


def step_stream(e: Emitter, s: Step, p: prg.Copy) -> None:
    c = e.code
    if isinstance(p.src, DataStream):
        assert isinstance(p.dst, Tensor)
        e.begin(s, host_step(e.graph.target, s.name, "stream", s.loc, p.dst, e.plan.places))
        c.emit(Op.STREAM, p.src.id, 0)
        c.barrier()
        region = e.find_region("stream_in", p.src.handle)
        mode = FAITHFUL_MODE if s.id in e.forwards.streams else ALL_MODES
        e.copy_rows(e.region_span(region), e.layout.tensor(p.dst), mode, p.src.id)
        c.barrier(mode)
        return
    assert isinstance(p.dst, DataStream)
    assert isinstance(p.src, Tensor)
    e.begin(
        s,
        host_step(e.graph.target, s.name, "stream", s.loc, p.src, e.plan.places, out=True),
    )
    region = e.find_region("stream_out", p.dst.handle)
    e.copy_rows(e.layout.tensor(p.src), e.region_span(region))
    c.barrier()
    c.emit(Op.STREAM, p.dst.id, 1)
    c.barrier()


def step_remote(e: Emitter, s: Step, p: prg.Copy) -> None:
    out = isinstance(p.dst, RemoteBuffer)
    buffer, tensor = (p.dst, p.src) if out else (p.src, p.dst)
    assert isinstance(buffer, RemoteBuffer)
    assert isinstance(tensor, Tensor)
    target, places = e.graph.target, e.plan.places
    e.begin(s, host_step(target, s.name, "remote", s.loc, tensor, places, out=out))
    if p.offset is not None:
        _remote_rows(e, buffer, tensor, p.offset, out)
        return
    region = e.regions[e.find_region("remote", buffer.handle)]
    tiles, rows = e.layout.tensor(tensor), span(region.offset, buffer.numel * buffer.dtype.size)
    e.copy_rows(*((tiles, rows) if out else (rows, tiles)))
    e.code.barrier()


def _remote_rows(
    e: Emitter, buffer: RemoteBuffer, tensor: Tensor, offset: Tensor, out: bool
) -> None:
    """Rows that the device names: through a stage, in the order of their numbers."""
    region = e.regions[e.find_region("remote", buffer.handle)]
    tiles, n = e.layout.tensor(tensor), offset.numel
    index = e.region(buffer.handle, "stage", u32, n)
    stage = e.region(buffer.handle, "stage", buffer.dtype, n * buffer.numel)
    e.copy_rows(e.layout.tensor(offset), e.region_span(index))
    if out:
        e.copy_rows(tiles, e.region_span(stage))
    e.code.barrier()
    row = buffer.numel * buffer.dtype.size
    places = e.regions[index].offset, e.regions[stage].offset
    e.code.emit(Op.REMOTE, region.offset, row, *places, int(out), buffer.repeats << 32 | n)
    e.code.barrier()
    if not out:
        e.copy_rows(e.region_span(stage), tiles)
        e.code.barrier()


def _host(e: Emitter, call: HostCall) -> None:
    e.host_calls.append(call)
    e.code.emit(Op.HOST, 0, len(e.host_calls) - 1)
    e.code.barrier()


def _out(e: Emitter, name: str, kind: str, t: Tensor) -> int:
    """Copy a tensor to a new region."""
    number = e.region(name, kind, t.dtype, t.numel)
    e.copy_rows(e.layout.tensor(t), e.region_span(number))
    return number


def step_host(e: Emitter, s: Step, p: prg.Call) -> None:
    assert isinstance(p.function, HostFunction)
    e.begin(s)
    handle = p.function.handle
    ins = [_out(e, handle, "host_call", t) for t in p.inputs]
    outs = [e.region(handle, "host_call", t.dtype, t.numel) for t in p.outputs]
    e.code.barrier()
    _host(e, HostCall("call", handle, ins, outs))
    for number, t in zip(outs, p.outputs, strict=True):
        e.copy_rows(e.region_span(number), e.layout.tensor(t))
    e.code.barrier()


def step_print(e: Emitter, s: Step, p: prg.PrintTensor) -> None:
    e.begin(s)
    region = _out(e, p.title, "print", p.tensor)
    e.code.barrier()
    _host(e, HostCall("print", p.title, [region], [], (p.tensor.shape, p.fmt)))


def step_cycles(e: Emitter, s: Step, p: prg.CycleCount) -> None:
    e.begin(s)
    if not s.writes:
        _host(e, HostCall("cycles_begin", p.name, detail=p.tile))
        return
    region = e.region(p.name, "host_call", u32, 2)
    _host(e, HostCall("cycles_end", p.name, [], [region], p.tile))
    e.copy_rows(e.region_span(region), e.layout.tensor(p.tensor))
    e.code.barrier()


def _message(e: Emitter, s: Step, text: str, tensor: Tensor | None = None) -> int:
    region = -1
    if tensor is not None:
        region = _out(e, "error", "error", tensor)
        e.code.barrier()
    e.messages.append(Message(text, s.loc, region))
    return len(e.messages) - 1


def step_error(e: Emitter, s: Step, p: prg.ErrorProgram) -> None:
    e.begin(s)
    e.code.emit(Op.FAIL, _message(e, s, p.message, p.tensor))


def step_abort(e: Emitter, s: Step, p: prg.Abort) -> None:
    e.begin(s)
    e.code.emit(Op.FAIL, _message(e, s, p.message or "the program aborted"))


def step_abort_if(e: Emitter, s: Step, p: prg.AbortOnCondition) -> None:
    e.begin(s)
    number = _message(e, s, p.message or "the condition for an abort holds")
    width = p.predicate.dtype.size
    e.code.emit(Op.ABORT_IF, e.layout.scalar(p.predicate), width, number)
    e.code.barrier()


def step_sync(e: Emitter, s: Step, p: prg.Sync) -> None:
    e.begin(s)


def step_undef(e: Emitter, s: Step, p: prg.WriteUndef) -> None:
    """Nothing to do: liveness knows."""


def step_exchange_replicas(e: Emitter, s: Step, p: prg.CrossReplicaCopy) -> None:
    e.begin(s, host_step(e.graph.target, s.name, "replicas", s.loc, p.src, e.plan.places))
    here = _out(e, "across replicas", "stage", p.src)
    there = _out(e, "across replicas", "stage", p.dst)  # kept where no replica sends
    e.code.barrier()
    e.host_calls.append(HostCall("replicas", s.name, [here], [there], dict(p.replica_map)))
    e.code.emit(Op.ACROSS, len(e.host_calls) - 1)
    e.copy_rows(e.region_span(there), e.layout.tensor(p.dst))
    e.code.barrier()


def _inside(region: Region, tensor: Tensor, variable: Variable) -> Span:
    """A tensor's pieces as if its variable were laid out in order in a region."""
    start, length = tensor.runs()
    width = region.dtype.size
    return join(region.offset + (start - variable.base) * width, length * width)


def _host_cost(cycles: Ints) -> Ints:
    return cycles + 16


def _again(info: StepInfo, s: Step) -> StepInfo:
    """The same costs under the name and line of another execution."""
    return replace(info, name=s.name, loc=s.loc)


STEPS: dict[str, Callable[[Emitter, Step, Any], None]] = {
    "execute": step_execute,
    "copy": step_copy,
    "stream": step_stream,
    "remote": step_remote,
    "host": step_host,
    "print": step_print,
    "cycles": step_cycles,
    "error": step_error,
    "abort": step_abort,
    "abort_if": step_abort_if,
    "sync": step_sync,
    "undef": step_undef,
    "exchange_replicas": step_exchange_replicas,
}
