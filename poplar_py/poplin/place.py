"""Where work and data go: spreading blocks over tiles, constants and zeros shared by one graph."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Mapping, Tensor, concat
from poplar_py.poplar.faults import fail

if TYPE_CHECKING:
    from poplar_py.poplar import Graph
    from poplar_py.poplar.view_core import View
    from poplar_py.types import DType

__all__ = [
    "TileRange",
    "available",
    "block_mapping",
    "pad_view",
    "reserve",
    "spread",
    "tile_range",
    "within",
    "zeros",
]

Ints = npt.NDArray[np.int64]
Tiles = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TileRange:
    """Tiles `first` to `first + count - 1`. `turn` differs from product to product, so that small
    ones do not all begin on the first tile. `memory`: the share of a tile's memory that a step may
    take (PopLibs' availableMemoryProportion)."""

    first: int
    count: int
    turn: int = 0
    memory: float = 0.6


_turns: weakref.WeakKeyDictionary[Graph, int] = weakref.WeakKeyDictionary()
_GOLDEN = 0x9E3779B1


_resident: weakref.WeakKeyDictionary[Graph, float] = weakref.WeakKeyDictionary()
AVAILABLE = 0.6
"""Share of a tile's memory that a product may take (PopLibs' availableMemoryProportion)."""
OTHERS = 0.2
"""Share of a tile's memory kept for code, vertices and what else is alive."""


def reserve(graph: Graph, nbytes: int) -> None:
    """Tells the planner that constants of `nbytes` in all will lie on every tile of the graph."""
    target = graph.target
    _resident[graph.get_top_level_graph()] = nbytes / (target.num_tiles * target.bytes_per_tile)


def available(graph: Graph) -> float:
    """The share of a tile's memory that a product of the graph may take."""
    return max(min(AVAILABLE, 1 - OTHERS - _resident.get(graph.get_top_level_graph(), 0.0)), 0.05)


def tile_range(graph: Graph, tiles: tuple[int, int] | TileRange | None) -> TileRange:
    """The given range (first, count), or all tiles of the graph with the graph's next turn."""
    if tiles is None:
        turn = _turns.get(graph, 0)
        _turns[graph] = turn + 1
        return TileRange(0, graph.target.num_tiles, turn, available(graph))
    found = tiles if isinstance(tiles, TileRange) else TileRange(*tiles)
    if found.first < 0 or found.count < 1 or found.first + found.count > graph.target.num_tiles:
        what = f"{found.count} tiles from tile {found.first}"
        fail(OptionError, f"{what} of {graph.target.num_tiles}", "give the first and a count")
    return found


def within(tiles: TileRange, share: float | None) -> TileRange:
    """The tiles with `share` of their memory for the product, as they are for None.

    Raises OptionError for a share that is not between 0 and 1.
    """
    if share is None:
        return tiles
    if not 0 <= share <= 1:
        fail(
            OptionError,
            f"a share of memory of {share:g} is not between 0 and 1",
            remedy="give available_memory_proportion a number between 0 and 1, such as 0.6",
        )
    return replace(tiles, memory=share)


def spread(n: int, tiles: TileRange) -> Tiles:
    """The tile of each of `n` equal blocks, evenly over the range, ascending.

    Few blocks (an eighth of the tiles or less) begin at a tile that the turn chooses.
    """
    step = tiles.count // max(n, 1)
    begin = tiles.turn * _GOLDEN % step if step >= 8 else 0
    at = np.arange(n, dtype=np.int64) * tiles.count // max(n, 1)
    return (at + tiles.first + begin).astype(np.int32)


def block_mapping(tile: Tiles, size: int) -> Mapping:
    """Blocks of `size` elements that follow one another, each on its tile."""
    return Mapping(np.arange(len(tile) + 1, dtype=np.int64) * size, tile).normal()


# Views only: a tensor holds its graph, and a value that holds its key is never let go.
_zero_pools: weakref.WeakKeyDictionary[Graph, dict[tuple[str, int], View]]
_zero_pools = weakref.WeakKeyDictionary()


def zeros(graph: Graph, dtype: DType, size: int, tile: int = 0) -> Tensor:
    """A constant [>= size] of zeros on one tile, shared by everything that asks."""
    pool = _zero_pools.setdefault(graph, {})
    room = 64
    while room < size:
        room *= 2
    key = (dtype.name, room)
    if key not in pool:
        data = np.zeros(room, dtype.numpy)
        name = f"zeros_{dtype.name}_{room}"
        pool[key] = graph.add_constant(dtype, (room,), data, name, mapping=tile).view
    return Tensor(graph, pool[key], dtype)


def zeros_view(graph: Graph, dtype: DType, shape: Sequence[int]) -> Tensor:
    """A view of the given shape on one zero element."""
    view = zeros(graph, dtype, 1).slice(0, 1, 0).reshape((1,) * max(len(shape), 1))
    for dim, size in enumerate(shape):
        view = view.broadcast(size, dim)
    return view


def pad_view(graph: Graph, tensor: Tensor, dim: int, lower: int, upper: int) -> Tensor:
    """The tensor with zeros before and after along `dim`; negative counts cut elements off."""
    size = tensor.shape[dim]
    begin, end = max(0, -lower), size - max(0, -upper)
    if (begin, end) != (0, size):
        tensor = tensor.slice(begin, end, dim)
    parts: list[Tensor] = [tensor]
    for count, place in ((lower, 0), (upper, len(parts) + 1)):
        if count > 0:
            shape = (*tensor.shape[:dim], count, *tensor.shape[dim + 1 :])
            parts.insert(place, zeros_view(graph, tensor.dtype, shape))
    return tensor if len(parts) == 1 else concat(parts, dim)


def dilate_view(graph: Graph, tensor: Tensor, dim: int, factor: int) -> Tensor:
    """The tensor with `factor - 1` zeros between neighbours along `dim`."""
    size = tensor.shape[dim]
    if factor == 1 or size < 2:
        return tensor
    shape = tensor.shape
    apart = tensor.reshape((*shape[: dim + 1], 1, *shape[dim + 1 :]))
    fill = zeros_view(graph, tensor.dtype, (*shape[: dim + 1], factor - 1, *shape[dim + 1 :]))
    joined = concat([apart, fill], dim + 1).reshape(
        (*shape[:dim], size * factor, *shape[dim + 1 :])
    )
    return joined.slice(0, (size - 1) * factor + 1, dim)
