"""ONNX convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import MAX_TABLE, Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_index import gather_nd
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import i32, i64

__all__ = ["Window", "conv_window", "largest", "pool_window"]


class Window:
    """Kernel, strides, dilations and explicit pads of a node with `spatial` axes."""

    def __init__(self, n: Node, kernel: Sequence[int], spatial: int) -> None:
        self.kernel = tuple(kernel)
        self.strides = n.ints("strides", (1,) * spatial)
        self.dilations = n.ints("dilations", (1,) * spatial)
        self.pads = n.ints("pads", (0,) * 2 * spatial)
        lists = (self.kernel, self.strides, self.dilations)
        if any(len(x) != spatial for x in lists) or len(self.pads) != 2 * spatial:
            raise ShapeError(f"kernel, strides, dilations or pads do not fit {spatial} axes", n.loc)
        if min((*self.strides, *self.dilations, *self.kernel)) < 1:
            raise ShapeError("kernel, strides and dilations are at least 1", n.loc)

    @property
    def extents(self) -> list[int]:
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]


def conv_window(n: Node, x: Val, kernel: Sequence[int]) -> Window:
    """The window of a convolution; auto_pad resolved."""
    spatial = x.rank - 2
    if spatial < 1:
        raise ShapeError(f"{x.type} has no spatial axis", n.loc)
    window = Window(n, kernel, spatial)
    _auto_pad(n, window, x)
    return window


def _auto_pad(n: Node, window: Window, x: Val) -> None:
    mode = n.str("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return
    spatial = x.rank - 2
    if mode == "VALID":
        window.pads = (0,) * (2 * spatial)
        return
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise InputError(f"no auto_pad is called {mode!r}", n.loc)
    begin, end = [0] * spatial, [0] * spatial
    for i, extent in enumerate(window.extents):
        dim, stride = x.shape[i + 2], window.strides[i]
        total = max(0, (-(-dim // stride) - 1) * stride + extent - dim)
        small, large = total // 2, total - total // 2
        begin[i], end[i] = (small, large) if mode == "SAME_UPPER" else (large, small)
    window.pads = (*begin, *end)


def _crop(b: Builder, x: Val, window: Window) -> Val:
    """Negative pads cut the input."""
    spatial = x.rank - 2
    for i in range(spatial):
        low, high = max(0, -window.pads[i]), max(0, -window.pads[i + spatial])
        if low or high:
            x = b.slice(x, i + 2, low, x.shape[i + 2] - low - high)
    window.pads = tuple(max(0, p) for p in window.pads)
    return x


@imports("Conv")
def conv(b: Builder, n: Node) -> Val:
    x, w = n[0], n[1]
    window = conv_window(n, x, w.shape[2:])
    x = _crop(b, x, window)
    return b.emit(
        nn.Conv,
        x,
        w,
        n.get(2),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=n.int("group", 1),
    )


@imports("ConvTranspose")
def conv_transpose(b: Builder, n: Node) -> Val:
    x, w = n[0], n[1]
    spatial = x.rank - 2
    window = Window(n, w.shape[2:], spatial)
    extra = n.ints("output_padding", (0,) * spatial)
    pads = list(window.pads)
    mode = n.str("auto_pad", "NOTSET")
    shape = n.ints("output_shape")[-spatial:] if n.set("output_shape") else ()
    same = mode in ("SAME_UPPER", "SAME_LOWER")
    for i in range(spatial):
        full = (x.shape[i + 2] - 1) * window.strides[i] + window.extents[i] + extra[i]
        if not shape and not same:
            pads[i + spatial] -= extra[i]
            continue
        # A kernel that is smaller than its stride leaves the end of a SAME result away.
        total = full - shape[i] if shape else max(0, full - x.shape[i + 2] * window.strides[i])
        small, large = total // 2, total - total // 2
        pads[i], pads[i + spatial] = (small, large) if mode == "SAME_UPPER" else (large, small)
        if total < 0:
            pads[i], pads[i + spatial] = 0, total
        pads[i + spatial] -= extra[i]
    return b.emit(
        nn.ConvTranspose,
        x,
        w,
        n.get(2),
        strides=window.strides,
        pads=tuple(pads),
        dilations=window.dilations,
        groups=n.int("group", 1),
    )


def pool_window(n: Node, x: Val) -> tuple[Window, tuple[int, ...]]:
    """The window of a pool and the extra end pads of ceil_mode, which `pads` include."""
    spatial = x.rank - 2
    window = conv_window(n, x, n.ints("kernel_shape"))
    if min(window.pads) < 0:
        raise ShapeError(f"pads {list(window.pads)} are negative", n.loc)
    if not n.int("ceil_mode"):
        return window, (0,) * spatial
    extra: list[int] = []
    for i in range(spatial):
        stride, extent = window.strides[i], window.extents[i]
        begin, dim = window.pads[i], x.shape[i + 2]
        room = dim + begin + window.pads[i + spatial] - extent
        steps = -(-room // stride)
        if steps * stride >= dim + begin:
            steps -= 1  # a window may not start in the end padding
        extra.append(max(0, steps * stride - room))
    ends = [p + e for p, e in zip(window.pads[spatial:], extra, strict=True)]
    window.pads = (*window.pads[:spatial], *ends)
    return window, tuple(extra)


def largest(b: Builder, n: Node, x: Val, indices: bool = False) -> tuple[Val, ...]:
    """The pool that a node's attributes describe, over x."""
    window, _ = pool_window(n, x)
    out = b.emit(
        nn.MaxPool,
        x,
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        indices=indices,
    )
    return out if indices else (out,)


