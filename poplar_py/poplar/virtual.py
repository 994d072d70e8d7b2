"""VirtualGraph: some tiles of a graph under numbers of their own, as Poplar's createVirtualGraph.

It shares everything with its parent (variables, compute sets, streams, codelets); only tile
numbers differ. What already lies on tiles outside is seen without a tile here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.errors import InvalidTileMapping
from poplar_py.poplar.faults import fail, whole_numbers
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.mapping import TensorMapping
from poplar_py.poplar.vertex_ref import VertexRef

__all__ = ["VirtualGraph", "virtual_graph"]

_OWN = frozenset({"target", "_tiles", "_parent", "_to_parent", "_from_parent"})


class VirtualGraph(Graph):
    """Made by `virtual_graph`. ``target`` has the IPUs the tiles lie on, and only these tiles."""

    def __init__(self, parent: Graph, tiles: npt.NDArray[np.int32]) -> None:
        # every other attribute is the parent's: see __getattr__ and __setattr__
        per_ipu = parent.target.tiles_per_ipu
        ipus = len(np.unique(tiles // per_ipu))
        self._parent = parent
        self._to_parent = tiles
        self._from_parent = np.full(parent.num_tiles, -1, np.int32)
        self._from_parent[tiles] = np.arange(len(tiles), dtype=np.int32)
        self.target = replace(
            parent.target, num_ipus=ipus, tiles_per_ipu=max(1, len(tiles) // ipus)
        )
        self._tiles = len(tiles)

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:
            raise AttributeError(name)
        return getattr(self._parent, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._parent, name, value)

    def get_top_level_graph(self) -> Graph:
        """The graph this one is a part of."""
        return self._parent.get_top_level_graph()

    def _physical(self, tile: npt.NDArray[Any]) -> npt.NDArray[Any]:
        mapped = np.where(tile < 0, -1, self._to_parent[np.maximum(tile, 0)])
        return self._parent._physical(mapped)  # pyright: ignore[reportPrivateUsage]

    def _virtual_mapping(self, mapping: TensorMapping) -> TensorMapping:
        mapping = self._parent._virtual_mapping(mapping)  # pyright: ignore[reportPrivateUsage]
        local = self._from_parent[mapping.tile]
        keep = local >= 0
        return TensorMapping(mapping.begin[keep], mapping.end[keep], local[keep], self._tiles)

    def _map_whole(self, tensor: Any, tile: int) -> None:
        self._parent._map_whole(tensor, int(self._to_parent[self._one_tile(tile)]))  # pyright: ignore[reportPrivateUsage]

    def set_tile_mapping(self, what: Any, mapping: Any) -> None:
        if isinstance(what, VertexRef):
            mapping = int(self._to_parent[self._one_tile(mapping)])
            self._parent.set_tile_mapping(what, mapping)
            return
        super().set_tile_mapping(what, mapping)


def virtual_graph(
    parent: Graph, begin: int | Sequence[int], end: int | None = None
) -> VirtualGraph:
    """The tiles ``begin`` to ``end - 1`` of a graph, or the listed ones, as a graph.

    Raises InvalidTileMapping for tiles the parent does not have, and for one listed twice.
    """
    if isinstance(begin, (int, np.integer)):
        last = parent.num_tiles if end is None else end
        first, last = whole_numbers((begin, last), "the tiles of a graph", InvalidTileMapping)
        inside = 0 <= first < last <= parent.num_tiles
        tiles = np.arange(first, last if inside else first)
    else:
        tiles = np.array(whole_numbers(begin, "the tiles of a graph", InvalidTileMapping), np.int64)
    inside = len(tiles) and int(tiles.min()) >= 0 and int(tiles.max()) < parent.num_tiles
    if not inside or len(np.unique(tiles)) != len(tiles):
        fail(
            InvalidTileMapping,
            f"no virtual graph of these {len(tiles)} tiles",
            f"give distinct tiles from 0 to {parent.num_tiles - 1}",
        )
    return VirtualGraph(parent, tiles.astype(np.int32))
