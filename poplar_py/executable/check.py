"""Checks of a loaded executable: after them no table, copy or instruction reaches outside its
arena.

Runs of a codelet without a size in the table are bounded by the kernel itself (checked code).
"""

from __future__ import annotations

import numpy as np

from poplar_py.codegen.program_words import WORDS, Op
from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.codelet_ir import walk_stmts
from poplar_py.codelets.rows import FieldSlot, RowLayout, row_layout
from poplar_py.executable.check_copies import check_copy, check_sources, inside, need
from poplar_py.executable.code import TARGET_WORD
from poplar_py.executable.executable import MODE_WORD, Executable, Region, Table
from poplar_py.poplar.arrays import I8, Ints

MAX_ARENA = 1 << 42
MAX_COUNTERS = 1 << 20
_LIMIT = 1 << 62


def check_executable(exe: Executable) -> None:
    """Raise FileError for anything out of range."""
    need(0 < exe.arena_bytes <= MAX_ARENA, "the arena has an impossible size")
    need(exe.wide or exe.arena_bytes <= 1 << 32, "the arena is too large for 32-bit tables")
    need(0 <= exe.counters <= MAX_COUNTERS, "too many loop counters")
    need(0 <= exe.depth <= MAX_COUNTERS, "functions are nested too deep")
    for r in exe.regions:
        _check_region(r, exe.arena_bytes)
    _check_names(exe)
    _check_memory(exe)
    for t in exe.tables:
        _check_table(exe, t)
    for i in exe.initial:
        need(len(i.at) == len(i.nbytes), f"first contents of {i.name!r} are damaged")
        need(bool((i.nbytes >= 0).all()), f"first contents of {i.name!r} are damaged")
        total = int(i.nbytes.sum()) if len(i.nbytes) else 0
        need(total == len(i.data), f"first contents of {i.name!r} have another size")
        inside(i.at, i.nbytes, exe.arena_bytes, f"first contents of {i.name!r}")
    inside(exe.replica_words, np.full_like(exe.replica_words, 4), exe.arena_bytes, "replicas")
    _check_code(exe)


def _check_region(r: Region, end: int) -> None:
    need(0 <= r.numel <= MAX_ARENA and r.offset >= 0, f"region {r.name!r} is damaged")
    need(r.offset + r.nbytes <= end, f"region {r.name!r} lies outside the arena")
    need(r.offset % 8 == 0, f"region {r.name!r} is not aligned")


def _check_names(exe: Executable) -> None:
    def region(number: int, kind: str | None, what: str) -> None:
        need(0 <= number < len(exe.regions), f"{what} has no region")
        if kind is not None:
            need(exe.regions[number].kind == kind, f"the region of {what} is of another kind")

    for s in exe.streams.values():
        region(s.region, "stream_out" if s.to_host else "stream_in", f"stream {s.handle!r}")
    need(sorted(exe.stream_ids) == sorted(exe.streams), "streams and their numbers differ")
    for table, kind in ((exe.host_writes, "host_in"), (exe.host_reads, "host_out")):
        for handle, number in table.items():
            region(number, kind, f"handle {handle!r}")
            need(f"{kind}:{handle}" in exe.entries, f"handle {handle!r} has no program")
    for handle, number in exe.remote_buffers.items():
        region(number, "remote", f"remote buffer {handle!r}")
    for c in exe.host_calls:
        need(c.kind in _CALLS, f"unknown host call {c.kind!r}")
        for number in (*c.inputs, *c.outputs):
            region(number, None, f"host call {c.name!r}")
    for m in exe.messages:
        need(-1 <= m.region < len(exe.regions), "a message has no region")
    for name in exe.programs:
        need(name in exe.entries, f"program {name!r} has no code")


_CALLS = ("call", "print", "cycles_begin", "cycles_end", "replicas")


