"""Where the kernels' rows lie: tables of addresses, and copies where nothing fits in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.program import Copy
from poplar_py.poplin.place import TileRange, block_mapping, pad_view, spread, zeros
from poplar_py.poputil.blocked import (
    LANES,
    add_blocked,
    blocks_of,
    lane_addresses,
    variable_bases,
    view_of_blocked,
)

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.params import ConvParams
    from poplar_py.types import DType

__all__ = ["RowTable", "Window", "blocked_copy", "halo_table", "one_piece", "spatial_lanes"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """What a block of `px` pixels reads of a row: `left` pixels, a body, `right` pixels."""

    px: int
    left: int
    body: int
    right: int

    @property
    def steps(self) -> int:
        """Runs a row."""
        return 1 + (self.left > 0) + (self.right > 0)

    @staticmethod
    def of(px: int, params: ConvParams, kernel_width: int, halo: bool) -> Window:
        """The window of a block; without `halo` all of it is the body."""
        stride, dilation = params.strides[-1], params.dilations[-1]
        reach = (px - 1) * stride + (kernel_width - 1) * dilation + 1
        if not halo:
            return Window(px, 0, reach, 0)
        left = min(max(params.pads_lower[-1], 0), reach - 1)
        right = max(0, reach - left - px * stride)
        return Window(px, left, reach - left - right, right)


@dataclass(frozen=True, slots=True)
class RowTable:
    """Runs of every (block along the row, output row): `start` [X, R, blocks, kernel rows x steps].

    `length` [kernel rows x steps] is the same for all. `inside`: each is one run of one tile.
    """

    start: Ints
    length: Ints
    inside: bool


def spatial_lanes(graph: Graph, x: Tensor) -> Ints | None:
    """Addresses of the lane vectors of x [N, C, D, H, W]: [C/16, N, D, H, W], or None."""
    return lane_addresses(graph, x.dim_shuffle((0, 2, 3, 4, 1)))


def one_piece(graph: Graph, start: Ints, length: Ints | int) -> bool:
    """Whether each run lies in the memory of one tile."""
    flat = start.ravel()
    size = np.broadcast_to(length, start.shape).ravel()
    ids = np.searchsorted(variable_bases(graph), flat, "right") - 1
    for var in set(ids.tolist()):
        pick = ids == var
        mapping = graph.variables[var].mapping
        at = np.searchsorted(mapping.bounds, flat[pick], "right")
        if (mapping.bounds[at] < flat[pick] + size[pick]).any():
            return False
        if (mapping.tile[at - 1] < 0).any():
            return False
    return True


def _runs_whole(breaks: Ints, first: Ints, count: int) -> bool:
    """Whether `count` pixels from each of `first` follow one another for all rows."""
    return not (breaks[..., first + count - 1] != breaks[..., first]).any()


def _kernel_lines(out: int, kernel: int, stride: int, pad: int, dilation: int) -> Ints:
    """Input line of (output line, kernel line), which may lie outside."""
    return np.arange(out)[:, None] * stride - pad + np.arange(kernel)[None, :] * dilation


def halo_table(
    graph: Graph,
    dtype: DType,
    lanes: Ints,
    params: ConvParams,
    out: tuple[int, int],
    kernel: tuple[int, int],
    window: Window,
    x0: Ints,
) -> RowTable | None:
    """The runs of blocks that begin at output pixels `x0`; None when a run would cross a border."""
    width = lanes.shape[-1]
    first = x0 * params.strides[2] - params.pads_lower[2]
    parts = [(first, window.left), (first + window.left, window.body)]
    parts.append((first + window.left + window.body, window.right))
    zero = zeros(graph, dtype, max(window.body, window.left, window.right) * LANES)
    nothing = int(zero.runs()[0][0])
    breaks = np.zeros(lanes.shape, np.int64)
    np.cumsum(np.diff(lanes, axis=-1) != LANES, axis=-1, out=breaks[..., 1:])
    starts: list[Ints] = []
    lengths: list[int] = []
    whole = True
    for at, count in parts:
        if count == 0:
            continue
        outside = (at >= width) | (at + count <= 0)
        partly = ((at < 0) | (at + count > width)) & ~outside
        if partly.any() or (count == window.body and outside.any()):
            return None
        safe = np.where(outside, 0, at)
        found = lanes[..., safe]
        good = safe[~outside]
        whole = whole and _runs_whole(breaks, good, count)
        whole = whole and one_piece(graph, lanes[..., good], count * LANES)
        starts.append(np.where(outside, nothing, found))
        lengths.append(count * LANES)
    table = np.stack(starts, -1)  # [blocks, N, D, H, X, steps]
    d = _kernel_lines(out[0], kernel[0], params.strides[0], params.pads_lower[0], params.dilations[0])
    h = _kernel_lines(out[1], kernel[1], params.strides[1], params.pads_lower[1], params.dilations[1])
    depth, height = lanes.shape[2:4]
    valid_d, valid_h = (d >= 0) & (d < depth), (h >= 0) & (h < height)
    rows = table[:, :, np.where(valid_d, d, 0)][:, :, :, :, np.where(valid_h, h, 0)]
    valid = valid_d[:, :, None, None] & valid_h[None, None]  # [od, kd, oh, kh]
    rows = np.where(valid[None, None, :, :, :, :, None, None], rows, nothing)
    # [blocks, N, od, kd, oh, kh, X, steps] -> [X, N, od, oh, blocks, kd, kh, steps]
    rows = rows.transpose(6, 1, 2, 4, 0, 3, 5, 7)
    shape = (len(x0), lanes.shape[1] * out[0] * out[1], lanes.shape[0], -1)
    length = np.tile(np.array(lengths, np.int64), kernel[0] * kernel[1])
    return RowTable(np.ascontiguousarray(rows.reshape(shape)), length, whole)


def blocked_copy(
    graph: Graph, x: Tensor, prog: Sequence, name: str, tiles: TileRange, pieces: tuple[int, ...] = ()
) -> Tensor:
    """x [N, C, *spatial] copied into a blocked variable, whole rows (or the pieces) on tiles.

    Returns the view of the same shape; the padding lanes are zero.
    """
    n, channels, *spatial = x.shape
    blocks = blocks_of(channels)
    widths = np.array(pieces or (spatial[-1],), np.int64)
    rows = n * blocks * int(np.prod(spatial[:-1], dtype=np.int64))
    if len(widths) == 1:
        mapping = block_mapping(spread(rows, tiles), spatial[-1] * LANES)
    else:
        mapping = piece_mapping(spread(rows * len(widths), tiles), widths)
    base, view = add_blocked(graph, x.dtype, tuple(x.shape), name, mapping)
    source = pad_view(graph, x, 1, 0, blocks * LANES - channels)
    prog.add(Copy(source, view_of_blocked(base, blocks * LANES)))
    return view


def piece_mapping(tile: npt.NDArray[np.int32], widths: Ints):  # type: ignore[no-untyped-def]
    """Pieces of `widths` pixels, row after row, each on its tile."""
    from poplar_py.poplar import Mapping

    sizes = np.tile(widths * LANES, len(tile) // len(widths))
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return Mapping(bounds, tile).normal()
