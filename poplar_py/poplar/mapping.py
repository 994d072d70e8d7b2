"""Which tile owns which element: sorted interval arrays, per variable and for a whole graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.arrays import I8, Ints, Tiles, as_ints, ragged, sort_order, unique_sorted


class Mapping:
    """Intervals ``[bounds[i], bounds[i+1])`` with their tile; -1 is nobody's.

    ``bounds`` is int64[m + 1] ascending, ``tile`` int32[m], neighbours of different tiles. In a
    graph the bounds are global addresses; a mapping given to ``add_variable`` starts at 0.
    """

    __slots__ = ("_loc", "bounds", "tile")

    def __init__(self, bounds: npt.ArrayLike, tile: npt.ArrayLike) -> None:
        self.bounds = as_ints(bounds)
        self.tile: Tiles = np.asarray(tile, np.int32)
        self._loc: Ints | None = None

    @property
    def loc(self) -> Ints:
        """Place of each interval within its tile's share, in elements, by ascending address."""
        if self._loc is None:
            self._loc = local_offsets(self.bounds, self.tile)
        return self._loc

    @property
    def size(self) -> int:
        """Elements covered, unmapped ones included."""
        return int(self.bounds[-1] - self.bounds[0])

    def shifted(self, by: int) -> Mapping:
        """The same mapping ``by`` addresses on."""
        out = Mapping(self.bounds + by, self.tile)
        out._loc = self._loc
        return out

    def normal(self) -> Mapping:
        """Without empty intervals and with equal neighbours joined."""
        keep = np.diff(self.bounds) > 0
        tile = self.tile[keep]
        start = self.bounds[:-1][keep]
        first = np.ones(len(tile), np.bool_)
        first[1:] = tile[1:] != tile[:-1]
        return Mapping(np.append(start[first], self.bounds[-1]), tile[first])

    def tile_at(self, address: npt.ArrayLike) -> Tiles:
        """Tile of each address, which must lie inside."""
        return self.tile[np.searchsorted(self.bounds, address, "right") - 1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return np.array_equal(self.bounds, other.bounds) and np.array_equal(self.tile, other.tile)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Mapping({len(self.tile)} intervals, {self.size} elements)"


@dataclass(frozen=True, slots=True)
class Atlas:
    """The mappings of all variables in one interval array; gaps between variables are tile -1.

    ``bounds`` int64[m + 1], ``tile`` int32[m], ``var`` int32[m] (-1 in gaps), ``loc`` int64[m]: the
    interval's place within its tile's share of its variable.
    """

    bounds: Ints
    tile: Tiles
    var: Tiles
    loc: Ints

    def locate(self, address: npt.ArrayLike) -> Ints:
        """Interval index of each address."""
        return np.searchsorted(self.bounds, address, "right") - 1

    def split(self, start: Ints, length: Ints) -> tuple[Ints | None, Ints, Ints, Ints]:
        """Cut runs at interval bounds: (run index or None where each run is one piece, interval,
        start, length), in run order."""
        i = np.searchsorted(self.bounds, start, "right") - 1
        end = start + length
        if len(i) == 0 or bool((self.bounds[i + 1] >= end).all()):
            return None, i, start, length
        j = np.searchsorted(self.bounds, end, "left") - 1
        run, rank = ragged(np.maximum(j - i, 0) + 1)
        interval = i[run] + rank
        s = np.maximum(start[run], self.bounds[interval])
        return run, interval, s, np.minimum(end[run], self.bounds[interval + 1]) - s


def local_offsets(bounds: Ints, tile: Tiles) -> Ints:
    """Exclusive sum of interval lengths per tile, in address order."""
    length = np.diff(bounds)
    order = sort_order(tile)
    t = tile if order is None else tile[order]
    n = length if order is None else length[order]
    total = np.cumsum(n) - n
    first = np.ones(len(t), np.bool_)
    first[1:] = t[1:] != t[:-1]
    place = total - total[np.flatnonzero(first)][np.cumsum(first) - 1] if len(t) else total
    if order is None:
        return place
    out = np.empty(len(place), I8)
    out[order] = place
    return out


def linear(size: int, tiles: int, grain: int = 1, least: int = 32) -> Mapping:
    """Elements spread evenly in address order: equal chunks, multiples of ``grain`` elements, of at
    least ``least`` elements, from tile 0 on (as poputil's mapTensorLinearly)."""
    if size == 0:
        return Mapping([0], [])
    chunk = max(-(-size // tiles), least)
    chunk = -(-chunk // grain) * grain
    n = -(-size // chunk)
    bounds = np.minimum(np.arange(n + 1, dtype=I8) * chunk, size)
    return Mapping(bounds, np.arange(n, dtype=np.int32))


def replay(base: int, size: int, start: Ints, end: Ints, tile: Ints) -> Mapping:
    """A log of ``set_tile_mapping`` calls (any overlap, the last one wins) as sorted intervals."""
    order = sort_order(start)
    s, e, t = (start, end, tile) if order is None else (start[order], end[order], tile[order])
    if len(s) > 1 and bool((s[1:] < np.maximum.accumulate(e)[:-1]).any()):
        s, e, t = _resolve(start, end, tile)
    bounds = np.empty(2 * len(s) + 2, I8)
    bounds[0], bounds[-1] = base, base + size
    bounds[1:-1:2], bounds[2:-1:2] = s, e
    tiles = np.full(2 * len(s) + 1, -1, np.int32)
    tiles[1::2] = t
    return Mapping(bounds, tiles).normal()


def _resolve(start: Ints, end: Ints, tile: Ints) -> tuple[Ints, Ints, Ints]:
    """Overlapping intervals as disjoint ones: elementary segments, each with its last writer."""
    cuts = unique_sorted(np.concatenate([start, end]))
    a, b = np.searchsorted(cuts, start), np.searchsorted(cuts, end)
    call, rank = ragged(b - a)
    last = np.full(len(cuts) - 1, -1, I8)
    np.maximum.at(last, a[call] + rank, call)
    keep = last >= 0
    return cuts[:-1][keep], cuts[1:][keep], tile[last[keep]]


class Interval(NamedTuple):
    """Elements ``begin`` to ``end`` of a flattened tensor."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


class TensorMapping(Sequence[list[Interval]]):
    """Where the elements of a tensor are: intervals of the flattened tensor with their tile.

    ``begin``, ``end`` int64[r] and ``tile`` int32[r] are in tensor order. As a sequence it is
    Poplar's form: for every tile the list of its intervals.
    """

    __slots__ = ("_order", "_ptr", "begin", "end", "num_tiles", "tile")

    def __init__(self, begin: Ints, end: Ints, tile: Tiles, num_tiles: int) -> None:
        self.begin, self.end, self.tile, self.num_tiles = begin, end, tile, num_tiles
        self._order: Ints | None = None
        self._ptr: Ints | None = None

    def __len__(self) -> int:
        return self.num_tiles

    def of_tile(self, tile: int) -> tuple[Ints, Ints]:
        """Begins and ends of one tile's intervals."""
        if self._order is None or self._ptr is None:
            self._order = np.argsort(self.tile, kind="stable")
            self._ptr = np.searchsorted(
                self.tile[self._order], np.arange(self.num_tiles + 1)
            ).astype(I8)
        pick = self._order[self._ptr[tile] : self._ptr[tile + 1]]
        return self.begin[pick], self.end[pick]

    def __getitem__(self, tile: int) -> list[Interval]:  # type: ignore[override]
        if not -self.num_tiles <= tile < self.num_tiles:
            raise IndexError(tile)
        begin, end = self.of_tile(tile % self.num_tiles)
        return [Interval(b, e) for b, e in zip(begin.tolist(), end.tolist(), strict=True)]

    def __iter__(self) -> Iterator[list[Interval]]:
        return (self[t] for t in range(self.num_tiles))

    def elements_per_tile(self) -> Ints:
        """int64[num_tiles]."""
        return np.bincount(self.tile, self.end - self.begin, self.num_tiles).astype(I8)

    @staticmethod
    def from_lists(lists: Iterable[Iterable[tuple[int, int]]], num_tiles: int) -> TensorMapping:
        """From Poplar's form: per tile a list of (begin, end)."""
        begin: list[int] = []
        end: list[int] = []
        tile: list[int] = []
        for t, intervals in enumerate(lists):
            for b, e in intervals:
                begin.append(b)
                end.append(e)
                tile.append(t)
        return TensorMapping(as_ints(begin), as_ints(end), np.asarray(tile, np.int32), num_tiles)
