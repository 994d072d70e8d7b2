"""ONNX DFT and STFT as matrix products, MelWeightMatrix."""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops.tensor import check_axis
from poplar_py.types import i32

__all__: list[str] = []


def _waves(b: Builder, size: int, bins: int, x: Val) -> tuple[Val, Val]:
    """cos and sin of 2 pi n k / size as [size, bins]."""
    b.table(size * bins)
    phase = np.outer(np.arange(size), np.arange(bins)) % size
    angle = 2 * np.pi / size * phase
    return b.const(np.cos(angle), x.dtype), b.const(np.sin(angle), x.dtype)


def _transform(b: Builder, x: Val, bins: int, inverse: bool) -> Val:
    """DFT over the axis before the last of x[..., n, 1 or 2] -> [..., bins, 2]."""
    size = x.shape[-2]
    cos, sin = _waves(b, size, bins, x)
    real = b.pick(x, -1, 0)
    re, im = b.matmul(real, cos), b.matmul(real, sin)
    im = im if inverse else -im
    if x.shape[-1] == 2:
        other = b.pick(x, -1, 1)
        oc, os = b.matmul(other, cos), b.matmul(other, sin)
        re = re - os if inverse else re + os
        im = im + oc
    out = b.concat([b.unsqueeze(re, -1), b.unsqueeze(im, -1)], -1)
    return out / size if inverse else out


@imports("DFT")
def dft(b: Builder, n: Node) -> Val:
    x = n[0]
    if n.version >= 20:
        axis = b.integer(n[2], "the axis") if n.has(2) else -2
    else:
        axis = n.int("axis", 1)
    axis = check_axis(axis, x.rank)
    if x.shape[-1] not in (1, 2) or axis == x.rank - 1:
        raise ShapeError(f"{x.type} has no real and imaginary parts behind axis {axis}", n.loc)
    inverse, onesided = bool(n.int("inverse")), bool(n.int("onesided"))
    size = b.integer(n[1], "the length") if n.has(1) else x.shape[axis]
    if inverse and onesided:
        return _real_inverse(b, n, x, axis)
    x = _fit(b, x, axis, size)
    moved = b.swap(x, axis, -2)
    bins = size // 2 + 1 if onesided else size
    return b.swap(_transform(b, moved, bins, inverse), axis, -2)


def _fit(b: Builder, x: Val, axis: int, size: int) -> Val:
    dim = x.shape[axis]
    if size <= dim:
        return b.slice(x, axis, 0, size)
    return b.pad(x, [0] * x.rank, [size - dim if i == axis else 0 for i in range(x.rank)])


def _real_inverse(b: Builder, n: Node, x: Val, axis: int) -> Val:
    """The real signal of a one-sided spectrum: mirror its conjugate, transform back."""
    given = x.shape[axis]
    size = b.integer(n[1], "the length") if n.has(1) else 2 * (given - 1)
    half = size // 2 + 1
    x = _fit(b, x, axis, half)
    tail = b.flip(b.slice(x, axis, 1, size - half), axis)
    flip = b.const(np.asarray([1.0, -1.0])[: x.shape[-1]], x.dtype)
    moved = b.swap(b.concat([x, tail * flip], axis), axis, -2)
    out = b.swap(_transform(b, moved, size, True), axis, -2)
    return b.slice(out, -1, 0, 1)


@imports("STFT")
def stft(b: Builder, n: Node) -> Val:
    x, step = n[0], b.integer(n[1], "the frame step")
    if x.rank != 3:
        raise ShapeError(f"{x.type} is not [batch, length, 1 or 2]", n.loc)
    window = n.get(2)
    if n.has(3):
        length = b.integer(n[3], "the frame length")
    else:
        length = x.shape[1] if window is None else window.shape[0]
    if step < 1 or not 1 <= length <= x.shape[1]:
        raise ShapeError(f"frames of {length} every {step} of {x.type}", n.loc)
    frames = 1 + (x.shape[1] - length) // step
    b.table(frames * length)
    places = np.arange(frames)[:, None] * step + np.arange(length)
    cut = b.gather(x, b.const(places, i32), 1)  # [batch, frames, length, parts]
    if window is not None:
        cut = cut * b.reshape(window, (length, 1))
    bins = length // 2 + 1 if n.int("onesided", 1) else length
    return _transform(b, cut, bins, False)


@imports("MelWeightMatrix")
def mel_weight_matrix(b: Builder, n: Node) -> Val:
    bins, size, rate = (b.integer(n[i], "a mel parameter") for i in range(3))
    low, high = (float(b.known(n[i], "a mel edge").reshape(-1)[0]) for i in (3, 4))
    dtype = n.dtype("output_datatype", 1)[0]
    if bins < 1 or size < 1 or rate < 1 or bins * size > 1 << 24:
        raise ShapeError(f"{bins} bins of a transform of {size}", n.loc)
    edges = np.arange(bins + 2, dtype=np.float64)
    mels = [2595 * np.log10(1 + f / 700) for f in (low, high)]
    hertz = 700 * (10 ** ((edges * (mels[1] - mels[0]) / len(edges) + mels[0]) / 2595) - 1)
    places = ((size + 1) * hertz) // rate
    matrix = np.zeros((size // 2 + 1, bins))
    for i in range(bins):
        a, c, e = (int(p) for p in places[i : i + 3])
        if a == c:
            matrix[c, i] = 1
        else:
            matrix[a : c + 1, i] = (np.arange(a, c + 1) - a) / (c - a)
        if e > c:
            matrix[c:e, i] = (e - np.arange(c, e)) / (e - c)
    return b.const(matrix, dtype)
