"""The report of a run: where cycles and bytes went, per IPU, with the source lines of the largest.

Cycles are those of the modelled machine: the static cost of every step times how often it ran.
Replicas run side by side, so the cycles of a run are those of one replica.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import FileError, Location
from poplar_py.executable.executable import Executable
from poplar_py.files import write_text
from poplar_py.profile.figures import (
    IpuFigures,
    StepFigures,
    VariableFigures,
    ipu_phases,
    step_figures,
)
from poplar_py.profile.report_tables import (
    IPU_HEADS,
    STEP_HEADS,
    VARIABLE_HEADS,
    ipu_cells,
    plain_table,
    rich_table,
    step_cells,
    variable_cells,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["IpuFigures", "Report", "StepFigures", "VariableFigures"]

Counts = npt.NDArray[np.int64]
LARGEST = 10


class Report:
    """Figures of an executable, and of a run when `counts` int64[steps] says how often each step
    ran (None: every step once, which is what `--dry-run` and `compile` show)."""

    def __init__(
        self,
        executable: Executable,
        counts: Counts | None = None,
        *,
        name: str = "model",
        replicas: int = 1,
        machine_ipus: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self.executable = executable
        self.name = name
        self.replicas = replicas
        self.ipus = executable.target.num_ipus
        self.machine_ipus = self.ipus * replicas if machine_ipus is None else machine_ipus
        self.seconds = seconds
        self.is_static = counts is None
        steps = executable.steps
        self.runs = np.ones(len(steps), np.int64) if counts is None else counts[: len(steps)]

    def counts(self) -> dict[str, int]:
        """Totals of one replica: vertices and supersteps executed, cycles, IPUs of the machine
        that work."""
        steps = self.executable.steps
        vertices = sum(s.vertices * int(n) for s, n in zip(steps, self.runs, strict=True))
        supersteps = sum(
            int(n) for s, n in zip(steps, self.runs, strict=True) if s.kind == "execute"
        )
        return {
            "vertices": vertices,
            "supersteps": supersteps,
            "cycles": self.cycles,
            "ipus": self.ipus * self.replicas,
        }

    @cached_property
    def cycles(self) -> int:
        """Cycles of the run."""
        steps = self.executable.steps
        return sum(s.total * int(n) for s, n in zip(steps, self.runs, strict=True))

    @property
    def microseconds(self) -> float:
        """Time of the run on the modelled machine."""
        return self.cycles / self.executable.target.clock * 1e6

    @property
    def idle_ipus(self) -> int:
        """IPUs of the machine that no replica uses."""
        return self.machine_ipus - self.ipus * self.replicas

    @cached_property
    def per_ipu(self) -> list[IpuFigures]:
        """Figures of every IPU of one replica."""
        return [self._ipu(ipu) for ipu in range(self.ipus)]

    def _ipu(self, ipu: int) -> IpuFigures:
        target, memory = self.executable.target, self.executable.memory
        tiles = slice(ipu * target.tiles_per_ipu, (ipu + 1) * target.tiles_per_ipu)
        own = {"compute": 0, "exchange": 0, "sync": 0, "host": 0}
        received = 0
        for step, runs in zip(self.executable.steps, self.runs, strict=True):
            for phase, cycles in ipu_phases(step, ipu).items():
                own[phase] += cycles * int(runs)
            if step.ipu_exchange is not None:
                received += int(step.ipu_exchange[ipu]) * int(runs)
        total = memory.total[tiles]
        return IpuFigures(
            ipu=ipu,
            **own,
            idle=max(0, self.cycles - sum(own.values())),
            received=received,
            data_bytes=int(memory.data[tiles].sum()),
            code_bytes=int((memory.code[tiles] + memory.state[tiles]).sum()),
            largest=int(total.max(initial=0)),
            idle_tiles=int((total == 0).sum()),
            tiles=target.tiles_per_ipu,
        )

    @cached_property
    def steps(self) -> list[StepFigures]:
        """All steps that ran, most cycles first."""
        found = [
            step_figures(step, int(runs))
            for step, runs in zip(self.executable.steps, self.runs, strict=True)
            if runs
        ]
        return sorted(found, key=lambda s: -s.cycles)

    @cached_property
    def variables(self) -> list[VariableFigures]:
        """All variables and receive buffers, largest first."""
        items = self.executable.items
        count = len(items.names)
        nbytes = np.bincount(items.item, items.nbytes, count).astype(np.int64)
        tiles = np.bincount(items.item[items.nbytes > 0], minlength=count)
        order = np.argsort(-nbytes, kind="stable")
        return [
            VariableFigures(
                items.names[k],
                items.locs[k].short,
                int(nbytes[k]),
                int(tiles[k]),
                bool(items.always[k]),
            )
            for k in map(int, order)
        ]

    def to_json(self) -> dict[str, object]:
        """All figures, the largest steps and variables only."""
        target = self.executable.target
        return {
            "model": self.name,
            "system": target.system.name,
            "tiles_per_ipu": target.tiles_per_ipu,
            "replicas": self.replicas,
            "machine_ipus": self.machine_ipus,
            "idle_ipus": self.idle_ipus,
            "static": self.is_static,
            "microseconds": self.microseconds,
            "host_seconds": self.seconds,
            **self.counts(),
            "per_ipu": [figures.to_json() for figures in self.per_ipu],
            "steps": [figures.to_json() for figures in self.steps[:LARGEST]],
            "variables": [figures.to_json() for figures in self.variables[:LARGEST]],
        }

    def table(self) -> Table:
        """Cycles and memory, one row an IPU, all replicas."""
        title = f"{self.name}: {self.cycles:,} cycles, {self.microseconds:,.1f} us at "
        title += f"{self.executable.target.clock / 1e9:g} GHz"
        rows = [
            (str(replica * self.ipus + figures.ipu), *ipu_cells(figures))
            for replica in range(self.replicas)
            for figures in self.per_ipu
        ]
        return rich_table(title + self._idle_text(), IPU_HEADS, rows, no_wrap=True)

    def _idle_text(self) -> str:
        return f"; {self.idle_ipus} IPUs idle" if self.idle_ipus else ""

    def step_table(self, limit: int = LARGEST) -> Table:
        """The steps that took most cycles."""
        rows = [step_cells(step) for step in self.steps[:limit]]
        return rich_table("steps with most cycles", STEP_HEADS, rows)

    def text(self) -> str:
        """The summary for people, as plain text."""
        parts = [self._head(), self._ipu_text(), self._step_text(), self._variable_text()]
        return "\n".join(parts)

    def _head(self) -> str:
        counts = self.counts()
        target = self.executable.target
        kind = "planned, every step once" if self.is_static else "one run"
        lines = [
            f"{self.name} ({kind})",
            f"  system        {target.system.name}, {self.machine_ipus} IPUs, "
            f"{target.tiles_per_ipu} tiles each",
            f"  used          {self.replicas} replicas of {self.ipus} IPUs; "
            f"{self.idle_ipus} IPUs idle",
            f"  cycles        {self.cycles:,} ({self.microseconds:,.1f} us)",
            f"  supersteps    {counts['supersteps']:,}",
            f"  vertices      {counts['vertices']:,}",
        ]
        if self.seconds is not None:
            lines.append(f"  host          {self.seconds * 1e3:,.3f} ms")
        return "\n".join(lines) + "\n"

    def _ipu_text(self) -> str:
        rows = [(str(figures.ipu), *ipu_cells(figures)) for figures in self.per_ipu]
        note = "(of the first replica)\n" if self.replicas > 1 else ""
        return f"per IPU {note}".rstrip() + "\n" + plain_table(IPU_HEADS, rows)

    def _step_text(self) -> str:
        rows = [step_cells(step) for step in self.steps[:LARGEST]]
        return "steps with most cycles\n" + plain_table(STEP_HEADS, rows)

    def _variable_text(self) -> str:
        rows = [variable_cells(v) for v in self.variables[:LARGEST]]
        return "largest variables\n" + plain_table(VARIABLE_HEADS, rows)

    def write(self, folder: Path) -> None:
        """Writes `summary.txt` and `summary.json` into a folder, made if missing."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            loc = Location(str(folder), 0, 0)
            raise FileError(f"cannot create {folder}: {error.strerror}", loc) from error
        write_text(folder / "summary.txt", self.text())
        write_text(folder / "summary.json", json.dumps(self.to_json(), indent=2) + "\n")
