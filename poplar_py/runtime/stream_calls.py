"""Stream callbacks of an engine: fetch and complete when the program copies, prefetch meanwhile."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

POLL = 0.02
"""Seconds between looks at the stop flag while a prefetch is waited for."""


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function accepts a second positional argument (the replica's number)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(plain) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def is_ndarray(source: Any) -> bool:
    """Whether this is an array."""
    return isinstance(source, np.ndarray)


def is_callback(source: Any) -> bool:
    """Whether this can serve a stream: a function, or an object with ``fetch``."""
    return callable(source) or hasattr(source, "fetch")


class _Function:
    """A plain function as a callback object."""

    def __init__(self, function: Callable[..., Any], replica: int) -> None:
        self.function, self.replica = function, replica
        self.two = takes_two(function)

    def fetch(self, buffer: NDArray[Any]) -> None:
        if self.two:
            self.function(buffer, self.replica)
        else:
            self.function(buffer)


class Feed:
    """The callback of one stream of one replica. ``ahead``: prefetch after every copy."""

    def __init__(self, callback: Any, replica: int, calls: StreamCalls, ahead: bool) -> None:
        is_object = hasattr(callback, "fetch")
        self.callback: Any = callback if is_object else _Function(callback, replica)
        self.calls = calls
        self.ahead = ahead and hasattr(callback, "prefetch")
        self.complete: Callable[[], None] | None = getattr(self.callback, "complete", None)
        self.side: NDArray[Any] | None = None
        self.pending: Future[bool] | None = None

    def give(self, region: NDArray[Any], stopped: Callable[[], bool]) -> None:
        """Fill a stream's region for one copy."""
        ready = self._ready(stopped)
        if ready is None:
            return
        with self.calls.lock:
            if ready:
                assert self.side is not None
                region[:] = self.side
            else:
                self.callback.fetch(region)
            if self.complete is not None:
                self.complete()
        if self.ahead and self.calls.prefetch:
            if self.side is None:
                self.side = np.empty_like(region)
            self.pending = self.calls.submit(self._prefetch)

    def take(self, region: NDArray[Any]) -> None:
        """Hand over what a copy brought out of the device."""
        buffer = region.view()
        buffer.flags.writeable = False
        with self.calls.lock:
            self.callback.fetch(buffer)
            if self.complete is not None:
                self.complete()

    def _prefetch(self) -> bool:
        with self.calls.lock:
            return bool(self.callback.prefetch(self.side))

    def _ready(self, stopped: Callable[[], bool]) -> bool | None:
        """Whether the last prefetch gave data; None when the run was stopped meanwhile."""
        future = self.pending
        if future is None:
            return False
        while True:
            with suppress(TimeoutError):
                ready = future.result(POLL)
                break
            if stopped():
                return None
        self.pending = None
        return ready

    def drop(self) -> None:
        """Give up what was prefetched and not used."""
        future, self.pending = self.pending, None
        if future is None or future.cancel():
            return
        self.side = None  # a prefetch that still runs keeps the old buffer
        future.add_done_callback(self._dropped)

    def _dropped(self, future: Future[bool]) -> None:
        invalidate = getattr(self.callback, "invalidate_prefetched", None)
        if invalidate is None or future.exception() is not None or not future.result():
            return
        with self.calls.lock:
            invalidate()


class StreamCalls:
    """All feeds of an engine by (handle, replica), and the thread that prefetches."""

    def __init__(self) -> None:
        self.feeds: dict[tuple[str, int], Feed] = {}
        self.lock = threading.RLock()
        self.prefetch = True
        self._worker: ThreadPoolExecutor | None = None

    def connect(self, handle: str, replica: int, callback: Any, ahead: bool) -> None:
        """Let a callback serve a stream of a replica; None takes the old one away."""
        old = self.feeds.pop((handle, replica), None)
        if old is not None:
            old.drop()
        if callback is not None:
            self.feeds[handle, replica] = Feed(callback, replica, self, ahead)

    def submit(self, task: Callable[[], bool]) -> Future[bool]:
        """Run a task on the prefetching thread, which starts with the first."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "stream prefetch")
        return self._worker.submit(task)

    def drop(self) -> None:
        """Give up everything prefetched."""
        for feed in self.feeds.values():
            feed.drop()

    def close(self) -> None:
        """Drop and end the thread."""
        self.drop()
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)
            self._worker = None
