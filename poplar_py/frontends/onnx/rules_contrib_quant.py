"""Quantised ops that onnxruntime's quantisers write (domain com.microsoft)."""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import IMPORT, Node, imports
from poplar_py.frontends.onnx.rules_contrib_nhwc import channels_first, channels_last
from poplar_py.frontends.onnx.rules_control import counted
from poplar_py.frontends.onnx.rules_conv import mean_pool
from poplar_py.frontends.onnx.rules_quant import centred, dequantize, lone, quantize, saturated
from poplar_py.frontends.onnx.values import Array, Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import f32, i32

__all__: list[str] = []

_DOMAIN = "com.microsoft"

IMPORT[_DOMAIN, "QuantizeLinear"] = quantize
IMPORT[_DOMAIN, "DequantizeLinear"] = dequantize


def _number(b: Builder, x: Val, scale: Val, zero: Val | None) -> Val:
    """x in floats."""
    wide = b.cast(centred(b, x, None if zero is None else lone(b, zero)), f32)
    return wide * b.cast(lone(b, scale), f32)


def _quantised(b: Builder, x: Val, scale: Val, zero: Val) -> Val:
    return saturated(b, x / lone(b, scale), lone(b, zero), zero.dtype, zero.tag)


def _shifted(b: Builder, number: Val, zero: Val) -> Val:
    """As onnxruntime's kernels of sums, products and averages: the zero point is added before
    rounding, which matters for halves when it is odd."""
    return saturated(b, number + b.cast(lone(b, zero), f32), None, zero.dtype, zero.tag)


@imports("QLinearAdd", domain=_DOMAIN)
def qlinear_add(b: Builder, n: Node) -> Val:
    a, c, zero = b.cast(n[0], f32), b.cast(n[3], f32), _zero(b, n, 7, n[0])
    ratio_a, ratio_c = (b.cast(lone(b, n[i]) / lone(b, n[6]), f32) for i in (1, 4))
    zero_a, zero_c = (b.cast(lone(b, _zero(b, n, i, n[0])), f32) for i in (2, 5))
    fixed = b.cast(lone(b, zero), f32) - (ratio_a * zero_a + ratio_c * zero_c)
    return saturated(b, a * ratio_a + fixed + c * ratio_c, None, zero.dtype, zero.tag)


@imports("QLinearMul", domain=_DOMAIN)
def qlinear_mul(b: Builder, n: Node) -> Val:
    a, c = (b.cast(centred(b, n[i], lone(b, _zero(b, n, i + 2, n[0]))), f32) for i in (0, 3))
    ratio = lone(b, n[1]) * lone(b, n[4]) / lone(b, n[6])
    return _shifted(b, a * c * b.cast(ratio, f32), _zero(b, n, 7, n[0]))


def _zero(b: Builder, n: Node, i: int, like: Val) -> Val:
    return n[i] if n.has(i) else b.const(np.zeros((), like.dtype.numpy))


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
    x = _number(b, n[0], n[1], n.get(2))
    last = bool(n.int("channels_last"))
    y = mean_pool(b, n, channels_first(b, x) if last else x) / lone(b, n[3])
    return _shifted(b, channels_last(b, y) if last else y, _zero(b, n, 4, n[0]))


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


@imports("MatMulNBits", domain=_DOMAIN)
def matmul_n_bits(b: Builder, n: Node) -> Val:
    """x[.., K] @ w[N, K]', where w is packed in blocks along K with a scale and a zero each."""
    bits, block = n.int("bits", 4), n.int("block_size", 32)
    k, width = n.int("K"), n.int("N")
    if bits not in (2, 4, 8) or n.has(4) or (n.has(3) and n[3].dtype.is_float):
        raise b.refuse("only 2, 4 and 8 bits in order, with whole zeros, are supported")
    blocks = -(-k // max(block, 1))
    packed = b.known(n[1], "the packed weights").reshape(-1)
    scales = b.known(n[2], "the scales").reshape(-1)
    if packed.size != width * blocks * block * bits // 8 or scales.size != width * blocks:
        raise ShapeError(f"packed weights {n[1].type} for {width} columns of {k}", n.loc)
    whole = _unpacked(packed, bits).reshape(width, blocks, block).astype(np.float32)
    zero = np.full((width, blocks, 1), 1 << (bits - 1), np.float32)
    if n.has(3):
        rows = _unpacked(b.known(n[3], "the zeros").reshape(width, -1), bits)
        zero = rows.reshape(width, -1)[:, :blocks, None].astype(np.float32)
    weights = (whole - zero) * scales.reshape(width, blocks, 1).astype(np.float32)
    weights = weights.reshape(width, blocks * block)[:, :k].T
    y = b.matmul(n[0], b.const(np.ascontiguousarray(weights), n[0].dtype))
    return y + n[5] if n.has(5) else y


def _unpacked(packed: Array, bits: int) -> Array:
    """Numbers of `bits` bits from bytes, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (packed.view(np.uint8)[..., None] >> shifts) & np.uint8((1 << bits) - 1)
