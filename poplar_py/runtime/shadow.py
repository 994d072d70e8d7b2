"""check_uninitialised: which bytes of tile memory hold something that was written.

Runs with faithful exchange, so that dead bytes count as unwritten. Before every kernel call native
code asks here: copies pass the state of their bytes on, vertices must read written bytes only and
leave theirs written, scalars that decide a branch must be written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen.program_words import WORDS, Op
from poplar_py.codelets.codelet_ir import CodeletIR, Expr, walk_stmts
from poplar_py.codelets.rows import FieldSlot, row_layout
from poplar_py.diagnostics import UNKNOWN, InvalidProgram, Location
from poplar_py.executable.code import TARGET_WORD
from poplar_py.executable.executable import Executable, Table
from poplar_py.executable.records import Records, expand
from poplar_py.poplar.arrays import I8, Ints

ASK_CALL, ASK_SCALAR = 4, 5
"""Kinds of the host instruction put before calls and branches."""
_SCALAR = {int(Op.BRANCH), int(Op.SWITCH), int(Op.ABORT_IF)}
Code = NDArray[np.int64]


def add_questions(
    code: Code, switches: list[Code], entries: dict[str, int]
) -> tuple[Code, list[Code], dict[str, int]]:
    """The code with a host instruction before every call and every use of a scalar."""
    ask = (code[:, 0] == Op.CALL) | np.isin(code[:, 0], list(_SCALAR))
    new = np.arange(len(code) + 1) + np.append(np.cumsum(ask) - ask, ask.sum())
    out = np.zeros((len(code) + int(ask.sum()), WORDS), np.int64)
    at = new[:-1] + ask  # where the instructions themselves go
    out[at] = code
    for op, word in TARGET_WORD.items():
        pick = out[:, 0] == op
        pick[new[:-1][ask]] = False
        out[pick, word] = new[out[pick, word]]
    for i in np.flatnonzero(ask).tolist():
        line = out[new[i]]
        line[0] = Op.HOST
        if code[i, 0] == Op.CALL:
            line[1:3] = ASK_CALL, code[i, 1]
        else:
            line[1:3] = ASK_SCALAR, i
    tables = [np.stack([s[:, 0], new[s[:, 1]]], 1) if len(s) else s for s in switches]
    return out, tables, {name: int(new[at]) for name, at in entries.items()}


@dataclass
class _Span:
    """Bytes a field of every row touches: ``row``, ``at``, ``nbytes`` int64[edges]; bytes is -1
    where the table does not say."""

    slot: FieldSlot
    row: Ints
    at: Ints
    nbytes: Ints


class Shadow:
    """One flag per arena byte and replica."""

    def __init__(self, exe: Executable, code: Code, replicas: int) -> None:
        self.exe, self.code = exe, code
        self.written = np.zeros((replicas, exe.arena_bytes), np.bool_)
        self._spans: dict[int, list[_Span]] = {}
        self._reads: dict[str, set[str]] = {}
        self._copies: dict[int, list[tuple[int, int, int]]] = {}
        for initial in exe.initial:
            for at, n in zip(initial.at.tolist(), initial.nbytes.tolist(), strict=True):
                self.written[:, at : at + n] = True
        vertices = [k for k, t in enumerate(exe.tables) if t.kernel.startswith("vertex:")]
        for span in (s for k in vertices for s in self._of_table(k)):
            if span.slot.field.kind == "state":  # stored state begins as zeros
                self._mark(self.written.T, span)
        self.written[:, exe.memory.end :] = True

    def ask(self, kind: int, number: int, replica: int) -> None:
        """Called before a kernel call (number of its table) or a branch (its instruction)."""
        shadow = self.written[replica]
        if kind == ASK_SCALAR:
            at, width = (int(v) for v in self.code[number, 1:3])
            if not shadow[at : at + width].all():
                raise self._error("the scalar that decides a branch", at, UNKNOWN)
            return
        kernel = self.exe.tables[number].kernel
        if kernel == "copy:fill":
            for at, n, _ in self.exe.tables[number].words.astype(I8).reshape(-1, 3).tolist():
                shadow[at : at + n] = False
        elif kernel.startswith("copy:"):
            for s, d, n in self._copy(number):
                shadow[d : d + n] = shadow[s : s + n]
        else:
            self._vertices(number, shadow)

    def _copy(self, number: int) -> list[tuple[int, int, int]]:
        found = self._copies.get(number)
        if found is None:
            rows = zip(*(c.tolist() for c in copy_rows(self.exe, number)), strict=True)
            found = self._copies[number] = list(rows)
        return found

    def _vertices(self, number: int, shadow: NDArray[np.bool_]) -> None:
        spans = self._of_table(number)
        codelet = self.exe.codelets[int(self.exe.tables[number].kernel.partition(":")[2])]
        if codelet.digest not in self._reads:
            self._reads[codelet.digest] = fields_read(codelet.ir)
        read = self._reads[codelet.digest]
        for s in spans:
            if s.slot.field.kind == "out" or s.slot.field.name not in read:
                continue
            self._check(number, s, shadow)
        for s in spans:
            if s.slot.field.kind in ("out", "inout"):
                self._mark(shadow, s)

    def _check(self, number: int, s: _Span, shadow: NDArray[np.bool_]) -> None:
        """Raises InvalidProgram where a field's bytes were not written."""
        seen: set[tuple[int, int]] = set()
        for k in np.flatnonzero(s.nbytes > 0).tolist():
            at, n = int(s.at[k]), int(s.nbytes[k])
            if (at, n) in seen:
                continue
            seen.add((at, n))
            part = shadow[at : at + n]
            if not part.all():
                self._report(number, s, int(s.row[k]), at, int(np.argmin(part)))

    def _mark(self, shadow: NDArray[np.bool_], s: _Span) -> None:
        sizes = np.where(s.nbytes < 0, self._rest(s.at), s.nbytes)
        for at, n in zip(s.at.tolist(), sizes.tolist(), strict=True):
            shadow[at : at + n] = True

    def _rest(self, at: Ints) -> Ints:
        """Bytes from an address to the end of its tile's data."""
        m = self.exe.memory
        tile = np.searchsorted(m.base, at, "right") - 1
        return np.maximum(m.base[tile] + m.data[tile] - at, 0)

    def _of_table(self, number: int) -> list[_Span]:
        found = self._spans.get(number)
        if found is None:
            found = self._spans[number] = table_spans(self.exe, self.exe.tables[number])
        return found

    def _report(self, number: int, s: _Span, row: int, at: int, first: int) -> None:
        t = self.exe.tables[number]
        codelet = self.exe.codelets[int(t.kernel.partition(":")[2])]
        field = s.slot.field
        tile = int(t.tiles[row]) if t.tiles is not None else -1
        what = (
            f"{codelet.name}, vertex {row} on tile {tile} in compute set {t.group!r}: element "
            f"{first // field.dtype.size} of field {field.name!r}"
        )
        raise self._error(what, at + first, t.location(row))

    def _error(self, what: str, address: int, loc: Location) -> InvalidProgram:
        name = self._owner(address)
        where = f" ({name})" if name else ""
        return InvalidProgram(
            f"{what} was never written{where}",
            loc,
            "write it first: a copy, an initial value, popops.zero",
            code="uninitialised_read",
        )

    def _owner(self, address: int) -> str:
        """Names of the variables that share the byte's place."""
        m, items = self.exe.memory, self.exe.items
        begin = m.base[items.tile] + m.at
        hit = np.flatnonzero((begin <= address) & (address < begin + items.nbytes))
        return " or ".join(items.names[int(items.item[k])] for k in hit[:4].tolist())


