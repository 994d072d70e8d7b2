"""Poplar's convolution parameters brought to the form the kernels know.

Truncations and flips are views. Paddings of input and kernel and truncations of the output add up
to the pads of the form (negative ones cut): a kernel with a zero in front starts one element later,
an output without its first element as well. Only padding of the output is a step of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program import Copy
from poplar_py.poplin.operands import operand_dtype
from poplar_py.poplin.params import ConvForm
from poplar_py.popops.fill import fill
from poplar_py.poputil.layout import fresh

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.conv_params import ConvParams, InputTransform
    from poplar_py.poplin.operands import Operand

__all__ = ["Native", "as_weights", "kernel_view", "native_of", "pad_output"]


@dataclass(frozen=True)
class Native:
    """Operands and form of an equal convolution; `zero`: nothing but padding is ever summed.

    `shape` is that of the result before the output's padding.
    """

    x: Tensor
    w: Operand
    form: ConvForm
    shape: tuple[int, ...]
    zero: bool


def as_weights(w: Operand, params: ConvParams) -> Operand:
    """Weights [G, O, I, *kernel] or [G O, I, *kernel] as [G O, I, *kernel].

    Raises ShapeError when they are neither.
    """
    groups, outs, *rest = params.weights_shape()
    joined = (groups * outs, *rest)
    if tuple(w.shape) not in (joined, params.weights_shape()):
        fail(
            ShapeError,
            f"weights of shape {tuple(w.shape)}; the parameters say {params.weights_shape()}",
        )
    return w.reshape(joined)


def native_of(x: Tensor, w: Operand, params: ConvParams) -> Native:
    """`params` must be filled in (`validate`). Raises ShapeError or TypeMismatch."""
    if tuple(x.shape) != params.input_shape():
        fail(ShapeError, f"an input {tuple(x.shape)}; the parameters say {params.input_shape()}")
    for operand in (x, w):
        if operand_dtype(operand) is not params.input_type:
            fail(TypeMismatch, f"input_type: {params.input_type}, not {operand_dtype(operand)}")
    kernel, field, out = params.kernel_transform, params.input_transform, params.output_transform
    rank = params.get_num_field_dims()
    given = cast("Tensor", _view(x, field))
    view = _view(as_weights(w, params), kernel)
    low, high = _pads(field), _pads(kernel)
    lower = [low[0][d] - high[0][d] - out.truncation_lower[d] for d in range(rank)]
    upper = [low[1][d] - high[1][d] - out.truncation_upper[d] for d in range(rank)]
    dilated = [field.dilated(n, d) for d, n in enumerate(params.input_field_shape)]
    pairs = zip(dilated, lower, upper, strict=True)
    gone = any(n + min(a, 0) <= 0 or n + min(b, 0) <= 0 for n, a, b in pairs)
    form = ConvForm(
        tuple(out.stride),
        tuple(lower),
        tuple(upper),
        tuple(kernel.dilation),
        tuple(field.dilation),
        params.num_conv_groups,
    )
    sizes = [
        params.get_output_size(d) - out.padding_lower[d] - out.padding_upper[d] for d in range(rank)
    ]
    shape = (params.batch_size, params.get_num_output_chans(), *sizes)
    return Native(given, view, form, shape, gone or 0 in view.shape)


def _pads(t: InputTransform) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lower and upper padding as it lies after the flip."""
    rows = list(zip(t.padding_lower, t.padding_upper, t.flip, strict=True))
    lower = tuple(b if f else a for a, b, f in rows)
    return lower, tuple(a if f else b for a, b, f in rows)


def _view(t: Operand, transform: InputTransform) -> Operand:
    """t [.., .., *field] truncated and flipped, a view."""
    for d, flip in enumerate(transform.flip):
        size = t.shape[d + 2]
        begin, end = transform.truncation_lower[d], size - transform.truncation_upper[d]
        if isinstance(t, np.ndarray):
            t = t.take(range(begin, end), d + 2)
            t = np.flip(t, d + 2) if flip else t
            continue
        t = t if (begin, end) == (0, size) else t.slice(begin, end, d + 2)
        t = t.reverse(d + 2) if flip else t
    return t


def kernel_view(w: Tensor, params: ConvParams) -> Tensor:
    """Weights [G O, I, *kernel] truncated and flipped, a view. `params` must be filled in."""
    return cast("Tensor", _view(w, params.kernel_transform))


def pad_output(graph: Graph, t: Tensor, params: ConvParams, prog: Sequence, name: str) -> Tensor:
    """The result with the output's padding: zeros around."""
    out = params.output_transform
    if not any((*out.padding_lower, *out.padding_upper)):
        return t
    padded = fresh(graph, t.dtype, params.output_shape(), f"{name}/padded")
    fill(graph, padded, 0, prog, f"{name}/zero")
    inner = padded
    for d, size in enumerate(t.shape[2:]):
        begin = out.padding_lower[d]
        inner = inner.slice(begin, begin + size, d + 2)
    if t.numel:
        prog.add(Copy(t, inner))
    return padded
