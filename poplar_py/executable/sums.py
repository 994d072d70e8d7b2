"""Partial sums that the host adds up where the first of them lies.

    %cs1: p0 = products of part 0, p1 = products of part 1, ...       a vertex each
    %cs2: y = finish(p0 + p1 + ...)

The host gives all parts of a block to one thread, which runs them in order: the first stores p0,
the others add theirs to it (as a residual), and %cs2 has one part left to read. The sums are the
same, (p0 + p1) + p2 ..., so the bits are; device, plan and cycles are as written, and faithful
exchange runs the vertices as planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poplar_py.codelets import get
from poplar_py.codelets.codelet import Codelet
from poplar_py.executable.layout import Layout
from poplar_py.executable.tables import FieldWords, Order, find_order
from poplar_py.passes.exchange_items import FieldPlan
from poplar_py.passes.plan_tiles import TilePlan
from poplar_py.passes.steps import Step
from poplar_py.poplar.arrays import I8, Ints, offsets_of, ragged
from poplar_py.poplar.groups import ComputeSet, VertexGroup
from poplar_py.poplar.program import Execute
from poplar_py.poplar.variable import Variable

__all__ = ["Adding", "Sums", "find_sums"]

REDUCERS = {"poplin::ReduceBlock": "part"}
"""Codelets that add up a list of runs in its order, and the list."""
PRODUCERS = ("poplin::ConvBlock<float,", "poplin::MatMulBlock<float,")
"""Codelets that sum in f32: `...,0,true>` stores the sums, `...,0,false>` adds `res` before."""
PLAIN, FINISHED = ",0,true>", ",0,false>"
LEAST_SHARES = 8
"""Shares of the work that threads can have, at least: parts of a block stay together."""


@dataclass
class Adding:
    """A group of vertices that add: their codelet on the host, ``out`` int64[edges] addresses,
    ``res`` and what stays ``together`` on a thread (see Table)."""

    codelet: Codelet
    out: Ints
    res: FieldWords
    together: NDArray[np.int32]


@dataclass
class Sums:
    """By compute set and number of a group: vertices that add, and the one part that is left."""

    adding: dict[int, dict[int, Adding]] = field(default_factory=dict[int, dict[int, Adding]])
    left: dict[int, dict[int, FieldWords]] = field(default_factory=dict[int, dict[int, FieldWords]])


@dataclass
class _Parts:
    """Runs of partial sums by address: where each starts and ends, where the first part of its
    block lies, and which part it is."""

    start: Ints
    nbytes: Ints
    first: Ints
    number: Ints


def find_sums(plan: TilePlan, layout: Layout, variables: list[Variable]) -> Sums:
    """All compute sets of the program whose sums qualify."""
    out = Sums()
    sets = {
        s.program.compute_set.id: s.program.compute_set
        for s in plan.tree.steps
        if isinstance(s.program, Execute)
    }
    for cs in sets.values():
        if cs.groups and all(_list_of(g) for g in cs.groups):
            _consider(cs, sets, plan, layout, variables, out)
    return out


def _consider(
    cs: ComputeSet,
    sets: dict[int, ComputeSet],
    plan: TilePlan,
    layout: Layout,
    variables: list[Variable],
    out: Sums,
) -> None:
    """Enter a reducing compute set and those that make its parts, if all of them qualify."""
    parts = _parts(cs, plan, layout)
    makers = None if parts is None else _makers(cs, plan, variables)
    if parts is None or makers is None:
        return
    adding: dict[int, dict[int, Adding]] = {}
    covered = 0
    for number in makers:
        adding[number] = {}
        for k, g in enumerate(sets[number].groups):
            if g.n == 0:
                continue
            f = _field(plan, sets[number], k, "out")
            found = _adding(g, f, layout, parts)
            if found is None:
                return
            adding[number][k] = found
            covered += int(f.nbytes.sum())
    if covered != int(parts.nbytes.sum()):
        return
    out.adding |= adding
    out.left[cs.id] = {k: _one_left(cs, k, plan, layout) for k in range(len(cs.groups))}


def _list_of(g: VertexGroup) -> str:
    return REDUCERS.get(g.codelet.name.partition("<")[0], "")


def _field(plan: TilePlan, cs: ComputeSet, k: int, name: str) -> FieldPlan:
    names = [f.name for f in cs.groups[k].codelet.fields if f.kind != "state"]
    return plan.exchange[cs.id].groups[k][names.index(name)]


def _makers(cs: ComputeSet, plan: TilePlan, variables: list[Variable]) -> list[int] | None:
    """The compute sets that write the parts, if nothing but them and ``cs`` touches those."""
    base = np.array([v.base for v in variables], I8)
    starts = np.concatenate([g.edges[_list_of(g)].start for g in cs.groups])
    mask = 0
    found: list[int] = np.unique(np.searchsorted(base, starts, "right") - 1).tolist()
    for v in found:
        if plan.liveness.between >> v & 1 or variables[v].always_live:
            return None
        mask |= 1 << v
    makers: set[int] = set()
    for s in plan.tree.steps:
        if not (s.reads | s.writes) & mask:
            continue
        number = _plain_execute(s)
        if number is None or bool(s.writes & mask) == (number == cs.id):
            return None
        if s.writes & mask:
            if s.reads & mask or s.writes & ~mask:
                return None
            makers.add(number)
    return sorted(makers)


def _plain_execute(s: Step) -> int | None:
    """The compute set of a step that executes one and asks for no consensus."""
    p = s.program
    return p.compute_set.id if isinstance(p, Execute) and p.predicate is None else None


def _address(layout: Layout, f: FieldPlan) -> Ints | None:
    """Addresses of a field's edges when all of them are in place."""
    if not (f.share >= 0).all():
        return None
    return layout.share_addr[f.share] + f.place