def fields_read(ir: CodeletIR) -> set[str]:
    """Fields whose elements a codelet may load (an InOut field may only be stored to)."""
    found: set[str] = set()

    def look(e: Expr) -> None:
        args = e.args[1:] if e.op in ("len", "rowlen", "nrows") else e.args
        if e.op in ("field", "row", "state"):
            found.add(str(e.attr[0]))
        for a in args:
            look(a)

    for s in walk_stmts(ir.body):
        for a in s.args[1:] if s.op in ("store", "prefetch") else s.args:
            look(a)
    return found


def copy_rows(exe: Executable, number: int) -> tuple[Ints, Ints, Ints]:
    """(source, target, bytes) of every row a copy table moves."""
    t = exe.tables[number]
    kind = t.kernel.partition(":")[2]
    width = {"run": 3, "rows": 6}.get(kind, 5)
    w = t.words.astype(I8).reshape(-1, width)
    signed = w if exe.wide else np.where(w >= 1 << 31, w - (1 << 32), w)
    if kind == "run":
        return w[:, 0], w[:, 1], w[:, 2]
    if kind == "rows":
        return expand(Records(w[:, 0], w[:, 1], w[:, 2], w[:, 3], signed[:, 4], signed[:, 5]))
    size = np.full(len(w), int(kind), I8)
    return expand(Records(w[:, 0], w[:, 1], size, w[:, 2], signed[:, 3], signed[:, 4]))


def table_spans(exe: Executable, t: Table) -> list[_Span]:
    """What the rows of a vertex table touch, with the addresses of faithful exchange."""
    layout = row_layout(exe.codelets[int(t.kernel.partition(":")[2])].fields, exe.wide)
    words = t.words.astype(I8)
    words[t.patch_at] = t.patch_to
    row = t.ptr[:-1]
    out: list[_Span] = []
    index = np.arange(len(row))
    for slot in layout.slots:
        if slot.kind == "value":
            continue
        size = slot.field.dtype.size
        if slot.kind == "list":
            rel, count = words[row + slot.word], words[row + slot.word + 1]
            vertex = np.repeat(index, count)
            rank = np.arange(len(vertex)) - (np.cumsum(count) - count)[vertex]
            at = (row + rel)[vertex] + rank * slot.entry_words
            n = words[at + 1] * size if slot.entry_words == 2 else np.full(len(at), -1, I8)
            out.append(_Span(slot, vertex, words[at], n))
            continue
        at = words[row + slot.word]
        if slot.kind == "span":
            n = words[row + slot.word + 1] * size
        else:
            n = np.full(len(row), size if slot.field.rank == 0 else -1, I8)
        out.append(_Span(slot, index, at, n))
    return out