def _check_memory(exe: Executable) -> None:
    tiles, m, items = exe.target.num_tiles, exe.memory, exe.items
    for name in ("data", "bound", "always", "code", "state", "base"):
        need(len(getattr(m, name)) == tiles, f"the memory plan ({name}) is of another size")
    need(0 <= m.end <= exe.arena_bytes, "the memory plan is larger than the arena")
    n = len(items.item)
    need(len(items.tile) == n == len(items.nbytes) == len(m.at), "the memory plan is damaged")
    count = len(items.names)
    need(len(items.live) == count == len(items.always), "the list of variables is damaged")
    if n:
        need(0 <= int(items.item.min()) <= int(items.item.max()) < count, "a variable is unknown")
        need(0 <= int(items.tile.min()) <= int(items.tile.max()) < tiles, "a tile is unknown")


# ---------------------------------------------------------------------------- tables
def _check_table(exe: Executable, t: Table) -> None:
    n, kernel = t.rows, t.kernel
    need(n >= 0 and t.ptr[0] == 0 and t.ptr[-1] == len(t.words), f"a table of {kernel} is damaged")
    need(bool((np.diff(t.ptr) >= 0).all()), f"a table of {kernel} is damaged")
    for order in (t.order.split, t.order.rank):
        fits = len(order) == n and np.array_equal(np.sort(order), np.arange(n))
        need(fits, f"the order of a table of {kernel} is damaged")
    need(
        len(t.cost) == n and bool((t.cost >= 0).all()), f"costs of a table of {kernel} are damaged"
    )
    if t.together is not None:
        fits = len(t.together) == n and bool((np.diff(t.together) >= 0).all())
        need(fits, f"the order of a table of {kernel} is damaged")
    need(-1 <= t.stands_for < len(exe.tables), f"a table of {kernel} is damaged")
    need(len(t.patch_at) == len(t.patch_to), f"a table of {kernel} is damaged")
    kind, _, what = kernel.partition(":")
    if kind == "copy":
        need(len(t.patch_at) == 0, f"a table of {kernel} is damaged")
        check_copy(exe, t, what)
        return
    need(kind == "vertex" and what.isdecimal(), f"unknown kernel {kernel!r}")
    need(int(what) < len(exe.codelets), f"unknown kernel {kernel!r}")
    need(t.tiles is None or len(t.tiles) == n, f"tiles of a table of {kernel} are damaged")
    _check_places(t)
    codelet = exe.codelets[int(what)]
    layout = row_layout(codelet.fields, exe.wide)
    patched = t.words
    if len(t.patch_at):
        inside = (t.patch_at >= 0) & (t.patch_at < len(t.words))
        need(bool(inside.all()), f"a table of {kernel} is damaged")
        need(bool((t.patch_to >= 0).all()), f"a table of {kernel} is damaged")
        patched = t.words.copy()
        patched[t.patch_at] = t.patch_to.astype(patched.dtype)
    for words in (t.words, patched):
        _check_rows(layout, words.astype(I8), t.ptr, exe.arena_bytes, kernel)
        if words is patched:
            break
    _check_hints(codelet, layout, t)


def _check_hints(codelet: Codelet, layout: RowLayout, t: Table) -> None:
    """A hint may name the vertex so many rows on, and reads that row's word where the table has
    more than twice as many rows left: inside it, if no row is twice as long as another."""
    hints = [s.args for s in walk_stmts(codelet.ir.body) if s.op == "prefetch"]
    length = np.diff(t.ptr)
    for e in [args[2] for args in hints if len(args) == 3 and t.rows]:
        name = e.attr[0] if e.op == "state" else ""
        slot = next((s for s in layout.slots if s.field.name == name), None)
        known = e.op == "const" or (slot is not None and slot.kind == "value" and slot.words == 1)
        need(known, f"a hint of {codelet.name} cannot be followed")
        ahead = np.array([int(e.attr[0])]) if slot is None else t.words[t.ptr[:-1] + slot.word]
        forward = (ahead >= 0) & (ahead < 1 << 31)
        need(bool(forward.all()), f"a hint of {codelet.name} points back")
        alike = int(length.max()) <= 2 * int(length.min())
        need(alike or not ahead.any(), f"a hint of {codelet.name} may leave its table")


def _check_places(t: Table) -> None:
    if t.loc_of is None:
        return
    fits = len(t.loc_of) == t.rows and bool(((t.loc_of >= 0) & (t.loc_of < len(t.locs))).all())
    need(fits, "source lines of a table are damaged")


