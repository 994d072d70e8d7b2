"""poputil: linear mappings, questions about tiles, broadcasts, copies.

What only says where elements lie is compared with a count of every element; tensors it makes or
maps hold their values as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py import poputil
from poplar_py.poplar import Graph, Target, Tensor, program
from poplar_py.types import i32
from tests.libraries.lab import TILES, Array, Case, Lab

__all__ = ["CASES"]


def tiles_of(lab: Lab, t: Tensor) -> Array:
    """The tile of every element, in the tensor's shape."""
    out = np.full(t.numel, -1)
    for tile, intervals in enumerate(lab.graph.get_tile_mapping(t)):
        for low, high in intervals:
            out[low:high] = tile
    return out.reshape(t.shape)


def _elements(lab: Lab, mapping: Any) -> Array:
    """The tile of every element of a mapping, and that each has one."""
    pairs = [(low, high, tile) for tile, part in enumerate(mapping) for low, high in part]
    out = np.full(max((high for _, high, _ in pairs), default=0), -1)
    for low, high, tile in pairs:
        assert (out[low:high] == -1).all()
        out[low:high] = tile
    assert (out >= 0).all()
    return out


# ---------------------------------------------------------------------- linear mappings
def _is_linear(tile: Array, size: int, least: int, grain: int) -> None:
    """Contiguous shares of whole grains in the order of the tiles, as even as that allows."""
    assert tile.size == size
    cuts = np.flatnonzero(np.diff(tile)) + 1
    sizes = np.diff([0, *cuts, size])
    grain = max(grain, 1)
    assert (sizes[:-1] % grain == 0).all()
    assert (sizes[:-1] >= min(least, size)).all()
    if len(sizes) > 1:
        assert sizes.max() - sizes[:-1].min() <= grain, sizes
    assert len(sizes) <= TILES
    if least <= grain and size >= TILES * grain * TILES:
        assert len(sizes) == TILES


def _calc_linear(lab: Lab) -> None:
    """Any offset, both directions; the mapping can be set."""
    for ascending in (True, False):
        x, least, grain = lab.values(lab.shape(1, 3, 20)), lab.pick(0, 40), lab.pick(1, 9)
        offset = lab.pick(0, TILES - 1)
        found = poputil.calc_linear_tile_mapping(
            lab.graph, x.shape, least, grain, offset=offset, ascending=ascending
        )
        tile = _elements(lab, found)
        step = (tile - offset if ascending else TILES - 1 - offset - tile) % TILES
        assert step[0] == 0
        assert set(np.unique(np.diff(step))) <= {0, 1}
        _is_linear(tile, x.size, least, grain)
        t = lab.graph.add_variable(lab.dtype, x.shape)
        lab.graph.set_tile_mapping(t, found)
        lab.expect(lab.put(x, t), x, exact=True)
        np.testing.assert_array_equal(tiles_of(lab, t).ravel(), tile)


