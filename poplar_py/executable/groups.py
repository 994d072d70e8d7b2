"""Vertex tables of compute sets, from exchange plans and addresses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.rows import row_layout
from poplar_py.executable.executable import Initial, Table
from poplar_py.executable.layout import Layout, copy_records
from poplar_py.executable.records import Records
from poplar_py.executable.sums import Sums
from poplar_py.executable.tables import (
    FieldWords,
    fill_rows,
    find_order,
    store_state,
)
from poplar_py.passes.exchange_items import FieldPlan
from poplar_py.passes.exchange_traffic import Pieces
from poplar_py.passes.plan_tiles import TilePlan
from poplar_py.poplar.arrays import I8, Bools, Ints
from poplar_py.poplar.groups import ComputeSet, StateVectors, VertexGroup

MAX_COST = (1 << 31) - 1


@dataclass
class SetTables:
    """Tables of a compute set: numbers of the vertex tables, and the copies around them. ``fetch``,
    ``store``: what the host needs when it reads in place; ``all_fetch``, ``all_store``:
    faithful. ``instead``: tables that the host runs for some of the vertex tables by default."""

    vertices: list[int]
    fetch: Records
    store: Records
    all_fetch: Records
    all_store: Records
    instead: dict[int, int] = field(default_factory=dict[int, int])


@dataclass
class GroupBuilder:
    """Makes each compute set's tables once, and keeps the codelets by digest."""

    plan: TilePlan
    layout: Layout
    wide: bool
    faithful: bool
    sums: Sums = field(default_factory=Sums)
    codelets: list[Codelet] = field(default_factory=list[Codelet])
    tables: list[Table] = field(default_factory=list[Table])
    initial: list[Initial] = field(default_factory=list[Initial])
    _index: dict[str, int] = field(default_factory=dict[str, int])

    def codelet(self, codelet: Codelet) -> int:
        """Number of a codelet."""
        found = self._index.get(codelet.digest)
        if found is None:
            found = self._index[codelet.digest] = len(self.codelets)
            self.codelets.append(codelet)
        return found

    def compute_set(self, cs: ComputeSet, cost: list[Ints]) -> SetTables:
        """Tables of a compute set; ``cost`` int64[n] host cost per vertex of each group."""
        plan = self.plan.exchange[cs.id]
        block = self.layout.block_addr.get(cs.id)
        item_addr = plan.item_at if block is None else plan.item_at + block[plan.item_tile]
        numbers: list[int] = []
        instead: dict[int, int] = {}
        for k, g in enumerate(cs.groups):
            if g.n == 0:
                continue
            self.tables.append(self._group(cs, k, g, plan.groups[k], item_addr, cost[k]))
            numbers.append(len(self.tables) - 1)
            other = self._other_form(cs, k, numbers[-1], g, plan.groups[k])
            if other is not None:
                self.tables.append(other)
                instead[numbers[-1]] = len(self.tables) - 1
        fetch = self._copies(plan.fetch, item_addr, plan.item_used, to_item=True)
        store = self._copies(plan.store, item_addr, plan.item_used, to_item=False)
        every = np.ones(len(plan.item_used), np.bool_)
        if self.faithful:
            all_fetch = self._copies(plan.fetch, item_addr, every, to_item=True)
            all_store = self._copies(plan.store, item_addr, every, to_item=False)
        else:
            all_fetch, all_store = fetch, store
        return SetTables(numbers, fetch, store, all_fetch, all_store, instead)

    def _copies(self, p: Pieces, item_addr: Ints, wanted: Bools, *, to_item: bool) -> Records:
        pick = np.flatnonzero(wanted[p.item]) if len(p.item) else np.zeros(0, I8)
        item = item_addr[p.item[pick]] + p.at[pick]
        home = self.layout.share_addr[p.share[pick]] + p.place[pick]
        n = p.nbytes[pick]
        return copy_records((home, n), (item, n)) if to_item else copy_records((item, n), (home, n))

    def _group(
        self,
        cs: ComputeSet,
        number: int,
        g: VertexGroup,
        fields: list[FieldPlan],
        item_addr: Ints,
        cost: Ints,
    ) -> Table:
        layout = row_layout(g.codelet.fields, self.wide)
        edges: dict[str, FieldWords] = {}
        buffered: dict[str, Ints] = {}
        for name, plan in zip(_edge_names(g), fields, strict=True):
            default, faithful = _addresses(self.layout, plan, item_addr)
            edges[name] = FieldWords(default, plan.size, g.edges[name].vptr)
            buffered[name] = faithful
        self._stored(cs, number, g, edges)
        even = layout.variable and g.codelet.looks_ahead
        rows = fill_rows(layout, g.n, edges, _literals(g), even=even)
        at: list[Ints] = []
        to: list[Ints] = []
        for name, faithful in buffered.items():
            differs = np.flatnonzero(faithful != edges[name].address)
            at.append(rows.where[name][differs])
            to.append(faithful[differs])
        return Table(
            kernel=f"vertex:{self.codelet(g.codelet)}",
            words=rows.words,
            ptr=rows.ptr,
            order=find_order(g.order, g.n),
            cost=np.minimum(cost, MAX_COST),
            patch_at=np.concatenate(at) if at and self.faithful else np.zeros(0, I8),
            patch_to=np.concatenate(to) if to and self.faithful else np.zeros(0, I8),
            tiles=g.tiles,
            group=cs.name,
            locs=g.locs or [g.loc],
            loc_of=g.loc_index if g.locs else None,
        )

    def _other_form(
        self, cs: ComputeSet, k: int, number: int, g: VertexGroup, fields: list[FieldPlan]
    ) -> Table | None:
        """The table that adds sums where they lie (see `sums`) in the place of table ``number``."""
        adding = self.sums.adding.get(cs.id, {}).get(k)
        left = self.sums.left.get(cs.id, {}).get(k)
        if adding is None and left is None:
            return None
        block = self.layout.block_addr.get(cs.id)
        plan = self.plan.exchange[cs.id]
        item_addr = plan.item_at if block is None else plan.item_at + block[plan.item_tile]
        edges: dict[str, FieldWords] = {}
        for name, f in zip(_edge_names(g), fields, strict=True):
            address, _ = _addresses(self.layout, f, item_addr)
            edges[name] = FieldWords(address, f.size, g.edges[name].vptr)
        planned, codelet = self.tables[number], g.codelet
        if adding is not None:
            codelet, edges["res"] = adding.codelet, adding.res
            edges["out"] = replace(edges["out"], address=adding.out)
        else:
            assert left is not None
            edges["part"] = left
        layout = row_layout(codelet.fields, self.wide)
        rows = fill_rows(layout, g.n, edges, _literals(g), even=codelet.looks_ahead)
        none = np.zeros(0, I8)
        return replace(
            planned,
            kernel=f"vertex:{self.codelet(codelet)}",
            words=rows.words,
            ptr=rows.ptr,
            patch_at=none,
            patch_to=none,
            together=None if adding is None else adding.together,
            stands_for=number,
        )

    def _stored(
        self, cs: ComputeSet, number: int, g: VertexGroup, edges: dict[str, FieldWords]
    ) -> None:
        """Addresses of assigned state and state vectors, and their first contents."""
        fields = [
            (f.name, f.dtype, f.rank)
            for f in g.codelet.fields
            if f.kind == "state" and not f.literal
        ]
        if not fields:
            return
        stored = store_state(fields, g.state, g.n)
        base = self.layout.state_addr.get((cs.id, number))
        order = np.argsort(g.tiles, kind="stable")
        size = stored.nbytes[order]
        total = np.cumsum(size) - size
        first = np.searchsorted(g.tiles[order], g.tiles[order], "left")
        at = np.empty(g.n, I8)
        at[order] = total - total[first]
        if base is not None:
            at += base[g.tiles]
        for name, _, _ in fields:
            edges[name] = FieldWords(at + stored.at[name], stored.size[name])
        if stored.image.any():
            self.initial.append(Initial(f"state of {cs.name}", stored.image, at, stored.nbytes))


def _edge_names(g: VertexGroup) -> list[str]:
    return [f.name for f in g.codelet.fields if f.kind != "state"]


def _literals(g: VertexGroup) -> dict[str, Any]:
    """State that stands in the rows."""
    return {
        f.name: g.state[f.name]
        for f in g.codelet.fields
        if f.literal and f.name in g.state and not isinstance(g.state[f.name], StateVectors)
    }


def _addresses(layout: Layout, plan: FieldPlan, item_addr: Ints) -> tuple[Ints, Ints]:
    """(in place where possible, through buffers) addresses of a field's edges."""
    n = len(plan.size)
    buffer = np.zeros(n, I8)
    away = plan.item >= 0
    buffer[away] = item_addr[plan.item[away]] + plan.shift[away]
    default = buffer.copy()
    placed = plan.share >= 0
    default[placed] = layout.share_addr[plan.share[placed]] + plan.place[placed]
    faithful = np.where(away, buffer, default)
    return default, faithful
