"""Rules of simplify that move arithmetic into constant weights, where it costs nothing at run time.

    conv(x, W) * s + b              =>  conv(x, W * s, b)        s, b constants per channel
    matmul(q, k) * c, q = x @ W     =>  matmul(x @ (W * c), k)   c one number

Results differ from the written order of operations by rounding only.
"""

from __future__ import annotations

import numpy as np

from poplar_py.ir.core import Op, Value
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.passes.simplify_rules import Array, Rewriter, constant_of, rule, uniform

__all__ = ["bias_into_conv", "scale_into_weights"]


@rule(ew.Mul, ew.Div)
def scale_into_weights(op: ew.Mul | ew.Div, rw: Rewriter) -> Value | None:
    """conv(x, W, b) * c = conv(x, W * c, b * c) for constants W, b and c per output channel."""
    pairs = ((op.a, op.b),) if isinstance(op, ew.Div) else ((op.a, op.b), (op.b, op.a))
    for y, c in pairs:
        conv, scale = _conv_and_channels(op, y, c, rw)
        if conv is None or scale is None:
            continue
        factor = 1.0 / scale if isinstance(op, ew.Div) else scale
        weight = np.asarray(constant_of(conv.w))
        column = factor.astype(weight.dtype).reshape(-1, *(1,) * (weight.ndim - 1))
        w = rw.constant(weight * column, conv.w.dtype)
        b = conv.bias
        if b is not None:
            b = rw.constant(np.asarray(constant_of(b), np.float64) * factor, b.dtype)
        return rw.add(nn.Conv, conv.x, w, b, **conv.attributes())
    return None


@rule(ew.Add, ew.Sub)
def bias_into_conv(op: ew.Add | ew.Sub, rw: Rewriter) -> Value | None:
    """conv(x, W, b) + c = conv(x, W, b + c) for constants b and c per output channel."""
    pairs = ((op.a, op.b),) if isinstance(op, ew.Sub) else ((op.a, op.b), (op.b, op.a))
    for y, c in pairs:
        conv, offset = _conv_and_channels(op, y, c, rw)
        if conv is None or offset is None:
            continue
        total = -offset if isinstance(op, ew.Sub) else offset
        if conv.bias is not None:
            total = total + np.asarray(constant_of(conv.bias), np.float64)
        b = rw.constant(total, conv.x.dtype)
        return rw.add(nn.Conv, conv.x, conv.w, b, **conv.attributes())
    return None


def _conv_and_channels(
    op: Op, y: Value, c: Value, rw: Rewriter
) -> tuple[nn.Conv | None, Array | None]:
    """A convolution with constant weights used once, and a constant per channel as f64[O]."""
    conv, array = y.owner, constant_of(c)
    if not isinstance(conv, nn.Conv) or array is None or not rw.once(y):
        return None, None
    known = constant_of(conv.w) is not None
    known = known and (conv.bias is None or constant_of(conv.bias) is not None)
    if not known or op.result.type != y.type or y.dtype.size < 4:
        return None, None
    channels = y.shape[1]
    shape = (1,) * (y.rank - array.ndim) + array.shape
    if shape[1] not in (1, channels) or any(d != 1 for i, d in enumerate(shape) if i != 1):
        return None, None
    wide = np.asarray(array, np.float64).reshape(-1)
    return conv, np.broadcast_to(wide, (int(channels),))


@rule(ew.Mul, ew.Div)
def factor_into_weights(op: ew.Mul | ew.Div, rw: Rewriter) -> Value | None:
    """A product times one number, where constant weights stand behind an operand of the product."""
    pairs = ((op.a, op.b),) if isinstance(op, ew.Div) else ((op.a, op.b), (op.b, op.a))
    for y, c in pairs:
        number = uniform(c)
        if not number or y.type != op.result.type or y.dtype.size < 4:
            continue
        if not isinstance(y.owner, nn.MatMul):
            continue
        return _scaled(y, 1.0 / number if isinstance(op, ew.Div) else float(number), rw)
    return None


_MOVES = (tensor.Reshape, tensor.Transpose, tensor.Expand)


def _scaled(value: Value, factor: float, rw: Rewriter) -> Value | None:
    """`value * factor` made of scaled constants; None where that is not possible.

    Ops on the way have one use each, so that nothing is computed twice.
    """
    array = constant_of(value)
    if array is not None and value.dtype.is_float:
        return rw.constant(np.asarray(array) * value.dtype.numpy.type(factor), value.dtype)
    op = value.owner
    if op is None or not rw.once(value):
        return None
    if isinstance(op, _MOVES):
        inner = _scaled(op.x, factor, rw)
        return None if inner is None else rw.add(type(op), inner, **op.attributes())
    if isinstance(op, nn.MatMul):
        return _scaled_product(op, factor, rw)
    if isinstance(op, ew.Add):
        a = _scaled(op.a, factor, rw)
        b = None if a is None else _scaled(op.b, factor, rw)
        return None if a is None or b is None else rw.add(ew.Add, a, b)
    return None


def _scaled_product(op: nn.MatMul, factor: float, rw: Rewriter) -> Value | None:
    b = _scaled(op.b, factor, rw)
    if b is not None:
        return rw.add(nn.MatMul, op.a, b)
    a = _scaled(op.a, factor, rw)
    return None if a is None else rw.add(nn.MatMul, a, op.b)


@rule(nn.Conv)
def affine_into_conv(op: nn.Conv, rw: Rewriter) -> Value | None:
    """conv(x * s, W) = conv(x, W * s), and without padding conv(x + t, W) = conv(x, W) + t sum W.

    s and t are single numbers: the affine blocks behind activations of re-parameterised networks.
    """
    inner = op.x.owner
    weight = constant_of(op.w)
    if weight is None or not rw.once(op.x) or op.x.dtype.size < 4:
        return None
    if not isinstance(inner, (ew.Mul, ew.Add)) or inner.result.type != op.x.type:
        return None
    for x, c in ((inner.a, inner.b), (inner.b, inner.a)):
        number = uniform(c)
        if number is None or x.type != op.x.type:
            continue
        if isinstance(inner, ew.Mul):
            w = rw.constant(weight * weight.dtype.type(number), op.w.dtype)
            return rw.add(nn.Conv, x, w, op.bias, **op.attributes())
        if any(op.pads) or (op.bias is not None and constant_of(op.bias) is None):
            continue
        total = float(number) * weight.sum(tuple(range(1, weight.ndim)), dtype=np.float64)
        if op.bias is not None:
            total = total + np.asarray(constant_of(op.bias), np.float64)
        return rw.add(nn.Conv, x, op.w, rw.constant(total, op.x.dtype), **op.attributes())
    return None
