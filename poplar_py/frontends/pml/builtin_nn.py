"""Functions of the `.pml` language: convolutions, windows, norms."""

from __future__ import annotations

from typing import cast

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.frontends.pml.builtin_layout import reshape
from poplar_py.frontends.pml.builtin_math import mean
from poplar_py.frontends.pml.builtin_table import builtin, flag_of, tensor_of
from poplar_py.frontends.pml.values import PmlValue, as_int, as_ints, as_tensor
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import Value
from poplar_py.ops import elementwise, nn, tensor


def _pads(
    pad: PmlValue, spatial: int, x: Value, window: list[int], strides: tuple[int, ...]
) -> tuple[int, ...]:
    """A number, `spatial` numbers, 2 * spatial numbers (begins, ends), or "same"."""
    if isinstance(pad, str):
        if pad != "same":
            raise TypeMismatch(f'pad is "same" or numbers, not {pad!r}')
        totals = [
            max(0, (-(-tensor.static_dim(x, i + 2) // s) - 1) * s + w - tensor.static_dim(x, i + 2))
            for i, (w, s) in enumerate(zip(window, strides, strict=True))
        ]
        return (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
    if isinstance(pad, tuple) and len(cast("tuple[PmlValue, ...]", pad)) == 2 * spatial:
        return as_ints(cast("PmlValue", pad), "pad")
    return as_ints(pad, "pad", spatial) * 2


@builtin
def conv(
    b: Builder,
    x: PmlValue,
    w: PmlValue,
    bias: PmlValue = None,
    stride: PmlValue = 1,
    pad: PmlValue = 0,
    dilation: PmlValue = 1,
    groups: PmlValue = 1,
) -> PmlValue:
    """Convolution of x[N, C, *in] with w[O, C / groups, *kernel]; pad "same" keeps in / stride."""
    value, weight = tensor_of(x, "x"), tensor_of(w, "w")
    spatial = value.rank - 2
    if spatial < 1 or weight.rank != value.rank:
        raise ShapeError(f"x is {value.type}, w {weight.type}")
    strides, dilations = as_ints(stride, "stride", spatial), as_ints(dilation, "dilation", spatial)
    window = [(tensor.static_dim(weight, i + 2) - 1) * d + 1 for i, d in enumerate(dilations)]
    pads = _pads(pad, spatial, value, window, strides)
    given = None if bias is None else as_tensor(bias, b, value.dtype)
    return b.add(nn.Conv, value, weight, given, strides, pads, dilations, as_int(groups, "groups"))


def _pool_window(
    x: Value, kernel: PmlValue, stride: PmlValue, pad: PmlValue
) -> tuple[tuple[int, ...], ...]:
    spatial = x.rank - 2
    if spatial < 1:
        raise ShapeError(f"pooling needs [N, C, ...], not {x.type}")
    size = as_ints(kernel, "kernel", spatial)
    strides = size if stride is None else as_ints(stride, "stride", spatial)
    return size, strides, _pads(pad, spatial, x, list(size), strides), (1,) * spatial


@builtin
def max_pool(
    b: Builder, x: PmlValue, kernel: PmlValue, stride: PmlValue = None, pad: PmlValue = 0
) -> PmlValue:
    """The largest element of each window; windows side by side unless a stride is given."""
    value = tensor_of(x, "x")
    return b.add(nn.MaxPool, value, *_pool_window(value, kernel, stride, pad))


@builtin
def avg_pool(
    b: Builder,
    x: PmlValue,
    kernel: PmlValue,
    stride: PmlValue = None,
    pad: PmlValue = 0,
    count_include_pad: PmlValue = False,
) -> PmlValue:
    """The mean of each window; windows side by side unless a stride is given."""
    value = tensor_of(x, "x")
    window = _pool_window(value, kernel, stride, pad)
    return b.add(nn.AvgPool, value, *window, flag_of(count_include_pad, "count_include_pad"))


@builtin
def global_avg_pool(b: Builder, x: PmlValue) -> PmlValue:
    """The mean over all spatial axes of x[N, C, ...], giving [N, C]."""
    value = tensor_of(x, "x")
    return mean(b, value, tuple(range(2, value.rank)))


@builtin
def batch_norm(
    b: Builder,
    x: PmlValue,
    scale: PmlValue,
    bias: PmlValue,
    mean: PmlValue,
    variance: PmlValue,
    eps: PmlValue = 1e-5,
) -> PmlValue:
    """(x - mean) / sqrt(variance + eps) * scale + bias, all of shape [C], for x[N, C, ...]."""
    value = tensor_of(x, "x")
    column = (-1, *(1,) * (value.rank - 2))
    spread = b.add(elementwise.Add, tensor_of(variance, "variance"), as_tensor(eps, b, value.dtype))
    factor = b.add(elementwise.Mul, tensor_of(scale, "scale"), b.add(elementwise.Rsqrt, spread))
    shift = b.add(elementwise.Mul, tensor_of(mean, "mean"), factor)
    offset = b.add(elementwise.Sub, tensor_of(bias, "bias"), shift)
    scaled = b.add(elementwise.Mul, value, reshape(b, factor, column))
    return b.add(elementwise.Add, scaled, reshape(b, offset, column))
