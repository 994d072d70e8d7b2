"""Questions about a tensor's tiles, and tile numbers moved to spread work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = [
    "dim_is_split_over_ipus",
    "dim_is_split_over_tiles",
    "inv_transform_tile_index",
    "transform_tile_index",
]


def _split(graph: Graph, t: Tensor, dim: int, tiles_each: int) -> bool:
    rows = t.dim_roll(dim, t.rank - 1)
    size = rows.shape[-1]
    if size < 2 or t.numel == 0:
        return False
    found = graph.get_tile_mapping(rows.flatten())
    unit = np.repeat(found.tile // tiles_each, found.end - found.begin).reshape(-1, size)
    return bool((unit != unit[:, :1]).any())


def dim_is_split_over_tiles(graph: Graph, t: Tensor, dim: int) -> bool:
    """Whether elements that differ only in `dim` lie on several tiles. Every element mapped."""
    return _split(graph, t, dim, 1)


def dim_is_split_over_ipus(graph: Graph, t: Tensor, dim: int) -> bool:
    """Whether elements that differ only in `dim` lie on several IPUs. Every element mapped."""
    return _split(graph, t, dim, graph.target.tiles_per_ipu)


def transform_tile_index(tile: int, num_tiles: int, offset: int, ascending: bool = True) -> int:
    """Where work of `tile` goes when counting starts at `offset`, upwards or downwards."""
    tile += offset
    return tile % num_tiles if ascending else num_tiles - 1 - tile % num_tiles


def inv_transform_tile_index(tile: int, num_tiles: int, offset: int, ascending: bool = True) -> int:
    """The tile that `transform_tile_index` took to `tile`."""
    tile = tile if ascending else num_tiles - 1 - tile
    return (tile - offset) % num_tiles
