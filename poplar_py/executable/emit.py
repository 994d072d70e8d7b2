"""From the step tree to step code: copies, compute sets, control flow, host steps."""

from __future__ import annotations

import numpy as np

from poplar_py.codegen.program import Op
from poplar_py.executable.code import Code
from poplar_py.executable.cycles import compute_step, copy_step, host_step, vertex_cycles
from poplar_py.executable.executable import (
    ALL_MODES,
    DEFAULT_MODE,
    FAITHFUL_MODE,
    HostCall,
    Message,
    Region,
    StepInfo,
    Table,
)
from poplar_py.executable.forward import find_forwards
from poplar_py.executable.groups import GroupBuilder, SetTables
from poplar_py.executable.layout import (
    Layout,
    Span,
    copy_cost,
    copy_records,
    overlap,
    plain_order,
    span,
    to_words,
)
from poplar_py.executable.records import Records, by_kernel, join
from poplar_py.passes.plan_memory import LINE
from poplar_py.passes.plan_tiles import TilePlan
from poplar_py.passes.steps import CallNode, LoopNode, Node, Seq, Step, SwitchNode, WhileNode, bits
from poplar_py.poplar import program as prg
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.streams import DataStream, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.variable import Variable
from poplar_py.types import DType, u8, u32

POISON = 0xFF
"""Dead bytes are filled with this: NaN in every float type, -1 in integers."""


