"""Constant contents: fill, pad, iota."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import TensorTypeError
from poplar_py.poplar.faults import fail
from poplar_py.poplar.mapping import linear
from poplar_py.popops.elementwise import split_work
from poplar_py.poputil.layout import fresh, mapping_of, memory_order, plain_order
from poplar_py.poputil.shapes import need_room
from poplar_py.types import DType, i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["fill", "fill_constant", "iota", "pad", "zero"]

Number = float | int | bool


def fill(graph: Graph, t: Tensor, value: Number, prog: program.Sequence, name: str = "") -> None:
    """Every element of `t` becomes `value`. Raises TensorTypeError for one the type cannot hold."""
    if prod(t.shape) == 0:
        return
    name = name or "fill"
    flat = (memory_order(t) or plain_order(tuple(t.shape))).apply(t).flatten()
    work = split_work(mapping_of(graph, flat), t.numel, t.numel, least=256)
    cs = graph.add_compute_set(name)
    edges = {"out": Edges.flat(flat, work.begin, work.end)}
    state = {"value": _held(value, t.dtype)}
    graph.add_vertices(cs, f"popops::Fill<{t.dtype.name}>", work.tile, edges, state, name=name)
    prog.add(program.Execute(cs))


def _held(value: Number, dtype: DType) -> Any:
    """The value in the type; floats are rounded. Raises TensorTypeError for integers out of range
    and for fractions of integers."""
    if dtype.is_integer and not (isfinite(value) and value == int(value) and _fits(value, dtype)):
        fail(TensorTypeError, f"a fill of {dtype} elements with {value}")
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype.numpy)[()]


def _fits(value: Number, dtype: DType) -> bool:
    info = np.iinfo(dtype.numpy)
    return info.min <= value <= info.max


def zero(graph: Graph, t: Tensor, prog: program.Sequence, name: str = "") -> None:
    """Every element of `t` becomes 0."""
    fill(graph, t, 0, prog, name or "zero")


def fill_constant(
    graph: Graph,
    dtype: DType,
    shape: Sequence[int],
    value: Number,
    prog: program.Sequence,
    name: str = "",
) -> Tensor:
    """A new tensor of one value."""
    out = fresh(graph, dtype, tuple(shape), name or "fill")
    fill(graph, out, value, prog, name)
    return out


def iota(graph: Graph, n: int, dtype: DType = i32, start: int = 0, name: str = "") -> Tensor:
    """start, start + 1, ... as a constant of `n` elements, spread linearly. Raises
    TensorCreationError where the type does not hold them."""
    need_room(graph, (max(n, 0),))
    values = np.arange(n, dtype=np.int64) + start
    return graph.add_constant(dtype, (n,), values, name or "iota", "linear")


def pad(
    graph: Graph,
    t: Tensor,
    before: Sequence[int],
    after: Sequence[int],
    value: Number,
    prog: program.Sequence,
    name: str = "",
) -> Tensor:
    """`t` between `before[d]` and `after[d]` elements of `value` on every dim.

    The result keeps the order of dims in memory, also that of blocked channels that are not padded.
    """
    name = name or "pad"
    if not len(before) == len(after) == len(t.shape) or min((*before, *after), default=0) < 0:
        fail(ShapeError, f"{list(before)} and {list(after)} elements around {list(t.shape)}")
    shape = tuple(b + n + a for b, n, a in zip(before, t.shape, after, strict=True))
    if shape == tuple(t.shape):
        return t
    out = _padded_like(graph, t, shape, name)
    fill(graph, out, value, prog, name)
    if prod(t.shape) == 0:
        return out
    inner = out
    for d, (b, n) in enumerate(zip(before, t.shape, strict=True)):
        inner = inner.slice(b, b + n, d)
    prog.add(program.Copy(t, inner))
    return out


def _split_like(
    old: tuple[int, ...], new: tuple[int, ...], digits: Sequence[int]
) -> list[int] | None:
    """The digits of the dims `old` for `new`; None where a dim that changes has several."""
    out: list[int] = []
    rest = list(digits)
    for before, after in zip(old, new, strict=True):
        group: list[int] = []
        while prod(group) < before:
            group.append(rest.pop(0))
        if before != after and len(group) != 1:
            return None
        out += group if before == after else [after]
    return out


def _padded_like(graph: Graph, t: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """A variable of `shape` whose digits lie in memory as those of `t`."""
    order = memory_order(t)
    if order is None or 1 in (d for d, n in zip(t.shape, shape, strict=True) if d != n):
        return fresh(graph, t.dtype, shape, name)
    split = _split_like(t.shape, shape, order.split)
    if split is None:
        return fresh(graph, t.dtype, shape, name)
    sizes = tuple(split[p] for p in order.perm)
    mapping = linear(prod(sizes), graph.num_tiles, grain=16, least=max(16, 128 // t.dtype.size))
    flat = graph.add_variable(t.dtype, sizes, name, mapping=mapping)
    inverse = [0] * len(order.perm)
    for place, p in enumerate(order.perm):
        inverse[p] = place
    return flat.dim_shuffle(tuple(inverse)).reshape(shape)
