"""ONNX normalisations."""

from __future__ import annotations

import math

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.ops.tensor import check_axis
from poplar_py.types import f16, f32

__all__: list[str] = []


def _channel(b: Builder, x: Val, like: Val, axis: int = 1) -> Val:
    """A vector of one number per channel, shaped to broadcast against `like`."""
    return b.reshape(x, [x.numel if i == axis else 1 for i in range(like.rank)])


@imports("BatchNormalization")
def batch_norm(b: Builder, n: Node) -> tuple[Val, ...]:
    x, scale, bias, mean, var = (n[i] for i in range(5))
    eps = n.float("epsilon", 1e-5)
    if x.rank < 2 and x.rank != 1:
        raise ShapeError(f"{x.type} is not [N,C,...]", n.loc)
    training = bool(n.int("training_mode")) and n.version >= 14
    if not training:
        factor = scale / b.emit(ew.Sqrt, var + eps)
        offset = bias - mean * factor
        factor, offset = b.cast(factor, x.dtype), b.cast(offset, x.dtype)
        return (x * _channel(b, factor, x) + _channel(b, offset, x),)
    axes = [i for i in range(x.rank) if i != 1]
    now = b.mean(x, axes)
    centred = x - _channel(b, now, x)
    spread = b.mean(centred * centred, axes)
    factor = _channel(b, scale / b.emit(ew.Sqrt, spread + eps), x)
    y = centred * factor + _channel(b, bias, x)
    keep = n.float("momentum", 0.9)
    return y, mean * keep + now * (1 - keep), var * keep + spread * (1 - keep)


def _normalised(b: Builder, x: Val, axes: tuple[int, ...], eps: float) -> Val:
    centred = x - b.mean(x, axes, True)
    variance = b.mean(centred * centred, axes, True)
    return centred / b.emit(ew.Sqrt, variance + eps)


@imports("InstanceNormalization")
def instance_norm(b: Builder, n: Node) -> Val:
    x = n[0]
    y = _normalised(b, x, tuple(range(2, x.rank)), n.float("epsilon", 1e-5))
    return y * _channel(b, n[1], x) + _channel(b, n[2], x)


@imports("GroupNormalization")
def group_norm(b: Builder, n: Node) -> Val:
    x, groups = n[0], n.int("num_groups", 1)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"{groups} groups of {x.type}", n.loc)
    wide = b.wide(x) if n.int("stash_type", 1) == 1 else x
    flat = b.reshape(wide, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    y = b.cast(b.reshape(_normalised(b, flat, (2,), n.float("epsilon", 1e-5)), x.shape), x.dtype)
    scale, bias = n[1], n[2]
    if n.version < 21:
        each = x.shape[1] // groups
        scale = b.reshape(b.expand(b.unsqueeze(scale, 1), (groups, each)), (x.shape[1],))
        bias = b.reshape(b.expand(b.unsqueeze(bias, 1), (groups, each)), (x.shape[1],))
    return y * _channel(b, scale, x) + _channel(b, bias, x)


@imports("LayerNormalization")
def layer_norm(b: Builder, n: Node) -> tuple[Val, ...]:
    x = n[0]
    axis, eps = check_axis(n.int("axis", -1), x.rank), n.float("epsilon", 1e-5)
    y = b.emit(nn.LayerNorm, x, n[1], n.get(2), axis=axis, eps=eps)
    if len(n.outputs) < 2:
        return (y,)
    wide, axes = b.wide(x), tuple(range(axis, x.rank))
    mean = b.mean(wide, axes, True)
    centred = wide - mean
    variance = b.mean(centred * centred, axes, True)
    return y, mean, b.emit(ew.Reciprocal, b.emit(ew.Sqrt, variance + eps))


@imports("RMSNormalization")
def rms_norm(b: Builder, n: Node) -> Val:
    x = n[0]
    axis = check_axis(n.int("axis", -1), x.rank)
    wide = b.wide(x) if n.int("stash_type", 1) == 1 else x
    mean = b.mean(wide * wide, tuple(range(axis, x.rank)), True)
    y = wide / b.emit(ew.Sqrt, mean + n.float("epsilon", 1e-5))
    return b.cast(y, n[1].dtype) * n[1]


_FEW_CHANNELS = 1024
"""Up to as many channels the mean over a window of them is a product with a band of ones."""


def _channel_mean(b: Builder, x: Val, size: int) -> Val:
    """Sum over a window of `size` channels, divided by size; channels outside count as 0."""
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    channels = x.shape[1]
    spatial = x.rank - 2
    if x.dtype in (f16, f32) and channels <= _FEW_CHANNELS and 1 <= spatial <= 3:
        step = np.arange(channels)[None, :] - np.arange(channels)[:, None]
        band = ((step >= -low) & (step <= high)) / size
        w = b.const(band.reshape((channels, channels, *(1,) * spatial)), x.dtype)
        ones, zeros = (1,) * spatial, (0,) * (2 * spatial)
        return b.emit(nn.Conv, x, w, None, strides=ones, pads=zeros, dilations=ones, groups=1)
    # an average pool along the axis of channels
    rows, rest = x.shape[0], math.prod(x.shape[2:])
    mean = b.emit(
        nn.AvgPool,
        b.reshape(x, (rows, 1, channels, rest)),
        kernel=(size, 1),
        strides=(1, 1),
        pads=(low, 0, high, 0),
        dilations=(1, 1),
        count_include_pad=True,
    )
    return b.reshape(mean, x.shape)


@imports("LRN")
def lrn(b: Builder, n: Node) -> Val:
    x = n[0]
    size, alpha, beta = n.int("size", 1), n.float("alpha", 1e-4), n.float("beta", 0.75)
    if size < 1 or x.rank < 2:
        raise ShapeError(f"size {size} for {x.type}", n.loc)
    mean = _channel_mean(b, x * x, size)
    base = mean * alpha + n.float("bias", 1.0)
    if beta == 0.75:
        root = b.emit(ew.Sqrt, base)
        return x / (root * b.emit(ew.Sqrt, root))
    return x / b.power(base, beta)


@imports("LpNormalization")
def lp_norm(b: Builder, n: Node) -> Val:
    x, axis, p = n[0], check_axis(n.int("axis", -1), n[0].rank), n.int("p", 2)
    if p == 1:
        norm = b.sum(b.emit(ew.Abs, x), (axis,), True)
    else:
        norm = b.emit(ew.Sqrt, b.sum(x * x, (axis,), True))
    zero = b.equal(norm, 0)
    return b.select(zero, 0.0, x / b.select(zero, 1.0, norm))


@imports("MeanVarianceNormalization")
def mvn(b: Builder, n: Node) -> Val:
    x = n[0]
    axes = n.ints("axes", (0, 2, 3))
    where = tuple(sorted(check_axis(a, x.rank) for a in axes))
    centred = x - b.mean(x, where, True)
    variance = b.mean(centred * centred, where, True)
    return centred / (b.emit(ew.Sqrt, variance) + 1e-9)