class Emitter:
    """Writes the code of one executable; `tables`, `steps`, `regions` ... grow as it goes."""

    def __init__(
        self,
        graph: Graph,
        plan: TilePlan,
        layout: Layout,
        code: Code,
        groups: GroupBuilder,
        regions: list[Region],
        first_region: int,
    ) -> None:
        self.graph, self.plan, self.layout, self.code, self.groups = (
            graph,
            plan,
            layout,
            code,
            groups,
        )
        self.regions = regions
        self.tables: list[Table] = groups.tables
        self.steps: list[StepInfo] = []
        self.host_calls: list[HostCall] = []
        self.messages: list[Message] = []
        self.depth = 1
        self.arena_end = first_region
        self.forwards = find_forwards(plan.tree, plan.liveness, graph.variables)
        self._sets: dict[int, tuple[SetTables, StepInfo]] = {}
        self._copies: dict[int, list[int]] = {}
        self._labels: dict[int, int] = {}
        self._calls: dict[tuple[object, ...], list[int]] = {}
        for r in regions:
            self._assign(r)

    # ------------------------------------------------------------ regions and tables
    def _assign(self, r: Region) -> None:
        r.offset = self.arena_end
        lines = -(-max(r.nbytes, 1) // LINE) | 1
        self.arena_end += (lines + 1) * LINE

    def region(self, name: str, kind: str, dtype: DType, numel: int) -> int:
        """A new host region; returns its number."""
        self.regions.append(Region(name, kind, dtype, numel))
        self._assign(self.regions[-1])
        return len(self.regions) - 1

    def region_span(self, number: int) -> Span:
        """A region as one piece."""
        return span(self.regions[number].offset, self.regions[number].nbytes)

    def find_region(self, kind: str, name: str) -> int:
        """Number of the region of a stream or remote buffer."""
        return next(i for i, r in enumerate(self.regions) if r.kind == kind and r.name == name)

    def records(self, r: Records, mode: int = ALL_MODES) -> bool:
        """Calls that carry out copy records; False when there are none."""
        for kernel, index, words in by_kernel(r):
            n = len(words)
            ptr = np.arange(n + 1, dtype=I8) * words.shape[1]
            cost = copy_cost(r)[index]
            self._call(f"copy:{kernel}", words, ptr, cost, mode)
        return len(r) > 0

    def _call(self, kernel: str, words: Ints, ptr: Ints, cost: Ints, mode: int) -> None:
        none = np.zeros(0, I8)
        order = plain_order(len(ptr) - 1)
        wide = self.groups.wide
        self.tables.append(Table(kernel, to_words(words, wide), ptr, order, cost, none, none))
        self.code.emit(Op.CALL, len(self.tables) - 1, mode=mode)

    def copy_rows(self, src: Span, dst: Span, mode: int = ALL_MODES) -> None:
        """A copy between pieces, through a staging region where they overlap. No barrier after
        it."""
        if mode == FAITHFUL_MODE and not self.groups.faithful:
            return
        if not overlap(src, dst):
            self.records(copy_records(src, dst), mode)
            return
        total = int(src[1].sum())
        stage = self.region_span(self.region("overlapping copy", "stage", u8, total))
        self.records(copy_records(src, stage), mode)
        self.code.barrier(mode)
        self.records(copy_records(stage, dst), mode)

    # ------------------------------------------------------------ control flow
    def node(self, n: Node) -> None:
        """Code of a node; it ends with all threads past a barrier."""
        if isinstance(n, Step):
            self.step(n)
        elif isinstance(n, Seq):
            for child in n.nodes:
                self.node(child)
        elif isinstance(n, LoopNode):
            self.loop(n)
        elif isinstance(n, WhileNode):
            self.while_(n)
        elif isinstance(n, SwitchNode):
            self.switch(n)
        else:
            self.call(n)

    def loop(self, n: LoopNode) -> None:
        if n.times is None:
            top = self.code.here()
            self.node(n.body)
            self.code.barrier()
            self.code.emit(Op.JUMP, top)
            return
        counter = self.code.counter()
        self.code.emit(Op.SET, counter, n.times)
        top = self.code.here()
        self.node(n.body)
        self.code.emit(Op.LOOP, counter, top)

    def while_(self, n: WhileNode) -> None:
        c = self.code
        top, body, end = c.label(), c.label(), c.label()
        c.here(top)
        self.node(n.condition)
        self.begin(n.test)
        predicate = _scalar_of(n.test.program)
        address, width = self.layout.scalar(predicate), predicate.dtype.size
        if n.sense:
            c.emit(Op.BRANCH, address, width, end)
        else:
            c.emit(Op.BRANCH, address, width, body)
            c.emit(Op.JUMP, end)
        c.here(body)
        c.barrier()
        self.node(n.body)
        c.emit(Op.JUMP, top)
        c.here(end)
        c.barrier()

    def switch(self, n: SwitchNode) -> None:
        c = self.code
        self.begin(n.test)
        p = n.test.program
        scalar = _scalar_of(p)
        address, width = self.layout.scalar(scalar), scalar.dtype.size
        labels = [c.label() for _ in n.cases]
        default, end = c.label(), c.label()
        if n.is_if:
            c.emit(Op.BRANCH, address, width, default)
        else:
            cases = [
                (_signed(v, width), label) for (v, _), label in zip(n.cases, labels, strict=True)
            ]
            c.switch(address, width, cases, default)
        for (_, case), label in zip(n.cases, labels, strict=True):
            c.here(label)
            c.barrier()
            self.node(case)
            c.emit(Op.JUMP, end)
        c.here(default)
        c.barrier()
        self.node(n.default)
        c.here(end)

    def call(self, n: CallNode) -> None:
        label = self._labels.setdefault(n.function, self.code.label())
        self.code.emit(Op.SUB, label)

    def functions(self) -> None:
        """Bodies of all functions that are called."""
        done: set[int] = set()
        while set(self._labels) - done:
            for function in sorted(set(self._labels) - done):
                done.add(function)
                self.code.here(self._labels[function])
                self.node(self.plan.tree.functions[function])
                self.code.emit(Op.RETURN)
        self.depth = len(done) + 1

    # ------------------------------------------------------------ steps
    def begin(self, s: Step, info: StepInfo | None = None) -> StepInfo:
        """Start a step: count it and note what it costs."""
        info = info or host_step(self.graph.target, s.name, s.kind, s.loc)
        info.live_bytes = (
            int(self.plan.memory.live_bytes[s.id]) if len(self.plan.memory.live_bytes) else 0
        )
        self.steps.append(info)
        self.code.emit(Op.STEP, len(self.steps) - 1)
        return info

    def step(self, s: Step) -> None:
        getattr(self, f"step_{s.kind}")(s, s.program)
        self.poison(s)

    def poison(self, s: Step) -> None:
        """Fill what dies with this step (faithful mode)."""
        if not self.groups.faithful:
            return
        dead = (s.reads | s.writes) & ~self.plan.liveness.after[s.id] & ~self.plan.liveness.between
        shares = np.concatenate(
            [_share_range(self.plan, v) for v in bits(dead)] or [np.zeros(0, I8)]
        )
        at = self.layout.share_addr[shares]
        size = self.plan.places.share_bytes[shares]
        if s.kind == "execute" and isinstance(s.program, prg.Execute):
            cs = s.program.compute_set.id
            block = self.layout.block_addr.get(cs)
            if block is not None:
                tiles = np.flatnonzero(self.plan.exchange[cs].block)
                at = np.concatenate([at, block[tiles]])
                size = np.concatenate([size, self.plan.exchange[cs].block[tiles]])
        if len(at):
            words = np.stack([at, size, np.full(len(at), POISON, I8)], 1)
            ptr = np.arange(len(at) + 1, dtype=I8) * 3
            self._call("copy:fill", words, ptr, size + 16, FAITHFUL_MODE)
            self.code.barrier(FAITHFUL_MODE)

    def step_execute(self, s: Step, p: prg.Execute) -> None:
        cs, c = p.compute_set, self.code
        if cs.id not in self._sets:
            cost = [vertex_cycles(g) for g in cs.groups]
            info = compute_step(
                self.graph.target, cs, self.plan.places, self.plan.exchange[cs.id], cost
            )
            self._sets[cs.id] = (self.groups.compute_set(cs, [_host_cost(k) for k in cost]), info)
        tables, info = self._sets[cs.id]
        self.begin(s, _again(info, s))
        if p.predicate is not None:
            c.emit(Op.CONSENSUS, -1)
            c.barrier()
        self._around(cs.id, "fetch", tables.fetch, tables.all_fetch)
        for number in tables.vertices:
            c.emit(Op.CALL, number, 0, 0 if p.predicate is None else 1)
        c.barrier()
        self._around(cs.id, "store", tables.store, tables.all_store)
        if p.predicate is not None:
            c.emit(Op.CONSENSUS, self.layout.scalar(p.predicate))
            c.barrier()

    def _around(self, cs: int, what: str, default: Records, faithful: Records) -> None:
        """The copies before or after a compute set; tables are shared by its executions."""
        for mode, r in ((DEFAULT_MODE, default), (FAITHFUL_MODE, faithful)):
            if mode == FAITHFUL_MODE and not self.groups.faithful:
                continue
            if len(r) == 0:
                continue
            key = (cs, what, mode)
            if key in self._calls:
                for number in self._calls[key]:
                    self.code.emit(Op.CALL, number, mode=mode)
            else:
                first = len(self.tables)
                self.records(r, mode)
                self._calls[key] = list(range(first, len(self.tables)))
            self.code.barrier(mode)

    def step_copy(self, s: Step, p: prg.Copy) -> None:
        assert isinstance(p.src, Tensor)
        assert isinstance(p.dst, Tensor)
        self.begin(s, copy_step(self.graph.target, s, self.plan.places, p.src, p.dst))
        source, target = self.layout.tensor(p.src), self.layout.tensor(p.dst)
        forward = self.forwards.copies.get(s.id)
        if forward is None:
            self.copy_rows(source, target)
        else:
            stream, variable = forward
            self.copy_rows(source, target, FAITHFUL_MODE)
            region = self.regions[self.find_region("stream_in", stream.handle)]
            self.copy_rows(_inside(region, p.src, variable), target, DEFAULT_MODE)
        self.code.barrier()

    def step_stream(self, s: Step, p: prg.Copy) -> None:
        c = self.code
        if isinstance(p.src, DataStream):
            assert isinstance(p.dst, Tensor)
            self.begin(
                s, host_step(self.graph.target, s.name, "stream", s.loc, p.dst, self.plan.places)
            )
            c.emit(Op.STREAM, p.src.id, 0)
            c.barrier()
            region = self.find_region("stream_in", p.src.handle)
            mode = FAITHFUL_MODE if s.id in self.forwards.streams else ALL_MODES
            self.copy_rows(self.region_span(region), self.layout.tensor(p.dst), mode)
            c.barrier(mode)
            return
        assert isinstance(p.dst, DataStream)
        assert isinstance(p.src, Tensor)
        self.begin(
            s,
            host_step(
                self.graph.target, s.name, "stream", s.loc, p.src, self.plan.places, out=True
            ),
        )
        region = self.find_region("stream_out", p.dst.handle)
        self.copy_rows(self.layout.tensor(p.src), self.region_span(region))
        c.barrier()
        c.emit(Op.STREAM, p.dst.id, 1)
        c.barrier()

    def step_remote(self, s: Step, p: prg.Copy) -> None:
        out = isinstance(p.dst, RemoteBuffer)
        buffer, tensor = (p.dst, p.src) if out else (p.src, p.dst)
        assert isinstance(buffer, RemoteBuffer)
        assert isinstance(tensor, Tensor)
        self.begin(
            s,
            host_step(
                self.graph.target, s.name, "remote", s.loc, tensor, self.plan.places, out=out
            ),
        )
        region = self.regions[self.find_region("remote", buffer.handle)]
        row = buffer.numel * buffer.dtype.size
        tiles = self.layout.tensor(tensor)
        if p.offset is None:
            rows = span(region.offset, row)
            self.copy_rows(*((tiles, rows) if out else (rows, tiles)))
            self.code.barrier()
            return
        n = p.offset.numel
        index = self.region(buffer.handle, "stage", u32, n)
        stage = self.region(buffer.handle, "stage", buffer.dtype, n * buffer.numel)
        self.copy_rows(self.layout.tensor(p.offset), self.region_span(index))
        if out:
            self.copy_rows(tiles, self.region_span(stage))
        self.code.barrier()
        words = (
            region.offset,
            row,
            self.regions[index].offset,
            self.regions[stage].offset,
            int(out),
        )
        self.code.emit(Op.REMOTE, *words, buffer.repeats << 32 | n)
        self.code.barrier()
        if not out:
            self.copy_rows(self.region_span(stage), tiles)
            self.code.barrier()

    def _host(self, call: HostCall) -> None:
        self.host_calls.append(call)
        self.code.emit(Op.HOST, 0, len(self.host_calls) - 1)
        self.code.barrier()

    def _out(self, name: str, kind: str, t: Tensor) -> int:
        """Copy a tensor to a new region."""
        number = self.region(name, kind, t.dtype, t.numel)
        self.copy_rows(self.layout.tensor(t), self.region_span(number))
        return number

    def step_host(self, s: Step, p: prg.Call) -> None:
        assert isinstance(p.function, HostFunction)
        self.begin(s)
        handle = p.function.handle
        ins = [self._out(handle, "host_call", t) for t in p.inputs]
        outs = [self.region(handle, "host_call", t.dtype, t.numel) for t in p.outputs]
        self.code.barrier()
        self._host(HostCall("call", handle, ins, outs))
        for number, t in zip(outs, p.outputs, strict=True):
            self.copy_rows(self.region_span(number), self.layout.tensor(t))
        self.code.barrier()

    def step_print(self, s: Step, p: prg.PrintTensor) -> None:
        self.begin(s)
        region = self._out(p.title, "print", p.tensor)
        self.code.barrier()
        self._host(HostCall("print", p.title, [region], [], (p.tensor.shape, p.fmt)))

    def step_cycles(self, s: Step, p: prg.CycleCount) -> None:
        self.begin(s)
        if not s.writes:
            self._host(HostCall("cycles_begin", p.name, detail=p.tile))
            return
        region = self.region(p.name, "host_call", u32, 2)
        self._host(HostCall("cycles_end", p.name, [], [region], p.tile))
        self.copy_rows(self.region_span(region), self.layout.tensor(p.tensor))
        self.code.barrier()

    def _message(self, s: Step, text: str, tensor: Tensor | None = None) -> int:
        region = -1
        if tensor is not None:
            region = self._out("error", "error", tensor)
            self.code.barrier()
        self.messages.append(Message(text, s.loc, region))
        return len(self.messages) - 1

    def step_error(self, s: Step, p: prg.ErrorProgram) -> None:
        self.begin(s)
        self.code.emit(Op.FAIL, self._message(s, p.message, p.tensor))

    def step_abort(self, s: Step, p: prg.Abort) -> None:
        self.begin(s)
        self.code.emit(Op.FAIL, self._message(s, p.message or "the program aborted"))

    def step_abort_if(self, s: Step, p: prg.AbortOnCondition) -> None:
        self.begin(s)
        number = self._message(s, p.message or "the condition for an abort holds")
        width = p.predicate.dtype.size
        self.code.emit(Op.ABORT_IF, self.layout.scalar(p.predicate), width, number)
        self.code.barrier()

    def step_sync(self, s: Step, p: prg.Sync) -> None:
        self.begin(s)

    def step_undef(self, s: Step, p: prg.WriteUndef) -> None:
        """Nothing to do: liveness knows."""

    def step_exchange_replicas(self, s: Step, p: prg.CrossReplicaCopy) -> None:
        self.begin(
            s, host_step(self.graph.target, s.name, "replicas", s.loc, p.src, self.plan.places)
        )
        here = self._out("across replicas", "stage", p.src)
        there = self._out("across replicas", "stage", p.dst)  # kept where no replica sends
        self.code.barrier()
        self.host_calls.append(HostCall("replicas", s.name, [here], [there], dict(p.replica_map)))
        self.code.emit(Op.ACROSS, len(self.host_calls) - 1)
        self.copy_rows(self.region_span(there), self.layout.tensor(p.dst))
        self.code.barrier()


def _inside(region: Region, tensor: Tensor, variable: Variable) -> Span:
    """A tensor's pieces as if its variable were laid out in order in a region."""
    start, length = tensor.runs()
    width = region.dtype.size
    return join(region.offset + (start - variable.base) * width, length * width)


def _scalar_of(p: prg.Program) -> Tensor:
    """The device scalar a branching program looks at."""
    if isinstance(p, prg.Switch):
        return p.control
    assert isinstance(p, (prg.If, prg.RepeatWhileTrue, prg.RepeatWhileFalse))
    return p.predicate


def _signed(value: int, width: int) -> int:
    """The value as a signed integer of ``width`` bytes (case values of unsigned types wrap)."""
    half = 1 << (8 * width - 1)
    return (value + half) % (2 * half) - half


def _share_range(plan: TilePlan, variable: int) -> Ints:
    var = plan.places.share_var
    return np.arange(np.searchsorted(var, variable), np.searchsorted(var, variable + 1), dtype=I8)


def _host_cost(cycles: Ints) -> Ints:
    return cycles + 16


def _again(info: StepInfo, s: Step) -> StepInfo:
    """The same costs under the name and line of another execution."""
    from dataclasses import replace

    return replace(info, name=s.name, loc=s.loc)


__all__ = ["POISON", "Emitter"]
