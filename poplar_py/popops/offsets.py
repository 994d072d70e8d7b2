"""Offsets and axes as the index operations take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.poplar.errors import TensorIndexError, TensorTypeError
from poplar_py.poplar.faults import fail
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.types import i32, u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

__all__ = ["as_offsets", "axis_of"]


def as_offsets(graph: Graph, t: Tensor, prog: Sequence, name: str) -> Tensor:
    """The elements of an integer tensor as i32 [numel]: u32 (PopLibs' type) is seen as i32, so that
    numbers over 2^31 are outside any table; others are cast. Raises TensorTypeError."""
    if t.dtype in (i32, u32):
        return t.flatten().reinterpret(i32)
    if not t.dtype.is_integer:
        fail(TensorTypeError, f"{name}: offsets of type {t.dtype}")
    return map_expr(graph, "cast($0,i32)", [t.flatten()], prog, f"{name}/offsets", i32)


def axis_of(t: Tensor, axis: int) -> int:
    """The axis from 0 on; negative ones count from the last. Raises TensorIndexError."""
    rank = len(t.shape)
    if not -rank <= axis < rank:
        fail(TensorIndexError, f"axis {axis} of {list(t.shape)}")
    return axis % rank
