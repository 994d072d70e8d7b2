"""What searches along rows cost, and into how many pieces the rows are cut."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from poplar_py import codelets
from poplar_py.popops.reduction_cost import HOST, WORKERS, Costs, Job, Source, costs_of
from poplar_py.poputil.boxes import rows_per_vertex
from poplar_py.types import DType, i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph

__all__ = ["reductions_pay", "top_k_pieces"]

LONGEST = 16384
"""Longest row that one vertex sorts, where that can be helped."""
PIECES = (16, 32, 64, 128, 256)
"""Lengths of pieces to try, in results of one; shorter ones cost the host more than they save."""
MAXIMUM = 2
MAP_ELEMENT = 8
"""Cycles of a tile for an element of the comparison with the best (own)."""


def _vertex(codelet: str, n: int, k: int) -> int:
    """Worker cycles of one row of n elements."""
    sizes = {f: np.array([k]) for f in ("values", "index", "out")}
    sizes |= {"x": np.array([n]), "given": np.array([1]), "given[]": np.array([n])}
    state = {"n": np.array([n]), "k": np.array([k]), "base": np.array([0]), "cols": np.array([1])}
    return int(np.asarray(codelets.get(codelet).cycles(sizes, state)).ravel()[0])


def _step(costs: Costs, codelet: str, vertices: int, n: int, k: int, size: int) -> float:
    """Cycles of a compute set of vertices with a row each, which lie anywhere."""
    each = -(-vertices // costs.tiles)
    compute = WORKERS * -(-each // WORKERS) * _vertex(codelet, n, k)
    fetch = each * n * size // costs.rate + costs.exchange_sync
    return costs.sync + fetch + compute + vertices / HOST


@lru_cache(maxsize=4096)
def _top_k(costs: Costs, codelet: str, size: int, rows: int, n: int, k: int) -> tuple[float, int]:
    """(cycles from here on, pieces of a row now) for the k best of `rows` rows of n elements."""
    best, found = _step(costs, codelet, rows, n, k, size), 1
    if n > LONGEST:
        best = np.inf
    for factor in PIECES:
        pieces = -(-n // (factor * k))
        if pieces < 2 or pieces * k >= n:
            continue
        after, _ = _top_k(costs, codelet, size, rows, pieces * k, k)
        length = -(-n // pieces)
        total = after + _step(costs, codelet, rows * pieces, length, k, size)
        if total < best:
            best, found = total, pieces
    return best, found


def _costs(graph: Graph) -> Costs:
    return costs_of(graph.target, min(graph.num_tiles, graph.target.tiles_per_ipu))


def top_k_pieces(graph: Graph, codelet: str, dtype: DType, rows: int, n: int, k: int) -> int:
    """Into how many pieces each of `rows` rows of n elements is cut for its k best; 1: not."""
    return _top_k(_costs(graph), codelet, dtype.size, rows, n, k)[1] if 2 * k < n else 1


def reductions_pay(graph: Graph, codelet: str, dtype: DType, rows: int, n: int) -> bool:
    """Whether the place of the best of each row is found sooner by two reductions: to the best
    element, and to the first place that holds it."""
    costs = _costs(graph)
    each = rows_per_vertex(rows, n, graph.num_tiles)
    vertices = -(-rows // each)
    alone = each * _step(costs, codelet, vertices, n, 1, dtype.size)
    share = -(-rows * n // costs.tiles)
    source = Source(min(n, share), 1, share)
    total = 2.0 * costs.sync + costs.exchange_sync + MAP_ELEMENT * share
    for t in (dtype, i32):
        total += costs.grid(Job(rows, n, 1, t, t, t, MAXIMUM), source)[0]
    return total < alone
