"""Copies that the host can take straight from a stream's region.

    copy stream "in" -> %x;  copy %x (another order) -> %y        x is read by nothing else

By default the host then fills y from the region and leaves x alone; device, plan and cycles are as
written, and faithful exchange makes both copies. The values of y are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from poplar_py.passes.liveness import Liveness
from poplar_py.passes.steps import LoopNode, Node, Seq, Step, StepTree, SwitchNode, WhileNode, bits
from poplar_py.poplar.program import Copy
from poplar_py.poplar.streams import DataStream
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.variable import Variable


@dataclass
class Forwards:
    """``streams``: stream steps whose variable is skipped; ``copies``: by copy step the stream its
    source comes from, and the variable."""

    streams: set[int] = field(default_factory=set[int])
    copies: dict[int, tuple[DataStream, Variable]] = field(
        default_factory=dict[int, tuple[DataStream, Variable]]
    )


def find_forwards(tree: StepTree, liveness: Liveness, variables: list[Variable]) -> Forwards:
    """All variables between a stream and copies that qualify."""
    readers: dict[int, list[Step]] = {}
    writers: dict[int, list[Step]] = {}
    for s in tree.steps:
        for v in bits(s.reads):
            readers.setdefault(v, []).append(s)
        for v in bits(s.writes):
            writers.setdefault(v, []).append(s)
    out = Forwards()
    roots = [*tree.programs, *tree.functions.values()]
    for sequence in (s for node in roots for s in _sequences(node)):
        steps = [n for n in sequence.nodes if isinstance(n, Step)]
        here = {s.id for s in steps}
        for s in steps:
            if s.kind == "stream":
                _consider(s, here, tree, liveness, variables, readers, writers, out)
    return out


def _consider(
    s: Step,
    here: set[int],
    tree: StepTree,
    liveness: Liveness,
    variables: list[Variable],
    readers: dict[int, list[Step]],
    writers: dict[int, list[Step]],
    out: Forwards,
) -> None:
    p = s.program
    if not isinstance(p, Copy) or not isinstance(p.src, DataStream):
        return
    assert isinstance(p.dst, Tensor)
    start, length = p.dst.runs()
    if len(start) != 1 or s.writes.bit_count() != 1:
        return
    v = s.writes.bit_length() - 1
    variable = variables[v]
    users = readers.get(v, [])
    if int(start[0]) != variable.base or int(length[0]) != variable.size:
        return
    if not users or writers[v] != [s] or liveness.between >> v & 1 or variable.always_live:
        return
    if any(u.id not in here or u.id < s.id or not _plain(u, v) for u in users):
        return
    last = max(u.id for u in users)
    if any(_uses(t, p.src) and t is not s and _between(t, s.id, last, tree) for t in tree.steps):
        return
    out.streams.add(s.id)
    for u in users:
        out.copies[u.id] = (p.src, variable)


def _plain(s: Step, v: int) -> bool:
    """A copy of this variable's elements only, to others."""
    return s.kind == "copy" and s.reads == 1 << v and not s.writes >> v & 1


def _uses(s: Step, stream: DataStream) -> bool:
    return isinstance(s.program, Copy) and stream in (s.program.src, s.program.dst)


def _between(s: Step, first: int, last: int, tree: StepTree) -> bool:
    """Whether a step may run between two others: text order, or anywhere in a function."""
    return first < s.id <= last or bool(tree.functions)


def _sequences(node: Node) -> list[Seq]:
    """All sequences in a node, itself included."""
    if isinstance(node, Seq):
        return [node, *(q for n in node.nodes for q in _sequences(n))]
    if isinstance(node, LoopNode):
        return _sequences(node.body)
    if isinstance(node, WhileNode):
        return [*_sequences(node.condition), *_sequences(node.body)]
    if isinstance(node, SwitchNode):
        inner = [q for _, case in node.cases for q in _sequences(case)]
        return [*inner, *_sequences(node.default)]
    return []