def _map_linearly(lab: Lab) -> None:
    """128 bytes a tile and 8 bytes a grain unless said otherwise; of a view its elements alone."""
    for given in (False, True):
        x = lab.values(lab.shape(1, 3, 20))
        least, grain = (lab.pick(1, 40), lab.pick(1, 9)) if given else (0, 0)
        whole = lab.graph.add_variable(lab.dtype, (2, *x.shape))
        lab.graph.set_tile_mapping(whole.index(1), 3)
        t = whole.index(0)
        poputil.map_tensor_linearly(lab.graph, t, least, grain)
        tile = tiles_of(lab, t).ravel()
        assert tile[0] == 0
        size = lab.dtype.size
        _is_linear(tile, x.size, least or 128 // size, grain or 8 // size)
        assert (tiles_of(lab, whole.index(1)) == 3).all()
        lab.expect(lab.put(x, t), x, exact=True)


def _map_with_offset(lab: Lab) -> None:
    """One after the other: each begins where the last one ended."""
    at = lab.pick(0, TILES - 1)
    for _ in range(3):
        x = lab.values(lab.shape(1, 2, 20))
        t = lab.graph.add_variable(lab.dtype, x.shape)
        after = poputil.map_tensor_linearly_with_offset(lab.graph, t, at)
        tile = tiles_of(lab, t).ravel()
        assert tile[0] == at
        assert after == (tile[-1] + 1) % TILES
        at = after
        lab.expect(lab.put(x, t), x, exact=True)


def _imbalance(lab: Lab) -> None:
    """The fullest tile beyond an even share of whole grains."""
    for _ in range(3):
        t = lab.put(lab.values(lab.shape(1, 3)))
        least, grain = lab.pick(0, 9), lab.pick(0, 5)
        counts = np.bincount(tiles_of(lab, t).ravel(), minlength=TILES)
        share = max(-(-t.numel // TILES), least)
        share = -(-share // max(grain, 1)) * max(grain, 1)
        found = poputil.get_tile_imbalance(lab.graph.get_tile_mapping(t), least, grain)
        assert found == max(0, counts.max() - share)
        lab.check(t, lambda _: None)


# ---------------------------------------------------------------------- questions
def _two_ipus(lab: Lab) -> None:
    lab.graph = Graph(Target.ipu("gc200", 2, TILES // 2))


def _split_over_tiles(lab: Lab) -> None:
    for _ in range(3):
        x = lab.values(lab.shape(1, 3, 6))
        t = lab.put(x)
        tile = tiles_of(lab, t)
        for d in range(t.rank):
            want = bool((tile != tile.take([0], d)).any())
            assert poputil.dim_is_split_over_tiles(lab.graph, t, d) == want
        lab.expect(t, x, exact=True)


def _split_over_ipus(lab: Lab) -> None:
    _two_ipus(lab)
    for _ in range(3):
        x = lab.values(lab.shape(1, 3, 4))
        t = lab.put(x)
        ipu = tiles_of(lab, t) // (TILES // 2)
        for d in range(t.rank):
            want = bool((ipu != ipu.take([0], d)).any())
            assert poputil.dim_is_split_over_ipus(lab.graph, t, d) == want
        lab.expect(t, x, exact=True)


def _transform(lab: Lab) -> None:
    """A turn of the tiles, or of the tiles from the last one down; and its inverse."""
    for ascending in (True, False):
        n, offset = lab.pick(1, 20), lab.pick(0, 40)
        tiles = range(n)
        found = [poputil.transform_tile_index(i, n, offset, ascending) for i in tiles]
        turned = np.roll(np.arange(n), -offset)
        assert found == (turned if ascending else n - 1 - turned).tolist()
        back = [poputil.inv_transform_tile_index(i, n, offset, ascending) for i in found]
        assert back == list(tiles)
    t = lab.graph.add_variable(i32, (1,), mapping=found[0] % TILES)
    lab.expect(lab.put(np.array(found[:1], np.int32), t), np.array(found[:1]))


def _split_regions(lab: Lab) -> None:
    """Every element once, in order, whole grains, at most six workers."""
    for _ in range(4):
        sizes = [lab.pick(0, 30) for _ in range(lab.pick(1, 5))]
        begin = np.cumsum([lab.pick(0, 5) + s for s in [0, *sizes[:-1]]]).tolist()
        regions = [(b, b + s) for b, s in zip(begin, sizes, strict=True)]
        grain, least = lab.pick(1, 8), lab.pick(0, 20)
        found = poputil.split_regions_between_workers(lab.graph, regions, grain, least)
        given = [i for low, high in regions for i in range(low, high)]
        assert [i for w in found for low, high in w for i in range(low, high)] == given
        counts = [sum(high - low for low, high in w) for w in found]
        assert len(counts) <= 6
        assert all(c % grain == 0 and c >= least for c in counts[:-1])
        if counts:
            assert max(counts) <= max(-(-len(given) // 6), least) + grain
    t = lab.put(lab.values((3,)))
    lab.check(t, lambda _: None)


# ---------------------------------------------------------------------- views and copies
def _broadcastable(lab: Lab, count: int) -> list[Array]:
    """Arrays whose dims are those of one shape, 1 or missing."""
    shape = lab.shape(1, 4, 5)
    arrays: list[Array] = []
    for _ in range(count):
        kept = tuple(1 if lab.chance() else n for n in shape)[lab.pick(0, len(shape) - 1) :]
        arrays.append(lab.values(kept))
    return arrays


def _broadcast_to_match(lab: Lab) -> None:
    for count in (2, 3):
        arrays = _broadcastable(lab, count)
        outs = poputil.broadcast_to_match(*map(lab.put, arrays))
        for out, want in zip(outs, np.broadcast_arrays(*arrays), strict=True):
            lab.expect(out, want, exact=True)


def _expand_to_match(lab: Lab) -> None:
    a, b = _broadcastable(lab, 2)
    rank = max(a.ndim, b.ndim)
    outs = poputil.expand_to_match_ranks(lab.put(a), lab.put(b))
    for out, x in zip(outs, (a, b), strict=True):
        lab.expect(out, x.reshape((*(1,) * (rank - x.ndim), *x.shape)), exact=True)


def _broadcast_operand(lab: Lab) -> None:
    """Each element on a tile that has most of its uses."""
    for _ in range(3):
        x = lab.values(lab.shape(1, 3, 6))
        t = lab.put(x)
        dim = lab.pick(0, t.rank - 1)
        made = poputil.create_broadcast_operand(lab.graph, t, i32, dim)
        assert made.dtype is i32
        users = np.moveaxis(tiles_of(lab, t), dim, 0).reshape((x.shape[dim], -1))
        for tile, using in zip(tiles_of(lab, made), users, strict=True):
            counts = np.bincount(using, minlength=TILES)
            assert counts[tile] == counts.max()
        values = lab.values(made.shape, -9, 9, i32)
        lab.expect(lab.put(values, made), values)


def _partitionable(lab: Lab) -> None:
    """Every partition is one contiguous region."""
    shape = lab.shape(1, 3, 7)
    parts = [lab.pick(1, 4) for _ in shape]
    t = poputil.create_partitionable_tensor(lab.graph, lab.dtype, shape, parts)
    poputil.map_tensor_linearly(lab.graph, t)
    x = lab.values(shape)
    steps = [-(-n // p) for n, p in zip(shape, parts, strict=True)]
    for corner in np.ndindex(*(-(-n // s) for n, s in zip(shape, steps, strict=True))):
        piece = t
        for d, i in enumerate(corner):
            piece = piece.slice(i * steps[d], min((i + 1) * steps[d], shape[d]), d)
        assert len(piece.runs()[0]) == 1
    lab.expect(lab.put(x, t), x, exact=True)


def _duplicate(lab: Lab) -> None:
    """What happens to the first later does not change the second."""
    for _ in range(3):
        x = lab.values(lab.shape(1, 3))
        t = lab.put(x)
        made = poputil.duplicate(lab.graph, t, lab.prog)
        other = lab.values(x.shape)
        lab.prog.add(program.Copy(lab.put(other), t))
        lab.expect(made, x, exact=True)
        lab.expect(t, other, exact=True)


def _other_ipu(lab: Lab, t: Tensor, made: Tensor, ipu: int) -> None:
    """The same tile numbers on the IPU."""
    each = TILES // 2
    np.testing.assert_array_equal(tiles_of(lab, made), tiles_of(lab, t) % each + ipu * each)


def _clone_to_ipu(lab: Lab) -> None:
    _two_ipus(lab)
    for ipu in (0, 1):
        t = lab.put(lab.values(lab.shape(1, 3)))
        x = lab.values(t.shape)
        made = poputil.clone_to_ipu(lab.graph, t, ipu)
        _other_ipu(lab, t, made, ipu)
        lab.expect(lab.put(x, made), x, exact=True)


def _copy_to_ipu(lab: Lab) -> None:
    _two_ipus(lab)
    for ipu in (0, 1):
        x = lab.values(lab.shape(1, 3))
        t = lab.put(x)
        made = poputil.copy_to_ipu(lab.graph, t, lab.prog, ipu)
        _other_ipu(lab, t, made, ipu)
        lab.expect(made, x, exact=True)


CASES: dict[str, Case] = {
    "calc_linear_tile_mapping": _calc_linear,
    "map_tensor_linearly": _map_linearly,
    "map_tensor_linearly_with_offset": _map_with_offset,
    "get_tile_imbalance": _imbalance,
    "dim_is_split_over_tiles": _split_over_tiles,
    "dim_is_split_over_ipus": _split_over_ipus,
    "transform_tile_index": _transform,
    "inv_transform_tile_index": _transform,
    "split_regions_between_workers": _split_regions,
    "broadcast_to_match": _broadcast_to_match,
    "expand_to_match_ranks": _expand_to_match,
    "create_broadcast_operand": _broadcast_operand,
    "create_partitionable_tensor": _partitionable,
    "duplicate": _duplicate,
    "clone_to_ipu": _clone_to_ipu,
    "copy_to_ipu": _copy_to_ipu,
}
