"""tensor.*: layout, indexing, reductions and searches."""

from __future__ import annotations

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.ir.core import LAYOUT, PURE, Op, Value, op
from poplar_py.types import DType, Shape, TensorType, bool_, broadcast_shapes, i32

__all__ = [
    "ArgMax",
    "ArgMin",
    "Bitcast",
    "Concat",
    "Cumulative",
    "DynamicSlice",
    "DynamicUpdate",
    "Expand",
    "Gather",
    "Iota",
    "Pad",
    "Reduce",
    "Reshape",
    "Scatter",
    "Slice",
    "TopK",
    "Transpose",
]


@op("tensor.reshape", PURE, LAYOUT)
class Reshape(Op):
    """The same elements in row-major order, another shape. ONNX Reshape, Squeeze, Flatten."""

    x: Value
    shape: Shape

    def infer(self) -> TensorType:
        out = TensorType(self.x.dtype, tuple(self.shape))
        if self.x.type.is_static and out.is_static and out.numel != self.x.type.numel:
            raise ShapeError(f"cannot reshape {self.x.type} to {out}")
        return out


@op("tensor.transpose", PURE, LAYOUT)
class Transpose(Op):
    """Dimension i of the result is dimension perm[i] of x. ONNX Transpose."""

    x: Value
    perm: tuple[int, ...]

    def infer(self) -> TensorType:
        if sorted(self.perm) != list(range(self.x.rank)):
            raise ShapeError(f"perm {list(self.perm)} does not fit {self.x.type}")
        return self.x.type.with_shape(tuple(self.x.shape[p] for p in self.perm))


@op("tensor.expand", PURE, LAYOUT)
class Expand(Op):
    """x broadcast to `shape` as NumPy does. ONNX Expand."""

    x: Value
    shape: Shape

    def infer(self) -> TensorType:
        shape = tuple(self.shape)
        if broadcast_shapes(self.x.shape, shape) != shape:
            raise ShapeError(f"cannot expand {self.x.type} to {list(shape)}")
        return self.x.type.with_shape(shape)


@op("tensor.slice", PURE, LAYOUT)
class Slice(Op):
    """`sizes[i]` elements of every axis i from `starts[i]`, each `steps[i]` further.

    Steps may be negative (never 0); all elements lie inside x. The size of an axis that is kept
    whole may be its free dim. ONNX Slice, Split.
    """

    x: Value
    starts: tuple[int, ...]
    sizes: Shape
    steps: tuple[int, ...]

    def infer(self) -> TensorType:
        if not len(self.starts) == len(self.sizes) == len(self.steps) == self.x.rank:
            raise ShapeError(
                f"starts, sizes and steps want one entry for each axis of {self.x.type}"
            )
        entries = zip(self.x.shape, self.starts, self.sizes, self.steps, strict=True)
        for axis, (dim, start, size, step) in enumerate(entries):
            if isinstance(size, str):
                if (size, 0, 1) != (dim, start, step):
                    raise ShapeError(f"axis {axis}: free size {size} from {dim}")
                continue
            if step == 0 or size < 0:
                raise ShapeError(f"axis {axis}: size {size}, step {step}")
            last = start + (size - 1) * step
            if size and isinstance(dim, int) and not (0 <= start < dim and 0 <= last < dim):
                raise ShapeError(f"axis {axis}: elements {start} to {last} of {dim}")
        return self.x.type.with_shape(tuple(self.sizes))


@op("tensor.concat", PURE, LAYOUT)
class Concat(Op):
    """Inputs one after the other along `axis`. ONNX Concat."""

    inputs: tuple[Value, ...]
    axis: int = 0

    def infer(self) -> TensorType:
        if not self.inputs:
            raise ShapeError("nothing to concatenate")
        first = self.inputs[0]
        axis = check_axis(self.axis, first.rank)
        total = 0
        for value in self.inputs:
            if value.dtype is not first.dtype:
                raise TypeMismatch(f"inputs are {first.type} and {value.type}")
            if not _same_but(value.shape, first.shape, axis):
                raise ShapeError(f"inputs {first.type} and {value.type} along axis {axis}")
            total += static_dim(value, axis)
        return first.type.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))


