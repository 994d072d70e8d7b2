"""Tensor views: three immutable forms with one interface, over one global element space.

``Affine``  offset and nested digits: a logical dim is a tuple of ``(size, stride)`` digits, outer
            to inner, so that a reshape only regroups digits and stays a view after any dim shuffle
``Cat``     parts joined along one axis, each part any view
``Runs``    a list of ``(start, length)`` in row-major order: the fall-back

Views check nothing: ``poplar_py.poplar.tensor.Tensor`` checks arguments. Stride 0 is a broadcast, a
negative stride a reversal. Costs go with digits, parts or runs; never with elements.
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
    digit_offsets,
    gcd_all,
    merge_digits,
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


def _cut_dim(dim: Dim, begin: int, end: int) -> list[tuple[int, Dim]]:
    """A range of one nested dim as (offset, digits) pieces in order; ``begin < end``."""
    stride = dim[0][1]
    if len(dim) == 1:
        return [(begin * stride, ((end - begin, stride),))]
    rest = dim[1:]
    inner = prod(d[0] for d in rest)
    qb, rb = divmod(begin, inner)
    qe, re = divmod(end, inner)
    if qb == qe or (qe == qb + 1 and re == 0):
        stop = re if qb == qe else inner
        return [(qb * stride + o, d) for o, d in _cut_dim(rest, rb, stop)]
    out: list[tuple[int, Dim]] = []
    if rb:
        out += [(qb * stride + o, d) for o, d in _cut_dim(rest, rb, inner)]
        qb += 1
    if qe > qb:
        out.append((qb * stride, rest if qe == qb + 1 else ((qe - qb, stride), *rest)))
    if re:
        out += [(qe * stride + o, d) for o, d in _cut_dim(rest, 0, re)]
    return out


class Affine(View):
    """``offset`` plus, for every dim, a mixed-radix sum over its digits."""

    __slots__ = ("dims", "offset")

    def __init__(self, offset: int, dims: tuple[Dim, ...], shape: Shape | None = None) -> None:
        self.offset = offset
        self.dims = dims
        if shape is None:
            shape = tuple([d[0][0] if len(d) == 1 else prod([x[0] for x in d]) for d in dims])
        self.shape = shape

    @staticmethod
    def dense(base: int, shape: Shape) -> Affine:
        """The row-major view of ``shape`` elements from address ``base``."""
        dims: list[Dim] = []
        step = prod(shape)
        for size in shape:
            step //= max(size, 1)
            dims.append(((size, step),))
        return Affine(base, tuple(dims), shape)

    def slice(self, begin: int, end: int, dim: int) -> View:
        digits = self.dims[dim]
        shape = (*self.shape[:dim], end - begin, *self.shape[dim + 1 :])
        if len(digits) == 1:
            stride = digits[0][1]
            dims = (*self.dims[:dim], ((end - begin, stride),), *self.dims[dim + 1 :])
            return Affine(self.offset + begin * stride, dims, shape)
        if begin == end:
            dims = (*self.dims[:dim], ((0, 1),), *self.dims[dim + 1 :])
            return Affine(self.offset, dims, shape)
        parts: list[View] = [
            Affine(self.offset + o, (*self.dims[:dim], d, *self.dims[dim + 1 :]))
            for o, d in _cut_dim(digits, begin, end)
        ]
        return parts[0] if len(parts) == 1 else Cat(dim, parts)

    def dim_shuffle(self, perm: Sequence[int]) -> View:
        dims, shape = self.dims, self.shape
        return Affine(self.offset, tuple([dims[p] for p in perm]), tuple([shape[p] for p in perm]))

    def _with(self, dim: int, digits: Dim) -> Affine:
        return Affine(self.offset, (*self.dims[:dim], digits, *self.dims[dim + 1 :]))

    def broadcast(self, times: int, dim: int) -> View:
        if self.shape[dim] == 1:
            return self._with(dim, ((times, 0),))
        return self._with(dim, ((times, 0), *self.dims[dim]))

    def upsample(self, times: int, dim: int) -> View:
        if self.shape[dim] == 1:
            return self._with(dim, ((times, 0),))
        return self._with(dim, (*self.dims[dim], (times, 0)))

    def reverse(self, dim: int) -> View:
        digits = self.dims[dim]
        offset = self.offset + sum((n - 1) * s for n, s in digits if n)
        flipped = tuple((n, -s) for n, s in digits)
        dims = (*self.dims[:dim], flipped, *self.dims[dim + 1 :])
        return Affine(offset, dims, self.shape)

    def sub_sample(self, step: int, dim: int) -> View:
        digits = tuple(merge_digits(self.dims[dim])) or ((1, 1),)
        size, stride = digits[-1]
        if len(digits) == 1:
            return self._with(dim, ((-(-size // step), stride * step),))
        if size % step == 0:
            return self._with(dim, (*digits[:-1], (size // step, stride * step)))
        return self.as_runs().sub_sample(step, dim)

    def reshape(self, shape: Shape) -> View:
        if shape == self.shape:
            return self
        if 0 in shape:
            return Affine(self.offset, tuple([((n, 1),) for n in shape]), shape)
        digits = merge_digits([x for d in self.dims for x in d])
        dims: list[Dim] = []
        at = 0
        for need in shape:
            group: list[Digit] = []
            while need > 1:
                size, stride = digits[at]
                if need % size == 0:
                    group.append((size, stride))
                    need //= size
                    at += 1
                elif size % need == 0:
                    group.append((need, stride * (size // need)))
                    digits[at] = (size // need, stride)
                    need = 1
                else:
                    return self.as_runs().reshape(shape)
            dims.append(tuple(group) or ((1, 1),))
        return Affine(self.offset, tuple(dims), shape)

    def take(self, index: npt.ArrayLike, dim: int) -> View:
        idx = as_ints(index)
        step = np.diff(idx)
        digits = self.dims[dim]
        if len(idx) and len(digits) == 1 and (len(step) == 0 or bool((step == step[0]).all())):
            stride = digits[0][1]
            k = int(step[0]) if len(step) else 1
            dims = (*self.dims[:dim], ((len(idx), stride * k),), *self.dims[dim + 1 :])
            return Affine(self.offset + int(idx[0]) * stride, dims)
        outer = digit_offsets([x for d in self.dims[:dim] for x in d])
        inner = np.zeros(len(idx), I8)
        rest = idx.copy()
        for size, stride in reversed(digits):
            inner += (rest % size) * stride
            rest //= size
        tail = Affine(0, self.dims[dim + 1 :])
        start, length = tail.runs() if tail.dims else (np.zeros(1, I8), np.ones(1, I8))
        starts = self.offset + (outer[:, None, None] + inner[None, :, None] + start).ravel()
        lengths = np.broadcast_to(length, (len(outer), len(idx), len(length))).reshape(-1)
        shape = (*self.shape[:dim], len(idx), *self.shape[dim + 1 :])
        return Runs(shape, *coalesce(starts, lengths))

    def digits(self) -> list[Digit]:
        """All digits, outer to inner, merged where they step as one."""
        return merge_digits([x for d in self.dims for x in d])

    def runs(self) -> tuple[Ints, Ints]:
        if 0 in self.shape:
            return np.zeros(0, I8), np.zeros(0, I8)
        digits = self.digits()
        length = 1
        if digits and digits[-1][1] == 1:
            length = digits.pop()[0]
        start = digit_offsets(digits) + self.offset
        return start, np.full(len(start), length, I8)

    def aliased(self) -> bool:
        if 0 in self.shape:
            return False
        reach = 0
        for size, stride in sorted(
            ((n, abs(s)) for d in self.dims for n, s in d if n > 1), key=lambda x: x[1]
        ):
            if stride == 0:
                return True
            if stride <= reach:
                return overlapping(*self.runs())
            reach += (size - 1) * stride
        return False


class Cat(View):
    """Parts joined along ``axis``; a Cat inside a Cat on the same axis is flattened."""

    __slots__ = ("axis", "parts")

    def __init__(self, axis: int, parts: Sequence[View]) -> None:
        flat: list[View] = []
        for p in parts:
            flat += p.parts if isinstance(p, Cat) and p.axis == axis else [p]
        self.axis = axis
        self.parts = [p for p in flat if p.shape[axis]] or flat[:1]
        s = self.parts[0].shape
        self.shape = (*s[:axis], sum([p.shape[axis] for p in self.parts]), *s[axis + 1 :])

    def _map(self, f: Callable[[View], View], axis: int | None = None) -> View:
        return Cat(self.axis if axis is None else axis, [f(p) for p in self.parts])

    def slice(self, begin: int, end: int, dim: int) -> View:
        if dim != self.axis:
            return self._map(lambda p: p.slice(begin, end, dim))
        out: list[View] = []
        at = 0
        for p in self.parts:
            n = p.shape[dim]
            lo, hi = max(begin - at, 0), min(end - at, n)
            if lo < hi:
                out.append(p.slice(lo, hi, dim) if hi - lo < n else p)
            at += n
        if not out:
            return self.parts[0].slice(0, 0, dim)
        return out[0] if len(out) == 1 else Cat(dim, out)

    def dim_shuffle(self, perm: Sequence[int]) -> View:
        return self._map(lambda p: p.dim_shuffle(perm), list(perm).index(self.axis))

    def broadcast(self, times: int, dim: int) -> View:
        if dim == self.axis:
            return Cat(dim, self.parts * times)
        return self._map(lambda p: p.broadcast(times, dim))

    def upsample(self, times: int, dim: int) -> View:
        return self._map(lambda p: p.upsample(times, dim))

    def reverse(self, dim: int) -> View:
        parts = [p.reverse(dim) for p in self.parts]
        return Cat(self.axis, parts[::-1] if dim == self.axis else parts)

    def sub_sample(self, step: int, dim: int) -> View:
        if dim != self.axis:
            return self._map(lambda p: p.sub_sample(step, dim))
        out: list[View] = []
        phase = 0
        for p in self.parts:
            n = p.shape[dim]
            if phase < n:
                out.append(p.slice(phase, n, dim).sub_sample(step, dim))
            phase = (phase - n) % step
        return Cat(dim, out) if out else self.parts[0].slice(0, 0, dim)

    def take(self, index: npt.ArrayLike, dim: int) -> View:
        if dim != self.axis:
            return self._map(lambda p: p.take(index, dim))
        return self.as_runs().take(index, dim)

    def reshape(self, shape: Shape) -> View:
        if shape == self.shape:
            return self
        before = prod(self.shape[: self.axis])
        k, p = 0, 1
        while k < len(shape) and (p < before or (p == before and shape[k] == 1)):
            p *= shape[k]
            k += 1
        if p == before and k < len(shape) and self.size:
            inner = prod(shape[k + 1 :])
            sizes = [x.size // before for x in self.parts]
            if all(s % inner == 0 for s in sizes):
                parts = [
                    x.reshape((*shape[:k], s // inner, *shape[k + 1 :]))
                    for x, s in zip(self.parts, sizes, strict=True)
                ]
                return Cat(k, parts)
        return Runs(shape, *self.runs())

    def runs(self) -> tuple[Ints, Ints]:
        outer = prod(self.shape[: self.axis])
        if outer == 1:
            pairs = [p.runs() for p in self.parts]
            return coalesce(
                np.concatenate([r[0] for r in pairs]), np.concatenate([r[1] for r in pairs])
            )
        starts: list[Ints] = []
        lengths: list[Ints] = []
        keys: list[Ints] = []
        for i, p in enumerate(self.parts):
            width = p.size // max(outer, 1)
            lo = np.arange(outer, dtype=I8) * width
            s, n, window = cut(*p.runs(), lo, lo + width)
            starts.append(s)
            lengths.append(n)
            keys.append(window * len(self.parts) + i)
        order = np.argsort(np.concatenate(keys), kind="stable")
        return coalesce(np.concatenate(starts)[order], np.concatenate(lengths)[order])


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


SameVariable = Callable[[int, int], bool]


def concat_views(views: Sequence[View], axis: int, same: SameVariable) -> View:
    """Join views along an axis; neighbours that continue each other in memory become one part.

    ``same`` tells whether two addresses belong to one variable: a part never spans two.
    """
    if len(views) == 1:
        return views[0]
    joined = Cat(axis, views)
    if all(isinstance(p, Runs) for p in joined.parts):
        return joined.as_runs()
    parts = _fuse(joined.parts, axis, same)
    return parts[0] if len(parts) == 1 else Cat(axis, parts)


def _fuse(parts: list[View], axis: int, same: SameVariable) -> list[View]:
    """Join neighbouring Affine parts of which the second starts where the first ends."""
    out = parts[:1]
    for p in parts[1:]:
        last = out[-1]
        joined = _fuse_two(last, p, axis, same)
        if joined is None:
            out.append(p)
        else:
            out[-1] = joined
    return out


def _fuse_two(a: View, b: View, axis: int, same: SameVariable) -> Affine | None:
    if not isinstance(a, Affine) or not isinstance(b, Affine):
        return None
    da, db = a.dims[axis], b.dims[axis]
    if len(da) != 1 or len(db) != 1:
        return None
    (na, sa), (nb, sb) = da[0], db[0]
    step = b.offset - a.offset
    if na == 1:
        sa = step if nb == 1 else sb
    if (nb != 1 and sb != sa) or step != na * sa or sa == 0:
        return None
    for d in range(len(a.dims)):
        if d != axis and a.dims[d] != b.dims[d]:
            return None
    if not same(a.offset, b.offset):
        return None
    return Affine(a.offset, (*a.dims[:axis], ((na + nb, sa),), *a.dims[axis + 1 :]))
