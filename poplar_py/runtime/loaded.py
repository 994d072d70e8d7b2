"""An executable made native: relocated step code and one table per thread."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen.program_words import Op
from poplar_py.codelets.concat import Concat
from poplar_py.executable.code import select_mode
from poplar_py.executable.executable import DEFAULT_MODE, FAITHFUL_MODE, Executable, Table
from poplar_py.executable.merge import merge_rows
from poplar_py.executable.tables import Words, gather_rows, split_threads
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.runtime.pool import aligned
from poplar_py.runtime.serial import SMALL_NS, drop, needless_barriers, table_ns
from poplar_py.runtime.shadow import add_questions


@dataclass
class ThreadRows:
    """The rows of one thread: their words, and which row of the table each is."""

    words: Words
    rows: Ints


@dataclass
class Loaded:
    """``code``: native step code; ``entries`` by program name; ``parts[t][k]``: rows of table t for
    thread k; ``plain``: the step code of the mode before all that. Everything native code points to
    is held here."""

    code: NDArray[np.int64]
    entries: dict[str, int]
    parts: dict[int, list[ThreadRows]]
    plain: NDArray[np.int64]
    keep: list[object] = field(default_factory=list[object])

    @property
    def rows(self) -> dict[int, int]:
        """Rows the threads walk, by table."""
        return {number: sum(len(p.rows) for p in parts) for number, parts in self.parts.items()}

    def find_row(self, address: int) -> tuple[int, int] | None:
        """(table, row) whose words start at or hold an address."""
        for number, parts in self.parts.items():
            for part in parts:
                start = int(part.words.ctypes.data)
                if start <= address < start + part.words.nbytes:
                    return number, self._row(number, part, (address - start) // part.words.itemsize)
        return None

    def _row(self, number: int, part: ThreadRows, word: int) -> int:
        length = self.lengths[number][part.rows]
        ends = np.cumsum(length)
        return int(part.rows[np.searchsorted(ends, word, "right")])

    lengths: dict[int, Ints] = field(default_factory=dict[int, Ints])


def load_code(
    exe: Executable,
    kernels: dict[str, int],
    team: int,
    *,
    faithful: bool,
    ask: bool = False,
    merge: dict[str, Concat] | None = None,
) -> Loaded:
    """Resolve kernels, tables and switches of one mode for teams of ``team`` threads. ``ask``: with
    the questions of check_uninitialised. ``merge``: kernels whose neighbouring rows become one."""
    mode = FAITHFUL_MODE if faithful else DEFAULT_MODE
    code, switches, entries = select_mode(exe.code, exe.switches, exe.entries, mode)
    plain = code
    ns = table_ns(exe)
    if team > 1:
        gone = needless_barriers(code, switches, entries, ns)
        code, switches, entries = drop(code, switches, entries, gone)
        plain = code
    if ask:
        code, switches, entries = add_questions(code, switches, entries)
    native = aligned(code.size).reshape(code.shape)
    native[:] = code
    out = Loaded(native, entries, {}, plain)
    calls = np.flatnonzero(code[:, 0] == Op.CALL)
    used: list[int] = sorted(set(code[calls, 1].tolist()))
    for number in used:
        alone = bool(ns[number] <= SMALL_NS)
        parts = split_table(exe.tables[number], team, faithful=faithful, alone=alone)
        out.parts[number] = merge_parts(exe, number, parts, merge or {})
        out.lengths[number] = np.diff(exe.tables[number].ptr)
    place = _directory(out, used, team)
    for at in calls.tolist():
        number = int(code[at, 1])
        native[at, 1] = kernels[exe.tables[number].kernel]
        native[at, 2] = place[number]
    for at in np.flatnonzero(code[:, 0] == Op.SWITCH).tolist():
        table = np.ascontiguousarray(switches[int(code[at, 4])], np.int64)
        native[at, 4] = table.ctypes.data if table.size else 0
        out.keep.append(table)
    return out


def _directory(out: Loaded, used: list[int], team: int) -> dict[int, int]:
    """Addresses by table of what its threads walk: for each thread where its rows lie, and how
    many."""
    directory = aligned(max(1, len(used)) * team * 2).reshape(-1, team, 2)
    for position, number in enumerate(used):
        for k, part in enumerate(out.parts[number]):
            directory[position, k] = part.words.ctypes.data, len(part.rows)
    out.keep.append(directory)
    base = int(directory.ctypes.data)
    return {number: base + position * team * 16 for position, number in enumerate(used)}


def merge_parts(
    exe: Executable, number: int, parts: list[ThreadRows], merge: dict[str, Concat]
) -> list[ThreadRows]:
    """Each thread's rows of a table, neighbours put together where the kernel allows it; a row
    counts as its first vertex."""
    table = exe.tables[number]
    how = merge.get(table.kernel)
    if how is None:
        return parts
    layout = exe.codelets[int(table.kernel.partition(":")[2])].row_layout(exe.wide)
    length, out = np.diff(table.ptr), list[ThreadRows]()
    for part in parts:
        words, first = merge_rows(part.words, length[part.rows], layout, how)
        out.append(ThreadRows(np.ascontiguousarray(words), part.rows[first]))
    return out


def split_table(t: Table, team: int, *, faithful: bool, alone: bool = False) -> list[ThreadRows]:
    """The table's rows dealt to threads (``alone``: to the first), each thread's in the order it
    runs them."""
    words = t.words
    if faithful and len(t.patch_at):
        words = words.copy()
        words[t.patch_at] = t.patch_to.astype(words.dtype)
    if t.rows == 0:
        return [ThreadRows(words[:0], np.zeros(0, I8)) for _ in range(team)]
    out: list[ThreadRows] = []
    shares = split_threads(t.order, t.cost, 1 if alone else team, t.together)
    shares += [np.zeros(0, I8)] * (team - len(shares))
    for vertices in shares:
        rows = np.asarray(vertices, I8)
        out.append(ThreadRows(np.ascontiguousarray(gather_rows(words, t.ptr, rows)), rows))
    return out
