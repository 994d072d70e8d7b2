"""NumPy meaning of nn.*: sums of f16 and bf16 are kept in f32 and rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from poplar_py.eval.elementwise import erf
from poplar_py.eval.registry import Array, meaning, narrow, widen
from poplar_py.eval.tensor import lowest
from poplar_py.ops import nn as ops

__all__ = ["convolve", "windows"]


@meaning(ops.Relu)
def relu(op: ops.Relu, x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0))


@meaning(ops.LeakyRelu)
def leaky_relu(op: ops.LeakyRelu, x: Array) -> Array:
    wide = widen(x)
    return narrow(np.where(wide >= 0, wide, wide.dtype.type(op.alpha) * wide), x)


@meaning(ops.Gelu)
def gelu(op: ops.Gelu, x: Array) -> Array:
    wide = widen(x)
    one, half = wide.dtype.type(1), wide.dtype.type(0.5)
    if op.approximate == "tanh":
        inner = wide + wide.dtype.type(0.044715) * wide * wide * wide
        bend = np.tanh(wide.dtype.type(math.sqrt(2 / math.pi)) * inner)
    else:
        bend = erf(wide * wide.dtype.type(math.sqrt(0.5)))
    return narrow(half * wide * (one + bend), x)


@meaning(ops.Softmax)
def softmax(op: ops.Softmax, x: Array) -> Array:
    wide = widen(x)
    if not wide.size:
        return x
    e = np.exp(wide - np.max(wide, op.axis, keepdims=True))
    return narrow(e / np.sum(e, op.axis, keepdims=True, dtype=e.dtype), x)


@meaning(ops.LogSoftmax)
def log_softmax(op: ops.LogSoftmax, x: Array) -> Array:
    wide = widen(x)
    if not wide.size:
        return x
    shifted = wide - np.max(wide, op.axis, keepdims=True)
    total = np.sum(np.exp(shifted), op.axis, keepdims=True, dtype=wide.dtype)
    return narrow(shifted - np.log(total), x)


@meaning(ops.LayerNorm)
def layer_norm(op: ops.LayerNorm, x: Array, scale: Array | None, bias: Array | None) -> Array:
    wide = widen(x)
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    centred = wide - np.mean(wide, axes, keepdims=True, dtype=wide.dtype)
    variance = np.mean(centred * centred, axes, keepdims=True, dtype=wide.dtype)
    out = centred / np.sqrt(variance + wide.dtype.type(op.eps))
    out = out if scale is None else out * widen(scale)
    out = out if bias is None else out + widen(bias)
    return narrow(out, x)


@meaning(ops.MatMul)
def matmul(op: ops.MatMul, a: Array, b: Array) -> Array:
    return narrow(np.asarray(np.matmul(widen(a), widen(b))), a)


@meaning(ops.MatMulInteger)
def matmul_integer(op: ops.MatMulInteger, a: Array, b: Array) -> Array:
    return _exact(np.matmul, a, b)


def _exact(fn: Any, a: Array, b: Array) -> Array:
    """Integer products through f64 where that is exact, else through i64; wraps to i32."""
    small = a.dtype.itemsize == 1 and b.dtype.itemsize == 1
    kind = np.float64 if small else np.int64
    out = np.asarray(fn(a.astype(kind), b.astype(kind)))
    return out.astype(np.int64).astype(np.int32)


def windows(
    x: Array, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Array:
    """View [N, C, *out, *kernel] of a padded x[N, C, *in]."""
    spatial = len(kernel)
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, tuple(range(2, 2 + spatial)))
    steps = [slice(None, None, s) for s in strides]
    taps = [slice(None, None, d) for d in dilations]
    return view[(slice(None), slice(None), *steps, *taps)]


def _padded(x: Array, pads: tuple[int, ...], value: Any) -> Array:
    if not any(pads):
        return x
    spatial = len(pads) // 2
    out_shape = [d + pads[i] + pads[i + spatial] for i, d in enumerate(x.shape[2:])]
    out = np.full((*x.shape[:2], *out_shape), value, dtype=x.dtype)
    inner = (slice(pads[i], pads[i] + d) for i, d in enumerate(x.shape[2:]))
    out[(slice(None), slice(None), *inner)] = x
    return out


_UNFOLD = 1 << 24  # elements of an unfolded input that are worth their memory


def convolve(
    x: Array,
    w: Array,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
) -> Array:
    """x[N, C, *in], w[O, C / groups, *kernel] -> [N, O, *out], in their element type."""
    kernel = w.shape[2:]
    view = windows(_padded(x, pads, 0), kernel, strides, dilations)
    out = view.shape[2 : 2 + len(kernel)]
    n, c, o = x.shape[0], x.shape[1], w.shape[0]
    if groups == 1 and c < 8 and n * c * math.prod(kernel) * math.prod(out) <= _UNFOLD:
        axes = [1, *range(2 + len(kernel), 2 + 2 * len(kernel))]
        y = np.tensordot(w, view, ([*range(1, w.ndim)], axes))
        return np.moveaxis(y, 0, 1)
    weights = w.reshape(groups, o // groups, c // groups, *kernel)
    total = np.zeros((n, groups, o // groups, math.prod(out)), dtype=x.dtype)
    for tap in np.ndindex(*kernel):
        here = view[(..., *tap)].reshape(n, groups, c // groups, math.prod(out))
        total += np.matmul(weights[(..., *tap)], here)
    return total.reshape(n, o, *out)


def _with_bias(y: Array, bias: Array | None) -> Array:
    if bias is None:
        return y
    return y + widen(bias).reshape(1, -1, *(1,) * (y.ndim - 2))


@meaning(ops.Conv)
def conv(op: ops.Conv, x: Array, w: Array, bias: Array | None) -> Array:
    y = convolve(widen(x), widen(w), op.strides, op.pads, op.dilations, op.groups)
    return narrow(_with_bias(y, bias), x)


@meaning(ops.ConvInteger)
def conv_integer(op: ops.ConvInteger, x: Array, w: Array, bias: Array | None) -> Array:
    def product(a: Array, b: Array) -> Array:
        return convolve(a, b, op.strides, op.pads, op.dilations, op.groups)

    y = _exact(product, x, w)
    return y if bias is None else y + bias.reshape(1, -1, *(1,) * (y.ndim - 2))


@meaning(ops.ConvTranspose)
def conv_transpose(op: ops.ConvTranspose, x: Array, w: Array, bias: Array | None) -> Array:
    """Sum of every input element times its kernel, placed at its stride; then cut by the pads."""
    a, b = widen(x), widen(w)
    spatial = x.ndim - 2
    kernel = w.shape[2:]
    n, g = x.shape[0], op.groups
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, op.dilations, strict=True)]
    full = [(i - 1) * s + e for i, s, e in zip(x.shape[2:], op.strides, extents, strict=True)]
    grow = [max(0, -p) for p in op.pads[spatial:]]
    y = np.zeros((n, g, w.shape[1], *(f + e for f, e in zip(full, grow, strict=True))), a.dtype)
    grouped = a.reshape(n, g, x.shape[1] // g, -1)
    weights = b.reshape(g, x.shape[1] // g, w.shape[1], *kernel)
    for tap in np.ndindex(*kernel):
        part = np.matmul(np.swapaxes(weights[(..., *tap)], 1, 2), grouped)
        place = tuple(
            slice(t * d, t * d + (i - 1) * s + 1, s)
            for t, d, i, s in zip(tap, op.dilations, x.shape[2:], op.strides, strict=True)
        )
        y[(slice(None), slice(None), slice(None), *place)] += part.reshape(
            n, g, w.shape[1], *x.shape[2:]
        )
    out = op.result.shape[2:]
    cut = tuple(slice(op.pads[i], op.pads[i] + int(size)) for i, size in enumerate(out))
    y = y.reshape(n, -1, *y.shape[3:])[(slice(None), slice(None), *cut)]
    return narrow(_with_bias(y, bias), x)


@meaning(ops.MaxPool)
def max_pool(op: ops.MaxPool, x: Array) -> Array | tuple[Array, Array]:
    low = lowest(op.x.dtype)
    view = windows(_padded(x, op.pads, low), op.kernel, op.strides, op.dilations)
    spatial = len(op.kernel)
    y = view.max(tuple(range(2 + spatial, 2 + 2 * spatial)))
    if not op.indices:
        return y
    places = np.arange(math.prod(x.shape[2:]), dtype=np.int64).reshape(1, 1, *x.shape[2:])
    real = _padded(places, op.pads, -1)
    origin = windows(real, op.kernel, op.strides, op.dilations)
    shape = (*view.shape[: 2 + spatial], -1)
    flat, source = view.reshape(shape), np.broadcast_to(origin, view.shape).reshape(shape)
    masked = np.where(source < 0, low, flat)
    winner = np.argmax((masked == y[..., None]) & (source >= 0), -1)
    found = np.take_along_axis(source, winner[..., None], -1)[..., 0]
    return y, found.astype(np.int32)


@meaning(ops.AvgPool)
def avg_pool(op: ops.AvgPool, x: Array) -> Array:
    wide = widen(x)
    spatial = len(op.kernel)
    axes = tuple(range(2 + spatial, 2 + 2 * spatial))
    view = windows(_padded(wide, op.pads, 0), op.kernel, op.strides, op.dilations)
    total = view.sum(axes, dtype=wide.dtype)
    return narrow(total / pool_counts(op).astype(wide.dtype), x)


def pool_counts(op: ops.AvgPool) -> Array:
    """The divisor of every window of an average pool: f64[1, 1, *out]."""
    spatial = len(op.kernel)
    shape = tuple(int(d) for d in op.x.shape[2:])
    extra = op.extra or (0,) * spatial
    begin, end = op.pads[:spatial], op.pads[spatial:]
    if op.count_include_pad:
        shape = tuple(d + b + e - x for d, b, e, x in zip(shape, begin, end, extra, strict=True))
        begin, end = (0,) * spatial, extra
    ones = _padded(np.ones((1, 1, *shape)), (*begin, *end), 0)
    view = windows(ones, op.kernel, op.strides, op.dilations)
    counts = view.sum(tuple(range(2 + spatial, 2 + 2 * spatial)))
    return np.maximum(counts, 1)
