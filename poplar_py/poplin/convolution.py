"""Convolutions and transposed convolutions over one to three spatial dims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError
from poplar_py.poplin.blockconv import block_conv, block_conv_applies
from poplar_py.poplin.epilogue import Epilogue
from poplar_py.poplin.generic import generic_conv
from poplar_py.poplin.operands import (
    as_tensor,
    check_bias,
    finish,
    operand_dtype,
    result_dtype,
    split_epilogue,
)
from poplar_py.poplin.params import ConvParams
from poplar_py.poplin.place import TileRange, tile_range
from poplar_py.poplin.wide import fold_wide_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.operands import Operand
    from poplar_py.types import DType

__all__ = ["conv_transpose", "convolution", "transpose_params"]


def convolution(
    graph: Graph,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    params: ConvParams,
    prog: Sequence,
    name: str = "conv",
    *,
    epilogue: Epilogue | None = None,
    out_dtype: DType | None = None,
    tiles: TileRange | tuple[int, int] | None = None,
) -> Tensor:
    """x [N, C, *spatial] with w [O, C/groups, *kernel] plus bias [O], then the epilogue.

    The result is [N, O, *out]. w and bias are tensors or arrays (constants, laid out as the plan
    wants).
    """
    shape = params.output_shape(x.shape, w.shape)
    dtype = result_dtype(x.dtype, operand_dtype(w), out_dtype)
    where = tile_range(graph, tiles)
    wide = fold_wide_kernel(graph, x, w, params) if 0 not in shape else None
    if wide is not None:
        x, w, params = wide
    deep = _three_dims(params)
    extra = (1,) * (3 - params.rank)
    x3 = x.reshape((*x.shape[:2], *extra, *x.shape[2:]))
    w3 = w.reshape((*w.shape[:2], *extra, *w.shape[2:]))
    checked = check_bias(bias, shape[1], dtype)
    if 0 not in shape and 0 not in x.shape and block_conv_applies(x, w, dtype, deep):
        form, residual, rest = split_epilogue(epilogue, shape, dtype)
        if residual is not None:
            residual = residual.reshape((*shape[:2], *extra, *shape[2:]))
        out = block_conv(graph, x3, w3, checked, deep, prog, name, where, form, residual)
        return finish(graph, out.reshape(shape), rest, prog, name)
    tensor_bias = None if checked is None else as_tensor(graph, checked, f"{name}/bias")
    weights = as_tensor(graph, w3, f"{name}/weights")
    out = generic_conv(graph, x3, weights, tensor_bias, deep, dtype, prog, name, where)
    return finish(graph, out.reshape(shape), epilogue, prog, name)


def _three_dims(params: ConvParams) -> ConvParams:
    """The same convolution with leading spatial dims of size 1, three in all."""
    extra = 3 - params.rank
    if extra < 0:
        raise ShapeError(f"convolutions have one to three spatial dims, not {params.rank}")
    one, zero = (1,) * extra, (0,) * extra
    return ConvParams(
        one + params.strides,
        zero + params.pads_lower,
        zero + params.pads_upper,
        one + params.dilations,
        one + params.input_dilations,
        params.groups,
    )


def transpose_params(kernel: Items[int], params: ConvParams, extend: Items[int]) -> ConvParams:
    """The plain convolution (on a flipped, transposed kernel) that a transposed one equals.

    `params` are those of the convolution it is the transpose of; `extend` lengthens each result dim
    at its end (ONNX's output_padding).
    """
    rank = len(kernel)
    reach = [(k - 1) * d for k, d in zip(kernel, params.dilations, strict=True)]
    return ConvParams(
        (1,) * rank,
        tuple(reach[i] - params.pads_lower[i] for i in range(rank)),
        tuple(reach[i] - params.pads_upper[i] + extend[i] for i in range(rank)),
        params.dilations,
        params.strides,
        params.groups,
    )


def conv_transpose(
    graph: Graph,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    params: ConvParams,
    prog: Sequence,
    name: str = "conv_transpose",
    *,
    output_padding: Items[int] | None = None,
    epilogue: Epilogue | None = None,
    out_dtype: DType | None = None,
    tiles: TileRange | tuple[int, int] | None = None,
) -> Tensor:
    """x [N, C, *spatial] with w [C, O/groups, *kernel]: the transpose of the convolution `params`.

    Size of result dim i: strides (in - 1) + dilated kernel - pads + output_padding (a negative
    upper pad extends it too).
    """
    plain = transpose_params(w.shape[2:], params, output_padding or (0,) * params.rank)
    groups = params.groups
    flipped = _flip_array(w, groups) if isinstance(w, np.ndarray) else _flip_tensor(w, groups)
    return convolution(
        graph,
        x,
        flipped,
        bias,
        plain,
        prog,
        name,
        epilogue=epilogue,
        out_dtype=out_dtype,
        tiles=tiles,
    )


def _flip_array(w: npt.NDArray[Any], groups: int) -> npt.NDArray[Any]:
    """[C, O/G, *k] as [O, C/G, *k], kernel dims reversed."""
    c, per, *kernel = w.shape
    split = w.reshape((groups, c // groups, per, *kernel)).swapaxes(1, 2)
    joined = split.reshape((groups * per, c // groups, *kernel))
    return np.ascontiguousarray(np.flip(joined, tuple(range(2, joined.ndim))))


def _flip_tensor(w: Tensor, groups: int) -> Tensor:
    c, per, *kernel = w.shape
    split = w.reshape((groups, c // groups, per, *kernel))
    split = split.dim_shuffle((0, 2, 1, *range(3, 3 + len(kernel))))
    view = split.reshape((groups * per, c // groups, *kernel))
    for dim in range(2, 2 + len(kernel)):
        view = view.reverse(dim)
    return view
