"""Neighbouring rows of a vertex table put together for the host.

Vertices are planned, placed, counted and charged as they are; only the rows a host thread walks get
fewer: a run of rows whose fields follow one another in the arena becomes one row (see
codelets.concat). All of it is NumPy over the rows of one thread's part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py.codelets.concat import Concat, numbers
from poplar_py.codelets.rows import FieldSlot, RowLayout
from poplar_py.executable.tables import Words, gather_rows, state_integers
from poplar_py.poplar.arrays import I8, Bools, Ints, offsets_of, ragged

_MOST = (1 << 31) - 1
"""Indices of codelets are 32 bits wide."""


def merge_rows(words: Words, length: Ints, layout: RowLayout, how: Concat) -> tuple[Words, Ints]:
    """The rows with neighbours put together, and which row each one begins with.

    ``words``: the rows one after the other in the order they run; ``length`` int64[n]: their words.
    """
    n = len(length)
    every = np.arange(n, dtype=I8)
    if n < 2:
        return words, every
    part = _Part(words, offsets_of(length), layout, how)
    follows = part.fits()
    first = np.flatnonzero(np.append(True, ~follows))
    good = part.good(first)
    if not good.all():  # what does not add up stays as it is
        run = np.cumsum(np.append(True, ~follows)) - 1
        follows &= good[run[1:]]
        first = np.flatnonzero(np.append(True, ~follows))
    if len(first) == n:
        return words, every
    return part.merged(first), first


class _Part:
    def __init__(self, words: Words, ptr: Ints, layout: RowLayout, how: Concat) -> None:
        self.words, self.ptr, self.layout, self.how = words, ptr, layout, how
        self.row = ptr[:-1]
        self.slots = {s.field.name: s for s in layout.slots}
        self.state, self.sizes = self.facts(words, self.row)
        self.rounds = self.whole(numbers(how.upper, self.state, self.sizes))
        self.moves = {
            name: self.whole(numbers(e, self.state, self.sizes)) for name, e in how.strides.items()
        }

    def whole(self, values: Any) -> Ints:
        return np.broadcast_to(np.asarray(values, I8), (len(self.row),))

    def facts(self, words: Words, row: Ints) -> tuple[dict[str, Any], dict[str, Any]]:
        """Integers of state, and sizes of runs and lists."""
        state: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for s in self.layout.slots:
            if s.kind == "value" and s.field.dtype.kind in "iu" and s.words == 1:
                state[s.field.name] = state_integers(words[row + s.word], s)
            elif s.kind in ("span", "list"):
                sizes[s.field.name] = words[row + s.word + 1].astype(I8)
        return state, sizes

    # ------------------------------------------------------------ which rows follow each other
    def fits(self) -> Bools:
        """bool[n - 1]: row k + 1 goes on where row k ends."""
        ok = (self.rounds > 0) & (self.rounds % self.how.step == 0)
        fits = np.asarray(ok[:-1] & ok[1:])
        for name, slot in self.slots.items():
            if not fits.any():
                break
            self.compare(name, slot, fits)
        return fits

    def compare(self, name: str, slot: FieldSlot, fits: Bools) -> None:
        if slot.kind == "list":
            self.compare_lists(name, slot, fits)
            return
        move = self.move(name, slot)
        if slot.kind == "value":
            if name == self.how.adds or (self.how.flat and name in ("rows", "cols")):
                return
            for k in range(slot.words):
                value = self.words[self.row + slot.word + k]
                fits &= value[1:] == value[:-1]
            return
        address = self.words[self.row + slot.word].astype(I8)
        fits &= address[1:] == address[:-1] + move[:-1]
        if slot.kind == "span" and name not in self.how.strides:
            fits &= self.sizes[name][1:] == self.sizes[name][:-1]

    def move(self, name: str, slot: FieldSlot) -> Ints:
        """Bytes a field moves on over all rounds of a row."""
        if name not in self.moves:
            return np.zeros(len(self.row), I8)
        return self.rounds * self.moves[name] * slot.field.dtype.size

    def compare_lists(self, name: str, slot: FieldSlot, fits: Bools) -> None:
        """Lists of the same length, each run going on where that of the row before ends."""
        count, rel = self.sizes[name], self.words[self.row + slot.word].astype(I8)
        fits &= (count[1:] == count[:-1]) & (rel[1:] == rel[:-1])
        pair = np.flatnonzero(fits)
        which, rank = ragged(count[pair])
        owner = pair[which]
        step = rank * slot.entry_words
        here = (self.row + rel)[owner] + step
        there = (self.row + rel)[owner + 1] + step
        a, b = self.words[here].astype(I8), self.words[there].astype(I8)
        same = b == a + self.move(name, slot)[owner]
        if slot.entry_words == 2 and name not in self.how.strides:
            same &= self.words[here + 1] == self.words[there + 1]
        bad = owner[~same]
        fits[bad] = False

    # ------------------------------------------------------------ the rows of runs
    def good(self, first: Ints) -> Bools:
        """Whether the row of each run that begins at ``first`` does what its parts do."""
        total = np.add.reduceat(self.rounds, first)
        good = total <= _MOST
        for move in self.moves.values():
            good &= total * move[first] <= _MOST
        out = self.merged(first)
        state, sizes = self.facts(out, offsets_of(np.diff(self.ptr)[first])[:-1])
        return good & (np.broadcast_to(numbers(self.how.upper, state, sizes), total.shape) == total)

    def merged(self, first: Ints) -> Words:
        """The rows of the runs that begin at ``first``."""
        out = gather_rows(self.words, self.ptr, first).copy()
        row = offsets_of(np.diff(self.ptr)[first])[:-1]
        for name in self.moves:
            slot = self.slots[name]
            if slot.kind == "span":
                out[row + slot.word + 1] = np.add.reduceat(self.sizes[name], first)
            elif slot.entry_words == 2:
                self.add_entries(out, row, slot, first)
        if self.how.adds:
            total = np.add.reduceat(self.state[self.how.adds], first)
            out[row + self.slots[self.how.adds].word] = np.minimum(total, _MOST)
        if self.how.flat:
            total = np.add.reduceat(self.rounds, first)
            many = np.diff(np.append(first, len(self.row))) > 1
            out[(row + self.slots["rows"].word)[many]] = 1
            out[(row + self.slots["cols"].word)[many]] = np.minimum(total[many], _MOST)
        return out

    def add_entries(self, out: Words, row: Ints, slot: FieldSlot, first: Ints) -> None:
        """Sizes of the runs of a list: run j of every row of a run of rows added up."""
        rel = self.words[self.row + slot.word].astype(I8)
        count = self.sizes[slot.field.name]
        run = np.searchsorted(first, np.arange(len(self.row)), "right") - 1
        owner, rank = ragged(count)
        size = self.words[(self.row + rel)[owner] + rank * 2 + 1].astype(I8)
        to = row[run[owner]] + rel[owner] + rank * 2 + 1
        sums = np.zeros(len(out), I8)
        np.add.at(sums, to, size)
        touched = np.unique(to)
        out[touched] = sums[touched]
