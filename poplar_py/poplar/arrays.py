"""Array idioms of the tile level: ragged ranges, runs, and sorted-key searches, all in NumPy.

A *run* is ``(start, length)`` in the global element space; a run list is two int64 arrays in
row-major order of some view. Nothing here loops over runs, vertices or elements in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

I8 = np.int64
Ints = npt.NDArray[np.int64]
Tiles = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

SPAN = 1 << 40
"""``tile * SPAN + address`` is one sort key: 2**23 tiles, 2**40 elements."""


def as_ints(values: npt.ArrayLike) -> Ints:
    """The values as an int64 array (no copy where they are one already)."""
    return np.asarray(values, I8)


def offsets_of(counts: Ints) -> Ints:
    """CSR pointer ``int64[n + 1]`` of ``counts[n]``."""
    out = np.zeros(len(counts) + 1, I8)
    np.cumsum(counts, out=out[1:])
    return out


def ragged(counts: Ints) -> tuple[Ints, Ints]:
    """``(owner, rank)`` of ``sum(counts)`` items: the group an item is in, and its place there."""
    owner = np.repeat(np.arange(len(counts), dtype=I8), counts)
    first = np.cumsum(counts) - counts
    return owner, np.arange(len(owner), dtype=I8) - first[owner]


def sort_order(key: npt.NDArray[np.integer]) -> Ints | None:
    """A stable sorting permutation, or None where the key ascends already (the common case)."""
    if len(key) < 2 or bool((key[1:] >= key[:-1]).all()):
        return None
    return np.argsort(key, kind="stable").astype(I8, copy=False)


def first_of_each(key: npt.NDArray[np.integer]) -> Ints:
    """Positions where a sorted key changes, the first one included."""
    if len(key) == 0:
        return np.zeros(0, I8)
    new = np.ones(len(key), np.bool_)
    np.not_equal(key[1:], key[:-1], out=new[1:])
    return np.flatnonzero(new)


def unique_sorted(key: Ints) -> Ints:
    """The distinct values, ascending (``np.unique`` hashes: far slower on large arrays)."""
    key = np.sort(key)
    return key[first_of_each(key)]


def coalesce(start: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Join runs that follow one another in memory; empty runs must not occur."""
    if len(start) < 2:
        return start, length
    new = np.ones(len(start), np.bool_)
    np.not_equal(start[1:], start[:-1] + length[:-1], out=new[1:])
    if new.all():
        return start, length
    first = np.flatnonzero(new)
    return start[first], np.add.reduceat(length, first)


def cut(start: Ints, length: Ints, lo: Ints, hi: Ints) -> tuple[Ints, Ints, Ints]:
    """Runs of the windows ``[lo, hi)`` of the elements a run list lists (windows may overlap).

    Returns start, length and the window of every piece, window by window.
    """
    end = np.cumsum(length)
    begin = end - length
    a = np.searchsorted(end, lo, "right")
    b = np.searchsorted(begin, hi, "left")
    window, rank = ragged(np.where(hi > lo, np.maximum(b - a, 0), 0))
    run = a[window] + rank
    s = np.maximum(begin[run], lo[window])
    e = np.minimum(end[run], hi[window])
    return start[run] + (s - begin[run]), e - s, window


def digit_offsets(digits: Iterable[tuple[int, int]]) -> Ints:
    """All sums of a mixed-radix index, outer digit first: ``int64[prod of sizes]``."""
    out = np.zeros(1, I8)
    for size, stride in digits:
        if size != 1:
            out = (out[:, None] + np.arange(size, dtype=I8) * stride).ravel()
    return out


def merge_digits(digits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbouring digits that step as one; digits of size 1 go."""
    out: list[tuple[int, int]] = []
    for size, stride in digits:
        if size == 1:
            continue
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return out


def overlapping(start: Ints, length: Ints) -> bool:
    """Whether two of the runs share an element."""
    order = sort_order(start)
    if order is not None:
        start, length = start[order], length[order]
    if len(start) < 2:
        return False
    return bool((start[1:] < np.maximum.accumulate(start + length)[:-1]).any())


def gcd_all(values: Ints, initial: int) -> int:
    """Greatest common divisor of the values and ``initial``."""
    return int(np.gcd.reduce(values, initial=initial))


def concat_ints(parts: Sequence[Ints]) -> Ints:
    """Concatenation that accepts an empty list."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, I8)
