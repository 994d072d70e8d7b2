"""Host threads inside native code: the pool block, worker threads, launching a program."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen import program_words as isa
from poplar_py.codegen.jit import Jit
from poplar_py.codegen.program import driver_text
from poplar_py.codegen.program_words import Pool as W
from poplar_py.diagnostics import InputError

I64 = NDArray[np.int64]
SPIN_NS = 20_000
"""Time a barrier spins before it sleeps: longer makes a shared machine crawl, shorter costs a
wake-up."""
IDLE_NS = 1_000_000
_DRIVER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def aligned(words: int, align: int = 64) -> I64:
    """Zeroed int64[words], its first element at a multiple of ``align`` bytes."""
    raw = np.zeros(words + align // 8, np.int64)
    skip = (-raw.ctypes.data % align) // 8
    return raw[skip : skip + words]


def free_cores() -> int:
    """Cores this process may use: its affinity mask, bounded by the control group's CPU quota."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def thread_plan(threads: int, replicas: int) -> tuple[int, int]:
    """(teams, threads of a team): replicas run side by side first, threads left over share a
    replica."""
    teams = max(1, min(threads, replicas))
    return teams, max(1, threads // teams)


class ThreadPool:
    """``teams * team_size`` threads; thread 0 is whoever calls `launch`.

    The arrays of the program (code, counts, streams, state) belong to the caller, who stores their
    addresses with `set`. Not reentrant: one launch at a time (`launch` holds a lock).
    """

    def __init__(
        self, jit: Jit, replicas: int, threads: int, callback: Callable[[int, int, int], int]
    ) -> None:
        self.teams, self.team_size = thread_plan(threads, replicas)
        self.threads = self.teams * self.team_size
        self.block = aligned(isa.POOL_WORDS)
        self.ctx = aligned(isa.CTX_WORDS)
        self._teams = aligned((self.teams + 1) * isa.TEAM_BYTES // 8)
        self._callback = CALLBACK(callback)
        address = jit.load({"pp_driver": driver_text()})["pp_driver"]
        self._driver = _DRIVER(address)
        self._lock = threading.Lock()
        self.address = int(self.block.ctypes.data)
        self.set(W.THREADS, self.threads)
        self.set(W.TEAMS, self.teams)
        self.set(W.TEAM_SIZE, self.team_size)
        self.set(W.REPLICAS, replicas)
        self.set(W.CTX, int(self.ctx.ctypes.data))
        self.set(W.TEAM_BLOCKS, int(self._teams.ctypes.data))
        self.set(W.CALLBACK, ctypes.cast(self._callback, ctypes.c_void_p).value or 0)
        self._calibrate()
        self._workers: list[threading.Thread] = []
        self._pid = 0
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._closed = False

    def set(self, word: W, value: int) -> None:
        """Store one word of the pool block (between launches only)."""
        self.block[word] = value

    def _calibrate(self) -> None:
        """Turn the spin times into pause counts (a pause is 3 to 50 ns); none when cores are
        short."""
        count = aligned(8)
        count[0] = 500
        start = time.perf_counter_ns()
        self._driver(int(count.ctypes.data), -2)
        pause = max(1.0, (time.perf_counter_ns() - start) / 500)
        crowded = self.threads > len(os.sched_getaffinity(0))
        self.set(W.SPIN, 0 if crowded else max(1, int(SPIN_NS / pause)))
        self.set(W.IDLE_SPIN, 0 if crowded else max(1, int(IDLE_NS / pause)))

    def _start(self) -> None:
        """Start the workers (before the first launch with more than one thread, and in a fork)."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._pid = os.getpid()
        self._workers = []
        self.set(W.GENERATION, 0)
        self.set(W.SLEEPERS, 0)
        for k in range(1, self.threads):
            name = f"poplar-py worker {k}"
            worker = threading.Thread(
                target=self._driver, args=(self.address, k), name=name, daemon=True
            )
            worker.start()
            self._workers.append(worker)
        keep = (self._driver, self.block, self.ctx, self._teams, self._callback)
        self._finalizer = weakref.finalize(
            self, _quit, self._driver, self.address, self._workers, keep
        )

    def launch(self) -> None:
        """Run the program from the entry word on; returns when all threads are through or
        stopped."""
        with self._lock:
            if self._closed:
                raise InputError("the engine is closed")
            if self.threads > 1 and self._pid != os.getpid():
                self._start()
            self._driver(self.address, 0)

    def close(self) -> None:
        """End the worker threads; the pool cannot be used afterwards."""
        self._closed = True
        if self._finalizer is not None:
            self._finalizer()


def _quit(
    driver: Callable[[int, int], int], address: int, workers: list[threading.Thread], keep: object
) -> None:
    driver(address, -1)
    for worker in workers:
        worker.join(5.0)
    del keep
