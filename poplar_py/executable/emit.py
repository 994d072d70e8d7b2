"""From the step tree to step code: regions, tables and control flow; steps are `emit_steps`'."""

from __future__ import annotations

import numpy as np

from poplar_py.codegen.program_words import Op
from poplar_py.executable.code import Code
from poplar_py.executable.cycles import host_step
from poplar_py.executable.emit_steps import STEPS
from poplar_py.executable.executable import (
    ALL_MODES,
    FAITHFUL_MODE,
    HostCall,
    Message,
    Region,
    StepInfo,
    Table,
    find_region,
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
from poplar_py.executable.records import Records, by_kernel
from poplar_py.passes.plan_memory import LINE
from poplar_py.passes.plan_tiles import TilePlan
from poplar_py.passes.steps import CallNode, LoopNode, Node, Seq, Step, SwitchNode, WhileNode, bits
from poplar_py.poplar import program as prg
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import DType, u8

__all__ = ["POISON", "Emitter"]

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
        self.graph, self.plan, self.layout = graph, plan, layout
        self.code, self.groups = code, groups
        self.regions = regions
        self.tables: list[Table] = groups.tables
        self.steps: list[StepInfo] = []
        self.host_calls: list[HostCall] = []
        self.messages: list[Message] = []
        self.depth = 1
        self.arena_end = first_region
        self.forwards = find_forwards(plan.tree, plan.liveness, graph.variables)
        self.sets: dict[int, tuple[SetTables, StepInfo]] = {}  # by compute set: made once
        self.calls: dict[tuple[object, ...], list[int]] = {}  # copies around a compute set
        self._labels: dict[int, int] = {}
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
        return find_region(self.regions, kind, name)

    def records(self, r: Records, mode: int = ALL_MODES, stream: int = -1) -> bool:
        """Calls that carry out copy records; False when there are none. ``stream``: the one whose
        region holds all the sources."""
        for kernel, index, words in by_kernel(r):
            n = len(words)
            ptr = np.arange(n + 1, dtype=I8) * words.shape[1]
            cost = copy_cost(r)[index]
            self._call(f"copy:{kernel}", words, ptr, cost, mode, stream)
        return len(r) > 0

    def _call(
        self, kernel: str, words: Ints, ptr: Ints, cost: Ints, mode: int, stream: int = -1
    ) -> None:
        none = np.zeros(0, I8)
        order = plain_order(len(ptr) - 1)
        wide = self.groups.wide
        self.tables.append(Table(kernel, to_words(words, wide), ptr, order, cost, none, none))
        self.code.call_copy(len(self.tables) - 1, mode, stream)

    def copy_rows(self, src: Span, dst: Span, mode: int = ALL_MODES, stream: int = -1) -> None:
        """A copy between pieces, through a staging region where they overlap. No barrier after
        it. ``stream``: the one whose region holds the source."""
        if mode == FAITHFUL_MODE and not self.groups.faithful:
            return
        if not overlap(src, dst):
            self.records(copy_records(src, dst), mode, stream)
            return
        total = int(src[1].sum())
        stage = self.region_span(self.region("overlapping copy", "stage", u8, total))
        self.records(copy_records(src, stage), mode, stream)
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
        STEPS[s.kind](self, s, s.program)
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
