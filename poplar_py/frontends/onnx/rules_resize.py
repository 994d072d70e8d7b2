"""ONNX Resize and Upsample: per axis, views, gathers of known places, or a small matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops.tensor import check_axis
from poplar_py.types import i32

__all__: list[str] = []


@dataclass(frozen=True)
class _Mode:
    kind: str
    transform: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool
    outside: float


def _mode(n: Node) -> _Mode:
    transform = n.str("coordinate_transformation_mode", "half_pixel")
    if n.version < 11:
        transform = "asymmetric"
    return _Mode(
        kind=n.str("mode", "nearest"),
        transform=transform,
        nearest=n.str("nearest_mode", "round_prefer_floor" if n.version >= 11 else "floor"),
        cubic=n.float("cubic_coeff_a", -0.75),
        exclude=bool(n.int("exclude_outside")),
        antialias=bool(n.int("antialias")),
        outside=n.float("extrapolation_value"),
    )


@imports("Upsample")
def upsample(b: Builder, n: Node) -> Val:
    x = n[0]
    known = b.known(n[1], "the scales").reshape(-1) if n.has(1) else n.floats("scales")
    scales = [float(s) for s in known]
    sizes = _scaled(x.shape, scales)
    mode = n.str("mode", "nearest")
    kind = _Mode(mode, "asymmetric", "floor", -0.75, False, False, 0.0)
    return _resize(b, x, range(x.rank), sizes, scales, kind, [])


@imports("Resize")
def resize(b: Builder, n: Node) -> Val:
    x = n[0]
    mode = _mode(n)
    scale_at = 2 if n.version >= 11 else 1
    axes = [check_axis(a, x.rank) for a in n.ints("axes", range(x.rank))]
    dims = [x.shape[a] for a in axes]
    scales: list[float] = []
    if n.has(scale_at):
        scales = [float(s) for s in b.known(n[scale_at], "the scales").reshape(-1)]
    if scales:
        sizes = _scaled(dims, scales)
    elif n.has(3):
        sizes = list(b.ints(n[3], "the sizes"))
        scales = [s / d for s, d in zip(sizes, dims, strict=True)]
        sizes, scales = _keep_ratio(n, dims, sizes, scales)
    else:
        raise InputError("neither scales nor sizes are given", n.loc)
    if min((*sizes, 1)) < 0 or len(sizes) != len(axes):
        raise ShapeError(f"sizes {sizes} for axes {axes} of {x.type}", n.loc)
    roi: list[float] = []
    if mode.transform == "tf_crop_and_resize":
        roi = [float(v) for v in b.known(n[1], "the region").reshape(-1)]
    return _resize(b, x, axes, sizes, scales, mode, roi)


def _scaled(dims: Sequence[int], scales: Sequence[float]) -> list[int]:
    """Sizes after scaling, in f32 as everybody computes them."""
    pairs = zip(dims, scales, strict=True)
    return [int(np.floor(np.float32(d) * np.float32(s))) for d, s in pairs]


def _keep_ratio(
    n: Node, dims: Sequence[int], sizes: list[int], scales: list[float]
) -> tuple[list[int], list[float]]:
    policy = n.str("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    kept = [math.floor(scale * d + 0.5) for d in dims]
    return kept, [scale] * len(dims)


def _resize(
    b: Builder,
    x: Val,
    axes: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float],
    mode: _Mode,
    roi: Sequence[float],
) -> Val:
    outside: list[tuple[int, np.ndarray]] = []
    count = len(list(axes))
    wide = x if mode.kind == "nearest" else b.wide(x)
    if mode.kind != "nearest" and not wide.dtype.is_float:
        raise InputError(f"{x.type} can only be resized to the nearest element", b.loc)
    for i, axis in enumerate(axes):
        dim, size, scale = x.shape[axis], sizes[i], scales[i]
        region = (roi[i], roi[i + count]) if roi else (0.0, 1.0)
        if size == dim and scale == 1.0 and region == (0.0, 1.0):
            continue
        b.table(size)
        places = _places(dim, size, scale, mode.transform, region)
        if roi:
            outside.append((axis, (places < 0) | (places > dim - 1)))
        wide = _axis(b, wide, axis, places, scale, mode)
    for axis, out in outside:
        if out.any():
            mask = out.reshape([-1 if j == axis else 1 for j in range(x.rank)])
            wide = b.select(b.const(mask), b.like(mode.outside, wide), wide)
    return b.cast(wide, x.dtype)


def _places(
    dim: int, size: int, scale: float, transform: str, region: tuple[float, float]
) -> np.ndarray:
    """Where in the input every output element lies."""
    at = np.arange(size, dtype=np.float64)
    if transform == "asymmetric":
        return at / scale
    width = scale * dim  # in general no whole number
    if transform == "align_corners":
        return at * (dim - 1) / (width - 1) if width != 1 else np.zeros(size)
    if transform == "tf_crop_and_resize":
        low, high = region
        if width != 1:
            return low * (dim - 1) + at * (high - low) * (dim - 1) / (width - 1)
        return np.full(size, 0.5 * (low + high) * (dim - 1))
    half = (at + 0.5) / scale - 0.5
    if transform == "pytorch_half_pixel":
        return half if width != 1 else np.full(size, -0.5)
    if transform == "half_pixel_symmetric":
        adjust = size / width
        return dim / 2 * (1 - adjust) + half
    if transform == "half_pixel":
        return half
    raise InputError(f"no coordinate transformation is called {transform!r}")


def _axis(b: Builder, x: Val, axis: int, places: np.ndarray, scale: float, mode: _Mode) -> Val:
    dim = x.shape[axis]
    if len(places) == 0:
        return b.slice(x, axis, 0, 0)
    if mode.kind == "nearest":
        return _pick(b, x, axis, _nearest(places, mode.nearest).clip(0, dim - 1))
    if mode.kind == "linear":
        b.table(len(places) * (2 / max(scale, 1e-9) if mode.antialias else 2))
        taps, weights = _linear_taps(places, scale, mode)
    elif mode.kind == "cubic":
        b.table(len(places) * (4 / max(scale, 1e-9) if mode.antialias else 4))
        taps, weights = _cubic_taps(places, scale, mode)
    else:
        raise InputError(f"no resize mode is called {mode.kind!r}", b.loc)
    if mode.exclude:
        weights = np.where((taps < 0) | (taps >= dim), 0.0, weights)
    if mode.exclude or mode.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    taps = taps.clip(0, dim - 1)
    if taps.shape[1] > 4:
        return _matrix(b, x, axis, taps, weights)
    total: Val | None = None
    line = [-1 if j == axis else 1 for j in range(x.rank)]
    for k in range(taps.shape[1]):
        if not weights[:, k].any():
            continue
        part = _pick(b, x, axis, taps[:, k]) * b.const(weights[:, k].reshape(line), x.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def _nearest(places: np.ndarray, how: str) -> np.ndarray:
    near = np.round(places * 2**20) / 2**20  # undo the rounding of scales like 1/3
    if how == "floor":
        found = np.floor(near)
    elif how == "ceil":
        found = np.ceil(near)
    elif how == "round_prefer_floor":
        found = np.ceil(near - 0.5)
    elif how == "round_prefer_ceil":
        found = np.floor(near + 0.5)
    else:
        raise InputError(f"no nearest mode is called {how!r}")
    return found.astype(np.int64)


def _pick(b: Builder, x: Val, axis: int, places: np.ndarray) -> Val:
    """Known places along an axis: a view where they repeat or step evenly, else a gather."""
    size, dim = len(places), x.shape[axis]
    if size and size % dim == 0 and (places == np.repeat(np.arange(dim), size // dim)).all():
        each = size // dim
        wide = b.expand(
            b.unsqueeze(x, axis + 1), (*x.shape[: axis + 1], each, *x.shape[axis + 1 :])
        )
        return b.reshape(wide, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
    steps = np.diff(places)
    if size > 1 and steps[0] != 0 and (steps == steps[0]).all():
        return b.slice(x, axis, int(places[0]), size, int(steps[0]))
    if size == 1:
        return b.slice(x, axis, int(places[0]), 1)
    return b.gather(x, b.const(places, i32), axis)


def _linear_taps(places: np.ndarray, scale: float, mode: _Mode) -> tuple[np.ndarray, np.ndarray]:
    if mode.antialias and scale < 1:
        reach = math.ceil(1 / scale)
        taps = np.floor(places)[:, None].astype(np.int64) + np.arange(-reach + 1, reach + 1)
        weights = np.maximum(0.0, 1 - np.abs(taps - places[:, None]) * scale)
        return taps, weights
    low = np.floor(places).astype(np.int64)
    part = places - low
    return np.stack([low, low + 1], 1), np.stack([1 - part, part], 1)


def _cubic_taps(places: np.ndarray, scale: float, mode: _Mode) -> tuple[np.ndarray, np.ndarray]:
    shrink = min(scale, 1.0) if mode.antialias else 1.0
    reach = math.ceil(2 / shrink)
    taps = np.floor(places)[:, None].astype(np.int64) + np.arange(-reach + 1, reach + 1)
    d = np.abs(taps - places[:, None]) * shrink
    a = mode.cubic
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return taps, np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _matrix(b: Builder, x: Val, axis: int, taps: np.ndarray, weights: np.ndarray) -> Val:
    b.table(len(taps) * x.shape[axis])
    full = np.zeros((len(taps), x.shape[axis]))
    np.add.at(full, (np.arange(len(taps))[:, None], taps), weights)
    moved = b.swap(x, axis, -1)
    return b.swap(b.matmul(moved, b.const(full.T, x.dtype)), axis, -1)
