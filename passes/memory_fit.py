"""Whether a memory plan fits the tiles' two regions, and the error that says where it does not.

A tile's memory is one run of addresses in two regions (GC200: 208 KiB executable, 0x4C000 to
0x7FFFF, then 416 KiB interleaved, 0x80000 to 0xE7FFF; see `target.chips` for the sources).
Instructions run from the executable region only. Vertex state and data lie in either, so they take
what code leaves of the first region and all of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import Location, OutOfTileMemory
from poplar_py.passes.memory_items import Charges
from poplar_py.passes.memory_plan import Items
from poplar_py.poplar.arrays import Ints
from poplar_py.target.target import Target

if TYPE_CHECKING:
    from poplar_py.passes.plan_memory import MemoryPlan
    from poplar_py.poplar.variable import Variable

_MOST = 5
_REMEDY = (
    "use more tiles or IPUs, spread the largest variables over more tiles, or split the step with "
    "the largest live data"
)


def region_use(plan: MemoryPlan, target: Target) -> tuple[Ints, Ints]:
    """Bytes used of every tile's executable and interleaved region, int64[tiles] each: code, vertex
    state and data one after the other from the first address on."""
    limit = int(target.chip.code_bytes.value)
    executable = np.maximum(np.minimum(plan.total, limit), plan.code)
    return executable, plan.total - executable


def check_fit(plan: MemoryPlan, items: Items, charges: Charges, target: Target) -> None:
    """Raise OutOfTileMemory for the fullest tile; the error carries the plan as ``plan``."""
    limit = int(target.chip.code_bytes.value)
    over_code = plan.code > limit
    over = plan.total > target.bytes_per_tile
    if over_code.any():
        error = _code_error(plan, charges, target, limit, int(over_code.sum()))
    elif over.any():
        error = _memory_error(plan, items, target, int(over.sum()))
    else:
        return
    error.plan = plan  # type: ignore[attr-defined]
    raise error


def _code_error(
    plan: MemoryPlan, charges: Charges, target: Target, limit: int, tiles: int
) -> OutOfTileMemory:
    worst = int(np.argmax(plan.code))
    parts = [f"{name} {size:,} B" for name, size in charges.code_on(worst)[:_MOST]]
    return OutOfTileMemory(
        f"tile {worst} (IPU {worst // target.tiles_per_ipu}) has {int(plan.code[worst]):,} bytes "
        f"of code; instructions run only from the executable region of {limit:,} bytes. {tiles} "
        f"tile(s) are too full. Largest there: {', '.join(parts)}",
        remedy="let fewer kinds of vertices work on one tile: use more tiles or IPUs, or place "
        "small compute sets on other tiles",
    )


def _memory_error(plan: MemoryPlan, items: Items, target: Target, tiles: int) -> OutOfTileMemory:
    worst = int(np.argmax(plan.total))
    names, loc = _contributors(plan, items, worst)
    return OutOfTileMemory(
        f"tile {worst} (IPU {worst // target.tiles_per_ipu}) needs {int(plan.total[worst]):,} "
        f"bytes of {target.bytes_per_tile:,}; {tiles} tile(s) are too full. Largest there: {names}",
        loc,
        _REMEDY,
    )


def least_error(
    target: Target, tile: int, needed: int, parts: Sequence[tuple[Variable, int]]
) -> OutOfTileMemory:
    """The error of a tile that variables alive at one step overfill: ``parts`` are these and their
    bytes, largest first."""
    named = [_part(v.name, size, v.loc) for v, size in parts[:_MOST]]
    return OutOfTileMemory(
        f"tile {tile} (IPU {tile // target.tiles_per_ipu}) needs {needed:,} bytes of "
        f"{target.bytes_per_tile:,} for variables alone that are alive at the same time. Largest "
        f"there: {', '.join(named)}",
        parts[0][0].loc,
        _REMEDY,
    )


def _part(name: str, size: int, loc: Location) -> str:
    where = f" ({loc.short})" if loc.known else ""
    return f"{name} {size:,} B{where}"


def _contributors(plan: MemoryPlan, items: Items, tile: int) -> tuple[str, Location]:
    mine = np.flatnonzero(items.tile == tile)
    order = mine[np.argsort(-items.nbytes[mine], kind="stable")][:_MOST]
    parts: list[str] = []
    for e in order.tolist():
        i = int(items.item[e])
        parts.append(_part(items.names[i], int(items.nbytes[e]), items.locs[i]))
    for what, amount in (("code", plan.code), ("vertex state", plan.state)):
        if amount[tile]:
            parts.append(f"{what} {int(amount[tile]):,} B")
    loc = items.locs[int(items.item[order[0]])] if len(order) else Location("", 0, 0)
    return ", ".join(parts), loc
