"""`reduce`: any dims, by sum, product, extremes and logic.

The tensor is seen as [outer, reduced, inner] in the order of its memory, so that a vertex reads
long runs. One vertex reduces a box of it; where boxes leave several partial results of an output
those are reduced again. Where to cut, and on which tiles, follows from sizes, mapping and target
(`reduction_boxes`), so that one plan adds in one order whatever runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import program
from poplar_py.poplar.arrays import offsets_of
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import TensorIndexError
from poplar_py.poplar.faults import fail
from poplar_py.popops.fill import fill_constant
from poplar_py.popops.operation import ReduceParams
from poplar_py.popops.reduction_boxes import Boxes, Data, choose, parts_of
from poplar_py.popops.reduction_cost import Job, costs_of
from poplar_py.poputil.blocked import LANES, blocked_base, mark_padded
from poplar_py.poputil.kinds import need_kinds
from poplar_py.poputil.layout import MemoryOrder, mapping_of, memory_order, plain_order
from poplar_py.poputil.place import STRIDE, interval_mapping
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
Ints = npt.NDArray[np.int64]


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


@overload
def reduce(
    graph: Graph,
    t: Tensor,
    dims: Sequence[int],
    kind: str | ReduceParams,
    prog: program.Sequence,
    name: str = "",
    out_dtype: DType | None = None,
) -> Tensor: ...


@overload
def reduce(
    graph: Graph,
    t: Tensor,
    dims: DType,
    kind: Sequence[int],
    prog: str | ReduceParams,
    name: program.Sequence,
    out_dtype: str = "",
) -> Tensor: ...


def reduce(
    graph: Graph,
    t: Tensor,
    dims: Any,
    kind: Any,
    prog: Any,
    name: Any = "",
    out_dtype: Any = None,
) -> Tensor:
    """`t` with `dims` reduced away.

    Poplar's order is taken too, with the type of the result after the tensor:
    ``reduce(graph, t, FLOAT, dims, Operation.ADD, prog, name)``.

    kind: sum, prod, max, min, and, or, square_sum, mean, log_add (the logarithm of the sum of
    exponentials, of floats), and PopLibs' names. f16 and bf16 accumulate in f32 and round once.
    Raises OptionError for an unknown kind, or one that is not for the type.
    """
    if isinstance(dims, DType):
        dims, kind, prog, name, out_dtype = kind, prog, name, out_dtype or "", dims
    kinds = {"dims": Sequence[int], "kind": str | ReduceParams, "prog": program.Sequence}
    kinds |= {"name": str, "out_dtype": DType | None}
    need_kinds("reduce", kinds, (dims, kind, prog, name, out_dtype))
    if isinstance(kind, ReduceParams):
        kind = _plain(kind)
    sets: list[ComputeSet] = []
    name = name or f"reduce_{reduction_kind(kind)}"
    out = _reduce(graph, t, dims, kind, prog, sets, name, out_dtype or t.dtype)
    for cs in sets:
        prog.add(program.Execute(cs))
    return out


def reduce_many(
    graph: Graph,
    tensors: Sequence[tuple[Tensor, Sequence[int], str]],
    prog: program.Sequence,
    name: str = "reduce_many",
) -> list[Tensor]:
    """Several reductions, given as (tensor, dims, kind): their first stages share a compute set,
    their second ones the next. Raises as `reduce`."""
    sets: list[ComputeSet] = []
    outs = [_reduce(graph, t, dims, k, prog, sets, name, t.dtype) for t, dims, k in tensors]
    for cs in sets:
        prog.add(program.Execute(cs))
    return outs


def _reduce(
    graph: Graph,
    t: Tensor,
    dims: Sequence[int],
    kind: str,
    prog: program.Sequence,
    sets: list[ComputeSet],
    name: str,
    dtype: DType,
) -> Tensor:
    """`reduce` whose stages go to `sets`, to which further ones are added as needed."""
    kind = _checked_kind(kind, t.dtype)
    rank = len(t.shape)
    for d in dims:
        if rank and not -rank <= d < rank:
            fail(TensorIndexError, f"reduction over dim {d} of {list(t.shape)}")
    axes = sorted({d % rank for d in dims}) if rank else []
    kept = tuple(n for d, n in enumerate(t.shape) if d not in axes)
    if prod(t.shape) == 0:
        return fill_constant(graph, dtype, kept, identity(kind, dtype), prog, name)
    count = prod(t.shape[d] for d in axes)
    blocks = _padded_blocks(graph, t, axes, kind)
    shape = _canonical(t if blocks is None else blocks, axes)
    acc = f32 if t.dtype in (f16, bf16) and kind not in ("max", "min") else t.dtype
    outer, n, inner = shape.view.shape
    job = Job(outer, n, inner, t.dtype, acc, dtype, KINDS[kind])
    out = _stages(graph, shape.view, job, sets, name, count)
    if blocks is None:
        return shape.restore(out, kept)
    mark_padded(graph, graph.get_variable(out).id)
    held = tuple(n for d, n in enumerate(blocks.shape) if d not in axes)
    return _channels(shape.restore(out, held), 0 if 0 in axes else 1, t.shape[1])


def _plain(params: ReduceParams) -> str:
    """The kind of parameters without a scale or an update, which need an output."""
    if params.update or params.scale is not None:
        fail(OptionError, "a scale or an update of a new tensor", remedy="use reduce_with_output")
    return params.op


def _checked_kind(kind: str, dtype: DType) -> str:
    kind = reduction_kind(kind)
    if kind in ("log_add", "mean") and not dtype.is_float:
        fail(OptionError, f"{kind} of {dtype} elements", remedy="cast them to a float type")
    if (dtype is bool_) != (kind in ("and", "or")):
        fail(OptionError, f"{kind} of {dtype} elements", remedy="and, or are for bool, only they")
    return kind


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


def reduction_kind(kind: str) -> str:
    """The name in KINDS of a kind or one of PopLibs' names. Raises OptionError."""
    found = ALIASES.get(kind.lower(), kind.lower())
    if found not in KINDS:
        fail(
            OptionError, f"there is no reduction {kind!r}", remedy=f"use one of {', '.join(KINDS)}"
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


def _stages(
    graph: Graph, view: Tensor, job: Job, sets: list[ComputeSet], name: str, count: int
) -> Tensor:
    """[outer, n, inner] to [outer * inner], stage by stage; a mean divides by `count`."""
    rows = view.reshape((job.outer * job.n, job.inner))
    ptr = np.arange(job.outer + 1, dtype=np.int64) * job.n
    stage = 0
    while True:
        data = _data(graph, rows, ptr)
        boxes = choose(costs_of(graph.target, len(data.pool)), job, data)
        parts = parts_of(data, boxes)
        final = int(parts.max()) == 1
        if stage == len(sets):
            sets.append(graph.add_compute_set(name))
        out = _stage(graph, rows, job, boxes, final, sets[stage], name, count)
        if final:
            return out.flatten()
        rows, job, ptr = out, job.after(int(parts.max())), offsets_of(parts)
        stage += 1


def _data(graph: Graph, rows: Tensor, ptr: Ints) -> Data:
    """Where the rows lie, and all tiles of the IPUs that hold some of them."""
    mapping = mapping_of(graph, rows.flatten())
    tiles = graph.target.tiles_per_ipu
    ipus = np.unique(mapping.tile // tiles).astype(np.int64)
    pool = (ipus[:, None] * tiles + np.arange(tiles)).ravel()
    pool = pool[pool < graph.num_tiles]
    run = rows.numel / len(rows.runs()[0])
    return Data(mapping, ptr, pool, run, STRIDE * len(graph.variables) % len(pool))


def _stage(
    graph: Graph,
    rows: Tensor,
    job: Job,
    boxes: Boxes,
    final: bool,
    cs: ComputeSet,
    name: str,
    count: int,
) -> Tensor:
    """The results of the boxes, [groups or partial results, inner]."""
    size = boxes.groups * boxes.cols
    end = np.cumsum(size)
    mapping = interval_mapping(size, boxes.tile.astype(np.int32))
    dtype = job.out if final else job.acc
    out = graph.add_variable(dtype, (int(end[-1]) // job.inner, job.inner), name, mapping=mapping)
    lo = np.stack([boxes.row, boxes.left], axis=1)
    edges = {
        "out": Edges.flat(out.flatten(), end - size, end),
        "x": Edges.boxes(rows, lo, np.stack([boxes.groups * boxes.n, boxes.width], axis=1)),
    }
    codelet = job.codelet(final)
    state: dict[str, Any] = {"n": boxes.n.astype(np.int32)}
    if "ReduceRows" not in codelet:
        state["cols"] = boxes.cols.astype(np.int32)
        state["pitch"] = boxes.width.astype(np.int32)
        state["first"] = (boxes.col - boxes.left).astype(np.int32)
    if "ReduceBool" not in codelet:
        state["divisor"] = np.full(len(size), count, np.float32)
    graph.add_vertices(cs, codelet, boxes.tile.astype(np.int32), edges, state, name=name)
    return out
