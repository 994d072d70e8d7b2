"""Tensors for copies from and to remote buffers and streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poputil.layout import fresh
from poplar_py.types import u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = ["IndicesAndTensor", "create_host_sliceable_tensor", "create_host_transferable_tensor"]


class IndicesAndTensor(NamedTuple):
    """`indices` u32 [rows]: the rows of a remote buffer that `tensor` [rows, width] holds."""

    indices: Tensor
    tensor: Tensor


def create_host_transferable_tensor(
    graph: Graph, dtype: DType, shape: Sequence[int], is_read: bool, name: str = "transferable"
) -> Tensor:
    """A variable spread evenly over the tiles, in runs of at least 128 bytes, for copies with the
    host. Host traffic is charged by its bytes, so that reads (`is_read`) and writes are alike."""
    return fresh(graph, dtype, tuple(shape), name)


def create_host_sliceable_tensor(
    graph: Graph, dtype: DType, shape: Sequence[int], is_read: bool, name: str = "sliceable"
) -> IndicesAndTensor:
    """A tensor [rows, width] for rows of a remote buffer, and the variable for their numbers.

    width is the buffer's row. Raises ShapeError for a shape of another rank.
    """
    if len(shape) != 2:
        fail(ShapeError, f"rows of a remote buffer are [rows, width], not {list(shape)}")
    tensor = create_host_transferable_tensor(graph, dtype, shape, is_read, name)
    indices = graph.add_variable(u32, (shape[0],), f"{name}/indices", mapping=0)
    return IndicesAndTensor(indices, tensor)
