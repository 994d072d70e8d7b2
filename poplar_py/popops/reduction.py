"""`reduce`: any dims, by sum, product, extremes and logic.

The tensor is seen as [outer, reduced, inner] in the order of its memory, so that a vertex reads
long runs. One vertex reduces a box of it. Where the reduced size is large the work is cut along it
too, and the partial results are reduced again. The cuts depend on sizes only: neither tiles nor
mapping nor host threads change the order of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import TensorIndexError
from poplar_py.poplar.faults import fail
from poplar_py.popops.fill import fill_constant
from poplar_py.poputil.blocked import LANES, blocked_base, mark_padded
from poplar_py.poputil.layout import MemoryOrder, memory_order, plain_order
from poplar_py.poputil.place import interval_mapping, place_near
from poplar_py.types import DType, bf16, bool_, f16, f32

if TYPE_CHECKING:
    from poplar_py.poplar import ComputeSet, Graph, Tensor

__all__ = ["KINDS", "identity", "reduce", "reduce_many", "reduction_kind"]

KINDS = {
    "sum": 0, "prod": 1, "max": 2, "min": 3, "and": 4, "or": 5, "square_sum": 6, "mean": 7,
    "log_add": 8,
}  # fmt: skip
ALIASES = {
    "add": "sum",
    "mul": "prod",
    "square_add": "square_sum",
    "logical_and": "and",
    "logical_or": "or",
}
CHUNK = 4096
"""Most elements along the reduced dim that one vertex takes."""
BOX = 16384
"""Most elements of a vertex's box."""
FEW = 512
"""Elements below which cutting further does not pay."""


def identity(kind: str, dtype: DType) -> float | int | bool:
    """The result over no elements."""
    if kind in ("and", "or"):
        return kind == "and"
    if kind in ("sum", "square_sum", "mean"):
        return 0
    if kind == "prod":
        return 1
    sign = -1 if kind in ("max", "log_add") else 1
    if dtype.is_float:
        return sign * float("inf")
    info = np.iinfo(dtype.numpy)
    return int(info.min if kind == "max" else info.max)


def reduce(
    graph: Graph,
    t: Tensor,
    dims: Sequence[int],
    kind: str,
    prog: program.Sequence,
    name: str = "",
    out_dtype: DType | None = None,
) -> Tensor:
    """`t` with `dims` reduced away.

    kind: sum, prod, max, min, and, or, square_sum, mean, log_add (the logarithm of the sum of
    exponentials, of floats), and PopLibs' names. f16 and bf16 accumulate in f32 and round once.
    Raises OptionError for an unknown kind.
    """
    kind = reduction_kind(kind)
    if kind == "log_add" and not t.dtype.is_float:
        raise OptionError(f"log_add of {t.dtype} elements", remedy="cast them to a float type")
    dtype = out_dtype or t.dtype
    rank = len(t.shape)
    for d in dims:
        if rank and not -rank <= d < rank:
            fail(TensorIndexError, f"reduction over dim {d} of {list(t.shape)}")
    axes = sorted({d % rank for d in dims}) if rank else []
    name = name or f"reduce_{kind}"
    kept = tuple(n for d, n in enumerate(t.shape) if d not in axes)
    if prod(t.shape) == 0:
        return fill_constant(graph, dtype, kept, identity(kind, dtype), prog, name)
    count = prod(t.shape[d] for d in axes)
    blocks = _padded_blocks(graph, t, axes, kind)
    shape = _canonical(t if blocks is None else blocks, axes)
    out = _reduce_box(graph, shape.view, KINDS[kind], prog, name, dtype, t.dtype, count)
    if blocks is None:
        return shape.restore(out, kept)
    mark_padded(graph, graph.get_variable(out).id)
    held = tuple(n for d, n in enumerate(blocks.shape) if d not in axes)
    return _channels(shape.restore(out, held), 0 if 0 in axes else 1, t.shape[1])


def _padded_blocks(graph: Graph, t: Tensor, axes: Sequence[int], kind: str) -> Tensor | None:
    """Blocks [N, C/16, *spatial, 16] of an activation whose padded channels stay; else None."""
    if len(t.shape) < 3 or 1 in axes or kind == "prod" or t.shape[1] % LANES == 0:
        return None
    return blocked_base(graph, t)


def _channels(blocks: Tensor, dim: int, channels: int) -> Tensor:
    """[.., C/16, *rest, 16] seen as [.., C, *rest]; `dim` is that of the blocks."""
    rank = len(blocks.shape)
    view = blocks.dim_shuffle((*range(dim + 1), rank - 1, *range(dim + 1, rank - 1)))
    shape = view.shape
    joined = view.reshape((*shape[:dim], shape[dim] * LANES, *shape[dim + 2 :]))
    return joined.slice(0, channels, dim)


def reduce_many(
    graph: Graph,
    tensors: Sequence[tuple[Tensor, Sequence[int], str]],
    prog: program.Sequence,
    name: str = "",
) -> list[Tensor]:
    """Several reductions, given as (tensor, dims, kind)."""
    return [reduce(graph, t, dims, kind, prog, name) for t, dims, kind in tensors]


def reduction_kind(kind: str) -> str:
    """The name in KINDS of a kind or one of PopLibs' names. Raises OptionError."""
    found = ALIASES.get(kind.lower(), kind.lower())
    if found not in KINDS:
        raise OptionError(
            f"there is no reduction {kind!r}", remedy=f"use one of {', '.join(KINDS)}"
        )
    return found