@imports("MaxPool")
def max_pool(b: Builder, n: Node) -> tuple[Val, ...]:
    x = n[0]
    wanted = len(n.outputs) > 1 and bool(n.outputs[1])
    out = largest(b, n, x, wanted)
    if not wanted:
        return out
    places = b.cast(out[1], i64)
    block = math.prod(x.shape[2:])
    if n.int("storage_order"):
        places = _column_major(b, places, x.shape[2:])
    start = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * (x.rank - 2))
    return out[0], places + b.const(start * block, i64)


def _column_major(b: Builder, places: Val, dims: Sequence[int]) -> Val:
    """Row-major positions in a block as column-major ones."""
    total: Val | None = None
    stride = 1
    for i, dim in enumerate(dims):
        inner = math.prod(dims[i + 1 :])
        digit = b.emit(ew.Mod, places / inner, b.like(dim, places)) * stride
        total = digit if total is None else total + digit
        stride *= dim
    assert total is not None
    return total


@imports("AveragePool")
def average_pool(b: Builder, n: Node) -> Val:
    return mean_pool(b, n, n[0])


def mean_pool(b: Builder, n: Node, x: Val) -> Val:
    """The pool that a node's attributes describe, over x."""
    window, extra = pool_window(n, x)
    return b.emit(
        nn.AvgPool,
        x,
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        count_include_pad=bool(n.int("count_include_pad")),
        extra=extra,
    )


@imports("LpPool")
def lp_pool(b: Builder, n: Node) -> Val:
    x, p = n[0], n.int("p", 2)
    window, _ = pool_window(n, x)
    size = math.prod(window.kernel)
    mean = b.emit(
        nn.AvgPool,
        _to_power(b, b.emit(ew.Abs, x), p),
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        count_include_pad=True,
    )
    return _root(b, mean * size, p)


def _to_power(b: Builder, x: Val, p: int) -> Val:
    return x if p == 1 else x * x if p == 2 else b.power(x, p)


def _root(b: Builder, x: Val, p: int) -> Val:
    return x if p == 1 else b.emit(ew.Sqrt, x) if p == 2 else b.power(x, 1 / p)


def _spatial_axes(x: Val, n: Node) -> tuple[int, ...]:
    if x.rank < 2:
        raise ShapeError(f"{x.type} is not [N,C,...]", n.loc)
    return tuple(range(2, x.rank))


