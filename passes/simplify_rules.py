"""Rules of simplify for single ops: `RULES[op class]` are tried in order.

A rule gets the op and a Rewriter; it returns a value of the same type that can stand for the
result (perhaps of ops it made), or None. Rules on floats keep every bit, but for x ** -1, which
becomes 1 / x; those in simplify_norm.py and simplify_weights.py round differently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from poplar_py.ir.core import Op, Value
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.ops.core import Constant
from poplar_py.types import DType, bool_

__all__ = ["RULES", "Rewriter", "Rule", "constant_of", "rule", "uniform"]

Array = np.ndarray[Any, Any]


class Rewriter:
    """Makes ops that take the place of another, and keeps what replaces what."""

    def __init__(self, uses: Mapping[Value, int]) -> None:
        self.uses = uses
        self.replaced: dict[Value, Value] = {}
        self.emitted: list[Op] = []
        self._op: Op | None = None

    def begin(self, op: Op) -> None:
        """New ops are for `op` from now on: its location and IPU."""
        self._op = op
        self.emitted = []

    def add(self, cls: type[Op], *args: Any, **kwargs: Any) -> Value:
        """A new op in front of the current one; its result."""
        assert self._op is not None
        made = cls(*args, **kwargs, loc=self._op.loc, ipu=self._op.ipu)
        self.emitted.append(made)
        return made.result

    def constant(self, array: Array, dtype: DType) -> Value:
        return self.add(Constant, np.asarray(array, dtype=dtype.numpy))

    def final(self, value: Value) -> Value:
        """What stands for a value now."""
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def replace(self, op: Op, values: tuple[Value, ...]) -> None:
        for old, new in zip(op.results, values, strict=True):
            fresh = new.owner is not None and not new.name
            if fresh and old.name:
                new.name = old.name
            self.replaced[old] = new

    def once(self, value: Value) -> bool:
        """Whether a value has one use only (counted when the round began)."""
        return self.uses.get(value, 0) == 1


Rule = Callable[[Any, Rewriter], "Value | None"]
RULES: dict[type[Op], list[Rule]] = {}


def rule(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Enter a rule for some op classes."""

    def enter(fn: Rule) -> Rule:
        for cls in classes:
            RULES.setdefault(cls, []).append(fn)
        return fn

    return enter


def constant_of(value: Value) -> Array | None:
    """The array of a constant."""
    return value.owner.value if isinstance(value.owner, Constant) else None


def uniform(value: Value) -> float | int | bool | None:
    """The number that a constant repeats in all elements, unless it is NaN."""
    array = constant_of(value)
    if array is None or array.size == 0:
        return None
    first = array[(0,) * array.ndim]
    if any(array.strides) and array.size > 1 and not bool((array == first).all()):
        return None
    number: float | int | bool = first.item()
    return None if number != number else number


def _same(op: Op, value: Value) -> Value | None:
    """`value` if it has the type of the op's result (nothing was broadcast)."""
    return value if value.type == op.result.type else None


def _is_negative_zero(number: float) -> bool:
    return number == 0 and math.copysign(1.0, number) < 0


# --- arithmetic


@rule(ew.Add)
def add_zero(op: ew.Add, _: Rewriter) -> Value | None:
    """x + 0: integers; of floats only -0.0, which keeps the sign of zeros."""
    for x, c in ((op.a, op.b), (op.b, op.a)):
        number = uniform(c)
        if number == 0 and (not op.a.dtype.is_float or _is_negative_zero(float(number))):
            return _same(op, x)
    return None


@rule(ew.Sub)
def sub_zero(op: ew.Sub, _: Rewriter) -> Value | None:
    number = uniform(op.b)
    exact = number == 0 and not (op.a.dtype.is_float and _is_negative_zero(float(number)))
    return _same(op, op.a) if exact else None


@rule(ew.Mul)
def mul_one(op: ew.Mul, _: Rewriter) -> Value | None:
    for x, c in ((op.a, op.b), (op.b, op.a)):
        if uniform(c) == 1:
            return _same(op, x)
    return None


@rule(ew.Div)
def div_constant(op: ew.Div, rw: Rewriter) -> Value | None:
    """x / 1 = x; a float divided by a power of two is multiplied by its exact inverse."""
    number = uniform(op.b)
    if number is None:
        return None
    if number == 1:
        return _same(op, op.a)
    if not op.a.dtype.is_float or number == 0 or math.isinf(number):
        return None
    mantissa, exponent = math.frexp(float(number))
    if abs(mantissa) != 0.5 or not -12 <= exponent <= 12:
        return None
    inverse = rw.constant(
        np.broadcast_to(np.asarray(1.0 / number), op.b.type.static_shape), op.b.dtype
    )
    return rw.add(ew.Mul, op.a, inverse)


