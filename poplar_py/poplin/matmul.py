"""Matrix products."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poplin.blockmm import block_mat_mul_applies, computed_mat_mul, shared_mat_mul
from poplar_py.poplin.created import planned_tiles
from poplar_py.poplin.epilogue import Epilogue, Inline
from poplar_py.poplin.generic import generic_mat_mul
from poplar_py.poplin.lanes import piece_mapping
from poplar_py.poplin.operands import (
    as_tensor,
    check_bias,
    finish,
    operand_dtype,
    result_dtype,
    split_epilogue,
)
from poplar_py.poplin.place import TileRange, spread, tile_range, within
from poplar_py.poplin.plan import piece_widths
from poplar_py.poputil.blocked import LANES, add_blocked
from poplar_py.poputil.poplar_order import poplar_order, product_order
from poplar_py.poputil.shapes import common_shape
from poplar_py.types import f16, f32

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.operands import Operand
    from poplar_py.types import DType

__all__ = ["create_mat_mul_input", "mat_mul"]


@poplar_order(product_order)
def mat_mul(
    graph: Graph,
    a: Operand,
    b: Operand,
    prog: Sequence,
    name: str = "matmul",
    *,
    bias: Operand | None = None,
    epilogue: Epilogue | None = None,
    out_dtype: DType | None = None,
    tiles: TileRange | tuple[int, int] | None = None,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """a [..., M, K] times b [..., K, N] (batch dims broadcast), plus bias [N], then the epilogue.

    Operands are tensors or arrays (constants, laid out as the plan wants). f16 and bf16 are summed
    in f32; integers below 64 bits give i32 and wrap. The result is [..., M, N].
    `available_memory_proportion`: the share of a tile's memory it may take (0.6, or what the
    weights of the graph leave); with less it is done in more steps.
    """
    batch, m, k, n = _shape(a.shape, b.shape)
    dtype = result_dtype(operand_dtype(a), operand_dtype(b), out_dtype)
    where = within(planned_tiles(graph, tiles, a, b), available_memory_proportion)
    if 0 in (*batch, m, n):
        empty = graph.add_variable(dtype, (*batch, m, n), name, mapping="linear")
        return finish(graph, empty, epilogue, prog, name)
    checked = check_bias(bias, n, dtype)
    count = prod(batch)
    if k and block_mat_mul_applies(operand_dtype(a), operand_dtype(b), dtype):
        form, residual, rest = split_epilogue(epilogue, (*batch, m, n), dtype)
        out = _by_blocks(graph, a, b, checked, batch, prog, name, where, form, residual)
        return finish(graph, out.reshape((*batch, m, n)), rest, prog, name)
    x = _batched(as_tensor(graph, a, f"{name}/a"), batch)
    y = _batched(as_tensor(graph, b, f"{name}/b"), batch)
    assert not isinstance(x, np.ndarray)
    assert not isinstance(y, np.ndarray)
    tensor_bias = None if checked is None else as_tensor(graph, checked, f"{name}/bias")
    out = generic_mat_mul(graph, x, y, tensor_bias, dtype, prog, name, where)
    assert out.shape == (count, m, n)
    return finish(graph, out.reshape((*batch, m, n)), epilogue, prog, name)


def create_mat_mul_input(graph: Graph, dtype: DType, shape: Items[int], name: str) -> Tensor | None:
    """A variable [..., M, K] laid out as `mat_mul` with a constant second operand reads its first.

    None where that is no particular layout: other types than f32 and f16, K no multiple of 16.
    """
    if dtype not in (f32, f16) or len(shape) < 2 or shape[-1] % LANES or 0 in shape:
        return None
    *outer, k = shape
    rows = prod(outer)
    widths = np.array(piece_widths(rows, outer[-1]), np.int64)
    where = tile_range(graph, None)
    tile = spread(k // LANES * len(widths), where)
    mapping = piece_mapping(tile, widths)
    _, view = add_blocked(graph, dtype, (1, k, rows), name, mapping)
    return view.reshape((k, rows)).dim_shuffle((1, 0)).reshape(tuple(shape))


def _by_blocks(
    graph: Graph,
    a: Operand,
    b: Operand,
    bias: Operand | None,
    batch: tuple[int, ...],
    prog: Sequence,
    name: str,
    tiles: TileRange,
    form: Inline,
    residual: Tensor | None,
) -> Tensor:
    """The product by block kernels; the caller reshapes the result."""
    m, k = a.shape[-2:]
    n, count = b.shape[-1], prod(batch)
    shared = isinstance(b, np.ndarray) and prod(b.shape[:-2]) == 1
    if shared and not isinstance(a, np.ndarray) and tuple(a.shape[:-2]) == batch[-(a.rank - 2) :]:
        if residual is not None:
            residual = residual.reshape((count * m, n))
        rows = a.reshape((count * m, k))
        w = np.asarray(b).reshape((k, n))
        return shared_mat_mul(graph, rows, w, bias, m, prog, name, tiles, form, residual)
    if residual is not None:
        residual = residual.reshape((count, m, n))
    x, y = _batched(a, batch), _batched(b, batch)
    return computed_mat_mul(graph, x, y, bias, prog, name, tiles, form, residual)


def _shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], int, int, int]:
    """Broadcast batch dims, M, K, N; raises ShapeError."""
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        fail(ShapeError, f"matrices {tuple(a)} and {tuple(b)} cannot be multiplied")
    return common_shape(tuple(a[:-2]), tuple(b[:-2])), a[-2], a[-1], b[-1]


def _batched(operand: Operand, batch: tuple[int, ...]) -> Operand:
    """The operand with its batch dims broadcast and joined: [prod(batch), rows, columns]."""
    rows, columns = operand.shape[-2:]
    full = (*batch, rows, columns)
    if isinstance(operand, np.ndarray):
        return np.broadcast_to(operand, full).reshape((prod(batch), rows, columns))
    view = operand.reshape((*(1,) * (len(full) - operand.rank), *operand.shape))
    for dim, size in enumerate(batch):
        if view.shape[dim] != size:
            view = view.broadcast(size, dim)
    return view.reshape((prod(batch), rows, columns))
