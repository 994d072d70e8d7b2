"""Tile memories of one device: a single lazily touched mapping per engine, replicas one after the
other.

What a vertex touches lies on many tiles, so that each address is in a page of its own: small
mappings, and those that programs fill for the most part, are of huge pages where the system has
them (5 % of a run of ResNet-18 or a BERT, measured in a virtual machine). Large, thinly filled ones
keep small pages, of which few are ever touched.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

from poplar_py.diagnostics import OutOfTileMemory

PAGE = 4096
SLACK = 4096
"""Readable bytes after the last replica: vector loads may run over the end of the last tile."""
HUGE_PAGE = 2 << 20
SMALL = 256 << 20
"""Bytes of mappings that are small."""
_HUGE_PAGES, _NO_HUGE_PAGES = 14, 15  # madvise


class Arena:
    """``replicas`` images of ``bytes_per_replica`` (rounded up to pages), zero until touched;
    ``filled``: of which the program uses so many."""

    def __init__(self, bytes_per_replica: int, replicas: int = 1, filled: int = 0) -> None:
        self.stride = -(-max(bytes_per_replica, 1) // PAGE) * PAGE + PAGE
        self.replicas = replicas
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        total = self.stride * replicas + SLACK
        try:
            self._map = mmap.mmap(-1, total + HUGE_PAGE, flags=flags)
        except (OSError, OverflowError, ValueError) as error:
            raise OutOfTileMemory(
                f"the host cannot map {total:,} bytes of tile memory: {error}",
                remedy="use fewer replicas or IPUs",
            ) from None
        huge = total <= SMALL or filled * 2 >= bytes_per_replica
        with contextlib.suppress(OSError):  # a system that knows no such pages
            self._map.madvise(_HUGE_PAGES if huge else _NO_HUGE_PAGES)
        whole: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        skip = -int(whole.ctypes.data) % HUGE_PAGE
        self.bytes = whole[skip : skip + total]
        self.base = int(self.bytes.ctypes.data)

    def view(self, offset: int, nbytes: int, replica: int = 0) -> NDArray[np.uint8]:
        """Bytes ``[offset, offset + nbytes)`` of a replica's image."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.stride:
            raise IndexError(f"bytes {offset}..{offset + nbytes} lie outside the arena")
        start = replica * self.stride + offset
        return self.bytes[start : start + nbytes]
