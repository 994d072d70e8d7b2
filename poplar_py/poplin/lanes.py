"""Where the kernels' rows lie: tables of addresses, and copies where nothing fits in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Edges, Mapping
from poplar_py.poplar.arrays import offsets_of, ragged
from poplar_py.poplar.program import Copy, Execute
from poplar_py.poplin.place import TileRange, pad_view, spread, zeros
from poplar_py.poplin.plan import piece_widths
from poplar_py.poputil.blocked import (
    LANES,
    add_blocked,
    blocks_of,
    lane_addresses,
    lane_segments,
    variable_bases,
)
from poplar_py.types import DType, f16, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.params import ConvForm

__all__ = [
    "RowTable",
    "Window",
    "blocked_copy",
    "blocked_like",
    "halo_table",
    "one_piece",
    "spatial_lanes",
]

Ints = npt.NDArray[np.int64]
WIDE_KERNEL = 11
"""Kernels of more columns run in a loop, whose windows come as one run."""


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
    def of(px: int, params: ConvForm, kernel_width: int, halo: bool) -> Window:
        """The window of a block; without `halo` (or for a wide kernel) all is body."""
        stride, dilation = params.strides[-1], params.dilations[-1]
        reach = (px - 1) * stride + (kernel_width - 1) * dilation + 1
        if not halo or kernel_width > WIDE_KERNEL:
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


def spatial_segments(graph: Graph, x: Tensor) -> tuple[Ints, Ints] | None:
    """Addresses [blocks, N, D, H, W] and the channel of every lane (-1 padding), or None."""
    return lane_segments(graph, x.dim_shuffle((0, 2, 3, 4, 1)))


def one_piece(graph: Graph, start: Ints, length: Ints | int) -> bool:
    """Whether each run lies in the memory of one tile."""
    flat = start.ravel()
    size = np.broadcast_to(length, start.shape).ravel()
    ids = np.searchsorted(variable_bases(graph), flat, "right") - 1
    numbers: list[int] = ids.tolist()
    for var in set(numbers):
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


def _kernel_lines(params: ConvForm, dim: int, out: int, kernel: int) -> Ints:
    """Input line of (output line, kernel line) along a dim, which may lie outside."""
    stride, pad, dilation = params.strides[dim], params.pads_lower[dim], params.dilations[dim]
    return np.arange(out)[:, None] * stride - pad + np.arange(kernel)[None, :] * dilation


def halo_table(
    graph: Graph,
    dtype: DType,
    lanes: Ints,
    params: ConvForm,
    out: tuple[int, int],
    kernel: tuple[int, int],
    window: Window,
    x0: Ints,
) -> RowTable | None:
    """The runs of blocks that begin at output pixels `x0`; None when a run would cross a border."""
    zero = zeros(graph, dtype, max(window.body, window.left, window.right) * LANES)
    nothing = int(zero.runs()[0][0])
    first = x0 * params.strides[2] - params.pads_lower[2]
    found = _window_runs(graph, lanes, window, first, nothing)
    if found is None:
        return None
    table, lengths, whole = found  # table: [blocks, N, D, H, X, steps]
    d, h = (_kernel_lines(params, dim, out[dim], kernel[dim]) for dim in (0, 1))
    depth, height = lanes.shape[2:4]
    valid_d, valid_h = (d >= 0) & (d < depth), (h >= 0) & (h < height)
    rows = table[:, :, np.where(valid_d, d, 0)][:, :, :, :, np.where(valid_h, h, 0)]
    valid: npt.NDArray[np.bool_] = valid_d[:, :, None, None] & valid_h[None, None]
    # [od, kd, oh, kh]
    rows = np.where(valid[None, None, :, :, :, :, None, None], rows, nothing)
    # [blocks, N, od, kd, oh, kh, X, steps] -> [X, N, od, oh, blocks, kd, kh, steps]
    rows = rows.transpose(6, 1, 2, 4, 0, 3, 5, 7)
    shape = (len(x0), lanes.shape[1] * out[0] * out[1], lanes.shape[0], -1)
    length = np.tile(np.array(lengths, np.int64), kernel[0] * kernel[1])
    return RowTable(np.ascontiguousarray(rows.reshape(shape)), length, whole)


def _window_runs(
    graph: Graph, lanes: Ints, window: Window, first: Ints, nothing: int
) -> tuple[Ints, list[int], bool] | None:
    """The runs of windows from pixel `first` on: starts [..., X, steps] (`nothing` outside the
    row), lengths, and whether each lies in one piece; None when a run would cross a border."""
    width = lanes.shape[-1]
    breaks = np.zeros(lanes.shape, np.int64)
    np.cumsum(np.diff(lanes, axis=-1) != LANES, axis=-1, out=breaks[..., 1:])
    begins = (first, first + window.left, first + window.left + window.body)
    starts: list[Ints] = []
    lengths: list[int] = []
    whole = True
    for at, count in zip(begins, (window.left, window.body, window.right), strict=True):
        if count == 0:
            continue
        outside = (at >= width) | (at + count <= 0)
        partly = ((at < 0) | (at + count > width)) & ~outside
        if partly.any() or (count == window.body and outside.any()):
            return None
        good = at[~outside]
        whole = whole and _runs_whole(breaks, good, count)
        whole = whole and one_piece(graph, lanes[..., good], count * LANES)
        starts.append(np.where(outside, nothing, lanes[..., np.where(outside, 0, at)]))
        lengths.append(count * LANES)
    return np.stack(starts, -1), lengths, whole


ROW_BYTES = 1 << 16
"""Rows of more bytes are not kept on one tile."""
ROW_PIXELS = 64
"""Few long rows are cut into pieces of as many pixels or more, so that more tiles take part."""


def blocked_copy(
    graph: Graph,
    x: Tensor,
    prog: Sequence,
    name: str,
    tiles: TileRange,
    pieces: tuple[int, ...] = (),
    pads: tuple[int, int] = (0, 0),
) -> Tensor:
    """x [N, C, *spatial] copied into a blocked variable, whole rows (or the pieces) on tiles.

    `pads` are zero pixels before and after each row (whole rows only). Returns the view of the
    (padded) shape; the padding lanes are zero. Rows that are runs of the last dim are turned into
    lanes by vertices, everything else moves in one Copy.
    """
    n, channels, *spatial = x.shape
    width = spatial[-1] + sum(pads)
    blocks = blocks_of(channels)
    lines = int(np.prod(spatial[:-1], dtype=np.int64))
    cuts = -(-width * LANES * x.dtype.size // ROW_BYTES)
    cuts = max(cuts, min(tiles.count // max(n * blocks * lines, 1), width // ROW_PIXELS))
    if not pieces and cuts > 1:
        x, pads = pad_view(graph, x, x.rank - 1, *pads), (0, 0)
        spatial[-1] = width
        unit = blocks_of(-(-width // cuts)) * LANES  # whole blocks of 16 x 16 stay together
        pieces = tuple(min(unit, width - at) for at in range(0, width, unit))
    widths = np.array(pieces or (width,), np.int64)
    tile = spread(n * blocks * lines * len(widths), tiles)
    mapping = piece_mapping(tile, widths)
    shape = (n, channels, *spatial[:-1], width)
    base, view = add_blocked(graph, x.dtype, shape, name, mapping)
    lanes = x.dtype in (f32, f16) and x.numel >= LANE_VERTICES
    found = _row_runs(x, widths) if lanes else None
    if found is not None:
        rows = found[0].reshape((n, channels, lines, len(widths)))
        _lanes_by_vertices(graph, x.dtype, rows, found[1], base, tile, widths, pads, prog, name)
        return view
    source = pad_view(graph, x, len(shape) - 1, *pads)
    source = pad_view(graph, source, 1, 0, blocks * LANES - channels)
    # in the order of the blocks: lanes that lie side by side already move together
    split = source.reshape((n, blocks, LANES, *shape[2:]))
    rank = split.rank
    prog.add(Copy(split.dim_shuffle((0, 1, *range(3, rank), 2)), base))
    return view


def blocked_like(
    graph: Graph, tensor: Tensor, dtype: DType, shape: tuple[int, ...], name: str
) -> Tensor | None:
    """A new activation [N, C, *spatial] in pieces on tiles, seen in that shape.

    None unless `tensor` has that shape, C is a multiple of 16 and its channels lie in whole blocks.
    """
    if len(shape) < 3 or tuple(tensor.shape) != shape or shape[1] % LANES or 0 in shape:
        return None
    order = (0, *range(2, len(shape)), 1)
    if lane_addresses(graph, tensor.dim_shuffle(order)) is None:
        return None
    widths = np.array(piece_widths(shape[-1]), np.int64)
    rows = shape[0] * blocks_of(shape[1]) * int(np.prod(shape[2:-1], dtype=np.int64))
    tile = spread(rows * len(widths), TileRange(0, graph.num_tiles))
    return add_blocked(graph, dtype, shape, name, piece_mapping(tile, widths))[1]


LANE_VERTICES = 2048
"""Fewest elements for which vertices, not a Copy, turn rows into lanes."""


MAX_STEP = 8
"""Rows whose elements are further apart move as single elements."""


def _row_runs(x: Tensor, widths: Ints) -> tuple[Ints, int] | None:
    """Address of every piece of every row of x [N, C, *spatial], [rows, pieces], and the step from
    element to element; None when rows are nothing of the kind.

    Pieces must have at least 4 elements; pads are no part of them.
    """
    width = x.shape[-1]
    if width < 4 or x.shape[1] < 2:
        return None
    start, length = x.runs()
    offsets = np.cumsum(widths) - widths if len(widths) > 1 else np.zeros(1, np.int64)
    if (length == 1).all():
        rows = start.reshape((-1, width))
        step = int(rows[0, 1] - rows[0, 0])
        if not 2 <= step <= MAX_STEP or (np.diff(rows, axis=1) != step).any():
            return None
        return rows[:, :1] + offsets * step, step
    same = len(widths) > 1 and bool((widths == widths[0]).all())
    unit = int(widths[0]) if same and widths[0] >= 4 else width
    if (length % unit).any():
        return None
    owner, rank = ragged(length // unit)
    found = (start[owner] + rank * unit).reshape((-1, width // unit))
    return (found if unit != width else found + offsets), 1


def _lanes_by_vertices(
    graph: Graph,
    dtype: DType,
    rows: Ints,
    step: int,
    base: Tensor,
    tile: npt.NDArray[np.int32],
    widths: Ints,
    pads: tuple[int, int],
    prog: Sequence,
    name: str,
) -> None:
    """A step whose vertices each make one piece of one row of one block.

    `rows`: addresses [N, C, lines, pieces]; their elements are `step` apart.
    """
    n, channels, lines, _ = rows.shape
    blocks = blocks_of(channels)
    at, block, line, piece = (v.ravel() for v in np.indices((n, blocks, lines, len(widths))))
    low, high = pads if len(widths) == 1 else (0, 0)
    inner = widths[piece] - low - high
    lanes = np.minimum(LANES, channels - block * LANES)
    vertex, lane = ragged(lanes)
    start = rows[at[vertex], block[vertex] * LANES + lane, line[vertex], piece[vertex]]
    reach = (inner[vertex] - 1) * step + 1
    runs = Edges.from_runs(np.arange(len(start) + 1), start, reach, dtype)
    size = widths[piece] * LANES
    out = int(base.runs()[0][0]) + np.cumsum(size) - size
    edges = {
        "out": Edges.from_runs(np.arange(len(out) + 1), out, size, dtype),
        "x": Edges.nested(offsets_of(lanes), runs),
    }
    state = {"width": inner, "low": low, "high": high, "step": step}
    cs = graph.add_compute_set(name)
    order = np.stack([line * 4096 // lines, at, block, line, piece], 1)
    codelet = f"poplin::LaneBlock<{dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, state, order=order, name=name)
    prog.add(Execute(cs))


def piece_mapping(tile: npt.NDArray[np.int32], widths: Ints) -> Mapping:
    """Pieces of `widths` pixels, row after row, each on its tile."""
    sizes = np.tile(widths * LANES, len(tile) // len(widths))
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return Mapping(bounds, tile).normal()
