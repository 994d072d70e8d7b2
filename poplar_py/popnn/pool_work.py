"""Which vertices a pooling needs: pieces of output rows and the input rows they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.arrays import offsets_of, ragged
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.poplin.plan import piece_widths
from poplar_py.poputil.boxes import grid_boxes
from poplar_py.poputil.place import place_near

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = [
    "PoolParams",
    "PoolWork",
    "count_state",
    "input_rows",
    "plan_pool",
    "pool_edges",
    "pool_state",
    "pool_tiles",
]

Ints = npt.NDArray[np.int64]
LANES = 16


@dataclass(frozen=True)
class PoolParams:
    """Windows over the spatial dims; pads list all begins, then all ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def __post_init__(self) -> None:
        rank = len(self.kernel)
        lengths = (len(self.strides), len(self.pads), len(self.dilations))
        if not rank or lengths != (rank, 2 * rank, rank):
            fail(ShapeError, f"a number for each dim of the kernel, two pads: {self}")
        if min((*self.kernel, *self.strides, *self.dilations)) < 1 or min(self.pads) < 0:
            fail(ShapeError, f"kernel, strides and dilations of at least 1, pads of 0: {self}")

    def out_sizes(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Spatial sizes of the result. Raises ShapeError."""
        if len(spatial) != len(self.kernel):
            fail(ShapeError, f"pooling over {len(self.kernel)} dims of {tuple(spatial)}")
        sizes = self._sizes(spatial)
        if min(sizes) < 0:
            fail(ShapeError, f"a kernel {self.kernel} does not fit an input {tuple(spatial)}")
        return sizes

    def _sizes(self, spatial: Sequence[int]) -> tuple[int, ...]:
        rank = len(self.kernel)
        return tuple(
            (
                spatial[i]
                + self.pads[i]
                + self.pads[i + rank]
                - (self.kernel[i] - 1) * self.dilations[i]
                - 1
            )
            // self.strides[i]
            + 1
            for i in range(rank)
        )


@dataclass(frozen=True)
class PoolWork:
    """Vertices: output row (block, outer positions), pixel range; their input rows."""

    lanes: int
    source: Tensor
    """[blocks, rows, width * lanes], one row per outer position"""
    block: Ints
    outer: Ints
    """index of the output row within its block"""
    first: Ints
    count: Ints
    low: Ints
    """first input pixel"""
    width: Ints
    off: Ints
    row_ptr: Ints
    row: Ints
    """input rows by vertex: index into the rows of the block"""


def plan_pool(x: Tensor, blocks: Tensor | None, params: PoolParams) -> PoolWork:
    """One vertex per piece of an output row. `x` [N, C, *spatial]; `blocks`: the same data with 16
    channels innermost, if it is stored so."""
    spatial = x.shape[2:]
    outs = params.out_sizes(spatial)
    lanes = LANES if blocks is not None else 1
    base = blocks if blocks is not None else x
    count = base.shape[0] * base.shape[1]
    rows = prod(spatial[:-1])
    source = base.reshape((count, rows, spatial[-1] * lanes))
    pixels = piece_widths(outs[-1])[0] if lanes > 1 else 256
    lo, size = grid_boxes((count, prod(outs[:-1]), outs[-1]), (1, 1, pixels))
    stride, dilation, pad = params.strides[-1], params.dilations[-1], params.pads[len(outs) - 1]
    start = lo[:, 2] * stride - pad
    reach = (size[:, 2] - 1) * stride + (params.kernel[-1] - 1) * dilation + 1
    low = np.clip(start, 0, spatial[-1] - 1)
    high = np.clip(start + reach, low + 1, spatial[-1])
    ptr, row = input_rows(spatial[:-1], outs[:-1], params, lo[:, 1])
    return PoolWork(
        lanes,
        source,
        lo[:, 0],
        lo[:, 1],
        lo[:, 2],
        size[:, 2],
        low,
        high - low,
        start - low,
        ptr,
        row,
    )


def input_rows(
    spatial: Sequence[int], outs: Sequence[int], params: PoolParams, outer: Ints
) -> tuple[Ints, Ints]:
    """For every output row (index over the outer spatial dims) the input rows of its window."""
    total = prod(outs)
    valid = np.ones((total, 1), np.bool_)
    index = np.zeros((total, 1), np.int64)
    place = np.arange(total)
    coords: list[Ints] = []
    for n in reversed(outs):
        place, at = np.divmod(place, n)
        coords.insert(0, at)
    for d, n in enumerate(spatial):
        taps = np.arange(params.kernel[d]) * params.dilations[d] - params.pads[d]
        at = coords[d][:, None] * params.strides[d] + taps
        ok = (at >= 0) & (at < n)
        valid = (valid[:, :, None] & ok[:, None, :]).reshape(total, -1)
        index = (index[:, :, None] * n + at[:, None, :]).reshape(total, -1)
    counts = valid.sum(axis=1)
    rows = index[valid]
    ptr = offsets_of(counts.astype(np.int64))
    per = np.diff(ptr)[outer]
    owner, rank = ragged(per)
    return offsets_of(per), rows[ptr[outer][owner] + rank]


def pool_tiles(graph: Graph, work: PoolWork) -> npt.NDArray[np.int32]:
    """Near the first input row of each vertex."""
    rows, length = work.source.shape[1:]
    some = np.minimum(work.row_ptr[:-1], max(len(work.row) - 1, 0))
    row = work.row[some] if len(work.row) else np.zeros_like(some)
    first = (work.block * rows + row) * length + work.low * work.lanes
    return place_near(graph, work.source.flatten(), first)


def pool_edges(work: PoolWork, flat: Tensor, begin: Ints) -> dict[str, Edges]:
    """Edges of all vertices; `begin` int64[vertices]: their first elements in the output `flat`."""
    vertex = np.repeat(np.arange(len(work.block)), np.diff(work.row_ptr))
    lo = np.stack([work.block[vertex], work.row, work.low[vertex] * work.lanes], axis=1)
    one = np.ones_like(vertex)
    size = np.stack([one, one, work.width[vertex] * work.lanes], axis=1)
    return {
        "out": Edges.flat(flat, begin, begin + work.count * work.lanes),
        "x": Edges.nested(work.row_ptr, Edges.boxes(work.source, lo, size)),
    }


def pool_state(work: PoolWork, params: PoolParams) -> dict[str, Any]:
    """State of all vertices along the innermost spatial axis, in pixels."""
    return {
        "width": work.width.astype(np.int32),
        "kernel": params.kernel[-1],
        "stride": params.strides[-1],
        "dilation": params.dilations[-1],
        "off": work.off.astype(np.int32),
    }


def count_state(
    work: PoolWork,
    params: PoolParams,
    spatial: Sequence[int],
    include: bool,
    extra: Sequence[int],
) -> dict[str, Any]:
    """`outer`: counted taps of the outer dims; [first, last): counted pixels of a row."""
    rank = len(params.kernel)
    outs = params.out_sizes(spatial)
    outer = np.ones(1, np.int64)
    for d in range(rank - 1):
        taps = np.arange(params.kernel[d]) * params.dilations[d] - params.pads[d]
        at = np.arange(outs[d])[:, None] * params.strides[d] + taps
        first, last = _counted(params, spatial, d, include, extra)
        hits = ((at >= first) & (at < last)).sum(axis=1)
        outer = (outer[:, None] * hits).ravel()
    first, last = _counted(params, spatial, rank - 1, include, extra)
    return {
        "outer": outer[work.outer].astype(np.int32),
        "first": (first - work.low).astype(np.int32),
        "last": (last - work.low).astype(np.int32),
    }


def _counted(
    params: PoolParams, spatial: Sequence[int], d: int, include: bool, extra: Sequence[int]
) -> tuple[int, int]:
    """The positions of a dim that count for the divisor."""
    if not include:
        return 0, spatial[d]
    rank = len(params.kernel)
    return -params.pads[d], spatial[d] + params.pads[d + rank] - extra[d]
