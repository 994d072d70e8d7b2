"""Convolutions and transposed convolutions over one to three spatial dims."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poplin.blockconv import block_conv, block_conv_applies
from poplar_py.poplin.conv_params import ConvParams
from poplar_py.poplin.created import planned_tiles
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
from poplar_py.poplin.params import ConvForm
from poplar_py.poplin.place import TileRange, within
from poplar_py.poplin.transforms import native_of, pad_output
from poplar_py.poplin.wide import fold_wide_kernel
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.fill import fill
from poplar_py.poputil.layout import fresh
from poplar_py.poputil.shapes import need_room

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.operands import Operand
    from poplar_py.types import DType

__all__ = ["backward_weights", "conv_transpose", "convolution", "transpose_params"]


def convolution(
    graph: Graph,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    params: ConvParams | ConvForm,
    prog: Sequence,
    name: str = "conv",
    *,
    epilogue: Epilogue | None = None,
    out_dtype: DType | None = None,
    tiles: TileRange | tuple[int, int] | None = None,
    transpose_and_flip_weights: bool = False,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """x [N, C, *spatial] with w [O, C/groups, *kernel] plus bias [O], then the epilogue.

    The result is [N, O, *out]. w and bias are tensors or arrays (constants, laid out as the plan
    wants). With Poplar's `ConvParams` weights may also be [groups, O/groups, C/groups, *kernel];
    `transpose_and_flip_weights` takes those of the forward pass ([C/groups, O/groups] and kernel
    dims reversed) for the backward one. `available_memory_proportion`: the share of a tile's
    memory it may take (0.6, or what the weights of the graph leave); with less it is done in more
    steps.
    """
    if available_memory_proportion is not None:
        tiles = within(planned_tiles(graph, tiles, x, w), available_memory_proportion)
    if transpose_and_flip_weights:
        w = backward_weights(w, params)
    if isinstance(params, ConvForm):
        return _convolve(graph, x, w, bias, params, prog, name, epilogue, out_dtype, tiles)
    full = params.validate()
    dtype = out_dtype or full.output_type
    return _transformed(graph, x, w, bias, full, prog, name, epilogue, dtype, tiles)


def _transformed(
    graph: Graph,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    full: ConvParams,
    prog: Sequence,
    name: str,
    epilogue: Epilogue | None,
    dtype: DType,
    tiles: TileRange | tuple[int, int] | None,
) -> Tensor:
    """A convolution with Poplar's transforms of operands and result."""
    native = native_of(x, w, full)
    out = full.output_transform
    empty = native.zero or 0 in native.shape
    if not empty and not any((*out.padding_lower, *out.padding_upper)):
        args = (native.x, native.w, bias, native.form, prog, name, epilogue, dtype, tiles)
        return _convolve(graph, *args)
    if empty:
        result = fresh(graph, dtype, native.shape, name)
        fill(graph, result, 0, prog, f"{name}/zero")
    else:
        args = (native.x, native.w, None, native.form, prog, name, None, dtype, tiles)
        result = _convolve(graph, *args)
    result = pad_output(graph, result, full, prog, name)
    return _finish(graph, result, bias, epilogue, prog, name)


def _finish(
    graph: Graph,
    result: Tensor,
    bias: Operand | None,
    epilogue: Epilogue | None,
    prog: Sequence,
    name: str,
) -> Tensor:
    """Bias and epilogue as steps of their own, over the output's padding too."""
    checked = check_bias(bias, result.shape[1], result.dtype)
    if checked is not None:
        column = as_tensor(graph, checked, f"{name}/bias")
        column = column.reshape((result.shape[1], *(1,) * (result.rank - 2)))
        text, parts = "add($0,$1)", [result, column]
        result = map_expr(graph, text, parts, prog, f"{name}/bias", result.dtype)
    return finish(graph, result, epilogue, prog, name)


def _convolve(
    graph: Graph,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    params: ConvForm,
    prog: Sequence,
    name: str,
    epilogue: Epilogue | None,
    out_dtype: DType | None,
    tiles: TileRange | tuple[int, int] | None,
) -> Tensor:
    """The convolution of a form."""
    shape = params.output_shape(x.shape, w.shape)
    dtype = result_dtype(x.dtype, operand_dtype(w), out_dtype)
    where = planned_tiles(graph, tiles, x, w)
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


def _three_dims(params: ConvForm) -> ConvForm:
    """The same convolution with leading spatial dims of size 1, three in all."""
    extra = 3 - params.rank
    if extra < 0:
        fail(ShapeError, f"convolutions have one to three spatial dims, not {params.rank}")
    one, zero = (1,) * extra, (0,) * extra
    return ConvForm(
        one + params.strides,
        zero + params.pads_lower,
        zero + params.pads_upper,
        one + params.dilations,
        one + params.input_dilations,
        params.groups,
    )


