"""Where vertices go: near the data they read, unless that piles them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.mapping import Mapping
from poplar_py.poputil.layout import mapping_of

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["interval_mapping", "place_near", "spread_tiles"]

Ints = npt.NDArray[np.int64]
Tiles = npt.NDArray[np.int32]
WORKERS = 6
STRIDE = 97
"""Tiles that the beginning of small steps moves on with every compute set."""


def spread_tiles(graph: Graph, count: int) -> Tiles:
    """Tiles for `count` vertices of equal work, in order, evenly over the machine.

    Few vertices lie on neighbouring tiles of one IPU; where they begin moves on with the graph, so
    that small steps do not all put their code and data on the same tiles.
    """
    tiles = graph.num_tiles
    index = np.arange(count, dtype=np.int64)
    if count > tiles:
        return (index * tiles // count).astype(np.int32)
    room = min(tiles, graph.target.tiles_per_ipu) - count
    start = STRIDE * len(graph.compute_sets) % (room + 1) if room > 0 else 0
    return (index + start).astype(np.int32)


def place_near(graph: Graph, flat: Tensor, first: Ints) -> Tiles:
    """The tile of element `first[v]` of a flattened tensor for every vertex v.

    Spread evenly instead when some tile would get much more than its share.
    """
    count = len(first)
    tile = mapping_of(graph, flat).tile_at(first)
    load = np.bincount(tile)
    fair = -(-count // graph.num_tiles)
    if int(load.max()) > max(2 * WORKERS, 2 * fair) or int((load > 0).sum()) * 8 < min(
        count, graph.num_tiles
    ):
        return spread_tiles(graph, count)
    return tile.astype(np.int32)


def interval_mapping(size: Ints, tile: Tiles) -> Mapping:
    """Consecutive intervals of the given sizes, one per vertex, each on its vertex's tile."""
    bounds = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=bounds[1:])
    return Mapping(bounds, tile).normal()
