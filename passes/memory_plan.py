"""What is to be placed in tile memories, and where it was placed: data that executables keep.

Apart from the passes that make it, so that an executable is read without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poplar_py.diagnostics import Location
from poplar_py.poplar.arrays import I8, Bools, Ints

__all__ = ["Items", "MemoryPlan"]


@dataclass
class Items:
    """Things to place. Entry e is ``nbytes[e]`` bytes of item ``item[e]`` on tile ``tile[e]``
    (ascending by item); ``live`` bool[items, steps]: step columns in which an item holds its bytes;
    ``always`` bool[items]. ``names`` and ``locs`` are for messages."""

    item: Ints
    tile: Ints
    nbytes: Ints
    live: Bools
    always: Bools
    names: list[str]
    locs: list[Location]


@dataclass
class MemoryPlan:
    """Offsets and sizes; all arrays per tile int64[tiles] unless said otherwise.

    ``at`` int64[entries]: byte offset of each entry in its tile's data area. ``data``: bytes of
    data area used; ``bound``: least possible (always live plus the heaviest step); ``always``:
    always live; ``code``, ``state``: bytes charged, not stored on the host. ``base``: byte address
    of each tile's data area in the arena, ``end``: arena bytes of all tiles.
    """

    at: Ints
    data: Ints
    bound: Ints
    always: Ints
    code: Ints
    state: Ints
    base: Ints
    end: int
    live_bytes: Ints = field(default_factory=lambda: np.zeros(0, I8))
    """int64[steps]: bytes of all tiles live at each step."""

    @property
    def total(self) -> Ints:
        """Bytes of tile memory needed."""
        return self.code + self.state + self.data