@dataclass(frozen=True)
class _Canonical:
    """`view` [outer, reduced, inner] and how the kept digits go back."""

    view: Tensor
    kept_sizes: tuple[int, ...]
    kept_order: tuple[int, ...]

    def restore(self, out: Tensor, shape: tuple[int, ...]) -> Tensor:
        """[outer * inner] elements in memory order seen in the logical kept shape."""
        inverse = [0] * len(self.kept_order)
        for place, digit in enumerate(self.kept_order):
            inverse[digit] = place
        sizes = tuple(self.kept_sizes[d] for d in self.kept_order)
        return out.reshape(sizes).dim_shuffle(tuple(inverse)).reshape(shape)


def _canonical(t: Tensor, axes: Sequence[int]) -> _Canonical:
    order = memory_order(t) or plain_order(tuple(t.shape))
    axis_of = _axis_of_digit(t, order)
    perm = list(order.perm)
    kept = [d for d in perm if axis_of[d] not in axes]
    gone = [d for d in perm if axis_of[d] in axes]
    inner: list[int] = []
    while perm and axis_of[perm[-1]] not in axes:
        inner.insert(0, perm.pop())
    outer = kept[: len(kept) - len(inner)]
    size = order.split
    view = t.reshape(size).dim_shuffle((*outer, *gone, *inner))
    view = view.reshape(
        (prod(size[d] for d in outer), prod(size[d] for d in gone), prod(size[d] for d in inner))
    )
    rank_of = {d: i for i, d in enumerate(sorted(kept))}
    sizes = tuple(size[d] for d in sorted(kept))
    return _Canonical(view, sizes, tuple(rank_of[d] for d in (*outer, *inner)))


def _axis_of_digit(t: Tensor, order: MemoryOrder) -> list[int]:
    """The logical dim each digit of `order.split` belongs to."""
    out: list[int] = []
    digit = 0
    for d, n in enumerate(t.shape):
        left = n
        while left > 1:
            left //= order.split[digit]
            out.append(d)
            digit += 1
    return out


def _chunks(outer: int, n: int, inner: int) -> int:
    """Into how many pieces the reduced dim is cut; by sizes only."""
    units = outer * -(-inner // 16)
    want = max(1, min(1472, outer * n * inner // 1024) // units)
    count = min(want, max(1, n // 32))
    return max(count, -(-n // CHUNK))


def _reduce_box(
    graph: Graph,
    view: Tensor,
    kind: int,
    prog: program.Sequence,
    name: str,
    dtype: DType,
    source: DType,
    divisor: int = 1,
) -> Tensor:
    """[outer, n, inner] to [outer * inner]; a mean divides by `divisor`."""
    outer, n, inner = view.shape
    acc = f32 if source in (f16, bf16) and kind not in (2, 3) else source
    count = _chunks(outer, n, inner)
    if count == 1:
        cs = graph.add_compute_set(name)
        out = _stage(graph, view, kind, cs, name, acc, dtype, n, divisor)
        prog.add(program.Execute(cs))
        return out.flatten()
    step = -(-n // count)
    if inner == 1:
        step = -(-step // 16) * 16
    cs = graph.add_compute_set(name)
    first = 0 if kind == 7 else kind
    partial = _stage(graph, view, first, cs, name, acc, acc, step)
    prog.add(program.Execute(cs))
    parts = partial.shape[0]
    again = partial.reshape((1, parts, outer * inner))
    second = 0 if kind == 6 else kind
    return _reduce_box(graph, again, second, prog, name, dtype, acc, divisor)


def _stage(
    graph: Graph,
    view: Tensor,
    kind: int,
    cs: ComputeSet,
    name: str,
    acc: DType,
    dtype: DType,
    step: int,
    divisor: int = 1,
) -> Tensor:
    """Partial results [parts, outer, inner], part p over elements [p * step, (p + 1) * step)."""
    outer, n, inner = view.shape
    cols = inner if inner <= 64 or inner * step <= FEW else 64
    cols = max(16, min(cols, BOX // step // 16 * 16)) if inner > 16 else inner
    rows = 1 if cols < inner else max(1, min(outer, FEW // max(step * cols, 1)))
    parts = -(-n // step)
    p, o, i = (
        a.ravel()
        for a in np.meshgrid(
            np.arange(parts), np.arange(0, outer, rows), np.arange(0, inner, cols), indexing="ij"
        )
    )
    lo = np.stack([o, p * step, i], axis=1)
    size = np.minimum(np.array([rows, step, cols]), np.array([outer, n, inner]) - lo)
    first = (lo[:, 0] * n + lo[:, 1]) * inner + lo[:, 2]
    tile = place_near(graph, view.flatten(), first)
    out_size = size[:, 0] * size[:, 2]
    mapping = interval_mapping(out_size, tile)
    out = graph.add_variable(dtype, (parts, outer, inner), name, mapping=mapping)
    end = np.cumsum(out_size)
    edges = {
        "out": Edges.flat(out.flatten(), end - out_size, end),
        "x": Edges.boxes(view, lo, size),
    }
    state: dict[str, Any] = {"n": size[:, 1].astype(np.int32)}
    codelet = _codelet(view.dtype, acc, dtype, kind, inner)
    if "ReduceRows" not in codelet:
        state["cols"] = size[:, 2].astype(np.int32)
    if "ReduceBool" not in codelet:
        state["divisor"] = np.full(len(tile), divisor, np.float32)
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    return out


def _codelet(source: DType, acc: DType, dtype: DType, kind: int, inner: int) -> str:
    if source is bool_:
        return f"popops::ReduceBool<{kind}>"
    which = "ReduceRows" if inner == 1 else "ReduceCols"
    return f"popops::{which}<{source.name},{acc.name},{dtype.name},{kind}>"
