"""Which codelets of a loaded executable provably stay inside the arena, whatever is in it.

State and sizes stand in the rows, so that `codelets.reach` can tell how far each vertex goes. Rows
come checked (`check`): lists lie in their rows, addresses and sizes in the arena. What is proved
may run without bounds checks although the file is not trusted: the proof is of the codelet IR and
the rows that stand in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.codelet_ir import CodeletIR, walk_expr, walk_stmts
from poplar_py.codelets.reach import Reach, Sizes, reach_of
from poplar_py.codelets.rows import FieldSlot, RowLayout
from poplar_py.executable.executable import Executable, Table
from poplar_py.executable.tables import Words, state_integers
from poplar_py.poplar.arrays import I8, Bools, Ints, ragged

Array = np.ndarray[Any, Any]
MOST_ROUNDS = 1 << 32
"""Rounds of loops of all rows of a table: code without checks does not look at the stop flag, so it
has to end by itself. Tile memories bound honest tables far below."""


def proved_codelets(exe: Executable, claimed: set[int]) -> frozenset[int]:
    """Of the codelets that the file calls built-in (others report what is out of range), those that
    stay inside the arena in every row of every table."""
    good = {n for n in claimed if not _counts_in_64_bits(exe.codelets[n].ir)}
    for t in exe.tables:
        kind, _, what = t.kernel.partition(":")
        if kind != "vertex" or int(what) not in good:
            continue
        if not all(_all_proved(exe, int(what), words, t.ptr) for words in _forms(t)):
            good.discard(int(what))
    return frozenset(good)


def _counts_in_64_bits(ir: CodeletIR) -> bool:
    """Whether it computes with 64-bit integers: intervals end at 2^60, those may wrap beyond."""
    types = [f.dtype for f in ir.fields]
    for statement in walk_stmts(ir.body):
        types += [e.ty.dtype for arg in statement.args for e in walk_expr(arg)]
        types += [statement.ty.dtype] if statement.ty is not None else []
    return any(t.is_integer and t.size == 8 for t in types)


def _forms(t: Table) -> list[Words]:
    """The words of default and of faithful exchange."""
    if len(t.patch_at) == 0:
        return [t.words]
    patched = t.words.copy()
    patched[t.patch_at] = t.patch_to.astype(patched.dtype)
    return [t.words, patched]


def _all_proved(exe: Executable, number: int, words: Words, ptr: Ints) -> bool:
    if len(ptr) < 2:
        return True
    found = proved_rows(exe, exe.codelets[number], words, ptr)
    return found is not None and bool(found.all())


def proved_rows(exe: Executable, codelet: Codelet, words: Words, ptr: Ints) -> Bools | None:
    """bool[rows]: those that cannot leave the arena; None where the codelet cannot be followed."""
    row = ptr[:-1]
    layout = codelet.row_layout(exe.wide)
    reach = row_reach(codelet, layout, words, row)
    if reach is None:
        return None
    ok = reach.known & (float(reach.rounds.sum(dtype=np.float64)) <= MOST_ROUNDS)
    for slot in layout.slots:
        if slot.field.name in reach.high:
            _check(slot, reach, words, row, exe.arena_bytes, ok)
    return ok


def row_reach(codelet: Codelet, layout: RowLayout, words: Words, row: Ints) -> Reach | None:
    """How far the vertices of the rows that begin at ``row`` reach; None: cannot be followed."""
    return reach_of(codelet.ir, _sizes(layout, words, row))


def _sizes(layout: RowLayout, words: Words, row: Ints) -> Sizes:
    state: dict[str, Array] = {}
    count: dict[str, Array] = {}
    inner: dict[str, tuple[Array, Array]] = {}
    for s in layout.slots:
        name = s.field.name
        if s.kind == "value" and s.field.dtype.kind in "iu" and s.words == 1:
            state[name] = state_integers(words[row + s.word], s)
        if s.kind == "addr" and s.field.rank == 0:
            count[name] = np.ones(len(row), I8)
        if s.kind not in ("value", "addr"):
            count[name] = words[row + s.word + 1].astype(I8)
        if s.kind == "list" and s.entry_words == 2:
            inner[name] = _inner(s, words, row, count[name])
    return Sizes(len(row), state, count, inner)


def _entries(slot: FieldSlot, words: Words, row: Ints, count: Ints) -> tuple[Ints, Ints]:
    """(vertex, word) of every entry of a list."""
    owner, rank = ragged(count)
    rel = words[row + slot.word].astype(I8)
    return owner, (row + rel)[owner] + rank * slot.entry_words


def _inner(slot: FieldSlot, words: Words, row: Ints, count: Ints) -> tuple[Array, Array]:
    owner, at = _entries(slot, words, row, count)
    size = words[at + 1].astype(I8)
    low, high = np.full(len(row), 1 << 40, I8), np.zeros(len(row), I8)
    np.minimum.at(low, owner, size)
    np.maximum.at(high, owner, size)
    return np.minimum(low, high), high


def _check(slot: FieldSlot, reach: Reach, words: Words, row: Ints, end: int, ok: Bools) -> None:
    """Every run from its first touched byte to its last lies in [0, end)."""
    name, size = slot.field.name, slot.field.dtype.size
    low, high = reach.low[name], reach.high[name]
    owner, at = np.arange(len(row)), row + slot.word
    if slot.kind == "list":
        owner, at = _entries(slot, words, row, words[row + slot.word + 1].astype(I8))
    address = words[at].astype(I8)
    far = np.maximum(np.abs(low), np.abs(high)) > end
    low, high = np.where(far, 0, low), np.where(far, 0, high)
    bad = (address + low[owner] * size < 0) | (address + high[owner] * size > end) | far[owner]
    ok[owner[bad]] = False
