"""map-tiles: give every element that has no tile one, and refuse vertices without a tile.

Level: tile. Elements nobody mapped are spread evenly in address order over all tiles, as
poputil's ``mapTensorLinearly`` does (in chunks of at least 32 elements):

    var %x: f32[4096]            ->    var %x: f32[4096] map linear(tiles 0 to 127, grain 32)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poplar_py.passes.context import PassContext
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.tile_module import TileModule
from poplar_py.poplar.arrays import I8
from poplar_py.poplar.errors import InvalidTileMapping
from poplar_py.poplar.groups import VertexGroup
from poplar_py.poplar.mapping import Mapping, linear
from poplar_py.poplar.variable import Variable


@register
@dataclass(frozen=True)
class MapTiles(Pass):
    """Give every element that has no tile one; refuse vertices without a tile."""

    name = "map-tiles"
    level = "tile"

    def run(self, module: TileModule, ctx: PassContext) -> bool:
        module.results.clear()
        module.results[self.name] = True
        return map_tiles(module) > 0


def map_tiles(module: TileModule) -> int:
    """Map what is unmapped; returns the number of variables changed."""
    graph = module.graph
    changed = 0
    for variable in graph.variables:
        if variable.size and (variable.mapping.tile < 0).any():
            variable.mapping = complete_mapping(variable, graph.target.num_tiles)
            changed += 1
    for cs in graph.compute_sets:
        for group in cs.groups:
            check_vertices(group, graph.target.num_tiles)
    return changed


def complete_mapping(variable: Variable, num_tiles: int) -> Mapping:
    """The variable's mapping with its unmapped elements spread linearly."""
    m = variable.mapping
    free = m.tile < 0
    length = np.diff(m.bounds)
    total = int(length[free].sum())
    spread = linear(total, num_tiles)
    order = np.cumsum(np.where(free, length, 0)) - np.where(free, length, 0)
    bounds: list[np.ndarray] = []
    tiles: list[np.ndarray] = []
    for i in range(len(m.tile)):
        lo, hi = int(m.bounds[i]), int(m.bounds[i + 1])
        if not free[i]:
            bounds.append(np.array([lo], I8))
            tiles.append(m.tile[i : i + 1])
            continue
        a, b = int(order[i]), int(order[i]) + hi - lo
        j = int(np.searchsorted(spread.bounds, a, "right")) - 1
        k = int(np.searchsorted(spread.bounds, b, "left"))
        cuts = np.maximum(spread.bounds[j:k], a) - a + lo
        bounds.append(cuts)
        tiles.append(spread.tile[j:k])
    bounds.append(m.bounds[-1:])
    return Mapping(np.concatenate(bounds), np.concatenate(tiles)).normal()


def check_vertices(group: VertexGroup, num_tiles: int) -> None:
    """Raise InvalidTileMapping for the first vertex that is on no tile of the target."""
    bad = (group.tiles < 0) | (group.tiles >= num_tiles)
    if bad.any():
        v = int(np.argmax(bad))
        raise InvalidTileMapping(
            f"{group.describe(v)}: the target has tiles 0 to {num_tiles - 1}",
            group.location(v),
            "set_tile_mapping(vertex, tile)",
        )
