"""A number with its unit and its source: every figure of a machine says where it comes from.

Sources (short names used in ``Figure.source``):

``datasheet``    Graphcore product data: IPU-M2000, Bow-2000, Bow Pod datasheets, C2 card
``citadel``      Jia et al., "Dissecting the Graphcore IPU Architecture", arXiv 1912.03413 (GC2)
``poplibs``      graphcore/poplibs (MIT): planners, cycle estimators and test helpers
``user-guide``   Poplar and PopLibs User Guide and API Reference
``analyser``     PopVision Graph Analyser documentation
``elk``          platformxlab/elk, MICRO'25 artefact (profile of GC200)
``ipu21-stack``  osmarks/ipu-stack, an independent IPU21 toolchain (measured constants)
``cambrian``     Cambrian-AI white paper on Mk2 systems, April 2021
``clt``          Graphcore command line tools documentation (traffic tests)
``tutorials``    Graphcore tutorials (MIT): printed outputs of the IPU Model
``derived``      worked out from the others; the note says how
``chosen``       our choice where nothing is published; the note says why
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Figure:
    """One value of a machine description."""

    value: float
    unit: str
    source: str
    note: str = ""

    def __str__(self) -> str:
        note = f", {self.note}" if self.note else ""
        return f"{self.value:g} {self.unit} ({self.source}{note})"


def figures_of(description: DataclassInstance) -> dict[str, Figure]:
    """The figures among the fields of a machine description, by name."""
    values: dict[str, Any] = {f.name: getattr(description, f.name) for f in fields(description)}
    return {name: value for name, value in values.items() if isinstance(value, Figure)}


def count(value: int, source: str, note: str = "") -> Figure:
    """A plain number of things."""
    return Figure(value, "", source, note)


def bytes_(value: int, source: str, note: str = "") -> Figure:
    """A size in bytes."""
    return Figure(value, "B", source, note)


def cycles(value: float, source: str, note: str = "") -> Figure:
    """A duration in tile cycles."""
    return Figure(value, "cycles", source, note)


def hertz(value: float, source: str, note: str = "") -> Figure:
    """A clock frequency."""
    return Figure(value, "Hz", source, note)


def rate(value: float, source: str, note: str = "") -> Figure:
    """Bytes per second."""
    return Figure(value, "B/s", source, note)


def per_cycle(value: float, source: str, note: str = "") -> Figure:
    """Bytes per tile cycle."""
    return Figure(value, "B/cycle", source, note)


def seconds(value: float, source: str, note: str = "") -> Figure:
    """A duration in seconds."""
    return Figure(value, "s", source, note)
