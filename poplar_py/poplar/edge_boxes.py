"""Views and boxes of views as 2-D records, (start, length, count, stride): see ``edges``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from poplar_py.poplar.arrays import (
    I8,
    Ints,
    as_ints,
    concat_ints,
    cut,
    offsets_of,
    ragged,
)
from poplar_py.poplar.view_core import View
from poplar_py.poplar.views import Affine, Cat

Records = tuple[Ints, Ints, Ints, Ints]
"""start, length, count, stride."""


def join_records(parts: Sequence[Records]) -> Records:
    """The records of several lists, one list after another."""
    start, length, count, stride = (concat_ints([p[i] for p in parts]) for i in range(4))
    return start, length, count, stride


def take_edges(eptr: Ints, records: Records, index: Ints) -> tuple[Ints, Records]:
    """The records of the listed edges, in that order, and their CSR pointer."""
    per = np.diff(eptr)[index]
    edge, rank = ragged(per)
    at = eptr[index][edge] + rank
    start, length, count, stride = records
    return offsets_of(per), (start[at], length[at], count[at], stride[at])


def view_records(view: View) -> Records:
    """A view as records, in row-major order."""
    if not isinstance(view, Affine):
        start, length = view.runs()
        return start, length, np.ones(len(start), I8), np.zeros(len(start), I8)
    if view.size == 0:
        return np.zeros(0, I8), np.zeros(0, I8), np.zeros(0, I8), np.zeros(0, I8)
    digits = view.digits()
    length = digits.pop()[0] if digits and digits[-1][1] == 1 else 1
    count, stride = (1, 0)
    if digits and digits[-1][1] >= 0:
        count, stride = digits.pop()
    start = np.full(1, view.offset, I8)
    for size, step in digits:
        start = (start[:, None] + np.arange(size, dtype=I8) * step).ravel()
    n = len(start)
    return start, np.full(n, length, I8), np.full(n, count, I8), np.full(n, stride, I8)


def element_addresses(view: View, index: Ints) -> Ints:
    """Addresses of elements of the flattened view."""
    if isinstance(view, Affine):
        out = np.full(len(index), view.offset, I8)
        rest = index
        for size, stride in reversed(view.digits()):
            rest, place = np.divmod(rest, size)
            out += place * stride
        return out
    start, length = view.runs()
    end = np.cumsum(length)
    r = np.searchsorted(end, index, "right")
    return start[r] + (index - (end[r] - length[r]))


def box_records(view: View, lo: Ints, size: Ints) -> tuple[Ints, Records]:
    """Boxes ``lo[v, d]``, ``size[v, d]`` of a view: CSR pointer by vertex, and records."""
    if isinstance(view, Affine):
        axes = _box_axes(view, lo, size)
        if axes is not None:
            return _axes_records(view.offset, axes, size)
    if isinstance(view, Cat):
        inside = _single_part(view, lo, size)
        if inside is not None:
            return inside
    return _window_boxes(view, lo, size)


Axis = tuple[int, Ints, Ints]
"""Stride, first index per vertex, extent per vertex."""


def _box_axes(view: Affine, lo: Ints, size: Ints) -> list[Axis] | None:
    """The boxes over plain digits, or None when a box cuts across a digit."""
    axes: list[Axis] = []
    for d, digits in enumerate(view.dims):
        low, extent = lo[:, d], size[:, d]
        inner = prod(n for n, _ in digits)
        for n, stride in digits[:-1]:
            inner //= n
            first, rest = np.divmod(low, inner)
            single = (low + extent - 1) // inner == first
            if not bool((single | ((rest == 0) & (extent % inner == 0))).all()):
                return None
            axes.append((stride, first, np.where(single, 1, extent // inner)))
            low, extent = np.where(single, rest, 0), np.where(single, extent, inner)
        axes.append((digits[-1][1], low, extent))
    return axes


def _axes_records(offset: int, axes: list[Axis], size: Ints) -> tuple[Ints, Records]:
    n = len(size)
    start = np.full(n, offset, I8)
    for stride, low, _ in axes:
        start = start + low * stride
    todo = [(s, extent) for s, _, extent in axes if bool((extent != 1).any())]
    length = np.ones(n, I8)
    if todo and todo[-1][0] == 1:
        length = todo.pop()[1]
        while todo and bool(((todo[-1][1] == 1) | (length == todo[-1][0])).all()):
            length = length * todo.pop()[1]
    count, stride = np.ones(n, I8), 0
    if todo and todo[-1][0] >= 0:
        stride, count = todo.pop()
        while todo and bool(((todo[-1][1] == 1) | (count * stride == todo[-1][0])).all()):
            count = count * todo.pop()[1]
    per = np.ones(n, I8)
    for _, extent in todo:
        per = per * extent
    empty = (size == 0).any(axis=1)
    per = np.where(empty, 0, per)
    if bool((per != 1).any()):
        v, k = ragged(per)
        start, length, count = start[v], length[v], count[v]
        for step, extent in reversed(todo):
            k, place = np.divmod(k, extent[v])
            start = start + place * step
    strides = np.where(count > 1, stride, 0)
    return offsets_of(per), (start, length, count, strides)


def _single_part(view: Cat, lo: Ints, size: Ints) -> tuple[Ints, Records] | None:
    """Boxes that each lie in one part of a Cat keep their 2-D records; None when one does not."""
    a = view.axis
    bounds = offsets_of(as_ints([p.shape[a] for p in view.parts]))
    part = np.searchsorted(bounds, lo[:, a], "right") - 1
    part = np.minimum(part, len(view.parts) - 1)
    if not bool((lo[:, a] + size[:, a] <= bounds[part + 1]).all()):
        return None
    order = np.argsort(part, kind="stable")
    ptr = np.searchsorted(part[order], np.arange(len(view.parts) + 1))
    pieces: list[tuple[Ints, Records]] = []
    for i, p in enumerate(view.parts):
        pick = order[ptr[i] : ptr[i + 1]]
        if len(pick):
            low = lo[pick]
            low[:, a] -= bounds[i]
            pieces.append(box_records(p, low, size[pick]))
    if not pieces:
        return None
    eptr, records = _stacked(pieces)
    if bool((order[1:] > order[:-1]).all()):
        return eptr, records
    back = np.empty(len(order), I8)
    back[order] = np.arange(len(order))
    return take_edges(eptr, records, back)


def _stacked(pieces: Sequence[tuple[Ints, Records]]) -> tuple[Ints, Records]:
    eptr = offsets_of(concat_ints([np.diff(eptr) for eptr, _ in pieces]))
    return eptr, join_records([records for _, records in pieces])


def _window_boxes(view: View, lo: Ints, size: Ints) -> tuple[Ints, Records]:
    """Boxes of any view: cut its runs at the rows of the boxes."""
    shape = view.shape
    n, rank = len(lo), len(shape)
    step = 1
    steps: list[int] = []
    for s in shape[::-1]:
        steps.insert(0, step)
        step *= s
    first = lo @ as_ints(steps) if rank else np.zeros(n, I8)
    d = rank
    while d > 0:  # inner dims that every box takes whole are part of the row
        d -= 1
        if not np.array_equal(size[:, d], np.full(n, shape[d])):
            break
    width = as_ints(size[:, d:].prod(axis=1))
    rows = np.where((size == 0).any(axis=1), 0, size[:, :d].prod(axis=1))
    v, k = ragged(rows)
    at = first[v]
    for i in range(d - 1, -1, -1):
        k, place = np.divmod(k, size[v, i])
        at = at + place * steps[i]
    s, length, window = cut(*view.runs(), as_ints(at), as_ints(at + width[v]))
    vertex = v[window]
    eptr = as_ints(np.searchsorted(vertex, np.arange(n + 1)))
    return eptr, (s, length, np.ones(len(s), I8), np.zeros(len(s), I8))
