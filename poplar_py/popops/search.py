"""top_k, sort, arg_max, arg_min, running sums: one vertex walks a row."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poplar import concat, program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import TensorIndexError
from poplar_py.poplar.faults import fail
from poplar_py.popops.offsets import axis_of
from poplar_py.poputil.boxes import grid_boxes, rows_per_vertex
from poplar_py.poputil.layout import fresh
from poplar_py.poputil.place import interval_mapping, place_near
from poplar_py.types import bf16, f16, f32, i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["arg_max", "arg_min", "cumulative", "sort", "top_k"]

ROW = 16384
"""Longest row that one vertex sorts; longer ones are cut and the winners sorted again."""


def _last(x: Tensor, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """x as rows along `axis` [rows, n], and the order of the other dims."""
    others = tuple(d for d in range(len(x.shape)) if d != axis)
    rows = prod(x.shape[d] for d in others)
    return x.dim_shuffle((*others, axis)).reshape((rows, x.shape[axis])), others


def _back(rows: Tensor, x: Tensor, axis: int, others: tuple[int, ...]) -> Tensor:
    """[rows, k] with k in place of `axis`."""
    shape = (*(x.shape[d] for d in others), rows.shape[1])
    inverse = [0] * len(shape)
    for i, d in enumerate((*others, axis)):
        inverse[d] = i
    return rows.reshape(shape).dim_shuffle(tuple(inverse))


def top_k(
    graph: Graph,
    x: Tensor,
    k: int,
    axis: int,
    largest: bool,
    prog: program.Sequence,
    name: str = "",
) -> tuple[Tensor, Tensor]:
    """The k best elements along `axis`, best first, and their i32 positions.

    Of equal elements the one with the lower position comes first.
    """
    name, axis = name or "top_k", axis_of(x, axis)
    if not 0 <= k <= x.shape[axis]:
        fail(TensorIndexError, f"the {k} best along axis {axis} of {list(x.shape)}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    if prod(shape) == 0:
        return fresh(graph, x.dtype, shape, name), fresh(graph, i32, shape, name)
    rows, others = _last(x, axis)
    values, index = _rows_top_k(graph, rows, None, k, largest, prog, name)
    return _back(values, x, axis, others), _back(index, x, axis, others)


def sort(
    graph: Graph, x: Tensor, axis: int, prog: program.Sequence, name: str = ""
) -> tuple[Tensor, Tensor]:
    """The elements along `axis` ascending, and where they were."""
    return top_k(graph, x, x.shape[axis_of(x, axis)], axis, False, prog, name or "sort")


def _rows_top_k(
    graph: Graph,
    rows: Tensor,
    given: Tensor | None,
    k: int,
    largest: bool,
    prog: program.Sequence,
    name: str,
) -> tuple[Tensor, Tensor]:
    n = rows.shape[1]
    if n <= ROW or 2 * k > n:
        return _top_k_step(graph, rows, given, 0, k, largest, prog, name)
    values: list[Tensor] = []
    places: list[Tensor] = []
    step = max(ROW, 2 * k)
    for begin in range(0, n, step):
        end = min(begin + step, n)
        part = rows.slice(begin, end, 1)
        names = None if given is None else given.slice(begin, end, 1)
        best = min(k, end - begin)
        v, i = _top_k_step(graph, part, names, begin, best, largest, prog, name)
        values.append(v)
        places.append(i)
    joined, index = concat(values, 1), concat(places, 1)
    return _rows_top_k(graph, joined, index, k, largest, prog, name)


def _top_k_step(
    graph: Graph,
    rows: Tensor,
    given: Tensor | None,
    base: int,
    k: int,
    largest: bool,
    prog: program.Sequence,
    name: str,
) -> tuple[Tensor, Tensor]:
    count, n = rows.shape
    lo, size = grid_boxes((count,), (rows_per_vertex(count, n, graph.num_tiles),))
    begin, end = lo[:, 0], lo[:, 0] + size[:, 0]
    tile = place_near(graph, rows.flatten(), begin * n)
    mapping = interval_mapping(size[:, 0] * k, tile)
    values = graph.add_variable(rows.dtype, (count, k), name, mapping=mapping)
    index = graph.add_variable(i32, (count, k), f"{name}/index", mapping=mapping)
    none = np.zeros(len(tile) + 1, np.int64)
    if given is None:
        names = Edges.from_runs(none[:1], none[:0], none[:0], i32)
        nested = Edges.nested(none, names)
    else:
        names = Edges.flat(given.flatten(), begin * n, end * n)
        nested = Edges.nested(np.arange(len(tile) + 1), names)
    edges = {
        "values": Edges.flat(values.flatten(), begin * k, end * k),
        "index": Edges.flat(index.flatten(), begin * k, end * k),
        "x": Edges.flat(rows.flatten(), begin * n, end * n),
        "given": nested,
    }
    codelet = f"popops::TopK<{rows.dtype.name},{str(largest).lower()}>"
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, tile, edges, {"n": n, "k": k, "base": base}, name=name)
    prog.add(program.Execute(cs))
    return values, index


def arg_max(
    graph: Graph, x: Tensor, axis: int, prog: program.Sequence, name: str = "", last: bool = False
) -> Tensor:
    """i32 position of the largest element along `axis`, which goes; of equal ones the first."""
    return _arg_best(graph, x, axis, True, last, prog, name or "arg_max")


def arg_min(
    graph: Graph, x: Tensor, axis: int, prog: program.Sequence, name: str = "", last: bool = False
) -> Tensor:
    """i32 position of the smallest element along `axis`, which goes; of equal ones the first."""
    return _arg_best(graph, x, axis, False, last, prog, name or "arg_min")


def _arg_best(
    graph: Graph, x: Tensor, axis: int, largest: bool, last: bool, prog: program.Sequence, name: str
) -> Tensor:
    axis = axis_of(x, axis)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    if prod(shape) == 0:
        return fresh(graph, i32, shape, name)
    if x.shape[axis] == 0:
        fail(TensorIndexError, f"the best of no elements: axis {axis} of {list(x.shape)}")
    rows, _ = _last(x, axis)
    count, n = rows.shape
    lo, size = grid_boxes((count,), (rows_per_vertex(count, n, graph.num_tiles),))
    begin, end = lo[:, 0], lo[:, 0] + size[:, 0]
    tile = place_near(graph, rows.flatten(), begin * n)
    out = graph.add_variable(i32, (count,), name, mapping=interval_mapping(size[:, 0], tile))
    edges = {
        "out": Edges.flat(out, begin, end),
        "x": Edges.flat(rows.flatten(), begin * n, end * n),
    }
    flags = f"{str(largest).lower()},{str(last).lower()}"
    cs = graph.add_compute_set(name)
    codelet = f"popops::ArgBest<{x.dtype.name},{flags}>"
    graph.add_vertices(cs, codelet, tile, edges, {"n": n, "cols": 1}, name=name)
    prog.add(program.Execute(cs))
    return out.reshape(shape)


def cumulative(
    graph: Graph,
    x: Tensor,
    axis: int,
    kind: str,
    prog: program.Sequence,
    name: str = "",
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Running sum or product ("sum", "prod") along `axis`, in f32 for f16 and bf16."""
    name, axis = name or f"cumulative_{kind}", axis_of(x, axis)
    if prod(x.shape) == 0:
        return x
    rows, others = _last(x, axis)
    count, n = rows.shape
    lo, size = grid_boxes((count,), (rows_per_vertex(count, n, graph.num_tiles),))
    begin, end = lo[:, 0] * n, (lo[:, 0] + size[:, 0]) * n
    tile = place_near(graph, rows.flatten(), begin)
    mapping = interval_mapping(end - begin, tile)
    out = graph.add_variable(x.dtype, (count, n), name, mapping=mapping)
    edges = {
        "out": Edges.flat(out.flatten(), begin, end),
        "x": Edges.flat(rows.flatten(), begin, end),
    }
    acc = f32 if x.dtype in (f16, bf16) else x.dtype
    codelet = f"popops::Cumulative<{x.dtype.name},{acc.name},{0 if kind == 'sum' else 1}>"
    state = {"n": n, "cols": 1, "exclusive": int(exclusive), "reverse": int(reverse)}
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return _back(out, x, axis, others)