@op("tensor.pad", PURE, LAYOUT)
class Pad(Op):
    """x between `before[i]` and `after[i]` (>= 0) elements of `value` on every axis i.

    ONNX Pad (mode constant; the importer composes the other modes of slices).
    """

    x: Value
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float = 0.0

    def infer(self) -> TensorType:
        if not len(self.before) == len(self.after) == self.x.rank:
            raise ShapeError(f"pads want one entry for each axis of {self.x.type}")
        if min((*self.before, *self.after, 0)) < 0:
            raise ShapeError("pads are negative", remedy="slice instead")
        padded = [
            d if b + a == 0 else static_dim(self.x, axis) + b + a
            for axis, (d, b, a) in enumerate(
                zip(self.x.shape, self.before, self.after, strict=True)
            )
        ]
        return self.x.type.with_shape(tuple(padded))


@op("tensor.bitcast", PURE, LAYOUT)
class Bitcast(Op):
    """The same bits as another element type of the same size. ONNX BitCast."""

    x: Value
    dtype: DType

    def infer(self) -> TensorType:
        if self.dtype.size != self.x.dtype.size:
            raise TypeMismatch(f"{self.x.dtype} and {self.dtype} differ in size")
        return self.x.type.with_dtype(self.dtype)


@op("tensor.iota", PURE)
class Iota(Op):
    """0, 1, 2, ... along `axis`, repeated over the other axes. ONNX Range."""

    shape: Shape
    axis: int = 0
    dtype: DType = i32

    def infer(self) -> TensorType:
        check_axis(self.axis, len(self.shape))
        return TensorType(self.dtype, tuple(self.shape))


@op("tensor.gather", PURE)
class Gather(Op):
    """y[..., *i, ...] = x[..., indices[*i], ...] with the indices in place of `axis`. ONNX Gather.

    Indices are i32, 0 <= index < dim; one out of range is an error at run time. GatherElements and
    GatherND become this op on a flattened x.
    """

    x: Value
    indices: Value
    axis: int = 0

    def infer(self) -> TensorType:
        require_index(self.indices)
        axis = check_axis(self.axis, self.x.rank)
        shape = (*self.x.shape[:axis], *self.indices.shape, *self.x.shape[axis + 1 :])
        return self.x.type.with_shape(shape)


SCATTER_KINDS = ("none", "add", "mul", "min", "max")


@op("tensor.scatter", PURE)
class Scatter(Op):
    """x[n, w] with rows replaced by, or combined with, updates[m, w] at rows indices[m] (i32).

    `reduction`: none (the later of two updates of a row wins), add, mul, min, max. ONNX
    ScatterElements and ScatterND become this op on a flattened x. An index out of range is an error
    at run time.
    """

    x: Value
    indices: Value
    updates: Value
    reduction: str = "none"

    def infer(self) -> TensorType:
        require_index(self.indices)
        if self.reduction not in SCATTER_KINDS:
            raise ShapeError(f"no reduction is called {self.reduction!r}")
        if self.updates.dtype is not self.x.dtype:
            raise TypeMismatch(f"updates are {self.updates.type}, x is {self.x.type}")
        if self.x.rank != 2 or self.indices.rank != 1:
            raise ShapeError(f"x is {self.x.type} (want [n,w]), indices {self.indices.type}")
        if self.updates.shape != (self.indices.shape[0], self.x.shape[1]):
            raise ShapeError(f"updates are {self.updates.type} for {self.indices.type}")
        return self.x.type


@op("tensor.dynamic_slice", PURE)
class DynamicSlice(Op):
    """`size` elements of x along `axis` from `start` (i32, one element), clamped to fit."""

    x: Value
    start: Value
    axis: int = 0
    size: int = 1

    def infer(self) -> TensorType:
        require_index(self.start, single=True)
        axis = check_axis(self.axis, self.x.rank)
        if self.size > static_dim(self.x, axis):
            raise ShapeError(f"size {self.size} along axis {axis} of {self.x.type}")
        return self.x.type.with_shape((*self.x.shape[:axis], self.size, *self.x.shape[axis + 1 :]))


@op("tensor.dynamic_update", PURE)
class DynamicUpdate(Op):
    """x with `update` written along `axis` from `start` (i32, one element), clamped to fit."""

    x: Value
    update: Value
    start: Value
    axis: int = 0

    def infer(self) -> TensorType:
        require_index(self.start, single=True)
        axis = check_axis(self.axis, self.x.rank)
        x, update = self.x, self.update
        if update.dtype is not x.dtype or not _same_but(update.shape, x.shape, axis):
            raise ShapeError(f"update {update.type} does not fit {x.type}")
        if static_dim(update, axis) > static_dim(x, axis):
            raise ShapeError(f"update {update.type} does not fit {x.type}")
        return x.type


