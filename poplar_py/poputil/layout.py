"""Memory order of a tensor, and clones that keep it.

A tensor view of one variable lists nested (size, stride) digits per dim. Sorting the digits by
stride gives the order of the elements in memory; any other tensor of the same shape can be brought
into that order by a reshape and a dim shuffle, which are views. Element-wise operations walk the
output in its memory order, so that a blocked layout stays blocked and each vertex writes one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poplar import program
from poplar_py.poplar.mapping import Mapping, linear
from poplar_py.poplar.views import Affine, Cat

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = [
    "MemoryOrder",
    "broadcast_mask",
    "broadcast_to",
    "clone_layout",
    "compact",
    "fresh",
    "mapping_of",
    "memory_order",
]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class MemoryOrder:
    """How to bring a tensor of `shape` into memory order.

    `split` are the sizes of all digits in logical order (digits of size 1 left out), `perm` lists
    them from the slowest to the fastest in memory.
    """

    shape: Shape
    split: Shape
    perm: Shape

    @property
    def sizes(self) -> Shape:
        """Digit sizes in memory order."""
        return tuple(self.split[p] for p in self.perm)

    def apply(self, t: Tensor) -> Tensor:
        """A tensor of the shape, seen with one dim per digit, in memory order."""
        return t.reshape(self.split).dim_shuffle(self.perm)

    def restore(self, t: Tensor) -> Tensor:
        """The inverse: elements in memory order seen in the logical shape."""
        inverse = [0] * len(self.perm)
        for i, p in enumerate(self.perm):
            inverse[p] = i
        return t.reshape(self.sizes).dim_shuffle(tuple(inverse)).reshape(self.shape)


def memory_order(t: Tensor) -> MemoryOrder | None:
    """The order of the elements of `t` in memory; None unless it is one strided view."""
    view = t.view
    if not isinstance(view, Affine) or 0 in view.shape:
        return None
    digits = [d for dim in view.dims for d in dim if d[0] > 1]
    if any(stride == 0 for _, stride in digits) or view.aliased():
        return None
    order = sorted(range(len(digits)), key=lambda i: -abs(digits[i][1]))
    return MemoryOrder(tuple(view.shape), tuple(n for n, _ in digits), tuple(order))


def plain_order(shape: Shape) -> MemoryOrder:
    """Row-major order."""
    split = tuple(n for n in shape if n != 1)
    return MemoryOrder(tuple(shape), split, tuple(range(len(split))))


def broadcast_to(t: Tensor, shape: Shape) -> Tensor:
    """`t` broadcast as NumPy does, a view."""
    if tuple(t.shape) == tuple(shape):
        return t
    out = t.reshape((*([1] * (len(shape) - len(t.shape))), *t.shape))
    for d, n in enumerate(shape):
        if out.shape[d] != n:
            out = out.broadcast(n, d)
    return out


def broadcast_mask(t: Tensor) -> tuple[bool, ...]:
    """For every dim whether it repeats one element (stride 0)."""
    view = t.view
    if isinstance(view, Affine):
        return tuple(all(s == 0 for n, s in dim if n > 1) for dim in view.dims)
    if not isinstance(view, Cat):
        return (False,) * len(view.shape)
    parts = [p for p in view.parts if isinstance(p, Affine)]
    if len(parts) != len(view.parts):
        return (False,) * len(view.shape)
    return tuple(
        d != view.axis and all(all(s == 0 for n, s in p.dims[d] if n > 1) for p in parts)
        for d in range(len(view.shape))
    )


def mapping_of(graph: Graph, t: Tensor) -> Mapping:
    """The tiles of `t` flattened, as a mapping from 0; unmapped elements get a linear mapping."""
    found = graph.get_tile_mapping(t, require_complete=False)
    numel = prod(t.shape)
    if int((found.end - found.begin).sum()) != numel:
        return linear(numel, graph.num_tiles, grain=8)
    return Mapping(np.append(found.begin, numel), found.tile)


def clone_layout(
    graph: Graph, ref: Tensor, dtype: DType, name: str
) -> tuple[Tensor, MemoryOrder] | None:
    """A new variable with the memory order and mapping of `ref`, seen in its shape.

    None when `ref` has no memory order (joined, listed or aliased views).
    """
    order = memory_order(ref)
    if order is None:
        return None
    mapping = mapping_of(graph, order.apply(ref).flatten())
    flat = graph.add_variable(dtype, order.sizes, name, mapping=mapping)
    return order.restore(flat), order


def fresh(graph: Graph, dtype: DType, shape: Shape, name: str) -> Tensor:
    """A new row-major variable spread over all tiles, at least 128 bytes a tile."""
    least = max(8, 128 // dtype.size)
    mapping = linear(prod(shape), graph.num_tiles, grain=8, least=least)
    return graph.add_variable(dtype, tuple(shape), name, mapping=mapping)


SHORT_RUN = 8
"""Elements; a tensor of shorter runs on average is copied before few tiles read all of it."""


def compact(graph: Graph, t: Tensor, prog: program.Sequence, name: str) -> Tensor:
    """`t`, or a row-major copy over all tiles when it lies in very short runs.

    A tile that gathers a large tensor element by element needs an exchange instruction for each;
    the copy shares them among all tiles.
    """
    if t.numel < 512 or len(t.runs()[0]) * SHORT_RUN < t.numel:
        return t
    out = fresh(graph, t.dtype, tuple(t.shape), name)
    prog.add(program.Copy(t, out))
    return out
