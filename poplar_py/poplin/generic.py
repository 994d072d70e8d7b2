"""Matrix product and convolution for any element type and shape, by one simple vertex a block.

Operands are read where they are; nothing is assumed about their layout. The block kernels
(`blocks.py`) are many times faster where they apply.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.poplar import Edges
from poplar_py.poplar.program import Copy, Execute
from poplar_py.poplin.place import TileRange, Tiles, block_mapping, dilate_view, pad_view, spread
from poplar_py.types import DType, bf16, f16, f32, f64, i32, i64, u32, u64

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.arrays import Ints
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.params import ConvForm

__all__ = ["accumulator", "generic_conv", "generic_mat_mul"]

_WIDE = {f64: f64, i64: i64, u64: u64, f32: f32, f16: f32, bf16: f32}


def accumulator(out: DType) -> DType:
    """The type a result of type `out` is summed in."""
    if out in _WIDE:
        return _WIDE[out]
    return u32 if out.kind == "u" else i32


def _optional(bias: Tensor | None, lo: np.ndarray, size: np.ndarray) -> Edges:
    """A rank-2 field with one edge a vertex, or none."""
    n = len(lo)
    if bias is None:
        none = np.zeros(0, np.int64)
        edges = Edges.from_runs(np.zeros(1, np.int64), none, none)
        return Edges.nested(np.zeros(n + 1, np.int64), edges)
    return Edges.nested(np.arange(n + 1), Edges.boxes(bias, lo[:, None], size[:, None]))


def _block_sizes(batch: int, m: int, n: int, tiles: int) -> tuple[int, int]:
    """Rows and columns of a block, so that there are about as many blocks as tiles."""
    cols = min(n, 64)
    rows = max(1, -(-m // max(1, tiles // max(1, batch * -(-n // cols)))))
    while cols > 16 and batch * -(-m // rows) * -(-n // cols) * 2 <= tiles:
        cols = max(16, (cols // 2 + 15) // 16 * 16)
    return min(rows, m), cols


def generic_mat_mul(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    out_dtype: DType,
    prog: Sequence,
    name: str,
    tiles: TileRange,
) -> Tensor:
    """a [B, M, K] times b [B, K, N] plus bias [N]; summed in `accumulator(out_dtype)`."""
    (batch, m, k), n = a.shape, b.shape[2]
    rows, cols = _block_sizes(batch, m, n, tiles.count)
    grid = (batch, -(-m // rows), -(-n // cols))
    tile = spread(prod(grid), tiles)
    mapping = block_mapping(tile, rows * cols)
    blocks = graph.add_variable(out_dtype, (*grid, rows, cols), name, mapping=mapping)
    at, r, c = (v.ravel() for v in np.indices(grid))
    used_rows = np.minimum(rows, m - r * rows)
    used_cols = np.minimum(cols, n - c * cols)
    zero, one, all_k = (np.full(len(tile), v) for v in (0, 1, k))
    begin = np.arange(len(tile)) * rows * cols
    edges = {
        "out": Edges.flat(blocks.flatten(), begin, begin + rows * cols),
        "a": _boxes(a, (at, r * rows, zero), (one, used_rows, all_k)),
        "b": _boxes(b, (at, zero, c * cols), (one, all_k, used_cols)),
        "bias": _optional(bias, c * cols, used_cols),
    }
    state = {"rows": used_rows, "cols": used_cols, "k": k, "pitch": cols}
    codelet = f"poplin::MatMul<{a.dtype},{b.dtype},{accumulator(out_dtype)},{out_dtype}>"
    _execute(graph, codelet, tile, edges, state, prog, name)
    view = blocks.dim_shuffle((0, 1, 3, 2, 4)).reshape((batch, grid[1] * rows, grid[2] * cols))
    return view.slice(0, m, 1).slice(0, n, 2)


def _boxes(t: Tensor, lo: tuple[Ints, ...], size: tuple[Ints, ...]) -> Edges:
    """A box of t for every vertex, given dim by dim."""
    return Edges.boxes(t, np.stack(lo, 1), np.stack(size, 1))


def _execute(
    graph: Graph,
    codelet: str,
    tile: Tiles,
    edges: dict[str, Edges],
    state: dict[str, Any],
    prog: Sequence,
    name: str,
) -> None:
    """A compute set of one codelet's vertices."""
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    prog.add(Execute(cs))


