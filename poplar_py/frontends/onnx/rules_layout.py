"""ONNX ops that arrange elements: reshape, transpose, slice, concat, pad, tile, constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import MAX_NUMEL, Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.slice_ranges import slice_ranges
from poplar_py.frontends.onnx.values import Item, Strings, Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import tensor
from poplar_py.ops.tensor import check_axis
from poplar_py.types import f32, i32, i64

__all__ = ["pad_constant", "pad_other"]


@imports("Reshape")
def reshape(b: Builder, n: Node) -> Item:
    wanted = b.ints(n[1], "the shape") if n.has(1) else n.ints("shape")
    if isinstance(item := n.raw(0), Strings):
        return Strings(item.array.reshape(wanted))
    x = n[0]
    dims = list(wanted)
    copied = [] if n.int("allowzero") else [i for i, d in enumerate(dims) if d == 0]
    missing = next((i for i in copied if i >= x.rank), None)
    if missing is not None:
        raise ShapeError(f"dim {missing} of the shape {dims} copies a missing dim", n.loc)
    for i in copied:
        dims[i] = x.shape[i]
    if dims.count(-1) > 1 or min((*dims, 0)) < -1:
        raise ShapeError(f"the shape {dims} is impossible", n.loc)
    if -1 in dims:
        rest = math.prod(d for d in dims if d != -1)
        if rest == 0 or x.numel % rest:
            raise ShapeError(f"cannot reshape {x.type} to {dims}", n.loc)
        dims[dims.index(-1)] = x.numel // rest
    return _tagged(b.reshape(x, dims), x)


def _tagged(out: Val, x: Val) -> Val:
    out.tag = x.tag
    return out


@imports("Flatten")
def flatten(b: Builder, n: Node) -> Val:
    x = n[0]
    axis = n.int("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis <= x.rank:
        raise ShapeError(f"axis {n.int('axis', 1)} of {x.type}", n.loc)
    return _tagged(b.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))), x)


@imports("Squeeze")
def squeeze(b: Builder, n: Node) -> Val:
    x = n[0]
    axes = n.axes(b)
    if axes is None:
        return _tagged(b.reshape(x, [d for d in x.shape if d != 1]), x)
    gone = {check_axis(a, x.rank) for a in axes}
    if any(x.shape[a] != 1 for a in gone):
        raise ShapeError(f"axes {list(axes)} of {x.type} are not all of size 1", n.loc)
    return _tagged(b.reshape(x, [d for i, d in enumerate(x.shape) if i not in gone]), x)


@imports("Unsqueeze")
def unsqueeze(b: Builder, n: Node) -> Val:
    x = n[0]
    axes = n.axes(b)
    if axes is None:
        raise InputError("axes are missing", n.loc)
    rank = x.rank + len(axes)
    if len({check_axis(a, rank) for a in axes}) != len(axes):
        raise ShapeError(f"axes {list(axes)} repeat", n.loc)
    return _tagged(b.unsqueeze(x, *axes), x)


@imports("Transpose")
def transpose(b: Builder, n: Node) -> Val:
    x = n[0]
    return _tagged(b.transpose(x, n.ints("perm", range(x.rank)[::-1])), x)


@imports("Concat")
def concat(b: Builder, n: Node) -> Val:
    parts = n.tensors()
    axis = check_axis(n.int("axis", 1), parts[0].rank)
    filled = [p for p in parts if p.shape[axis]] or parts[:1]
    return _tagged(b.concat(filled, axis), parts[0])


@imports("Split")
def split(b: Builder, n: Node) -> list[Val]:
    x = n[0]
    axis = check_axis(n.int("axis"), x.rank)
    dim = x.shape[axis]
    if n.has(1):
        sizes = b.ints(n[1], "the sizes of the parts")
    elif n.set("split"):
        sizes = n.ints("split")
    else:
        count = n.int("num_outputs", len(n.outputs))
        if count < 1:
            raise ShapeError(f"{count} parts", n.loc)
        each = -(-dim // count)
        sizes = tuple(max(0, min(each, dim - i * each)) for i in range(count))
    if sum(sizes) != dim or min(sizes) < 0:
        raise ShapeError(f"parts of {list(sizes)} along axis {axis} of {x.type}", n.loc)
    return [_tagged(part, x) for part in b.split(x, sizes, axis)]


@imports("Slice")
def slice_(b: Builder, n: Node) -> Val:
    x = n[0]
    starts, ends, axes, steps = slice_ranges(b, n)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError("starts, ends, axes and steps differ in length", n.loc)
    begin, size, by = [0] * x.rank, list(x.shape), [1] * x.rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = check_axis(axis, x.rank)
        if step == 0:
            raise ShapeError(f"the step of axis {axis} is 0", n.loc)
        by[axis] = step
        begin[axis], size[axis] = _extent(start, end, step, x.shape[axis])
    for axis in range(x.rank):
        if size[axis] == 0:
            begin[axis], by[axis] = 0, 1
        elif size[axis] == 1:
            by[axis] = 1
    if tuple(size) == x.shape and not any(begin) and all(s == 1 for s in by):
        return x
    out = b.emit(tensor.Slice, x, starts=tuple(begin), sizes=tuple(size), steps=tuple(by))
    return _tagged(out, x)


def _extent(start: int, end: int, step: int, dim: int) -> tuple[int, int]:
    """First element and number of elements of ONNX's slice of one axis."""
    start = start + dim if start < 0 else start
    end = end + dim if end < 0 else end
    if step > 0:
        start, end = min(max(start, 0), dim), min(max(end, 0), dim)
        return start, max(0, -(-(end - start) // step))
    start, end = min(max(start, 0), dim - 1), min(max(end, -1), dim - 1)
    return max(start, 0), max(0, -(-(end - start) // step))


@imports("Expand")
def expand(b: Builder, n: Node) -> Val:
    x = n[0]
    wanted = b.ints(n[1], "the shape")
    if min((*wanted, 0)) < 0:
        raise ShapeError(f"the shape {list(wanted)} is impossible", n.loc)
    rank = max(x.rank, len(wanted))
    a = (1,) * (rank - x.rank) + x.shape
    c = (1,) * (rank - len(wanted)) + wanted
    if any(p != q and 1 not in (p, q) for p, q in zip(a, c, strict=True)):
        raise ShapeError(f"cannot expand {x.type} to {list(wanted)}", n.loc)
    return _tagged(b.expand(x, [q if p == 1 else p for p, q in zip(a, c, strict=True)]), x)


@imports("Tile")
def tile(b: Builder, n: Node) -> Val:
    x = n[0]
    repeats = b.ints(n[1], "the repeats")
    if len(repeats) != x.rank or min((*repeats, 0)) < 0:
        raise ShapeError(f"repeats {list(repeats)} for {x.type}", n.loc)
    lone = [d for pair in zip(repeats, x.shape, strict=True) for d in (1, pair[1])]
    full = [d for pair in zip(repeats, x.shape, strict=True) for d in pair]
    spread = b.expand(b.reshape(x, lone), full)
    return b.reshape(spread, [r * d for r, d in zip(repeats, x.shape, strict=True)])


@imports("Pad")
def pad(b: Builder, n: Node) -> Val:
    x = n[0]
    pads = b.ints(n[1], "the pads") if n.version >= 11 else n.ints("pads")
    axes = b.ints(n[3], "the axes") if n.has(3) else tuple(range(x.rank))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"pads {list(pads)} for {len(axes)} axes", n.loc)
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        axis = check_axis(axis, x.rank)
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    for axis in range(x.rank):
        low, high = max(0, -before[axis]), max(0, -after[axis])
        size = x.shape[axis] - low - high
        if size < 0:
            raise ShapeError(f"pads {list(pads)} cut off more than {x.type}", n.loc)
        if low or high:
            x = b.slice(x, axis, low, size)
    before, after = [max(0, p) for p in before], [max(0, p) for p in after]
    mode = n.str("mode", "constant")
    if mode != "constant":
        return pad_other(b, x, before, after, mode)
    value = n.get(2) if n.version >= 11 else b.like(n.float("value"), x)
    return pad_constant(b, x, before, after, value)


def pad_constant(
    b: Builder, x: Val, before: Sequence[int], after: Sequence[int], value: Val | None
) -> Val:
    """Pad with a number, known or not."""
    if value is None:
        return b.pad(x, before, after)
    if value.const is not None and value.pure:
        number = value.const.reshape(-1)[0]
        return b.pad(x, before, after, float(number) if value.dtype.is_float else int(number))
    if not any(before) and not any(after):
        return x
    inside = b.pad(b.const(np.broadcast_to(np.True_, x.shape)), before, after)
    return b.select(inside, b.pad(x, before, after), b.reshape(b.cast(value, x.dtype), ()))


def pad_other(b: Builder, x: Val, before: Sequence[int], after: Sequence[int], mode: str) -> Val:
    """Pad by reflection, repetition of the edge, or wrapping around."""
    if mode not in ("reflect", "edge", "wrap"):
        raise InputError(f"no padding mode is called {mode!r}", b.loc)
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        if not low and not high:
            continue
        dim = x.shape[axis]
        if dim == 0:
            raise ShapeError(f"cannot pad the empty axis {axis} of {x.type} by {mode}", b.loc)
        b.table(low + dim + high)
        places = np.arange(-low, dim + high)
        if mode == "edge":
            places = places.clip(0, dim - 1)
        elif mode == "wrap":
            places = places % dim
        else:
            period = max(2 * dim - 2, 1)
            places = places % period
            places = np.where(places >= dim, period - places, places)
        x = b.concat([b.slice(x, axis, *run) for run in _runs(places)], axis)
    return x


def _runs(places: np.ndarray) -> list[tuple[int, int, int]]:
    """(start, size, step) pieces of a sequence of positions, steps 1 and -1."""
    out: list[tuple[int, int, int]] = []
    i, count = 0, len(places)
    while i < count:
        step = int(places[i + 1] - places[i]) if i + 1 < count else 1
        if step not in (1, -1):
            out.append((int(places[i]), 1, 1))
            i += 1
            continue
        j = i + 1
        while j < count and places[j] - places[j - 1] == step:
            j += 1
        out.append((int(places[i]), j - i, step if j - i > 1 else 1))
        i = j
    return out


@imports("Shape")
def shape(b: Builder, n: Node) -> Val:
    item = n.raw(0)
    dims = item.array.shape if isinstance(item, Strings) else n[0].shape
    rank = len(dims)
    start, end = n.int("start"), n.int("end", rank)
    start = min(max(start + rank if start < 0 else start, 0), rank)
    end = min(max(end + rank if end < 0 else end, 0), rank)
    return b.const(np.asarray(dims[start:end], np.int64))


@imports("Size")
def size(b: Builder, n: Node) -> Val:
    return b.const(np.asarray(n[0].numel, np.int64))


@imports("Constant")
def constant(b: Builder, n: Node) -> Item:
    if n.set("value"):
        found = n.tensor("value")
        assert found is not None
        return found
    if n.set("sparse_value"):
        return n.scope.dense(n.attributes["sparse_value"].sparse_tensor, n.loc)
    if n.set("value_float"):
        return b.const(n.float("value_float"), f32)
    if n.set("value_int"):
        return b.const(n.int("value_int"), i64)
    if n.set("value_floats"):
        return b.const(np.asarray(n.floats("value_floats"), np.float32))
    if n.set("value_ints"):
        return b.const(np.asarray(n.ints("value_ints"), np.int64))
    if n.set("value_string"):
        return Strings(np.asarray(n.str("value_string"), dtype=object))
    if n.set("value_strings"):
        return Strings(np.asarray(n.strs("value_strings"), dtype=object))
    raise InputError("the constant has no value", n.loc)


@imports("ConstantOfShape")
def constant_of_shape(b: Builder, n: Node) -> Val:
    wanted = b.ints(n[0], "the shape")
    if min((*wanted, 0)) < 0 or math.prod(wanted) > MAX_NUMEL:
        raise ShapeError(f"the shape {list(wanted)} is impossible", n.loc)
    fill = n.tensor("value") if n.set("value") else b.const(0.0, f32)
    if not isinstance(fill, Val):
        raise InputError("the value is no number", n.loc)
    return _tagged(b.expand(b.reshape(fill, ()), wanted), fill)


@imports("Range")
def range_(b: Builder, n: Node) -> Val:
    start, limit, delta = (b.reshape(n[i], ()) for i in range(3))
    known = [b.known(v, "a range").item() for v in (start, limit, delta)]
    if known[2] == 0:
        raise ShapeError("the step of the range is 0", n.loc)
    count = max(0, math.ceil((known[1] - known[0]) / known[2]))
    if count > MAX_NUMEL:
        raise ShapeError(f"a range of {count} elements is too large", n.loc)
    work = b.wide(start)
    places = b.iota(count, work.dtype)
    return b.cast(places * b.cast(delta, work.dtype) + work, start.dtype)


@imports("EyeLike")
def eye_like(b: Builder, n: Node) -> Val:
    x = n[0]
    if x.rank != 2:
        raise ShapeError(f"{x.type} is no matrix", n.loc)
    dtype = n.dtype("dtype", 1)[0] if n.set("dtype") else x.dtype
    b.table(x.numel)
    return b.const(np.eye(x.shape[0], x.shape[1], n.int("k")), dtype)


@imports("Trilu")
def trilu(b: Builder, n: Node) -> Val:
    x = n[0]
    upper = bool(n.int("upper", 1))
    rows, cols = x.shape[-2:]
    k = b.reshape(b.cast(n[1], i32), ()) if n.has(1) else b.const(0, i32)
    b.table(rows * cols)
    offset = b.const(np.arange(cols)[None, :] - np.arange(rows)[:, None], i32)
    inside = b.greater_equal(offset, k) if upper else b.emit(ew.LessEqual, offset, k)
    zero = b.const(np.zeros((), x.dtype.numpy))
    return b.select(inside, x, zero)


@imports("DepthToSpace")
def depth_to_space(b: Builder, n: Node) -> Val:
    x, block = n[0], n.int("blocksize", 1)
    batch, depth, h, w = _image(x, n)
    if block < 1 or depth % (block * block):
        raise ShapeError(f"blocks of {block} in {x.type}", n.loc)
    rest = depth // (block * block)
    if n.str("mode", "DCR") == "DCR":
        y = b.reshape(x, (batch, block, block, rest, h, w))
        y = b.transpose(y, (0, 3, 4, 1, 5, 2))
    else:
        y = b.reshape(x, (batch, rest, block, block, h, w))
        y = b.transpose(y, (0, 1, 4, 2, 5, 3))
    return b.reshape(y, (batch, rest, h * block, w * block))


@imports("SpaceToDepth")
def space_to_depth(b: Builder, n: Node) -> Val:
    x, block = n[0], n.int("blocksize", 1)
    batch, depth, h, w = _image(x, n)
    if block < 1 or h % block or w % block:
        raise ShapeError(f"blocks of {block} in {x.type}", n.loc)
    y = b.reshape(x, (batch, depth, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if n.str("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    y = b.transpose(y, perm)
    return b.reshape(y, (batch, depth * block * block, h // block, w // block))


def _image(x: Val, n: Node) -> tuple[int, int, int, int]:
    if x.rank != 4:
        raise ShapeError(f"{x.type} is not [N,C,H,W]", n.loc)
    a, c, h, w = x.shape
    return a, c, h, w
