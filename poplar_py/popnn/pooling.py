"""Max, average and sum pooling over one to three spatial dims.

Activations whose channels come in blocks of 16 are pooled 16 lanes at a time, others one by one. A
vertex makes up to 14 pixels of one output row; its edges are the pieces of the input rows its
window covers, without those in the padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import concat, program
from poplar_py.poplar.edges import Edges
from poplar_py.popnn.pool_body import body_pool
from poplar_py.popnn.pool_work import (
    PoolParams,
    PoolWork,
    count_state,
    plan_pool,
    pool_edges,
    pool_state,
    pool_tiles,
)
from poplar_py.popops.reduction import reduce
from poplar_py.poputil.blocked import (
    add_blocked,
    batch_lanes,
    blocked_base,
    channel_blocks,
    images_of_lanes,
    variable_ids,
)
from poplar_py.poputil.boxes import grid_boxes
from poplar_py.poputil.layout import fresh
from poplar_py.poputil.place import interval_mapping, place_near
from poplar_py.types import i32, sum_type

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["PoolParams", "avg_pool", "max_pool", "sum_pool"]

Ints = npt.NDArray[np.int64]
LANES = 16


def max_pool(
    graph: Graph,
    x: Tensor,
    params: PoolParams,
    prog: program.Sequence,
    name: str = "",
    *,
    indices: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Largest element of each window of x [N, C, *in]; padding never wins.

    With `indices` also the i32 position of the first winner, row-major inside its [*in] block.
    """
    name = name or "max_pool"
    shape = (*x.shape[:2], *params.out_sizes(x.shape[2:]))
    if prod(shape) == 0:
        return fresh(graph, x.dtype, shape, name), fresh(graph, i32, shape, name)
    if indices:
        return _max_with_index(graph, x, params, shape, prog, name)
    return _max(graph, x, params, prog, name), None


def _max(graph: Graph, x: Tensor, params: PoolParams, prog: program.Sequence, name: str) -> Tensor:
    """The largest elements alone, by the kernels that suit the layout of x."""
    found = _by_parts(graph, x, lambda part, label: _max(graph, part, params, prog, label), name)
    if found is not None:
        return found
    shape = (*x.shape[:2], *params.out_sizes(x.shape[2:]))
    blocks = _blocks(graph, x)
    if blocks is None and _planar(params):
        return _plane_pool(graph, x, params, shape, prog, name)
    if blocks is not None:
        found = body_pool(graph, blocks, params, shape, prog, name)
        if found is not None:
            return found
    work = plan_pool(x, blocks, params)
    kernel = params.kernel[-1] if params.kernel[-1] <= 3 else 0
    codelet = f"popnn::MaxPool<{x.dtype.name},{work.lanes},{kernel}>"
    state = pool_state(work, params)
    return _add_pool(graph, x, work, shape, codelet, state, prog, name)


def _max_with_index(
    graph: Graph,
    x: Tensor,
    params: PoolParams,
    shape: tuple[int, ...],
    prog: program.Sequence,
    name: str,
) -> tuple[Tensor, Tensor]:
    """The largest elements and their positions, element by element."""
    work = plan_pool(x, None, params)
    tile = pool_tiles(graph, work)
    out, flat, begin = _output(graph, x, work, shape, tile, name)
    mapping = interval_mapping(work.count, tile)
    where = graph.add_variable(i32, shape, f"{name}/index", mapping=mapping)
    edges = pool_edges(work, flat, begin)
    edges["index"] = Edges.flat(where.flatten(), begin, begin + work.count)
    edges["rows"] = _row_starts(graph, work, x.shape[-1], name)
    cs = graph.add_compute_set(name)
    codelet = f"popnn::MaxPoolIndex<{x.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, pool_state(work, params), name=name)
    prog.add(program.Execute(cs))
    return out, where


def _by_parts(
    graph: Graph, x: Tensor, pool: Callable[[Tensor, str], Tensor], name: str
) -> Tensor | None:
    """`pool` of x as blocks of images or as the blocked activations it joins; None for others."""
    images = batch_lanes(graph, x)
    if images is not None:
        return images_of_lanes(pool(images, name), x.shape[0])
    parts = _joined_parts(graph, x)
    return concat([pool(p, f"{name}/{i}") for i, p in enumerate(parts)], 1) if parts else None


