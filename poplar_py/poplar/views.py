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

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.arrays import (
    I8,
    Ints,
    as_ints,
    coalesce,
    cut,
    digit_offsets,
    merge_digits,
    overlapping,
)
from poplar_py.poplar.view_core import Digit, Dim, Runs, Shape, View


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
