"""Rows written by device indices: scatter and multi_update."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from poplar_py.diagnostics import OptionError, ShapeError, TypeMismatch
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.popops.gathering import as_i32
from poplar_py.popops.offsets import as_offsets
from poplar_py.popops.slice_plan import SlicePlan, check_plan
from poplar_py.popops.tables import (
    PART,
    UpdateTable,
    table_of_parts,
    table_where_it_lies,
    update_cut,
    writable_table,
)
from poplar_py.poputil.shapes import table_shape

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["multi_update", "scatter"]

ANYWHERE = -1
"""The number of rows when indices outside are passed over."""
REDUCTIONS = {"add": 0, "mul": 1, "max": 2, "min": 3}


def scatter(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str = "",
    reduction: str = "none",
) -> Tensor:
    """A copy of x [n, w] with rows `indices[m]` replaced by, or joined with, updates [m, w].

    An index outside x ends the run with a TileException.
    reduction: none (the later update wins), add, mul, max, min. Raises OptionError for others,
    ShapeError and TypeMismatch for updates that do not fit.
    """
    _check_updates(x, indices, updates, reduction)
    name = name or "scatter"
    if prod(x.shape) == 0:
        return x
    step = min(max(indices.numel, 1), PART)
    table = writable_table(graph, x, step, prog, name)
    _scatter_all(graph, table, indices, updates, prog, name, reduction, x.shape[0])
    return table.tensor


def _check_updates(x: Tensor, indices: Tensor, updates: Tensor, reduction: str) -> None:
    if reduction != "none" and reduction not in REDUCTIONS:
        fail(OptionError, f"there is no reduction {reduction!r}", remedy="add, mul, max or min")
    _, width = table_shape(x.shape, "a table")
    if tuple(updates.shape) != (indices.numel, width):
        what = (
            f"updates {list(updates.shape)} by {indices.numel} indices of a table {list(x.shape)}"
        )
        fail(ShapeError, what, f"[{indices.numel}, {width}] is wanted")
    if updates.dtype is not x.dtype:
        fail(TypeMismatch, f"updates of {updates.dtype} for {x.dtype} elements", "cast them")


def _scatter_all(
    graph: Graph,
    table: UpdateTable,
    indices: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str,
    reduction: str,
    total: int,
) -> None:
    """All updates, so many at a time as fit a vertex."""
    count = indices.numel
    indices = as_offsets(graph, indices, prog, name)
    step = min(max(count, 1), PART)
    for begin in range(0, count, step):
        end = min(begin + step, count)
        part, index = updates.slice(begin, end, 0), indices.slice(begin, end, 0)
        _scatter_step(graph, table, index, part, prog, name, reduction, total)


def _scatter_step(
    graph: Graph,
    table: UpdateTable,
    index: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str,
    reduction: str,
    total: int,
) -> None:
    n = len(table.tile)
    count, width = updates.shape
    blocks = width // table.cols
    view = updates.reshape((count, blocks, table.cols)).dim_shuffle((1, 0, 2)).flatten()
    at = table.block * count * table.cols
    edges = {
        "x": table.edges(),
        "update": Edges.flat(view, at, at + count * table.cols),
        "index": Edges.whole(index, n),
    }
    state = {"cols": table.cols, "base": as_i32(table.base), "total": total}
    kind = table.tensor.dtype.name
    codelet = f"popops::Scatter<{kind}>"
    if reduction != "none":
        codelet = f"popops::ScatterReduce<{kind},{REDUCTIONS[reduction]}>"
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, table.tile, edges, state, name=name)
    prog.add(program.Execute(cs))


def multi_update(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str = "",
    operation: str = "none",
    plan: SlicePlan | None = None,
) -> None:
    """Rows `indices[m]` of x [n, w] replaced by, or joined with, updates [m, w], in place.

    A table whose parts, as a plan or the number of updates cuts them, lie on one tile each is
    updated where it lies; another one is moved there and back. Indices outside the table are passed
    over. Raises OptionError for an unknown operation, ShapeError and TypeMismatch for updates that
    do not fit and for a plan of another table.
    """
    _check_updates(x, indices, updates, operation)
    name = name or "multi_update"
    if plan is not None:
        check_plan(plan, x.dtype, x.shape)
    if prod(x.shape) == 0 or indices.numel == 0:
        return
    shape = (x.shape[0], x.shape[1])
    step = min(indices.numel, PART)
    cut = update_cut(graph, shape, step) if plan is None else (plan.cols, plan.rows)
    held = None if updates.intersects_with(x) else table_where_it_lies(graph, x, cut)
    table = held or table_of_parts(graph, x.dtype, shape, cut, name)
    if held is None:
        prog.add(program.Copy(x, table.tensor))
    _scatter_all(graph, table, indices, updates, prog, name, operation, ANYWHERE)
    if held is None:
        prog.add(program.Copy(table.tensor, x))
