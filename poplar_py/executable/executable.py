"""Executable: everything the engine needs, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from poplar_py.diagnostics import UNKNOWN, Location
from poplar_py.executable.tables import Order, Words
from poplar_py.passes.memory_plan import Items, MemoryPlan
from poplar_py.poplar.arrays import Ints
from poplar_py.target.target import Target
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.codelets.codelet import Codelet

ALL_MODES, DEFAULT_MODE, FAITHFUL_MODE = 0, 1, 2
"""Word 7 of an instruction: when it is kept."""
MODE_WORD = 7


@dataclass
class Table:
    """Rows for one kernel.

    ``kernel``: ``copy:NAME`` (see program_copy) or ``vertex:K`` (codelet K). ``words``, ``ptr``:
    the rows. ``order``, ``cost`` int64[n]: how rows are dealt to threads. ``patch_at``,
    ``patch_to``: words that differ with faithful exchange. ``tiles`` int32[n] and ``group`` say
    what a row is, for messages. ``together`` int32[n], by place in ``order.split`` and ascending:
    rows of one number run on one thread. ``stands_for``: the table whose vertices these are once
    more, in the form the host runs by default.
    """

    kernel: str
    words: Words
    ptr: Ints
    order: Order
    cost: Ints
    patch_at: Ints
    patch_to: Ints
    tiles: NDArray[np.int32] | None = None
    group: str = ""
    locs: list[Location] = field(default_factory=list[Location])
    loc_of: NDArray[np.int32] | None = None
    together: NDArray[np.int32] | None = None
    stands_for: int = -1

    @property
    def rows(self) -> int:
        return len(self.ptr) - 1

    def location(self, row: int) -> Location:
        """Where the vertex of a row was added."""
        if not self.locs:
            return UNKNOWN
        return self.locs[0 if self.loc_of is None else int(self.loc_of[row])]


@dataclass
class Region:
    """Host memory after the tiles: ``kind`` stream_in, stream_out, host_in, host_out, remote,
    stage, print or error; ``offset`` in the arena."""

    name: str
    kind: str
    dtype: DType
    numel: int
    offset: int = 0

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.size


def find_region(regions: Sequence[Region], kind: str, name: str) -> int:
    """Number of the region of a stream, remote buffer or handle."""
    return next(i for i, r in enumerate(regions) if r.kind == kind and r.name == name)


@dataclass
class Stream:
    """A host stream: region index, direction; ``broadcast``: all replicas get the same data."""

    handle: str
    region: int
    to_host: bool
    broadcast: bool


@dataclass
class HostCall:
    """What a HOST instruction asks for: ``kind`` call, print, cycles_begin, cycles_end."""

    kind: str
    name: str
    inputs: list[int] = field(default_factory=list[int])
    outputs: list[int] = field(default_factory=list[int])
    detail: Any = None


@dataclass
class Initial:
    """First contents: ``data`` bytes go piece by piece to ``at`` int64[p], ``nbytes`` int64[p]."""

    name: str
    data: NDArray[np.uint8]
    at: Ints
    nbytes: Ints


@dataclass
class StepInfo:
    """One step for reports: static cycles per run and what it does.

    ``cycles`` by phase (compute, exchange, sync, host); ``tile_cycles`` int64[ipus]: compute cycles
    of the slowest tile of each IPU; ``balance``: mean over slowest tile; ``sent``: exchanged bytes.
    """

    name: str
    kind: str
    loc: Location
    compute: int = 0
    exchange: int = 0
    sync: int = 0
    host: int = 0
    ipu_compute: Ints | None = None
    ipu_exchange: Ints | None = None
    balance: float = 0.0
    tiles: int = 0
    vertices: int = 0
    bytes_exchanged: int = 0
    bytes_between: int = 0
    live_bytes: int = 0
    exchange_bound: int = 0
    """Least cycles the exchange could take: what the busiest port moves."""
    exchange_data: int = 0
    """Of ``exchange``: the bytes of the busiest tile at the exchange rate."""
    exchange_links: int = 0
    """Of ``exchange``: the busiest link between IPUs, with its hops."""
    exchange_local: int = 0
    """Of ``exchange``: copies within tiles."""
    tile_compute: float = 0.0
    """Compute cycles, the mean over all tiles: from the first to the last vertex of a tile."""
    thread_compute: float = 0.0
    """The same without cycles in which worker threads have no vertex."""

    @property
    def total(self) -> int:
        return self.compute + self.exchange + self.sync + self.host

    @property
    def exchange_fragments(self) -> int:
        """Of ``exchange``: scattered messages, and waiting of ports for each other."""
        return self.exchange - self.exchange_data - self.exchange_links - self.exchange_local


@dataclass
class Message:
    """What ErrorProgram and AbortOnCondition say; ``region``: a copy of the tensor to show, or
    -1."""

    text: str
    loc: Location
    region: int = -1


@dataclass
class Executable:
    """A compiled program; see the fields. Made by `build_executable`, run by `TileEngine`."""

    target: Target
    codelets: list[Codelet]
    tables: list[Table]
    code: NDArray[np.int64]
    switches: list[NDArray[np.int64]]
    entries: dict[str, int]
    programs: list[str]
    counters: int
    depth: int
    regions: list[Region]
    streams: dict[str, Stream]
    stream_ids: list[str]
    host_calls: list[HostCall]
    messages: list[Message]
    initial: list[Initial]
    steps: list[StepInfo]
    memory: MemoryPlan
    items: Items
    host_writes: dict[str, int]
    host_reads: dict[str, int]
    remote_buffers: dict[str, int]
    arena_bytes: int
    wide: bool
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    remote_rows: dict[str, int] = field(default_factory=dict[str, int])
    replica_words: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Arena offsets of the 4-byte words in which a replica finds its own number."""
    proved: frozenset[int] = frozenset()
    """Codelets of a file that is not trusted which may run without bounds checks (see `proof`)."""

    @property
    def vertices(self) -> int:
        """Vertices of all compute sets."""
        return sum(
            t.rows for t in self.tables if t.kernel.startswith("vertex:") and t.stands_for < 0
        )

    def save(self, path: str | Path) -> None:
        """Write a `.pexe` file; it appears whole or not at all. Raises FileError."""
        from poplar_py.executable.pexe import save_executable

        save_executable(self, path)

    @staticmethod
    def load(path: str | Path) -> Executable:
        """Read a `.pexe` file. Raises FileError when it is damaged."""
        from poplar_py.executable.pexe import load_executable

        return load_executable(path)

    def serialize(self, out: BinaryIO) -> None:
        """Write the bytes of a `.pexe` file to an open binary file."""
        from poplar_py.executable.pexe import write_executable

        write_executable(self, out)

    @staticmethod
    def deserialize(source: BinaryIO) -> Executable:
        """Read what `serialize` wrote, from an open binary file. Raises FileError."""
        from poplar_py.executable.pexe import read_executable

        return read_executable(source)