def _add_pool(
    graph: Graph,
    x: Tensor,
    work: PoolWork,
    shape: tuple[int, ...],
    codelet: str,
    state: dict[str, Any],
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """A step with the vertices of a plan; its result."""
    tile = pool_tiles(graph, work)
    out, flat, begin = _output(graph, x, work, shape, tile, name)
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, tile, pool_edges(work, flat, begin), state, name=name)
    prog.add(program.Execute(cs))
    return out


def _row_starts(graph: Graph, work: PoolWork, width: int, name: str) -> Edges:
    """Per input row of a vertex: where its first pixel lies in the image, `width` pixels a row."""
    start = work.row * width + np.repeat(work.low, np.diff(work.row_ptr))
    table = graph.add_constant(i32, (len(start),), start, f"{name}/rows", "linear")
    return Edges.flat(table, work.row_ptr[:-1], work.row_ptr[1:])


def avg_pool(
    graph: Graph,
    x: Tensor,
    params: PoolParams,
    prog: program.Sequence,
    name: str = "",
    *,
    count_include_pad: bool = False,
    extra: Sequence[int] = (),
) -> Tensor:
    """Mean of each window of x [N, C, *in].

    The divisor counts the elements inside x, with `count_include_pad` also those in the padding but
    for the last `extra[i]` elements of the end pads.
    """
    name = name or "avg_pool"
    shape = (*x.shape[:2], *params.out_sizes(x.shape[2:]))
    if prod(shape) == 0:
        return fresh(graph, x.dtype, shape, name)
    if params.kernel == tuple(x.shape[2:]) and not any(params.pads):
        return _global_mean(graph, x, prog, name)

    found = _by_parts(
        graph,
        x,
        lambda part, label: avg_pool(
            graph, part, params, prog, label, count_include_pad=count_include_pad, extra=extra
        ),
        name,
    )
    if found is not None:
        return found
    work = plan_pool(x, _blocks(graph, x), params)
    more = tuple(extra) or (0,) * len(params.kernel)
    state = pool_state(work, params)
    state |= count_state(work, params, x.shape[2:], count_include_pad, more)
    acc = sum_type(x.dtype)
    codelet = f"popnn::AvgPool<{x.dtype.name},{acc.name},{work.lanes}>"
    return _add_pool(graph, x, work, shape, codelet, state, prog, name)


def sum_pool(
    graph: Graph, x: Tensor, params: PoolParams, prog: program.Sequence, name: str = ""
) -> Tensor:
    """Sum of each window of x [N, C, *in]; f16 is summed in f32."""
    name = name or "sum_pool"
    shape = (*x.shape[:2], *params.out_sizes(x.shape[2:]))
    if prod(shape) == 0:
        return fresh(graph, x.dtype, shape, name)

    def pool(part: Tensor, label: str) -> Tensor:
        return sum_pool(graph, part, params, prog, label)

    found = _by_parts(graph, x, pool, name)
    if found is not None:
        return found
    work = plan_pool(x, _blocks(graph, x), params)
    acc = sum_type(x.dtype)
    codelet = f"popnn::SumPool<{x.dtype.name},{acc.name},{work.lanes}>"
    return _add_pool(graph, x, work, shape, codelet, pool_state(work, params), prog, name)


def _joined_parts(graph: Graph, x: Tensor) -> list[Tensor]:
    """The blocked activations that x [N, C, *in] joins along its channels, if it does."""
    if 0 in x.shape or blocked_base(graph, x) is not None:
        return []
    first = x.slice(0, 1, 0)
    for dim in range(2, x.rank):
        first = first.slice(0, 1, dim)
    variable = variable_ids(graph, first.addresses().ravel())
    cuts = np.flatnonzero(np.diff(variable)) + 1
    if not 1 <= len(cuts) <= 8:
        return []
    bounds = [0, *cuts.tolist(), x.shape[1]]
    parts = [x.slice(lo, hi, 1) for lo, hi in itertools.pairwise(bounds)]
    whole = all(blocked_base(graph, part) is not None for part in parts)
    return parts if whole else []


def _planar(params: PoolParams) -> bool:
    """Whether MaxPoolPlane can do it: at most two spatial dims, steps of one or two pixels."""
    return len(params.kernel) <= 2 and params.strides[-1] <= 2