def planar_input(
    graph: Graph,
    x: Tensor,
    params: ConvForm,
    prog: Sequence,
    name: str,
    tiles: TileRange,
) -> Tensor:
    """x [N, C, D, H, W], dilated and padded, as a variable [N, G, D, H, C/G, W]: rows on tiles."""
    for dim in range(3):
        x = dilate_view(graph, x, dim + 2, params.input_dilations[dim])
        x = pad_view(graph, x, dim + 2, params.pads_lower[dim], params.pads_upper[dim])
    n, c, d, h, w = x.shape
    g = params.groups
    mapping = block_mapping(spread(n * g * d * h, tiles), c // g * w)
    planes = graph.add_variable(x.dtype, (n, g, d, h, c // g, w), name, mapping=mapping)
    source = x.reshape((n, g, c // g, d, h, w))
    prog.add(Copy(source, planes.dim_shuffle((0, 1, 4, 2, 3, 5))))
    return planes


def _channels_per_vertex(outs: int, rows: int, tiles: int) -> int:
    """Output channels of one vertex: a divisor of `outs` that fills the tiles about once."""
    best = outs
    for size in range(1, outs + 1):
        if outs % size == 0 and rows * (outs // size) <= max(tiles, rows):
            best = size
            break
    return best


def _row_edges(
    planes: Tensor, params: ConvForm, kernel: tuple[int, int], image: Ints, line: tuple[Ints, Ints]
) -> Edges:
    """x: for every vertex one edge a kernel row, all channels of a padded input row.

    `image`: the vertex's number among [N, G]; `line`: its output's depth and height.
    """
    kd, kh = kernel
    depth, height, chans, pitch = planes.shape[2:]
    ky = np.arange(kd * kh)
    rows_d = line[0][:, None] * params.strides[0] + ky // kh * params.dilations[0]
    rows_h = line[1][:, None] * params.strides[1] + ky % kh * params.dilations[1]
    first = (image[:, None] * depth + rows_d) * height + rows_h
    begin = (first * (chans * pitch)).ravel()
    rows = Edges.flat(planes.flatten(), begin, begin + chans * pitch)
    return Edges.nested(np.arange(len(image) + 1) * (kd * kh), rows)


def _kernel_edges(w: Tensor, group: Ints, chunk: Ints) -> Edges:
    """w: the weights [groups, chunks, outputs, channels, kernel rows, kw] of each vertex's chunk,
    kernel row by kernel row."""
    weights = w.dim_shuffle((0, 1, 2, 4, 3, 5))
    lo = np.zeros((len(group), 6), np.int64)
    lo[:, 0], lo[:, 1] = group, chunk
    size = np.tile(np.array([1, 1, *weights.shape[2:]]), (len(group), 1))
    return Edges.boxes(weights, lo, size)


def generic_conv(
    graph: Graph,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    params: ConvForm,
    out_dtype: DType,
    prog: Sequence,
    name: str,
    tiles: TileRange,
) -> Tensor:
    """x [N, C, D, H, W] with w [O, C/G, kd, kh, kw]: [N, O, D', H', W'] (three dims always)."""
    n, outs, od, oh, ow = params.output_shape(x.shape, w.shape)
    if 0 in (n, outs, od, oh, ow):
        return graph.add_variable(out_dtype, (n, outs, od, oh, ow), name)
    planes = planar_input(graph, x, params, prog, f"{name}/planes", tiles)
    g, (kd, kh, kw) = params.groups, w.shape[2:]
    chans, pitch = planes.shape[4], planes.shape[5]
    co = _channels_per_vertex(outs // g, n * g * od * oh, tiles.count)
    chunks = outs // g // co
    shape = (n, g, chunks, od, oh)
    tile = spread(prod(shape), tiles)
    mapping = block_mapping(tile, co * ow)
    result = graph.add_variable(out_dtype, (*shape, co, ow), name, mapping=mapping)
    at, gi, ci, di, hi = (v.ravel() for v in np.indices(shape))
    edges = {
        "out": _line_edges(result, len(tile)),
        "x": _row_edges(planes, params, (kd, kh), at * g + gi, (di, hi)),
        "w": _kernel_edges(w.reshape((g, chunks, co, chans, kd * kh, kw)), gi, ci),
        "bias": _optional(bias, (gi * chunks + ci) * co, np.full(len(tile), co)),
    }
    state = {"width": ow, "chans": chans, "pitch": pitch, "kw": kw}
    state |= {"stride": params.strides[2], "dilation": params.dilations[2]}
    codelet = f"poplin::Conv<{x.dtype},{w.dtype},{accumulator(out_dtype)},{out_dtype}>"
    _execute(graph, codelet, tile, edges, state, prog, name)
    view = result.dim_shuffle((0, 1, 2, 5, 3, 4, 6))
    return view.reshape((n, outs, od, oh, ow))


def _line_edges(result: Tensor, count: int) -> Edges:
    """out [..., outputs, width]: one edge an output channel for each of `count` vertices."""
    outputs, width = result.shape[-2:]
    begin = np.arange(count * outputs) * width
    lines = Edges.flat(result.flatten(), begin, begin + width)
    return Edges.nested(np.arange(count + 1) * outputs, lines)
