"""Rows picked and written by device indices: gather, multi_slice, scatter, dynamic slices.

A table [rows, width] is cut by columns, and by rows where it has to be, into parts that fit a
tile. Every vertex holds one part and a share of the indices. When the rows are cut, each part
gives the rows it has and a second step picks, for every index, the part that had it: values are
never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.mapping import Mapping
from poplar_py.poputil.boxes import divisor_at_most, grid_boxes
from poplar_py.poputil.layout import compact, fresh
from poplar_py.poputil.place import interval_mapping, place_near, spread_tiles
from poplar_py.types import i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = [
    "GatherPlan",
    "UpdateTable",
    "constant_table",
    "create_table",
    "create_update_table",
    "dynamic_slice",
    "dynamic_update",
    "gather",
    "multi_slice",
    "multi_update",
    "plan_gather",
    "scatter",
    "slice_table",
    "update_table",
]

Ints = npt.NDArray[np.int64]
PART = 24576
"""Most elements of a table part, and of a vertex's results."""
REDUCTIONS = {"add": 0, "mul": 1, "max": 2, "min": 3}


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
    rows, width = shape
    plan = plan_gather(rows, width, count, graph.num_tiles)
    stored = (width // plan.cols, rows, plan.cols)
    var = graph.add_variable(dtype, stored, name, mapping=table_mapping(graph, rows, width, plan))
    return var.dim_shuffle((1, 0, 2)).reshape((rows, width)), stored


def constant_table(graph: Graph, values: npt.NDArray[Any], count: int, name: str = "") -> Tensor:
    """A constant table [rows, width] stored as `create_table` does."""
    rows, width = values.shape
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
    """x with `axis` replaced by the dims of `indices` (i32): out[., *i, .] = x[., indices[*i], .].

    An index outside [0, dim) ends the run with a TileException.
    """
    name = name or "gather"
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
    graph: Graph, table: Tensor, indices: Tensor, prog: program.Sequence, name: str = ""
) -> Tensor:
    """Rows `indices[n]` (i32) of table [rows, width]: [n, width]."""
    name = name or "multi_slice"
    rows, width = table.shape
    count = indices.numel
    plan = plan_gather(rows, width, count, graph.num_tiles)
    blocks = width // plan.cols
    table = compact(graph, table, prog, f"{name}/table")
    stored = table.reshape((rows, blocks, plan.cols)).dim_shuffle((1, 0, 2))
    parts = -(-rows // plan.rows)
    lo, size = grid_boxes((parts, blocks, count), (1, 1, plan.count))
    base = lo[:, 0] * plan.rows
    held = np.minimum(plan.rows, rows - base)
    if plan.count < count:
        tile = spread_tiles(graph, len(lo))
    else:
        tile = place_near(graph, stored.flatten(), (lo[:, 1] * rows + base) * plan.cols)
    result = size[:, 2] * plan.cols
    out = graph.add_variable(
        table.dtype, (parts, blocks, count, plan.cols), name, mapping=interval_mapping(result, tile)
    )
    end = np.cumsum(result)
    box_lo = np.stack([lo[:, 1], base, np.zeros_like(base)], axis=1)
    box = np.stack([np.ones_like(base), held, np.full_like(base, plan.cols)], axis=1)
    edges = {
        "out": Edges.flat(out.flatten(), end - result, end),
        "x": Edges.boxes(stored, box_lo, box),
        "index": Edges.flat(indices.flatten(), lo[:, 2], lo[:, 2] + size[:, 2]),
    }
    state = {"cols": plan.cols, "base": _i(base), "rows": _i(held), "total": rows}
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, f"popops::Gather<{table.dtype.name}>", tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    picked = out.index(0) if parts == 1 else _pick(graph, out, indices, plan.rows, prog, name)
    return picked.dim_shuffle((1, 0, 2)).reshape((count, width))


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
        "index": Edges.flat(indices.flatten(), lo[:, 1], lo[:, 1] + size[:, 1]),
    }
    cs = graph.add_compute_set(f"{name}/pick")
    state = {"cols": cols, "rows": rows}
    graph.add_vertices(cs, f"popops::GatherPick<{found.dtype.name}>", tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return out


def _i(values: Ints) -> npt.NDArray[np.int32]:
    return values.astype(np.int32)


@dataclass(frozen=True)
class UpdateTable:
    """A writable table [rows, width] in parts, each contiguous on one tile.

    `tensor` is its view; part v holds rows `base[v]` .. `base[v] + held[v]` of the columns
    `block[v] * cols` .. on tile `tile[v]`.
    """

    tensor: Tensor
    tile: npt.NDArray[np.int32]
    block: Ints
    base: Ints
    held: Ints
    cols: int
    flat: Tensor

    def edges(self) -> Edges:
        """Every vertex's part."""
        size = self.held * self.cols
        end = np.cumsum(size)
        return Edges.flat(self.flat, end - size, end)


def create_update_table(
    graph: Graph, dtype: DType, shape: tuple[int, int], count: int, name: str = ""
) -> UpdateTable:
    """A new table [rows, width] for updates of `count` rows at a time, which must fit beside it."""
    rows, width = shape
    limit = min(max(1, PART // max(1, count)), max(16, -(-width // graph.num_tiles)))
    cols = divisor_at_most(width, limit)
    part = min(rows, max(1, PART // cols), max(64, -(-rows * (width // cols) // graph.num_tiles)))
    lo, size = grid_boxes((width // cols, rows), (1, part))
    tile = spread_tiles(graph, len(lo))
    mapping = interval_mapping(size[:, 1] * cols, tile)
    var = graph.add_variable(dtype, (width // cols, rows, cols), name, mapping=mapping)
    tensor = var.dim_shuffle((1, 0, 2)).reshape((rows, width))
    return UpdateTable(tensor, tile, lo[:, 0], lo[:, 1], size[:, 1], cols, var.flatten())


def _writable(
    graph: Graph, x: Tensor, count: int, prog: program.Sequence, name: str
) -> UpdateTable:
    """A copy of x [rows, width] as a table."""
    table = create_update_table(graph, x.dtype, (x.shape[0], x.shape[1]), count, name)
    prog.add(program.Copy(x, table.tensor))
    return table


def scatter(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str = "",
    reduction: str = "none",
) -> Tensor:
    """A copy of x [n, w] with rows `indices[m]` (i32) replaced by, or joined with, updates [m, w].

    reduction: none (the later update wins), add, mul, max, min. Raises OptionError for others.
    """
    if reduction != "none" and reduction not in REDUCTIONS:
        raise OptionError(f"there is no reduction {reduction!r}", remedy="add, mul, max or min")
    name = name or "scatter"
    if prod(x.shape) == 0:
        return x
    count = indices.numel
    step = min(max(count, 1), PART)
    table = _writable(graph, x, step, prog, name)
    for begin in range(0, count, step):
        end = min(begin + step, count)
        part, index = updates.slice(begin, end, 0), indices.flatten().slice(begin, end, 0)
        _scatter_step(graph, table, index, part, prog, name, reduction, x.shape[0])
    return table.tensor


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
    state = {"cols": table.cols, "base": _i(table.base), "total": total}
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
) -> None:
    """Rows of x [n, w] replaced by, or joined with, updates [m, w], in place."""
    out = scatter(graph, x, indices, updates, prog, name or "multi_update", operation)
    prog.add(program.Copy(out, x))


def _rows_view(x: Tensor, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """x as [dim, rest], and the order of dims that did it."""
    order = (axis, *(d for d in range(len(x.shape)) if d != axis))
    rest = prod(x.shape[d] for d in order[1:])
    return x.dim_shuffle(order).reshape((x.shape[axis], rest)), order


def _back(rows: Tensor, shape: Sequence[int], order: tuple[int, ...]) -> Tensor:
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d] = i
    return rows.reshape(tuple(shape[d] for d in order)).dim_shuffle(tuple(inverse))


def dynamic_slice(
    graph: Graph,
    x: Tensor,
    start: Tensor,
    axis: int,
    size: int,
    prog: program.Sequence,
    name: str = "",
) -> Tensor:
    """`size` elements of x along `axis` from `start` (i32, one element), clamped to fit."""
    name = name or "dynamic_slice"
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    if prod(shape) == 0:
        return fresh(graph, x.dtype, shape, name)
    table, order = _rows_view(x, axis)
    rows, width = table.shape
    if rows > PART:
        index = _slice_index(graph, start, rows, size, prog, name)
        return _back(multi_slice(graph, table, index, prog, name), shape, order)
    cols = _slice_cols(graph, rows, width)
    blocks = width // cols
    stored = table.reshape((rows, blocks, cols)).dim_shuffle((1, 0, 2))
    begin = np.arange(blocks, dtype=np.int64)
    tile = place_near(graph, stored.flatten(), begin * rows * cols)
    mapping = interval_mapping(np.full(blocks, size * cols), tile)
    out = graph.add_variable(x.dtype, (blocks, size, cols), name, mapping=mapping)
    edges = {
        "out": Edges.flat(out.flatten(), begin * size * cols, (begin + 1) * size * cols),
        "x": Edges.flat(stored.flatten(), begin * rows * cols, (begin + 1) * rows * cols),
        "start": Edges.elements(start.flatten(), np.zeros(blocks, np.int64)),
    }
    cs = graph.add_compute_set(name)
    state = {"cols": cols, "rows": rows, "size": size}
    graph.add_vertices(cs, f"popops::DynamicSlice<{x.dtype.name}>", tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return _back(out.dim_shuffle((1, 0, 2)).reshape((size, width)), shape, order)


def _slice_index(
    graph: Graph, start: Tensor, rows: int, size: int, prog: program.Sequence, name: str
) -> Tensor:
    from poplar_py.popops.elementwise import map as map_expr
    from poplar_py.popops.fill import iota

    steps = iota(graph, size, i32, 0, f"{name}/steps")
    text = f"add(min(max($0,c(0)),c({rows - size})),$1)"
    return map_expr(graph, text, [start.flatten(), steps], prog, f"{name}/index", i32)


def dynamic_update(
    graph: Graph,
    x: Tensor,
    update: Tensor,
    start: Tensor,
    axis: int,
    prog: program.Sequence,
    name: str = "",
    *,
    in_place: bool = False,
) -> Tensor:
    """x with `update` written along `axis` from `start` (i32, one element), clamped to fit.

    A new tensor, or x itself with `in_place`.
    """
    name = name or "dynamic_update"
    if prod(update.shape) == 0:
        return x
    rows_view, order = _rows_view(x, axis)
    update_rows, _ = _rows_view(update, axis)
    table = _writable(graph, rows_view, update_rows.shape[0], prog, name)
    update_table(graph, table, update_rows, start, prog, name)
    out = _back(table.tensor, x.shape, order)
    if in_place:
        prog.add(program.Copy(out, x))
        return x
    return out


def update_table(
    graph: Graph,
    table: UpdateTable,
    update: Tensor,
    start: Tensor,
    prog: program.Sequence,
    name: str = "",
) -> None:
    """Rows of a table from `start` (i32, clamped to fit) become update [size, width]."""
    name = name or "update_table"
    size, width = update.shape
    blocks = width // table.cols
    view = update.reshape((size, blocks, table.cols)).dim_shuffle((1, 0, 2)).flatten()
    at = table.block * size * table.cols
    n = len(table.tile)
    edges = {
        "x": table.edges(),
        "update": Edges.flat(view, at, at + size * table.cols),
        "start": Edges.elements(start.flatten(), np.zeros(n, np.int64)),
    }
    total = table.tensor.shape[0]
    state = {"cols": table.cols, "base": _i(table.base), "total": total, "size": size}
    cs = graph.add_compute_set(name)
    codelet = f"popops::DynamicUpdate<{update.dtype.name}>"
    graph.add_vertices(cs, codelet, table.tile, edges, state, name=name)
    prog.add(program.Execute(cs))


def slice_table(graph: Graph, x: Tensor, prog: program.Sequence, name: str = "") -> Tensor:
    """A copy of x [rows, width] from which `dynamic_slice` along dim 0 reads in place."""
    rows, width = x.shape
    cols = _slice_cols(graph, rows, width)
    size = np.full(width // cols, rows * cols, np.int64)
    mapping = interval_mapping(size, spread_tiles(graph, width // cols))
    var = graph.add_variable(x.dtype, (width // cols, rows, cols), name, mapping=mapping)
    out = var.dim_shuffle((1, 0, 2)).reshape((rows, width))
    prog.add(program.Copy(x, out))
    return out


def _slice_cols(graph: Graph, rows: int, width: int) -> int:
    """Columns of one vertex of a dynamic slice."""
    fit = PART // max(rows, 1)
    return divisor_at_most(width, max(1, min(fit, max(16, -(-width // graph.num_tiles)))))
