"""Weights in the order the block kernels stream them, and where they live."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Mapping
from poplar_py.poplar.program import Copy
from poplar_py.poplin.created import laid_stream
from poplar_py.poplin.place import pad_view
from poplar_py.poputil.blocked import LANES, blocks_of

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.types import DType

__all__ = ["Reduced", "bias_constant", "reduced_blocks", "stream_array", "stream_tensor"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reduced:
    """Which input blocks each group of output blocks sums over: `count` from `first[group]` on."""

    first: Ints
    count: int


def reduced_blocks(channels: int, outputs: int, groups: int, nb: int, out_blocks: int) -> Reduced:
    """The input blocks that hold the channels of the conv groups an output group belongs to."""
    wide = out_blocks // nb
    blocks = blocks_of(channels)
    if groups == 1:
        return Reduced(np.zeros(wide, np.int64), blocks)
    per_out, per_in = outputs // groups, channels // groups
    lo = np.minimum(np.arange(wide) * nb * LANES, outputs - 1) // per_out
    hi = np.minimum((np.arange(wide) + 1) * nb * LANES - 1, outputs - 1) // per_out
    first = lo * per_in // LANES
    last = ((hi + 1) * per_in - 1) // LANES
    count = int((last - first).max()) + 1
    return Reduced(np.minimum(first, blocks - count), count)


def stream_array(
    w: npt.NDArray[Any], groups: int, nb: int, out_blocks: int, reduced: Reduced
) -> npt.NDArray[Any]:
    """w [O, C/groups, kernel rows, kw] as [groups of nb][blocks][rows][16][nb][kw][16]."""
    outputs, per_in, rows, kw = w.shape
    wide = out_blocks // nb
    span = reduced.count * LANES
    if groups == 1 and (outputs, per_in) == (out_blocks * LANES, span):
        full = w.reshape((wide, nb, LANES, reduced.count, LANES, rows, kw))
    else:
        dense = np.zeros((out_blocks * LANES, span, rows, kw), w.dtype)
        out = np.arange(outputs, dtype=np.int64)
        group = out // (outputs // groups)
        start = group * per_in - reduced.first[out // (nb * LANES)] * LANES
        dense[out[:, None], start[:, None] + np.arange(per_in)] = w
        full = dense.reshape((wide, nb, LANES, reduced.count, LANES, rows, kw))
    return np.ascontiguousarray(full.transpose(0, 3, 5, 4, 1, 6, 2))


def at_lanes(w: npt.NDArray[Any], channels: Ints) -> npt.NDArray[Any]:
    """w [O, C, ...] with one input channel for every lane: `channels` [lanes], -1 gives zeros."""
    out = np.zeros((w.shape[0], len(channels), *w.shape[2:]), w.dtype)
    used = channels >= 0
    out[:, used] = w[:, channels[used]]
    return out


def planar_stream(w: npt.NDArray[Any], nb: int, out_blocks: int) -> npt.NDArray[Any]:
    """w [O, C, kernel rows, kw] as [groups of nb][channel][rows][nb][kw][16], zero-padded."""
    outputs, chans, rows, kw = w.shape
    full = np.zeros((out_blocks * LANES, chans, rows, kw), w.dtype)
    full[:outputs] = w
    split = full.reshape((out_blocks // nb, nb, LANES, chans, rows, kw))
    return np.ascontiguousarray(split.transpose(0, 3, 4, 1, 5, 2))


def image_stream(w: npt.NDArray[Any], nb: int) -> npt.NDArray[Any]:
    """w [O, C, kernel rows, kw] as [groups of nb][channel][rows][kw][nb]: scalars."""
    outputs, chans, rows, kw = w.shape
    split = w.reshape((outputs // nb, nb, chans, rows, kw))
    return np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1))


def depthwise_stream(w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """w [C, 1, kernel rows, kw] as [C/16][rows][kw][16], zero-padded."""
    channels, _, rows, kw = w.shape
    full = np.zeros((blocks_of(channels) * LANES, rows, kw), w.dtype)
    full[:channels] = w[:, 0]
    split = full.reshape((-1, LANES, rows, kw))
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1))


_loads: weakref.WeakKeyDictionary[Graph, Ints] = weakref.WeakKeyDictionary()


def place_pieces(graph: Graph, first: Ints, last: Ints, nbytes: Ints) -> npt.NDArray[np.int32]:
    """A tile for each piece of constants: the least loaded of its users `first` to `last`.

    Pieces go in order; a graph remembers what it placed.
    """
    load = _loads.get(graph)
    if load is None:
        load = np.zeros(graph.target.num_tiles, np.int64)
        _loads[graph] = load
    out = np.empty(len(first), np.int32)
    rows = zip(first.tolist(), last.tolist(), nbytes.tolist(), strict=True)
    for i, (a, b, size) in enumerate(rows):
        tile = a + int(load[a : b + 1].argmin())
        load[tile] += size
        out[i] = tile
    return out


def piece_constant(
    graph: Graph,
    data: npt.NDArray[Any],
    sizes: Ints,
    first: Ints,
    last: Ints,
    dtype: DType,
    name: str,
) -> Tensor:
    """A constant in pieces of `sizes` elements, each on one of its users' tiles."""
    tile = place_pieces(graph, first, last, sizes * dtype.size)
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return graph.add_constant(dtype, data.shape, data, name, mapping=Mapping(bounds, tile).normal())


def bias_constant(bias: npt.NDArray[Any], size: int, dtype: DType) -> npt.NDArray[Any]:
    """The bias, zero-padded to `size`."""
    full = np.zeros(size, dtype.numpy)
    full[: len(bias)] = bias
    return full


def stream_tensor(
    graph: Graph,
    w: Tensor,
    nb: int,
    out_blocks: int,
    mapping: Mapping,
    prog: Sequence,
    name: str,
    lanes: int = LANES,
) -> Tensor:
    """Computed weights w [O, C, rows, kw] copied into the order of `stream_array` (one conv group).

    `lanes`: channels an input block (1: the order of `planar_stream`). Weights that were created in
    that order are not copied.
    """
    outputs, channels, rows, kw = w.shape
    blocks = -(-channels // lanes)
    laid = laid_stream(graph, w, (out_blocks // nb, blocks, rows, lanes, nb, kw, LANES))
    if laid is not None:
        return laid
    w = pad_view(graph, w, 0, 0, out_blocks * LANES - outputs)
    w = pad_view(graph, w, 1, 0, blocks * lanes - channels)
    wide = out_blocks // nb
    split = w.reshape((wide, nb, LANES, blocks, lanes, rows, kw))
    source = split.dim_shuffle((0, 3, 5, 4, 1, 6, 2))
    out = graph.add_variable(w.dtype, source.shape, name, mapping=mapping)
    prog.add(Copy(source, out))
    return out
