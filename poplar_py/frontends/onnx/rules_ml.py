"""ONNX-ML ops that are plain tensor arithmetic (domain ai.onnx.ml)."""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.types import f32

__all__: list[str] = []

_DOMAIN = "ai.onnx.ml"


@imports("Binarizer", domain=_DOMAIN)
def binarizer(b: Builder, n: Node) -> Val:
    edge = b.like(n.float("threshold"), n[0])
    return b.cast(b.emit(ew.Greater, n[0], edge), n[0].dtype)


@imports("ArrayFeatureExtractor", domain=_DOMAIN)
def array_feature_extractor(b: Builder, n: Node) -> Val:
    x = n[0] if n[0].rank > 1 else b.unsqueeze(n[0], 0)
    indices = b.reshape(n[1], (n[1].numel,))
    return b.gather(x, b.index(indices, x.shape[-1]), -1)


@imports("Scaler", domain=_DOMAIN)
def scaler(b: Builder, n: Node) -> Val:
    x = b.cast(n[0], f32)
    offset, scale = np.asarray(n.floats("offset"), "f4"), np.asarray(n.floats("scale"), "f4")
    return (x - b.const(offset)) * b.const(scale)


@imports("Normalizer", domain=_DOMAIN)
def normalizer(b: Builder, n: Node) -> Val:
    x = b.cast(n[0], f32)
    kind = n.str("norm", "MAX")
    if kind == "MAX":
        norm = b.reduce(x, "max", (-1,), True)
    elif kind == "L1":
        norm = b.sum(b.emit(ew.Abs, x), (-1,), True)
    elif kind == "L2":
        norm = b.emit(ew.Sqrt, b.sum(x * x, (-1,), True))
    else:
        raise InputError(f"no norm is called {kind!r}", n.loc)
    return x / b.select(b.equal(norm, 0), 1.0, norm)


@imports("Imputer", domain=_DOMAIN)
def imputer(b: Builder, n: Node) -> Val:
    x = n[0]
    if x.dtype.is_float:
        fill = np.asarray(n.floats("imputed_value_floats"), "f4")
        gone = n.float("replaced_value_float")
        missing = b.emit(ew.IsNan, x) if np.isnan(gone) else b.equal(x, gone)
    else:
        fill = np.asarray(n.ints("imputed_value_int64s"), "i8")
        missing = b.equal(x, n.int("replaced_value_int64"))
    return b.select(missing, b.const(fill, x.dtype), x)


@imports("LinearRegressor", domain=_DOMAIN)
def linear_regressor(b: Builder, n: Node) -> Val:
    return _after(b, n, _linear(b, n, n.int("targets", 1)))


def _linear(b: Builder, n: Node, targets: int) -> Val:
    x = b.cast(n[0], f32)
    weights = np.asarray(n.floats("coefficients"), "f4")
    if targets < 1 or weights.size != targets * x.shape[-1]:
        raise ShapeError(f"{weights.size} coefficients for {targets} targets of {x.type}", n.loc)
    y = b.matmul(x, b.const(weights.reshape(targets, -1).T))
    offset = n.floats("intercepts")
    return y + b.const(np.asarray(offset, "f4")) if offset else y


def _after(b: Builder, n: Node, y: Val) -> Val:
    kind = n.str("post_transform", "NONE")
    if kind == "NONE":
        return y
    if kind == "LOGISTIC":
        return b.emit(ew.Sigmoid, y)
    if kind == "SOFTMAX":
        return b.emit(nn.Softmax, y, axis=-1)
    raise b.refuse(f"the post transform {kind} is not supported")