@rule(ew.Pow)
def pow_small(op: ew.Pow, rw: Rewriter) -> Value | None:
    number = uniform(op.b)
    if number not in (1, 2, -1) or op.a.type != op.result.type:
        return None
    if number == 1:
        return op.a
    return rw.add(ew.Mul, op.a, op.a) if number == 2 else rw.add(ew.Reciprocal, op.a)


@rule(ew.And, ew.Or)
def logic_constant(op: ew.And | ew.Or, _: Rewriter) -> Value | None:
    neutral = isinstance(op, ew.And)
    for x, c in ((op.a, op.b), (op.b, op.a)):
        flag = uniform(c)
        if flag is not None:
            return _same(op, x) if flag == neutral else _same(op, c)
    return None


@rule(ew.Min, ew.Max, ew.And, ew.Or)
def idempotent(op: Any, _: Rewriter) -> Value | None:
    return op.a if op.a is op.b else None


@rule(ew.Neg, ew.Not, ew.BitwiseNot)
def twice(op: Any, _: Rewriter) -> Value | None:
    """-(-x) = x, and the like."""
    inner = op.x.owner
    return inner.x if type(inner) is type(op) else None


@rule(nn.Relu, ew.Abs, ew.Floor, ew.Ceil, ew.Round, ew.Sign)
def once_is_enough(op: Any, _: Rewriter) -> Value | None:
    return op.x if type(op.x.owner) is type(op) else None


@rule(ew.Select)
def select_known(op: ew.Select, _: Rewriter) -> Value | None:
    if op.a is op.b:
        return _same(op, op.a)
    flag = uniform(op.cond)
    return None if flag is None else _same(op, op.a if flag else op.b)


def _lossless(a: DType, b: DType) -> bool:
    """Whether every value of `a` is one of `b`."""
    if a is b or a is bool_:
        return True
    if a.is_float or b.is_float:
        return a.is_float and b.is_float and a.size < b.size
    if a.kind == b.kind:
        return a.size <= b.size
    return a.kind == "u" and a.size < b.size


@rule(ew.Cast)
def cast_chain(op: ew.Cast, rw: Rewriter) -> Value | None:
    """No cast to the own type; a cast of a lossless cast is one cast."""
    if op.x.dtype is op.dtype:
        return op.x
    inner = op.x.owner
    if isinstance(inner, ew.Cast) and _lossless(inner.x.dtype, inner.dtype):
        return rw.add(ew.Cast, inner.x, op.dtype)
    return None


_BROADCASTING = (
    ew.Add, ew.Sub, ew.Mul, ew.Div, ew.Pow, ew.Min, ew.Max, ew.Mod, ew.And, ew.Or, ew.Xor,
    ew.Equal, ew.Less, ew.LessEqual, ew.Greater, ew.GreaterEqual,
)  # fmt: skip


@rule(*_BROADCASTING)
def drop_expand(op: Any, rw: Rewriter) -> Value | None:
    """Operands need no expanding where the other one has the shape already."""
    for first in (True, False):
        x, other = (op.a, op.b) if first else (op.b, op.a)
        inner = x.owner
        if isinstance(inner, tensor.Expand) and other.shape == op.result.shape:
            pair = (inner.x, other) if first else (other, inner.x)
            return rw.add(cast("type[Op]", type(op)), *pair, **op.attributes())
    return None


# --- layout


@rule(tensor.Reshape)
def reshape_chain(op: tensor.Reshape, rw: Rewriter) -> Value | None:
    if op.x.shape == tuple(op.shape):
        return op.x
    inner = op.x.owner
    if isinstance(inner, tensor.Reshape):
        return rw.add(tensor.Reshape, inner.x, op.shape)
    return None


@rule(tensor.Transpose)
def transpose_chain(op: tensor.Transpose, rw: Rewriter) -> Value | None:
    """No identity; two in a row are one; one that only moves dims of size 1 is a reshape."""
    if list(op.perm) == list(range(len(op.perm))):
        return op.x
    inner = op.x.owner
    if isinstance(inner, tensor.Transpose):
        return rw.add(tensor.Transpose, inner.x, tuple(inner.perm[p] for p in op.perm))
    moved = [p for p in op.perm if op.x.shape[p] != 1]
    if moved == sorted(moved):
        return rw.add(tensor.Reshape, op.x, op.result.shape)
    return None


