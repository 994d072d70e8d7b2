"""Cutting an n-d problem into boxes, one per vertex, all in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["divisor_at_most", "grid_boxes", "rows_per_vertex"]

Ints = npt.NDArray[np.int64]


def grid_boxes(shape: Sequence[int], step: Sequence[int]) -> tuple[Ints, Ints]:
    """Boxes of at most `step` that cover `shape`, row-major: lo[v, d] and size[v, d]."""
    axes = [np.arange(0, n, s, dtype=np.int64) for n, s in zip(shape, step, strict=True)]
    lo = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    size = np.minimum(np.asarray(step), np.asarray(shape) - lo)
    return lo, size


def rows_per_vertex(rows: int, n: int, tiles: int, least: int = 64) -> int:
    """Rows of `n` elements a vertex: six vertices a tile at most, `least` elements if possible."""
    share = -(-rows // (6 * tiles))
    return max(share, min(rows, -(-least // max(n, 1))), 1)


def divisor_at_most(n: int, limit: int) -> int:
    """The largest divisor of `n` that is no more than `limit` (at least 1)."""
    for d in range(max(1, min(n, limit)), 0, -1):
        if n % d == 0:
            return d
    return 1
