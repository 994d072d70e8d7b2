"""popops.embedding: plans for tables that are looked up and updated by row.

`plan` cuts a table once; `create_sliceable_tensor(..., plan=p)` lays it out so, and `multi_slice`,
`multi_update`, `multi_update_add`, ... with `plan=p` work where the parts lie, without moving the
table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poplar.options import Option, OptionFlags, check_options, flag
from poplar_py.popops.slice_plan import SlicePlan
from poplar_py.poputil.shapes import need_room

if TYPE_CHECKING:
    from poplar_py.poplar import Graph
    from poplar_py.types import DType

__all__ = ["OPTIONS", "SlicePlan", "plan"]

OPTIONS: dict[str, Option] = {
    "usedForSlice": Option("true", "lookups count"),
    "usedForUpdate": Option("true", "updates count"),
    "operationForUpdate": Option("add", "none, add, mul, max or min: what an update does"),
    "availableMemoryProportion": Option("", "share of a tile's memory for temporary data"),
    "indicesDistribution": Option("uniform", "uniform, or onePoint: all indices alike"),
    "planMinimisationTarget": Option("memory", "memory or cycles"),
    "indicesAreSorted": Option("false", "accepted; changes nothing here"),
}
CHOICES = {
    "operationForUpdate": ("none", "add", "mul", "max", "min"),
    "indicesDistribution": ("uniform", "onePoint"),
    "planMinimisationTarget": ("memory", "cycles"),
}
LOOK = 12
"""Worker cycles to read an index and compare it with the rows of a part."""
WORKERS = 6


@dataclass(frozen=True)
class _Problem:
    """What is planned: sizes in elements and bytes, and what the options ask for."""

    entries: int
    width: int
    size: int
    lookups: tuple[int, ...]
    tiles: int
    slices: bool
    updates: bool
    joins: bool
    together: bool


def plan(
    graph: Graph,
    dtype: DType,
    num_entries: int,
    output_size: int,
    num_lookups: Sequence[int],
    options: Mapping[str, Any] | None = None,
) -> SlicePlan:
    """A cut of a table [num_entries, output_size] for operations on so many rows at a time.

    All cuts into column blocks of equal width and row blocks are compared by an estimate of cycles
    (12 a comparison, 64 bits a load or store, 4 bytes of exchange a cycle) or of the fullest tile's
    bytes. Raises ShapeError for sizes under 1, OptionError for unknown options, and where no cut
    leaves its temporary data the share of memory that was asked for.
    """
    if num_entries < 1 or output_size < 1:
        fail(ShapeError, f"a plan for a table [{num_entries}, {output_size}]")
    need_room(graph, (num_entries, output_size))
    given = _options(options)
    problem = _Problem(
        num_entries,
        output_size,
        dtype.size,
        tuple(int(n) for n in num_lookups) or (1,),
        graph.num_tiles,
        flag(given, "usedForSlice"),
        flag(given, "usedForUpdate"),
        given["operationForUpdate"] != "none",
        given["indicesDistribution"] == "onePoint",
    )
    room = graph.target.bytes_per_tile * _proportion(given["availableMemoryProportion"])
    best = _best_cut(problem, room, given["planMinimisationTarget"] == "cycles")
    if best is None:
        fail(
            OptionError,
            f"no cut of a table [{num_entries}, {output_size}] has temporary data of at most "
            f"{int(room):,} bytes a tile",
            remedy="raise availableMemoryProportion or look fewer rows up at a time",
        )
    cols, rows = best
    cycles, held, temporary = _cost(problem, cols, rows)
    return SlicePlan(
        dtype, num_entries, output_size, problem.lookups, cols, rows, cycles, held + temporary
    )


def _best_cut(problem: _Problem, room: float, fewest_cycles: bool) -> tuple[int, int] | None:
    """Columns and rows of the cut with the fewest cycles, or bytes, whose temporary data fit."""
    best: tuple[tuple[float, float], tuple[int, int]] | None = None
    for cols, rows in _cuts(problem):
        cycles, held, temporary = _cost(problem, cols, rows)
        if temporary > room:
            continue
        nbytes = held + temporary
        key = (cycles, nbytes) if fewest_cycles else (nbytes, cycles)
        if best is None or key < best[0]:
            best = (key, (cols, rows))
    return None if best is None else best[1]


def _options(options: Mapping[str, Any] | None) -> OptionFlags:
    """Defaults and the given ones. Raises OptionError."""
    flags = OptionFlags(options)
    check_options(flags, OPTIONS, "embedding")
    out = OptionFlags({**{k: o.default for k, o in OPTIONS.items()}, **flags})
    for name, choices in CHOICES.items():
        if out[name] not in choices:
            fail(OptionError, f"option {name!r} is {out[name]!r}", remedy=" or ".join(choices))
    if not flag(out, "usedForSlice") and not flag(out, "usedForUpdate"):
        fail(OptionError, "a plan that is used neither for slices nor for updates")
    return out


def _proportion(text: str) -> float:
    """A share of memory; without one there is no bound."""
    if not text:
        return inf
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        what = f"option 'availableMemoryProportion' is {text!r}"
        fail(OptionError, what, remedy="a number over 0")
    return value


def _cuts(p: _Problem) -> Iterator[tuple[int, int]]:
    """(cols, rows): every divisor of the width, with row blocks that leave no worker without."""
    for cols in range(1, p.width + 1):
        if p.width % cols:
            continue
        most = max(1, min(p.entries, WORKERS * p.tiles // (p.width // cols)))
        count, seen = 1, 0
        while count <= most:
            rows = -(-p.entries // count)
            if rows != seen:
                yield cols, rows
            seen, count = rows, max(count + 1, count * 5 // 4)
        if -(-p.entries // most) != seen:
            yield cols, -(-p.entries // most)


def _cost(p: _Problem, cols: int, rows: int) -> tuple[int, int, int]:
    """Tile cycles, bytes of the table and temporary bytes on the fullest tile."""
    blocks, cuts = p.width // cols, -(-p.entries // rows)
    each = -(-blocks * cuts // p.tiles)
    row = 2 * -(-cols * p.size // 8)
    cycles, temporary = 0.0, 0
    for n in p.lookups:
        hits = n if p.together else -(-n // cuts)
        if p.slices:
            share, found = -(-n // WORKERS), -(-hits // WORKERS)
            cycles += n + each * WORKERS * (share * LOOK + found * row)
            results = n * each * cols * p.size
            if cuts > 1:
                moved = -(-cuts * n * p.width * p.size // p.tiles)
                cycles += moved / 4 + -(-n * blocks // p.tiles) * (LOOK + row)
                results += moved
            temporary = max(temporary, 4 * n + results)
        if p.updates:
            bytes_in = n * min(each, blocks) * cols * p.size + 4 * n
            work = n * LOOK + hits * row * (2 if p.joins else 1)
            cycles += bytes_in / 4 + WORKERS * -(-each // WORKERS) * work
            temporary = max(temporary, bytes_in)
    return int(cycles), each * rows * cols * p.size, temporary
