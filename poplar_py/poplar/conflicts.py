"""Conflicts in a compute set: an element two vertices write, or one writes and another reads.

Works on whole 2-D records first (bounding ranges), and expands rows only of records that meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poplar_py.poplar.arrays import Bools, Ints, as_ints, concat_ints, ragged, sort_order
from poplar_py.poplar.errors import WriteConflict
from poplar_py.poplar.groups import ComputeSet, VertexGroup
from poplar_py.poplar.where import source_text

__all__ = ["Conflict", "check_conflicts", "find_conflict"]


@dataclass
class _Records:
    """Records of several fields: bounds of each, and who they belong to (a vertex number in the
    whole compute set)."""

    start: Ints
    length: Ints
    count: Ints
    stride: Ints
    vertex: Ints

    @property
    def end(self) -> Ints:
        return self.start + self.length + (self.count - 1) * self.stride

    def take(self, index: Ints | Bools) -> _Records:
        return _Records(
            self.start[index],
            self.length[index],
            self.count[index],
            self.stride[index],
            self.vertex[index],
        )

    def rows(self) -> _Records:
        """One record per row."""
        if bool((self.count == 1).all()):
            return self
        r, k = ragged(self.count)
        one = np.ones(len(r), np.int64)
        start = self.start[r] + k * self.stride[r]
        return _Records(start, self.length[r], one, np.zeros_like(one), self.vertex[r])

    def sorted(self) -> _Records:
        order = sort_order(self.start)
        return self if order is None else self.take(order)


def _collect(groups: Sequence[VertexGroup], kinds: tuple[str, ...]) -> _Records:
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    first = 0
    for g in groups:
        for e in (g.edges[f.name] for f in g.codelet.fields if f.kind in kinds):
            parts.append((*e.records(), e.record_vertex() + first))
        first += g.n
    columns = [concat_ints([p[i] for p in parts]) for i in range(5)]
    found = _Records(*columns)
    filled = (found.length > 0) & (found.count > 0)
    return found if bool(filled.all()) else found.take(filled)


def check_conflicts(compute_set: ComputeSet) -> None:
    """No element written by two vertices, or written by one and read by another."""
    pair = find_conflict(compute_set.groups)
    if pair is None:
        return
    a, b, address, both = pair
    groups = compute_set.groups
    (ga, va), (gb, vb) = _owner(groups, a), _owner(groups, b)
    graph = compute_set.graph
    ids, bases = graph.locate_variables(as_ints([address]))
    variable, base = graph.variables[int(ids[0])], int(bases[0])
    element = f"element {address - base} of variable {variable.name!r}"
    first, second = ga.describe(va), gb.describe(vb)
    loc = gb.location(vb)
    raise WriteConflict(
        f"{element} is written by {first} and by {second}"
        if both
        else f"{element} is written by {first} and read by {second}",
        loc,
        "split the work over two compute sets, or give each vertex its own elements",
        source_text(loc),
    )


def _owner(groups: Sequence[VertexGroup], vertex: int) -> tuple[VertexGroup, int]:
    for g in groups:
        if vertex < g.n:
            return g, vertex
        vertex -= g.n
    raise IndexError(vertex)


Conflict = tuple[int, int, int, bool]
"""Two vertices (numbers in the compute set), an element address, and whether both write it."""


def find_conflict(groups: Sequence[VertexGroup]) -> Conflict | None:
    """The first conflict found, or None. A vertex may overlap itself."""
    writes = _collect(groups, ("out", "inout")).sorted()
    if len(writes.start) == 0:
        return None
    found = _double_write(writes)
    if found is not None:
        return found
    reads = _collect(groups, ("in",))
    return _read_of_write(writes, reads)


def _touching(r: _Records) -> Bools:
    """Of sorted records, those whose bounding ranges meet another's."""
    n = len(r.start)
    reach = np.maximum.accumulate(r.end)
    hit = np.zeros(n, np.bool_)
    if n < 2:
        return hit
    meets = r.start[1:] < reach[:-1]
    hit[1:] = meets
    cluster = np.cumsum(~np.concatenate([[False], meets]))
    hit |= np.bincount(cluster, hit, int(cluster[-1]) + 1)[cluster] > 0
    return hit


def _double_write(writes: _Records) -> Conflict | None:
    hit = _touching(writes)
    if not bool(hit.any()):
        return None
    rows = writes.take(hit).rows().sorted()
    overlap = rows.start[1:] < np.maximum.accumulate(rows.start + rows.length)[:-1]
    if not bool(overlap.any()):
        return None
    return _first_pair(rows, rows, both=True)


def _read_of_write(writes: _Records, reads: _Records) -> Conflict | None:
    """Reads whose bounding range meets a write of another vertex, then row by row."""
    if len(reads.start) == 0:
        return None
    reach = np.maximum.accumulate(writes.end)
    a = np.searchsorted(reach, reads.start, "right")
    b = np.searchsorted(writes.start, reads.end, "left")
    many = b - a
    own = (many == 1) & (writes.vertex[np.minimum(a, len(writes.vertex) - 1)] == reads.vertex)
    candidates = (many > 0) & ~own
    if not bool(candidates.any()):
        return None
    return _first_pair(writes.rows().sorted(), reads.take(candidates).rows(), both=False)


_CHUNK = 1 << 20


def _first_pair(a: _Records, b: _Records, both: bool) -> Conflict | None:
    """A row of ``a`` (sorted) and a row of ``b`` of different vertices that share an element."""
    a_end, b_end = a.start + a.length, b.start + b.length
    reach = np.maximum.accumulate(a_end)
    first = np.searchsorted(reach, b.start, "right")
    last = np.searchsorted(a.start, b_end, "left")
    many = np.maximum(last - first, 0)
    total = np.cumsum(many)
    begin = 0
    while begin < len(many):  # bounded memory, however many rows meet
        done = int(total[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(total, done + _CHUNK, "right")), begin + 1)
        j, rank = ragged(many[begin:end])
        j = j + begin
        i = first[j] + rank
        clash = (a.vertex[i] != b.vertex[j]) & (a_end[i] > b.start[j]) & (a.start[i] < b_end[j])
        if bool(clash.any()):
            k = int(np.argmax(clash))
            x, y = int(i[k]), int(j[k])
            address = max(int(a.start[x]), int(b.start[y]))
            return int(a.vertex[x]), int(b.vertex[y]), address, both
        begin = end
    return None
