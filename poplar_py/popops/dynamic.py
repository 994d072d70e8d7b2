"""Slices and updates at a device offset, and tables that let a loop do them in place."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import TensorIndexError
from poplar_py.poplar.faults import fail
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.fill import iota
from poplar_py.popops.gathering import as_i32, multi_slice
from poplar_py.popops.offsets import as_offsets, axis_of
from poplar_py.popops.tables import PART, UpdateTable, writable_table
from poplar_py.poputil.boxes import divisor_at_most
from poplar_py.poputil.layout import fresh
from poplar_py.poputil.place import interval_mapping, place_near, spread_tiles
from poplar_py.poputil.shapes import table_shape
from poplar_py.types import i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["dynamic_slice", "dynamic_update", "slice_table", "update_table"]

Ints = npt.NDArray[np.int64]


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
    axis: int | Sequence[int],
    size: int | Sequence[int],
    prog: program.Sequence,
    name: str = "",
) -> Tensor:
    """`size` elements of x along `axis` from `start` (an integer on the device), clamped to fit.

    Several axes have their sizes in the same order and an element of `start` each. Raises
    TensorIndexError for an axis x does not have and a size it does not hold.
    """
    name = name or "dynamic_slice"
    offsets = as_offsets(graph, start, prog, name)
    for i, (dim, count) in enumerate(_dims_and_sizes(x, axis, size, offsets)):
        x = _slice_axis(graph, x, offsets.slice(i, i + 1, 0), dim, count, prog, name)
    return x


def _dims_and_sizes(
    x: Tensor, axis: int | Sequence[int], size: int | Sequence[int], offsets: Tensor
) -> list[tuple[int, int]]:
    """The axes from 0 on with the size on each."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    sizes = [size] if isinstance(size, int) else list(size)
    if len(axes) != len(sizes) or offsets.numel != len(axes):
        what = f"{offsets.numel} offsets and {len(sizes)} sizes for {len(axes)} axes"
        fail(TensorIndexError, what, "give one of each to every axis")
    pairs = [(axis_of(x, a), n) for a, n in zip(axes, sizes, strict=True)]
    for a, n in pairs:
        if not 0 <= n <= x.shape[a]:
            fail(TensorIndexError, f"{n} elements along axis {a} of {list(x.shape)}")
    return pairs


def _slice_axis(
    graph: Graph,
    x: Tensor,
    start: Tensor,
    axis: int,
    size: int,
    prog: program.Sequence,
    name: str,
) -> Tensor:
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
        "start": Edges.elements(start, np.zeros(blocks, np.int64)),
    }
    cs = graph.add_compute_set(name)
    state = {"cols": cols, "rows": rows, "size": size}
    graph.add_vertices(cs, f"popops::DynamicSlice<{x.dtype.name}>", tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return _back(out.dim_shuffle((1, 0, 2)).reshape((size, width)), shape, order)


def _slice_index(
    graph: Graph, start: Tensor, rows: int, size: int, prog: program.Sequence, name: str
) -> Tensor:
    steps = iota(graph, size, i32, 0, f"{name}/steps")
    text = f"add(min(max($0,c(0)),c({rows - size})),$1)"
    return map_expr(graph, text, [start, steps], prog, f"{name}/index", i32)


def dynamic_update(
    graph: Graph,
    x: Tensor,
    update: Tensor,
    start: Tensor,
    axis: int | Sequence[int],
    prog: program.Sequence,
    name: str = "",
    *,
    in_place: bool = False,
) -> Tensor:
    """x with `update` written along `axis` from `start` (an integer on the device), clamped to fit.

    Several axes have an element of `start` each; on the others `update` is as large as x. A new
    tensor, or x itself with `in_place`. Raises TensorIndexError and ShapeError.
    """
    name = name or "dynamic_update"
    axes = [axis] if isinstance(axis, int) else list(axis)
    if len(update.shape) != len(x.shape):
        fail(ShapeError, f"update {list(update.shape)} of {list(x.shape)}")
    sizes = [update.shape[axis_of(x, a)] for a in axes]
    offsets = as_offsets(graph, start, prog, name)
    where = _dims_and_sizes(x, axes, sizes, offsets)
    held = {a for a, _ in where}
    if any(
        n != m for d, (n, m) in enumerate(zip(x.shape, update.shape, strict=True)) if d not in held
    ):
        fail(ShapeError, f"update {list(update.shape)} of {list(x.shape)} along {axes}")
    if prod(update.shape) == 0 or not axes:
        return x
    out = _update_axes(graph, x, update, offsets, where, prog, name)
    if in_place:
        prog.add(program.Copy(out, x))
        return x
    return out


def _update_axes(
    graph: Graph,
    x: Tensor,
    update: Tensor,
    offsets: Tensor,
    where: list[tuple[int, int]],
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """A copy of x; with more than one axis its slice along the first is updated along the rest."""
    (axis, size), rest = where[0], where[1:]
    start = offsets.slice(0, 1, 0)
    if rest:
        part = _slice_axis(graph, x, start, axis, size, prog, f"{name}/part")
        later = offsets.slice(1, offsets.numel, 0)
        update = _update_axes(graph, part, update, later, rest, prog, name)
    rows_view, order = _rows_view(x, axis)
    update_rows, _ = _rows_view(update, axis)
    table = writable_table(graph, rows_view, update_rows.shape[0], prog, name)
    update_table(graph, table, update_rows, start, prog, name)
    return _back(table.tensor, x.shape, order)


def update_table(
    graph: Graph,
    table: UpdateTable,
    update: Tensor,
    start: Tensor,
    prog: program.Sequence,
    name: str = "",
) -> None:
    """Rows of a table from `start` (an integer, clamped to fit) become update [size, width]."""
    name = name or "update_table"
    size, width = table_shape(update.shape, "an update")
    blocks = width // table.cols
    view = update.reshape((size, blocks, table.cols)).dim_shuffle((1, 0, 2)).flatten()
    at = table.block * size * table.cols
    n = len(table.tile)
    edges = {
        "x": table.edges(),
        "update": Edges.flat(view, at, at + size * table.cols),
        "start": Edges.elements(as_offsets(graph, start, prog, name), np.zeros(n, np.int64)),
    }
    total = table.tensor.shape[0]
    state = {"cols": table.cols, "base": as_i32(table.base), "total": total, "size": size}
    cs = graph.add_compute_set(name)
    codelet = f"popops::DynamicUpdate<{update.dtype.name}>"
    graph.add_vertices(cs, codelet, table.tile, edges, state, name=name)
    prog.add(program.Execute(cs))


def slice_table(graph: Graph, x: Tensor, prog: program.Sequence, name: str = "") -> Tensor:
    """A copy of x [rows, width] from which `dynamic_slice` along dim 0 reads in place."""
    rows, width = table_shape(x.shape, "a table")
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
