"""Memory that a compilation freed goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

__all__ = ["give_back"]


def give_back() -> None:
    """Returns the free pages of the C heap, where the C library can (glibc); else does nothing.

    Passes make and free thousands of arrays of all sizes between ones that stay; without this the
    process keeps what its largest compilation took (730 MB after ResNet-50's).
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> ctypes._NamedFuncPointer | None:  # pyright: ignore[reportPrivateUsage]
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
