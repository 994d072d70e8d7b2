"""Operands created where and how a planned product reads them.

The product is lowered once on a graph of its own, with operands in the form it reads in place. Each
piece of the operand then goes to the tile that uses most of it, so that the real product moves
nothing but what several tiles share. Both operands of a product agree on its tiles.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import Graph, Mapping
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program import Copy, Sequence
from poplar_py.poplin.blocks import base_of
from poplar_py.poplin.convolution import convolution
from poplar_py.poplin.created import note_stream, note_tiles, shared_tiles
from poplar_py.poplin.matmul import mat_mul
from poplar_py.poplin.place import spread
from poplar_py.poplin.plan import piece_widths
from poplar_py.poputil.blocked import LANES, add_blocked, blocks_of
from poplar_py.poputil.layout import mapping_of
from poplar_py.types import DType, f16, f32

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from poplar_py.poplar import Tensor
    from poplar_py.poplar.variable import Variable
    from poplar_py.poplin.conv_params import ConvParams
    from poplar_py.poplin.place import TileRange

__all__ = [
    "create_biases",
    "create_input",
    "create_mat_mul_grouped_input_lhs",
    "create_mat_mul_grouped_input_rhs",
    "create_mat_mul_input_lhs",
    "create_mat_mul_input_rhs",
    "create_weights",
    "pre_arrange_mat_mul_input_rhs",
]

Ints = npt.NDArray[np.int64]


# ---------------------------------------------------------------------- matrices
def create_mat_mul_input_lhs(
    graph: Graph, dtype: DType, a: Items[int], b: Items[int], name: str = "lhs"
) -> Tensor:
    """A variable of shape a [.., M, K] for the product with one of shape b [.., K, N].

    `mat_mul` reads it where it lies. Raises ShapeError when the two cannot be multiplied.
    """
    return _mat_mul_operand(graph, dtype, tuple(a), tuple(b), name, left=True)


def create_mat_mul_input_rhs(
    graph: Graph, dtype: DType, a: Items[int], b: Items[int], name: str = "rhs"
) -> Tensor:
    """A variable of shape b [.., K, N] for the product with one of shape a [.., M, K].

    `mat_mul` reads it where it lies. Raises ShapeError when the two cannot be multiplied.
    """
    return _mat_mul_operand(graph, dtype, tuple(a), tuple(b), name, left=False)


def pre_arrange_mat_mul_input_rhs(
    graph: Graph, a: Items[int], b: Tensor, prog: Sequence, name: str = "arranged"
) -> Tensor:
    """b [.., K, N] copied to where products with [.., M, K] (shape a) read it in place.

    Worth it when several products share b, or one in a loop. Raises ShapeError.
    """
    out = create_mat_mul_input_rhs(graph, b.dtype, a, b.shape, name)
    prog.add(Copy(b, out))
    return out


def create_mat_mul_grouped_input_lhs(
    graph: Graph, dtype: DType, a: Items[int], b: Items[int], name: str = "lhs"
) -> Tensor:
    """As `create_mat_mul_input_lhs` for [G, M, K] and [G, K, N]."""
    return create_mat_mul_input_lhs(graph, dtype, a, b, name)


def create_mat_mul_grouped_input_rhs(
    graph: Graph, dtype: DType, a: Items[int], b: Items[int], name: str = "rhs"
) -> Tensor:
    """As `create_mat_mul_input_rhs` for [G, M, K] and [G, K, N]."""
    return create_mat_mul_input_rhs(graph, dtype, a, b, name)


def _mat_mul_operand(
    graph: Graph, dtype: DType, a: tuple[int, ...], b: tuple[int, ...], name: str, left: bool
) -> Tensor:
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        fail(ShapeError, f"matrices {a} and {b} cannot be multiplied")
    shape = a if left else b
    if 0 in (*a, *b):
        return graph.add_variable(dtype, shape, name, mapping="linear")
    tiles = shared_tiles(graph, ("matmul", dtype, a, b), "lhs" if left else "rhs")
    make = _matrix if dtype in (f16, f32) else _plain_matrix
    columns = shape[-1] if left else _columns(graph, dtype, a, b, tiles)
    trial = Graph(graph.target)
    base, view, sizes = make(trial, dtype, shape, left, columns, "operand", None)
    trial.set_tile_mapping(base, 0)
    other = trial.add_variable(dtype, b if left else a, mapping=0)
    first, second = (view, other) if left else (other, view)
    mat_mul(trial, first, second, Sequence(), tiles=tiles)
    mapping = _where_used(trial, base, sizes, tiles)
    base, view, _ = make(graph, dtype, shape, left, columns, name, mapping)
    if make is _matrix and shape[-1] % LANES:
        graph.set_initial_value(base, 0)
    note_tiles(graph, base, tiles)
    return view


def _columns(
    graph: Graph, dtype: DType, a: tuple[int, ...], b: tuple[int, ...], tiles: TileRange
) -> int:
    """Columns that a vertex of the simple kernels multiplies, all of them where they come out
    uneven; 16 for the block kernels."""
    if dtype in (f16, f32):
        return LANES
    trial = Graph(graph.target)
    first, second = (trial.add_variable(dtype, s, mapping=0) for s in (a, b))
    mat_mul(trial, first, second, Sequence(), "product", tiles=tiles)
    found = _variable_named(trial, "product")
    columns = b[-1] if found is None else found.shape[-1]
    return b[-1] if b[-1] % columns else columns


def _matrix(
    graph: Graph,
    dtype: DType,
    shape: tuple[int, ...],
    left: bool,
    columns: int,
    name: str,
    mapping: Mapping | None,
) -> tuple[Tensor, Tensor, Ints]:
    """A matrix [.., rows, columns] as [batch][columns / 16][rows][16], its view, and the sizes of
    the pieces that stay together: pieces of rows for a left operand, 16 rows for a right one."""
    *outer, rows, wide = shape
    batch = prod(outer)
    base, view = add_blocked(graph, dtype, (batch, wide, rows), name, mapping)
    piece = piece_widths(rows) if left else _sixteens(rows)
    sizes = np.tile(np.array(piece, np.int64) * LANES, batch * blocks_of(wide))
    return base, view.dim_shuffle((0, 2, 1)).reshape(shape), sizes


def _plain_matrix(
    graph: Graph,
    dtype: DType,
    shape: tuple[int, ...],
    left: bool,
    columns: int,
    name: str,
    mapping: Mapping | None,
) -> tuple[Tensor, Tensor, Ints]:
    """As `_matrix` for the simple kernels: [batch][all columns / columns][rows][columns]."""
    *outer, rows, wide = shape
    batch, parts = prod(outer), wide // columns
    base = graph.add_variable(dtype, (batch, parts, rows, columns), name, mapping=mapping)
    size = columns if left else rows * columns
    view = base.dim_shuffle((0, 2, 1, 3)).reshape(shape)
    return base, view, np.full(base.numel // size, size, np.int64)


def _sixteens(n: int) -> tuple[int, ...]:
    rest = n % LANES
    return (LANES,) * (n // LANES) + ((rest,) if rest else ())


# ---------------------------------------------------------------------- convolutions
def create_input(
    graph: Graph, params: ConvParams, name: str = "input", *, tiles: TileRange | None = None
) -> Tensor:
    """A variable [N, C, *field] for `convolution` with `params`.

    Blocks of 16 channels are read where they lie; a few channels or other types than f32 and f16
    are copied with their padding, without leaving their tile. Raises ShapeError.
    """
    full = params.validate()
    shape = full.input_shape()
    if 0 in (*shape, *full.weights_shape(), *full.output_shape()):
        return graph.add_variable(full.input_type, shape, name, mapping="linear")
    tiles = tiles or shared_tiles(graph, _product(full), "input")
    trial = Graph(graph.target)
    base, view = add_blocked(trial, full.input_type, shape, "input")
    trial.set_tile_mapping(base, 0)
    weights = trial.add_variable(full.input_type, full.weights_shape(), "weights", mapping=0)
    convolution(trial, view, weights, None, full, Sequence(), "conv", tiles=tiles)
    planes = _variable_named(trial, "conv/planes")
    if planes is not None:
        return _rows_of_planes(graph, full, planes, tiles, name)
    lines = prod(shape[2:-1])
    sizes = np.array(piece_widths(shape[-1]), np.int64) * LANES
    sizes = np.tile(sizes, shape[0] * blocks_of(shape[1]) * lines)
    mapping = _where_used(trial, base, sizes, tiles)
    base, view = add_blocked(graph, full.input_type, shape, name, mapping)
    if shape[1] % LANES:
        graph.set_initial_value(base, 0)
    note_tiles(graph, base, tiles)
    return view


def _rows_of_planes(
    graph: Graph, params: ConvParams, planes: Variable, tiles: TileRange, name: str
) -> Tensor:
    """An input [N][groups][*lines][C / groups][width], each line on the tile of its padded row.

    `planes`: the variable [N, G, D, H, C / G, W] the convolution copies it to.
    """
    n, groups, depth, height, chans, pitch = planes.shape
    t = params.input_transform
    extra = (0,) * (3 - params.get_num_field_dims())
    low = [*extra, *t.padding_lower][:2]
    step = [*(1 for _ in extra), *t.dilation][:2]
    lines = [*(1 for _ in extra), *params.input_field_shape][:2]
    d = np.minimum(np.arange(lines[0]) * step[0] + low[0], depth - 1)
    h = np.minimum(np.arange(lines[1]) * step[1] + low[1], height - 1)
    row = (np.arange(n * groups)[:, None, None] * depth + d[:, None]) * height + h
    tile = planes.mapping.tile_at(planes.base + row.ravel() * (chans * pitch))
    width = params.input_field_shape[-1]
    bounds = np.arange(len(tile) + 1, dtype=np.int64) * (chans * width)
    shape = (n, groups, *params.input_field_shape[:-1], chans, width)
    mapping = Mapping(bounds, tile).normal()
    base = graph.add_variable(params.input_type, shape, name, mapping=mapping)
    note_tiles(graph, base, tiles)
    rank = len(shape)
    view = base.dim_shuffle((0, 1, rank - 2, *range(2, rank - 2), rank - 1))
    return view.reshape(params.input_shape())


def create_weights(
    graph: Graph, params: ConvParams, name: str = "weights", *, tiles: TileRange | None = None
) -> Tensor:
    """A variable [groups, O, I, *kernel] for `convolution` with `params`.

    The vertices of the convolution read it where it lies; a kernel that is truncated or flipped is
    copied. Raises ShapeError.
    """
    full = params.validate()
    shape, dtype = full.weights_shape(), full.input_type
    t = full.kernel_transform
    changed = any((*t.truncation_lower, *t.truncation_upper, *t.flip))
    if changed or 0 in (*full.input_shape(), *shape, *full.output_shape()):
        return graph.add_variable(dtype, shape, name, mapping="linear")
    tiles = tiles or shared_tiles(graph, _product(full), "weights")
    trial = Graph(graph.target)
    x = trial.add_variable(dtype, full.input_shape(), "x", mapping=0)
    weights = trial.add_variable(dtype, shape, "w", mapping=0)
    convolution(trial, x, weights, None, full, Sequence(), "conv", tiles=tiles)
    stream = _variable_named(trial, "conv/weights")
    if stream is not None:
        return _stream_weights(graph, full, stream, tiles, name)
    return _row_weights(graph, full, trial, weights, tiles, name)


def _stream_weights(
    graph: Graph, params: ConvParams, stream: Variable, tiles: TileRange, name: str
) -> Tensor:
    """Weights in the block kernels' order: a variable like `stream`
    [groups of nb][blocks][rows][lanes][nb][kw][16], where the trial put it."""
    wide, blocks, rows, lanes, nb, kw, _ = stream.shape
    mapping = stream.mapping.shifted(-stream.base)
    base = graph.add_variable(params.input_type, stream.shape, name, mapping=mapping)
    outs, chans = params.get_num_output_chans(), params.get_num_input_chans()
    apart = base.dim_shuffle((0, 4, 6, 1, 3, 2, 5))
    view = apart.reshape((wide * nb * LANES, blocks * lanes, rows, kw))
    if view.shape[:2] != (outs, chans):
        graph.set_initial_value(base, 0)
        view = view.slice(0, outs, 0).slice(0, chans, 1)
    note_stream(graph, view, base)
    note_tiles(graph, base, tiles)
    return view.reshape(params.weights_shape())


def _row_weights(
    graph: Graph,
    params: ConvParams,
    trial: Graph,
    weights: Tensor,
    tiles: TileRange,
    name: str,
) -> Tensor:
    """Weights in the simple kernels' order: [groups, O, *kernel rows, I, kernel width]."""
    groups, outs, chans, *kernel = params.weights_shape()
    result = _variable_named(trial, "conv")
    # A result in another form than theirs needs no such kernels: nothing, or a product by one.
    each = result.shape[5] if result is not None and len(result.shape) == 7 else outs
    size = each * chans * prod(kernel)
    users = np.full(weights.numel // size, size, np.int64)
    mapping = _where_used(trial, weights, users, tiles)
    shape = (groups, outs, *kernel[:-1], chans, kernel[-1])
    base = graph.add_variable(params.input_type, shape, name, mapping=mapping)
    note_tiles(graph, base, tiles)
    rank = len(shape)
    return base.dim_shuffle((0, 1, rank - 2, *range(2, rank - 2), rank - 1))


def create_biases(graph: Graph, activations: Tensor, name: str = "biases") -> Tensor:
    """A variable [O] for the biases of activations [N, O, *spatial]: 16 on a tile of theirs.

    Raises ShapeError.
    """
    if activations.rank < 2:
        fail(ShapeError, f"activations [N, O, ..], not {list(activations.shape)}")
    outs = activations.shape[1]
    sizes = np.array(_sixteens(outs), np.int64)
    if 0 in activations.shape:
        return graph.add_variable(activations.dtype, (outs,), name, mapping="linear")
    first = activations.slice(0, 1, 0)
    for dim in range(2, activations.rank):
        first = first.slice(0, 1, dim)
    owner = mapping_of(graph, first.flatten())
    tile = owner.tile_at(np.cumsum(sizes) - sizes)
    bounds = np.append(0, np.cumsum(sizes))
    mapping = Mapping(bounds, tile).normal()
    return graph.add_variable(activations.dtype, (outs,), name, mapping=mapping)


# ---------------------------------------------------------------------- trials
def _product(params: ConvParams) -> tuple[Any, ...]:
    """What makes two convolutions equal."""
    return ("conv", repr(params))


def _variable_named(graph: Graph, name: str) -> Variable | None:
    return next((v for v in graph.variables if v.name == name), None)


def _where_used(trial: Graph, base: Tensor, sizes: Ints, tiles: TileRange) -> Mapping:
    """Pieces of `sizes` elements of the variable `base`, each on the tile whose vertices read most
    of it; among equals pieces take turns, and unread ones are spread over `tiles`.

    Pieces that a vertex reads as one run are joined first.
    """
    start, length, user = _reads(trial, base)
    bounds = _joined(base_of(base) + np.append(0, np.cumsum(sizes)), start, length)
    count = len(bounds) - 1
    first = np.searchsorted(bounds, start, "right") - 1
    key, inverse = np.unique(first * trial.num_tiles + user, return_inverse=True)
    read = np.bincount(inverse, length, len(key)).astype(np.int64)
    piece, tile = np.divmod(key, trial.num_tiles)
    most = np.zeros(count, np.int64)
    np.maximum.at(most, piece, read)
    best = read == most[piece]
    piece, tile = piece[best], tile[best]
    begin = np.searchsorted(piece, np.arange(count))
    users = np.searchsorted(piece, np.arange(count), "right") - begin
    where = spread(count, tiles).astype(np.int64)
    some = users > 0
    where[some] = tile[begin[some] + np.arange(count)[some] % users[some]]
    return Mapping(bounds - bounds[0], where).normal()


def _joined(bounds: Ints, start: Ints, length: Ints) -> Ints:
    """`bounds` without those inside a run."""
    low = np.searchsorted(bounds, start, "right")
    high = np.searchsorted(bounds, start + length, "left")
    depth = np.zeros(len(bounds) + 1, np.int64)
    np.add.at(depth, low, 1)
    np.add.at(depth, np.maximum(high, low), -1)
    return bounds[np.cumsum(depth)[:-1] == 0]


def _reads(trial: Graph, base: Tensor) -> tuple[Ints, Ints, Ints]:
    """(start, length, tile) of every run that vertices read of the variable `base`."""
    begin = base_of(base)
    found: list[tuple[Ints, Ints, Ints]] = []
    for group in (g for cs in trial.compute_sets for g in cs.groups):
        for edges in group.edges.values():
            edge, start, length = edges.runs()
            inside = (start >= begin) & (start < begin + base.numel)
            tile = group.tiles[edges.edge_vertex()[edge[inside]]].astype(np.int64)
            found.append((start[inside], length[inside], tile))
    start, length, tile = (np.concatenate([f[i] for f in found]) for i in range(3))
    return start, length, tile
