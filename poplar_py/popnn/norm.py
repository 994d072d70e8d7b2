"""Softmax, log-softmax and layer norm: whole rows in one vertex."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.offsets import axis_of
from poplar_py.popops.reduction import reduce
from poplar_py.poputil.blocked import lane_addresses
from poplar_py.poputil.boxes import grid_boxes, rows_per_vertex
from poplar_py.poputil.layout import clone_layout, fresh
from poplar_py.poputil.place import interval_mapping, place_near
from poplar_py.types import DType, f64, sum_type

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["layer_norm", "log_softmax", "softmax"]

Ints = npt.NDArray[np.int64]
ROW = 24576
"""Longest row that one vertex takes; longer ones are composed of reductions and maps."""


def softmax(
    graph: Graph, x: Tensor, axis: int, prog: program.Sequence, name: str = "", *, log: bool = False
) -> Tensor:
    """e^(x - max) / sum of e^(x - max) along `axis` (its logarithm with `log`); f32 inside.

    Negative axes count from the last. Raises TensorIndexError.
    """
    axis = axis_of(x, axis)
    name = name or ("log_softmax" if log else "softmax")
    if prod(x.shape) == 0:
        return fresh(graph, x.dtype, x.shape, name)
    if x.shape[axis] > ROW:
        return _long_softmax(graph, x, axis, log, prog, name)
    rank = len(x.shape)
    others = tuple(d for d in range(rank) if d != axis)
    rows = x.dim_shuffle((*others, axis))
    codelet = f"popnn::Softmax<{x.dtype.name},{sum_type(x.dtype).name},{str(log).lower()}>"
    out = _rows(graph, rows, x.shape[axis], codelet, {}, {}, prog, name)
    inverse = [0] * rank
    for i, d in enumerate((*others, axis)):
        inverse[d] = i
    return out.reshape(rows.shape).dim_shuffle(tuple(inverse))


def log_softmax(
    graph: Graph, x: Tensor, axis: int, prog: program.Sequence, name: str = ""
) -> Tensor:
    """x - max - log(sum of e^(x - max)) along `axis`."""
    return softmax(graph, x, axis, prog, name, log=True)


def _long_softmax(
    graph: Graph, x: Tensor, axis: int, log: bool, prog: program.Sequence, name: str
) -> Tensor:
    """Softmax of rows too long for one tile."""
    kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    acc = sum_type(x.dtype)
    top = reduce(graph, x, (axis,), "max", prog, f"{name}/max").reshape(kept)
    text = "sub(cast($0,f64),cast($1,f64))" if acc is f64 else "sub(cast($0,f32),cast($1,f32))"
    shifted = map_expr(graph, text, [x, top], prog, f"{name}/shift", acc)
    power = map_expr(graph, "exp($0)", [shifted], prog, f"{name}/exp", acc)
    total = reduce(graph, power, (axis,), "sum", prog, f"{name}/sum").reshape(kept)
    if log:
        text = f"cast(sub($0,log($1)),{x.dtype.name})"
        return map_expr(graph, text, [shifted, total], prog, name, x.dtype)
    return map_expr(graph, f"cast(div($0,$1),{x.dtype.name})", [power, total], prog, name, x.dtype)


def layer_norm(
    graph: Graph,
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    axis: int,
    eps: float,
    prog: program.Sequence,
    name: str = "",
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * scale + bias over the dims from `axis` on.

    scale and bias broadcast to those dims. Statistics are f32 (f64 for f64). Raises
    TensorIndexError.
    """
    axis = axis_of(x, axis)
    name = name or "layer_norm"
    if prod(x.shape) == 0:
        return fresh(graph, x.dtype, x.shape, name)
    inner = x.shape[axis:]
    n = prod(inner)
    if n > ROW:
        return _long_layer_norm(graph, x, scale, bias, axis, eps, prog, name)
    parts: dict[str, Tensor | None] = {
        "scale": None if scale is None else scale.broadcast_to(inner).flatten(),
        "bias": None if bias is None else bias.broadcast_to(inner).flatten(),
    }
    flags = ",".join(str(t is not None).lower() for t in parts.values())
    codelet = f"popnn::LayerNorm<{x.dtype.name},{sum_type(x.dtype).name},{flags}>"
    out = _rows(graph, x, n, codelet, parts, {"eps": float(eps)}, prog, name)
    return out.reshape(x.shape)


