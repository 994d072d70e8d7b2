"""Parts of a tensor: slices, indices, subsamples, and a dim backwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Self, cast

import numpy.typing as npt

from poplar_py.poplar.errors import TensorIndexError
from poplar_py.poplar.faults import fail, int_array, listed, whole_number, whole_numbers
from poplar_py.poplar.mapping import Interval
from poplar_py.poplar.tensor_core import TensorCore
from poplar_py.poplar.view_concat import concat_views
from poplar_py.poplar.views import Affine

__all__ = ["Index", "TensorParts"]

Index = int | slice
Part = int | tuple[int, int] | Interval


class TensorParts(TensorCore):
    """The operations that leave elements out."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Self]:
        return (self.index(i) for i in range(len(self)))

    def slice(
        self,
        begin: int | Sequence[int] | Interval,
        end: int | Sequence[int] | None = None,
        dim: int = 0,
    ) -> Self:
        """Elements ``begin`` to ``end`` of a dim.

        Also ``slice(Interval, dim=d)``, and ``slice([begins], [ends])`` for the first dims.
        """
        if not isinstance(begin, int) or not isinstance(end, int):
            return self._slice_any(begin, end, dim)
        view = self.view
        if type(view) is Affine and len(view.dims) == 1 and dim == 0:  # the common case, inline
            digits = view.dims[0]
            if len(digits) == 1 and 0 <= begin <= end <= digits[0][0]:
                stride, n = digits[0][1], end - begin
                part = Affine(view.offset + begin * stride, (((n, stride),),), (n,))
                return self.__class__(self.graph, part, self.dtype)
        if type(dim) is not int or dim < 0:
            dim = self._dim(dim)
        if dim >= len(view.shape) or not 0 <= begin <= end <= view.shape[dim]:
            self._bad_slice(begin, end, dim)
        return self.__class__(self.graph, view.slice(begin, end, dim), self.dtype)

    def _slice_any(self, begin: Any, end: Any, dim: int) -> Self:
        if isinstance(begin, Sequence) and end is None:
            b, e = _bounds(begin)
            return self.slice(b, e, dim)
        if not isinstance(begin, Sequence) and not isinstance(end, Sequence):
            what = "the bounds of a slice"
            return self.slice(whole_number(begin, what), whole_number(end, what), dim)
        begins = whole_numbers(begin, "the begins of a slice")
        ends = whole_numbers(end, "the ends of a slice")
        if len(begins) != len(ends) or len(begins) > self.rank:
            fail(
                TensorIndexError,
                f"{len(begins)} begins and {len(ends)} ends on a tensor of rank {self.rank}",
            )
        out = self
        for d, (b, e) in enumerate(zip(begins, ends, strict=True)):
            out = out.slice(b, e, d)
        return out

    def _bad_slice(self, begin: int, end: int, dim: int) -> NoReturn:
        self._dim(dim)
        size = self.view.shape[dim]
        fail(
            TensorIndexError,
            f"slice {begin} to {end} of dim {dim}, which has {size} elements",
            "0 <= begin <= end <= size must hold",
        )

    def slices(self, parts: Sequence[Part | Sequence[Part]], dim: int = 0) -> list[Self]:
        """One slice per interval, or one row per index (the dim stays, of size 1). A list of
        intervals in the place of one gives those slices joined."""
        remedy = "give intervals or indices"
        return [self._part(p, dim) for p in listed(parts, "slices", remedy, TensorIndexError)]

    def _part(self, part: Any, dim: int) -> Self:
        if not isinstance(part, (Sequence, slice)):
            i = whole_number(part, "an index")
            return self.slice(i, i + 1, dim)
        if not isinstance(part, Sequence) or not part or not isinstance(part[0], Sequence):
            b, e = _bounds(part)
            return self.slice(b, e, dim)
        d = self._dim(dim)
        pieces = [self.slice(*_bounds(p), d).view for p in cast("Sequence[Any]", part)]
        return self._make(concat_views(pieces, d, self.graph.same_variable))

    def index(self, i: int | Sequence[int], dim: int = 0) -> Self:
        """Element ``i`` of a dim; the dim goes. A list of indices is for the first dims."""
        view = self.view
        shape = view.shape
        if type(i) is not int:
            if isinstance(i, Sequence):
                return self._index_all(i)
            i = whole_number(i, "an index")
        if type(dim) is not int or dim < 0 or dim >= len(shape):
            dim = self._dim(dim)
        if not 0 <= i < shape[dim]:
            if -shape[dim] <= i < 0:
                i += shape[dim]
            else:
                fail(TensorIndexError, f"index {i} of dim {dim}, which has {shape[dim]} elements")
        if type(view) is Affine and len(view.dims[dim]) == 1:
            stride = view.dims[dim][0][1]
            dims = view.dims
            view = Affine(
                view.offset + i * stride,
                dims[:dim] + dims[dim + 1 :],
                shape[:dim] + shape[dim + 1 :],
            )
            return self.__class__(self.graph, view, self.dtype)
        rest = (*shape[:dim], *shape[dim + 1 :])
        return self._make(view.slice(i, i + 1, dim).reshape(rest))

    def _index_all(self, indices: Sequence[int]) -> Self:
        each = whole_numbers(indices, "indices")
        if len(each) > self.rank:
            fail(TensorIndexError, f"{len(each)} indices on a tensor of rank {self.rank}")
        out = self
        for i in each:
            out = out.index(i)
        return out

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Self:
        """``t[i]``, ``t[a:b]``, ``t[i, a:b]``: an index drops its dim, a range keeps it."""
        if isinstance(key, int):
            return self.index(key)
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.rank:
            fail(TensorIndexError, f"{len(keys)} indices on a tensor of rank {self.rank}")
        out, dim = self, 0
        for k in keys:
            if not isinstance(k, slice):
                out = out.index(whole_number(k, "an index"), dim)
                continue
            out = out._range(k, dim)
            dim += 1
        return out

    def _range(self, key: slice, dim: int) -> Self:
        try:
            begin, end, step = key.indices(self.view.shape[dim])
        except (TypeError, ValueError) as error:
            fail(TensorIndexError, f"the range of dim {dim}: {error}")
        if step < 0:
            last = range(begin, end, step)
            if not last:
                return self.slice(0, 0, dim)
            return self.slice(last[-1], begin + 1, dim).reverse(dim).sub_sample(-step, dim)
        part = self.slice(begin, max(begin, end), dim)
        return part if step == 1 else part.sub_sample(step, dim)

    def take(self, index: npt.ArrayLike, dim: int = 0) -> Self:
        """The listed elements of a dim, in that order; repeats alias."""
        d = self._dim(dim)
        idx = int_array(index, "the indices").ravel()
        if len(idx) == 0:
            return self.slice(0, 0, d)
        if int(idx.min()) < 0 or int(idx.max()) >= self.shape[d]:
            fail(
                TensorIndexError,
                f"indices {int(idx.min())} to {int(idx.max())} of dim {d}, which has "
                f"{self.shape[d]} elements",
            )
        return self._make(self.view.take(idx, d))

    def sub_sample(self, step: int, dim: int = 0) -> Self:
        """Elements 0, step, 2 step, ... of a dim."""
        d = self._dim(dim)
        step = whole_number(step, "a step")
        if step < 1:
            fail(TensorIndexError, f"sub_sample with step {step}", "the step is at least 1")
        return self if step == 1 else self._make(self.view.sub_sample(step, d))

    def reverse(self, dim: int = 0) -> Self:
        """A dim backwards."""
        return self._make(self.view.reverse(self._dim(dim)))


def _bounds(interval: Any) -> tuple[int, int]:
    """Begin and end of an Interval or a pair."""
    bounds = whole_numbers(interval, "the bounds of a slice")
    if len(bounds) != 2:
        fail(TensorIndexError, f"an interval of {len(bounds)} numbers", "give begin and end")
    return bounds[0], bounds[1]
