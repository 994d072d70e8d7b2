"""Messages of an exchange phase, and the checks that a schedule of them is right.

A message is a run of bytes of one share that its tile sends once, to one or more tiles at the same
time. A schedule gives each message the cycle in which it begins; a tile sends one message and
receives one message at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poplar_py.diagnostics import InternalError
from poplar_py.passes.exchange_traffic import Pieces
from poplar_py.passes.tile_module import Places
from poplar_py.poplar.arrays import I8, SPAN, Ints, first_of_each

I4 = NDArray[np.int32]


@dataclass
class Messages:
    """M messages: ``source`` int32[M] tile, ``origin`` int64[M] (where the bytes are: equal for
    equal bytes), ``nbytes`` int64[M]; receivers of message m are ``receiver[ptr[m]:ptr[m + 1]]``,
    and ``move`` says which of the moves given each of them is."""

    source: I4
    origin: Ints
    nbytes: Ints
    ptr: I4
    receiver: I4
    move: Ints

    def __len__(self) -> int:
        return len(self.source)


def make_messages(source: Ints, target: Ints, origin: Ints, nbytes: Ints) -> Messages:
    """Messages of moves between different tiles; moves of the same bytes to different tiles become
    one message, a second move to the same tile becomes another."""
    order = np.lexsort((target, nbytes, origin))
    o, n, t = origin[order], nbytes[order], target[order]
    same = np.zeros(len(o), np.bool_)
    same[1:] = (o[1:] == o[:-1]) & (n[1:] == n[:-1])
    again = same & np.append(False, t[1:] == t[:-1]) if len(o) else same
    if again.any():
        rank = np.zeros(len(o), I8)
        head = np.maximum.accumulate(np.where(~again, np.arange(len(o)), 0))
        rank = np.arange(len(o)) - head
        order = order[np.lexsort((t, rank, n, o))]
        key = np.lexsort((t, rank, n, o))
        o, n, t, rank = o[key], n[key], t[key], rank[key]
        same[1:] = (o[1:] == o[:-1]) & (n[1:] == n[:-1]) & (rank[1:] == rank[:-1])
    first = np.flatnonzero(~same)
    return Messages(
        source[order][first].astype(np.int32),
        o[first],
        n[first],
        np.append(first, len(o)).astype(np.int32),
        t.astype(np.int32),
        order,
    )


def fetch_messages(places: Places, item_tile: Ints, fetch: Pieces) -> Messages:
    """Messages that fill items; ``move`` is the number of the piece."""
    source = places.share_tile[fetch.share]
    target = item_tile[fetch.item]
    far = np.flatnonzero(source != target)
    origin = fetch.share[far] * SPAN + fetch.place[far]
    m = make_messages(source[far], target[far], origin, fetch.nbytes[far])
    m.move = far[m.move]
    return m


def store_messages(places: Places, item_tile: Ints, store: Pieces) -> Messages:
    """Messages that bring written items to their owners."""
    target = places.share_tile[store.share]
    source = item_tile[store.item]
    far = np.flatnonzero(source != target)
    origin = store.item[far] * SPAN + store.at[far]
    m = make_messages(source[far], target[far], origin, store.nbytes[far])
    m.move = far[m.move]
    return m


def check_schedule(m: Messages, start: Ints, cycles: Ints) -> int:
    """The makespan of a schedule. Raises InternalError when a tile would send or receive two
    messages at once, or a message begins before cycle 0."""
    if len(m) == 0:
        return 0
    if int(start.min()) < 0:
        raise InternalError("a message begins before the exchange")
    per = np.diff(m.ptr)
    _check_port(m.source.astype(I8), start, cycles, "sends")
    _check_port(m.receiver.astype(I8), np.repeat(start, per), np.repeat(cycles, per), "receives")
    return int((start + cycles).max())


def _check_port(tile: Ints, start: Ints, cycles: Ints, what: str) -> None:
    order = np.lexsort((start, tile))
    t, s, e = tile[order], start[order], (start + cycles)[order]
    bad = np.flatnonzero((t[1:] == t[:-1]) & (s[1:] < e[:-1]))
    if len(bad):
        raise InternalError(
            f"tile {int(t[bad[0]])} {what} two messages in cycle {int(s[bad[0] + 1])}"
        )


def check_delivery(
    places: Places, item_tile: Ints, item_bytes: Ints, pieces: Pieces, m: Messages, *, fetch: bool
) -> None:
    """Every byte of every item is moved exactly once: by a local copy where it is at home, by one
    message from its owner (``fetch``; otherwise to its owner) where it is not. Raises
    InternalError."""
    covered = np.bincount(pieces.item, pieces.nbytes, len(item_tile)).astype(I8)
    used = np.zeros(len(item_tile), np.bool_)
    used[pieces.item] = True
    if (covered[used] != item_bytes[used]).any():
        raise InternalError("an item is not filled by its pieces")
    order = np.lexsort((pieces.at, pieces.item))
    item, at, n = pieces.item[order], pieces.at[order], pieces.nbytes[order]
    first = np.zeros(len(item), np.bool_)
    first[first_of_each(item)] = True
    if (at[first] != 0).any() or (at[1:] != (at + n)[:-1])[~first[1:]].any():
        raise InternalError("pieces of an item overlap or leave a gap")
    owner, here = places.share_tile[pieces.share], item_tile[pieces.item]
    far = np.flatnonzero(owner != here)
    if not np.array_equal(np.sort(m.move), far):
        raise InternalError("a piece is sent twice or never")
    message = np.repeat(np.arange(len(m)), np.diff(m.ptr))
    source, target = (owner, here) if fetch else (here, owner)
    right = (
        (m.source[message] == source[m.move])
        & (m.receiver == target[m.move])
        & (m.nbytes[message] == pieces.nbytes[m.move])
    )
    if not right.all():
        raise InternalError("a message goes the wrong way")