REDUCE_KINDS = ("sum", "prod", "max", "min", "and", "or")


@op("tensor.reduce", PURE)
class Reduce(Op):
    """x combined along `axes` (ascending), which stay as size 1 with `keep`. ONNX Reduce*.

    f16 and bf16 sums accumulate in f32 and round once. Of no elements: sum 0, prod 1, max and min
    the least and greatest value of the type (infinities for floats), and true, or false. NaN wins
    in max and min. Means, norms and log-sums are compositions.
    """

    x: Value
    kind: str
    axes: tuple[int, ...]
    keep: bool = False

    def infer(self) -> TensorType:
        if self.kind not in REDUCE_KINDS:
            raise ShapeError(f"no reduction is called {self.kind!r}")
        if (self.x.dtype is bool_) != (self.kind in ("and", "or")):
            raise TypeMismatch(f"cannot reduce {self.x.type} by {self.kind}")
        axes = tuple(check_axis(a, self.x.rank) for a in self.axes)
        if list(axes) != sorted(set(axes)):
            raise ShapeError(f"axes {list(axes)} are not ascending")
        kept = enumerate(self.x.shape)
        if self.keep:
            return self.x.type.with_shape(tuple(1 if i in axes else d for i, d in kept))
        return self.x.type.with_shape(tuple(d for i, d in kept if i not in axes))


@op("tensor.cumulative", PURE)
class Cumulative(Op):
    """Running sum or product (`kind`) along `axis`. ONNX CumSum, CumProd.

    exclusive: element i leaves itself out (starts at 0 or 1); reverse: from the end.
    """

    x: Value
    kind: str = "sum"
    axis: int = 0
    exclusive: bool = False
    reverse: bool = False

    def infer(self) -> TensorType:
        check_axis(self.axis, self.x.rank)
        if self.kind not in ("sum", "prod"):
            raise ShapeError(f"no running {self.kind!r}")
        return self.x.type


@op("tensor.top_k", PURE)
class TopK(Op):
    """The k largest (or smallest) elements along `axis`, best first, and their i32 positions.

    Of equal elements the one with the lower position comes first. ONNX TopK; k = dim sorts.
    """

    x: Value
    k: int
    axis: int = -1
    largest: bool = True

    def infer(self) -> tuple[TensorType, TensorType]:
        axis = check_axis(self.axis, self.x.rank)
        if not 0 <= self.k <= static_dim(self.x, axis):
            raise ShapeError(f"k is {self.k}, axis {axis} of {self.x.type}")
        values = self.x.type.with_shape((*self.x.shape[:axis], self.k, *self.x.shape[axis + 1 :]))
        return values, values.with_dtype(i32)


@op("tensor.arg_max", PURE)
class ArgMax(Op):
    """i32 position of the largest element along `axis`, which goes away. ONNX ArgMax.

    Of equal elements the first, or the last with `last`.
    """

    x: Value
    axis: int = 0
    last: bool = False

    def infer(self) -> TensorType:
        return _position_type(self.x, self.axis)


@op("tensor.arg_min", PURE)
class ArgMin(Op):
    """i32 position of the smallest element along `axis`, which goes away. ONNX ArgMin."""

    x: Value
    axis: int = 0
    last: bool = False

    def infer(self) -> TensorType:
        return _position_type(self.x, self.axis)


def _position_type(x: Value, axis: int) -> TensorType:
    axis = check_axis(axis, x.rank)
    if static_dim(x, axis) == 0:
        raise ShapeError(f"axis {axis} of {x.type} is empty")
    return TensorType(i32, (*x.shape[:axis], *x.shape[axis + 1 :]))


def check_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises ShapeError unless -rank <= axis < rank."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def static_dim(value: Value, axis: int) -> int:
    """A dim that has to be known. Raises ShapeError when it is free."""
    dim = value.shape[axis]
    if isinstance(dim, str):
        raise ShapeError(f"axis {axis} of {value.type} is free", remedy=f"bind {dim}")
    return dim


def require_index(value: Value, single: bool = False) -> None:
    """Raises TypeMismatch unless value is i32 (and one element with `single`)."""
    if value.dtype is not i32:
        raise TypeMismatch(f"indices are {value.type}, not i32", remedy="cast them")
    if single and any(d != 1 for d in value.shape):
        raise ShapeError(f"index {value.type} is not one element")


def _same_but(a: Shape, b: Shape, axis: int) -> bool:
    return len(a) == len(b) and a[:axis] == b[:axis] and a[axis + 1 :] == b[axis + 1 :]
