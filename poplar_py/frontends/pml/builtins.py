"""Functions of the `.pml` language that are more than one op with its own arguments.

Every model op can also be called by its name, short (`relu`) or full (`nn.relu`): see ops.py. The
functions here give ops the defaults people expect, or compose them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.frontends.pml.values import (
    PmlValue,
    as_dim,
    as_int,
    as_ints,
    as_shape,
    as_tensor,
    describe,
    dim_value,
)
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import Value
from poplar_py.ops import elementwise, nn, tensor
from poplar_py.ops.tensor import check_axis
from poplar_py.types import DType, Shape

__all__ = ["BUILTINS", "slice_tensor"]

Builtin = Callable[..., PmlValue]
BUILTINS: dict[str, Builtin] = {}


def builtin(fn: Builtin) -> Builtin:
    """Enter a function under its name without a trailing underscore."""
    BUILTINS[fn.__name__.rstrip("_")] = fn
    return fn


def _tensor(value: PmlValue, what: str) -> Value:
    if not isinstance(value, Value):
        raise TypeMismatch(f"{what} must be a tensor, not {describe(value)}")
    return value


def _tensors(value: PmlValue, what: str) -> tuple[Value, ...]:
    if not isinstance(value, tuple):
        raise TypeMismatch(f"{what} must be a list of tensors, not {describe(value)}")
    return tuple(_tensor(v, what) for v in cast("tuple[PmlValue, ...]", value))


def _flag(value: PmlValue, what: str) -> bool:
    if not isinstance(value, bool):
        raise TypeMismatch(f"{what} must be true or false, not {describe(value)}")
    return value


# --- things known while the model is built


@builtin
def shape(b: Builder, x: PmlValue) -> PmlValue:
    """The dims of a tensor as a list."""
    return tuple(dim_value(d) for d in _tensor(x, "x").shape)


@builtin
def dim(b: Builder, x: PmlValue, axis: PmlValue) -> PmlValue:
    """One dim of a tensor."""
    value = _tensor(x, "x")
    return dim_value(value.shape[check_axis(as_int(axis, "axis"), value.rank)])


@builtin
def rank(b: Builder, x: PmlValue) -> PmlValue:
    """The number of dims of a tensor."""
    return _tensor(x, "x").rank


@builtin
def len_(b: Builder, items: PmlValue) -> PmlValue:
    """The length of a list."""
    if not isinstance(items, tuple):
        raise TypeMismatch(f"len takes a list, not {describe(items)}")
    return len(cast("tuple[PmlValue, ...]", items))


@builtin
def sqrt(b: Builder, x: PmlValue) -> PmlValue:
    """The square root of a tensor or of a number."""
    if isinstance(x, (int, float)):
        if x < 0:
            raise TypeMismatch(f"the square root of {x}")
        return math.sqrt(x)
    return b.add(elementwise.Sqrt, _tensor(x, "x"))


# --- layout


@builtin
def reshape(b: Builder, x: PmlValue, shape: PmlValue) -> PmlValue:
    """The elements in row-major order in another shape; one entry may be -1."""
    value = _tensor(x, "x")
    entries = cast("tuple[PmlValue, ...]", shape if isinstance(shape, tuple) else (shape,))
    missing = [i for i, d in enumerate(entries) if d == -1]
    if len(missing) > 1:
        raise ShapeError("only one dim may be -1")
    dims = [1 if d == -1 else as_dim(d, "a dim") for d in entries]
    if missing:
        dims[missing[0]] = _missing_dim(value, tuple(dims))
    return b.add(tensor.Reshape, value, tuple(dims))


def _missing_dim(x: Value, known: Shape) -> int | str:
    """What -1 stands for: sizes are divided, free dims on both sides cancel."""
    symbols = [d for d in x.shape if isinstance(d, str)]
    for d in known:
        if not isinstance(d, str):
            continue
        if d not in symbols:
            raise ShapeError(f"-1 cannot be found: dim {d} is not in {x.type}")
        symbols.remove(d)
    size = math.prod(d for d in x.shape if isinstance(d, int))
    part = math.prod(d for d in known if isinstance(d, int))
    if part == 0 or size % part or (symbols and size != part) or len(symbols) > 1:
        raise ShapeError(f"-1 cannot be found for {x.type} and [{', '.join(map(str, known))}]")
    return symbols[0] if symbols else size // part


@builtin
def flatten(b: Builder, x: PmlValue, axis: PmlValue = 1) -> PmlValue:
    """Dims from `axis` on joined into one."""
    value = _tensor(x, "x")
    at = check_axis(as_int(axis, "axis"), value.rank)
    return reshape(b, value, (*(dim_value(d) for d in value.shape[:at]), -1))


@builtin
def transpose(b: Builder, x: PmlValue, perm: PmlValue = None) -> PmlValue:
    """Dims in the order `perm`; by default the last two change places."""
    value = _tensor(x, "x")
    if perm is None:
        if value.rank < 2:
            raise ShapeError(f"{value.type} has no two dims to swap")
        n = value.rank
        return b.add(tensor.Transpose, value, (*range(n - 2), n - 1, n - 2))
    return b.add(tensor.Transpose, value, as_ints(perm, "perm"))


@builtin
def split(b: Builder, x: PmlValue, parts: PmlValue, axis: PmlValue = -1) -> PmlValue:
    """A list of parts along an axis: a number of equal ones, or a list of sizes."""
    value = _tensor(x, "x")
    at = check_axis(as_int(axis, "axis"), value.rank)
    size = tensor.static_dim(value, at)
    if isinstance(parts, tuple):
        sizes = as_ints(cast("PmlValue", parts), "parts")
    else:
        count = as_int(parts, "parts")
        if count < 1 or size % count:
            raise ShapeError(f"{size} elements do not split into {count} equal parts")
        sizes = (size // count,) * count
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise ShapeError(f"parts {list(sizes)} of {size} elements")
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(_part(b, value, at, s, n) for s, n in zip(begins, sizes, strict=True))


def _part(b: Builder, x: Value, axis: int, start: int, size: int) -> Value:
    starts, sizes = [0] * x.rank, list(x.shape)
    starts[axis], sizes[axis] = start, size
    return b.add(tensor.Slice, x, tuple(starts), tuple(sizes), (1,) * x.rank)


def slice_tensor(b: Builder, x: Value, items: tuple[Any, ...]) -> Value:
    """x[items]: an int drops its axis, a pair (begin, end) keeps part; ends may be None."""
    if len(items) > x.rank:
        raise ShapeError(f"{len(items)} indices for {x.type}")
    starts, sizes = [0] * x.rank, list(x.shape)
    dropped: list[int] = []
    for axis, item in enumerate(items):
        if isinstance(item, tuple):
            if item == (None, None):
                continue
            begin, end = cast("tuple[PmlValue, PmlValue]", item)
            size = tensor.static_dim(x, axis)
            first = _bound(0 if begin is None else begin, size)
            starts[axis], sizes[axis] = (
                first,
                max(0, _bound(size if end is None else end, size) - first),
            )
            continue
        size = tensor.static_dim(x, axis)
        at = as_int(item, "an index")
        if not -size <= at < size:
            raise ShapeError(f"index {at} for axis {axis} of {x.type}")
        starts[axis], sizes[axis] = at % size, 1
        dropped.append(axis)
    y = b.add(tensor.Slice, x, tuple(starts), tuple(sizes), (1,) * x.rank)
    if not dropped:
        return y
    return b.add(tensor.Reshape, y, tuple(d for i, d in enumerate(y.shape) if i not in dropped))


def _bound(value: PmlValue, size: int) -> int:
    at = as_int(value, "an index")
    return min(max(at + size if at < 0 else at, 0), size)


@builtin
def concat(b: Builder, inputs: PmlValue, axis: PmlValue = -1) -> PmlValue:
    """Tensors one after the other along an axis."""
    return b.add(tensor.Concat, _tensors(inputs, "inputs"), as_int(axis, "axis"))


@builtin
def stack(b: Builder, inputs: PmlValue, axis: PmlValue = 0) -> PmlValue:
    """Tensors of one shape side by side along a new axis."""
    values = _tensors(inputs, "inputs")
    if not values:
        raise ShapeError("nothing to stack")
    at = check_axis(as_int(axis, "axis"), values[0].rank + 1)
    wide = tuple(b.add(tensor.Reshape, v, (*v.shape[:at], 1, *v.shape[at:])) for v in values)
    return b.add(tensor.Concat, wide, at)


@builtin
def embedding(b: Builder, table: PmlValue, ids: PmlValue) -> PmlValue:
    """Rows of `table` by number."""
    return b.add(tensor.Gather, _tensor(table, "table"), _index(b, ids), 0)


@builtin
def gather(b: Builder, x: PmlValue, indices: PmlValue, axis: PmlValue = 0) -> PmlValue:
    """Slices of x along an axis by number; indices of other integer types are cast to i32."""
    return b.add(tensor.Gather, _tensor(x, "x"), _index(b, indices), as_int(axis, "axis"))


def _index(b: Builder, value: PmlValue) -> Value:
    from poplar_py.types import i32

    indices = as_tensor(value, b, i32)
    if indices.dtype.is_integer and indices.dtype is not i32:
        return b.add(elementwise.Cast, indices, i32)
    return indices


# --- arithmetic


@builtin
def cast_(b: Builder, x: PmlValue, dtype: PmlValue) -> PmlValue:
    """x as another element type."""
    if not isinstance(dtype, DType):
        raise TypeMismatch(f"cast takes an element type, not {describe(dtype)}")
    return b.add(elementwise.Cast, _tensor(x, "x"), dtype)


@builtin
def clip(b: Builder, x: PmlValue, low: PmlValue = None, high: PmlValue = None) -> PmlValue:
    """x held between two bounds."""
    value = _tensor(x, "x")
    if low is not None:
        value = b.add(elementwise.Max, value, as_tensor(low, b, value.dtype))
    if high is not None:
        value = b.add(elementwise.Min, value, as_tensor(high, b, value.dtype))
    return value


@builtin
def silu(b: Builder, x: PmlValue) -> PmlValue:
    """x * sigmoid(x)."""
    value = _tensor(x, "x")
    return b.add(elementwise.Mul, value, b.add(elementwise.Sigmoid, value))


@builtin
def square(b: Builder, x: PmlValue) -> PmlValue:
    value = _tensor(x, "x")
    return b.add(elementwise.Mul, value, value)


def _reduce(b: Builder, x: PmlValue, kind: str, axes: PmlValue, keep: PmlValue) -> Value:
    value = _tensor(x, "x")
    given = tuple(range(value.rank)) if axes is None else axes
    listed = as_ints(given if isinstance(given, tuple) else (given,), "axes")
    ordered = tuple(sorted({check_axis(a, value.rank) for a in listed}))
    return b.add(tensor.Reduce, value, kind, ordered, _flag(keep, "keep"))


@builtin
def sum_(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The sum over axes (all by default)."""
    return _reduce(b, x, "sum", axes, keep)


