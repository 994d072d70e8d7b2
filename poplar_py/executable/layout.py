"""Addresses: from shares and planned offsets to byte offsets in the arena."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poplar_py.executable.records import Records, fold, join, match, split_long
from poplar_py.executable.tables import Order, Words
from poplar_py.passes.tile_module import Places
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.tensor import Tensor

Span = tuple[Ints, Ints]
"""Pieces: (byte address, bytes)."""


@dataclass
class Layout:
    """``share_addr`` int64[shares]; ``block_addr``: receive block of each tile by compute set id,
    int64[tiles]; ``state_addr``: stored state of each vertex by (compute set id, group),
    int64[n]."""

    places: Places
    share_addr: Ints
    block_addr: dict[int, Ints]
    state_addr: dict[tuple[int, int], Ints]

    def runs(self, start: Ints, length: Ints) -> Span:
        """Pieces of runs of elements, in order."""
        _, iv, s, n = self.places.atlas.split(start, length)
        width = self.places.width[iv]
        at = (self.places.atlas.loc[iv] + s - self.places.atlas.bounds[iv]) * width
        return join(self.share_addr[self.places.share[iv]] + at, n * width)

    def tensor(self, t: Tensor) -> Span:
        """Pieces of a tensor in row-major order."""
        return self.runs(*t.runs())

    def scalar(self, t: Tensor) -> int:
        """Address of a tensor of one element."""
        return int(self.tensor(t)[0][0])


def span(offset: int, nbytes: int) -> Span:
    """One piece, or none where there are no bytes."""
    if nbytes == 0:
        return np.zeros(0, I8), np.zeros(0, I8)
    return np.array([offset], I8), np.array([nbytes], I8)


MANY = 128
"""Records from which other orders of the pieces are tried."""


def copy_records(src: Span, dst: Span) -> Records:
    """Records of a copy, cut so that threads can share them.

    The pieces come in the order of the tensors; where that gives many records, ascending source and
    target addresses are tried too, and the cheapest is taken.
    """
    s, d, n = match(*src, *dst)
    best = fold(s, d, n)
    for key in (d, s) if len(best) >= MANY else ():
        order = np.argsort(key, kind="stable")
        other = fold(s[order], d[order], n[order])
        if copy_cost(other).sum() < 0.8 * copy_cost(best).sum():
            best = other
    return split_long(best)


def copy_cost(r: Records) -> Ints:
    """Host cost of each record in tenths of a nanosecond, within a factor of two of what
    benchmarks/host_costs.py measures for rows of 4 to 256 bytes."""
    row = np.where((r.size & (r.size - 1) == 0) & (r.size <= 64), 10, 40)
    return 20 + row * r.count + r.nbytes * 2 // 3


def overlap(a: Span, b: Span) -> bool:
    """Whether two piece lists share a byte."""
    if len(a[0]) == 0 or len(b[0]) == 0:
        return False
    order = np.argsort(a[0], kind="stable")
    start, end = a[0][order], (a[0] + a[1])[order]
    reach = np.maximum.accumulate(end)
    i = np.searchsorted(start, b[0] + b[1], "left")
    return bool(((i > 0) & (reach[np.maximum(i - 1, 0)] > b[0])).any())


def plain_order(n: int) -> Order:
    """Rows as they come."""
    index = np.arange(n, dtype=np.int32)
    return Order(index, index)


def to_words(values: Ints, wide: bool) -> Words:
    """Table words of int64 values (negative strides wrap)."""
    flat: NDArray[np.int64] = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint64) if wide else flat.astype(np.uint32)
