"""Refusals of arguments at the user's line."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NoReturn

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.where import caller, source_text
from poplar_py.types import broadcast_shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poplar_py.diagnostics import PoplarPyError
    from poplar_py.poplar import Graph

__all__ = ["common_shape", "need_room", "refuse", "table_shape"]


def refuse(kind: type[PoplarPyError], message: str, remedy: str = "") -> NoReturn:
    """Raise an error at the statement of the user that led here, or the op that is lowered."""
    loc = caller()
    raise kind(message, loc, remedy, source_text(loc))


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """What all shapes broadcast to as NumPy has it. Raises ShapeError at the user's line."""
    try:
        return tuple(int(n) for n in broadcast_shapes(*shapes))
    except ShapeError as error:
        refuse(ShapeError, error.message, error.remedy)


def table_shape(shape: Sequence[int], what: str) -> tuple[int, int]:
    """Rows and width. Raises ShapeError for other than two dims, or negative ones."""
    sizes = tuple(shape)
    if len(sizes) != 2 or any(n < 0 for n in sizes):
        refuse(ShapeError, f"{what} of shape {list(sizes)}", "give [rows, width]")
    return sizes


def need_room(graph: Graph, shape: Sequence[int]) -> None:
    """Raises ShapeError for sizes that no element type lets fit into the memory of the tiles: the
    host does not make such constants or maps first."""
    target = graph.target
    if prod(shape) > target.num_tiles * target.bytes_per_tile:
        refuse(ShapeError, f"a tensor of shape {list(shape)} is larger than the tiles' memory")
