"""What the stages of a reduction cost: compute, exchange and sync, from the charged tables.

A stage cuts [outer, n, inner] into boxes of some rows and columns, one vertex each, and leaves
[outer, parts, inner]. `Costs` prices boxes that lie anywhere (`grid`), and what is still to come
after a stage (`later`), as the least over all ways to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py import codelets
from poplar_py.target.cycles import CycleModel
from poplar_py.target.target import Target
from poplar_py.types import DType, bool_

__all__ = ["WORKERS", "Costs", "Grid", "Job", "Source", "codelet_name", "costs_of"]

Ints = npt.NDArray[np.int64]
WORKERS = 6
SUM, SQUARES, MEAN = 0, 6, 7
MOST_BYTES = 1 << 16
"""Received bytes of a tile's boxes beyond which a cut is not considered."""
HOST = 32
"""Vertices, or pieces that the host copies for them, that are worth one cycle of the device."""
RUN = 16
"""Rows side by side that the host reads at once: pieces of a continuous reduction are multiples."""


@dataclass(frozen=True)
class Job:
    """What a stage reduces: each of `outer` groups of at most `n` rows of `inner` columns, by
    `kind` (see KINDS). `source`, `acc`, `out`: types of the elements, the sums and the results."""

    outer: int
    n: int
    inner: int
    source: DType
    acc: DType
    out: DType
    kind: int

    def codelet(self, final: bool) -> str:
        """Name of the vertices that leave results (`final`), or partial results."""
        kind = self.kind if final or self.kind != MEAN else SUM
        out = self.out if final else self.acc
        return codelet_name(self.source, self.acc, out, kind, self.inner)

    @property
    def lanes(self) -> int:
        """Elements in 64 bits."""
        return max(1, 8 // self.source.size)

    def after(self, parts: int) -> Job:
        """What is left when every group became `parts` rows."""
        kind = SUM if self.kind == SQUARES else self.kind
        return Job(self.outer, parts, self.inner, self.acc, self.acc, self.out, kind)


def codelet_name(source: DType, acc: DType, out: DType, kind: int, inner: int) -> str:
    """The reduction vertex for rows of `inner` columns."""
    if source is bool_:
        return f"popops::ReduceBool<{kind}>"
    which = "ReduceRows" if inner == 1 else "ReduceCols"
    return f"popops::{which}<{source.name},{acc.name},{out.name},{kind}>"


@dataclass(frozen=True)
class Source:
    """Where the rows of a job lie, as far as boxes anywhere care.

    `run`: rows that follow one another on one tile; `piece`: columns that lie side by side there;
    `most`: elements of the fullest tile.
    """

    run: int
    piece: int
    most: int


@dataclass(frozen=True)
class Grid:
    """Boxes of at most `rows` x `cols`, `groups` whole groups each, spread evenly."""

    rows: int
    cols: int
    groups: int = 1


@dataclass(eq=False)
class Costs:
    """Prices on a target whose data lies on `ipus` IPUs with `tiles` tiles together."""

    target: Target
    ipus: int
    tiles: int
    _later: dict[tuple[Any, ...], float] = field(default_factory=dict[tuple[Any, ...], float])

    def __post_init__(self) -> None:
        model, chip = CycleModel(self.target), self.target.chip
        self.rate = int(chip.exchange_bytes_per_cycle.value)
        self.fragment = int(chip.fragment_cycles.value)
        self.sync = model.sync_cycles(1)
        self.exchange_sync = model.sync_cycles(self.ipus)
        self.call = int(chip.copy_call.value)
        self.copy_rate = int(chip.memcpy_bytes_per_cycle.value)

    # ------------------------------------------------------------------ compute
    def vertex(self, name: str, groups: Any, rows: Any, cols: Any) -> Ints:
        """Worker cycles of vertices: `groups` results of `rows` rows of `cols` columns."""
        groups, rows, cols = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(v, np.int64)) for v in (groups, rows, cols))
        )
        sizes = {"out": groups * cols, "x": groups * rows * cols}
        zero = np.zeros_like(rows)
        state = {"n": rows, "cols": cols, "pitch": cols, "first": zero, "divisor": zero + 1.0}
        found = np.asarray(codelets.get(name).cycles(sizes, state))
        return np.broadcast_to(found, rows.shape).astype(np.int64)

    def longest(self, cycles: Ints, tile: npt.NDArray[Any]) -> int:
        """Cycles of the slowest tile, its vertices taken to be as long as its longest."""
        count = np.bincount(tile)
        high = np.zeros(len(count), np.int64)
        np.maximum.at(high, tile, cycles)
        return int((-(-count // WORKERS) * high).max()) * WORKERS

    # ------------------------------------------------------------------ boxes anywhere
    def grid(self, job: Job, source: Source) -> tuple[float, Grid]:
        """The cheapest grid for a job and the cost of everything from here on."""
        rows, cols = _candidates(job)
        parts, pieces = -(-job.n // rows), -(-job.inner // cols)
        count = job.outer * parts * pieces
        each = -(-count // self.tiles)
        whole = (parts == 1) & (pieces == 1)
        groups = np.where(whole, -(-each // WORKERS), 1)
        each = np.where(whole, -(-each // groups), each)
        cycles = np.where(
            parts == 1,
            self.vertex(job.codelet(True), groups, rows, cols),
            self.vertex(job.codelet(False), groups, rows, cols),
        )
        compute = WORKERS * -(-each // WORKERS) * cycles
        nbytes = each * groups * rows * cols * job.source.size
        fetch, messages = self._fetch(job, source, rows, cols, each * groups)
        own = self.sync + self.exchange_sync + compute + fetch + count * (messages + 1) // HOST
        own = own + np.where(count * 2 > self.tiles, self.call, 0)
        own = np.where(nbytes > MOST_BYTES, own + (nbytes << 10), own)
        best, found = np.inf, Grid(job.n, job.inner)
        for i in np.argsort(own, kind="stable").tolist():
            if own[i] >= best:
                break
            total = float(own[i])
            if parts[i] > 1:
                total += self.later(job.after(int(parts[i])), 1)
            if total < best:
                best, found = total, Grid(int(rows[i]), int(cols[i]), int(groups[i]))
        return best, found

    def _fetch(
        self, job: Job, source: Source, rows: Ints, cols: Ints, each: Ints
    ) -> tuple[Ints, Ints]:
        """Cycles of the exchange that brings `each` boxes to every tile; messages of a box."""
        size = job.source.size
        full = cols == job.inner
        pieces = rows * -(-cols // source.piece)
        messages = np.where(
            full, np.minimum(-(-rows // source.run) + (source.run > 1), pieces), pieces
        )
        words = np.where(
            full, -(-rows * cols * size // self.rate), rows * -(-cols * size // self.rate)
        )
        into = each * (words + messages * self.fragment)
        sent = (
            source.most // np.minimum(cols, source.piece)
            if job.inner > 1
            else source.most // source.run
        )
        least = -(-source.most * size // self.rate) + sent * self.fragment
        return np.maximum(into, least), messages

    # ------------------------------------------------------------------ what is still to come
    def later(self, job: Job, run: int) -> float:
        """The least cost of reducing partial results, `run` rows of which follow on one tile."""
        if job.n == 1:
            return 0.0
        job, run = replace(job, n=_coarse(job.n)), min(run, WORKERS)
        key = (job, run)
        found = self._later.get(key)
        if found is None:
            rows = max(run, -(-job.outer * job.n // self.tiles))
            source = Source(run, job.inner, rows * job.inner)
            found, _ = self.grid(job, source)
            if run > 1:
                width = -(-job.inner // (WORKERS * job.lanes)) * job.lanes
                cycles = self.vertex(job.codelet(False), 1, min(run, job.n), min(width, job.inner))
                parts = -(-job.n // run)
                local = self.sync + WORKERS * int(cycles[0]) + job.outer * parts // HOST
                found = min(found, local + self.later(job.after(parts), 1))
            self._later[key] = found
        return found


def _coarse(n: int) -> int:
    """n rounded up to three binary digits: estimates need no more, and are shared."""
    step = max(1, (1 << n.bit_length()) >> 3)
    return -(-n // step) * step


@lru_cache(maxsize=64)
def costs_of(target: Target, tiles: int) -> Costs:
    """The prices on `tiles` tiles of a target; what they found is kept."""
    return Costs(target, max(1, tiles // target.tiles_per_ipu), tiles)


def _candidates(job: Job) -> tuple[Ints, Ints]:
    """Rows and columns of the boxes to try, every combination."""
    parts = [1, 2, 3]
    while parts[-2] * 2 <= job.n // 2:
        parts.append(parts[-2] * 2)
    rows = {-(-job.n // p) for p in parts if p == 1 or p <= job.n // 2}
    if job.inner == 1:
        rows = {job.n if r == job.n else min(job.n, -(-r // RUN) * RUN) for r in rows if r >= 4}
        return np.array(sorted(rows | {job.n}), np.int64), np.ones(len(rows | {job.n}), np.int64)
    cols = {job.inner}
    width = job.lanes
    while width < job.inner:
        cols.add(width)
        width *= 2
    r, c = np.meshgrid(sorted(rows), sorted(cols), indexing="ij")
    return r.ravel().astype(np.int64), c.ravel().astype(np.int64)
