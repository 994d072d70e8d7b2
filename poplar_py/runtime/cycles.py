"""Cycles of what ran: static costs of steps times how often they ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poplar_py.executable.executable import Executable
from poplar_py.poplar.arrays import I8, Ints


@dataclass(frozen=True)
class CycleReport:
    """Device cycles by phase; ``runs`` int64[steps]; ``ipu_compute`` int64[ipus]: cycles in which
    some tile of the IPU computes; ``ipu_bytes`` int64[ipus]: bytes its tiles received."""

    compute: int
    exchange: int
    sync: int
    host: int
    runs: Ints
    ipu_compute: Ints
    ipu_bytes: Ints
    seconds: float

    @property
    def total(self) -> int:
        return self.compute + self.exchange + self.sync + self.host


def count_cycles(exe: Executable, runs: Ints) -> CycleReport:
    """The report for given run counts of every step."""
    runs = runs[: len(exe.steps)].copy()

    def total(phase: str) -> int:
        each = np.array([getattr(s, phase) for s in exe.steps] or [0], I8)
        return int((each[: len(runs)] * runs).sum())

    ipus = exe.target.num_ipus
    compute, exchanged = np.zeros(ipus, I8), np.zeros(ipus, I8)
    for s, n in zip(exe.steps, runs.tolist(), strict=False):
        if s.ipu_compute is not None:
            compute += s.ipu_compute * n
        if s.ipu_exchange is not None:
            exchanged += s.ipu_exchange * n
    phases = tuple(total(p) for p in ("compute", "exchange", "sync", "host"))
    seconds = sum(phases) / exe.target.clock
    a, b, c, d = phases
    return CycleReport(a, b, c, d, runs, compute, exchanged, seconds)