@imports("GlobalAveragePool")
def global_average(b: Builder, n: Node) -> Val:
    return b.mean(n[0], _spatial_axes(n[0], n), True)


@imports("GlobalMaxPool")
def global_max(b: Builder, n: Node) -> Val:
    return b.reduce(n[0], "max", _spatial_axes(n[0], n), True)


@imports("GlobalLpPool")
def global_lp(b: Builder, n: Node) -> Val:
    p = n.int("p", 2)
    total = b.sum(_to_power(b, b.emit(ew.Abs, n[0]), p), _spatial_axes(n[0], n), True)
    return _root(b, total, p)


@imports("MaxUnpool")
def max_unpool(b: Builder, n: Node) -> Val:
    """Values at the positions they were the largest of; zeros elsewhere."""
    x, indices = n[0], n[1]
    spatial = x.rank - 2
    window = Window(n, n.ints("kernel_shape"), spatial)
    sizes = [
        (d - 1) * s + e - window.pads[i] - window.pads[i + spatial]
        for i, (d, s, e) in enumerate(zip(x.shape[2:], window.strides, window.extents, strict=True))
    ]
    inferred = (*x.shape[:2], *sizes)
    shape = b.ints(n[2], "the output shape") if n.has(2) else inferred
    flat = b.const(np.broadcast_to(np.zeros((), x.dtype.numpy), (math.prod(inferred), 1)))
    rows = b.reshape(b.cast(indices, i32), (x.numel,))
    updates = b.reshape(x, (x.numel, 1))
    out = b.reshape(b.emit(tensor.Scatter, flat, rows, updates), inferred)
    after = [s - i for s, i in zip(shape, inferred, strict=True)]
    if min(after) < 0:
        raise ShapeError(f"the output shape {list(shape)} is smaller than {list(inferred)}", n.loc)
    return b.pad(out, [0] * x.rank, after)


@imports("Col2Im")
def col2im(b: Builder, n: Node) -> Val:
    """Sum of column blocks placed at their windows: one padded, strided piece per kernel tap."""
    x = n[0]
    image, block = b.ints(n[1], "the image shape"), b.ints(n[2], "the block shape")
    spatial = len(image)
    window = Window(n, block, spatial)
    channels = x.shape[1] // math.prod(block)
    padded = [d + window.pads[i] + window.pads[i + spatial] for i, d in enumerate(image)]
    steps = [
        (d - e) // s + 1 for d, e, s in zip(padded, window.extents, window.strides, strict=True)
    ]
    columns = b.reshape(x, (x.shape[0], channels, *block, *steps))
    taps = math.prod(block)
    flat = b.reshape(columns, (x.shape[0], channels * taps, math.prod(steps)))
    b.table(taps * math.prod(steps))
    places = np.zeros((taps, math.prod(steps)), np.int64)
    for t, tap in enumerate(np.ndindex(*block)):
        grid = np.zeros((1,) * spatial, np.int64)
        for i in range(spatial):
            line = tap[i] * window.dilations[i] + np.arange(steps[i]) * window.strides[i]
            view = [-1 if j == i else 1 for j in range(spatial)]
            grid = grid + (line * math.prod(padded[i + 1 :])).reshape(view)
        places[t] = np.broadcast_to(grid, steps).reshape(-1)
    total = math.prod(padded)
    rows = b.transpose(b.reshape(flat, (x.shape[0] * channels, taps * math.prod(steps))), (1, 0))
    zero = b.const(np.broadcast_to(np.zeros((), x.dtype.numpy), (total, x.shape[0] * channels)))
    summed = b.emit(tensor.Scatter, zero, b.const(places.reshape(-1), i32), rows, reduction="add")
    out = b.reshape(b.transpose(summed, (1, 0)), (x.shape[0], channels, *padded))
    for i, d in enumerate(image):
        out = b.slice(out, i + 2, window.pads[i], d)
    return out


