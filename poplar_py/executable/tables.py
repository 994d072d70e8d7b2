"""Vertex tables: one row of words per vertex, filled by NumPy for whole groups (see
codelets.rows)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poplar_py.codelets.rows import FieldSlot, RowLayout
from poplar_py.poplar.arrays import I8, Ints, offsets_of
from poplar_py.poplar.groups import State, StateVectors
from poplar_py.types import DType

Words = NDArray[np.uint32 | np.uint64]
ALIGN_STATE = 8


@dataclass
class FieldWords:
    """Addresses and sizes of a field's edges, in vertex order: int64[edges]; ``vptr`` for lists."""

    address: Ints
    size: Ints
    vptr: Ints | None = None


@dataclass
class GroupWords:
    """``words`` of all rows, vertex after vertex; row v is ``words[ptr[v]:ptr[v + 1]]``.
    ``where``: per field the positions of its address words, in edge order."""

    words: Words
    ptr: Ints
    where: dict[str, Ints]


def state_integers(words: Words, slot: FieldSlot) -> Ints:
    """Words of a state value as integers of its type."""
    size = slot.field.dtype.size
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)[:, :size]
    return np.ascontiguousarray(raw).view(slot.field.dtype.numpy).reshape(-1).astype(I8)


def fill_rows(
    layout: RowLayout,
    n: int,
    edges: dict[str, FieldWords],
    literals: dict[str, NDArray[np.generic]],
    *,
    even: bool = False,
) -> GroupWords:
    """Rows of ``n`` vertices. ``edges``: edge fields and stored state; ``literals``: [n] values of
    state that stands in the row (missing: zero). ``even``: shorter rows are filled up, so that the
    row k rows on is found, unless the table would grow by more than half."""
    lists = [s for s in layout.slots if s.kind == "list"]
    length = np.full(n, layout.fixed, I8)
    rel: dict[str, Ints] = {}
    for slot in lists:
        vptr = edges[slot.field.name].vptr
        assert vptr is not None
        rel[slot.field.name] = length.copy()
        length = length + np.diff(vptr) * slot.entry_words
    if even and n and int(length.max()) * n * 2 <= int(length.sum()) * 3:
        length = np.full(n, length.max(), I8)
    ptr = offsets_of(length)
    words = np.zeros(int(ptr[-1]), np.uint64 if layout.wide else np.uint32)
    row = ptr[:-1]
    if layout.variable:
        words[row] = length
    where: dict[str, Ints] = {}
    for slot in layout.slots:
        name = slot.field.name
        if slot.kind == "value":
            _put_literal(words, row + slot.word, slot, literals.get(name), layout.wide)
            continue
        f = edges[name]
        if slot.kind == "list":
            where[name] = _put_list(words, row, slot, rel[name], f)
            continue
        words[row + slot.word] = f.address
        if slot.kind == "span":
            words[row + slot.word + 1] = f.size
        where[name] = row + slot.word
    return GroupWords(words, ptr, where)


def _put_list(words: Words, row: Ints, slot: FieldSlot, rel: Ints, f: FieldWords) -> Ints:
    assert f.vptr is not None
    count = np.diff(f.vptr)
    words[row + slot.word] = rel
    words[row + slot.word + 1] = count
    vertex = np.repeat(np.arange(len(count)), count)
    rank = np.arange(len(vertex)) - f.vptr[:-1][vertex]
    at = (row + rel)[vertex] + rank * slot.entry_words
    words[at] = f.address
    if slot.entry_words == 2:
        words[at + 1] = f.size
    return at


def _put_literal(
    words: Words, at: Ints, slot: FieldSlot, value: NDArray[np.generic] | None, wide: bool
) -> None:
    if value is None or len(at) == 0:
        return
    size = slot.field.dtype.size
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(len(at), size)
    step = 8 if wide else 4
    padded = np.zeros((len(at), slot.words * step), np.uint8)
    padded[:, :size] = raw
    parts = padded.view(words.dtype).reshape(len(at), slot.words)
    for k in range(slot.words):
        words[at + k] = parts[:, k]


# ---------------------------------------------------------------------------- stored state
@dataclass
class StoredState:
    """Where a group's stored state lies: per vertex ``nbytes``; per field its byte offset in the
    vertex's block and its elements (int64[n]), and the initial bytes of every block."""

    nbytes: Ints
    at: dict[str, Ints]
    size: dict[str, Ints]
    image: NDArray[np.uint8]


