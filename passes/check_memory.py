"""check-memory: refuses a program whose variables alone are too much for some tile.

Level: tile. Before: map-tiles. Planning the exchange of a program far too large takes long, and
only plan-memory finds out that it does not fit. What is known before is the least a tile needs: at
every step, the shares of the variables alive there. Receive buffers, code and vertex state come on
top, so that what is refused here never fits, and what passes may still be refused by plan-memory.

    var %h: f32[1048576,256] ... alive together with %x on tile 3   ->   OutOfTileMemory

Tiles whose shares fit even if all were alive at once need no look, and of the others the fullest
tell enough. What is worked out on the way (places, steps, liveness) serves the passes that follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poplar_py.passes.context import PassContext
from poplar_py.passes.liveness import Known, known_of
from poplar_py.passes.memory_fit import least_error
from poplar_py.passes.memory_items import live_matrix
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.tile_module import Places, TileModule
from poplar_py.poplar.arrays import I8, Bools, Ints

__all__ = ["CheckMemory", "check_memory"]

_TILES = 64
"""Tiles looked at: those with the most bytes of all variables together."""


@register
@dataclass(frozen=True)
class CheckMemory(Pass):
    """Refuses a program whose variables alone are too much for some tile."""

    name = "check-memory"
    level = "tile"
    after = ("map-tiles",)

    def run(self, module: TileModule, ctx: PassContext) -> bool:
        """Raises OutOfTileMemory, whose ``least`` int64[tiles] is what the tiles looked at need."""
        check_memory(module, known_of(module))
        module.results[self.name] = True
        return False


def check_memory(module: TileModule, known: Known) -> None:
    """Raises OutOfTileMemory for a tile that the variables alive at some step overfill."""
    graph, places = module.graph, known.places
    limit = graph.target.bytes_per_tile
    total = np.bincount(places.share_tile, places.share_bytes, places.num_tiles).astype(I8)
    full = np.argsort(-total, kind="stable")[:_TILES]
    full = full[total[full] > limit]
    if not len(full):
        return
    live = live_matrix(known.liveness, len(graph.variables), len(known.tree.steps))
    least, step = _heaviest(places, live, full)
    if not (least > limit).any():
        return
    worst = int(np.argmax(least))
    tile = int(full[worst])
    shares = np.flatnonzero(places.share_tile == tile)
    shares = shares[live[places.share_var[shares], step[worst]]]
    order = shares[np.argsort(-places.share_bytes[shares], kind="stable")]
    parts = [(graph.variables[int(places.share_var[s])], int(places.share_bytes[s])) for s in order]
    error = least_error(graph.target, tile, int(least[worst]), parts)
    error.least = np.bincount(full, least, places.num_tiles).astype(I8)  # type: ignore[attr-defined]
    raise error


def _heaviest(places: Places, live: Bools, tiles: Ints) -> tuple[Ints, Ints]:
    """(bytes alive, number of the step) of the heaviest step of each of some tiles."""
    column = np.full(places.num_tiles, -1, I8)
    column[tiles] = np.arange(len(tiles))
    mine = np.flatnonzero(column[places.share_tile] >= 0)
    sizes = np.zeros((len(tiles), len(live)))
    sizes[column[places.share_tile[mine]], places.share_var[mine]] = places.share_bytes[mine]
    used = np.flatnonzero(sizes.any(axis=0))
    load = sizes[:, used] @ live[used].astype(np.float64)
    return load.max(axis=1).astype(I8), load.argmax(axis=1)
