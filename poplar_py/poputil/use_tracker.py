"""TensorUseTracker: maps tensors to the tiles that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Mapping
from poplar_py.poplar.arrays import I8, ragged
from poplar_py.poplar.faults import fail
from poplar_py.poputil.blocked import variable_ids

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["TensorUseTracker"]

Ints = npt.NDArray[np.int64]


class TensorUseTracker:
    """Remembers which tile uses which elements; then gives every element one of its users."""

    def __init__(self, num_tiles: int) -> None:
        self.num_tiles = num_tiles
        self._start: list[Ints] = []
        self._length: list[Ints] = []
        self._tile: list[Ints] = []

    def add(self, tile: int, tensor: Tensor) -> None:
        """`tile` uses all elements of the tensor. Raises OptionError for a tile out of range."""
        if not 0 <= tile < self.num_tiles:
            fail(OptionError, f"tile {tile} of {self.num_tiles}", remedy="tiles count from 0")
        start, length = tensor.runs()
        self._start.append(start)
        self._length.append(length)
        self._tile.append(np.full(len(start), tile, I8))

    def merge(self, other: TensorUseTracker) -> None:
        """Take over the uses that another tracker remembers."""
        self._start += other._start
        self._length += other._length
        self._tile += other._tile

    @property
    def empty(self) -> bool:
        """Whether nothing has been used yet."""
        return not any(len(s) for s in self._start)

    def map_tensors_by_use(
        self,
        graph: Graph,
        grain_size: int = 1,
        min_elements_per_tile: int = 1,
        extend_partial_usage: bool = False,
    ) -> None:
        """Map every used element to one of the tiles that use it.

        Elements with several users are shared among them in whole grains, at least
        `min_elements_per_tile` on each. Elements without users stay as they are; with
        `extend_partial_usage` those of a variable that is used in part go to the tile of the used
        element before them (or after, at its beginning). Raises OptionError for counts under 1.
        """
        if grain_size < 1 or min_elements_per_tile < 1:
            fail(OptionError, "a grain and a least number of elements are 1 or more")
        if self.empty:
            return
        step = -(-min_elements_per_tile // grain_size) * grain_size
        start, end, tile = self._shares(step)
        users, number = np.unique(tile, return_inverse=True)
        physical = [graph.convert_virtual_tile_to_physical_tile(t) for t in users.tolist()]
        tile = np.array(physical, I8)[number]
        owner = variable_ids(graph, start)
        for v in np.unique(owner).tolist():
            mine = owner == v
            _map(graph, v, (start[mine], end[mine], tile[mine]), extend_partial_usage)

    def _shares(self, step: int) -> tuple[Ints, Ints, Ints]:
        """Disjoint ascending intervals of addresses with the tile each goes to."""
        low, tile = np.concatenate(self._start), np.concatenate(self._tile)
        high = low + np.concatenate(self._length)
        cuts = np.unique(np.concatenate([low, high]))
        first, last = np.searchsorted(cuts, low), np.searchsorted(cuts, high)
        use, rank = ragged(last - first)
        pairs = np.unique(np.stack([first[use] + rank, tile[use]], 1), axis=0)
        piece, begin, users = np.unique(pairs[:, 0], return_index=True, return_counts=True)
        at, size = cuts[piece], cuts[piece + 1] - cuts[piece]
        each = np.maximum(-(-size // users + step - 1) // step * step, step)
        parts = -(-size // each)
        which, k = ragged(parts)
        start = at[which] + k * each[which]
        end = np.minimum(start + each[which], at[which] + size[which])
        # The first user differs from piece to piece: small pieces spread over all of them.
        user = (k + piece[which]) % users[which]
        return start, end, pairs[begin[which] + user, 1]


def _map(graph: Graph, v: int, shares: tuple[Ints, Ints, Ints], extend: bool) -> None:
    """Give one variable's used intervals their tiles; the rest keeps what it has."""
    variable = graph.variables[v]
    start, end, tile = (shares[0] - variable.base, shares[1] - variable.base, shares[2])
    old = variable.mapping.shifted(-variable.base)
    if extend:
        end = np.append(start[1:], variable.size)
        start = np.append(0, start[1:])
    bounds = np.unique(np.concatenate([start, end, old.bounds, [0, variable.size]]))
    left = bounds[:-1]
    share = np.searchsorted(start, left, "right") - 1
    used = (share >= 0) & (left < end[share])
    tiles = np.where(used, tile[share], old.tile_at(left))
    mapping = Mapping(bounds + variable.base, tiles.astype(np.int32))
    variable.mapping = mapping.normal()
