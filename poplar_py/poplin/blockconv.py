"""Convolutions by register blocks: blocked, planar (few channels) and depthwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Edges, Mapping
from poplar_py.poplar.program import Copy, Execute
from poplar_py.poplin.blocks import Blocks, Finish, Group, base_of
from poplar_py.poplin.epilogue import Inline
from poplar_py.poplin.generic import planar_input
from poplar_py.poplin.lanes import (
    RowTable,
    Window,
    blocked_copy,
    halo_table,
    one_piece,
    spatial_lanes,
    spatial_segments,
)
from poplar_py.poplin.params import ConvParams
from poplar_py.poplin.place import TileRange, block_mapping, dilate_view, pad_view, spread
from poplar_py.poplin.plan import Plan, Problem, piece_widths, plan_for
from poplar_py.poplin.weights import (
    Reduced,
    at_lanes,
    bias_constant,
    depthwise_stream,
    image_stream,
    piece_constant,
    place_pieces,
    planar_stream,
    reduced_blocks,
    stream_array,
    stream_tensor,
)
from poplar_py.poputil.blocked import LANES, blocks_of, lanes_of_images
from poplar_py.types import DType, f16, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.operands import Operand

__all__ = ["bias_tensor", "block_conv", "block_conv_applies", "residual_lanes"]

PLANAR_CHANNELS = 8
"""Fewer input channels than this are read as planar rows."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one convolution over three spatial dims."""

    n: int
    c: int
    spatial: tuple[int, int, int]
    o: int
    out: tuple[int, int, int]
    kernel: tuple[int, int, int]

    @property
    def kernel_rows(self) -> int:
        return self.kernel[0] * self.kernel[1]


@dataclass(frozen=True, slots=True)
class Job:
    """Where one convolution goes."""

    graph: Graph
    prog: Sequence
    name: str
    tiles: TileRange
    dtype: DType
    params: ConvParams
    shape: Shape
    unit: int = 0
    matrix: bool = False
    images: bool = False
    source: Ints | None = None
    """Addresses of the input's lanes when they are known already."""

    @property
    def depthwise(self) -> bool:
        return self.params.groups > 1 and self.params.groups == self.shape.c == self.shape.o

    @property
    def planar(self) -> bool:
        few = self.shape.c < PLANAR_CHANNELS
        return few and self.params.groups == 1 and not self.matrix and not self.images

    def lanes(self, x: Tensor) -> Ints | None:
        """Addresses of the lane vectors of x: [input blocks, N, D, H, W], or None."""
        if self.source is not None:
            return self.source
        found = spatial_lanes(self.graph, x)
        return channel_lanes(found, self.shape.n) if found is not None and self.images else found


