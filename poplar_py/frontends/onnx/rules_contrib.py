"""Ops that onnxruntime's optimisers and quantisers write (domain com.microsoft)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from poplar_py.diagnostics import InputError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import IMPORT, Node, imports
from poplar_py.frontends.onnx.rules_activation import hard_sigmoid
from poplar_py.frontends.onnx.rules_control import counted
from poplar_py.frontends.onnx.rules_conv import conv, pool_window
from poplar_py.frontends.onnx.rules_linear import product
from poplar_py.frontends.onnx.rules_quant import centred, dequantize, lone, quantize, saturated
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import f32, i32

__all__: list[str] = []

_DOMAIN = "com.microsoft"

IMPORT[_DOMAIN, "QuantizeLinear"] = quantize
IMPORT[_DOMAIN, "DequantizeLinear"] = dequantize


# float ops


@imports("FusedMatMul", domain=_DOMAIN)
def fused_matmul(b: Builder, n: Node) -> Val:
    a, c = n[0], n[1]
    if n.int("transBatchA") or n.int("transBatchB"):
        raise b.refuse("transposed batches are not supported")
    a = b.swap(a, -1, -2) if n.int("transA") else a
    c = b.swap(c, -1, -2) if n.int("transB") else c
    out = product(b, a, c)
    alpha = n.float("alpha", 1.0)
    return out if alpha == 1.0 else out * alpha


def _activated(b: Builder, x: Val, name: str, params: tuple[float, ...]) -> Val:
    if name in ("", "Identity"):
        return x
    plain = {"Relu": nn.Relu, "Sigmoid": ew.Sigmoid, "Tanh": ew.Tanh}
    if name in plain:
        return b.emit(plain[name], x)
    if name == "LeakyRelu":
        return b.emit(nn.LeakyRelu, x, alpha=params[0] if params else 0.01)
    if name == "Clip" and len(params) == 2:
        return b.minimum(b.maximum(x, params[0]), params[1])
    if name == "HardSigmoid" and len(params) == 2:
        return hard_sigmoid(b, x, *params)
    raise b.refuse(f"the activation {name!r} is not supported")


@imports("FusedConv", domain=_DOMAIN)
def fused_conv(b: Builder, n: Node) -> Val:
    y = conv(b, n)
    assert isinstance(y, Val)
    y = y + n[3] if n.has(3) else y
    return _activated(b, y, n.str("activation"), n.floats("activation_params"))


@imports("Gelu", domain=_DOMAIN)
def gelu(b: Builder, n: Node) -> Val:
    return b.emit(nn.Gelu, n[0])


@imports("BiasGelu", domain=_DOMAIN)
def bias_gelu(b: Builder, n: Node) -> Val:
    return b.emit(nn.Gelu, n[0] + n[1])


@imports("FastGelu", domain=_DOMAIN)
def fast_gelu(b: Builder, n: Node) -> Val:
    x = n[0] + n[1] if n.has(1) else n[0]
    return b.emit(nn.Gelu, x, approximate="tanh")


@imports("QuickGelu", domain=_DOMAIN)
def quick_gelu(b: Builder, n: Node) -> Val:
    return n[0] * b.emit(ew.Sigmoid, n[0] * n.float("alpha", 1.702))


@imports("SkipLayerNormalization", domain=_DOMAIN)
def skip_layer_norm(b: Builder, n: Node) -> list[Val]:
    total = n[0] + n[1]
    total = total + n[4] if n.has(4) else total
    y = b.emit(nn.LayerNorm, total, n[2], n.get(3), axis=-1, eps=n.float("epsilon", 1e-12))
    return [y, total, total, total]  # the two statistics are for training


def _rms(b: Builder, n: Node, x: Val, scale: Val, default: float) -> Val:
    wide = b.wide(x)
    mean = b.mean(wide * wide, (-1,), True)
    y = wide / b.emit(ew.Sqrt, mean + n.float("epsilon", default))
    return b.cast(y, x.dtype) * scale


@imports("SkipSimplifiedLayerNormalization", domain=_DOMAIN)
def skip_rms_norm(b: Builder, n: Node) -> list[Val]:
    total = n[0] + n[1]
    total = total + n[3] if n.has(3) else total
    y = _rms(b, n, total, n[2], 1e-12)
    return [y, total, total, total]


@imports("SimplifiedLayerNormalization")
def rms_norm(b: Builder, n: Node) -> Val:
    return _rms(b, n, n[0], n[1], 1e-5)


@imports("EmbedLayerNormalization", domain=_DOMAIN)
def embed_layer_norm(b: Builder, n: Node) -> list[Val]:
    """Sum of word, position and segment embeddings, normalised; lengths from the mask."""
    ids, words, places = n[0], n[2], n[3]
    batch, length = ids.shape
    total = b.gather(words, b.index(ids, words.shape[0]), 0)
    if n.has(8):
        total = total + b.gather(places, b.index(n[8], places.shape[0]), 0)
    else:
        total = total + b.slice(places, 0, 0, length)
    if n.has(1) and n.has(4):
        total = total + b.gather(n[4], b.index(n[1], n[4].shape[0]), 0)
    y = b.emit(nn.LayerNorm, total, n[5], n[6], axis=-1, eps=n.float("epsilon", 1e-12))
    none = b.const(np.zeros(batch), i32)
    lengths = b.sum(b.cast(n[7], i32), (1,)) if n.has(7) else none
    return [y, lengths, total]


@imports("Attention", domain=_DOMAIN)
def attention(b: Builder, n: Node) -> Val:
    """Self-attention with packed weights: x[B, L, I] @ w[I, 3D] + bias, heads, mask."""
    if n.has(4) or n.set("qkv_hidden_sizes"):
        raise b.refuse("attention with a past or with sizes of its own is not supported")
    packed = b.matmul(n[0], n[1]) + n[2]
    width = packed.shape[-1] // 3
    q, k, v = b.split(packed, [width] * 3, -1)
    heads = n.int("num_heads", 1)
    if width % heads:
        raise InputError(f"{width} channels in {heads} heads", n.loc)
    bias = _mask_bias(b, n, q, n.get(3))
    if n.has(5):
        bias = n[5] if bias is None else bias + n[5]
    return _attend(b, n, q, k, v, heads, bias)


@imports("MultiHeadAttention", domain=_DOMAIN)
def multi_head_attention(b: Builder, n: Node) -> Val:
    if any(n.has(i) for i in (6, 7)) or not n.has(1) or n[1].rank != 3 or not n.has(2):
        raise b.refuse("only attention over query, key and value of rank 3 is supported")
    q, k, v = n[0], n[1], n[2]
    if n.has(3):
        sizes = [q.shape[-1], k.shape[-1], v.shape[-1]]
        bq, bk, bv = b.split(n[3], sizes, 0)
        q, k, v = q + bq, k + bk, v + bv
    bias = _mask_bias(b, n, k, n.get(4))
    if n.has(5):
        bias = n[5] if bias is None else bias + n[5]
    return _attend(b, n, q, k, v, n.int("num_heads", 1), bias)


def _mask_bias(b: Builder, n: Node, like: Val, mask: Val | None) -> Val | None:
    """Something to add to the scores: a large negative number where keys are masked."""
    if mask is None:
        return None
    away = n.float("mask_filter_value", -10000.0)
    length = like.shape[1]
    if mask.rank == 1:
        if mask.shape[0] != like.shape[0]:
            raise b.refuse(f"a mask of type {mask.type} is not supported")
        places = b.const(np.arange(length)[None, :], i32)
        keep = b.less(places, b.unsqueeze(b.cast(mask, i32), 1))
        shape = (mask.shape[0], 1, 1, length)
    elif mask.rank in (2, 3):
        keep = b.flag(mask)
        middle = (1, 1) if mask.rank == 2 else (1, mask.shape[1])
        shape = (mask.shape[0], *middle, mask.shape[-1])
    else:
        raise b.refuse(f"a mask of type {mask.type} is not supported")
    return b.select(b.reshape(keep, shape), b.like(0, like), b.like(away, like))


def _attend(b: Builder, n: Node, q: Val, k: Val, v: Val, heads: int, bias: Val | None) -> Val:
    def split_heads(x: Val) -> Val:
        batch, length, width = x.shape
        return b.transpose(b.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))

    q, k, v = split_heads(q), split_heads(k), split_heads(v)
    scale = n.float("scale") or 1 / math.sqrt(q.shape[-1])
    scores = b.matmul(q, b.swap(k, -1, -2)) * scale
    scores = scores if bias is None else scores + bias
    if n.int("unidirectional"):
        rows, cols = scores.shape[-2:]
        seen = np.tril(np.ones((rows, cols), bool), cols - rows)
        scores = b.select(b.const(seen), scores, n.float("mask_filter_value", -10000.0))
    out = b.transpose(b.matmul(b.emit(nn.Softmax, scores), v), (0, 2, 1, 3))
    return b.reshape(out, (*out.shape[:2], out.shape[2] * out.shape[3]))


# quantised ops


def _number(b: Builder, x: Val, scale: Val, zero: Val | None) -> Val:
    """x in floats."""
    wide = b.cast(centred(b, x, None if zero is None else lone(b, zero)), f32)
    return wide * b.cast(lone(b, scale), f32)


def _quantised(b: Builder, x: Val, scale: Val, zero: Val) -> Val:
    return saturated(b, x / lone(b, scale), lone(b, zero), zero.dtype, zero.tag)


def _pair(fn: Callable[[Builder, Val, Val], Val]) -> Callable[[Builder, Node], Val]:
    def rule(b: Builder, n: Node) -> Val:
        a = _number(b, n[0], n[1], n.get(2))
        c = _number(b, n[3], n[4], n.get(5))
        return _quantised(b, fn(b, a, c), n[6], _zero(b, n, 7, n[0]))

    return rule


def _zero(b: Builder, n: Node, i: int, like: Val) -> Val:
    return n[i] if n.has(i) else b.const(np.zeros((), like.dtype.numpy))


IMPORT[_DOMAIN, "QLinearAdd"] = _pair(lambda b, a, c: a + c)
IMPORT[_DOMAIN, "QLinearMul"] = _pair(lambda b, a, c: a * c)


@imports("QLinearSigmoid", domain=_DOMAIN)
def qlinear_sigmoid(b: Builder, n: Node) -> Val:
    x = _number(b, n[0], n[1], n.get(2))
    return _quantised(b, b.emit(ew.Sigmoid, x), n[3], _zero(b, n, 4, n[0]))


@imports("QLinearLeakyRelu", domain=_DOMAIN)
def qlinear_leaky_relu(b: Builder, n: Node) -> Val:
    x = _number(b, n[0], n[1], n.get(2))
    y = b.emit(nn.LeakyRelu, x, alpha=n.float("alpha", 0.01))
    return _quantised(b, y, n[3], _zero(b, n, 4, n[0]))


@imports("QLinearGlobalAveragePool", domain=_DOMAIN)
def qlinear_global_average(b: Builder, n: Node) -> Val:
    x = _number(b, n[0], n[1], n.get(2))
    last = bool(n.int("channels_last"))
    axes = range(1, x.rank - 1) if last else range(2, x.rank)
    return _quantised(b, b.mean(x, tuple(axes), True), n[3], _zero(b, n, 4, n[0]))


@imports("QLinearAveragePool", domain=_DOMAIN)
def qlinear_average_pool(b: Builder, n: Node) -> Val:
    if n.int("channels_last"):
        raise b.refuse("channels in the last axis are not supported")
    x = _number(b, n[0], n[1], n.get(2))
    window, extra = pool_window(n, x)
    y = b.emit(
        nn.AvgPool,
        x,
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        count_include_pad=bool(n.int("count_include_pad")),
        extra=extra,
    )
    return _quantised(b, y, n[3], _zero(b, n, 4, n[0]))


@imports("QLinearConcat", domain=_DOMAIN)
def qlinear_concat(b: Builder, n: Node) -> Val:
    parts = [_number(b, n[i], n[i + 1], n.get(i + 2)) for i in range(2, len(n), 3)]
    return _quantised(b, b.concat(parts, n.int("axis")), n[0], n[1])


@imports("QGemm", domain=_DOMAIN)
def qgemm(b: Builder, n: Node) -> Val:
    a, c = centred(b, n[0], lone(b, n[2])), n[3]
    zero = n[5]
    c = centred(b, c, lone(b, zero) if zero.numel == 1 else b.unsqueeze(zero, 0))
    a = b.swap(a, 0, 1) if n.int("transA") else a
    c = b.swap(c, 0, 1) if n.int("transB") else c
    total = b.emit(nn.MatMulInteger, a, c)
    total = total + n[6] if n.has(6) else total
    scale = lone(b, n[1]) * lone(b, n[4]) * n.float("alpha", 1.0)
    y = b.cast(total, f32) * scale
    return _quantised(b, y, n[7], n[8]) if n.has(7) and n.has(8) else y


@imports("MatMulIntegerToFloat", domain=_DOMAIN)
def matmul_integer_to_float(b: Builder, n: Node) -> Val:
    za, zc = n.get(4), n.get(5)
    a = centred(b, n[0], None if za is None else lone(b, za))
    c = centred(b, n[1], None if zc is None else lone(b, zc))
    scale = b.cast(lone(b, n[2]), f32) * b.cast(lone(b, n[3]), f32)
    y = b.cast(b.emit(nn.MatMulInteger, a, c), f32) * scale
    return y + n[6] if n.has(6) else y


@imports("DynamicQuantizeMatMul", domain=_DOMAIN)
def dynamic_quantize_matmul(b: Builder, n: Node) -> Val:
    zero = n.get(3)
    weights = centred(b, n[1], None if zero is None else lone(b, zero))
    y = _dynamic_product(b, n[0], weights, lone(b, n[2]))
    return y + n[4] if n.has(4) else y


def _dynamic_product(b: Builder, x: Val, weights: Val, scale: Val) -> Val:
    """x quantised to u8 by its own range, times integer weights, in floats."""
    axes = tuple(range(x.rank))
    top = b.maximum(b.reduce(x, "max", axes), 0)
    bottom = b.minimum(b.reduce(x, "min", axes), 0)
    step = (top - bottom) / 255.0
    step = b.select(b.equal(step, 0), 1.0, step)
    zero = b.emit(ew.Round, b.minimum(b.maximum((-bottom) / step, 0), 255))
    whole = b.emit(ew.Round, x / step) + zero
    number = b.cast(b.minimum(b.maximum(whole, 0), 255) - zero, i32)
    return b.cast(b.emit(nn.MatMulInteger, number, weights), f32) * (step * scale)


@imports("DynamicQuantizeLSTM", domain=_DOMAIN)
def dynamic_quantize_lstm(b: Builder, n: Node) -> list[Val]:
    """An LSTM whose products quantise their left operand on the way, weights [D, I, 4H]."""
    x = n[0]
    if n.has(4) or n.has(7) or n.set("activations") or n.set("clip"):
        raise b.refuse("lengths, peepholes, activations or clips are not supported here")
    direction = n.str("direction", "forward")
    sides = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in sides:
        raise InputError(f"no direction is called {direction!r}", n.loc)
    parts = [_lstm_side(b, n, x, d, back) for d, back in enumerate(sides[direction])]
    ys, hs, cs = zip(*parts, strict=True)
    return [
        b.concat([b.unsqueeze(y, 1) for y in ys], 1),
        b.concat([b.unsqueeze(h, 0) for h in hs], 0),
        b.concat([b.unsqueeze(c, 0) for c in cs], 0),
    ]


def _lstm_side(b: Builder, n: Node, x: Val, d: int, back: bool) -> tuple[Val, Val, Val]:
    def weights(i: int, zero: int) -> Val:
        point = b.pick(n[zero], 0, d)
        return centred(b, b.pick(n[i], 0, d), point)

    def state(i: int, shape: tuple[int, ...]) -> Val:
        return b.pick(n[i], 0, d) if n.has(i) else b.const(np.zeros(shape), f32)

    trip, batch, inputs = x.shape
    hidden = n[2].shape[1]
    x = b.flip(x, 0) if back else x
    flat = b.reshape(x, (trip * batch, inputs))
    base = _dynamic_product(b, flat, weights(1, 9), b.pick(n[8], 0, d))
    base = b.reshape(base, (trip, batch, 4 * hidden))
    if n.has(3):
        both = b.pick(n[3], 0, d)
        base = base + b.slice(both, 0, 0, 4 * hidden) + b.slice(both, 0, 4 * hidden, 4 * hidden)
    recurrent, scale = weights(2, 11), b.pick(n[10], 0, d)
    zero = b.const(np.broadcast_to(np.zeros((), np.float32), (trip, batch, hidden)))
    start = [zero, state(5, (batch, hidden)), state(6, (batch, hidden))]

    def step(i: Val, values: list[Val]) -> tuple[Val | None, list[Val]]:
        y, h, c = values
        now = b.reshape(b.emit(tensor.DynamicSlice, base, i, axis=0, size=1), base.shape[1:])
        gates = now + _dynamic_product(b, h, recurrent, scale)
        gi, go, gf, gc = b.split(gates, [hidden] * 4, 1)
        gi, go, gf = (b.emit(ew.Sigmoid, g) for g in (gi, go, gf))
        c = gf * c + gi * b.emit(ew.Tanh, gc)
        h = go * b.emit(ew.Tanh, c)
        y = b.emit(tensor.DynamicUpdate, y, b.unsqueeze(h, 0), i, axis=0)
        return None, [y, h, c]

    y, h, c = counted(b, trip, start, step, 40)
    return (b.flip(y, 0) if back else y), h, c