@imports("DeformConv")
def deform_conv(b: Builder, n: Node) -> Val:
    """2-D deformable convolution: bilinear samples at moved taps, then a matrix product."""
    x, w, offset = n[0], n[1], n[2]
    if x.rank != 4:
        raise b.refuse(f"DeformConv of {x.type}: only two spatial axes are supported")
    window = conv_window(n, x, n.ints("kernel_shape", w.shape[2:]))
    groups, shifts = n.int("group", 1), n.int("offset_group", 1)
    batch, channels = x.shape[:2]
    out = offset.shape[2:]
    taps = math.prod(window.kernel)
    moves = b.reshape(offset, (batch, shifts, taps, 2, *out))
    base = _tap_grid(window, out)
    rows = b.pick(moves, 3, 0) + b.const(base[0], x.dtype)
    cols = b.pick(moves, 3, 1) + b.const(base[1], x.dtype)
    image = b.reshape(x, (batch, shifts, channels // shifts, *x.shape[2:]))
    sample = bilinear(b, image, rows, cols)  # [N, shifts, taps, oh, ow, C/shifts]
    if n.has(4):
        mask = b.reshape(n[4], (batch, shifts, taps, *out))
        sample = sample * b.unsqueeze(mask, -1)
    columns = b.transpose(sample, (0, 1, 5, 2, 3, 4))
    each = channels // groups
    columns = b.reshape(columns, (batch, groups, each * taps, math.prod(out)))
    weights = b.reshape(w, (1, groups, w.shape[0] // groups, each * taps))
    y = b.reshape(b.matmul(weights, columns), (batch, w.shape[0], *out))
    return y + b.reshape(n[3], (1, w.shape[0], 1, 1)) if n.has(3) else y


def _tap_grid(window: Window, out: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    if math.prod(window.kernel) * math.prod(out) > MAX_TABLE:
        raise ShapeError(f"{list(window.kernel)} taps of {list(out)} places are too many")
    kh, kw = window.kernel
    lines: list[np.ndarray] = []
    for i in range(2):
        place = np.arange(out[i]) * window.strides[i] - window.pads[i]
        tap = np.arange(window.kernel[i]) * window.dilations[i]
        lines.append(tap[:, None] + place[None, :])  # [k, out]
    shape = (kh, kw, out[0], out[1])
    rows = np.broadcast_to(lines[0][:, None, :, None], shape)
    cols = np.broadcast_to(lines[1][None, :, None, :], shape)
    return rows.reshape(-1, *out), cols.reshape(-1, *out)


def bilinear(b: Builder, image: Val, rows: Val, cols: Val) -> Val:
    """image[N, G, C, H, W] at fractional places rows, cols[N, G, ...] -> [N, G, ..., C].

    Places outside the image count as zeros.
    """
    n, g, c, h, w = image.shape
    pixels = b.reshape(b.transpose(image, (0, 1, 3, 4, 2)), (n, g, h * w, c))
    top, left = b.emit(ew.Floor, rows), b.emit(ew.Floor, cols)
    total: Val | None = None
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = top + dy, left + dx
            wy = rows - top if dy else 1.0 - (rows - top)
            wx = cols - left if dx else 1.0 - (cols - left)
            ok = b.both(_inside(b, y, h), _inside(b, x, w))
            weight = b.select(ok, wy * wx, 0.0)
            yi = b.cast(b.minimum(b.maximum(y, 0), h - 1), i32)
            xi = b.cast(b.minimum(b.maximum(x, 0), w - 1), i32)
            taken = gather_nd(b, pixels, b.unsqueeze(yi * w + xi, -1), 2)
            part = taken * b.unsqueeze(weight, -1)
            total = part if total is None else total + part
    assert total is not None
    return total


def _inside(b: Builder, place: Val, size: int) -> Val:
    return b.both(b.greater_equal(place, 0), b.less(place, size))


@imports("MaxRoiPool")
def max_roi_pool(b: Builder, n: Node) -> Val:
    raise b.refuse("MaxRoiPool is not supported", "RoiAlign is")
