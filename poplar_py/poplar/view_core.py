"""What every tensor view offers, and its fall-back form: a list of runs.

Every view operation exists on runs; the forms in ``views`` are faster where they apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.arrays import (
    I8,
    Ints,
    as_ints,
    coalesce,
    cut,
    gcd_all,
    overlapping,
    ragged,
)

Digit = tuple[int, int]
Dim = tuple[Digit, ...]
Shape = tuple[int, ...]


class View:
    """What the three forms share. ``shape`` is a tuple of ints."""

    __slots__ = ("shape",)
    shape: Shape

    def runs(self) -> tuple[Ints, Ints]:
        """Starts and lengths in row-major order of the logical shape (maximal up to wraps)."""
        raise TypeError(type(self).__name__)

    def slice(self, begin: int, end: int, dim: int) -> View:
        """Elements ``begin`` to ``end`` of a dim."""
        raise TypeError(type(self).__name__)

    def dim_shuffle(self, perm: Sequence[int]) -> View:
        """Result dim i is this view's dim ``perm[i]``."""
        raise TypeError(type(self).__name__)

    def reshape(self, shape: Shape) -> View:
        """The same elements in row-major order under another shape of equal size."""
        raise TypeError(type(self).__name__)

    def broadcast(self, times: int, dim: int) -> View:
        """The whole dim repeated ``times`` times, one copy after another."""
        raise TypeError(type(self).__name__)

    def upsample(self, times: int, dim: int) -> View:
        """Every element of the dim repeated ``times`` times in place."""
        raise TypeError(type(self).__name__)

    def reverse(self, dim: int) -> View:
        """The dim backwards."""
        raise TypeError(type(self).__name__)

    def sub_sample(self, step: int, dim: int) -> View:
        """Elements 0, step, 2 step, ... of the dim."""
        raise TypeError(type(self).__name__)

    def take(self, index: npt.ArrayLike, dim: int) -> View:
        """The listed elements of the dim (any order, repeats allowed)."""
        raise TypeError(type(self).__name__)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def aliased(self) -> bool:
        """Whether some element occurs twice."""
        return overlapping(*self.runs())

    def as_runs(self) -> Runs:
        """This view in the fall-back form."""
        return Runs(self.shape, *coalesce(*self.runs()))


class Runs(View):
    """A run list in row-major order; every view operation exists on it."""

    __slots__ = ("length", "start")

    def __init__(self, shape: Shape, start: Ints, length: Ints) -> None:
        self.shape = shape
        self.start = start
        self.length = length

    def runs(self) -> tuple[Ints, Ints]:
        return self.start, self.length

    def as_runs(self) -> Runs:
        return self

    def reshape(self, shape: Shape) -> View:
        return Runs(shape, self.start, self.length)

    def slice(self, begin: int, end: int, dim: int) -> View:
        inner, outer = prod(self.shape[dim + 1 :]), prod(self.shape[:dim])
        lo = np.arange(outer, dtype=I8) * (inner * self.shape[dim]) + begin * inner
        s, n, _ = cut(self.start, self.length, lo, lo + (end - begin) * inner)
        return Runs(self._sized(dim, end - begin), *coalesce(s, n))

    def _atoms(
        self, dim: int, f: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], shape: Shape
    ) -> View:
        """Apply a NumPy view op to the array of atoms: blocks no run boundary cuts."""
        block = prod(self.shape[dim + 1 :])
        if self.size == 0:
            return Runs(shape, np.zeros(0, I8), np.zeros(0, I8))
        g = gcd_all(self.length, block)
        run, rank = ragged(self.length // g)
        a = (self.start[run] + rank * g).reshape((*self.shape[: dim + 1], block // g))
        a = np.ascontiguousarray(f(a)).ravel()
        return Runs(shape, *coalesce(a, np.full(len(a), g, I8)))

    def dim_shuffle(self, perm: Sequence[int]) -> View:
        d = len(perm) - 1
        while d >= 0 and perm[d] == d:
            d -= 1
        p = list(perm[: d + 1])
        shape = tuple([self.shape[i] for i in perm])
        if d < 0:
            return self
        return self._atoms(d, lambda a: a.transpose([*p, d + 1]), shape)

    def _sized(self, dim: int, size: int) -> Shape:
        return (*self.shape[:dim], size, *self.shape[dim + 1 :])

    def broadcast(self, times: int, dim: int) -> View:
        shape = self._sized(dim, times * self.shape[dim])
        return self._atoms(dim, lambda a: np.concatenate([a] * times, axis=dim), shape)

    def upsample(self, times: int, dim: int) -> View:
        shape = self._sized(dim, times * self.shape[dim])
        return self._atoms(dim, lambda a: np.repeat(a, times, axis=dim), shape)

    def reverse(self, dim: int) -> View:
        return self._atoms(dim, lambda a: np.flip(a, dim), self.shape)

    def sub_sample(self, step: int, dim: int) -> View:
        pick = (*([slice(None)] * dim), slice(None, None, step))
        return self._atoms(dim, lambda a: a[pick], self._sized(dim, -(-self.shape[dim] // step)))

    def take(self, index: npt.ArrayLike, dim: int) -> View:
        idx = as_ints(index)
        if dim == 0:
            inner = prod(self.shape[1:])
            lo = idx * inner
            s, n, _ = cut(self.start, self.length, lo, lo + inner)
            return Runs(self._sized(0, len(idx)), *coalesce(s, n))
        return self._atoms(dim, lambda a: np.take(a, idx, axis=dim), self._sized(dim, len(idx)))
