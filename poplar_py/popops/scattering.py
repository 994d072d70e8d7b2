"""Rows written by device indices: tables in parts that fit a tile, scatter and multi_update."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.popops.gathering import PART, as_i32
from poplar_py.popops.offsets import as_offsets
from poplar_py.poputil.boxes import divisor_at_most, grid_boxes
from poplar_py.poputil.place import interval_mapping, spread_tiles

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = ["UpdateTable", "create_update_table", "multi_update", "scatter", "writable_table"]

Ints = npt.NDArray[np.int64]
REDUCTIONS = {"add": 0, "mul": 1, "max": 2, "min": 3}


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


def writable_table(
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
    """A copy of x [n, w] with rows `indices[m]` replaced by, or joined with, updates [m, w].

    reduction: none (the later update wins), add, mul, max, min. Raises OptionError for others.
    """
    if reduction != "none" and reduction not in REDUCTIONS:
        raise OptionError(f"there is no reduction {reduction!r}", remedy="add, mul, max or min")
    name = name or "scatter"
    if prod(x.shape) == 0:
        return x
    count = indices.numel
    indices = as_offsets(graph, indices, prog, name)
    step = min(max(count, 1), PART)
    table = writable_table(graph, x, step, prog, name)
    for begin in range(0, count, step):
        end = min(begin + step, count)
        part, index = updates.slice(begin, end, 0), indices.slice(begin, end, 0)
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
) -> None:
    """Rows of x [n, w] replaced by, or joined with, updates [m, w], in place."""
    out = scatter(graph, x, indices, updates, prog, name or "multi_update", operation)
    prog.add(program.Copy(out, x))
