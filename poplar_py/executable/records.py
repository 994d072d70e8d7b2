"""Copies as 2-D records: matching two piece lists, folding equal steps, tables for the copy
kernels.

A *piece* is ``(byte address, bytes)``; two piece lists of equal total describe a copy.  A *record*
is ``count`` rows of ``bytes`` at a source and a target stride.  All functions are NumPy over whole
lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen.program_copy import ELEMENT_BYTES
from poplar_py.poplar.arrays import I8, Ints

MIN_FOLD = 2
"""A record of fewer rows is left as single pieces."""
_ELEMENT_KIND = np.zeros(ELEMENT_BYTES[-1] + 1, I8)
_ELEMENT_KIND[list(ELEMENT_BYTES)] = np.arange(len(ELEMENT_BYTES)) + 2
_SPLIT_BYTES = 1 << 16
"""Larger single runs are cut, so that they spread over threads."""


@dataclass(frozen=True)
class Records:
    """int64[n] columns: rows of ``size`` bytes, ``count`` of them, at the two strides."""

    src: Ints
    dst: Ints
    size: Ints
    count: Ints
    sstride: Ints
    dstride: Ints

    def __len__(self) -> int:
        return len(self.src)

    @property
    def nbytes(self) -> Ints:
        """Bytes each record moves."""
        return self.size * self.count

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Records:
        """The chosen records."""
        return Records(*(c[index] for c in self.columns()))

    def columns(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """src, dst, size, count, sstride, dstride."""
        return self.src, self.dst, self.size, self.count, self.sstride, self.dstride


def empty_records() -> Records:
    """No record."""
    return Records(*(np.zeros(0, I8) for _ in range(6)))


def concat(parts: list[Records]) -> Records:
    """All records of the parts, in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty_records()
    return Records(*(np.concatenate(c) for c in zip(*(p.columns() for p in parts), strict=True)))


def join(addr: Ints, size: Ints) -> tuple[Ints, Ints]:
    """Neighbouring pieces that touch become one; empty pieces go."""
    if len(addr) and not size.all():
        keep = size > 0
        addr, size = addr[keep], size[keep]
    if len(addr) < 2:
        return addr, size
    new = np.ones(len(addr), np.bool_)
    np.not_equal(addr[1:], addr[:-1] + size[:-1], out=new[1:])
    if new.all():
        return addr, size
    first = np.flatnonzero(new)
    return addr[first], np.add.reduceat(size, first)


def match(sa: Ints, sn: Ints, da: Ints, dn: Ints) -> tuple[Ints, Ints, Ints]:
    """Pieces ``(source, target, bytes)`` of a copy between two piece lists of equal total bytes."""
    if len(sa) == len(da) and np.array_equal(sn, dn):
        return sa, da, sn
    se, de = np.cumsum(sn), np.cumsum(dn)
    cuts = np.concatenate([se, de])
    cuts.sort()
    if len(cuts):
        keep = np.ones(len(cuts), np.bool_)
        np.not_equal(cuts[1:], cuts[:-1], out=keep[1:])
        cuts = cuts[keep]
    begin = np.concatenate([np.zeros(1, I8), cuts[:-1]]) if len(cuts) else cuts
    i = np.searchsorted(se, begin, "right")
    j = np.searchsorted(de, begin, "right")
    return sa[i] + begin - (se - sn)[i], da[j] + begin - (de - dn)[j], cuts - begin


def fold(src: Ints, dst: Ints, size: Ints) -> Records:
    """Join pieces that touch on both sides, then fold runs of equal size and equal steps."""
    src, dst, size = _touching(src, dst, size)
    n = len(src)
    one = np.ones(n, I8)
    zero = np.zeros(n, I8)
    if n < MIN_FOLD:
        return Records(src, dst, size, one, zero, zero)
    ds, dd = np.diff(src), np.diff(dst)
    same = size[1:] == size[:-1]
    step = np.zeros(n, np.bool_)  # step[i]: i-1 -> i goes on as i-2 -> i-1 did
    step[2:] = (ds[1:] == ds[:-1]) & (dd[1:] == dd[:-1]) & same[1:] & same[:-1]
    first = np.flatnonzero(_starts(step))
    count = np.diff(np.append(first, n))
    ss, dt = zero[first], zero[first]
    many = count > 1
    ss[many], dt[many] = ds[first[many]], dd[first[many]]
    return Records(src[first], dst[first], size[first], count, ss, dt)


