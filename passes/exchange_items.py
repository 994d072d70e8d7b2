"""Receive items of a compute set: which edges are in place, and what the others need.

Edges in one piece of their vertex's own tile memory are local. The rest become *items*: a content
(records) on a tile. Equal contents of a tile are one item; plain runs that overlap are one item,
their union; every written edge is an item of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poplar_py.passes.exchange_traffic import ContentItems
from poplar_py.passes.tile_module import Places
from poplar_py.poplar.arrays import I8, SPAN, Bools, Ints, offsets_of, ragged
from poplar_py.poplar.edges import Edges

Records = tuple[Ints, Ints, Ints, Ints]
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
_TILE_SPAN = 1 << 24


@dataclass
class FieldPlan:
    """Edges of one field (sub-edges for rank 2), E of them.

    ``share``, ``place`` int64[E]: share and byte offset in it of an edge in one piece, else -1.
    ``tile`` int64[E]: the vertex's tile. ``item`` int64[E]: its receive buffer item, -1 when local;
    ``shift`` int64[E]: byte offset in the item. ``size`` int64[E] elements, ``nbytes`` int64[E].
    """

    mode: str
    tile: Ints
    size: Ints
    nbytes: Ints
    share: Ints
    place: Ints
    item: Ints
    shift: Ints

    @property
    def placed(self) -> Bools:
        """Edges in one piece on one tile: the host may use them in place."""
        return (self.share >= 0) | (self.nbytes == 0)


def mix(*columns: Ints, seed: int = 0) -> NDArray[np.uint64]:
    """A 64-bit hash of integer columns, row by row."""
    h = np.full(len(columns[0]), 0x243F6A8885A308D3 + seed * 0x13198A2E03707345, np.uint64)
    for i, column in enumerate(columns):
        h = (h ^ column.astype(np.uint64)) * np.uint64(_MIX[(i + seed) % 4])
        h ^= h >> np.uint64(29)
        h *= np.uint64(_MIX[(i + 1 + seed) % 4])
        h ^= h >> np.uint64(32)
    return h


@dataclass
class FlatEdges:
    """Edges of all fields of a compute set that need items, with their records in CSR."""

    tile: list[Ints] = field(default_factory=list[Ints])
    eptr: list[Ints] = field(default_factory=list[Ints])
    records: list[Records] = field(default_factory=list[Records])
    owner: list[tuple[FieldPlan, Ints]] = field(default_factory=list[tuple[FieldPlan, Ints]])


def place_edges(places: Places, edges: Edges) -> tuple[Ints, Ints]:
    """(share, byte offset in it) of every edge that is one piece of one share, else (-1, 0)."""
    n = edges.num_edges
    share, place = np.full(n, -1, I8), np.zeros(n, I8)
    per = np.diff(edges.eptr)
    simple = per == 1
    if simple.all():
        record = None
        start, length, count = edges.start, edges.length, edges.count
        edge = np.arange(n, dtype=I8)
    else:
        edge = np.flatnonzero(simple)
        record = edges.eptr[:-1][edge]
        start, length, count = edges.start[record], edges.length[record], edges.count[record]
    bounds = places.atlas.bounds
    iv = np.searchsorted(bounds, start, "right") - 1
    one = (count == 1) & (bounds[iv + 1] >= start + length) & (places.share[iv] >= 0) & (length > 0)
    hit = edge[one]
    share[hit] = places.share[iv[one]]
    place[hit] = ((places.atlas.loc[iv] + start - bounds[iv]) * places.width[iv])[one]
    rest = np.flatnonzero(share < 0)
    rest = rest[edges.sizes()[rest] > 0] if len(rest) else rest
    if len(rest):
        _place_by_pieces(places, edges, rest, share, place)
    return share, place


def _place_by_pieces(places: Places, edges: Edges, rest: Ints, share: Ints, place: Ints) -> None:
    """Edges of several rows or intervals may still be contiguous in a tile's memory."""
    edge, start, length = _rows(edges, rest)
    keep = length > 0
    if not keep.all():
        edge, start, length = edge[keep], start[keep], length[keep]
    run, iv, s, n = places.atlas.split(start, length)
    e = edge if run is None else edge[run]
    at = (places.atlas.loc[iv] + s - places.atlas.bounds[iv]) * places.width[iv]
    sh = places.share[iv]
    new = np.ones(len(e), np.bool_)
    new[1:] = (
        (e[1:] != e[:-1]) | (sh[1:] != sh[:-1]) | (at[1:] != at[:-1] + (n * places.width[iv])[:-1])
    )
    first = np.flatnonzero(new)
    count = np.bincount(e[first], minlength=len(rest))
    whole = np.flatnonzero(count == 1)
    pos = np.full(len(rest), -1, I8)
    pos[e[first]] = first
    p = pos[whole]
    good = sh[p] >= 0
    share[rest[whole[good]]] = sh[p[good]]
    place[rest[whole[good]]] = at[p[good]]


