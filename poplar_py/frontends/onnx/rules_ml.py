"""ONNX-ML ops that are plain tensor arithmetic (domain ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Array, Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import f32, i32, i64

__all__ = ["chosen", "class_labels", "feature_table", "named", "transformed"]

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
    return transformed(b, n, _linear(b, n, n.int("targets", 1)))


def _linear(b: Builder, n: Node, targets: int) -> Val:
    x = b.cast(n[0], f32)
    weights = np.asarray(n.floats("coefficients"), "f4")
    if targets < 1 or weights.size != targets * x.shape[-1]:
        raise ShapeError(f"{weights.size} coefficients for {targets} targets of {x.type}", n.loc)
    y = b.matmul(x, b.const(weights.reshape(targets, -1).T))
    offset = n.floats("intercepts")
    return y + b.const(np.asarray(offset, "f4")) if offset else y


def feature_table(b: Builder, n: Node) -> Val:
    """Operand 0 as rows of features, in floats."""
    x = n[0] if n[0].dtype.is_float else b.cast(n[0], f32)
    return x if x.rank == 2 else b.reshape(x, (1, x.numel))


def transformed(b: Builder, n: Node, y: Val) -> Val:
    """Scores after the node's `post_transform`."""
    kind = n.str("post_transform", "NONE")
    if kind == "NONE":
        return y
    if kind == "LOGISTIC":
        return b.emit(ew.Sigmoid, y)
    if kind == "SOFTMAX":
        return b.emit(nn.Softmax, y, axis=-1)
    raise b.refuse(f"the post transform {kind} is not supported")


def class_labels(b: Builder, n: Node, name: str) -> tuple[int, ...]:
    """The labels of a classifier, whole numbers."""
    labels = n.ints(name)
    if not labels:
        raise b.refuse("class labels that are strings are not supported")
    return labels


def chosen(b: Builder, labels: Sequence[int], scores: Val) -> Val:
    """The label of the highest score of each row."""
    return named(b, labels, b.emit(tensor.ArgMax, scores, axis=1))


def named(b: Builder, labels: Sequence[int], places: Val) -> Val:
    """The labels at some places of the list."""
    if list(labels) == list(range(len(labels))):
        return b.cast(places, i64)
    return b.gather(b.const(np.asarray(labels), i64), places, 0)


@imports("LinearClassifier", domain=_DOMAIN)
def linear_classifier(b: Builder, n: Node) -> tuple[Val, Val]:
    x = b.cast(feature_table(b, n), f32)
    labels = class_labels(b, n, "classlabels_ints")
    weights = np.asarray(n.floats("coefficients"), np.float32)
    if weights.size % x.shape[1]:
        raise ShapeError(f"{weights.size} coefficients for {x.type}", n.loc)
    y = b.matmul(x, b.const(weights.reshape(-1, x.shape[1]).T))
    offset = np.asarray(n.floats("intercepts"), np.float32)
    y = y + b.const(offset) if offset.size else y
    if y.shape[1] == 1 and len(labels) == 2:
        sure = b.emit(ew.Greater, y, b.const(0.0, f32))
        both = transformed(b, n, b.concat([-y, y], 1))
        return named(b, labels, b.cast(b.reshape(sure, (x.shape[0],)), i32)), both
    return chosen(b, labels, y), transformed(b, n, y)


