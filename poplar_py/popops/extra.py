"""PopLibs' names made of a few other operations: outputs given, updates, sorts with keys, rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar import program
from poplar_py.poplar.faults import fail
from poplar_py.popops.arithmetic import one_hot
from poplar_py.popops.dynamic import dynamic_slice
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_with_output
from poplar_py.popops.fill import iota
from poplar_py.popops.offsets import axis_of
from poplar_py.popops.operation import ReduceParams
from poplar_py.popops.reduction import reduce, reduction_kind
from poplar_py.popops.scattering import multi_update
from poplar_py.popops.search import sort, top_k
from poplar_py.popops.slice_plan import SlicePlan, check_plan
from poplar_py.popops.tables import table_of_parts
from poplar_py.popops.truth import LOG_ADD
from poplar_py.poputil.layout import fresh
from poplar_py.types import DType, i32, u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = [
    "cast_with_output",
    "create_indices_tensor",
    "create_slice_tensor",
    "create_sliceable_tensor",
    "dynamic_slice_with_output",
    "encode_one_hot",
    "multi_update_add",
    "multi_update_max",
    "multi_update_mul",
    "normalise_image",
    "partial_transpose",
    "reduce_with_output",
    "sort_in_place",
    "sort_key_value",
    "sort_key_value_in_place",
    "top_k_key_value",
    "top_k_with_permutation",
]

SCALED = ("sum", "square_sum", "mean", "log_add")
"""Reductions that may be scaled and added to what is there."""


def cast_with_output(
    graph: Graph, x: Tensor, out: Tensor, prog: program.Sequence, name: str = "cast"
) -> None:
    """out = x as the type of `out`."""
    map_with_output(graph, f"cast($0,{out.dtype.name})", [x], out, prog, name)


def reduce_with_output(
    graph: Graph,
    t: Tensor,
    out: Tensor,
    dims: Sequence[int],
    kind: str | ReduceParams,
    prog: program.Sequence,
    name: str = "",
    *,
    scale: float | Tensor | None = None,
    update: bool = False,
) -> None:
    """out = scale * reduction of `t`; with `update` out += scale * reduction.

    `scale` is a number or one element. Both are for sums, also of squares, and for log_add, where
    everything is a logarithm: the scale is added and the update is a log_add. Raises OptionError
    for other kinds. `kind` may be ReduceParams, which hold all three.
    """
    if isinstance(kind, ReduceParams):
        scale, update = kind.scale if scale is None else scale, kind.update or update
        kind = kind.op
    logs = reduction_kind(kind) == "log_add"
    if (update or scale is not None) and reduction_kind(kind) not in SCALED:
        fail(
            OptionError,
            f"scale or update of a reduction by {kind}",
            remedy=f"only for {', '.join(SCALED)}",
        )
    found = reduce(graph, t, dims, kind, prog, name, out.dtype).reshape(out.shape)
    tensors, text = [found, out], "$0"
    if scale is not None:
        if isinstance(scale, int | float):
            factor = f"c({float(scale)!r})"
        else:
            factor = f"cast($2,{out.dtype.name})"
            tensors.append(scale.reshape(()))
        text = f"{'add' if logs else 'mul'}($0,{factor})"
    if update:
        text = LOG_ADD.replace("$0", text) if logs else f"add($1,{text})"
    if text == "$0":
        prog.add(program.Copy(found, out))
    else:
        map_with_output(graph, text, tensors, out, prog, f"{name}/update")


def create_sliceable_tensor(
    graph: Graph,
    dtype: DType,
    shape: Sequence[int],
    dims: Sequence[int],
    name: str = "sliceable",
    plan: SlicePlan | None = None,
) -> Tensor:
    """A variable whose elements along `dims` lie on one tile, so that slices need no exchange.

    With a plan it is a table [entries, width] laid out as the plan says. Raises ShapeError and
    TypeMismatch for a plan of another table.
    """
    if plan is not None:
        check_plan(plan, dtype, shape)
        size = (plan.entries, plan.width)
        return table_of_parts(graph, dtype, size, (plan.cols, plan.rows), name).tensor
    rank = len(shape)
    if any(not 0 <= d < rank for d in dims) or len(set(dims)) < len(dims):
        fail(ShapeError, f"dims {list(dims)} of {list(shape)}", "give each dim once, from 0")
    order = [d for d in range(rank) if d not in dims] + list(dims)
    inverse = np.argsort(order).tolist()
    var = graph.add_variable(dtype, [shape[d] for d in order], name)
    rows = 1
    for d in order[: rank - len(dims)]:
        rows *= shape[d]
    flat = var.reshape((rows, var.numel // max(rows, 1)))
    tiles = graph.num_tiles
    share = -(-rows // tiles)
    for tile in range(-(-rows // share) if rows else 0):
        part = flat.slice(tile * share, min(rows, (tile + 1) * share), 0)
        graph.set_tile_mapping(part, tile)
    return var.dim_shuffle(inverse)


def create_indices_tensor(
    graph: Graph,
    dims: Sequence[int],
    count: int,
    plan: SlicePlan | None = None,
    name: str = "indices",
) -> Tensor:
    """u32 [count, number of dims]: a variable for the offsets of `count` slices.

    Every tile with a part of the table reads all of them, so they are spread evenly; `plan` is
    taken because programs for PopLibs give it.
    """
    return fresh(graph, u32, (count, len(dims)), name)


def create_slice_tensor(
    graph: Graph, t: Tensor, axis: int, size: int, count: int, name: str = "slice"
) -> Tensor:
    """A tensor [count, *shape of t with `size` on `axis`] for slices of t."""
    axis = axis_of(t, axis)
    shape = (count, *t.shape[:axis], size, *t.shape[axis + 1 :])
    return create_sliceable_tensor(graph, t.dtype, shape, (axis + 1,), name)


def dynamic_slice_with_output(
    graph: Graph,
    out: Tensor,
    x: Tensor,
    start: Tensor,
    axis: int | Sequence[int],
    size: int | Sequence[int],
    prog: program.Sequence,
    name: str = "",
) -> None:
    """`dynamic_slice` into `out`."""
    prog.add(program.Copy(dynamic_slice(graph, x, start, axis, size, prog, name), out))


def _multi_update(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    scale: float | Tensor,
    prog: program.Sequence,
    name: str,
    operation: str,
    plan: SlicePlan | None,
) -> None:
    if not isinstance(scale, int | float):
        text = f"mul($0,cast($1,{updates.dtype.name}))"
        updates = map_expr(graph, text, [updates, scale.reshape(())], prog, f"{name}/scale")
    elif scale != 1.0:
        updates = map_expr(graph, f"mul($0,c({float(scale)!r}))", [updates], prog, f"{name}/scale")
    multi_update(graph, x, indices, updates, prog, name, operation, plan)


def multi_update_add(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str = "multi_update_add",
    scale: float | Tensor = 1.0,
    plan: SlicePlan | None = None,
) -> None:
    """x[indices[m]] += scale * updates[m], rows that repeat included; scale: one element."""
    _multi_update(graph, x, indices, updates, scale, prog, name, "add", plan)


def multi_update_max(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str = "multi_update_max",
    plan: SlicePlan | None = None,
) -> None:
    """x[indices[m]] = max(x[indices[m]], updates[m])."""
    _multi_update(graph, x, indices, updates, 1.0, prog, name, "max", plan)


def multi_update_mul(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    prog: program.Sequence,
    name: str = "multi_update_mul",
    plan: SlicePlan | None = None,
) -> None:
    """x[indices[m]] *= updates[m]."""
    _multi_update(graph, x, indices, updates, 1.0, prog, name, "mul", plan)


def encode_one_hot(
    graph: Graph,
    indices: Tensor,
    encoded: Tensor,
    prog: program.Sequence,
    name: str = "one_hot",
    on: float = 1,
    off: float = 0,
) -> None:
    """encoded [n, depth]: `on` in the column an index names, `off` elsewhere."""
    depth, dtype = encoded.shape[-1], encoded.dtype
    if (on, off) == (1, 0):
        found = one_hot(graph, indices, depth, dtype, prog, name)
        prog.add(program.Copy(found.reshape(encoded.shape), encoded))
        return
    steps = iota(graph, depth, indices.dtype, 0, f"{name}/steps")
    column = indices.reshape((*indices.shape, 1))
    text = f"select(equal($0,$1),c({on!r},{dtype.name}),c({off!r},{dtype.name}))"
    map_with_output(graph, text, [column, steps], encoded, prog, name)


def _along_rows(
    graph: Graph, keys: Tensor, where: Tensor, axis: int, prog: program.Sequence, name: str
) -> Tensor:
    """keys taken along `axis` at positions `where`: one-hot rows, gathered flat."""
    from poplar_py.popops.gathering import gather

    moved, place = keys.dim_roll(axis, keys.rank - 1), where.dim_roll(axis, keys.rank - 1)
    n, k = moved.shape[-1], place.shape[-1]
    rows = moved.numel // max(n, 1)
    base = graph.add_constant(i32, (rows, 1), np.arange(rows) * n, f"{name}/rows", 0)
    index = map_expr(graph, "add($0,$1)", [place.reshape((rows, k)), base], prog, f"{name}/index")
    found = gather(graph, moved.flatten(), index.flatten(), 0, prog, name)
    return found.reshape(place.shape).dim_roll(keys.rank - 1, axis)


def top_k_with_permutation(
    graph: Graph,
    x: Tensor,
    k: int,
    axis: int,
    largest: bool,
    prog: program.Sequence,
    name: str = "top_k",
) -> tuple[Tensor, Tensor]:
    """The k best elements along `axis` and their positions."""
    return top_k(graph, x, k, axis, largest, prog, name)


def top_k_key_value(
    graph: Graph,
    keys: Tensor,
    values: Tensor,
    k: int,
    axis: int,
    largest: bool,
    prog: program.Sequence,
    name: str = "top_k",
) -> tuple[Tensor, Tensor]:
    """The k best keys along `axis`, and the values that stand beside them."""
    best, where = top_k(graph, keys, k, axis, largest, prog, name)
    return best, _along_rows(graph, values, where, axis, prog, f"{name}/values")


def sort_in_place(
    graph: Graph, x: Tensor, axis: int, prog: program.Sequence, name: str = "sort"
) -> None:
    """x sorted ascending along `axis`."""
    prog.add(program.Copy(sort(graph, x, axis, prog, name)[0], x))


def sort_key_value(
    graph: Graph,
    keys: Tensor,
    values: Tensor,
    axis: int,
    prog: program.Sequence,
    name: str = "sort",
) -> Tensor:
    """values in the order that sorts the keys ascending along `axis`; equal keys keep theirs."""
    _, where = sort(graph, keys, axis, prog, name)
    return _along_rows(graph, values, where, axis, prog, f"{name}/values")


def sort_key_value_in_place(
    graph: Graph,
    keys: Tensor,
    values: Tensor,
    axis: int,
    prog: program.Sequence,
    name: str = "sort",
) -> None:
    """Keys sorted ascending along `axis`, values moved along."""
    ordered, where = sort(graph, keys, axis, prog, name)
    moved = _along_rows(graph, values, where, axis, prog, f"{name}/values")
    prog.add(program.Copy(moved, values))
    prog.add(program.Copy(ordered, keys))


def partial_transpose(
    graph: Graph, t: Tensor, prog: program.Sequence, name: str = "transpose"
) -> Tensor:
    """t [.., a, b] with its last two dims swapped, in a variable of its own (row major). Raises
    ShapeError for fewer dims."""
    if t.rank < 2:
        fail(ShapeError, f"the last two dims of {list(t.shape)}")
    out_shape = (*t.shape[:-2], t.shape[-1], t.shape[-2])
    out = graph.add_variable(t.dtype, out_shape, name, mapping="linear")
    order = (*range(t.rank - 2), t.rank - 1, t.rank - 2)
    prog.add(program.Copy(t.dim_shuffle(order), out))
    return out


def normalise_image(
    graph: Graph,
    image: Tensor,
    scale: float,
    offsets: Tensor,
    scales: Tensor,
    prog: program.Sequence,
    name: str = "normalise_image",
) -> Tensor:
    """(image * scale - offsets) * scales over [..., 3] channels, and a fourth channel of 0.

    The result has the type of `scales`.
    """
    dtype = scales.dtype
    text = f"mul(sub(mul(cast($0,{dtype.name}),c({float(scale)!r})),$1),$2)"
    out = map_expr(graph, text, [image, offsets, scales], prog, name, dtype)
    from poplar_py.popops.fill import pad

    rank = out.rank
    return pad(graph, out, [0] * rank, [0] * (rank - 1) + [1], 0, prog, f"{name}/pad")
