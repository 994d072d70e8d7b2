"""StreamCallback: how a host program feeds a stream or takes from it, as in Poplar."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import NDArray


class StreamCallback(ABC):
    """What `Engine.connect_stream_to_callback` calls; objects with the same methods do as well.

    Into the device: every copy gets its data from `fetch`, or from a `prefetch` that ran while
    tiles were computing and gave True. `complete` follows when that data has been taken: a
    callback moves on to its next data there. Data that was prefetched and never used is given up
    with `invalidate_prefetched`: the next call has to give it again.

    Out of the device: `fetch` gets the data of a copy, then `complete` is called.

    Calls of one engine never overlap, though they come from several threads.
    """

    @abstractmethod
    def fetch(self, buffer: NDArray[Any]) -> None:
        """Fill the elements of one copy, or take them (the array is read-only then)."""

    def prefetch(self, buffer: NDArray[Any]) -> bool:
        """Fill the elements of the next copy ahead of time; False: they are not available yet."""
        del buffer
        return False

    def complete(self) -> None:  # noqa: B027
        """The data of the last fetch or successful prefetch has been taken."""

    def invalidate_prefetched(self) -> None:  # noqa: B027
        """What was prefetched is dropped: the engine was stopped, reloaded or reconnected."""
