"""Reads the compute sets of tile-level ``.pir``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.diagnostics import UNKNOWN, Location, ParseError, UnknownName
from poplar_py.poplar.arrays import I8, Ints, offsets_of
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.groups import (
    ComputeSet,
    State,
    StateVectors,
    VertexGroup,
    check_edges,
)

if TYPE_CHECKING:
    from poplar_py.poplar.tile_reader import Reader

MAX_VERTICES = 1 << 26


def read_compute_set(r: Reader, cs: ComputeSet) -> None:
    """The block of a compute set, braces included."""
    t = r.t
    t.want("{")
    while not t.take("}"):
        t.want("vertices")
        cs.ready.append(_group(r, cs))


def _group(r: Reader, cs: ComputeSet) -> VertexGroup:
    t = r.t
    where = t.here()
    codelet = r.library.get(t.string())
    if codelet is None:
        raise UnknownName("no codelet of that name follows", where)
    n = t.integer(0, MAX_VERTICES)
    name = t.string() if t.take("name") else ""
    t.want("tiles")
    tiles = t.sized_ints(n, "tiles")
    if n and not -1 <= int(tiles.min()) <= int(tiles.max()) < r.graph.target.num_tiles:
        raise ParseError("a tile the target does not have", where)
    t.want("{")
    edges: dict[str, Edges] = {}
    for f in (f for f in codelet.fields if f.kind != "state"):
        found = t.name()
        if found != f.name:
            t.fail(f"field {f.name!r} is wanted, found {found!r}")
        edges[f.name] = _edges(r, f, n)
    state: dict[str, State] = {}
    fields = {f.name: f for f in codelet.fields if f.kind == "state"}
    while t.take("state"):
        field = t.name()
        if field not in fields or field in state:
            t.fail(f"{codelet.name} has no more state {field!r}")
        state[field] = _state(r, fields[field], n)
    edges = check_edges(cs.graph, codelet, edges, n)
    group = VertexGroup(
        cs, codelet, tiles.astype(np.int32), edges, state, None, name, UNKNOWN, np.zeros(n, I8)
    )
    _extras(r, cs, group)
    t.want("}")
    group.loc = t.location()
    return group


def _edges(r: Reader, f: Any, n: int) -> Edges:
    t = r.t
    where = t.here()
    var = None if t.take("*") else r.var_of()
    vptr: Ints | None = None
    edges = n
    if f.rank == 2:
        t.want("subs")
        vptr = _pointer(t.sized_ints(n, "subs"), where)
        edges = int(vptr[-1])
    per = t.sized_ints(edges, "recs") if t.take("recs") else np.ones(edges, I8)
    eptr = _pointer(per, where)
    records = int(eptr[-1])
    if var is None:
        ids = t.sized_ints(records, "vars") if t.take("vars") else np.zeros(records, I8)
    else:
        ids = np.full(records, var.id, I8)
    t.want("at")
    start = t.sized_ints(records, "at")
    t.want("len")
    length = t.sized_ints(records, "len")
    count, stride = np.ones(records, I8), np.zeros(records, I8)
    if t.take("rows"):
        count = t.sized_ints(records, "rows")
        t.want("step")
        stride = t.sized_ints(records, "step")
    if bool(((length < 0) | (count < 0) | (stride < 0)).any()):
        raise ParseError("a record of negative size", where)
    limit = 1 << 40
    if bool(((length > limit) | (count > limit) | (stride > limit)).any()):
        raise ParseError("a record of impossible size", where)
    rows = np.maximum(count - 1, 0)
    if bool((rows.astype(np.float64) * stride > limit).any()):
        raise ParseError("a record of impossible size", where)
    extent = np.where((count == 0) | (length == 0), 0, length + rows * stride)
    start = r.addresses(ids, start, extent, where)
    return Edges(f.rank, vptr, eptr, (start, length, count, stride), f.dtype)


def _pointer(counts: Ints, where: Location) -> Ints:
    """CSR pointer of counts, which must not be negative or huge."""
    if bool(((counts < 0) | (counts > MAX_VERTICES)).any()) or int(counts.sum()) > MAX_VERTICES:
        raise ParseError("a count that is negative or too large", where)
    return offsets_of(counts)


def _state(r: Reader, f: Any, n: int) -> State:
    t = r.t
    if not t.take("vectors"):
        if f.rank:
            t.fail(f"state {f.name!r} is a vector")
        return t.values(n, f.dtype, f"state {f.name!r}")
    where = t.here()
    ptr = _pointer(t.sized_ints(n, "sizes of vectors"), where)
    return StateVectors(ptr, t.values(int(ptr[-1]), f.dtype, f"state {f.name!r}"))


def _extras(r: Reader, cs: ComputeSet, g: VertexGroup) -> None:
    t, n = r.t, g.n
    g.seq = np.arange(n, dtype=I8)
    if t.take("seq"):
        found = t.ints()
        if len(found) != n and len(found) != 1:
            t.fail(f"seq has {len(found)} numbers for {n} vertices")
        g.seq = found if len(found) == n and n != 1 else found[0] + np.arange(n, dtype=I8)
    cs.next = max(cs.next, int(g.seq.max(initial=-1)) + 1)
    if t.take("order"):
        g.order = _order(r, n)
    if t.take("perf"):
        g.perf = t.sized_ints(n, "perf")
    if t.take("flops"):
        g.flops = t.sized_ints(n, "flops")
    if t.take("lines"):
        _lines(r, g)


def _lines(r: Reader, g: VertexGroup) -> None:
    """Where vertices come from: numbers of lines, and the lines."""
    t = r.t
    index = t.sized_ints(g.n, "lines")
    t.want("[")
    locs: list[Location] = []
    while not t.take("]"):
        if not t.take("none") and t.kind != "loc":
            t.fail("loc(...) or none is wanted")
        locs.append(t.location())
        t.take(",")
    if g.n and not 0 <= int(index.min()) <= int(index.max()) < len(locs):
        t.fail("a line number that is not in the list")
    g.locs, g.loc_index = locs, index.astype(np.int32)


def _order(r: Reader, n: int) -> Ints:
    t = r.t
    dims = t.integer(1, 2)
    t.want("[")
    columns: list[Ints] = []
    while not t.take("]"):
        columns.append(t.sized_ints(n, "order"))
        t.take(",")
    if not columns or (dims == 1 and len(columns) != 1):
        t.fail("order without columns")
    return columns[0] if dims == 1 else np.stack(columns, axis=1)