def store_state(
    fields: list[tuple[str, DType, int]], state: dict[str, State], n: int
) -> StoredState:
    """Lay out stored state fields (name, type, rank) vertex by vertex, 8-byte aligned."""
    total = np.zeros(n, I8)
    at: dict[str, Ints] = {}
    size: dict[str, Ints] = {}
    for name, dtype, rank in fields:
        value = state.get(name)
        if rank == 0:
            elements = np.ones(n, I8)
        elif isinstance(value, StateVectors):
            elements = np.diff(value.ptr)
        else:
            elements = np.zeros(n, I8)
        at[name], size[name] = total.copy(), elements
        total = total + -(-elements * dtype.size // ALIGN_STATE) * ALIGN_STATE
    base = offsets_of(total)
    image = np.zeros(int(base[-1]), np.uint8)
    for name, dtype, _ in fields:
        _put_initial(image, base[:-1] + at[name], size[name], dtype, state.get(name))
    return StoredState(total, at, size, image)


def _put_initial(
    image: NDArray[np.uint8], at: Ints, size: Ints, dtype: DType, value: State | None
) -> None:
    if value is None:
        return
    values = value.values if isinstance(value, StateVectors) else value
    raw = np.ascontiguousarray(values).view(np.uint8)
    nbytes = size * dtype.size
    vertex = np.repeat(np.arange(len(at)), nbytes)
    rank = np.arange(len(vertex)) - np.repeat(np.cumsum(nbytes) - nbytes, nbytes)
    image[at[vertex] + rank] = raw[: len(vertex)]


# ---------------------------------------------------------------------------- order on threads
@dataclass
class Order:
    """``split`` int32[n]: vertices in the order that is cut into threads; ``rank`` int32[n]: place
    of each vertex inside its thread (smaller first)."""

    split: NDArray[np.int32]
    rank: NDArray[np.int32]


def find_order(order: Ints | None, n: int) -> Order:
    """Column 0 of the key decides the thread, the others (or column 0 alone) the order inside."""
    if order is None:
        return Order(np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32))
    key = order.reshape(n, -1)
    split = np.argsort(key[:, 0], kind="stable")
    inner = key[:, 1:] if key.shape[1] > 1 else key
    by_rank = np.lexsort(tuple(inner[:, k] for k in reversed(range(inner.shape[1]))))
    rank = np.empty(n, np.int32)
    rank[by_rank] = np.arange(n, dtype=np.int32)
    return Order(split.astype(np.int32), rank)


def split_threads(
    order: Order, cost: Ints, threads: int, together: NDArray[np.int32] | None = None
) -> list[Ints]:
    """Vertices of every thread, in the order it runs them; threads get nearly equal cost.
    ``together``: see Table."""
    n = len(order.split)
    if threads == 1:
        return [np.argsort(order.rank, kind="stable")]
    total = np.cumsum(cost[order.split])
    middle = total - cost[order.split] / 2
    share = np.arange(1, threads) / threads
    cuts = np.searchsorted(middle, (total[-1] if n else 0) * share)
    if together is not None and n:  # to the nearer end of what stays together
        low = np.searchsorted(together, together[np.minimum(cuts, n - 1)], "left")
        high = np.searchsorted(together, together[np.minimum(cuts, n - 1)], "right")
        whole = np.append(0, total)
        goal = total[-1] * share
        cuts = np.where(goal - whole[low] <= whole[high] - goal, low, high)
    out: list[Ints] = []
    for part in np.split(order.split, cuts):
        out.append(part[np.argsort(order.rank[part], kind="stable")].astype(I8))
    return out


def gather_rows(words: Words, ptr: Ints, vertices: Ints) -> Words:
    """The rows of the listed vertices, one after the other."""
    per = np.diff(ptr)
    if len(per) == 0:
        return words[:0]
    width = int(per[0])
    if (per == width).all():
        return words.reshape(-1, width)[vertices].reshape(-1) if width else words[:0]
    count = per[vertices]
    owner = np.repeat(np.arange(len(vertices)), count)
    rank = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    return words[ptr[:-1][vertices][owner] + rank]
