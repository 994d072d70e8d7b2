"""Rows picked by device indices: gather and multi_slice.

A table [rows, width] is cut by columns, and by rows where it has to be, into parts that fit a
tile. Every vertex holds one part and a share of the indices. When the rows are cut, each part
gives the rows it has and a second step picks, for every index, the part that had it: values are
never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.mapping import Mapping
from poplar_py.popops.offsets import as_offsets, axis_of
from poplar_py.popops.slice_plan import SlicePlan, check_plan
from poplar_py.popops.tables import PART, table_of_parts, table_where_it_lies
from poplar_py.poputil.boxes import divisor_at_most, grid_boxes
from poplar_py.poputil.layout import compact, fresh
from poplar_py.poputil.place import interval_mapping, place_near, spread_tiles
from poplar_py.poputil.shapes import table_shape

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = [
    "GatherPlan",
    "constant_table",
    "create_table",
    "gather",
    "multi_slice",
    "plan_gather",
]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GatherPlan:
    """`cols` columns and `rows` rows in a part, `count` indices a vertex."""

    cols: int
    rows: int
    count: int


def plan_gather(rows: int, width: int, count: int, tiles: int) -> GatherPlan:
    """How to look `count` rows of a table [rows, width] up."""
    rows, width, count = max(rows, 1), max(width, 1), max(count, 1)
    cols = divisor_at_most(width, min(max(16, PART // rows), max(16, -(-width // tiles))))
    part = min(rows, max(1, PART // cols))
    share = max(64, part // 16, -(-count * (width // cols) // (6 * tiles)))
    share = max(1, min(share, PART // cols, count))
    return GatherPlan(cols, part, share)


def create_table(
    graph: Graph, dtype: DType, shape: tuple[int, int], count: int, name: str = ""
) -> tuple[Tensor, tuple[int, int, int]]:
    """A variable for a table [rows, width] whose parts are contiguous, each on one tile.

    Returns the [rows, width] view and the shape (width / cols, rows, cols) it is stored in.
    """
    rows, width = table_shape(shape, "a table")
    plan = plan_gather(rows, width, count, graph.num_tiles)
    stored = (width // plan.cols, rows, plan.cols)
    var = graph.add_variable(dtype, stored, name, mapping=table_mapping(graph, rows, width, plan))
    return var.dim_shuffle((1, 0, 2)).reshape((rows, width)), stored


def constant_table(graph: Graph, values: npt.NDArray[Any], count: int, name: str = "") -> Tensor:
    """A constant table [rows, width] stored as `create_table` does."""
    rows, width = table_shape(values.shape, "values")
    plan = plan_gather(rows, width, count, graph.num_tiles)
    stored = values.reshape((rows, width // plan.cols, plan.cols)).transpose((1, 0, 2))
    mapping = table_mapping(graph, rows, width, plan)
    var = graph.add_constant(None, stored.shape, np.ascontiguousarray(stored), name, mapping)
    return var.dim_shuffle((1, 0, 2)).reshape((rows, width))


def table_mapping(graph: Graph, rows: int, width: int, plan: GatherPlan) -> Mapping:
    """Mapping of a stored table: one tile a part."""
    _, size = grid_boxes((width // plan.cols, rows), (1, plan.rows))
    elements = size[:, 1] * plan.cols
    return interval_mapping(elements, spread_tiles(graph, len(elements)))


def gather(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    axis: int,
    prog: program.Sequence,
    name: str = "",
) -> Tensor:
    """x with `axis` replaced by the dims of `indices`: out[., *i, .] = x[., indices[*i], .].

    An index outside [0, dim) ends the run with a TileException.
    """
    name, axis = name or "gather", axis_of(x, axis)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    if prod(shape) == 0:
        return fresh(graph, x.dtype, shape, name)
    order = (axis, *(d for d in range(len(x.shape)) if d != axis))
    rest = tuple(x.shape[d] for d in order[1:])
    table = x.dim_shuffle(order).reshape((x.shape[axis], prod(rest)))
    out = multi_slice(graph, table, indices.flatten(), prog, name)
    out = out.reshape((*indices.shape, *rest))
    k = len(indices.shape)
    perm = (*range(k, k + axis), *range(k), *range(k + axis, k + len(rest)))
    return out.dim_shuffle(perm)


def multi_slice(
    graph: Graph,
    table: Tensor,
    indices: Tensor,
    prog: program.Sequence,
    name: str = "",
    plan: SlicePlan | None = None,
) -> Tensor:
    """Rows `indices[n]` (integers) of table [rows, width]: [n, width].

    With a plan every part of the table is read where the plan puts it; a table that lies elsewhere
    is moved there first. Raises ShapeError for other ranks, ShapeError and TypeMismatch for a plan
    of another table.
    """
    name = name or "multi_slice"
    if plan is not None:
        check_plan(plan, table.dtype, table.shape)
        if indices.numel:
            return _planned_slice(graph, table, indices, plan, prog, name)
    _, width = table_shape(table.shape, "a table")
    if indices.numel == 0 or width == 0:
        return fresh(graph, table.dtype, (indices.numel, width), name)
    return _slice_anywhere(graph, table, indices, prog, name)


def _slice_anywhere(
    graph: Graph, table: Tensor, indices: Tensor, prog: program.Sequence, name: str
) -> Tensor:
    """`multi_slice` of a table wherever it lies, in as few parts as a tile can hold."""
    rows, width = table.shape
    count = indices.numel
    indices = as_offsets(graph, indices, prog, name)
    own = plan_gather(rows, width, count, graph.num_tiles)
    blocks = width // own.cols
    table = compact(graph, table, prog, f"{name}/table")
    stored = table.reshape((rows, blocks, own.cols)).dim_shuffle((1, 0, 2))
    parts = -(-rows // own.rows)
    lo, size = grid_boxes((parts, blocks, count), (1, 1, own.count))
    base = lo[:, 0] * own.rows
    held = np.minimum(own.rows, rows - base)
    if own.count < count:
        tile = spread_tiles(graph, len(lo))
    else:
        tile = place_near(graph, stored.flatten(), (lo[:, 1] * rows + base) * own.cols)
    result = size[:, 2] * own.cols
    out = graph.add_variable(
        table.dtype, (parts, blocks, count, own.cols), name, mapping=interval_mapping(result, tile)
    )
    end = np.cumsum(result)
    box_lo = np.stack([lo[:, 1], base, np.zeros_like(base)], axis=1)
    box = np.stack([np.ones_like(base), held, np.full_like(base, own.cols)], axis=1)
    edges = {
        "out": Edges.flat(out.flatten(), end - result, end),
        "x": Edges.boxes(stored, box_lo, box),
        "index": Edges.flat(indices, lo[:, 2], lo[:, 2] + size[:, 2]),
    }
    state = {"cols": own.cols, "base": as_i32(base), "rows": as_i32(held), "total": rows}
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, f"popops::Gather<{table.dtype.name}>", tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    picked = out.index(0) if parts == 1 else _pick(graph, out, indices, own.rows, prog, name)
    return picked.dim_shuffle((1, 0, 2)).reshape((count, width))


def _planned_slice(
    graph: Graph,
    table: Tensor,
    indices: Tensor,
    plan: SlicePlan,
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """`multi_slice` with the parts of a plan: the workers of a part's tile share the indices."""
    cut, count = (plan.cols, plan.rows), indices.numel
    held = table_where_it_lies(graph, table, cut)
    if held is None:
        held = table_of_parts(graph, table.dtype, (plan.entries, plan.width), cut, f"{name}/table")
        prog.add(program.Copy(table, held.tensor))
    index = as_offsets(graph, indices, prog, name)
    blocks, parts = plan.width // plan.cols, -(-plan.entries // plan.rows)
    share = min(count, max(1, PART // plan.cols), max(16, -(-count // graph.target.num_workers)))
    lo, size = grid_boxes((blocks, parts, count), (1, 1, share))
    part = lo[:, 0] * parts + lo[:, 1]
    result = size[:, 2] * plan.cols
    end = np.cumsum(result)
    mapping = interval_mapping(result, held.tile[part])
    out = graph.add_variable(table.dtype, (blocks, parts, count, plan.cols), name, mapping=mapping)
    begin = (np.cumsum(held.held) - held.held) * plan.cols
    edges = {
        "out": Edges.flat(out.flatten(), end - result, end),
        "x": Edges.flat(held.flat, begin[part], begin[part] + held.held[part] * plan.cols),
        "index": Edges.flat(index, lo[:, 2], lo[:, 2] + size[:, 2]),
    }
    state = {
        "cols": plan.cols,
        "base": as_i32(held.base[part]),
        "rows": as_i32(held.held[part]),
        "total": plan.entries,
    }
    cs = graph.add_compute_set(name)
    codelet = f"popops::Gather<{table.dtype.name}>"
    graph.add_vertices(cs, codelet, held.tile[part], edges, state, name=name)
    prog.add(program.Execute(cs))
    found = out.dim_shuffle((1, 0, 2, 3))
    picked = found.index(0) if parts == 1 else _pick(graph, found, index, plan.rows, prog, name)
    return picked.dim_shuffle((1, 0, 2)).reshape((count, plan.width))


def _pick(
    graph: Graph, found: Tensor, indices: Tensor, rows: int, prog: program.Sequence, name: str
) -> Tensor:
    """[parts, blocks, n, cols] to [blocks, n, cols]: for each index the part that holds its row."""
    parts, blocks, count, cols = found.shape
    step = max(1, min(count, PART // (parts * cols), max(16, blocks * count // graph.num_tiles)))
    lo, size = grid_boxes((blocks, count), (1, step))
    n = len(lo)
    tile = spread_tiles(graph, n)
    result = size[:, 1] * cols
    out = graph.add_variable(
        found.dtype, (blocks, count, cols), f"{name}/pick", mapping=interval_mapping(result, tile)
    )
    end = np.cumsum(result)
    sub = np.repeat(np.arange(n), parts)
    part = np.tile(np.arange(parts), n)
    zero = np.zeros_like(part)
    box_lo = np.stack([part, lo[sub, 0], lo[sub, 1], zero], axis=1)
    box = np.stack([zero + 1, zero + 1, size[sub, 1], zero + cols], axis=1)
    edges = {
        "out": Edges.flat(out.flatten(), end - result, end),
        "x": Edges.nested(np.arange(n + 1) * parts, Edges.boxes(found, box_lo, box)),
        "index": Edges.flat(indices, lo[:, 1], lo[:, 1] + size[:, 1]),
    }
    cs = graph.add_compute_set(f"{name}/pick")
    state = {"cols": cols, "rows": rows}
    graph.add_vertices(cs, f"popops::GatherPick<{found.dtype.name}>", tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return out


def as_i32(values: Ints) -> npt.NDArray[np.int32]:
    """Narrowed for vertex state."""
    return values.astype(np.int32)
