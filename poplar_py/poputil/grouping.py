"""Which elements of a tensor lie side by side in one tile's memory, told dim by dim."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poputil.layout import mapping_of

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["detect_dim_groupings", "detect_innermost_grouping"]


def detect_innermost_grouping(graph: Graph, t: Tensor) -> int:
    """The largest g such that g elements from every multiple of g on lie side by side on one tile.

    g divides the last dim; it is 1 for a tensor without dims or elements.
    """
    if not t.shape or not t.numel:
        return 1
    flat = t.flatten()
    start, length = flat.runs()
    begin = np.cumsum(length) - length
    joined = np.append(False, start[1:] == start[:-1] + length[:-1])
    breaks = np.concatenate([begin[~joined], mapping_of(graph, flat).bounds[1:-1]])
    return gcd(t.shape[-1], int(np.gcd.reduce(breaks)))


def detect_dim_groupings(graph: Graph, t: Tensor) -> list[tuple[int, int]]:
    """(dim, size) of the groups in which elements lie in memory, the innermost first.

    [(1, 16), (0, 4)]: 16 neighbours along dim 1 lie side by side on one tile, then the next 4 along
    dim 0. A dim may come more than once; scattered elements give an empty list.
    """
    rank = len(t.shape)
    view = t.reshape((*t.shape, 1))
    out: list[tuple[int, int]] = []
    while True:
        found = [(_more(graph, view, d, rank), -d) for d in range(rank) if view.shape[d] > 1]
        size, place = max(found, default=(1, 0))
        if size == 1:
            return out
        d = -place
        out.append((d, size))
        split = view.reshape_partial(d, d + 1, (view.shape[d] // size, size))
        view = split.dim_roll(d + 1, rank).flatten(rank, rank + 2)


def _more(graph: Graph, view: Tensor, dim: int, rank: int) -> int:
    """How many elements along `dim` follow one another outside the groups found, the last dim."""
    total = view.shape[rank]
    inner = view.dim_roll(dim, rank - 1).flatten(rank - 1, rank + 1)
    found = detect_innermost_grouping(graph, inner)
    return found // total if found % total == 0 else 1
