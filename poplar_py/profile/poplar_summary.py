"""The profile summary of Poplar's Engine: target, graph, memory and execution as text.

Memory is what the plan uses, per category. Cycles are the static cost of every step times how often
it ran. All tiles of a machine go through exchange, host and sync phases together, so a phase counts
in full for each of them; compute differs from tile to tile and is averaged: with idle threads, from
a tile's first vertex to its last, and without, cycles in which threads have a vertex.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError
from poplar_py.executable.executable import Executable, StepInfo
from poplar_py.poplar.options import Option, OptionFlags, check_options, flag

__all__ = ["SUMMARY_OPTIONS", "MemoryRow", "StepRow", "memory_rows", "profile_summary", "step_rows"]

Ints = npt.NDArray[np.int64]

SUMMARY_OPTIONS: dict[str, Option] = {
    "showExecutionSteps": Option("false", "list what every step does, with its cycles"),
    "showVarStorage": Option("false", "list variables with their bytes"),
    "showOptimizations": Option("false", "accepted; nothing to show"),
    "showPerIpuMemoryUsage": Option("false", "memory by IPU"),
    "colours": Option("false", "accepted; plain text always"),
}
_NAMES = {"remote": "RemoteBufferCopy", "host": "HostFunction", "replicas": "CrossReplicaCopy"}


def profile_summary(
    executable: Executable,
    runs: Ints | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    programs: int | None = None,
) -> str:
    """The summary as text. ``runs`` int64[steps]: how often each step ran (None: nothing ran, no
    execution section); ``programs``: how many programs were run. Raises OptionError."""
    given = OptionFlags(options)
    check_options(given, SUMMARY_OPTIONS, "summary")
    flags = {**{k: o.default for k, o in SUMMARY_OPTIONS.items()}, **given}
    lines = [*_target(executable), *_graph(executable), *_memory(executable, flags)]
    if runs is not None:
        counts = runs[: len(executable.steps)]
        lines += _execution(executable, counts, programs)
        if flag(flags, "showExecutionSteps"):
            lines += _steps(executable, counts)
    elif flag(flags, "showExecutionSteps"):
        raise OptionError("there are no execution steps to show: nothing ran")
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------- target and graph
def _target(exe: Executable) -> list[str]:
    t = exe.target
    return [
        "Target:",
        _row("Number of IPUs", f"{t.num_ipus}"),
        _row("Tiles per IPU", f"{t.tiles_per_ipu:,}"),
        _row("Total tiles", f"{t.num_tiles:,}"),
        _row("Memory per tile", _kib(t.bytes_per_tile)),
        _row("Total memory", f"{t.num_tiles * t.bytes_per_tile / (1 << 20):,.1f} MiB"),
        _row("Clock speed (approx)", f"{t.clock / 1e6:,.1f} MHz"),
        "",
    ]


def _graph(exe: Executable) -> list[str]:
    counts: dict[str, int] = exe.metadata.get("graph", {})
    rows = (
        ("Number of vertices", counts.get("vertices", exe.vertices)),
        ("Number of edges", counts.get("edges")),
        ("Number of variables", counts.get("variables")),
        ("Number of elements", counts.get("elements")),
        ("Number of compute sets", counts.get("compute_sets")),
    )
    return ["Graph:", *(_row(k, f"{v:,}") for k, v in rows if v is not None), ""]


# ---------------------------------------------------------------------------- memory
@dataclass(frozen=True)
class MemoryRow:
    """Bytes of one category per tile, int64[tiles]."""

    name: str
    per_tile: Ints

    @property
    def total(self) -> int:
        return int(self.per_tile.sum())

    @property
    def largest(self) -> int:
        return int(self.per_tile.max(initial=0))


def memory_rows(exe: Executable) -> list[MemoryRow]:
    """Categories of memory, their sum, gaps between variables, and the sum with gaps."""
    memory, items, tiles = exe.memory, exe.items, exe.target.num_tiles
    buffers = _of(items.names, "receive buffer of ")[items.item]
    state = _of(items.names, "state of ")[items.item]
    always = items.always[items.item]

    def part(which: npt.NDArray[np.bool_]) -> Ints:
        return np.bincount(items.tile[which], items.nbytes[which], tiles).astype(np.int64)

    fixed = part(~buffers & ~state & always)
    gaps = memory.data - memory.bound
    stored = part(state)
    shared = np.maximum(memory.bound - fixed - stored, 0)
    return [
        MemoryRow("Code (vertex, exchange, control)", memory.code),
        MemoryRow("Vertex instance state", memory.state + stored),
        MemoryRow("Variables, always live", fixed),
        MemoryRow("Variables and message buffers, at peak", shared),
        MemoryRow("Total, excluding gaps", memory.total - gaps),
        MemoryRow("Gaps", gaps),
        MemoryRow("Total, including gaps", memory.total),
    ]


def _of(names: list[str], prefix: str) -> npt.NDArray[np.bool_]:
    return np.array([n.startswith(prefix) for n in names], np.bool_)


def _memory(exe: Executable, flags: Mapping[str, str]) -> list[str]:
    rows = memory_rows(exe)
    total = exe.memory.total
    lines = ["Memory usage:", f"  {'':<42}{'all tiles':>16}{'largest tile':>16}"]
    lines += [f"  {r.name:<42}{_kib(r.total):>16}{_kib(r.largest):>16}" for r in rows]
    if len(total):
        tile = int(total.argmax())
        lines.append(
            f"  Tile {tile} has most: {_kib(int(total[tile]))} of {_kib(exe.target.bytes_per_tile)}"
            f" ({100 * total[tile] / exe.target.bytes_per_tile:.1f} %);"
            f" mean {_kib(float(total.mean()))}, least {_kib(int(total.min()))}"
        )
    if flag(flags, "showPerIpuMemoryUsage"):
        per = total.reshape(exe.target.num_ipus, -1)
        lines += [
            f"  IPU {k}: {_kib(int(p.sum()))}, largest tile {_kib(int(p.max()))}"
            for k, p in enumerate(per)
        ]
    if flag(flags, "showVarStorage"):
        lines += ["", "Variable storage:", *_variables(exe)]
    return [*lines, ""]


def _variables(exe: Executable) -> Iterator[str]:
    """A line a variable or buffer, largest first: bytes, tiles, whether always live."""
    items = exe.items
    count = len(items.names)
    nbytes = np.bincount(items.item, items.nbytes, count).astype(np.int64)
    tiles = np.bincount(items.item[items.nbytes > 0], minlength=count)
    yield f"  {'bytes':>14}{'tiles':>8}{'max a tile':>12}  live      name"
    most = np.zeros(count, np.int64)
    np.maximum.at(most, items.item, items.nbytes)
    for k in np.argsort(-nbytes, kind="stable").tolist():
        live = "always" if items.always[k] else "at times"
        yield f"  {nbytes[k]:>14,}{tiles[k]:>8,}{most[k]:>12,}  {live:<8}  {items.names[k]}"


# ---------------------------------------------------------------------------- execution
def _execution(exe: Executable, runs: Ints, programs: int | None) -> list[str]:
    steps = exe.steps

    def total(phase: str) -> float:
        return float(sum(getattr(s, phase) * int(n) for s, n in zip(steps, runs, strict=True)))

    cycles = total("total")
    with_idle, without = total("tile_compute"), total("thread_compute")
    links = total("exchange_links")
    rows = (
        ("Tile average compute cycles (including idle threads)", with_idle),
        ("Tile average compute cycles (excluding idle threads)", without),
        ("Tile average cycles waiting for the slowest tile", total("compute") - with_idle),
        ("Tile average IPU exchange cycles", total("exchange") - links),
        ("Tile average global exchange cycles", links),
        ("Tile average host exchange cycles", total("host")),
        ("Tile average sync cycles", total("sync")),
    )
    microseconds = cycles / exe.target.clock * 1e6
    lines = ["Execution:"]
    if programs is not None:
        lines.append(f"  {'Programs executed':<54}{programs:>14,}")
    lines.append(
        f"  {'Total cycles':<54}{cycles:>14,.0f} (approx {microseconds:,.1f} microseconds)"
    )
    for name, value in rows:
        share = 100 * value / cycles if cycles else 0.0
        lines.append(f"  {name:<54}{value:>14,.1f} ({share:.1f}% of total)")
    return [*lines, ""]


@dataclass(frozen=True)
class StepRow:
    """A line of the step listing: one phase of one step. ``cycles`` of one run."""

    kind: str
    name: str
    runs: int
    cycles: int
    note: str = ""


def step_rows(exe: Executable, runs: Ints) -> list[StepRow]:
    """What every step that ran does, phase by phase, in order of the program."""
    return [
        row for s, n in zip(exe.steps, runs.tolist(), strict=True) if n for row in _phases(s, n)
    ]


def _phases(s: StepInfo, runs: int) -> Iterator[StepRow]:
    def row(kind: str, cycles: int, note: str = "") -> StepRow:
        return StepRow(kind, s.name, runs, cycles, note)

    if s.kind == "stream":
        yield row("StreamCopy", s.host, f"{s.bytes_exchanged:,} bytes")
    elif s.host or s.kind in _NAMES:
        yield row(_NAMES.get(s.kind, "HostExchange"), s.host)
    if s.exchange_data or s.exchange_fragments:
        yield row("DoExchange", s.exchange_data, f"{s.bytes_exchanged:,} bytes")
    if s.exchange_fragments:
        yield row("  fragments", s.exchange_fragments, "scattered data, waiting for ports")
    if s.exchange_links:
        yield row("GlobalExchange", s.exchange_links, f"{s.bytes_between:,} bytes")
    if s.exchange_local:
        yield row("OnTileCopy", s.exchange_local, "within tiles")
    if s.kind == "execute":
        note = f"{s.vertices:,} vertices on {s.tiles:,} tiles; tile average "
        note += f"{s.tile_compute:,.1f}, {s.thread_compute:,.1f} without idle threads"
        yield row("OnTileExecute", s.compute, note)
    if s.sync:
        yield row("Sync", s.sync)


def _steps(exe: Executable, runs: Ints) -> list[str]:
    rows = step_rows(exe, runs)
    width = max((len(r.name) for r in rows), default=4)
    lines = ["Execution steps:", f"  {'step':<18}{'name':<{width}}{'runs':>8}{'cycles a run':>14}"]
    lines += [
        f"  {r.kind:<18}{r.name:<{width}}{r.runs:>8,}{r.cycles:>14,}  {r.note}".rstrip()
        for r in rows
    ]
    return [*lines, ""]


def _row(name: str, value: str) -> str:
    return f"  {name + ':':<28}{value:>16}"


def _kib(nbytes: float) -> str:
    return f"{nbytes / 1024:,.1f} KiB"
