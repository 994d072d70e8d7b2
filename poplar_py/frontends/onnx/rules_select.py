"""ONNX ops whose result size depends on values: those values have to be known."""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops.tensor import check_axis
from poplar_py.types import i32

__all__: list[str] = []


@imports("Compress")
def compress(b: Builder, n: Node) -> Val:
    x = n[0]
    keep = np.flatnonzero(b.known(n[1], "the condition of Compress"))
    if n.set("axis"):
        axis = check_axis(n.int("axis"), x.rank)
    else:
        x, axis = b.reshape(x, (x.numel,)), 0
    if keep.size and keep.max() >= x.shape[axis]:
        raise ShapeError(f"the condition is longer than axis {axis} of {x.type}", n.loc)
    return b.gather(x, b.const(keep, i32), axis)


@imports("NonZero")
def non_zero(b: Builder, n: Node) -> Val:
    known = _pure(b, n, n[0])
    return b.const(np.asarray(np.nonzero(known), np.int64).reshape(max(n[0].rank, 1), -1))


@imports("Unique")
def unique(b: Builder, n: Node) -> list[Val]:
    known = _pure(b, n, n[0])
    axis = check_axis(n.int("axis"), n[0].rank) if n.set("axis") else None
    values, first, inverse, counts = np.unique(known, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not n.int("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        rank = np.argsort(order)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    outs = [values, *(a.astype(np.int64) for a in (first, inverse, counts))]
    return [b.const(a) for a in outs]


def _pure(b: Builder, n: Node, x: Val) -> np.ndarray:
    """An array that depends on no input. Raises UnsupportedOp otherwise."""
    if x.const is None or not x.pure:
        raise b.refuse(
            f"{n.op_type}: the size of the result depends on values computed on the device",
            "use a mask of fixed size",
        )
    return x.const


@imports("NonMaxSuppression")
def non_max_suppression(b: Builder, n: Node) -> Val:
    raise b.refuse(
        "NonMaxSuppression: the size of the result depends on values computed on the device",
        "keep the scores and suppress on the host",
    )


@imports("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch", "TfIdfVectorizer")
def strings(b: Builder, n: Node) -> Val:
    raise b.refuse(f"{n.op_type} works on strings, which tiles do not hold")


@imports("ImageDecoder")
def image_decoder(b: Builder, n: Node) -> Val:
    raise b.refuse("ImageDecoder: the size of the result depends on the file", "decode before")
