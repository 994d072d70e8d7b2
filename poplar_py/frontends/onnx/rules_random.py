"""ONNX random numbers and dropout in training mode."""

from __future__ import annotations

import numpy as np

from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import core, tensor
from poplar_py.ops import elementwise as ew
from poplar_py.types import DType, f32, i32

__all__ = ["dropped"]


def _seed(n: Node) -> int:
    """The given seed, else one of the node's place (equal programs draw equal numbers)."""
    if n.set("seed"):
        return int(np.float32(n.float("seed")).view(np.uint32))
    return 0x9E37 + 7919 * max(n.loc.index, 0)


def _uniform(b: Builder, shape: tuple[int, ...], seed: int, dtype: DType = f32) -> Val:
    return b.emit(core.RandomUniform, shape=tuple(shape), dtype=dtype, seed=seed)


def dropped(b: Builder, x: Val, ratio: Val | None, seed: int) -> tuple[Val, Val]:
    """x with elements zeroed at random and the others scaled up; which were kept."""
    share = b.const(0.5, f32) if ratio is None else b.cast(b.reshape(ratio, ()), f32)
    if share.const is not None and float(share.const) == 0.0:
        return x, b.const(np.broadcast_to(np.True_, x.shape))
    keep = b.emit(ew.GreaterEqual, _uniform(b, x.shape, seed), share)
    scaled = x / b.cast(1.0 - share, x.dtype)
    return b.select(keep, scaled, b.like(0, x)), keep


def _type(n: Node, like: Val | None) -> DType:
    if n.set("dtype") or like is None:
        return n.dtype("dtype", 1)[0]
    return like.dtype


@imports("RandomUniform", "RandomUniformLike")
def random_uniform(b: Builder, n: Node) -> Val:
    like = n.get(0)
    shape = n.ints("shape") if like is None else like.shape
    low, high = n.float("low", 0.0), n.float("high", 1.0)
    dtype = _type(n, like)
    return b.emit(
        core.RandomUniform, shape=tuple(shape), dtype=dtype, low=low, high=high, seed=_seed(n)
    )


@imports("RandomNormal", "RandomNormalLike")
def random_normal(b: Builder, n: Node) -> Val:
    like = n.get(0)
    shape = n.ints("shape") if like is None else like.shape
    mean, scale = n.float("mean", 0.0), n.float("scale", 1.0)
    dtype = _type(n, like)
    return b.emit(
        core.RandomNormal, shape=tuple(shape), dtype=dtype, mean=mean, scale=scale, seed=_seed(n)
    )


@imports("Bernoulli")
def bernoulli(b: Builder, n: Node) -> Val:
    drawn = b.less(_uniform(b, n[0].shape, _seed(n)), b.cast(n[0], f32))
    return b.cast(drawn, _type(n, n[0]))


@imports("Multinomial")
def multinomial(b: Builder, n: Node) -> Val:
    """Draws by comparing a uniform number with the running sum of probabilities."""
    x, count = n[0], n.int("sample_size", 1)
    top = b.reduce(x, "max", (1,), True)
    weights = b.cast(b.emit(ew.Exp, x - top), f32)
    running = b.emit(tensor.Cumulative, weights, kind="sum", axis=1)
    total = b.slice(running, 1, x.shape[1] - 1, 1)
    drawn = _uniform(b, (x.shape[0], count), _seed(n)) * total
    below = b.less(b.unsqueeze(running, 1), b.unsqueeze(drawn, 2))
    chosen = b.sum(b.cast(below, i32), (2,))
    limited = b.minimum(chosen, x.shape[1] - 1)
    return b.cast(limited, n.dtype("dtype", 6)[0])