def _check_rows(layout: RowLayout, words: Ints, ptr: Ints, end: int, kernel: str) -> None:
    """Rows of the expected length whose every address and size fits."""
    what = f"a table of {kernel}"
    row, length = ptr[:-1], np.diff(ptr)
    if len(row) == 0:
        return
    need(bool((words >= 0).all()), f"{what}: a word is too large")
    need(bool((length >= layout.fixed).all()), f"{what}: a row is too short")
    if not layout.variable:
        need(bool((length == layout.fixed).all()), f"{what}: a row is too long")
    else:
        need(bool((words[row] == length).all()), f"{what}: a row has another length")
    for slot in layout.slots:
        if slot.kind == "value":
            continue
        if slot.kind == "list":
            _check_list(slot, words, row, length, layout.fixed, end, what)
            continue
        at = words[row + slot.word]
        many = slot.kind == "span"
        count = words[row + slot.word + 1] if many else _unsized(slot, len(at))
        _check_span(slot, at, count, end, what)


def _unsized(slot: FieldSlot, n: int) -> Ints:
    """Elements known to be read through an address without a size: one of a scalar, else none."""
    return np.full(n, 1 if slot.field.rank == 0 else 0, I8)


def _check_span(slot: FieldSlot, at: Ints, count: Ints, end: int, what: str) -> None:
    need(bool((count <= end).all()), f"{what}: a size is out of range")
    inside(at, count * slot.field.dtype.size, end, what)
    align = slot.field.dtype.size
    used = count > 0
    need(not bool((at[used] % align).any()), f"{what}: an address is not aligned")


def _check_list(
    slot: FieldSlot, words: Ints, row: Ints, length: Ints, fixed: int, end: int, what: str
) -> None:
    rel, count = words[row + slot.word], words[row + slot.word + 1]
    need(bool((count <= length).all()), f"{what}: a list is too long")
    fits = (rel >= fixed) & (rel + count * slot.entry_words <= length)
    need(bool(fits.all()), f"{what}: a list lies outside its row")
    vertex = np.repeat(np.arange(len(row)), count)
    rank = np.arange(len(vertex)) - (np.cumsum(count) - count)[vertex]
    at = (row + rel)[vertex] + rank * slot.entry_words
    size = words[at + 1] if slot.entry_words == 2 else np.zeros(len(at), I8)
    _check_span(slot, words[at], size, end, what)


# ---------------------------------------------------------------------------- code
def _check_code(exe: Executable) -> None:
    code = exe.code
    need(code.ndim == 2 and code.shape[1] == WORDS and len(code) > 0, "the step code is damaged")
    n = len(code)
    op = code[:, 0]
    need(bool(((op >= 0) & (op <= max(Op))).all()), "an instruction is unknown")
    need(int(op[-1]) in (Op.HALT, Op.RETURN, Op.JUMP), "the step code has no end")
    need(bool(np.isin(code[:, MODE_WORD], (0, 1, 2)).all()), "an instruction is damaged")
    ends = np.isin(op, (Op.HALT, Op.RETURN, Op.JUMP, Op.SUB, Op.LOOP, Op.BRANCH, Op.SWITCH))
    need(bool((code[ends, MODE_WORD] == 0).all()), "an instruction is damaged")
    for kind, word in TARGET_WORD.items():
        targets = code[op == kind, word]
        need(bool(((targets >= 0) & (targets < n)).all()), "a jump leaves the step code")
    for at in exe.entries.values():
        need(0 <= at < n, "a program begins outside the step code")
    _range(code, op, Op.CALL, 1, len(exe.tables), "a table is unknown")
    _range(code, op, Op.SET, 1, exe.counters, "a counter is unknown")
    _range(code, op, Op.LOOP, 1, exe.counters, "a counter is unknown")
    _range(code, op, Op.STEP, 1, len(exe.steps), "a step is unknown")
    _range(code, op, Op.STREAM, 1, len(exe.stream_ids), "a stream is unknown")
    _range(code, op, Op.HOST, 2, len(exe.host_calls), "a host call is unknown")
    _range(code, op, Op.ACROSS, 1, len(exe.host_calls), "a host call is unknown")
    _range(code, op, Op.FAIL, 1, len(exe.messages), "a message is unknown")
    _range(code, op, Op.ABORT_IF, 3, len(exe.messages), "a message is unknown")
    _range(code, op, Op.SWITCH, 4, len(exe.switches), "a switch is unknown")
    for kind in (Op.BRANCH, Op.ABORT_IF, Op.SWITCH):
        pick = op == kind
        width = code[pick, 2]
        need(bool(np.isin(width, (1, 2, 4, 8)).all()), "an instruction is damaged")
        inside(code[pick, 1], width, exe.arena_bytes, "a branch")
    votes = code[op == Op.CONSENSUS, 1]
    stored = votes[votes >= 0]
    inside(stored, np.ones(len(stored), I8), exe.arena_bytes, "a predicate")
    check_sources(exe, code[op == Op.CALL])
    _check_switches(exe, n)
    _check_remote(exe, code[op == Op.REMOTE])
    _check_calls(exe, op)