def _starts(step: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where records start: maximal runs of steady steps, the piece before the run included.

    A piece that ends one steady run cannot also begin the next: runs are cut greedily from the
    left.
    """
    n = len(step)
    start = np.ones(n, np.bool_)
    run = np.flatnonzero(step)
    if len(run) == 0:
        return start
    begin = run[np.append(True, np.diff(run) > 1)]  # the third piece of each progression
    start[step] = False
    lead = begin - 1  # the second piece belongs to the progression too ...
    free = np.ones(len(begin), np.bool_)
    free[1:] = ~step[np.maximum(begin[1:] - 2, 0)]  # ... unless the first ends the one before
    start[lead[free]] = False
    return start


def _touching(src: Ints, dst: Ints, size: Ints) -> tuple[Ints, Ints, Ints]:
    if len(size) and not size.all():
        keep = size > 0
        src, dst, size = src[keep], dst[keep], size[keep]
    if len(src) < 2:
        return src, dst, size
    new = np.ones(len(src), np.bool_)
    end = size[:-1]
    new[1:] = (src[1:] != src[:-1] + end) | (dst[1:] != dst[:-1] + end)
    if new.all():
        return src, dst, size
    first = np.flatnonzero(new)
    return src[first], dst[first], np.add.reduceat(size, first)


def split_long(r: Records) -> Records:
    """Cut long single runs and long records, so that threads can share them."""
    single = (r.count == 1) & (r.size > _SPLIT_BYTES)
    if single.any():
        r = _cut(r, np.where(single, -(-r.size // _SPLIT_BYTES), 1), whole_rows=False)
    long = (r.count > 1) & (r.nbytes > _SPLIT_BYTES)
    if long.any():
        pieces = np.minimum(-(-r.nbytes // _SPLIT_BYTES), r.count)
        r = _cut(r, np.where(long, pieces, 1), whole_rows=True)
    return r


def _cut(r: Records, pieces: Ints, *, whole_rows: bool) -> Records:
    """Record i as ``pieces[i]`` records over rows, or over the bytes of its single row."""
    owner = np.repeat(np.arange(len(r)), pieces)
    rank = np.arange(len(owner)) - (np.cumsum(pieces) - pieces)[owner]
    src, dst, size, count, ss, dt = (c[owner] for c in r.columns())
    total = count if whole_rows else size
    each = -(-total // pieces[owner])
    begin = np.minimum(rank * each, total)
    n = np.minimum(begin + each, total) - begin
    if whole_rows:
        out = Records(src + begin * ss, dst + begin * dt, size, n, ss, dt)
    else:
        move = np.where(pieces[owner] > 1, begin, 0)
        out = Records(src + move, dst + move, np.where(pieces[owner] > 1, n, size), count, ss, dt)
    keep = out.nbytes > 0
    return out if keep.all() else out.take(keep)


def by_kernel(r: Records) -> list[tuple[str, Ints, NDArray[np.int64]]]:
    """(copy kernel, index of its records, words int64[n, words]) in kernel order; see
    program_copy."""
    src, dst, size, count, ss, dt = r.columns()
    kind = np.where(count == 1, 0, 1)
    short = size <= ELEMENT_BYTES[-1]
    if short.any():
        kind = np.where(
            short & (_ELEMENT_KIND[size * short] > 0), _ELEMENT_KIND[size * short], kind
        )
    out: list[tuple[str, Ints, NDArray[np.int64]]] = []
    for k in np.flatnonzero(np.bincount(kind)).tolist():
        i = np.flatnonzero(kind == k)
        if k == 0:
            out.append(("run", i, np.stack([src[i], dst[i], size[i]], 1)))
        elif k == 1:
            out.append(("rows", i, np.stack([c[i] for c in r.columns()], 1)))
        else:
            words = np.stack([src[i], dst[i], count[i], ss[i], dt[i]], 1)
            out.append((str(ELEMENT_BYTES[k - 2]), i, words))
    return out


def expand(r: Records) -> tuple[Ints, Ints, Ints]:
    """Every row of every record as a piece (source, target, bytes); for checks."""
    owner = np.repeat(np.arange(len(r)), r.count)
    rank = np.arange(len(owner)) - (np.cumsum(r.count) - r.count)[owner]
    return (
        r.src[owner] + rank * r.sstride[owner],
        r.dst[owner] + rank * r.dstride[owner],
        r.size[owner],
    )
