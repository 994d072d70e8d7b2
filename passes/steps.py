"""Programs as a tree of numbered steps: what liveness walks and what the executable is made from.

    Sequence(Execute(cs), Repeat(10, Copy(a, b)))  ->  Seq(step 0, Loop(10, Seq(step 1)))

Every occurrence of a leaf program is one `Step` with the variables it reads, writes and overwrites
as bit masks (bit v = variable v). Functions keep one body, shared by their calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poplar_py.diagnostics import Location
from poplar_py.poplar import program as prg
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.groups import ComputeSet, FieldLike, VertexGroup
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.variable import Variable


@dataclass
class Step:
    """A leaf. ``kind``: execute, copy, stream, remote, host, print, cycles, error, abort,
    abort_if, exchange_replicas, sync, undef, branch."""

    id: int
    kind: str
    program: prg.Program
    name: str
    loc: Location
    reads: int = 0
    writes: int = 0
    kills: int = 0
    partial: dict[int, tuple[Ints, Ints]] = field(default_factory=dict[int, tuple[Ints, Ints]])
    """Runs written of variables that are written in part, for joint coverage."""


@dataclass
class Seq:
    """Nodes one after the other."""

    nodes: list[Node]


@dataclass
class LoopNode:
    """``times`` rounds of the body; None: for ever."""

    times: int | None
    body: Node


@dataclass
class WhileNode:
    """Condition, test (a branch step), body, again. Goes on while the scalar is nonzero ==
    sense."""

    condition: Node
    test: Step
    body: Node
    sense: bool


@dataclass
class SwitchNode:
    """Cases by value of the scalar the test step reads; If is {nonzero: 1}."""

    test: Step
    cases: list[tuple[int, Node]]
    default: Node
    is_if: bool


@dataclass
class CallNode:
    """A shared function body."""

    function: int


Node = Step | Seq | LoopNode | WhileNode | SwitchNode | CallNode


@dataclass
class StepTree:
    """Programs by number, functions by id, all steps in text order."""

    programs: list[Node]
    functions: dict[int, Node]
    steps: list[Step]


def edge_fields(group: VertexGroup) -> list[tuple[FieldLike, Edges]]:
    """Edge fields of a group in declaration order, with their edges."""
    return [(f, group.edges[f.name]) for f in group.codelet.fields if f.kind != "state"]


class _Builder:
    def __init__(self, variables: list[Variable]) -> None:
        self.base = np.array([v.base for v in variables] or [0], I8)
        self.size = np.array([v.size for v in variables] or [0], I8)
        self.steps: list[Step] = []
        self.functions: dict[int, Node] = {}
        self._touch: dict[int, tuple[int, int, int, dict[int, tuple[Ints, Ints]]]] = {}

    # ------------------------------------------------------------ tree
    def node(self, p: prg.Program) -> Node:
        if isinstance(p, prg.Sequence):
            return Seq([self.node(q) for q in p.steps])
        if isinstance(p, prg.Block):
            return self.node(p.body)
        if isinstance(p, prg.Repeat):
            return LoopNode(p.times, self.node(p.body)) if p.times else Seq([])
        if isinstance(p, prg.Loop):
            return LoopNode(None, self.node(p.body))
        if isinstance(p, (prg.RepeatWhileTrue, prg.RepeatWhileFalse)):
            condition = self.node(p.condition)
            test = self.test(p, p.predicate)
            return WhileNode(condition, test, self.node(p.body), isinstance(p, prg.RepeatWhileTrue))
        if isinstance(p, prg.If):
            test = self.test(p, p.predicate)
            return SwitchNode(test, [(1, self.node(p.if_true))], self.node(p.if_false), True)
        if isinstance(p, prg.Switch):
            test = self.test(p, p.control)
            cases = [(v, self.node(q)) for v, q in p.cases]
            return SwitchNode(test, cases, self.node(p.default), False)
        if isinstance(p, prg.Call) and isinstance(p.function, Function):
            return self.call(p.function)
        if isinstance(p, prg.CycleCount):
            begin = self.step("cycles", p, p.name)
            body = [self.node(p.body)] if p.body is not None else []
            end = self.step("cycles", p, p.name)
            self.write(end, p.tensor)
            return Seq([begin, *body, end])
        return self.leaf(p)

    def call(self, function: Function) -> Node:
        if function.id not in self.functions:
            self.functions[function.id] = Seq([])
            self.functions[function.id] = self.node(function.program)
        return CallNode(function.id)

    def step(self, kind: str, p: prg.Program, name: str) -> Step:
        s = Step(len(self.steps), kind, p, name, p.loc)
        self.steps.append(s)
        return s

    def test(self, p: prg.Program, scalar: Tensor) -> Step:
        s = self.step("branch", p, p.name)
        self.read(s, scalar)
        return s

    def leaf(self, p: prg.Program) -> Node:
        if isinstance(p, prg.Execute):
            return self.execute(p)
        if isinstance(p, prg.Copy):
            return self.copy(p)
        if isinstance(p, prg.Call):
            assert isinstance(p.function, HostFunction)
            s = self.step("host", p, p.name or p.function.handle)
            for t in p.inputs:
                self.read(s, t)
            for t in p.outputs:
                self.write(s, t)
            return s
        if isinstance(p, prg.PrintTensor):
            s = self.step("print", p, p.name or p.title)
            self.read(s, p.tensor)
            return s
        if isinstance(p, prg.CrossReplicaCopy):
            s = self.step("exchange_replicas", p, p.name)
            self.read(s, p.src)
            self.read(s, p.dst)
            self.write(s, p.dst)
            return s
        if isinstance(p, prg.WriteUndef):
            s = self.step("undef", p, p.name)
            self.write(s, p.tensor)
            return s
        return self.stop(p)

    def stop(self, p: prg.Program) -> Node:
        if isinstance(p, prg.ErrorProgram):
            s = self.step("error", p, p.name)
            if p.tensor is not None:
                self.read(s, p.tensor)
            return s
        if isinstance(p, prg.AbortOnCondition):
            s = self.step("abort_if", p, p.name)
            self.read(s, p.predicate)
            return s
        if isinstance(p, prg.Abort):
            return self.step("abort", p, p.name)
        if isinstance(p, prg.Sync):
            return self.step("sync", p, p.name)
        return Seq([])

    def execute(self, p: prg.Execute) -> Step:
        cs = p.compute_set
        s = self.step("execute", p, p.name or cs.name)
        if cs.id not in self._touch:
            self._touch[cs.id] = self.touched(
                [(f.kind, e) for g in cs.groups for f, e in edge_fields(g)]
            )
        s.reads, s.writes, s.kills, s.partial = self._touch[cs.id]
        if p.predicate is not None:
            self.write(s, p.predicate)
        return s

    def copy(self, p: prg.Copy) -> Step:
        kind = {"tensor": "copy", "from_stream": "stream", "to_stream": "stream"}.get(
            p.kind, "remote"
        )
        s = self.step(kind, p, p.name or f"{_end_name(p.src)} -> {_end_name(p.dst)}")
        if isinstance(p.src, Tensor):
            self.read(s, p.src)
        if isinstance(p.dst, Tensor):
            self.write(s, p.dst)
        if p.offset is not None:
            self.read(s, p.offset)
        return s

    # ------------------------------------------------------------ variables
    def touched(
        self, fields: list[tuple[str, Edges]]
    ) -> tuple[int, int, int, dict[int, tuple[Ints, Ints]]]:
        n = len(self.base)
        read, wrote = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        total = np.zeros(n, I8)
        outs: list[tuple[Ints, Edges]] = []
        for kind, e in fields:
            if len(e.start) == 0:
                continue
            var = np.searchsorted(self.base, e.start, "right") - 1
            if kind != "out":
                read[var] = True
            if kind != "in":
                wrote[var] = True
                total += np.bincount(var, e.length * e.count, n).astype(I8)
                outs.append((var, e))
        full = (total >= self.size) & wrote & ~read
        partial: dict[int, tuple[Ints, Ints]] = {}
        for v in np.flatnonzero(wrote & ~read & ~full).tolist():
            partial[v] = _runs_of(v, outs)
        return _mask(read), _mask(wrote), _mask(full), partial

    def read(self, s: Step, t: Tensor) -> None:
        start, _ = t.runs()
        s.reads |= self.mask(start)

    def write(self, s: Step, t: Tensor) -> None:
        """A tensor is written whole; variables it covers are killed."""
        start, length = t.runs()
        if len(start) == 0:
            return
        var = np.searchsorted(self.base, start, "right") - 1
        total = np.bincount(var, length, len(self.base))
        wrote = total > 0
        s.writes |= _mask(wrote)
        full = _mask(wrote & (total >= self.size)) & ~s.reads
        s.kills |= full
        s.partial = dict(s.partial)
        for v in np.flatnonzero(wrote & (total < self.size)).tolist():
            if not s.reads >> v & 1:
                s.partial[v] = (start[var == v], length[var == v])

    def mask(self, start: Ints) -> int:
        hit = np.zeros(len(self.base), np.bool_)
        hit[np.searchsorted(self.base, start, "right") - 1] = True
        return _mask(hit)


def _runs_of(v: int, outs: list[tuple[Ints, Edges]]) -> tuple[Ints, Ints]:
    starts: list[Ints] = []
    lengths: list[Ints] = []
    for var, e in outs:
        pick = np.flatnonzero(var == v)
        owner = np.repeat(pick, e.count[pick])
        rank = np.arange(len(owner)) - np.repeat(
            np.cumsum(e.count[pick]) - e.count[pick], e.count[pick]
        )
        starts.append(e.start[owner] + rank * e.stride[owner])
        lengths.append(e.length[owner])
    return np.concatenate(starts), np.concatenate(lengths)


def _mask(hit: np.typing.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(hit, bitorder="little").tobytes(), "little")


def bits(mask: int) -> list[int]:
    """Positions of the set bits, ascending."""
    data = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(data, bitorder="little")).tolist()


def build_steps(
    variables: list[Variable],
    programs: list[prg.Program],
    host_writes: dict[str, Tensor] | None = None,
    host_reads: dict[str, Tensor] | None = None,
) -> StepTree:
    """The step tree of all programs; joint coverage of partial writes is turned into kills. Host
    access to tensors counts as programs of its own, after the given ones."""
    b = _Builder(variables)
    nodes = [b.node(p) for p in programs]
    for handle, tensor in (host_writes or {}).items():
        s = b.step("host_write", prg.Sequence(), handle)
        b.write(s, tensor)
        nodes.append(s)
    for handle, tensor in (host_reads or {}).items():
        s = b.step("host_read", prg.Sequence(), handle)
        b.read(s, tensor)
        nodes.append(s)
    for node in [*nodes, *b.functions.values()]:
        _joint_kills(node, b.size)
    return StepTree(nodes, b.functions, b.steps)


@dataclass
class _Open:
    """Partial writes of one variable that nothing has read yet."""

    first: Step
    start: list[Ints]
    length: list[Ints]


def _joint_kills(node: Node, size: Ints) -> None:
    """Where several steps of straight-line code together overwrite a variable before anything reads
    it, the first of them kills it."""
    opened: dict[int, _Open] = {}
    for s in _straight(node, size):
        if s is None:
            opened.clear()
            continue
        for v in [v for v in opened if (s.reads | s.kills) >> v & 1]:
            del opened[v]
        for v, (start, length) in s.partial.items():
            o = opened.setdefault(v, _Open(s, [], []))
            o.start.append(start)
            o.length.append(length)
            if sum(int(n.sum()) for n in o.length) >= size[v] and _covered(o) >= size[v]:
                o.first.kills |= 1 << v
                del opened[v]


def _straight(node: Node, size: Ints) -> list[Step | None]:
    """Steps in order with None wherever control flow joins or splits; inner bodies are handled
    too."""
    if isinstance(node, Step):
        return [node]
    if isinstance(node, Seq):
        return [s for n in node.nodes for s in _straight(n, size)]
    if isinstance(node, LoopNode):
        _joint_kills(node.body, size)
    elif isinstance(node, WhileNode):
        _joint_kills(node.condition, size)
        _joint_kills(node.body, size)
    elif isinstance(node, SwitchNode):
        for _, case in node.cases:
            _joint_kills(case, size)
        _joint_kills(node.default, size)
    return [None]


def _covered(o: _Open) -> int:
    start, length = np.concatenate(o.start), np.concatenate(o.length)
    order = np.argsort(start, kind="stable")
    s, e = start[order], (start + length)[order]
    reach = np.maximum.accumulate(e)
    before = np.append(s[:1], reach[:-1])
    return int(np.maximum(e - np.maximum(s, before), 0).sum())


def _end_name(end: Tensor | DataStream | RemoteBuffer) -> str:
    """What a copy without a name reads or writes: its variable, or the first of several."""
    if not isinstance(end, Tensor):
        return end.handle
    names = [v.name for v in end.variables()[:2]]
    return ", ".join([*names[:1], *["..."] * (len(names) > 1)])


def used_compute_sets(tree: StepTree) -> list[ComputeSet]:
    """Compute sets some program executes, by id."""
    found: dict[int, ComputeSet] = {}
    for s in tree.steps:
        if isinstance(s.program, prg.Execute):
            found[s.program.compute_set.id] = s.program.compute_set
    return [found[k] for k in sorted(found)]