def _rows(
    graph: Graph,
    rows: Tensor,
    n: int,
    codelet: str,
    parts: dict[str, Tensor | None],
    state: dict[str, Any],
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """Vertices on whole rows of n elements; rows in blocks of 16 are worked on in place."""
    count = rows.numel // n
    flat = rows.reshape((count, n))
    made = _blocked_rows(graph, flat, n, name)
    step = rows_per_vertex(count, n, graph.num_tiles, 256)
    if made is not None:
        codelet = codelet.replace("<", "Blocks<", 1)
        step = _even_step(made.source, step)
    lo, size = grid_boxes((count,), (step,))
    first, rows_of = lo[:, 0], size[:, 0]
    tile = place_near(graph, flat.flatten(), first * n)
    if made is not None:
        out = made.out
        edges = {"out": made.edges(made.target, first, rows_of, rows.dtype)}
        edges["x"] = made.edges(made.source, first, rows_of, rows.dtype)
        state = {"rows": rows_of.astype(np.int32), **state}
    else:
        mapping = interval_mapping(rows_of * n, tile)
        out = graph.add_variable(rows.dtype, (count, n), name, mapping=mapping)
        begin, end = first * n, (first + rows_of) * n
        edges = {
            "out": Edges.flat(out.flatten(), begin, end),
            "x": Edges.flat(flat.flatten(), begin, end),
        }
        state = {"n": n, **state}
    for field, t in parts.items():
        edges[field] = optional_edges(t, len(tile), rows.dtype)
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return out


@dataclass(frozen=True)
class _Blocked:
    """Rows in blocks of 16: addresses int64[n / 16, rows] of the input and of the output `out`."""

    out: Tensor
    source: Ints
    target: Ints

    @staticmethod
    def edges(address: Ints, first: Ints, rows: Ints, dtype: DType) -> Edges:
        """For every vertex n / 16 edges of `rows` rows, block by block."""
        blocks = len(address)
        start = address[:, first].T.ravel()
        length = np.repeat(rows * 16, blocks)
        edges = Edges.from_runs(np.arange(len(start) + 1), start, length, dtype)
        return Edges.nested(np.arange(len(first) + 1) * blocks, edges)


def _blocked_rows(graph: Graph, rows: Tensor, n: int, name: str) -> _Blocked | None:
    """Addresses of rows [count, n] that lie in blocks of 16, and an output of the same layout."""
    if n % 16 or n == 16 or len(rows.runs()[0]) * 32 > rows.numel * 2 or rows.is_contiguous():
        return None
    if len(rows.runs()[0]) <= rows.shape[0]:
        return None
    source = lane_addresses(graph, rows)
    if source is None:
        return None
    made = clone_layout(graph, rows, rows.dtype, name)
    if made is None:
        return None
    target = lane_addresses(graph, made[0])
    return None if target is None else _Blocked(made[0], source, target)


def _even_step(address: Ints, step: int) -> int:
    """The most rows, no more than `step`, that always lie side by side within a block."""
    count = address.shape[1]
    while step > 1:
        index = np.arange(1, count, dtype=np.int64)
        inside = index[index % step != 0] - 1
        if bool((np.diff(address, axis=1)[:, inside] == 16).all()):
            return step
        step //= 2
    return 1


def optional_edges(t: Tensor | None, vertices: int, dtype: DType) -> Edges:
    """A rank-2 field that holds the whole of `t`, or nothing."""
    if t is not None:
        return Edges.nested(np.arange(vertices + 1), Edges.whole(t, vertices))
    none = np.zeros(vertices + 1, np.int64)
    return Edges.nested(none, Edges.from_runs(none[:1], none[:0], none[:0], dtype))


def _long_layer_norm(
    graph: Graph,
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    axis: int,
    eps: float,
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """Layer norm of groups too large for one tile."""
    acc = sum_type(x.dtype)
    dims = tuple(range(axis, len(x.shape)))
    kept = (*x.shape[:axis], *([1] * len(dims)))
    n = prod(x.shape[axis:])
    wide = map_expr(graph, f"cast($0,{acc.name})", [x], prog, f"{name}/cast", acc)
    total = reduce(graph, wide, dims, "sum", prog, f"{name}/sum").reshape(kept)
    centred = map_expr(
        graph, f"sub($0,mul($1,c({1.0 / n!r})))", [wide, total], prog, f"{name}/centre", acc
    )
    square = reduce(graph, centred, dims, "square_sum", prog, f"{name}/square").reshape(kept)
    inv = f"rsqrt(add(mul($1,c({1.0 / n!r})),c({eps!r})))"
    text, tensors = f"mul($0,{inv})", [centred, square]
    for t, name_of in ((scale, "mul"), (bias, "add")):
        if t is not None:
            text = f"{name_of}({text},cast(${len(tensors)},{acc.name}))"
            tensors.append(t)
    return map_expr(graph, f"cast({text},{x.dtype.name})", tensors, prog, name, x.dtype)
