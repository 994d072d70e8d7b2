"""Ops that onnxruntime's optimisers and quantisers write (domain com.microsoft)."""

from __future__ import annotations

import numpy as np

from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_activation import hard_sigmoid
from poplar_py.frontends.onnx.rules_conv import conv
from poplar_py.frontends.onnx.rules_linear import gemm, product
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.types import i32

__all__: list[str] = []

_DOMAIN = "com.microsoft"

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


@imports("FusedGemm", domain=_DOMAIN)
def fused_gemm(b: Builder, n: Node) -> Val:
    params = tuple(
        n.float(f"activation_{k}") for k in ("alpha", "beta") if n.set(f"activation_{k}")
    )
    y = gemm(b, n)
    assert isinstance(y, Val)
    return _activated(b, y, n.str("activation"), params)


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