@imports("FeatureVectorizer", domain=_DOMAIN)
def feature_vectorizer(b: Builder, n: Node) -> Val:
    flat = [b.reshape(x, (x.shape[0], x.numel // max(x.shape[0], 1))) for x in n.tensors()]
    parts = [b.cast(x, f32) for x in flat]
    widths = n.ints("inputdimensions", [p.shape[1] for p in parts])
    return b.concat([b.slice(p, 1, 0, w) for p, w in zip(parts, widths, strict=True)], 1)


@imports("ZipMap", domain=_DOMAIN)
def zip_map(b: Builder, n: Node) -> Val:
    """A table of scores stays one: a column per label, in the order of the labels."""
    return n[0]


@imports("OneHotEncoder", domain=_DOMAIN)
def one_hot_encoder(b: Builder, n: Node) -> Val:
    labels = n.ints("cats_int64s")
    if not labels:
        raise b.refuse("categories that are strings are not supported")
    known = b.equal(b.unsqueeze(b.cast(n[0], i64), -1), b.const(np.asarray(labels), i64))
    if not n.int("zeros", 1) and n[0].const is None:
        raise b.refuse("a check for unknown categories is not supported")
    return b.cast(known, f32)


@imports("LabelEncoder", domain=_DOMAIN)
def label_encoder(b: Builder, n: Node) -> Val:
    """Numbers for numbers; the first of equal keys counts. From version 4 on a NaN is found."""
    keys, values = _numbers(n, "keys"), _numbers(n, "values")
    if keys is None or values is None or keys.size != values.size:
        raise b.refuse("labels that are strings are not supported")
    floats = values.dtype.kind == "f"
    default = n.float("default_float", 0.0) if floats else n.int("default_int64", -1)
    if n.set("default_tensor"):
        given = n.tensor("default_tensor")
        known = given.const if isinstance(given, Val) else None
        default = default if known is None else known.reshape(-1)[0]
    x = n[0]
    wide = b.unsqueeze(x, -1)
    same = b.equal(wide, b.const(keys, x.dtype))
    if n.version >= 4 and x.dtype.is_float and np.isnan(keys).any():
        nan = b.both(b.emit(ew.IsNan, wide), b.const(np.isnan(keys)))
        same = b.emit(ew.Or, same, nan)
    size = keys.size
    first = b.select(same, b.const(np.arange(size), i32), b.const(size, i32))
    place = b.reduce(first, "min", (-1,))
    table = b.const(np.concatenate([values, np.asarray([default], values.dtype)]))
    return b.gather(table, place, 0)


def _numbers(n: Node, name: str) -> Array | None:
    """The keys or values of an encoder where they are numbers."""
    if n.set(f"{name}_int64s"):
        return np.asarray(n.ints(f"{name}_int64s"), np.int64)
    if n.set(f"{name}_floats"):
        return np.asarray(n.floats(f"{name}_floats"), np.float32)
    given = n.tensor(f"{name}_tensor")
    known = given.const if isinstance(given, Val) else None
    return None if known is None else known.reshape(-1)


@imports("SVMRegressor", domain=_DOMAIN)
def svm_regressor(b: Builder, n: Node) -> Val:
    """Kernel products with the support vectors, weighted; without any, a plain product."""
    x = b.cast(n[0], f32)
    weights = np.asarray(n.floats("coefficients"), "f4")
    count, width = n.int("n_supports"), x.shape[-1]
    rho = float((n.floats("rho") or (0.0,))[0])
    if count:
        vectors = np.asarray(n.floats("support_vectors"), "f4")
        if vectors.size != count * width or weights.size != count:
            raise ShapeError(f"{vectors.size} numbers for {count} vectors of {x.type}", n.loc)
        x = _kernel(b, n, x, vectors.reshape(count, width))
    elif weights.size != width:
        raise ShapeError(f"{weights.size} coefficients for {x.type}", n.loc)
    y = b.matmul(x, b.const(weights[:, None])) + rho
    if n.int("one_class"):
        y = b.select(b.emit(ew.Greater, y, b.like(0, y)), b.like(1, y), b.like(-1, y))
    return transformed(b, n, y)


def _kernel(b: Builder, n: Node, x: Val, vectors: Array) -> Val:
    """The kernel of every row of x with every vector."""
    kind = n.str("kernel_type", "LINEAR")
    gamma, offset, degree = (*n.floats("kernel_params"), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        apart = b.unsqueeze(x, 1) - b.const(vectors[None])
        return b.emit(ew.Exp, b.sum(apart * apart, (2,)) * -gamma)
    product = b.matmul(x, b.const(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    product = product * gamma + offset
    if kind == "POLY":
        return b.power(product, degree)
    if kind == "SIGMOID":
        return b.emit(ew.Tanh, product)
    raise InputError(f"no kernel is called {kind!r}", n.loc)
