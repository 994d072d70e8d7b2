"""What the ``autoReport`` options of an engine ask for: text files in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import FileError, Location
from poplar_py.executable.executable import Executable
from poplar_py.files import write_text
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.options import flag, number
from poplar_py.poplar.program import Program
from poplar_py.poplar.tile_print import print_tile_module
from poplar_py.profile.poplar_summary import profile_summary

__all__ = ["AutoReport"]


class AutoReport:
    """Writes ``graph.txt`` (outputGraphProfile), ``variables.txt`` (outputLoweredVars) and
    ``graph.pir`` (outputSerializedGraph) when a graph was compiled, ``execution.txt``
    (outputExecutionProfile) after each of the first runs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self.folder = Path(options["autoReport.directory"])
        self._left = number(options, "autoReport.executionProfileProgramRunCount")
        self._ran = 0

    def _wants(self, what: str) -> bool:
        everything = what != "outputSerializedGraph" and flag(self._options, "autoReport.all")
        return everything or flag(self._options, f"autoReport.{what}")

    def compiled(self, executable: Executable, graph: Graph, programs: Sequence[Program]) -> None:
        """Reports about a graph that was just compiled. Raises FileError."""
        if self._wants("outputGraphProfile"):
            self._write("graph.txt", profile_summary(executable))
        if self._wants("outputLoweredVars"):
            shown = profile_summary(executable, options={"showVarStorage": "true"})
            self._write("variables.txt", shown)
        if self._wants("outputSerializedGraph"):
            self._write(
                "graph.pir", print_tile_module(graph, list(programs), inline_resources=True)
            )

    def ran(self, executable: Executable, runs: npt.NDArray[np.int64]) -> None:
        """The report after a run; ``runs`` int64[steps] of all runs so far. Raises FileError."""
        if self._ran >= self._left or not self._wants("outputExecutionProfile"):
            return
        self._ran += 1
        options = {"showExecutionSteps": "true"}
        text = profile_summary(executable, runs, options, programs=self._ran)
        self._write("execution.txt", text)

    def _write(self, name: str, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            loc = Location(str(self.folder), 0, 0)
            raise FileError(f"cannot create {self.folder}: {error.strerror}", loc) from error
        write_text(self.folder / name, text)