@builtin
def prod(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The product over axes (all by default)."""
    return _reduce(b, x, "prod", axes, keep)


@builtin
def reduce_max(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The largest element over axes (all by default)."""
    return _reduce(b, x, "max", axes, keep)


@builtin
def reduce_min(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The smallest element over axes (all by default)."""
    return _reduce(b, x, "min", axes, keep)


@builtin
def mean(b: Builder, x: PmlValue, axes: PmlValue = None, keep: PmlValue = False) -> PmlValue:
    """The mean over axes (all by default), whose sizes must be known."""
    value = _tensor(x, "x")
    total = _reduce(b, x, "sum", axes, keep)
    owner = cast("tensor.Reduce", total.owner)
    count = math.prod(tensor.static_dim(value, a) for a in owner.axes)
    return b.add(elementwise.Div, total, b.constant(float(count), dtype=value.dtype))


# --- neural networks


def _pads(
    pad: PmlValue, spatial: int, x: Value, window: list[int], strides: tuple[int, ...]
) -> tuple[int, ...]:
    """A number, `spatial` numbers, 2 * spatial numbers (begins, ends), or "same"."""
    if isinstance(pad, str):
        if pad != "same":
            raise TypeMismatch(f'pad is "same" or numbers, not {pad!r}')
        totals = [
            max(0, (-(-tensor.static_dim(x, i + 2) // s) - 1) * s + w - tensor.static_dim(x, i + 2))
            for i, (w, s) in enumerate(zip(window, strides, strict=True))
        ]
        return (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
    if isinstance(pad, tuple) and len(cast("tuple[PmlValue, ...]", pad)) == 2 * spatial:
        return as_ints(cast("PmlValue", pad), "pad")
    return as_ints(pad, "pad", spatial) * 2


@builtin
def conv(
    b: Builder,
    x: PmlValue,
    w: PmlValue,
    bias: PmlValue = None,
    stride: PmlValue = 1,
    pad: PmlValue = 0,
    dilation: PmlValue = 1,
    groups: PmlValue = 1,
) -> PmlValue:
    """Convolution of x[N, C, *in] with w[O, C / groups, *kernel]; pad "same" keeps in / stride."""
    value, weight = _tensor(x, "x"), _tensor(w, "w")
    spatial = value.rank - 2
    if spatial < 1 or weight.rank != value.rank:
        raise ShapeError(f"x is {value.type}, w {weight.type}")
    strides, dilations = as_ints(stride, "stride", spatial), as_ints(dilation, "dilation", spatial)
    window = [(tensor.static_dim(weight, i + 2) - 1) * d + 1 for i, d in enumerate(dilations)]
    pads = _pads(pad, spatial, value, window, strides)
    given = None if bias is None else as_tensor(bias, b, value.dtype)
    return b.add(nn.Conv, value, weight, given, strides, pads, dilations, as_int(groups, "groups"))


def _pool_window(
    x: Value, kernel: PmlValue, stride: PmlValue, pad: PmlValue
) -> tuple[tuple[int, ...], ...]:
    spatial = x.rank - 2
    if spatial < 1:
        raise ShapeError(f"pooling needs [N, C, ...], not {x.type}")
    size = as_ints(kernel, "kernel", spatial)
    strides = size if stride is None else as_ints(stride, "stride", spatial)
    return size, strides, _pads(pad, spatial, x, list(size), strides), (1,) * spatial


@builtin
def max_pool(
    b: Builder, x: PmlValue, kernel: PmlValue, stride: PmlValue = None, pad: PmlValue = 0
) -> PmlValue:
    """The largest element of each window; windows side by side unless a stride is given."""
    value = _tensor(x, "x")
    return b.add(nn.MaxPool, value, *_pool_window(value, kernel, stride, pad))


@builtin
def avg_pool(
    b: Builder,
    x: PmlValue,
    kernel: PmlValue,
    stride: PmlValue = None,
    pad: PmlValue = 0,
    count_include_pad: PmlValue = False,
) -> PmlValue:
    """The mean of each window; windows side by side unless a stride is given."""
    value = _tensor(x, "x")
    window = _pool_window(value, kernel, stride, pad)
    return b.add(nn.AvgPool, value, *window, _flag(count_include_pad, "count_include_pad"))


@builtin
def global_avg_pool(b: Builder, x: PmlValue) -> PmlValue:
    """The mean over all spatial axes of x[N, C, ...], giving [N, C]."""
    value = _tensor(x, "x")
    return mean(b, value, tuple(range(2, value.rank)))


@builtin
def batch_norm(
    b: Builder,
    x: PmlValue,
    scale: PmlValue,
    bias: PmlValue,
    mean: PmlValue,
    variance: PmlValue,
    eps: PmlValue = 1e-5,
) -> PmlValue:
    """(x - mean) / sqrt(variance + eps) * scale + bias, all of shape [C], for x[N, C, ...]."""
    value = _tensor(x, "x")
    column = (-1, *(1,) * (value.rank - 2))
    spread = b.add(elementwise.Add, _tensor(variance, "variance"), as_tensor(eps, b, value.dtype))
    factor = b.add(elementwise.Mul, _tensor(scale, "scale"), b.add(elementwise.Rsqrt, spread))
    shift = b.add(elementwise.Mul, _tensor(mean, "mean"), factor)
    offset = b.add(elementwise.Sub, _tensor(bias, "bias"), shift)
    scaled = b.add(elementwise.Mul, value, reshape(b, factor, column))
    return b.add(elementwise.Add, scaled, reshape(b, offset, column))


@builtin
def full(b: Builder, shape: PmlValue, value: PmlValue, dtype: PmlValue) -> PmlValue:
    """A tensor that repeats one number."""
    if not isinstance(dtype, DType):
        raise TypeMismatch(f"full takes an element type, not {describe(dtype)}")
    return b.add(tensor.Expand, as_tensor(value, b, dtype), as_shape(shape, "a dim"))
