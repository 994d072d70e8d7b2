"""ONNX GridSample and RoiAlign: coordinates, then gathers of the pixels around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_index import gather_nd
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.types import f32, i32

__all__: list[str] = []


class _Sampler:
    """Reads pixels of x[N, C, *in] at float places (one Val per spatial axis, each [N, *out])."""

    def __init__(self, b: Builder, x: Val, padding: str, corners: bool) -> None:
        self.b, self.padding, self.corners = b, padding, corners
        self.dims = x.shape[2:]
        order = (0, *range(2, x.rank), 1)
        flat = b.transpose(x, order)
        self.pixels = b.reshape(flat, (x.shape[0], math.prod(self.dims), x.shape[1]))

    def bound(self, place: Val, axis: int) -> Val:
        """A place moved into the image by the padding mode (unchanged for zeros)."""
        b, dim = self.b, self.dims[axis]
        if self.padding == "border":
            return b.minimum(b.maximum(place, 0), dim - 1)
        if self.padding == "reflection":
            low, high = (0.0, dim - 1.0) if self.corners else (-0.5, dim - 0.5)
            span = high - low
            if span <= 0:
                return place * 0.0
            turn = b.emit(ew.Mod, place - low, b.like(2 * span, place))
            return b.minimum(turn, 2 * span - turn) + low
        return place

    def read(self, places: Sequence[Val]) -> Val:
        """Pixels [N, *out, C] at whole places; zeros outside the image."""
        b = self.b
        inside: Val | None = None
        lin: Val | None = None
        for axis, (place, dim) in enumerate(zip(places, self.dims, strict=True)):
            place = self.bound(place, axis)
            if self.padding == "zeros":
                ok = b.both(b.greater_equal(place, 0), b.less(place, dim))
                inside = ok if inside is None else b.both(inside, ok)
            at = b.cast(b.minimum(b.maximum(place, 0), dim - 1), i32)
            lin = at if lin is None else lin * dim + at
        assert lin is not None
        taken = gather_nd(b, self.pixels, b.unsqueeze(lin, -1), 1)
        return taken if inside is None else b.select(b.unsqueeze(inside, -1), taken, 0.0)


@imports("GridSample")
def grid_sample(b: Builder, n: Node) -> Val:
    x, grid = n[0], n[1]
    spatial = x.rank - 2
    if spatial < 1 or grid.rank != x.rank or grid.shape[-1] != spatial:
        raise ShapeError(f"grid {grid.type} for {x.type}", n.loc)
    corners = bool(n.int("align_corners"))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        n.str("mode", "linear"), n.str("mode", "linear")
    )
    padding = n.str("padding_mode", "zeros")
    sampler = _Sampler(b, b.wide(x), padding, corners)
    places: list[Val] = []
    for axis in range(spatial):
        g, dim = b.wide(b.pick(grid, -1, spatial - 1 - axis)), x.shape[axis + 2]
        at = (g + 1) * ((dim - 1) / 2) if corners else ((g + 1) * dim - 1) / 2
        places.append(at)
    if mode == "nearest":
        y = sampler.read([b.emit(ew.Round, sampler.bound(p, i)) for i, p in enumerate(places)])
    elif mode == "linear":
        y = _weighted(b, sampler, [sampler.bound(p, i) for i, p in enumerate(places)], _linear)
    elif mode == "cubic":
        y = _weighted(b, sampler, places, _cubic)
    else:
        raise InputError(f"no sampling mode is called {mode!r}", n.loc)
    return b.cast(b.transpose(y, (0, y.rank - 1, *range(1, y.rank - 1))), x.dtype)


Weights = Callable[[Builder, Val], "list[tuple[int, Val]]"]


def _linear(b: Builder, part: Val) -> list[tuple[int, Val]]:
    return [(0, 1.0 - part), (1, part)]


def _cubic(b: Builder, part: Val) -> list[tuple[int, Val]]:
    a = -0.75

    def near(d: Val) -> Val:
        return ((d * (a + 2)) - (a + 3)) * d * d + 1

    def far(d: Val) -> Val:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    rest = 1.0 - part
    return [(-1, far(part + 1)), (0, near(part)), (1, near(rest)), (2, far(rest + 1))]


def _weighted(b: Builder, sampler: _Sampler, places: Sequence[Val], weights: Weights) -> Val:
    floors = [b.emit(ew.Floor, p) for p in places]
    taps = [weights(b, p - f) for p, f in zip(places, floors, strict=True)]
    total: Val | None = None
    for combo in product(*taps):
        at = [f + step for f, (step, _) in zip(floors, combo, strict=True)]
        weight = combo[0][1]
        for _, more in combo[1:]:
            weight = weight * more
        part = sampler.read(at) * b.unsqueeze(weight, -1)
        total = part if total is None else total + part
    assert total is not None
    return total


@imports("RoiAlign")
def roi_align(b: Builder, n: Node) -> Val:
    x, rois, batch = b.wide(n[0]), b.wide(n[1]), b.cast(n[2], i32)
    high, wide = n.int("output_height", 1), n.int("output_width", 1)
    ratio, scale = n.int("sampling_ratio"), n.float("spatial_scale", 1.0)
    half = n.str("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    if n.version < 16:
        half = n.str("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    if x.rank != 4 or rois.rank != 2 or high < 1 or wide < 1:
        raise ShapeError(f"x is {x.type}, regions {rois.type}", n.loc)
    count = rois.shape[0]
    shift = 0.5 if half else 0.0
    corner = [b.slice(rois, 1, i, 1) * scale - shift for i in range(4)]
    sizes = [corner[3] - corner[1], corner[2] - corner[0]]
    if not half:
        sizes = [b.maximum(s, 1.0) for s in sizes]
    counts = _samples(b, n, rois, ratio, (high, wide), scale, half)
    ys = _axis_places(b, corner[1], sizes[0], high, counts[0])  # [R, high * samples]
    xs = _axis_places(b, corner[0], sizes[1], wide, counts[1])
    maximum = n.str("mode", "avg") == "max"
    values = _roi_pixels(b, x, batch, ys, xs, maximum)  # [R, rows, cols, C]
    channels = x.shape[1]
    grid = b.reshape(values, (count, high, counts[0], wide, counts[1], channels))
    kept = b.reduce(grid, "max", (2, 4)) if maximum else b.mean(grid, (2, 4))
    return b.cast(b.transpose(kept, (0, 3, 1, 2)), n[0].dtype)


def _samples(
    b: Builder, n: Node, rois: Val, ratio: int, out: tuple[int, int], scale: float, half: bool
) -> tuple[int, int]:
    """Samples per bin and axis: given, or from regions known at compile time that agree."""
    if ratio > 0:
        return ratio, ratio
    known = b.known(rois, "the regions (sampling_ratio 0)") * scale
    found: list[int] = []
    for axis, (low, high) in enumerate(((1, 3), (0, 2))):
        size = known[:, high] - known[:, low]
        size = size if half else np.maximum(size, 1.0)
        each = {max(1, int(np.ceil(s / out[axis]))) for s in size}
        if len(each) != 1:
            raise b.refuse("regions of different sizes with sampling_ratio 0", "give a ratio")
        found.append(each.pop())
    return found[0], found[1]


def _axis_places(b: Builder, start: Val, size: Val, bins: int, samples: int) -> Val:
    b.table(bins * samples)
    fraction = (np.arange(bins * samples) + 0.5) / samples
    return start + (size / bins) * b.const(fraction[None, :], f32)


def _roi_pixels(b: Builder, x: Val, batch: Val, ys: Val, xs: Val, maximum: bool) -> Val:
    """Bilinear samples at ys x xs of each region's image; the weighted maximum in mode max."""
    images, channels, height, width = x.shape
    pixels = b.reshape(b.transpose(x, (0, 2, 3, 1)), (images * height * width, channels))
    base = b.reshape(b.cast(batch, i32) * (height * width), (batch.numel, 1, 1))
    rows, cols = _ends(b, ys, height), _ends(b, xs, width)
    total: Val | None = None
    for r, wr in rows:
        for c, wc in cols:
            lin = base + b.unsqueeze(r, 2) * width + b.unsqueeze(c, 1)
            weight = b.unsqueeze(wr, 2) * b.unsqueeze(wc, 1)
            part = b.gather(pixels, lin, 0) * b.unsqueeze(weight, 3)
            merge = b.maximum if maximum else b.add
            total = part if total is None else merge(total, part)
    assert total is not None
    return total


def _ends(b: Builder, place: Val, dim: int) -> list[tuple[Val, Val]]:
    """The two pixels beside a place and their weights; 0 for places outside by more than one."""
    ok = b.both(b.greater_equal(place, -1.0), b.emit(ew.LessEqual, place, b.like(dim, place)))
    at = b.minimum(b.emit(nn.Relu, place), dim - 1)
    low = b.emit(ew.Floor, at)
    part = at - low
    first = b.cast(low, i32)
    second = b.minimum(first + 1, dim - 1)
    return [(first, b.select(ok, 1.0 - part, 0.0)), (second, b.select(ok, part, 0.0))]
