"""ONNX sequences and optionals: resolved while importing, no value of them exists on a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import ABSENT, Absent, Item, Seq, Val

__all__: list[str] = []


def _place(b: Builder, n: Node, i: int, size: int, insert: bool = False) -> int:
    """A known position in a sequence of `size` items; the end (or last item) where left out."""
    if not n.has(i):
        return size if insert else size - 1
    place = b.integer(n[i], "the position in a sequence")
    place = place + size if place < 0 else place
    if not 0 <= place < size + insert:
        raise ShapeError(f"position {place} of a sequence of {size}", n.loc)
    return place


@imports("SequenceConstruct")
def construct(b: Builder, n: Node) -> Seq:
    return Seq(list(n.tensors()))


@imports("SequenceEmpty")
def empty(b: Builder, n: Node) -> Seq:
    return Seq([])


@imports("SequenceAt")
def at(b: Builder, n: Node) -> Item:
    items = n.seq(0).items
    return items[_place(b, n, 1, len(items))]


@imports("SequenceInsert")
def insert(b: Builder, n: Node) -> Seq:
    items = list(n.seq(0).items)
    items.insert(_place(b, n, 2, len(items), True), n.raw(1))
    return Seq(items)


@imports("SequenceErase")
def erase(b: Builder, n: Node) -> Seq:
    items = list(n.seq(0).items)
    del items[_place(b, n, 1, len(items))]
    return Seq(items)


@imports("SequenceLength")
def length(b: Builder, n: Node) -> Val:
    return b.const(np.int64(len(n.seq(0).items)))


@imports("SplitToSequence")
def split_to_sequence(b: Builder, n: Node) -> Seq:
    x = n[0]
    axis = n.int("axis") % max(x.rank, 1)
    dim = x.shape[axis]
    if not n.has(1):
        parts = b.split(x, [1] * dim, axis)
        if n.int("keepdims", 1):
            return Seq(list(parts))
        return Seq([b.reshape(p, p.shape[:axis] + p.shape[axis + 1 :]) for p in parts])
    sizes: Sequence[int] = b.ints(n[1], "the sizes of the parts")
    if n[1].rank == 0:
        each = sizes[0]
        if each < 1:
            raise ShapeError(f"parts of {each}", n.loc)
        sizes = [min(each, dim - i) for i in range(0, dim, each)]
    if sum(sizes) != dim:
        raise ShapeError(f"parts of {list(sizes)} along axis {axis} of {x.type}", n.loc)
    return Seq(list(b.split(x, sizes, axis)))


@imports("ConcatFromSequence")
def concat_from_sequence(b: Builder, n: Node) -> Val:
    parts = [p for p in n.seq(0).items if isinstance(p, Val)]
    if not parts:
        raise ShapeError("the sequence is empty", n.loc)
    axis = n.int("axis")
    if n.int("new_axis"):
        return b.concat([b.unsqueeze(p, axis) for p in parts], axis)
    return b.concat(parts, axis)


@imports("SequenceMap")
def sequence_map(b: Builder, n: Node) -> list[Seq]:
    body = n.graph("body")
    first = n.seq(0)
    items = [n.raw(k) for k in range(len(n))]
    if any(isinstance(item, Seq) and len(item.items) != len(first.items) for item in items):
        raise InputError("sequences differ in length", n.loc)
    outs: list[list[Item]] = [[] for _ in body.output]
    for i in range(len(first.items)):
        results = n.scope.import_subgraph(body, [_at(item, i) for item in items])
        for stack, result in zip(outs, results, strict=True):
            stack.append(result)
    return [Seq(stack) for stack in outs]


def _at(item: Item, place: int) -> Item:
    """One item of a sequence; what is no sequence goes to every round."""
    return item.items[place] if isinstance(item, Seq) else item


@imports("Optional")
def optional(b: Builder, n: Node) -> Item:
    return n.raw(0) if n.has(0) else ABSENT


@imports("OptionalHasElement")
def has_element(b: Builder, n: Node) -> Val:
    return b.const(np.bool_(n.has(0)))


@imports("OptionalGetElement")
def get_element(b: Builder, n: Node) -> Item:
    item = n.inputs[0] if len(n) else None
    if item is None or isinstance(item, Absent):
        raise InputError("the optional holds nothing", n.loc)
    return item
