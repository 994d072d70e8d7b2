"""Mapping helpers that programs written for Poplar use: linear mappings, broadcasts, copies."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, overload

import numpy as np

from poplar_py.poplar import program
from poplar_py.poplar.errors import InvalidTileMapping, TensorIndexError
from poplar_py.poplar.faults import fail
from poplar_py.poplar.mapping import Interval, Mapping, TensorMapping, linear
from poplar_py.poplar.tensor import Tensor
from poplar_py.poputil.layout import clone_layout, fresh
from poplar_py.poputil.shapes import common_shape

if TYPE_CHECKING:
    from poplar_py.poplar import Graph
    from poplar_py.types import DType

__all__ = [
    "broadcast_to_match",
    "calc_linear_tile_mapping",
    "clone_to_ipu",
    "copy_to_ipu",
    "create_broadcast_operand",
    "duplicate",
    "expand_to_match_ranks",
    "get_tile_imbalance",
    "map_tensor_linearly",
    "map_tensor_linearly_with_offset",
    "split_regions_between_workers",
]


def calc_linear_tile_mapping(
    graph: Graph,
    shape: Sequence[int] | Tensor,
    min_elements_per_tile: int = 0,
    grain_size: int = 0,
    *,
    offset: int = 0,
    ascending: bool = True,
) -> TensorMapping:
    """Contiguous elements spread evenly over the tiles from `offset` on, upward or downward.

    Every tile gets a multiple of `grain_size` elements, and `min_elements_per_tile` at least: 1 for
    a shape; for a tensor 8 and 128 bytes of its type, as in `map_tensor_linearly`.
    """
    tiles = graph.num_tiles
    if isinstance(shape, Tensor):
        least = min_elements_per_tile or 128 // shape.dtype.size
        min_elements_per_tile, grain_size = least, grain_size or max(1, 8 // shape.dtype.size)
        shape = shape.shape
    even = linear(prod(shape), tiles, max(grain_size, 1), max(min_elements_per_tile, 1))
    step = np.arange(len(even.tile), dtype=np.int64)
    tile = (offset + step) % tiles if ascending else (tiles - 1 - offset - step) % tiles
    return TensorMapping(even.bounds[:-1], even.bounds[1:], tile.astype(np.int32), tiles)


def map_tensor_linearly(
    graph: Graph, t: Tensor, min_elements_per_tile: int = 0, grain_size: int = 0
) -> None:
    """Map `t` linearly from tile 0 on; by default 128 bytes a tile at least, 8 bytes a grain."""
    map_tensor_linearly_with_offset(graph, t, 0, min_elements_per_tile, grain_size)


def map_tensor_linearly_with_offset(
    graph: Graph,
    t: Tensor,
    offset: int,
    min_elements_per_tile: int = 0,
    grain_size: int = 0,
    *,
    ascending: bool = True,
) -> int:
    """As map_tensor_linearly from tile `offset` on; returns the tile after the last one used."""
    mapping = calc_linear_tile_mapping(
        graph, t, min_elements_per_tile, grain_size, offset=offset, ascending=ascending
    )
    graph.set_tile_mapping(t, mapping)
    return (offset + len(mapping.tile)) % graph.num_tiles


@overload
def get_tile_imbalance(
    mapping: TensorMapping, min_elements_per_tile: int = 0, grain_size: int = 0
) -> int: ...


@overload
def get_tile_imbalance(
    mapping: Graph, min_elements_per_tile: Tensor, grain_size: int = 0, last: int = 0
) -> int: ...


def get_tile_imbalance(
    mapping: TensorMapping | Graph,
    min_elements_per_tile: int | Tensor = 0,
    grain_size: int = 0,
    last: int = 0,
) -> int:
    """Most elements on a tile beyond an even share; also ``(graph, tensor, least, grain)``."""
    if isinstance(min_elements_per_tile, Tensor):
        found = min_elements_per_tile
        mapping, min_elements_per_tile = found.graph.get_tile_mapping(found), grain_size
        grain_size = last
    assert isinstance(mapping, TensorMapping)
    held = mapping.elements_per_tile()
    total = int(held.sum())
    grain = max(grain_size, 1)
    share = max(-(-total // mapping.num_tiles), min_elements_per_tile)
    share = -(-share // grain) * grain
    return max(0, int(held.max()) - share) if total else 0


def expand_to_match_ranks(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the larger rank: leading dims of size 1 are added."""
    rank = max(len(a.shape), len(b.shape))
    one = a.reshape((*([1] * (rank - len(a.shape))), *a.shape))
    two = b.reshape((*([1] * (rank - len(b.shape))), *b.shape))
    return one, two


