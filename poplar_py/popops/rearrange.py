"""popops.rearrange: a tensor laid out anew so that other elements lie side by side.

A grouping is (dim, size): `size` neighbours along `dim` lie side by side on one tile
(`poputil.detect_dim_groupings` tells which). Consumers that read along another dim than the one a
tensor is grouped in are served faster from a copy that is grouped for them.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.popops.extra import partial_transpose
from poplar_py.popops.offsets import axis_of
from poplar_py.poputil.grouping import detect_dim_groupings
from poplar_py.poputil.place import interval_mapping, spread_tiles

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = [
    "get_minimum_regroup_grain_size",
    "partial_transpose",
    "regroup_if_beneficial",
    "regroup_if_possible",
    "regroup_tensor",
]

Grouping = tuple[int, int]


def get_minimum_regroup_grain_size(dtype: DType) -> int:
    """Elements in 64 bits, what a tile loads at once: smaller groups are not worth a rearrangement.

    1 for types of 64 bits.
    """
    return max(1, 8 // dtype.size)


def regroup_tensor(
    graph: Graph,
    t: Tensor,
    prog: program.Sequence,
    from_: Grouping,
    to: Grouping,
    name: str = "regroup",
) -> Tensor:
    """A copy of t in which `to` is the innermost grouping, from one whose innermost is `from_`.

    Copies bring each block of from_[1] x to[1] elements to one tile, in runs of from_[1]; vertices
    turn them there. A tensor of one dim is returned as it is. Raises TensorIndexError for dims t
    does not have, ShapeError for sizes that do not divide their dims.
    """
    (a, na), (b, nb) = ((axis_of(t, d), n) for d, n in (from_, to))
    for d, n in ((a, na), (b, nb)):
        if n < 1 or t.shape[d] % n:
            fail(ShapeError, f"groups of {n} along dim {d} of {list(t.shape)}")
    if len(t.shape) <= 1 or not t.numel:
        return t
    if a == b:
        na = 1
    blocks = _blocks(t, (a, na), (b, nb))
    count, size = prod(blocks.shape[:-2]), na * nb
    tile = spread_tiles(graph, count)
    mapping = interval_mapping(np.full(count, size, np.int64), tile)
    held = graph.add_variable(t.dtype, (count, nb, na), f"{name}/blocks", mapping=mapping)
    prog.add(program.Copy(blocks.reshape((count, nb, na)), held))
    if na > 1 and nb > 1:
        held = _turned(graph, held, tile, prog, name)
    else:
        held = held.reshape((count, na, nb))
    back = held.reshape((*blocks.shape[:-2], na, nb)).dim_shuffle_partial(
        (len(t.shape), len(t.shape) + 1), (len(t.shape) + 1, len(t.shape))
    )
    return _unblocked(back, (a, na), (b, nb), tuple(t.shape))


def _turned(
    graph: Graph, held: Tensor, tile: np.ndarray, prog: program.Sequence, name: str
) -> Tensor:
    """Every matrix of held [n, rows, cols] turned on its own tile: [n, cols, rows]."""
    count, rows, cols = held.shape
    out = graph.add_variable(
        held.dtype,
        (count, cols, rows),
        name,
        mapping=interval_mapping(np.full(count, rows * cols, np.int64), tile),
    )
    begin = np.arange(count, dtype=np.int64) * rows * cols
    edges = {
        "out": Edges.flat(out.flatten(), begin, begin + rows * cols),
        "x": Edges.flat(held.flatten(), begin, begin + rows * cols),
    }
    cs = graph.add_compute_set(name)
    state = {"rows": rows, "cols": cols}
    graph.add_vertices(cs, f"popops::Transpose<{held.dtype.name}>", tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return out


def _blocks(t: Tensor, a: Grouping, b: Grouping) -> Tensor:
    """[*dims with those of a and b divided by their sizes, size of b, size of a]."""
    rank = len(t.shape)
    for d, n in (b, a):
        t = t.reshape_partial(d, d + 1, (t.shape[d] // n, n)).dim_roll(d + 1, len(t.shape))
    assert len(t.shape) == rank + 2
    return t


def _unblocked(blocks: Tensor, a: Grouping, b: Grouping, shape: tuple[int, ...]) -> Tensor:
    """The inverse of `_blocks`."""
    for d, _ in (a, b):
        last = len(blocks.shape) - 1
        blocks = blocks.dim_roll(last, d + 1).flatten(d, d + 2)
    return blocks.reshape(shape)


def regroup_if_possible(
    graph: Graph, t: Tensor, prog: program.Sequence, to: Grouping, name: str = "regroup"
) -> Tensor:
    """t regrouped to `to` where its own innermost grouping and `to` allow a fast rearrangement:
    another dim, sizes that are multiples of 64 bits; else t."""
    if len(t.shape) <= 1 or not t.numel:
        return t
    dim, size = axis_of(t, to[0]), to[1]
    found = detect_dim_groupings(graph, t)
    grain = get_minimum_regroup_grain_size(t.dtype)
    if not found or found[0][0] == dim or t.shape[dim] % max(size, 1):
        return t
    if found[0][1] % grain or size % grain:
        return t
    return regroup_tensor(graph, t, prog, found[0], (dim, size), name)


def regroup_if_beneficial(
    graph: Graph,
    t: Tensor,
    preferred: Tensor | int,
    prog: program.Sequence,
    name: str = "regroup",
) -> Tensor:
    """t with the innermost grouping of a tensor of the same shape, or, for a number, with groups of
    so many along its last dim, where that is possible as `regroup_if_possible` says; else t.

    Raises ShapeError for a reference of another shape.
    """
    if len(t.shape) <= 1 or not t.numel:
        return t
    if isinstance(preferred, int):
        last = len(t.shape) - 1
        return regroup_if_possible(graph, t, prog, (last, gcd(preferred, t.shape[last])), name)
    if preferred.shape != t.shape:
        fail(ShapeError, f"a reference of shape {list(preferred.shape)} for {list(t.shape)}")
    wanted = detect_dim_groupings(graph, preferred)
    return regroup_if_possible(graph, t, prog, wanted[0], name) if wanted else t
