"""Tables of a report: their heads, and figures as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from poplar_py.profile.figures import IpuFigures, StepFigures, VariableFigures

if TYPE_CHECKING:
    from rich.table import Table

IPU_HEADS = (
    "IPU",
    "compute",
    "exchange",
    "sync",
    "host",
    "waits",
    "recv KiB",
    "data KiB",
    "code KiB",
    "max tile",
    "idle tiles",
)
STEP_HEADS = (
    "step",
    "runs",
    "cycles",
    "compute",
    "exchange",
    "sync",
    "host",
    "tiles",
    "balance",
    "source",
)
VARIABLE_HEADS = ("variable", "bytes", "tiles", "always live", "source")
_LEFT = ("step", "source", "variable")


def ipu_cells(f: IpuFigures) -> tuple[str, ...]:
    return (
        f"{f.compute:,}",
        f"{f.exchange:,}",
        f"{f.sync:,}",
        f"{f.host:,}",
        f"{f.idle:,}",
        f"{f.received / 1024:,.0f}",
        f"{f.data_bytes / 1024:,.0f}",
        f"{f.code_bytes / 1024:,.0f}",
        f"{f.largest / 1024:,.0f} KiB",
        f"{f.idle_tiles:,}/{f.tiles:,}",
    )


def step_cells(s: StepFigures) -> tuple[str, ...]:
    return (
        s.name,
        f"{s.runs:,}",
        f"{s.cycles:,}",
        f"{s.compute:,}",
        f"{s.exchange:,}",
        f"{s.sync:,}",
        f"{s.host:,}",
        f"{s.tiles:,}",
        f"{s.balance:.2f}",
        s.location,
    )


def variable_cells(v: VariableFigures) -> tuple[str, ...]:
    return (
        v.name,
        f"{v.nbytes:,}",
        f"{v.tiles:,}",
        "yes" if v.always_live else "no",
        v.location,
    )


def plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A text table; names and sources are aligned left, numbers right."""
    cells = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(heads))]
    lines: list[str] = []
    for row in cells:
        parts = [
            cell.ljust(width) if head in _LEFT else cell.rjust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        lines.append(("  " + "  ".join(parts)).rstrip())
    return "\n".join(lines) + "\n"


def rich_table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, no_wrap: bool = False
) -> Table:
    """A table for the terminal; rich is loaded by those who show one."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="left" if head in _LEFT else "right", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*row)
    return table