def _range(code: Ints, op: Ints, kind: Op, word: int, limit: int, what: str) -> None:
    values = code[op == kind, word]
    need(bool(((values >= 0) & (values < limit)).all()), what)


def _check_switches(exe: Executable, n: int) -> None:
    for s in exe.switches:
        if len(s):
            need(bool(((s[:, 1] >= 0) & (s[:, 1] < n)).all()), "a jump leaves the step code")
    for line in exe.code[exe.code[:, 0] == Op.SWITCH]:
        need(int(line[3]) == len(exe.switches[int(line[4])]), "a switch is damaged")


def _check_remote(exe: Executable, lines: Ints) -> None:
    for line in lines:
        buffer, row, index, stage, _, both = (int(v) for v in line[1:7])
        repeats, count = both >> 32, both & 0xFFFFFFFF
        end = exe.arena_bytes
        need(min(buffer, row, index, stage, repeats) >= 0, "a remote copy is damaged")
        need(buffer + row * repeats <= end, "a remote copy leaves the arena")
        need(stage + row * count <= end, "a remote copy leaves the arena")
        need(index + 4 * count <= end, "a remote copy leaves the arena")


def _check_calls(exe: Executable, op: Ints) -> None:
    """Function calls nest at most as deep as the stack that is made: every SUB leads to a RETURN
    before code that was seen, and the number of functions bounds the depth."""
    subs = {int(t) for t in exe.code[op == Op.SUB, 1]}
    need(len(subs) < exe.depth + 1 or not subs, "functions are nested too deep")
    order = _function_order(exe, subs)
    need(order, "functions call each other in a circle")


def _function_order(exe: Executable, subs: set[int]) -> bool:
    """Whether no function can reach itself through calls."""
    reach = {s: _calls_from(exe, s) for s in subs}
    for start in [*exe.entries.values()]:
        _calls_from(exe, start)
    done: set[int] = set()
    while len(done) < len(reach):
        free = [s for s in reach if s not in done and reach[s] <= done]
        if not free:
            return False
        done.update(free)
    return True


def _calls_from(exe: Executable, start: int) -> set[int]:
    """Functions called from code reachable from an instruction, without entering them. Raises
    FileError when control runs over the end."""
    code, n = exe.code, len(exe.code)
    seen = np.zeros(n, np.bool_)
    todo, out = [start], set[int]()
    while todo:
        at = todo.pop()
        while not seen[at]:
            seen[at] = True
            op = int(code[at, 0])
            if op in (Op.HALT, Op.RETURN):
                break
            if op == Op.JUMP:
                at = int(code[at, 1])
                continue
            if op == Op.SUB:
                out.add(int(code[at, 1]))
            elif op == Op.SWITCH:
                todo.append(int(code[at, 5]))
                todo += [int(t) for t in exe.switches[int(code[at, 4])][:, 1]]
            elif op in TARGET_WORD:
                todo.append(int(code[at, TARGET_WORD[Op(op)]]))
            at += 1
            need(at < n, "control runs over the end of the step code")
    return out
