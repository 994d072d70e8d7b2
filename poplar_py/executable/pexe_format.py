"""Names that the writer and the reader of `.pexe` files share."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

FORMAT = 5
MAX_MANIFEST = 1 << 28
PLAN = ("at", "data", "bound", "always", "code", "state", "base", "live_bytes")
STEP = (
    "name",
    "kind",
    "compute",
    "exchange",
    "sync",
    "host",
    "balance",
    "tiles",
    "vertices",
    "bytes_exchanged",
    "bytes_between",
    "live_bytes",
    "exchange_bound",
    "exchange_data",
    "exchange_links",
    "exchange_local",
    "tile_compute",
    "thread_compute",
)
FRACTIONS = ("balance", "tile_compute", "thread_compute")
Arrays = dict[str, NDArray[Any]]
