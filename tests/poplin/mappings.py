"""Random tile mappings: random intervals on random tiles."""

from __future__ import annotations

import numpy as np

from poplar_py.poplar import Mapping

__all__ = ["scatter_mapping"]


def scatter_mapping(rng: np.random.Generator, size: int, tiles: int) -> Mapping:
    """`size` elements in up to 40 intervals of any length, each on any tile."""
    count = int(rng.integers(1, 40))
    cuts = np.unique(np.append(rng.integers(0, size + 1, count), [0, size])).astype(np.int64)
    return Mapping(cuts, rng.integers(0, tiles, len(cuts) - 1).astype(np.int32)).normal()
