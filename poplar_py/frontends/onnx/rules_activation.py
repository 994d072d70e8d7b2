"""ONNX activations. Most are compositions that the fuse pass makes one vertex of."""

from __future__ import annotations

import math

import numpy as np

from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_random import dropped
from poplar_py.frontends.onnx.values import Val
from poplar_py.ir.core import Op
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import i32

__all__ = ["hard_sigmoid", "softplus"]


@imports("Relu")
def relu(b: Builder, n: Node) -> Val:
    return b.emit(nn.Relu, n[0])


@imports("LeakyRelu")
def leaky_relu(b: Builder, n: Node) -> Val:
    return b.emit(nn.LeakyRelu, n[0], alpha=n.float("alpha", 0.01))


@imports("Gelu")
def gelu(b: Builder, n: Node) -> Val:
    return b.emit(nn.Gelu, n[0], approximate=n.str("approximate", "none"))


@imports("PRelu")
def prelu(b: Builder, n: Node) -> Val:
    x, slope = n[0], n[1]
    if n.version < 7 and slope.rank == 1 and slope.numel > 1 and x.rank > 1:
        slope = b.reshape(slope, (slope.numel, *(1,) * (x.rank - 2)))
    return b.select(b.less(x, 0), x * slope, x)


@imports("Elu")
def elu(b: Builder, n: Node) -> Val:
    x = n[0]
    return b.select(b.less(x, 0), (b.emit(ew.Exp, x) - 1) * n.float("alpha", 1.0), x)


@imports("Selu")
def selu(b: Builder, n: Node) -> Val:
    x = n[0]
    alpha, gamma = n.float("alpha", 1.67326319217681884), n.float("gamma", 1.05070102214813232)
    return b.select(b.less(x, 0), (b.emit(ew.Exp, x) - 1) * alpha, x) * gamma


@imports("Celu")
def celu(b: Builder, n: Node) -> Val:
    x, alpha = n[0], n.float("alpha", 1.0)
    return b.select(b.less(x, 0), (b.emit(ew.Exp, x / alpha) - 1) * alpha, x)


@imports("HardSigmoid")
def hard_sigmoid_rule(b: Builder, n: Node) -> Val:
    return hard_sigmoid(b, n[0], n.float("alpha", 0.2), n.float("beta", 0.5))


def hard_sigmoid(b: Builder, x: Val, alpha: float, beta: float) -> Val:
    """min(max(alpha * x + beta, 0), 1)."""
    return b.minimum(b.maximum(x * alpha + beta, 0), 1)


@imports("HardSwish")
def hard_swish(b: Builder, n: Node) -> Val:
    return n[0] * hard_sigmoid(b, n[0], 1 / 6, 0.5)


@imports("Softplus")
def softplus_rule(b: Builder, n: Node) -> Val:
    return softplus(b, n[0])


def softplus(b: Builder, x: Val) -> Val:
    """log(1 + e^x) without overflow."""
    tail = b.emit(ew.Log, b.emit(ew.Exp, -b.emit(ew.Abs, x)) + 1)
    return b.maximum(x, 0) + tail


@imports("Softsign")
def softsign(b: Builder, n: Node) -> Val:
    return n[0] / (b.emit(ew.Abs, n[0]) + 1)


@imports("Mish")
def mish(b: Builder, n: Node) -> Val:
    return n[0] * b.emit(ew.Tanh, softplus(b, n[0]))


@imports("Swish")
def swish(b: Builder, n: Node) -> Val:
    alpha = n.float("alpha", 1.0)
    inner = n[0] if alpha == 1.0 else n[0] * alpha
    return n[0] * b.emit(ew.Sigmoid, inner)


@imports("Shrink")
def shrink(b: Builder, n: Node) -> Val:
    x, bias, edge = n[0], n.float("bias"), n.float("lambd", 0.5)
    if not x.dtype.is_float:
        low, high = math.ceil(-edge), math.floor(edge)
        low = b.less(x, low) if x.dtype.kind == "i" else b.less(x, 0)
        above = b.emit(ew.Greater, x, b.like(high, x))
        return b.select(low, x + int(bias), b.select(above, x - int(bias), 0))
    above = b.select(b.emit(ew.Greater, x, b.like(edge, x)), x - bias, 0.0)
    return b.select(b.less(x, -edge), x + bias, above)


@imports("ThresholdedRelu")
def thresholded_relu(b: Builder, n: Node) -> Val:
    alpha = n.float("alpha", 1.0)
    return b.select(b.emit(ew.Greater, n[0], b.like(alpha, n[0])), n[0], 0.0)


def _along(b: Builder, n: Node, cls: type[Op]) -> Val:
    """Softmax kind: before opset 13 over all axes from `axis` on, as one."""
    x = n[0]
    if n.version >= 13:
        return b.emit(cls, x, axis=n.int("axis", -1))
    axis = n.int("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis == x.rank - 1:
        return b.emit(cls, x, axis=-1)
    rows = math.prod(x.shape[:axis])
    flat = b.reshape(x, (rows, math.prod(x.shape[axis:])))
    return b.reshape(b.emit(cls, flat, axis=-1), x.shape)


@imports("Softmax")
def softmax(b: Builder, n: Node) -> Val:
    return _along(b, n, nn.Softmax)


@imports("LogSoftmax")
def log_softmax(b: Builder, n: Node) -> Val:
    return _along(b, n, nn.LogSoftmax)


@imports("Hardmax")
def hardmax(b: Builder, n: Node) -> Val:
    x = n[0]
    axis = n.int("axis", -1 if n.version >= 13 else 1) % max(x.rank, 1)
    shape = x.shape
    if 0 in shape:
        return x
    if n.version < 13:
        x = b.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    best = b.unsqueeze(b.emit(tensor.ArgMax, x, axis=axis), axis)
    b.table(x.shape[axis])
    places = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.rank)])
    hit = b.equal(b.const(places, i32), best)
    return b.reshape(b.cast(hit, x.dtype), shape)


@imports("Dropout")
def dropout(b: Builder, n: Node) -> tuple[Val, ...]:
    x = n[0]
    training = n.get(2)
    if n.version < 12 or training is None:
        return x, b.const(np.broadcast_to(np.True_, x.shape))
    ratio = n.get(1)
    if not bool(b.known(training, "training_mode").reshape(-1)[0]):
        return x, b.const(np.broadcast_to(np.True_, x.shape))
    return dropped(b, x, ratio, n.int("seed"))
