"""The mapping behind tile memories: aligned, zero, and no larger in memory than what is touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poplar_py.diagnostics import OutOfTileMemory
from poplar_py.runtime.arena import HUGE_PAGE, SMALL, Arena


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_images_are_zero_and_apart() -> None:
    arena = Arena(10_000, 3)
    assert arena.base % HUGE_PAGE == 0
    arena.view(0, 10_000, 1)[:] = 7
    assert not arena.view(0, 10_000, 0).any()
    assert not arena.view(0, 10_000, 2).any()
    assert arena.stride >= 10_000
    with pytest.raises(IndexError, match="outside the arena"):
        arena.view(0, arena.stride + 1)


def test_large_thin_mappings_stay_thin() -> None:
    arena = Arena(8 * SMALL)
    before = resident()
    arena.bytes[:: 4 * HUGE_PAGE] = np.uint8(1)
    assert resident() - before < 8 * SMALL // HUGE_PAGE * 4096 + HUGE_PAGE


def test_what_cannot_be_mapped_is_said() -> None:
    with pytest.raises(OutOfTileMemory, match="the host cannot map"):
        Arena(1 << 60)
