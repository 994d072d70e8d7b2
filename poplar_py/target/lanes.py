"""How long a tile computes: vertices shared out over its worker contexts.

Vertices go in order of addition to the worker lane that is free first; the six workers issue in
turn, one instruction each in six cycles, so a tile takes six times its longest lane. A MultiVertex
runs on all workers at once and its figure is tile cycles already: it adds to the tile's lanes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def tile_cycles(
    tile: npt.NDArray[np.integer],
    cycles: Ints,
    num_tiles: int,
    workers: int = 6,
    multi: npt.NDArray[np.bool_] | None = None,
) -> Ints:
    """Cycles of every tile, int64[num_tiles].

    ``tile`` and ``cycles`` [n] in order of addition: worker cycles of a Vertex, tile cycles where
    ``multi``.
    """
    total = np.zeros(num_tiles, np.int64)
    if multi is not None and bool(multi.any()):
        total += np.bincount(tile[multi], cycles[multi], num_tiles).astype(np.int64)
        tile, cycles = tile[~multi], cycles[~multi]
    if len(tile):
        total += workers * longest_lane(tile, cycles, num_tiles, workers)
    return total


def longest_lane(tile: npt.NDArray[np.integer], cycles: Ints, num_tiles: int, workers: int) -> Ints:
    """Worker cycles of every tile's longest lane."""
    order = np.argsort(tile, kind="stable")
    t, c = tile[order], cycles[order]
    per = np.bincount(t, minlength=num_tiles).astype(np.int64)
    first = np.cumsum(per) - per
    used = np.flatnonzero(per)
    high = np.zeros(num_tiles, np.int64)
    low = np.zeros(num_tiles, np.int64)
    high[used] = np.maximum.reduceat(c, first[used])
    low[used] = np.minimum.reduceat(c, first[used])
    out = -(-per // workers) * high  # exact where all vertices of a tile are equal
    few = per <= workers
    out[few] = high[few]
    uneven = np.flatnonzero(~few & (high != low))
    if len(uneven):
        out[uneven] = _fill(c, first[uneven], per[uneven], workers)
    return out


def _fill(cycles: Ints, first: Ints, per: Ints, workers: int) -> Ints:
    """Longest lane of some tiles, vertex by vertex (all tiles at once)."""
    by_size = np.argsort(-per, kind="stable")
    first, per = first[by_size], per[by_size]
    lanes = np.zeros((len(per), workers), np.int64)
    lanes[:] = cycles[first[:, None] + np.arange(workers)]
    alive = len(per)
    rows = np.arange(alive)
    for rank in range(workers, int(per[0])):
        while per[alive - 1] <= rank:
            alive -= 1
        lane = lanes[:alive].argmin(axis=1)
        lanes[rows[:alive], lane] += cycles[first[:alive] + rank]
    out = np.empty(len(per), np.int64)
    out[by_size] = lanes.max(axis=1)
    return out
