"""Tables [rows, width] in parts that lie on one tile each, for lookups and updates by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poputil.boxes import divisor_at_most, grid_boxes
from poplar_py.poputil.layout import mapping_of
from poplar_py.poputil.place import WORKERS, interval_mapping, spread_tiles
from poplar_py.poputil.shapes import table_shape

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = [
    "PART",
    "UpdateTable",
    "create_update_table",
    "table_of_parts",
    "table_where_it_lies",
    "update_cut",
    "writable_table",
]

Ints = npt.NDArray[np.int64]
PART = 24576
"""Most elements of a table part, and of a vertex's results."""


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


def update_cut(graph: Graph, shape: tuple[int, int], count: int) -> tuple[int, int]:
    """(cols, rows) of the parts of a table for updates of `count` rows at a time."""
    rows, width = table_shape(shape, "a table")
    limit = min(max(1, PART // max(1, count)), max(16, -(-width // graph.num_tiles)))
    cols = divisor_at_most(width, limit)
    part = min(
        max(1, rows), max(1, PART // cols), max(64, -(-rows * (width // cols) // graph.num_tiles))
    )
    return cols, part


def create_update_table(
    graph: Graph, dtype: DType, shape: tuple[int, int], count: int, name: str = ""
) -> UpdateTable:
    """A new table [rows, width] for updates of `count` rows at a time, which must fit beside it."""
    return table_of_parts(graph, dtype, shape, update_cut(graph, shape, count), name)


def table_of_parts(
    graph: Graph, dtype: DType, shape: tuple[int, int], cut: tuple[int, int], name: str
) -> UpdateTable:
    """A new table [rows, width] in parts of cut = (cols, rows) elements, each on one tile."""
    (rows, width), (cols, part) = shape, cut
    lo, size = grid_boxes((width // cols, rows), (1, part))
    tile = spread_tiles(graph, len(lo))
    mapping = interval_mapping(size[:, 1] * cols, tile)
    var = graph.add_variable(dtype, (width // cols, rows, cols), name, mapping=mapping)
    tensor = var.dim_shuffle((1, 0, 2)).reshape((rows, width))
    return UpdateTable(tensor, tile, lo[:, 0], lo[:, 1], size[:, 1], cols, var.flatten())


def table_where_it_lies(graph: Graph, x: Tensor, cut: tuple[int, int]) -> UpdateTable | None:
    """x [rows, width] itself as a table of such parts.

    None unless each part is on one tile, and no tile has far more of them than its share.
    """
    (rows, width), (cols, part) = x.shape, cut
    stored = x.reshape((rows, width // cols, cols)).dim_shuffle((1, 0, 2)).flatten()
    lo, size = grid_boxes((width // cols, rows), (1, part))
    end = np.cumsum(size[:, 1] * cols)
    mapping = mapping_of(graph, stored)
    if not np.isin(mapping.normal().bounds, np.append(0, end)).all():
        return None
    if x.contains_constant() or x.contains_aliases():
        return None
    tile = mapping.tile_at(end - size[:, 1] * cols)
    fair = -(-len(tile) // graph.num_tiles)
    if int(np.bincount(tile).max()) > max(WORKERS, 2 * fair):
        return None
    return UpdateTable(x, tile, lo[:, 0], lo[:, 1], size[:, 1], cols, stored)


def writable_table(
    graph: Graph, x: Tensor, count: int, prog: program.Sequence, name: str
) -> UpdateTable:
    """A copy of x [rows, width] as a table."""
    table = create_update_table(graph, x.dtype, (x.shape[0], x.shape[1]), count, name)
    prog.add(program.Copy(x, table.tensor))
    return table
