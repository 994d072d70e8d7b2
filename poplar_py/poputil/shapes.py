"""Shapes of arguments: what they broadcast to, tables, and what the tiles have room for."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.types import broadcast_shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poplar_py.poplar import Graph

__all__ = ["common_shape", "need_room", "table_shape"]


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """What all shapes broadcast to as NumPy has it. Raises ShapeError at the user's line."""
    try:
        return tuple(int(n) for n in broadcast_shapes(*shapes))
    except ShapeError as error:
        fail(ShapeError, error.message, error.remedy)


def table_shape(shape: Sequence[int], what: str) -> tuple[int, int]:
    """Rows and width. Raises ShapeError for other than two dims, or negative ones."""
    sizes = tuple(shape)
    if len(sizes) != 2 or any(n < 0 for n in sizes):
        fail(ShapeError, f"{what} of shape {list(sizes)}", "give [rows, width]")
    return sizes


def need_room(graph: Graph, shape: Sequence[int]) -> None:
    """Raises ShapeError for sizes that no element type lets fit into the memory of the tiles: the
    host does not make such constants or maps first."""
    target = graph.target
    if prod(shape) > target.num_tiles * target.bytes_per_tile:
        fail(ShapeError, f"a tensor of shape {list(shape)} is larger than the tiles' memory")
