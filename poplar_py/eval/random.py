"""NumPy meaning of core.random_*: Philox 4x32 with 10 rounds, as the vertices of poprand draw."""

from __future__ import annotations

import math

import numpy as np

from poplar_py.eval.registry import Array, meaning
from poplar_py.ops import core as ops

__all__ = ["random_words", "units"]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def random_words(seed: int, count: int) -> Array:
    """u32 words of elements 0 to count - 1: word e % 4 of block e // 4 under the seed."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    zero = np.zeros_like(blocks)
    a, b, c, d = blocks & _LOW, blocks >> np.uint64(32), zero, zero
    keys = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(10):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a = (second >> np.uint64(32)) ^ b ^ np.uint64(keys[0])
        c = (first >> np.uint64(32)) ^ d ^ np.uint64(keys[1])
        b, d = second & _LOW, first & _LOW
        keys = [(k + s) & 0xFFFFFFFF for k, s in zip(keys, _KEY_STEPS, strict=True)]
    return np.stack([a, b, c, d], 1).astype(np.uint32).reshape(-1)[:count]


def units(words: Array) -> Array:
    """Words as f32 in [0, 1): their upper 24 bits."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


@meaning(ops.RandomUniform)
def random_uniform(op: ops.RandomUniform) -> Array:
    shape = tuple(int(d) for d in op.shape)
    u = units(random_words(op.seed, math.prod(shape))).reshape(shape)
    low, span = np.float32(op.low), np.float32(op.high - op.low)
    return (low + span * u).astype(op.dtype.numpy)


@meaning(ops.RandomNormal)
def random_normal(op: ops.RandomNormal) -> Array:
    shape = tuple(int(d) for d in op.shape)
    count = math.prod(shape)
    u = units(random_words(op.seed, -(-count // 4) * 4)).reshape(-1, 2)
    radius = np.sqrt(np.float32(-2) * np.log(u[:, 0] + np.float32(2.0**-24)))
    angle = u[:, 1] * np.float32(2 * math.pi)
    drawn = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:count]
    out = np.float32(op.mean) + np.float32(op.scale) * drawn
    return out.reshape(shape).astype(op.dtype.numpy)
