"""Cycle figures that replace the issue model, by codelet name.

`TABLES` maps the name before `<` to a function of (codelet, sizes, state) that gives cycles per
vertex: worker cycles of a Vertex, tile cycles of a MultiVertex. Libraries register theirs beside
the codelets with `@cycles_of("popops::Fill")`, quoting the source of each figure. A machine runs
some of what we write as a Vertex with all its workers at once: `@tile_cycles_of` gives tile cycles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from poplar_py.codelets.codelet import Codelet

__all__ = ["TABLES", "TILE_NAMES", "CycleFunction", "cycles_of", "tile_cycles_of"]

Array = np.ndarray[Any, Any]
CycleFunction = Callable[["Codelet", dict[str, Array], dict[str, Array]], Array]
TABLES: dict[str, CycleFunction] = {}
TILE_NAMES: set[str] = set()
"""Names whose figures are tile cycles although they are no MultiVertex."""


def cycles_of(*names: str) -> Callable[[CycleFunction], CycleFunction]:
    """Register a cycle function for codelets of these names (without template arguments)."""

    def register(function: CycleFunction) -> CycleFunction:
        for name in names:
            TABLES[name] = function
        return function

    return register


def tile_cycles_of(*names: str) -> Callable[[CycleFunction], CycleFunction]:
    """As `cycles_of`, for figures in tile cycles: the vertex occupies all workers of its tile."""
    TILE_NAMES.update(names)
    return cycles_of(*names)