def _rows(edges: Edges, index: Ints) -> tuple[Ints, Ints, Ints]:
    """(position in index, start, length) of every row of the listed edges, in order."""
    per = np.diff(edges.eptr)[index]
    e, k = ragged(per)
    r = edges.eptr[:-1][index][e] + k
    count = edges.count[r]
    if (count == 1).all():
        return e, edges.start[r], edges.length[r]
    w, q = ragged(count)
    return e[w], edges.start[r][w] + q * edges.stride[r][w], edges.length[r][w]


def plan_field(
    places: Places,
    tiles: NDArray[np.int32],
    fields: tuple[str, int, Edges],
    ins: FlatEdges,
    outs: FlatEdges,
) -> FieldPlan:
    mode, width, edges = fields
    share, place = place_edges(places, edges)
    tile = tiles.astype(I8)
    if edges.vptr is not None:
        tile = np.repeat(tile, np.diff(edges.vptr))
    size = edges.sizes()
    n = len(size)
    plan = FieldPlan(
        mode, tile, size, size * width, share, place, np.full(n, -1, I8), np.zeros(n, I8)
    )
    home = np.zeros(n, np.bool_)
    ok = share >= 0
    home[ok] = places.share_tile[share[ok]] == tile[ok]
    away = np.flatnonzero(~home & (size > 0))
    if len(away) == 0:
        return plan
    flat = ins if mode == "in" else outs
    per = np.diff(edges.eptr)[away]
    if len(away) == n:
        records = (edges.start, edges.length, edges.count, edges.stride)
    else:
        e, k = ragged(per)
        r = edges.eptr[:-1][away][e] + k
        records = (edges.start[r], edges.length[r], edges.count[r], edges.stride[r])
    flat.tile.append(tile[away])
    flat.eptr.append(per)
    flat.records.append(records)
    flat.owner.append((plan, away))
    return plan


def _join_flat(flat: FlatEdges) -> tuple[Ints, Ints, Records]:
    if not flat.tile:
        none = np.zeros(0, I8)
        return none, np.zeros(1, I8), (none, none, none, none)
    records = tuple(np.concatenate(c) for c in zip(*flat.records, strict=True))
    return np.concatenate(flat.tile), offsets_of(np.concatenate(flat.eptr)), records  # type: ignore[return-value]


