"""top_k, sort, arg_max, arg_min, running sums: one vertex walks a row, or a piece of it.

The k best of long rows are the k best of those of their pieces. The place of the best alone comes
from two reductions where that takes fewer cycles: what is best, and where that is.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import program
from poplar_py.poplar.arrays import offsets_of
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import TensorIndexError
from poplar_py.poplar.faults import fail
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.offsets import axis_of
from poplar_py.popops.reduction import reduce
from poplar_py.popops.search_cost import reductions_pay, top_k_pieces
from poplar_py.poputil.boxes import grid_boxes, rows_per_vertex
from poplar_py.poputil.layout import fresh
from poplar_py.poputil.place import interval_mapping, place_near
from poplar_py.types import bf16, f16, f32, i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["arg_max", "arg_min", "cumulative", "sort", "top_k"]

Ints = npt.NDArray[np.int64]


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
    codelet = f"popops::TopK<{x.dtype.name},{str(largest).lower()}>"
    if k == 1 and reductions_pay(graph, codelet, x.dtype, rows.shape[0], rows.shape[1]):
        best, place = _best(graph, x, axis, largest, False, prog, name)
        return best.reshape(shape), place.reshape(shape)
    given: Tensor | None = None
    while True:
        pieces = top_k_pieces(graph, codelet, x.dtype, rows.shape[0], rows.shape[1], k)
        rows, given = _top_k_step(graph, rows, given, pieces, k, codelet, prog, name)
        if pieces == 1:
            return _back(rows, x, axis, others), _back(given, x, axis, others)


def _best(
    graph: Graph, x: Tensor, axis: int, largest: bool, last: bool, prog: program.Sequence, name: str
) -> tuple[Tensor, Tensor]:
    """The best element along `axis`, which goes, and the first (last) place that holds it; NaN is
    the best of all."""
    n = x.shape[axis]
    best = reduce(graph, x, (axis,), "max" if largest else "min", prog, f"{name}/best")
    column = best.reshape((*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    places = graph.add_constant(i32, (n,), np.arange(n), f"{name}/places", mapping="linear")
    places = places.reshape((*([1] * axis), n, *([1] * (x.rank - axis - 1))))
    same = "or(eq($0,$1),ne($0,$0))" if x.dtype.is_float else "eq($0,$1)"
    text = f"select({same},$2,cast(c({-1 if last else n}),i32))"
    found = map_expr(graph, text, [x, column, places], prog, f"{name}/same", i32)
    return best, reduce(graph, found, (axis,), "max" if last else "min", prog, f"{name}/place")


def sort(
    graph: Graph, x: Tensor, axis: int, prog: program.Sequence, name: str = ""
) -> tuple[Tensor, Tensor]:
    """The elements along `axis` ascending, and where they were."""
    return top_k(graph, x, x.shape[axis_of(x, axis)], axis, False, prog, name or "sort")


def _top_k_step(
    graph: Graph,
    rows: Tensor,
    given: Tensor | None,
    pieces: int,
    k: int,
    codelet: str,
    prog: program.Sequence,
    name: str,
) -> tuple[Tensor, Tensor]:
    """The k best of every piece of every row, [rows, pieces * k], and their places."""
    count, n = rows.shape
    many = rows_per_vertex(count, n, graph.num_tiles, 1) if pieces == 1 else 1
    cut = np.arange(pieces + 1, dtype=np.int64) * n // pieces
    row = np.repeat(np.arange(0, count, many, dtype=np.int64), pieces)
    piece = np.tile(np.arange(pieces, dtype=np.int64), len(row) // pieces)
    held = np.minimum(many, count - row)
    begin, length = row * n + cut[piece], cut[piece + 1] - cut[piece]
    end = begin + held * length
    tile = place_near(graph, rows.flatten(), begin)
    mapping = interval_mapping(held * k, tile)
    values = graph.add_variable(rows.dtype, (count, pieces * k), name, mapping=mapping)
    index = graph.add_variable(i32, (count, pieces * k), f"{name}/index", mapping=mapping)
    made = offsets_of(held * k)
    edges = {
        "values": Edges.flat(values.flatten(), made[:-1], made[1:]),
        "index": Edges.flat(index.flatten(), made[:-1], made[1:]),
        "x": Edges.flat(rows.flatten(), begin, end),
        "given": _places(given, begin, end),
    }
    state = {"n": length.astype(np.int32), "k": k, "base": cut[piece].astype(np.int32)}
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return values, index


def _places(given: Tensor | None, begin: Ints, end: Ints) -> Edges:
    """The places of the elements of every vertex, where they are not their numbers."""
    if given is not None:
        return Edges.nested(np.arange(len(begin) + 1), Edges.flat(given.flatten(), begin, end))
    none = np.zeros(len(begin) + 1, np.int64)
    return Edges.nested(none, Edges.from_runs(none[:1], none[:0], none[:0], i32))


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
    codelet = f"popops::ArgBest<{x.dtype.name},{str(largest).lower()},{str(last).lower()}>"
    if reductions_pay(graph, codelet, x.dtype, count, n):
        return _best(graph, x, axis, largest, last, prog, name)[1].reshape(shape)
    lo, size = grid_boxes((count,), (rows_per_vertex(count, n, graph.num_tiles),))
    begin, end = lo[:, 0], lo[:, 0] + size[:, 0]
    tile = place_near(graph, rows.flatten(), begin * n)
    out = graph.add_variable(i32, (count,), name, mapping=interval_mapping(size[:, 0], tile))
    edges = {
        "out": Edges.flat(out, begin, end),
        "x": Edges.flat(rows.flatten(), begin * n, end * n),
    }
    cs = graph.add_compute_set(name)
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
