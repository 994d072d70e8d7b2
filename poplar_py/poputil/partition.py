"""Tensors whose partitions are contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poplar.tensor import concat

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = ["create_partitionable_tensor"]


def create_partitionable_tensor(
    graph: Graph,
    dtype: DType,
    shape: Sequence[int],
    partitions: Sequence[int],
    name: str = "partitionable",
) -> Tensor:
    """A new, unmapped tensor each of whose partitions is one contiguous region.

    Dim d is cut into at most partitions[d] pieces of ceil(shape[d] / partitions[d]) elements (the
    last may be shorter). Raises ShapeError unless there is a positive number for every dim.
    """
    if len(partitions) != len(shape) or min(partitions, default=1) < 1:
        fail(ShapeError, f"partitions {list(partitions)} of a tensor {list(shape)}")
    variable = graph.add_variable(dtype, (prod(shape),), name)
    if variable.numel == 0:
        return variable.reshape(tuple(shape))
    cuts = [_pieces(n, p) for n, p in zip(shape, partitions, strict=True)]
    boxes: list[Tensor] = []
    at = 0
    for box in product(*cuts):
        boxes.append(variable.slice(at, at + prod(box), 0).reshape(box))
        at += prod(box)
    for dim in reversed(range(len(shape))):
        count = len(cuts[dim])
        boxes = [concat(boxes[i : i + count], dim) for i in range(0, len(boxes), count)]
    return boxes[0]


def _pieces(size: int, count: int) -> list[int]:
    step = -(-size // count)
    return [min(step, size - begin) for begin in range(0, size, step)]
