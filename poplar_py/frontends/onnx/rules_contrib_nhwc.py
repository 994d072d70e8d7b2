"""Forms with channels in the last axis, and softmax in integers (domain com.microsoft): what
onnxruntime leaves of quantised networks when it optimises for a processor."""

from __future__ import annotations

import math

import numpy as np

from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_conv import largest
from poplar_py.frontends.onnx.rules_quant import lone, qlinear_conv_of, saturated
from poplar_py.frontends.onnx.values import Val
from poplar_py.types import f32, i32, i64

__all__ = ["channels_first", "channels_last"]

_DOMAIN = "com.microsoft"


def channels_first(b: Builder, x: Val) -> Val:
    """[N, ..., C] as [N, C, ...]."""
    return b.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def channels_last(b: Builder, x: Val) -> Val:
    """[N, C, ...] as [N, ..., C]."""
    return b.transpose(x, (0, *range(2, x.rank), 1))


@imports("QLinearConv", domain=_DOMAIN)
def qlinear_conv(b: Builder, n: Node) -> Val:
    if not n.int("channels_last"):
        return qlinear_conv_of(b, n, n[0])
    y = qlinear_conv_of(b, n, channels_first(b, n[0]))
    turned = channels_last(b, y)
    turned.tag = y.tag
    return turned


@imports("NhwcMaxPool", domain=_DOMAIN)
def nhwc_max_pool(b: Builder, n: Node) -> Val:
    return channels_last(b, largest(b, n, channels_first(b, n[0]))[0])


@imports("QLinearSoftmax", domain=_DOMAIN)
def qlinear_softmax(b: Builder, n: Node) -> Val:
    """Softmax between integers as onnxruntime computes it: a table of exponentials in whole steps,
    whole sums and quotients, whole reciprocal of the output's scale.

    Before opset 13 over all axes from `axis` on.
    """
    x = n[0]
    zero = n[4] if n.has(4) else b.const(np.zeros((), x.dtype.numpy))
    axis = n.int("axis", -1) % x.rank
    shape = x.shape
    if n.int("opset", 13) < 13:
        rows = math.prod(shape[:axis])
        x, axis = b.reshape(x, (rows, math.prod(shape[axis:]))), 1
    step = float(b.known(lone(b, n[1]), "the scale of the operand"))
    inverse = math.floor(np.float32(1) / np.float32(b.known(lone(b, n[3]), "the result's scale")))
    whole = b.cast(x, i32)
    places = whole - b.reduce(whole, "max", (axis,), True) + 255
    parts = b.gather(b.const(_exponentials(step, x.shape[axis])), places, 0)
    total = b.sum(parts, (axis,), True)
    quotient = (parts * inverse + total / 2) / total
    point = b.cast(lone(b, zero), f32)
    y = saturated(b, b.cast(quotient, f32) + point, None, zero.dtype, zero.tag)
    return b.reshape(y, shape)


def _exponentials(step: float, count: int) -> np.ndarray:
    """i64[256]: exp of 0 to -255 steps from the last entry down, so that `count` fit 32 bits."""
    unit = min((2**32 - 1) / max(count, 1), float(0x7FFFFF))
    powers = np.exp((np.arange(256) - 255.0) * step)
    return np.floor(powers * unit).astype(i64.numpy)