def _parts(cs: ComputeSet, plan: TilePlan, layout: Layout) -> _Parts | None:
    """All runs a compute set adds up, if they are in place and alike in each list."""
    columns: list[Ints] = []
    for k, g in enumerate(cs.groups):
        f = _field(plan, cs, k, _list_of(g))
        address, vptr = _address(layout, f), g.edges[_list_of(g)].vptr
        if address is None or vptr is None or not (np.diff(vptr) > 1).all():
            return None
        owner, rank = ragged(np.diff(vptr))
        head = vptr[:-1][owner]
        if (f.nbytes != f.nbytes[head]).any():
            return None
        columns.append(np.stack([address, f.nbytes, address[head], rank]))
    found = np.concatenate(columns, 1)
    found = found[:, np.argsort(found[0], kind="stable")]
    parts = _Parts(*found)
    return parts if (parts.start[1:] >= (parts.start + parts.nbytes)[:-1]).all() else None


def _adding(g: VertexGroup, f: FieldPlan, layout: Layout, parts: _Parts) -> Adding | None:
    """The vertices of a group as ones that add to the first part of their block."""
    name: str = g.codelet.name
    address, vptr = _address(layout, f), g.edges["out"].vptr
    known = name.startswith(PRODUCERS) and name.endswith(PLAIN)
    if not known or address is None or vptr is None or not g.codelet.builtin:
        return None
    at = np.searchsorted(parts.start, address, "right") - 1
    if (at < 0).any() or (address + f.nbytes > (parts.start + parts.nbytes)[at]).any():
        return None
    number, out = parts.number[at], parts.first[at] + address - parts.start[at]
    owner, _ = ragged(np.diff(vptr))
    part = number[vptr[:-1]]
    if (number != part[owner]).any():
        return None
    together = _together(find_order(g.order, g.n), owner, out, number)
    if together is None:
        return None
    more = part > 0
    res = FieldWords(
        out[more[owner]], f.size[more[owner]], offsets_of(np.where(more, np.diff(vptr), 0))
    )
    return Adding(get(name.removesuffix(PLAIN) + FINISHED), out, res, together)


def _together(order: Order, owner: Ints, out: Ints, number: Ints) -> NDArray[np.int32] | None:
    """What stays on one thread, by place in ``order.split``; None where a thread would not run the
    parts of each ``out`` in their order, or where too few shares are left."""
    n = len(order.split)
    place = np.empty(n, I8)
    place[order.split] = np.arange(n)
    by = np.lexsort((order.rank[owner], out))
    head = np.flatnonzero(np.diff(out[by], prepend=-1))
    count = np.diff(np.append(head, len(by)))
    if (number[by] != np.arange(len(by)) - np.repeat(head, count)).any():
        return None
    places = place[owner[by]]
    held = np.zeros(n + 1, I8)  # by cut: how many blocks it would part
    np.add.at(held, np.minimum.reduceat(places, head) + 1, 1)
    np.add.at(held, np.maximum.reduceat(places, head) + 1, -1)
    free = np.cumsum(held)[:n] == 0
    free[0] = False
    together = np.cumsum(free).astype(np.int32)
    return together if int(together[-1]) + 1 >= LEAST_SHARES else None


def _one_left(cs: ComputeSet, k: int, plan: TilePlan, layout: Layout) -> FieldWords:
    """The first part of every list."""
    g = cs.groups[k]
    name = _list_of(g)
    f, vptr = _field(plan, cs, k, name), g.edges[name].vptr
    address = _address(layout, f)
    assert address is not None
    assert vptr is not None
    head = vptr[:-1]
    return FieldWords(address[head], f.size[head], np.arange(len(vptr), dtype=I8))
