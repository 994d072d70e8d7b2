"""Checks of copies of a loaded executable: rows that stay in the arena, sources that stay in the
region of their stream."""

from __future__ import annotations

import numpy as np

from poplar_py.codegen.program_copy import ELEMENT_BYTES
from poplar_py.diagnostics import FileError
from poplar_py.executable.executable import Executable, Table
from poplar_py.poplar.arrays import I8, Ints

__all__ = ["check_copy", "check_sources", "inside", "need"]

COPY_WORDS = {"run": 3, "rows": 6, "fill": 3, **{str(b): 5 for b in ELEMENT_BYTES}}


def need(condition: bool, what: str) -> None:
    """Raises FileError unless the condition holds."""
    if not condition:
        raise FileError(what)


def inside(at: Ints, nbytes: Ints, end: int, what: str) -> None:
    """Every range lies in [0, end); both arrays int64."""
    bad = (at < 0) | (nbytes < 0) | (at > end) | (nbytes > end - at)
    need(not bool(bad.any()), f"{what}: an address lies outside the arena")


def _copy_words(exe: Executable, t: Table, name: str) -> tuple[Ints, Ints]:
    """Words of copy rows [rows, words], and with strides as signed numbers."""
    w = t.words.astype(I8).reshape(-1, COPY_WORDS[name])
    return w, w if exe.wide else np.where(w >= 1 << 31, w - (1 << 32), w)


def check_copy(exe: Executable, t: Table, name: str) -> None:
    """Rows of a copy kernel stay in the arena."""
    need(name in COPY_WORDS, f"unknown copy kernel {name!r}")
    n = COPY_WORDS[name]
    need(bool((np.diff(t.ptr) == n).all()), f"rows of copy kernel {name!r} have another length")
    w, signed = _copy_words(exe, t, name)
    if name == "fill":
        inside(w[:, 0], w[:, 1], exe.arena_bytes, "a fill")
        return
    for low, nbytes in _copy_sides(exe, w, signed, name):
        inside(low, nbytes, exe.arena_bytes, "a copy")


def _copy_sides(exe: Executable, w: Ints, signed: Ints, name: str) -> list[tuple[Ints, Ints]]:
    """(first byte, bytes from it to the last) of the sources and of the targets of copy rows."""
    if name == "run":
        sides = ((w[:, 0], None), (w[:, 1], None))
        size, count = w[:, 2], np.ones(len(w), I8)
    elif name == "rows":
        sides = ((w[:, 0], signed[:, 4]), (w[:, 1], signed[:, 5]))
        size, count = w[:, 2], w[:, 3]
    else:
        sides = ((w[:, 0], signed[:, 3]), (w[:, 1], signed[:, 4]))
        size, count = np.full(len(w), int(name), I8), w[:, 2]
    need(bool((size <= exe.arena_bytes).all() and (size >= 0).all()), "a copy is too large")
    need(bool(((count >= 1) & (count <= exe.arena_bytes)).all()), "a copy has too many rows")
    out: list[tuple[Ints, Ints]] = []
    for at, stride in sides:
        low, high = at, at
        if stride is not None:
            need(bool((np.abs(stride) <= exe.arena_bytes).all()), "a copy has too large a stride")
            whole = (count - 1).astype(np.float64) * np.abs(stride)
            need(bool((whole <= exe.arena_bytes).all()), "a copy leaves the arena")
            last = at + (count - 1) * stride
            low, high = np.minimum(at, last), np.maximum(at, last)
        out.append((low, high - low + size))
    return out


def check_sources(exe: Executable, calls: Ints) -> None:
    """``calls``: words of CALL instructions. Copies are called as such; those from a stream read
    its region and nothing else, as the bytes may lie in the user's array."""
    known = (calls[:, 4] >= 0) & (calls[:, 4] < 2 + len(exe.stream_ids))
    need(bool(known.all()), "a stream is unknown")
    pairs: list[tuple[int, int]] = np.unique(calls[:, [1, 4]], axis=0).tolist()
    for number, what in pairs:
        t = exe.tables[number]
        kind, _, name = t.kernel.partition(":")
        need((kind == "copy") == (what > 0), f"a call of {t.kernel} is damaged")
        if what < 2:
            continue
        stream = exe.streams[exe.stream_ids[what - 2]]
        r = exe.regions[stream.region]
        need(name != "fill" and not stream.to_host, f"a call of {t.kernel} is damaged")
        low, nbytes = _copy_sides(exe, *_copy_words(exe, t, name), name)[0]
        inside(low - r.offset, nbytes, r.nbytes, "a copy from a stream")
