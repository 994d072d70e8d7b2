"""The blocked layout of activations and matrices: 16 channels side by side.

An activation [N, C, *spatial] lives in a variable [N][C/16][*spatial][16], a matrix [B, M, K] in
[B][K/16][M][16]. The last block is padded to 16 lanes; whoever makes such a variable registers it
(`mark_padded`) and promises that the padding lanes always hold finite numbers. Consumers ask for
the address of every 16-lane vector of a view (`lane_addresses`) and read it in place where they
may.
"""

from __future__ import annotations

import weakref
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.arrays import ragged
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.views import Affine

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Mapping
    from poplar_py.types import DType

__all__ = [
    "LANES",
    "add_blocked",
    "batch_lanes",
    "blocked_base",
    "blocks_of",
    "channel_blocks",
    "images_of_lanes",
    "is_marked",
    "lane_addresses",
    "lane_segments",
    "lanes_of_images",
    "mark_padded",
    "view_of_blocked",
]

LANES = 16
Ints = npt.NDArray[np.int64]

_padded: weakref.WeakKeyDictionary[Graph, set[int]] = weakref.WeakKeyDictionary()


def blocks_of(channels: int) -> int:
    """Number of 16-lane blocks that hold `channels`."""
    return -(-channels // LANES)


def mark_padded(graph: Graph, variable: int) -> None:
    """Register a variable [..., 16] whose padding lanes always hold finite numbers."""
    _padded.setdefault(graph.get_top_level_graph(), set()).add(variable)


def is_marked(graph: Graph, variable: int) -> bool:
    """Whether `mark_padded` was called for the variable."""
    return variable in _padded.get(graph.get_top_level_graph(), ())


def view_of_blocked(blocks: Tensor, channels: int) -> Tensor:
    """[N, Cb, *spatial, 16] seen as [N, channels, *spatial]."""
    rank = len(blocks.shape)
    n, cb, *spatial, lanes = blocks.shape
    perm = (0, 1, rank - 1, *range(2, rank - 1))
    view = blocks.dim_shuffle(perm).reshape((n, cb * lanes, *spatial))
    return view if channels == cb * lanes else view.slice(0, channels, 1)


def add_blocked(
    graph: Graph,
    dtype: DType,
    shape: tuple[int, ...],
    name: str,
    mapping: Mapping | None = None,
) -> tuple[Tensor, Tensor]:
    """A new variable for an activation [N, C, *spatial].

    Returns its blocks [N, C/16, *spatial, 16] and the view. The mapping covers the blocks; without
    one they stay unmapped.
    """
    n, channels, *spatial = shape
    full = (n, blocks_of(channels), *spatial, LANES)
    blocks = graph.add_variable(dtype, full, name, mapping=mapping)
    mark_padded(graph, variable_ids(graph, blocks.runs()[0][:1]).item())
    return blocks, view_of_blocked(blocks, channels)


def channel_blocks(tensor: Tensor) -> Tensor | None:
    """[N, C/16, *spatial, 16] of a view [N, C, *spatial] whose channels lie 16 by 16 in memory.

    None for other layouts, and unless C is a multiple of 16.
    """
    shape = tensor.shape
    if len(shape) < 3 or shape[1] % LANES or 0 in shape:
        return None
    rank = len(shape)
    view = tensor.reshape((shape[0], shape[1] // LANES, LANES, *shape[2:]))
    view = view.dim_shuffle((0, 1, *range(3, rank + 1), 2))
    if (view.slice(0, 1, 0).slice(0, 1, 1).runs()[1] % LANES).any():
        return None
    return None if (view.runs()[1] % LANES).any() else view


def variable_bases(graph: Graph) -> Ints:
    """Base address of every variable, ascending."""
    return np.array([v.base for v in graph.variables], np.int64)


def variable_ids(graph: Graph, address: Ints) -> Ints:
    """Index in `graph.variables` of the variable each address lies in."""
    return np.searchsorted(variable_bases(graph), address, "right") - 1


def lane_addresses(graph: Graph, tensor: Tensor) -> Ints | None:
    """Addresses of the 16-lane vectors of a view [*P, C]: int64[C/16, *P].

    None unless every vector is one run of 16 elements; a last block of fewer channels counts when
    it lies in a marked variable, at a multiple of 16.
    """
    *outer, channels = tensor.shape
    last = len(outer)
    whole = channels // LANES
    parts: list[Ints] = []
    if whole:
        view = tensor if whole * LANES == channels else tensor.slice(0, whole * LANES, last)
        view = view.reshape((*outer, whole, LANES)).dim_shuffle((last, *range(last), last + 1))
        found = _vectors(*view.runs(), LANES)
        if found is None:
            return None
        parts.append(found.reshape((whole, *outer)))
    if whole * LANES != channels:
        tail = _tail_addresses(graph, tensor.slice(whole * LANES, channels, last))
        if tail is None:
            return None
        parts.append(tail.reshape((1, *outer)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def lane_segments(graph: Graph, tensor: Tensor) -> tuple[Ints, Ints] | None:
    """As `lane_addresses`, for channels joined from blocked tensors whose blocks are not full.

    Returns the addresses [blocks, *P] and the channel of every lane, int64[16 blocks], -1 for
    padding; None when the channels do not lie in blocks.
    """
    *outer, channels = tensor.shape
    first = tensor
    for dim in range(len(outer)):
        first = first.slice(0, 1, dim)
    address = first.addresses().ravel()
    inside = (address - variable_bases(graph)[variable_ids(graph, address)]) % LANES
    new = np.ones(channels, np.bool_)
    new[1:] = (np.diff(address) != 1) | (inside[1:] == 0)
    begin = np.flatnonzero(new)
    size = np.diff(np.append(begin, channels))
    if inside[begin].any() or len(begin) > 2 * blocks_of(channels):
        return None
    ends = np.flatnonzero((size < LANES) | (begin + size == channels))
    parts: list[Ints] = []
    low = 0
    for end in (begin[ends] + size[ends]).tolist():
        found = lane_addresses(graph, tensor.slice(low, end, len(outer)))
        if found is None:
            return None
        parts.append(found)
        low = end
    lanes = np.full((len(begin), LANES), -1, np.int64)
    block, lane = ragged(size)
    lanes[block, lane] = np.arange(channels)
    return np.concatenate(parts), lanes.ravel()


def _vectors(start: Ints, length: Ints, lanes: int) -> Ints | None:
    if (length % lanes).any():
        return None
    owner, rank = ragged(length // lanes)
    return start[owner] + rank * lanes


def _tail_addresses(graph: Graph, tail: Tensor) -> Ints | None:
    start, length = tail.runs()
    if (length != tail.shape[-1]).any():
        return None
    ids = variable_ids(graph, start)
    base = variable_bases(graph)[ids]
    if ((start - base) % LANES).any():
        return None
    if not all(is_marked(graph, int(v)) for v in set(ids.tolist())):
        return None
    return start


def blocked_base(graph: Graph, tensor: Tensor) -> Tensor | None:
    """The blocks [N, C/16, *spatial, 16] of a view [N, C, *spatial] of all of a marked variable.

    For element-wise operations, which may then work on the padding lanes too. None otherwise.
    """
    n, channels, *spatial = tensor.shape
    rank = len(tensor.shape)
    if 0 in tensor.shape:
        return None
    full = (n, blocks_of(channels), *spatial, LANES)
    first = tensor.slice(0, 1, 1).runs()[0][:1]
    variable = graph.variables[variable_ids(graph, first).item()]
    if variable.size != prod(full) or not is_marked(graph, variable.id):
        return None
    address = lane_addresses(graph, tensor.dim_shuffle((0, *range(2, rank), 1)))
    if address is None:
        return None
    order = np.moveaxis(address, 0, 1).ravel()
    if not np.array_equal(order, variable.base + np.arange(order.size) * LANES):
        return None
    return Tensor(graph, Affine.dense(variable.base, full), variable.dtype)


def images_of_lanes(view: Tensor, images: int) -> Tensor:
    """The inverse of `lanes_of_images`: [N/16 C, 16, *spatial] seen as [N, C, *spatial]."""
    count, lanes, *spatial = view.shape
    channels = count * lanes // images
    split = view.reshape((images // lanes, channels, lanes, *spatial))
    return split.dim_shuffle((0, 2, 1, *range(3, split.rank))).reshape((images, channels, *spatial))


def lanes_of_images(tensor: Tensor) -> Tensor:
    """[N, C, *spatial] with N a multiple of 16 seen as [N/16 C, 16, *spatial]: lanes are images."""
    n, channels, *spatial = tensor.shape
    split = tensor.reshape((n // LANES, LANES, channels, *spatial))
    swapped = split.dim_shuffle((0, 2, 1, *range(3, split.rank)))
    return swapped.reshape((n // LANES * channels, LANES, *spatial))


def batch_lanes(graph: Graph, tensor: Tensor) -> Tensor | None:
    """`lanes_of_images` of a tensor that lies in memory that way, else None."""
    if tensor.rank < 3 or tensor.shape[0] % LANES or 0 in tensor.shape:
        return None
    view = lanes_of_images(tensor)
    return view if blocked_base(graph, view) is not None else None