def _signatures(eptr: Ints, records: Records) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Two independent 64-bit hashes of the records of every edge."""
    per = np.diff(eptr)
    start, length, count, stride = records
    stride = np.where(count > 1, stride, 0)
    if (per == 1).all():
        return mix(start, length, count, stride), mix(start, length, count, stride, seed=1)
    e, k = ragged(per)
    out: list[NDArray[np.uint64]] = []
    for seed in (0, 1):
        h = mix(k, start, length, count, stride, seed=seed)
        total = np.zeros(len(per), np.uint64)
        np.add.at(total, e, h)
        out.append(total)
    return out[0], out[1]


def _group_equal(
    key: NDArray[np.generic], second: NDArray[np.generic] | None = None
) -> tuple[Ints, Ints]:
    """(group of every row, first row of every group) of rows equal in the key, and in the second
    key where given (a sort by both is needed only when the first one collides)."""
    n = len(key)
    if n == 0:
        return np.zeros(0, I8), np.zeros(0, I8)
    order = np.argsort(key, kind="stable")
    new = np.ones(n, np.bool_)
    k = key[order]
    np.not_equal(k[1:], k[:-1], out=new[1:])
    if second is not None:
        k2 = second[order]
        if bool(((k2[1:] != k2[:-1]) & ~new[1:]).any()):
            order = np.lexsort((second, key))
            k, k2 = key[order], second[order]
            new[1:] = (k[1:] != k[:-1]) | (k2[1:] != k2[:-1])
    group = np.empty(n, I8)
    group[order] = np.cumsum(new) - 1
    return group, order[new]


def read_items(flat: FlatEdges) -> ContentItems:
    """Items of input edges: equal contents of a tile once, overlapping plain runs as their
    union."""
    tile, eptr, records = _join_flat(flat)
    s1, s2 = _signatures(eptr, records)
    content, first = _group_equal(s1, s2)
    per = np.diff(eptr)
    start, length, count, _ = records
    single = per == 1
    rec = eptr[:-1]
    plain = np.zeros(len(tile), np.bool_)
    plain[single] = count[rec[single]] == 1
    shift = np.zeros(len(tile), I8)  # elements
    joined = _unions(tile, rec, start, length, plain, shift)
    if joined is not None:
        return _finish_unions(flat, tile, eptr, records, content, plain, shift, joined)
    key = content * _TILE_SPAN + tile
    item, at = _group_equal(key)
    _store_items(flat, item, shift)
    return ContentItems(tile[at], content[at], *_take(eptr, records, first))


def _unions(
    tile: Ints, rec: Ints, start: Ints, length: Ints, plain: Bools, shift: Ints
) -> tuple[Ints, Ints, Ints] | None:
    """Plain runs of one tile that overlap without being equal: (edges, union start, union
    length)."""
    index = np.flatnonzero(plain)
    if len(index) < 2:
        return None
    s, n = start[rec[index]], length[rec[index]]
    key = tile[index] * SPAN + s
    order = np.argsort(key, kind="stable")
    k, e = key[order], (key + n)[order]
    reach = np.maximum.accumulate(e)
    new = np.ones(len(k), np.bool_)
    new[1:] = k[1:] >= reach[:-1]
    same = np.ones(len(k), np.bool_)
    same[1:] = ~new[1:] & (k[1:] == k[:-1]) & (e[1:] == e[:-1])
    if not (~new & ~same).any():
        return None
    head = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    ends = np.maximum.reduceat(e, head)
    base = k[head]
    shift[index[order]] = k - base[group]
    union_start = base % SPAN
    out_start, out_len = np.empty(len(k), I8), np.empty(len(k), I8)
    out_start[order], out_len[order] = union_start[group], (ends - base)[group]
    return index, out_start, out_len


def _finish_unions(
    flat: FlatEdges,
    tile: Ints,
    eptr: Ints,
    records: Records,
    content: Ints,
    plain: Bools,
    shift: Ints,
    joined: tuple[Ints, Ints, Ints],
) -> ContentItems:
    """Plain edges take their union as content; the others keep theirs."""
    index, start, length = joined
    zero, one = np.zeros(len(start), I8), np.ones(len(start), I8)
    group, first_plain = _group_equal(start, length)
    other = np.flatnonzero(~plain)
    sub, first_other = _group_equal(content[other])
    new = np.empty(len(tile), I8)
    new[index] = group
    new[other] = sub + len(first_plain)
    item, at = _group_equal(new * _TILE_SPAN + tile)
    _store_items(flat, item, shift)
    p1, r1 = (
        offsets_of(one[first_plain]),
        (start[first_plain], length[first_plain], one[first_plain], zero[first_plain]),
    )
    p2, r2 = _take(eptr, records, other[first_other])
    pointers = np.concatenate([p1, p2[1:] + p1[-1]])
    both = tuple(np.concatenate(c) for c in zip(r1, r2, strict=True))
    return ContentItems(tile[at], new[at], pointers, both)  # type: ignore[arg-type]


def _take(eptr: Ints, records: Records, index: Ints) -> tuple[Ints, Records]:
    per = np.diff(eptr)[index]
    e, k = ragged(per)
    r = eptr[:-1][index][e] + k
    return offsets_of(per), tuple(c[r] for c in records)  # type: ignore[return-value]


def _store_items(flat: FlatEdges, item: Ints, shift: Ints, first: int = 0) -> None:
    at = 0
    for plan, index in flat.owner:
        n = len(index)
        plan.item[index] = item[at : at + n] + first
        width = plan.nbytes[index] // np.maximum(plan.size[index], 1)
        plan.shift[index] = shift[at : at + n] * width
        at += n


def write_items(flat: FlatEdges, first: int) -> ContentItems:
    """Every written edge has an item of its own."""
    tile, eptr, records = _join_flat(flat)
    n = len(tile)
    _store_items(flat, np.arange(n, dtype=I8), np.zeros(n, I8), first)
    return ContentItems(tile, np.arange(n, dtype=I8), eptr, records)
