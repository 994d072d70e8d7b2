"""plan-exchange: per compute set and copy, what every tile receives and sends, and where it lands.

Level: tile. Before: map-tiles. After it plan-memory gives every buffer its address.

Exchange comes before a compute set, so reads see old values. An edge is *local* when it is one
contiguous piece of its vertex's own tile memory; every other edge gets room in the compute set's
receive block of that tile. Equal contents are received once per tile; contiguous contents that
overlap (halos) are received once as their union; the same words go to several tiles at no cost for
the sender (multicast).

    vertices %cs3 reads w[0:4608] on tiles 0..7            (w lives on tile 5)
    -> item (tile t, w[0:4608]) for t in 0..7 except 5, one message 5 -> {0..4, 6, 7}

Everything is arithmetic over whole arrays: unique contents first, rows of unique contents only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poplar_py.passes.context import PassContext
from poplar_py.passes.exchange_items import (
    FieldPlan,
    FlatEdges,
    Records,
    plan_field,
    read_items,
    write_items,
)
from poplar_py.passes.exchange_traffic import (
    ContentItems,
    ContentPieces,
    Pieces,
    Traffic,
    add_traffic,
    content_bytes,
    read_traffic,
    write_traffic,
)
from poplar_py.passes.liveness import known_of
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.steps import StepTree, edge_fields, used_compute_sets
from poplar_py.passes.tile_module import Places, TileModule, align_up, tile_align
from poplar_py.poplar.arrays import (
    I8,
    Bools,
    Ints,
    first_of_each,
    ragged,
)
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.groups import ComputeSet

GroupFields = tuple[NDArray[np.int32], list[tuple[str, int, Edges]]]


@dataclass
class ComputePlan:
    """Exchange of one compute set: fields per group, items, the pieces that fill and drain them.

    ``item_tile``, ``item_at`` (byte offset in the tile's receive block), ``item_bytes`` int64[U];
    ``item_used`` bool[U]: some edge of it is not in one piece, so the host needs it even when it
    reads in place. ``block`` int64[tiles]: bytes of receive block.
    """

    groups: list[list[FieldPlan]]
    item_tile: Ints
    item_at: Ints
    item_bytes: Ints
    item_used: Bools
    block: Ints
    fetch: Pieces
    store: Pieces
    before: Traffic
    after: Traffic
    reads: set[int] = field(default_factory=set[int])
    writes: set[int] = field(default_factory=set[int])


@dataclass
class ExchangePlan:
    """Where everything is (`places`), what runs (`tree`, `used` compute sets by id), and the plan
    of every used compute set by id."""

    places: Places
    tree: StepTree
    used: list[ComputeSet]
    sets: dict[int, ComputePlan]


@register
@dataclass(frozen=True)
class PlanExchange(Pass):
    """Per compute set and copy: what every tile receives and sends, and where it lands."""

    name = "plan-exchange"
    level = "tile"
    after = ("map-tiles",)

    def run(self, module: TileModule, ctx: PassContext) -> bool:
        known = known_of(module)
        places, tree = known.places, known.tree
        used = used_compute_sets(tree)
        per_ipu = module.graph.target.tiles_per_ipu
        sets = {cs.id: plan_compute_set(places, group_fields(cs), per_ipu) for cs in used}
        module.results[self.name] = ExchangePlan(places, tree, used, sets)
        return True


def group_fields(cs: ComputeSet) -> list[GroupFields]:
    """Per group its tiles and its edge fields as (mode, bytes of an element, edges)."""
    return [(g.tiles, [(f.kind, f.dtype.size, e) for f, e in edge_fields(g)]) for g in cs.groups]


def plan_compute_set(places: Places, groups: list[GroupFields], tiles_per_ipu: int) -> ComputePlan:
    """Plan the exchange of a compute set: per group its tiles and its fields as
    (mode, bytes of an element, edges)."""
    ins, outs = FlatEdges(), FlatEdges()
    planned: list[list[FieldPlan]] = []
    for tiles, fields in groups:
        planned.append([plan_field(places, tiles, f, ins, outs) for f in fields])
    read = read_items(ins)
    written = write_items(outs, first=len(read.tile))
    tile = np.concatenate([read.tile, written.tile])
    content = np.concatenate([read.content, written.content + len(read.eptr) - 1])
    fetch_c = _content_pieces(places, read.eptr, read.records)
    store_c = _content_pieces(places, written.eptr, written.records)
    sizes = np.concatenate(
        [content_bytes(fetch_c, len(read.eptr) - 1), content_bytes(store_c, len(written.eptr) - 1)]
    )
    nbytes = sizes[content] if len(content) else np.zeros(0, I8)
    at, block = _layout(tile, nbytes, places.num_tiles)
    used = np.zeros(len(tile), np.bool_)
    for flat in (ins, outs):
        for plan, index in flat.owner:
            used[plan.item[index[plan.share[index] < 0]]] = True
    store = _expand(store_c, written.content, first=len(read.tile))
    inout = _inout_pieces(outs, written, store, len(read.tile))
    fetch = _expand(fetch_c, read.content, first=0)
    before = read_traffic(places, read, fetch_c, tiles_per_ipu)
    after = write_traffic(places, tile, store, tiles_per_ipu)
    if len(inout.item):
        add_traffic(before, write_traffic(places, tile, inout, tiles_per_ipu, reverse=True))
        fetch = Pieces(
            *(
                np.concatenate([getattr(fetch, k), getattr(inout, k)])
                for k in ("item", "at", "share", "place", "nbytes")
            )
        )
    return ComputePlan(planned, tile, at, nbytes, used, block, fetch, store, before, after)


def _content_pieces(places: Places, eptr: Ints, records: Records) -> ContentPieces:
    start, length, count, stride = records
    owner = np.repeat(np.arange(len(eptr) - 1, dtype=I8), np.diff(eptr))
    if len(count) and not (count == 1).all():
        w, q = ragged(count)
        owner, start, length = owner[w], start[w] + q * stride[w], length[w]
    if len(length) and not length.all():
        keep = length > 0
        owner, start, length = owner[keep], start[keep], length[keep]
    run, iv, s, n = places.atlas.split(start, length)
    c = owner if run is None else owner[run]
    width = places.width[iv]
    nbytes = n * width
    ptr = np.searchsorted(c, np.arange(len(eptr)), "left").astype(I8)
    total = np.cumsum(nbytes) - nbytes
    at = total - total[ptr[:-1]][c] if len(c) else total
    place = (places.atlas.loc[iv] + s - places.atlas.bounds[iv]) * width
    return ContentPieces(c, at, places.share[iv], place, nbytes, s, ptr)


def _layout(tile: Ints, nbytes: Ints, num_tiles: int) -> tuple[Ints, Ints]:
    """Items of a tile one after the other, aligned: (byte offset of each, block bytes per tile)."""
    if len(tile) == 0:
        return np.zeros(0, I8), np.zeros(num_tiles, I8)
    align = tile_align(nbytes)
    order = np.lexsort((-align, tile))  # widest alignment first: no gaps between
    padded = align_up(nbytes, align)[order]
    t = tile[order]
    total = np.cumsum(padded) - padded
    head = first_of_each(t)
    base = np.repeat(total[head], np.diff(np.append(head, len(t))))
    at = np.empty(len(tile), I8)
    at[order] = total - base
    block = np.zeros(num_tiles, I8)
    block[t[head]] = np.add.reduceat(padded, head)
    return at, block


def _expand(pieces: ContentPieces, content: Ints, first: int) -> Pieces:
    """Pieces of items from the pieces of their contents."""
    per = np.diff(pieces.ptr)[content] if len(content) else np.zeros(0, I8)
    i, k = ragged(per)
    p = pieces.ptr[:-1][content][i] + k if len(i) else i
    return Pieces(i + first, pieces.at[p], pieces.share[p], pieces.place[p], pieces.nbytes[p])


def _inout_pieces(flat: FlatEdges, written: ContentItems, store: Pieces, first: int) -> Pieces:
    """What must be fetched before the compute set because a written edge is also read."""
    both = np.zeros(len(written.tile), np.bool_)
    at = 0
    for plan, index in flat.owner:
        both[at : at + len(index)] = plan.mode == "inout"
        at += len(index)
    if not both.any():
        return Pieces.none()
    keep = both[store.item - first]
    return Pieces(
        store.item[keep], store.at[keep], store.share[keep], store.place[keep], store.nbytes[keep]
    )
