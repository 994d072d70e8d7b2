"""NumPy meaning of core.random_*: a counter through a 32-bit hash, equal on every machine."""

from __future__ import annotations

import math

import numpy as np

from poplar_py.eval.registry import Array, meaning
from poplar_py.ops import core as ops

__all__ = ["hash_u32", "uniform"]


def hash_u32(x: Array) -> Array:
    """Mix 32 bits: three rounds of xor-shift and multiply (u32 in, u32 out)."""
    x = x.astype(np.uint32)
    x = (x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB)
    x = (x ^ (x >> np.uint32(11))) * np.uint32(0xAC4C1B51)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB)
    return x ^ (x >> np.uint32(14))


def uniform(seed: int, positions: Array) -> Array:
    """f32 numbers in [0, 1), a function of seed and position."""
    key = np.uint32((seed * 0x9E3779B1) & 0xFFFFFFFF)
    bits = hash_u32(positions.astype(np.uint32) ^ key) >> np.uint32(8)
    return bits.astype(np.float32) * np.float32(2.0**-24)


@meaning(ops.RandomUniform)
def random_uniform(op: ops.RandomUniform) -> Array:
    shape = tuple(int(d) for d in op.shape)
    u = uniform(op.seed, np.arange(math.prod(shape))).reshape(shape)
    low, span = np.float32(op.low), np.float32(op.high - op.low)
    return (low + span * u).astype(op.dtype.numpy)


@meaning(ops.RandomNormal)
def random_normal(op: ops.RandomNormal) -> Array:
    shape = tuple(int(d) for d in op.shape)
    count = np.arange(math.prod(shape))
    u = uniform(op.seed, 2 * count) + np.float32(2.0**-25)
    v = uniform(op.seed, 2 * count + 1)
    drawn = np.sqrt(np.float32(-2) * np.log(u)) * np.cos(np.float32(2 * math.pi) * v)
    out = np.float32(op.mean) + np.float32(op.scale) * drawn
    return out.reshape(shape).astype(op.dtype.numpy)