@dataclass(frozen=True)
class _Planes:
    """Vertices of MaxPoolPlane: `count` output rows of one plane from rows `low` to `high`."""

    plane: Ints
    count: Ints
    low: Ints
    high: Ints
    top: Ints
    """input row of the first tap, less `low`"""
    taps: int
    stride: int
    dilation: int


def _plan_planes(
    graph: Graph, planes: int, rows: tuple[int, int], width: int, params: PoolParams
) -> _Planes:
    """Some output rows a vertex; `rows`: those of the input and of the output, `width` out."""
    height, out_height = rows
    taps, stride, dilation, pad = 1, 1, 1, 0
    if len(params.kernel) > 1:
        taps, stride = params.kernel[0], params.strides[0]
        dilation, pad = params.dilations[0], params.pads[0]
    share = -(-planes * out_height // graph.num_tiles)
    step = max(1, min(out_height, share, -(-512 // width)))
    lo, size = grid_boxes((planes, out_height), (1, step))
    top = lo[:, 1] * stride - pad
    low = np.clip(top, 0, height - 1)
    high = np.clip(top + (size[:, 1] - 1) * stride + (taps - 1) * dilation + 1, low + 1, height)
    return _Planes(lo[:, 0], size[:, 1], low, high, top - low, taps, stride, dilation)


def _plane_pool(
    graph: Graph,
    x: Tensor,
    params: PoolParams,
    shape: tuple[int, ...],
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """Max pooling of row-major planes: a vertex makes some rows of one plane."""
    height, width = (1, *x.shape[2:])[-2:]
    out_height, out_width = (1, *shape[2:])[-2:]
    planes = prod(x.shape[:2])
    work = _plan_planes(graph, planes, (height, out_height), out_width, params)
    source = x.reshape((planes * height * width,))
    begin = (work.plane * height + work.low) * width
    tile = place_near(graph, source, begin)
    out_size = work.count * out_width
    out_begin = np.cumsum(out_size) - out_size
    out = graph.add_variable(x.dtype, shape, name, mapping=interval_mapping(out_size, tile))
    edges = {
        "out": Edges.flat(out.flatten(), out_begin, out_begin + out_size),
        "x": Edges.flat(source, begin, begin + (work.high - work.low) * width),
    }
    state = {
        "rows": (work.high - work.low).astype(np.int32),
        "width": width,
        "out_width": out_width,
        "kernel_rows": work.taps,
        "kernel": params.kernel[-1],
        "stride_rows": work.stride,
        "dilation_rows": work.dilation,
        "dilation": params.dilations[-1],
        "top": work.top.astype(np.int32),
        "off": -params.pads[len(params.kernel) - 1],
    }
    cs = graph.add_compute_set(name)
    codelet = f"popnn::MaxPoolPlane<{x.dtype.name},{params.strides[-1]}>"
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    return out


def _global_mean(graph: Graph, x: Tensor, prog: program.Sequence, name: str) -> Tensor:
    """The mean of every plane, one element each: x [N, C, *in] to [N, C, 1, ...]."""
    dims = range(2, len(x.shape))
    mean = reduce(graph, x, dims, "mean", prog, name)
    return mean.reshape((*x.shape[:2], *([1] * len(dims))))


def _blocks(graph: Graph, x: Tensor) -> Tensor | None:
    """x as [N, C/16, *in, 16] when its channels lie 16 by 16 in memory; else None."""
    found = blocked_base(graph, x)
    if found is not None:
        return found
    return channel_blocks(x)


def _output(
    graph: Graph,
    x: Tensor,
    work: PoolWork,
    shape: tuple[int, ...],
    tile: npt.NDArray[np.int32],
    name: str,
) -> tuple[Tensor, Tensor, Ints]:
    """The result, its flat memory, and where each vertex's part begins."""
    size = work.count * work.lanes
    begin = np.cumsum(size) - size
    mapping = interval_mapping(size, tile)
    if work.lanes > 1:
        base, view = add_blocked(graph, x.dtype, shape, name, mapping)
        return view, base.flatten(), begin
    out = graph.add_variable(x.dtype, shape, name, mapping=mapping)
    return out, out.flatten(), begin