def transpose_params(kernel: Items[int], params: ConvForm, extend: Items[int]) -> ConvForm:
    """The plain convolution (on a flipped, transposed kernel) that a transposed one equals.

    `params` are those of the convolution it is the transpose of; `extend` lengthens each result dim
    at its end (ONNX's output_padding).
    """
    rank = len(kernel)
    if not rank == len(extend) == params.rank:
        fail(ShapeError, f"a kernel {list(kernel)} and {list(extend)} over {params.rank} dims")
    reach = [(k - 1) * d for k, d in zip(kernel, params.dilations, strict=True)]
    return ConvForm(
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
    params: ConvForm,
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
    extend = tuple(output_padding or (0,) * params.rank)
    if len(w.shape) != params.rank + 2 or len(extend) != params.rank:
        fail(ShapeError, f"transposed over {params.rank} dims: w {tuple(w.shape)}, {extend}")
    need_room(graph, [max(n, 0) for n in extend])
    if w.shape[0] % params.groups:
        fail(ShapeError, f"{params.groups} groups of the channels of w {tuple(w.shape)}")
    if _tiles_without_overlap(w.shape[2:], params, extend):
        return _scattered_points(
            graph, x, w, bias, params.strides, prog, name, epilogue, out_dtype, tiles
        )
    plain = transpose_params(w.shape[2:], params, extend)
    flipped = backward_weights(w, params)
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


def _tiles_without_overlap(kernel: Items[int], params: ConvForm, extend: Items[int]) -> bool:
    """Whether every input pixel makes a patch of its own of the result."""
    pads = (*params.pads_lower, *params.pads_upper)
    plain = params.groups == 1 and params.dilations == params.input_dilations == (1,) * params.rank
    return plain and tuple(kernel) == params.strides and not any((*pads, *extend))


def _scattered_points(
    graph: Graph,
    x: Tensor,
    w: Operand,
    bias: Operand | None,
    steps: Items[int],
    prog: Sequence,
    name: str,
    epilogue: Epilogue | None,
    out_dtype: DType | None,
    tiles: TileRange | tuple[int, int] | None,
) -> Tensor:
    """A transposed convolution whose patches do not overlap: one output channel for each place of a
    patch, and the result is a view of them."""
    rank, taps = len(steps), prod(steps)
    n, channels, *spatial = x.shape
    outputs = w.shape[1]
    order = (*range(2, rank + 2), 1, 0)  # [C, O, *k] to [*k, O, C]
    moved = w.transpose(order) if isinstance(w, np.ndarray) else w.dim_shuffle(order)
    points = moved.reshape((taps * outputs, channels, *(1,) * rank))
    if isinstance(bias, np.ndarray):
        bias = np.tile(bias, taps)
    elif bias is not None:
        bias = bias.reshape((1, outputs)).broadcast(taps, 0).flatten()
    places = range(rank)
    back = [1 + i for i in places], [rank + 1], [rank + 2 + i for i in places]
    if epilogue is not None:
        epilogue = _at_points(epilogue, steps)
    out = convolution(
        graph,
        x,
        points,
        bias,
        ConvForm.of(rank),
        prog,
        name,
        epilogue=epilogue,
        out_dtype=out_dtype,
        tiles=tiles,
    )
    apart = out.reshape((n, *steps, outputs, *spatial))
    perm = (0, *back[1], *(axis for i in places for axis in (back[2][i], back[0][i])))
    final = tuple(s * m for s, m in zip(steps, spatial, strict=True))
    return apart.dim_shuffle(perm).reshape((n, outputs, *final))


def _at_points(epilogue: Epilogue, steps: Items[int]) -> Epilogue:
    """Tensors [N, O, H k, ...] of an epilogue as those of the points, [N, k ... O, H, ...]."""
    rank = len(steps)
    gather = (0, *(3 + 2 * i for i in range(rank)), 1, *(2 + 2 * i for i in range(rank)))
    views: list[Tensor] = []
    for t in epilogue.tensors:
        n, outputs, *sizes = t.shape
        spatial = [size // k for size, k in zip(sizes, steps, strict=True)]
        pairs = (m for pair in zip(spatial, steps, strict=True) for m in pair)
        apart = t.reshape((n, outputs, *pairs)).dim_shuffle(gather)
        views.append(apart.reshape((n, prod(steps) * outputs, *spatial)))
    return Epilogue(epilogue.expr, tuple(views))


def backward_weights(w: Operand, params: ConvParams | ConvForm) -> Operand:
    """Forward weights [C, O/groups, *kernel] (or with groups apart) as the backward pass wants."""
    if isinstance(params, ConvForm):
        groups = params.groups
    else:
        groups = params.num_conv_groups
        kernel = tuple(w.shape[-params.get_num_field_dims() :])
        w = w.reshape((-1, w.shape[-len(kernel) - 1], *kernel))
    return _flip_array(w, groups) if isinstance(w, np.ndarray) else _flip_tensor(w, groups)


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
