"""Tile memories of one device: a single lazily touched mapping per engine, replicas one after the
other."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from poplar_py.diagnostics import OutOfTileMemory

PAGE = 4096
SLACK = 4096
"""Readable bytes after the last replica: vector loads may run over the end of the last tile."""
_NO_HUGE_PAGES = 15


class Arena:
    """``replicas`` images of ``bytes_per_replica`` (rounded up to pages), zero until touched."""

    def __init__(self, bytes_per_replica: int, replicas: int = 1) -> None:
        self.stride = -(-max(bytes_per_replica, 1) // PAGE) * PAGE + PAGE
        self.replicas = replicas
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        total = self.stride * replicas + SLACK
        try:
            self._map = mmap.mmap(-1, total, flags=flags)
        except (OSError, OverflowError, ValueError) as error:
            raise OutOfTileMemory(
                f"the host cannot map {total:,} bytes of tile memory: {error}",
                remedy="use fewer replicas or IPUs",
            ) from None
        self._map.madvise(_NO_HUGE_PAGES)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self.base = int(self.bytes.ctypes.data)

    def view(self, offset: int, nbytes: int, replica: int = 0) -> NDArray[np.uint8]:
        """Bytes ``[offset, offset + nbytes)`` of a replica's image."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.stride:
            raise IndexError(f"bytes {offset}..{offset + nbytes} lie outside the arena")
        start = replica * self.stride + offset
        return self.bytes[start : start + nbytes]