@rule(tensor.Expand)
def expand_nothing(op: tensor.Expand, rw: Rewriter) -> Value | None:
    if op.x.type == op.result.type:
        return op.x
    inner = op.x.owner
    if isinstance(inner, tensor.Expand):
        return rw.add(tensor.Expand, inner.x, op.shape)
    return None


@rule(tensor.Slice)
def slice_chain(op: tensor.Slice, rw: Rewriter) -> Value | None:
    """No slice of everything; a slice of a slice is one slice."""
    whole = not any(op.starts) and all(s == 1 for s in op.steps)
    if whole and op.x.type == op.result.type:
        return op.x
    inner = op.x.owner
    if not isinstance(inner, tensor.Slice):
        return None
    starts = tuple(s + a * t for s, a, t in zip(inner.starts, op.starts, inner.steps, strict=True))
    steps = tuple(a * b for a, b in zip(inner.steps, op.steps, strict=True))
    return rw.add(tensor.Slice, inner.x, starts, op.sizes, steps)


@rule(tensor.Pad)
def pad_nothing(op: tensor.Pad, _: Rewriter) -> Value | None:
    return None if any(op.before) or any(op.after) else op.x


@rule(tensor.Concat)
def concat_few(op: tensor.Concat, rw: Rewriter) -> Value | None:
    """Empty parts go; one part is itself; parts that are slices of one tensor in order are it."""
    axis = op.axis % op.result.rank
    kept = tuple(v for v in op.inputs if v.shape[axis] != 0)
    if len(kept) == 1:
        return kept[0]
    whole = _rejoined(kept, axis)
    if whole is not None:
        return _same(op, whole)
    if kept and len(kept) < len(op.inputs):
        return rw.add(tensor.Concat, kept, op.axis)
    return None


def _rejoined(parts: tuple[Value, ...], axis: int) -> Value | None:
    """The tensor that slices one after the other along `axis` came from."""
    at, source = 0, None
    for part in parts:
        inner = part.owner
        if not isinstance(inner, tensor.Slice) or (source is not None and inner.x is not source):
            return None
        source = inner.x
        starts = [0] * part.rank
        starts[axis] = at
        if list(inner.starts) != starts or any(s != 1 for s in inner.steps):
            return None
        size = part.shape[axis]
        if not isinstance(size, int):
            return None
        at += size
    return source


@rule(tensor.Reduce)
def reduce_nothing(op: tensor.Reduce, rw: Rewriter) -> Value | None:
    """Over axes of size 1 a reduction is a reshape."""
    if any(op.x.shape[a] != 1 for a in op.axes):
        return None
    return rw.add(tensor.Reshape, op.x, op.result.shape)


@rule(tensor.Gather)
def gather_known(op: tensor.Gather, rw: Rewriter) -> Value | None:
    """One known index, or known indices with a constant step, are a slice."""
    indices = constant_of(op.indices)
    axis = op.axis % op.x.rank
    size = op.x.shape[axis]
    if indices is None or indices.size == 0 or not isinstance(size, int):
        return None
    flat = [int(i) for i in indices.reshape(-1)]
    step = flat[1] - flat[0] if len(flat) > 1 else 1
    regular = step != 0 and all(i == flat[0] + k * step for k, i in enumerate(flat))
    if not regular or min(flat) < 0 or max(flat) >= size:
        return None
    rank = op.x.rank
    starts = tuple(flat[0] if i == axis else 0 for i in range(rank))
    sizes = tuple(len(flat) if i == axis else d for i, d in enumerate(op.x.shape))
    steps = tuple(step if i == axis else 1 for i in range(rank))
    part = rw.add(tensor.Slice, op.x, starts, sizes, steps)
    return rw.add(tensor.Reshape, part, op.result.shape)


@rule(tensor.DynamicSlice)
def dynamic_slice_known(op: tensor.DynamicSlice, rw: Rewriter) -> Value | None:
    start = constant_of(op.start)
    axis = op.axis % op.x.rank
    size = op.x.shape[axis]
    if start is None or not isinstance(size, int):
        return None
    at = min(max(int(start.reshape(())), 0), size - op.size)
    rank = op.x.rank
    starts = tuple(at if i == axis else 0 for i in range(rank))
    return rw.add(tensor.Slice, op.x, starts, op.result.shape, (1,) * rank)
