"""plan-memory: an offset for every share of every variable and every receive block.

Level: tile. Before: plan-exchange, liveness. Two things that are never live at the same step may
lie in the same bytes; lifetimes are the same on all tiles, sizes are not. So one loop over the
things (variables, receive blocks) places each on all tiles at once: first fit below what it meets,
largest first. Tiles with equal sizes are planned once. Other orders are tried for tiles that end
up above the live-load bound where that matters, and every tile keeps its best.

    tile memory:  code | vertex state | always live ...... | live now and then ......
                  executable region ............... | interleaved region ............

Instructions run from the executable region only, so code comes first and must fit there; everything
else lies in either region. Which of the two `memory_fit.region_use` tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poplar_py.passes.context import PassContext
from poplar_py.passes.exchange_items import mix
from poplar_py.passes.memory_fit import check_fit
from poplar_py.passes.memory_items import charged_bytes, collect_items
from poplar_py.passes.memory_plan import Items, MemoryPlan
from poplar_py.passes.plan_exchange import ExchangePlan
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.tile_module import TileModule, align_up, tile_align
from poplar_py.poplar.arrays import I8, Bools, Ints, first_of_each

LINE = 64
_FAR = np.int64(1 << 60)
_STEPS_AT_ONCE = 256


@register
@dataclass(frozen=True)
class PlanMemory(Pass):
    """An offset for every share of every variable and every receive block."""

    name = "plan-memory"
    level = "tile"
    after = ("plan-exchange", "liveness")
    allow_out_of_memory: bool = False

    def run(self, module: TileModule, ctx: PassContext) -> bool:
        """Raises OutOfTileMemory, whose ``plan`` is the plan, unless that is allowed."""
        target = module.graph.target
        exchange: ExchangePlan = module.results["plan-exchange"]
        items, blocks, states = collect_items(module, exchange, module.results["liveness"])
        charges = charged_bytes(exchange, target.num_tiles)
        plan = plan_memory(items, target.num_tiles, charges.code, charges.state)
        module.results[self.name] = PlacedMemory(items, plan, blocks, states)
        if not self.allow_out_of_memory:
            check_fit(plan, items, charges, target)
        return True


@dataclass
class PlacedMemory:
    """``blocks``: item number of each compute set's receive block by compute set id; ``states``:
    item number of stored vertex state by (compute set id, group number)."""

    items: Items
    plan: MemoryPlan
    blocks: dict[int, int]
    states: dict[tuple[int, int], int]


def plan_memory(items: Items, num_tiles: int, code: Ints, state: Ints) -> MemoryPlan:
    """Place all items; does not judge whether they fit (`memory_fit.check_fit`)."""
    at = np.zeros(len(items.item), I8)
    size = np.where(items.nbytes > 0, align_up(items.nbytes, 8), 0)
    align = tile_align(items.nbytes)
    fixed = items.always[items.item]
    at_fixed, always = _pack(items.tile[fixed], size[fixed], align[fixed], num_tiles)
    at[fixed] = at_fixed
    touched = np.asarray(items.live.any(axis=1))
    used = touched[items.item]  # what no step touches gets no memory
    moving = np.flatnonzero(~fixed & used & (size > 0))
    floor = align_up(always, LINE)
    bound, live_bytes = _bounds(items, moving, size, num_tiles)
    top = np.zeros(num_tiles, I8)
    if len(moving):
        off, top = _place(items, moving, size, num_tiles, bound)
        at[moving] = off + floor[items.tile[moving]]
    data = np.where(top > 0, floor + top, always)
    lines = align_up(data, LINE) // LINE
    stride = (lines | 1) * LINE
    stride[data == 0] = 0
    base = np.cumsum(stride) - stride
    live_bytes = live_bytes + int(size[fixed].sum())
    return MemoryPlan(
        at, data, bound + always, always, code, state, base, int(stride.sum()), live_bytes
    )


def _pack(tile: Ints, size: Ints, align: Ints, num_tiles: int) -> tuple[Ints, Ints]:
    """Entries one after the other on each tile, widest alignment first."""
    used = np.zeros(num_tiles, I8)
    if len(tile) == 0:
        return np.zeros(0, I8), used
    order = np.lexsort((-align, tile))
    t = tile[order]
    n = align_up(size[order], np.minimum(align[order], LINE))
    total = np.cumsum(n) - n
    head = first_of_each(t)
    base = np.repeat(total[head], np.diff(np.append(head, len(t))))
    at = np.empty(len(tile), I8)
    at[order] = total - base
    used[t[head]] = np.add.reduceat(n, head)
    return at, used


@dataclass
class _Classes:
    """Tiles with the same sizes of all items share a column: ``of`` int64[tiles] (-1: empty),
    ``size``, ``align`` int64[items, classes] for the moving items, listed in ``items``."""

    of: Ints
    items: Ints
    row: Ints
    size: Ints


def _classes(items: Items, moving: Ints, size: Ints, num_tiles: int) -> _Classes:
    item, tile, n = items.item[moving], items.tile[moving], size[moving]
    signature = np.zeros(num_tiles, np.uint64)
    np.add.at(signature, tile, mix(item, n))
    used = np.zeros(num_tiles, np.bool_)
    used[tile] = True
    tiles = np.flatnonzero(used)
    order = np.argsort(signature[tiles], kind="stable")
    first = first_of_each(signature[tiles][order].view(I8))
    of = np.full(num_tiles, -1, I8)
    rank = np.zeros(len(order), I8)
    rank[first] = 1
    of[tiles[order]] = np.cumsum(rank) - 1
    head = tiles[order][first]
    ids = item[first_of_each(item)]
    row = np.searchsorted(ids, item)
    keep = head[of[tile]] == tile
    table = np.zeros((len(ids), len(head)), I8)
    table[row[keep], of[tile[keep]]] = n[keep]
    return _Classes(of, ids, row, table)


def _bounds(items: Items, moving: Ints, size: Ints, num_tiles: int) -> tuple[Ints, Ints]:
    """(heaviest step of the moving items per tile, bytes of all tiles per step)."""
    steps = items.live.shape[1]
    bound = np.zeros(num_tiles, I8)
    if len(moving) == 0 or steps == 0:
        return bound, np.zeros(steps, I8)
    c = _classes(items, moving, size, num_tiles)
    count = np.bincount(c.of[c.of >= 0], minlength=c.size.shape[1])
    weights = c.size.astype(np.float64)
    best = np.zeros(c.size.shape[1])
    totals = np.zeros(steps)
    for a in range(0, steps, _STEPS_AT_ONCE):
        live = items.live[c.items, a : a + _STEPS_AT_ONCE].T.astype(np.float64)
        load = live @ weights
        best = np.maximum(best, load.max(axis=0))
        totals[a : a + _STEPS_AT_ONCE] = load @ count
    some = c.of >= 0
    bound[some] = best[c.of[some]].astype(I8)
    return bound, totals.astype(I8)


def _place(
    items: Items, moving: Ints, size: Ints, num_tiles: int, bound: Ints
) -> tuple[Ints, Ints]:
    """(offset per moving entry, bytes used per tile), best of several orders."""
    c = _classes(items, moving, size, num_tiles)
    live = items.live[c.items].astype(np.float32)
    meets = (live @ live.T) > 0
    length = live.sum(axis=1)
    first = np.where(live.any(axis=1), live.argmax(axis=1), 0)
    largest = c.size.max(axis=1)
    orders = [
        np.lexsort((first, -length, -largest)),
        np.lexsort((first, -largest, -length)),
        np.lexsort((-largest, first)),
    ]
    off = _first_fit(c.size, meets, orders[0])
    top = (off + c.size).max(axis=0)
    least = np.zeros(c.size.shape[1], I8)
    least[c.of[c.of >= 0]] = bound[c.of >= 0]
    goal = int(least.max(initial=0))
    for order in orders[1:]:
        bad = np.flatnonzero(top > np.maximum(least, goal))
        if len(bad) == 0:
            break
        other = _first_fit(c.size[:, bad], meets, order)
        peak = (other + c.size[:, bad]).max(axis=0)
        better = peak < top[bad]
        off[:, bad[better]] = other[:, better]
        top[bad[better]] = peak[better]
    used = np.zeros(num_tiles, I8)
    some = c.of >= 0
    used[some] = top[c.of[some]]
    return off[c.row, c.of[items.tile[moving]]], used


def _first_fit(size: Ints, meets: Bools, order: NDArray[np.intp]) -> Ints:
    """Offsets int64[items, columns]: every item at the lowest place free of what it meets."""
    at = np.zeros_like(size)
    align = tile_align(size.ravel()).reshape(size.shape)
    done: list[int] = []
    for i in order.tolist():
        columns = np.flatnonzero(size[i])
        if len(columns) == 0:
            continue
        others = [j for j in done if meets[i, j]]
        if others:
            at[i, columns] = _lowest(
                at[others][:, columns],
                size[others][:, columns],
                size[i, columns],
                align[i, columns],
            )
        done.append(i)
    return at


def _lowest(at: Ints, size: Ints, need: Ints, align: Ints) -> Ints:
    """Lowest aligned gap of ``need`` bytes between blocks; arrays [blocks, columns]."""
    at = np.where(size > 0, at, 0)
    order = np.argsort(at, axis=0, kind="stable")
    begin = np.take_along_axis(at, order, 0)
    end = np.maximum.accumulate(begin + np.take_along_axis(size, order, 0), axis=0)
    place = np.vstack([np.zeros_like(need)[None], align_up(end, align[None])])
    limit = np.vstack([begin, np.full_like(need, _FAR)[None]])
    fits = place + need <= limit
    return np.take_along_axis(place, fits.argmax(axis=0)[None], 0)[0]
