"""Ends native runs from outside: deadlines, and signals while the main thread is in native code.

The main thread runs the program itself (thread 0), so Python cannot handle a signal before the
native call returns. Python's C-level handler does write the signal's number to the wake-up
descriptor, though: one sleeping thread reads it there and sets the stop flag of the run, the
native code returns within a step, and Python then raises what its handler raises
(KeyboardInterrupt).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM})


LONGEST_WAIT = 3600.0
"""Seconds of one sleep: the kernel counts milliseconds in 32 bits."""


class Stoppable(Protocol):
    """What a watched run offers: `stop` may be called from any thread, any number of times."""

    def stop(self, reason: str) -> None: ...


@dataclass
class _Watch:
    run: Stoppable
    deadline: float | None
    main: bool
    old_fd: int = -1
    fired: bool = field(default=False)


class Watchdog:
    """One sleeping thread and one pipe for the process."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self.pid = os.getpid()
        threading.Thread(target=self._loop, name="poplar-py watchdog", daemon=True).start()

    def begin(self, run: Stoppable, timeout: float | None) -> _Watch:
        """Watch ``run`` until `end`; ``timeout`` in seconds."""
        main = threading.current_thread() is threading.main_thread()
        watch = _Watch(run, None if timeout is None else time.monotonic() + timeout, main)
        if main:
            old = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            watch.old_fd = -1 if old == self._write else old  # an interrupted run may leave ours
        with self._lock:
            self._watches.append(watch)
        if timeout is not None:
            os.write(self._write, b"\0")
        return watch

    def end(self, watch: _Watch) -> None:
        """Stop watching and give the wake-up descriptor back."""
        with self._lock:
            self._watches.remove(watch)
        if watch.main:
            signal.set_wakeup_fd(watch.old_fd)

    def _loop(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while True:
            poll.poll(self._wait_ms())
            try:
                data = os.read(self._read, 4096)
            except BlockingIOError:
                data = b""
            self._handle(data)

    def _wait_ms(self) -> int | None:
        with self._lock:
            times = [w.deadline for w in self._watches if w.deadline is not None and not w.fired]
        if not times:
            return None
        left = min(min(times) - time.monotonic(), LONGEST_WAIT)
        return max(0, int(left * 1e3) + 1)

    def _handle(self, data: bytes) -> None:
        numbers = {b for b in data if b}
        now = time.monotonic()
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            if watch.main and numbers & STOP_SIGNALS:
                watch.run.stop("signal")
            if watch.deadline is not None and now >= watch.deadline and not watch.fired:
                watch.fired = True
                watch.run.stop("timeout")
            if watch.main and watch.old_fd >= 0 and numbers:
                _forward(watch.old_fd, bytes(numbers))


def _forward(fd: int, data: bytes) -> None:
    """Pass signal numbers on to whoever (an event loop) listened before."""
    with contextlib.suppress(OSError):
        os.write(fd, data)


_instance: Watchdog | None = None
_create = threading.Lock()


def watchdog() -> Watchdog:
    """The watchdog of this process (a fork gets a new one)."""
    global _instance
    if _instance is None or _instance.pid != os.getpid():
        with _create:
            if _instance is None or _instance.pid != os.getpid():
                _instance = Watchdog()
    return _instance
