"""Layout of a codelet's table row (the host ABI of compiled vertices).

A row is a sequence of words: u32, or u64 in the wide variant. An address word is a byte offset from
the base of tile memory. Fixed part: the row length in words first if the codelet has a rank-2
field; then per field, in declaration order:

    rank 0 edge          [addr]
    rank 1 edge          [addr, size], [addr] when one_ptr; size in elements
    rank 2 edge          [rel, count]: word offset from the row's start to its sublist of `count`
                         entries [addr, size] ([addr] when the inner layout is one_ptr)
    state, not assigned  the value's bytes, in ceil(size / 4) words (one word when wide)
    state, assigned      [addr] of its place in tile memory
    state vector         [addr, size] ([addr] when one_ptr)

Sublists follow the fixed part in field order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poplar_py.codelets.codelet_ir import Field

__all__ = ["FieldSlot", "RowLayout", "row_layout"]


@dataclass(frozen=True, slots=True)
class FieldSlot:
    """Where a field stands in the fixed part.

    kind: "addr" (address only), "span" (address, size), "list" (rel, count), "value" (literal).
    `word` is the first word, `words` how many; `entry_words` the words of a sublist entry (list).
    """

    field: Field
    kind: str
    word: int
    words: int
    entry_words: int = 0


@dataclass(frozen=True, slots=True)
class RowLayout:
    """`fixed` words come first; `variable`: word 0 is the row length and sublists follow."""

    slots: tuple[FieldSlot, ...]
    fixed: int
    variable: bool
    wide: bool

    def slot(self, name: str) -> FieldSlot:
        for slot in self.slots:
            if slot.field.name == name:
                return slot
        raise KeyError(name)


def row_layout(fields: Sequence[Field], wide: bool = False) -> RowLayout:
    """The row layout of a codelet's fields (pass `codelet.fields`)."""
    variable = any(f.rank == 2 for f in fields)
    word = 1 if variable else 0
    slots: list[FieldSlot] = []
    for f in fields:
        kind, words, entry = _shape(f, wide)
        slots.append(FieldSlot(f, kind, word, words, entry))
        word += words
    return RowLayout(tuple(slots), word, variable, wide)


def _shape(f: Field, wide: bool) -> tuple[str, int, int]:
    if f.literal:
        return "value", 1 if wide else -(-f.dtype.size // 4), 0
    if f.rank == 2:
        return "list", 2, 1 if f.inner_one_ptr else 2
    if f.rank == 0 or f.one_ptr:
        return "addr", 1, 0
    return "span", 2, 0
