"""Convolutions by register blocks: blocked, planar (few channels) and depthwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Edges, Mapping
from poplar_py.poplar.program import Copy
from poplar_py.poplin.blocks import Blocks, Finish, Group, base_of
from poplar_py.poplin.epilogue import Inline
from poplar_py.poplin.inputs import Job, Shape, channel_lanes, input_tables
from poplar_py.poplin.lanes import (
    Window,
    blocked_copy,
    one_piece,
    spatial_lanes,
    spatial_segments,
)
from poplar_py.poplin.params import ConvForm
from poplar_py.poplin.place import TileRange, block_mapping, pad_view, spread
from poplar_py.poplin.plan import Machine, Plan, Problem, make_plan, piece_widths, remember
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
    from poplar_py.poplar.groups import ComputeSet
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.operands import Operand

__all__ = ["bias_tensor", "block_conv", "block_conv_applies", "residual_lanes"]

Ints = npt.NDArray[np.int64]


def block_conv_applies(x: Tensor, w: Operand, dtype: DType, params: ConvForm) -> bool:
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
    params: ConvForm,
    prog: Sequence,
    name: str,
    tiles: TileRange,
    form: Inline,
    residual: Tensor | None,
    unit: int = 0,
    matrix: bool = False,
) -> Tensor:
    """x [N, C, D, H, W] with w [O, C/G, kd, kh, kw], bias [O] and residual [N, O, D', H', W'].

    `matrix`: rows of a matrix product, `unit` of which belong together.
    """
    out = params.output_shape(x.shape, w.shape)
    images = not matrix and lanes_are_images(x, w, params)
    n = out[0] // LANES if images else out[0]
    shape = Shape(n, x.shape[1], x.shape[2:], out[1], out[2:], tuple(w.shape[2:]))  # type: ignore[arg-type]
    if images:
        x = lanes_of_images(x)
        residual = None if residual is None else lanes_of_images(residual)
    job = Job(graph, prog, name, tiles, x.dtype, params, shape, unit, matrix, images)
    made = _made(job, x, w, bias, form, residual, joined=True)
    if made is None:  # joined tensors do not serve as they lie
        made = _made(job, x, w, bias, form, residual, joined=False)
    assert made is not None
    return made


def _made(
    job: Job,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    form: Inline,
    residual: Tensor | None,
    *,
    joined: bool,
) -> Tensor | None:
    """The product in the graph. `joined`: try to read joined tensors whose blocks are not full as
    they lie; None when they cannot be."""
    segments = _joined_blocks(job, x, w) if joined else None
    taps: Operand = w
    if segments is not None and isinstance(w, np.ndarray):
        taps = at_lanes(w, segments[1])
        job = replace(job, shape=replace(job.shape, c=len(segments[1])), source=segments[0])
    graph, prog, name, tiles = job.graph, job.prog, job.name, job.tiles
    extras = (bias is not None) + (residual is not None)
    plan = make_plan(_problem(job, extras, form.act, residual is not None))
    blocks = Blocks(graph, plan, job.shape.n, job.dtype, prog, name, tiles)
    found = input_tables(job, x, blocks.groups())
    if found is None:
        return None
    remember(graph, name, plan)
    stream = _weights(job, taps, blocks)
    finish = Finish(
        form,
        bias_tensor(graph, bias, plan, job.dtype, prog, name),
        residual_lanes(graph, residual, plan, prog, name, tiles),
    )
    base, view = blocks.output(job.shape.o, job.shape.out, name)
    for cs, groups, target in blocks.steps(base, finish):
        for g, table, window in zip(groups, *found, strict=True):
            edges = blocks.common_edges(g, table, stream.first, finish, target)
            edges["w"] = blocks.stream_edges(g, base_of(stream.tensor), stream.per_block)
            _add_group(job, blocks, g, edges, window, finish.form, stream.per_block, cs)
    return view


@dataclass(frozen=True, slots=True)
class _Stream:
    """Weights in streaming order, elements an input block, each output group's first block."""

    tensor: Tensor
    per_block: int
    first: Ints


def _joined_blocks(job: Job, x: Tensor, w: Operand) -> tuple[Ints, Ints] | None:
    """Lanes of an input joined from blocked tensors at channels that are no multiples of 16."""
    plain = job.params.groups == 1 and job.params.input_dilations == (1, 1, 1)
    if not plain or job.planar or job.images or not isinstance(w, np.ndarray):
        return None
    if spatial_lanes(job.graph, x) is not None:
        return None
    return spatial_segments(job.graph, x)


def lanes_are_images(x: Tensor, w: Operand, params: ConvForm) -> bool:
    """Whether 16 images side by side beat 16 channels: batches of few channels."""
    n, channels = x.shape[:2]
    few = channels < LANES and w.shape[0] <= 2 * LANES
    return few and n % LANES == 0 and params.groups == 1 and isinstance(w, np.ndarray)


def _problem(job: Job, extras: int, act: int, residual: bool) -> Problem:
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
        row_stride=params.strides[1],
        extras=extras,
        act=act,
        residual=residual,
        memory=job.tiles.memory,
        machine=Machine.of(job.graph.target),
    )


# ---------------------------------------------------------------------- weights and extras
def _weights(job: Job, w: Operand, blocks: Blocks) -> _Stream:
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
    return _Stream(tensor, per_block, first if plain else reduced.first)


def _stream(job: Job, w: npt.NDArray[Any], plan: Plan, reduced: Reduced) -> npt.NDArray[Any]:
    if job.depthwise:
        return depthwise_stream(w)
    if job.images:
        return image_stream(w, plan.nb)
    if job.planar:
        return planar_stream(w, plan.nb, plan.problem.out_blocks)
    out_blocks = plan.problem.out_blocks
    return stream_array(w, job.params.groups, plan.nb, out_blocks, reduced)


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
    edges: dict[str, Edges],
    window: Window,
    finish: Inline,
    per_block: int,
    cs: ComputeSet,
) -> None:
    form = Inline() if blocks.plan.splits > 1 else finish
    state: dict[str, Any] = {"lo": form.lo, "hi": form.hi}
    if not job.depthwise and not job.images:
        state |= blocks.hints(g, per_block)
    codelet = _codelet(job, blocks.plan, g.px, window, form)
    order, tiles = blocks.order(g), blocks.tile_of(g)
    job.graph.add_vertices(cs, codelet, tiles, edges, state, order=order, name=job.name)


def _codelet(job: Job, plan: Plan, px: int, window: Window, form: Inline) -> str:
    """The kernel of a vertex of blocks of `px` pixels."""
    kw = job.shape.kernel[2]
    stride = job.params.strides[2] if px > 1 else 1
    dilation = job.params.dilations[2] if kw > 1 else 1
    halo = f"{window.left},{window.right},{form.code}"
    kind = f"{job.dtype.name},{kw},{stride},{dilation},{px}"
    if job.depthwise:
        return f"poplin::DepthwiseBlock<{kind},{halo}>"
    if job.images:
        return f"poplin::LaneConv<{kind},{plan.nb},{halo}>"
    lanes = "1,1" if job.planar else f"{LANES},{LANES}"
    flag = "true" if plan.splits > 1 else "false"
    return f"poplin::ConvBlock<{kind},{plan.nb},{lanes},{halo},{flag}>"
