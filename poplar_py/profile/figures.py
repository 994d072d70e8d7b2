"""Figures of a run: of an IPU, of a step, of a variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poplar_py.executable.executable import StepInfo

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class IpuFigures:
    """Cycles of a run and memory of one IPU.

    `compute` is the IPU's own slowest tile; it waits `idle` cycles for slower IPUs. `received` are
    bytes its tiles got from others. `largest` is the fullest tile's bytes; `idle_tiles` have
    neither data nor vertices.
    """

    ipu: int
    compute: int
    exchange: int
    sync: int
    host: int
    idle: int
    received: int
    data_bytes: int
    code_bytes: int
    largest: int
    idle_tiles: int
    tiles: int

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass(frozen=True)
class StepFigures:
    """All runs of one step."""

    name: str
    kind: str
    location: str
    runs: int
    cycles: int
    compute: int
    exchange: int
    sync: int
    host: int
    tiles: int
    vertices: int
    balance: float
    bytes_exchanged: int

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass(frozen=True)
class VariableFigures:
    """Bytes of one variable or receive buffer on all tiles."""

    name: str
    location: str
    nbytes: int
    tiles: int
    always_live: bool

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


def ipu_phases(step: StepInfo, ipu: int) -> dict[str, int]:
    """One IPU's own cycles in a step."""
    compute = step.compute if step.ipu_compute is None else int(step.ipu_compute[ipu])
    return {"compute": compute, "exchange": step.exchange, "sync": step.sync, "host": step.host}


def step_figures(step: StepInfo, runs: int) -> StepFigures:
    """A step that ran so often."""
    return StepFigures(
        step.name,
        step.kind,
        step.loc.short,
        runs,
        step.total * runs,
        step.compute * runs,
        step.exchange * runs,
        step.sync * runs,
        step.host * runs,
        step.tiles,
        step.vertices,
        step.balance,
        step.bytes_exchanged,
    )