def broadcast_to_match(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All broadcast to their common shape, as NumPy does. Raises ShapeError."""
    shape = common_shape(*(tuple(t.shape) for t in tensors))
    return tuple(t.broadcast_to(shape) for t in tensors)


def create_broadcast_operand(
    graph: Graph,
    full: Tensor,
    dtype: DType,
    dim: int,
    name: str | bool = "broadcast",
    last: str = "broadcast",
) -> Tensor:
    """A vector along one dim of `full`, each element on the tile that holds most of its uses.

    Poplar's order is taken too, with the wish to dither mappings (which changes nothing) before the
    name.
    """
    name = last if isinstance(name, bool) else name
    if not 0 <= dim < full.rank:
        fail(TensorIndexError, f"dim {dim} of {list(full.shape)}")
    size = full.shape[dim]
    columns = full.numel // max(size, 1)
    if not columns:
        return graph.add_variable(dtype, (size,), name, mapping="linear")
    found = graph.get_tile_mapping(full.dim_roll(dim, 0).flatten())
    ends = np.arange(size + 1, dtype=np.int64) * columns
    cuts = np.unique(np.concatenate((found.begin, found.end, ends)))
    begin = cuts[:-1]
    tile = found.tile[np.searchsorted(found.begin, begin, "right") - 1].astype(np.int64)
    pairs, pair = np.unique(begin // columns * graph.num_tiles + tile, return_inverse=True)
    uses = np.bincount(pair, np.diff(cuts))
    element, tile = np.divmod(pairs, graph.num_tiles)
    most = np.lexsort((tile, -uses, element))[np.searchsorted(element, np.arange(size))]
    mapping = Mapping(np.arange(size + 1), tile[most].astype(np.int32)).normal()
    return graph.add_variable(dtype, (size,), name, mapping=mapping)


def split_regions_between_workers(
    graph: Graph,
    regions: Sequence[tuple[int, int]],
    grain_size: int,
    min_elements_per_worker: int = 0,
) -> list[list[Interval]]:
    """Regions of one tile shared out to its workers: contiguous, multiples of `grain_size`."""
    total = sum(end - begin for begin, end in regions)
    workers = graph.target.num_workers
    grain = max(grain_size, 1)
    share = max(-(-total // workers), min_elements_per_worker, 1)
    share = -(-share // grain) * grain
    out: list[list[Interval]] = []
    room = 0
    for begin, end in regions:
        while begin < end:
            if room == 0:
                out.append([])
                room = share
            take = min(room, end - begin)
            out[-1].append(Interval(begin, begin + take))
            begin, room = begin + take, room - take
    return out


def duplicate(graph: Graph, t: Tensor, prog: program.Sequence, name: str = "duplicate") -> Tensor:
    """A copy of `t` in a variable of its own, in the same layout."""
    made = clone_layout(graph, t, t.dtype, name)
    out = fresh(graph, t.dtype, tuple(t.shape), name) if made is None else made[0]
    prog.add(program.Copy(t, out))
    return out


def clone_to_ipu(graph: Graph, t: Tensor, ipu: int, name: str = "") -> Tensor:
    """A tensor like `t` whose elements lie on the tiles of another IPU with the same numbers."""
    per = graph.target.tiles_per_ipu
    if not 0 <= ipu < graph.target.num_ipus:
        fail(InvalidTileMapping, f"IPU {ipu} of {graph.target.num_ipus}")
    found = graph.get_tile_mapping(t)
    tile = found.tile % per + ipu * per
    name = name or f"clone_to_ipu{ipu}"
    bounds = np.append(found.begin, t.numel)
    return graph.add_variable(t.dtype, t.shape, name, mapping=Mapping(bounds, tile).normal())


def copy_to_ipu(
    graph: Graph, t: Tensor, prog: program.Sequence, ipu: int, name: str = ""
) -> Tensor:
    """A copy of `t` on another IPU."""
    out = clone_to_ipu(graph, t, ipu, name)
    prog.add(program.Copy(t, out))
    return out
