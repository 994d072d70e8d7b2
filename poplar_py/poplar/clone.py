"""Clones: a new variable with the memory order and the tile mapping of a tensor."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poplar.arrays import (
    Ints,
    as_ints,
    coalesce,
    cut,
    offsets_of,
    ragged,
    sort_order,
    unique_sorted,
)
from poplar_py.poplar.enums import TensorCloneMethod
from poplar_py.poplar.errors import TensorCreationError
from poplar_py.poplar.faults import a_text, fail
from poplar_py.poplar.mapping import Mapping
from poplar_py.poplar.tensor import Tensor, concat
from poplar_py.poplar.view_core import Digit, Runs, View
from poplar_py.poplar.views import Affine, Cat
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.graph import Graph


def clone_tensor(graph: Graph, source: Tensor, name: str, kind: DType, method: str) -> Tensor:
    """A tensor of the same shape on a new variable, every element on the same tile.

    Memory order by ``method``: ``preserve_order_unless_aliases`` keeps the source's (gaps between
    its elements close), or takes row-major order when the source holds an element twice;
    ``preserve_order_and_aliases`` repeats the aliases too; ``create_new_order`` is row-major;
    ``gather_and_preserve_tile_order_and_aliases`` also groups the elements of a tile.
    Unmapped elements stay unmapped.
    """
    method = a_text(method, "a clone method") or TensorCloneMethod.PRESERVE_ORDER_UNLESS_ALIASES
    if method not in list(TensorCloneMethod):
        known = ", ".join(TensorCloneMethod)
        fail(TensorCreationError, f"unknown clone method {method!r}", f"one of {known}")
    label = name or _label(source)
    start, length = coalesce(*source.runs())
    aliased = source.contains_aliases()
    if method == "create_new_order" or (aliased and method == "preserve_order_unless_aliases"):
        return _in_row_major(graph, source, kind, label, start, length)
    spans = _spans(start, length)
    if method.startswith("gather"):
        spans = _by_tile(graph, spans)
    place = _Place(spans)
    out = graph.add_variable(kind, (place.size,), label)
    var = graph.variables[-1]
    var.mapping = _copied_mapping(graph, place.start, place.length, var.base)
    view = _moved(source.view, place, var.base)
    return Tensor(out.graph, view, kind)


def _label(source: Tensor) -> str:
    return "/".join(v.name for v in source.variables()[:1]) + "/clone"


def clones_by_tile(graph: Graph, source: Tensor, n: int, name: str, kind: DType) -> Tensor:
    """``n`` clones on one variable, stacked along a new first dim: for every stretch of the
    flattened source that lies on one tile, all its copies follow one another."""
    atlas = graph.atlas()
    _, interval, _, length = atlas.split(*coalesce(*source.runs()))
    stretches = Mapping(offsets_of(length), atlas.tile[interval]).normal()
    out = graph.add_variable(kind, (n * source.numel,), name or _label(source))
    var = graph.variables[-1]
    var.mapping = Mapping(var.base + n * stretches.bounds, stretches.tile)
    bounds = stretches.bounds.tolist()
    parts = [out[n * b : n * e].reshape((n, e - b)) for b, e in pairwise(bounds)]
    return (concat(parts, 1) if parts else out).reshape((n, *source.shape))


def _in_row_major(
    graph: Graph, source: Tensor, kind: DType, label: str, start: Ints, length: Ints
) -> Tensor:
    out = graph.add_variable(kind, source.shape, label)
    var = graph.variables[-1]
    var.mapping = _copied_mapping(graph, start, length, var.base)
    return out


def _copied_mapping(graph: Graph, start: Ints, length: Ints, base: int) -> Mapping:
    """The tiles of a run list's elements as a mapping of a variable that lists them in order."""
    atlas = graph.atlas()
    _, interval, _, n = atlas.split(start, length)
    return Mapping(base + offsets_of(n), atlas.tile[interval]).normal()


def _spans(start: Ints, length: Ints) -> tuple[Ints, Ints]:
    """The elements covered, as disjoint ascending runs."""
    order = sort_order(start)
    s, n = (start, length) if order is None else (start[order], length[order])
    if len(s) == 0:
        return s, n
    end = np.maximum.accumulate(s + n)
    new = np.ones(len(s), np.bool_)
    new[1:] = s[1:] > end[:-1]
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(s)) - 1
    return s[first], end[last] - s[first]


def _by_tile(graph: Graph, spans: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Spans cut at tile boundaries and sorted by tile, then address."""
    atlas = graph.atlas()
    _, interval, s, n = atlas.split(*spans)
    order = np.argsort(atlas.tile[interval], kind="stable")
    return s[order], n[order]


class _Place:
    """Where old addresses go: span i of the old elements follows span i-1 in the new variable."""

    __slots__ = ("_by", "_new", "_old", "length", "size", "start")

    def __init__(self, spans: tuple[Ints, Ints]) -> None:
        self.start, self.length = spans
        new = offsets_of(self.length)
        self.size = int(new[-1])
        self._by = np.argsort(self.start, kind="stable")
        self._old = self.start[self._by]
        self._new = new[:-1][self._by]

    def __call__(self, address: Ints) -> Ints:
        i = np.searchsorted(self._old, address, "right") - 1
        return self._new[i] + (address - self._old[i])


def _moved(view: View, place: _Place, base: int) -> View:
    """The view with every address moved; stays Affine where the moves are affine."""
    if isinstance(view, Affine):
        moved = _moved_affine(view, place, base)
        if moved is not None:
            return moved
    if isinstance(view, Cat):
        return Cat(view.axis, [_moved(p, place, base) for p in view.parts])
    start, length = _cut_at_spans(view, place)
    return Runs(view.shape, *coalesce(place(start) + base, length))


def _cut_at_spans(view: View, place: _Place) -> tuple[Ints, Ints]:
    """Runs of the view, cut where a span ends (only the gathering clone has adjacent spans)."""
    start, length = view.runs()
    end = np.cumsum(length)
    marks = np.concatenate([place.start, place.start + place.length])
    marks = unique_sorted(marks)
    a = np.searchsorted(marks, start, "right")
    b = np.searchsorted(marks, start + length, "left")
    run, rank = ragged(np.maximum(b - a, 0))
    inside = marks[a[run] + rank] - start[run] + (end - length)[run]
    points = unique_sorted(np.concatenate([as_ints([0]), end, inside]))
    s, n, _ = cut(start, length, points[:-1], points[1:])
    return s, n


def _moved_affine(view: Affine, place: _Place, base: int) -> Affine | None:
    """Move offset and strides; None unless the moves are the same all over the view."""
    if view.size == 0:
        return Affine(base, view.dims, view.shape)
    origin = int(place(as_ints([view.offset]))[0])

    def digit(size: int, stride: int) -> Digit:
        if size < 2 or stride == 0:
            return size, stride
        return size, int(place(as_ints([view.offset + stride]))[0]) - origin

    dims = tuple([tuple([digit(*d) for d in dim]) for dim in view.dims])
    moved = Affine(base + origin, dims, view.shape)
    old_start, old_length = _cut_at_spans(view, place)
    new_start, new_length = moved.runs()
    if len(new_start) > len(old_start) or moved.size != view.size:
        return None
    cuts = offsets_of(old_length)[:-1]
    at = np.searchsorted(offsets_of(new_length), cuts, "right") - 1
    here = new_start[at] + (cuts - offsets_of(new_length)[at])
    last = place(old_start + old_length - 1) - place(old_start)
    same = np.array_equal(here, place(old_start) + base) and np.array_equal(last, old_length - 1)
    return moved if same else None