def block_conv_applies(x: Tensor, w: Operand, dtype: DType, params: ConvParams) -> bool:
    """Whether the block kernels can do it: f32 or f16 throughout, few padded products."""
    if x.dtype not in (f32, f16) or dtype is not x.dtype:
        return False
    groups, outputs, channels = params.groups, w.shape[0], x.shape[1]
    if groups == 1 or groups == channels == outputs:
        return isinstance(w, np.ndarray) or groups == 1
    if not isinstance(w, np.ndarray):
        return False
    reduced = reduced_blocks(channels, outputs, groups, 1, blocks_of(outputs))
    return reduced.count * LANES <= 16 * (channels // groups)


def block_conv(
    graph: Graph,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    params: ConvParams,
    prog: Sequence,
    name: str,
    tiles: TileRange,
    form: Inline,
    residual: Tensor | None,
    unit: int = 0,
    matrix: bool = False,
    joined: bool = True,
) -> Tensor:
    """x [N, C, D, H, W] with w [O, C/G, kd, kh, kw], bias [O] and residual [N, O, D', H', W'].

    `matrix`: rows of a matrix product, `unit` of which belong together. `joined`: try to read
    joined tensors whose blocks are not full as they lie.
    """
    out = params.output_shape(x.shape, w.shape)
    images = not matrix and lanes_are_images(x, w, params)
    n = out[0] // LANES if images else out[0]
    shape = Shape(n, x.shape[1], x.shape[2:], out[1], out[2:], tuple(w.shape[2:]))  # type: ignore[arg-type]
    if images:
        x = lanes_of_images(x)
        residual = None if residual is None else lanes_of_images(residual)
    job = Job(graph, prog, name, tiles, x.dtype, params, shape, unit, matrix, images)
    segments = _joined_blocks(job, x, w) if joined else None
    taps: Operand = w
    if segments is not None and isinstance(w, np.ndarray):
        taps = at_lanes(w, segments[1])
        job = replace(job, shape=replace(shape, c=len(segments[1])), source=segments[0])
    plan = plan_for(graph, name, _problem(job))
    blocks = Blocks(graph, plan, shape.n, job.dtype, prog, name, tiles)
    groups = blocks.groups()
    found = _input_tables(job, x, groups)
    if found is None:
        return block_conv(
            graph, x, w, bias, params, prog, name, tiles, form, residual, unit, matrix, False
        )
    tables, windows = found
    weights, per_block, first = _weights(job, taps, blocks)
    finish = Finish(
        form,
        bias_tensor(graph, bias, plan, job.dtype, prog, name),
        residual_lanes(graph, residual, plan, prog, name, tiles),
    )
    base, view = blocks.output(shape.o, shape.out, name)
    target = base if plan.splits == 1 else blocks.partials(f"{name}/partials")
    cs = graph.add_compute_set(name)
    for g, table, window in zip(groups, tables, windows, strict=True):
        _add_group(job, blocks, g, table, window, weights, per_block, first, finish, target, cs)
    prog.add(Execute(cs))
    if plan.splits > 1:
        blocks.reduce(target, base, finish)
    return view


def _joined_blocks(job: Job, x: Tensor, w: Operand) -> tuple[Ints, Ints] | None:
    """Lanes of an input joined from blocked tensors at channels that are no multiples of 16."""
    plain = job.params.groups == 1 and job.params.input_dilations == (1, 1, 1)
    if not plain or job.planar or job.images or not isinstance(w, np.ndarray):
        return None
    if spatial_lanes(job.graph, x) is not None:
        return None
    return spatial_segments(job.graph, x)


def lanes_are_images(x: Tensor, w: Operand, params: ConvParams) -> bool:
    """Whether 16 images side by side beat 16 channels: batches of few channels."""
    n, channels = x.shape[:2]
    few = channels < LANES and w.shape[0] <= 2 * LANES
    return few and n % LANES == 0 and params.groups == 1 and isinstance(w, np.ndarray)


def channel_lanes(lanes: Ints, n: int) -> Ints:
    """Lanes of images [1, N C, ...] as [C, N, ...]."""
    return np.ascontiguousarray(lanes[0].reshape((n, -1, *lanes.shape[2:])).swapaxes(0, 1))


def _problem(job: Job) -> Problem:
    s, params = job.shape, job.params
    groups = params.groups
    out_blocks = blocks_of(s.o)
    limit = 0
    in_blocks, chans = blocks_of(s.c), LANES
    if job.depthwise:
        in_blocks = 1
    elif job.images:
        in_blocks, chans, out_blocks = s.c, 1, s.o
    elif job.planar:
        in_blocks, chans = s.c, 1
    elif groups > 1:
        per_out = s.o // groups
        limit = per_out // LANES if per_out % LANES == 0 else 1
        in_blocks = reduced_blocks(s.c, s.o, groups, 1, out_blocks).count
    wide = params.input_dilations == (1, 1, 1) and not job.planar
    return Problem(
        size=job.dtype.size,
        rows=s.n * s.out[0] * s.out[1],
        width=s.out[2],
        out_blocks=out_blocks,
        in_blocks=in_blocks,
        kernel_rows=s.kernel_rows,
        kernel_width=s.kernel[2],
        stride=params.strides[2],
        dilation=params.dilations[2],
        chans=chans,
        tiles=job.tiles.count,
        read_piece=piece_widths(s.spatial[2], job.unit)[0] if wide else 0,
        depthwise=job.depthwise,
        unit=job.unit,
        nb_limit=limit,
        images=job.images,
    )


# ---------------------------------------------------------------------- inputs
def _input_tables(
    job: Job, x: Tensor, groups: list[Group]
) -> tuple[list[RowTable], list[Window]] | None:
    """The rows of every vertex group, in place where they are whole, else from a copy.

    None when lanes known beforehand do not serve in place.
    """
    if job.planar:
        return _planar_tables(job, x, groups)
    kw = job.shape.kernel[2]
    windows = [Window.of(g.px, job.params, kw, True) for g in groups]
    if job.params.input_dilations == (1, 1, 1):
        lanes = job.lanes(x)
        if lanes is not None:
            tables = _halo_tables(job, job.params, lanes, groups, windows)
            if tables is not None and all(t.inside for t in tables):
                return tables, windows
    if job.source is not None:
        return None
    params = job.params
    for dim in range(3):
        x = dilate_view(job.graph, x, dim + 2, params.input_dilations[dim])
    low, high = params.pads_lower[2], params.pads_upper[2]
    x = pad_view(job.graph, x, 4, min(low, 0), min(high, 0))
    pads = (max(low, 0), max(high, 0))
    params = replace(
        params,
        pads_lower=(*params.pads_lower[:2], 0),
        pads_upper=(*params.pads_upper[:2], 0),
        input_dilations=(1, 1, 1),
    )
    copy = blocked_copy(job.graph, x, job.prog, f"{job.name}/rows", job.tiles, pads=pads)
    lanes = job.lanes(copy)
    assert lanes is not None
    windows = [Window.of(g.px, params, kw, False) for g in groups]
    tables = _halo_tables(job, params, lanes, groups, windows)
    assert tables is not None
    return tables, windows


def _halo_tables(
    job: Job, params: ConvParams, lanes: Ints, groups: list[Group], windows: list[Window]
) -> list[RowTable] | None:
    out, kernel = job.shape.out[:2], job.shape.kernel[:2]
    tables: list[RowTable] = []
    for g, window in zip(groups, windows, strict=True):
        table = halo_table(job.graph, job.dtype, lanes, params, out, kernel, window, g.x0)
        if table is None:
            return None
        tables.append(table)
    return tables


def _planar_tables(job: Job, x: Tensor, groups: list[Group]) -> tuple[list[RowTable], list[Window]]:
    params, s = job.params, job.shape
    planes = planar_input(job.graph, x, params, job.prog, f"{job.name}/planes", job.tiles)
    _, _, depth, height, chans, pitch = planes.shape
    kd, kh, kw = s.kernel
    d = np.arange(s.out[0])[:, None] * params.strides[0] + np.arange(kd) * params.dilations[0]
    h = np.arange(s.out[1])[:, None] * params.strides[1] + np.arange(kh) * params.dilations[1]
    # [N, od, oh, C, kd, kh]
    line = (
        np.arange(s.n).reshape(-1, 1, 1, 1, 1) * depth + d[None, :, None, :, None]
    ) * height + h[None, None, :, None, :]
    row = line[:, :, :, None] * chans + np.arange(chans).reshape(1, 1, 1, -1, 1, 1)
    start = base_of(planes) + row.reshape((s.n * s.out[0] * s.out[1], chans, kd * kh)) * pitch
    tables: list[RowTable] = []
    windows: list[Window] = []
    for g in groups:
        window = Window.of(g.px, params, kw, False)
        shift = (g.x0 * params.strides[2]).reshape(-1, 1, 1, 1)
        length = np.full(kd * kh, window.body, np.int64)
        tables.append(RowTable(start[None] + shift, length, True))
        windows.append(window)
    return tables, windows


# ---------------------------------------------------------------------- weights and extras
def _weights(job: Job, w: Operand, blocks: Blocks) -> tuple[Tensor, int, Ints]:
    """The stream, its elements per input block, and every output group's first input block."""
    plan, s = blocks.plan, job.shape
    rows, kw, nb = s.kernel_rows, s.kernel[2], plan.nb
    flat = w.reshape((*w.shape[:2], rows, kw))
    groups = plan.output_groups
    first = np.zeros(groups, np.int64)
    chans = LANES
    if job.depthwise:
        per_block, first = rows * kw * LANES, np.arange(groups)
    elif job.images:
        per_block = rows * kw * nb
    else:
        chans = 1 if job.planar else LANES
        per_block = rows * chans * nb * kw * LANES
    plain = job.depthwise or job.planar or job.images
    reduced = Reduced(first, plan.problem.in_blocks)
    if not plain:
        reduced = reduced_blocks(s.c, s.o, job.params.groups, nb, plan.problem.out_blocks)
    sizes = np.tile(np.diff(blocks.split_bounds) * per_block, groups)
    lo, hi = blocks.weight_users()
    name = f"{job.name}/weights"
    if isinstance(flat, np.ndarray):
        data = _stream(job, flat, plan, reduced)
        tensor = piece_constant(job.graph, data, sizes, lo, hi, job.dtype, name)
    else:
        tensor = _computed_weights(job, flat, blocks, sizes, lo, hi, name)
    return tensor, per_block, first if plain else reduced.first


def _stream(job: Job, w: npt.NDArray[Any], plan: Plan, reduced: Reduced) -> npt.NDArray[Any]:
    if job.depthwise:
        return depthwise_stream(w)
    if job.images:
        return image_stream(w, plan.nb)
    if job.planar:
        return planar_stream(w, plan.nb, plan.problem.out_blocks)
    out_blocks = plan.problem.out_blocks
    return stream_array(w, job.params.groups, job.shape.c, plan.nb, out_blocks, reduced)


def _computed_weights(
    job: Job, w: Tensor, blocks: Blocks, sizes: Ints, lo: Ints, hi: Ints, name: str
) -> Tensor:
    tile = place_pieces(job.graph, lo, hi, sizes * job.dtype.size)
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    mapping = Mapping(bounds, tile).normal()
    plan = blocks.plan
    out_blocks = plan.problem.out_blocks
    lanes = 1 if job.planar else LANES
    return stream_tensor(job.graph, w, plan.nb, out_blocks, mapping, job.prog, name, lanes)


def bias_tensor(
    graph: Graph, bias: Operand | None, plan: Plan, dtype: DType, prog: Sequence, name: str
) -> Tensor | None:
    """The bias as whole blocks [16 out_blocks], one piece an output group."""
    if bias is None:
        return None
    size = plan.problem.out_blocks * plan.bias_lanes
    tiles = TileRange(0, graph.target.num_tiles)
    mapping = block_mapping(spread(plan.output_groups, tiles), plan.nb * plan.bias_lanes)
    if isinstance(bias, np.ndarray):
        data = bias_constant(bias, size, dtype)
        return graph.add_constant(dtype, data.shape, data, f"{name}/bias", mapping=mapping)
    full = graph.add_variable(dtype, (size,), f"{name}/bias", mapping=mapping)
    prog.add(Copy(pad_view(graph, bias, 0, 0, size - bias.shape[0]), full))
    return full


def residual_lanes(
    graph: Graph,
    residual: Tensor | None,
    plan: Plan,
    prog: Sequence,
    name: str,
    tiles: TileRange,
) -> Ints | None:
    """Addresses [out_blocks, rows, width] of a residual [N, O, D, H, W], copied if it must be."""
    if residual is None:
        return None
    lanes = spatial_lanes(graph, residual)
    if lanes is None or not _in_pieces(graph, lanes, plan):
        copy = blocked_copy(graph, residual, prog, f"{name}/residual", tiles, plan.pieces)
        lanes = spatial_lanes(graph, copy)
        assert lanes is not None
    if plan.problem.images:
        lanes = channel_lanes(lanes, lanes.shape[1] // plan.problem.out_blocks)
    return lanes.reshape((lanes.shape[0], -1, lanes.shape[-1]))


def _in_pieces(graph: Graph, lanes: Ints, plan: Plan) -> bool:
    """Whether every piece of every row is one run of one tile."""
    widths = np.array(plan.pieces, np.int64)
    begin = np.cumsum(widths) - widths
    first, last = lanes[..., begin], lanes[..., begin + widths - 1]
    steps = np.diff(lanes, axis=-1) != LANES
    steps[..., begin[1:] - 1] = False
    if steps.any() or (last - first != (widths - 1) * LANES).any():
        return False
    return one_piece(graph, first, np.broadcast_to(widths * LANES, first.shape))


# ---------------------------------------------------------------------- vertices
def _add_group(
    job: Job,
    blocks: Blocks,
    g: Group,
    table: RowTable,
    window: Window,
    weights: Tensor,
    per_block: int,
    first: Ints,
    finish: Finish,
    target: Tensor,
    cs: Any,
) -> None:
    plan, nb = blocks.plan, blocks.plan.nb
    partial = plan.splits > 1
    form = Inline() if partial else finish.form
    edges = blocks.common_edges(g, table, first, finish, target)
    edges["w"] = blocks.stream_edges(g, base_of(weights), per_block)
    kw = job.shape.kernel[2]
    stride = job.params.strides[2] if g.px > 1 else 1
    dilation = job.params.dilations[2] if kw > 1 else 1
    halo = f"{window.left},{window.right},{form.code}"
    kind = f"{job.dtype.name},{kw},{stride},{dilation},{g.px}"
    if job.depthwise:
        codelet = f"poplin::DepthwiseBlock<{kind},{halo}>"
        out = edges["out"]
        edges["out"] = Edges.from_runs(out.eptr, out.start, out.length, job.dtype)
    elif job.images:
        codelet = f"poplin::LaneConv<{kind},{nb},{halo}>"
    else:
        lanes = "1,1" if job.planar else f"{LANES},{LANES}"
        flag = "true" if partial else "false"
        codelet = f"poplin::ConvBlock<{kind},{nb},{lanes},{halo},{flag}>"
    state: dict[str, Any] = {"lo": form.lo, "hi": form.hi}
    if not job.depthwise and not job.images:
        state |= blocks.hints(g, per_block)
    order = blocks.order(g)
    tiles = blocks.tile_of(g)
    job.graph.add_vertices(cs, codelet, tiles, edges, state, order=order, name=job.name)
