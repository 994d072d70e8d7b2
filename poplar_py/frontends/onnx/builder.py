"""Emits model ops for ONNX nodes, and folds what is known on the way."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from poplar_py.diagnostics import UNKNOWN, Location, PoplarPyError, ShapeError, UnsupportedOp
from poplar_py.eval import evaluate_op
from poplar_py.frontends.onnx.values import NO_DEPS, Array, NeedsStatic, Val
from poplar_py.ir.core import RANDOM, Op, Trait, Value
from poplar_py.ops import core, nn, tensor
from poplar_py.ops import elementwise as ew
from poplar_py.types import DType, TensorType, bool_, dtype_of, f32, i32

__all__ = ["MAX_NUMEL", "Builder"]

MAX_NUMEL = 1 << 31
"""A tensor with more elements is refused: it fits no machine this project describes."""

MAX_TABLE = 1 << 26
"""Most elements of an index or weight table made while importing."""

_FOLD_PURE = 1 << 22  # elements of a folded result that does not shrink its operands
_FOLD_BOUND = 1 << 10  # elements of a result found from bound inputs
_FOLD_TOTAL = 1 << 28  # elements folded in one import

_VIEWS = (tensor.Reshape, tensor.Transpose, tensor.Expand, tensor.Slice)


class Builder:
    """Appends ops to the current block; operands and results are `Val`s.

    An op whose operands are all known and pure becomes a constant; one whose operands are known
    but bound is emitted and its (small) result is known too.
    """

    def __init__(self) -> None:
        self.constants: list[core.Constant] = []
        self.block: list[Op] = []
        self.loc: Location = UNKNOWN
        self._placed: set[int] = set()
        self._folded = 0

    # values and constants

    def const(self, array: Any, dtype: DType | None = None, name: str = "") -> Val:
        """A known array, as `dtype` if given."""
        value = np.asarray(array)
        if dtype is not None and value.dtype != dtype.numpy:
            value = value.astype(dtype.numpy)
        kind = TensorType(dtype_of(value.dtype), tuple(value.shape))
        return Val(self, kind, None, value, True, name=name)

    def like(self, number: Any, other: Val) -> Val:
        """A number as a scalar of the element type of `other`."""
        return self.const(number, other.dtype)

    def _same(self, other: Any, like: Val) -> Val:
        return other if isinstance(other, Val) else self.like(other, like)

    def use(self, val: Val) -> Value:
        """The graph value of a Val; places its constant if that is what it is."""
        if val.value is None:
            assert val.const is not None
            made = core.Constant(val.const, loc=self.loc)
            made.results[0].name = val.name
            val.value = made.results[0]
        self._place(val.value)
        return val.value

    def _place(self, value: Value) -> None:
        owner = value.owner
        if isinstance(owner, core.Constant) and id(owner) not in self._placed:
            self._placed.add(id(owner))
            self.constants.append(owner)

    def _peek(self, val: Val) -> Value:
        if val.value is None:
            made = core.Constant(val.const, loc=self.loc)  # type: ignore[arg-type]
            made.results[0].name = val.name
            val.value = made.results[0]
        return val.value

    @contextmanager
    def region(self) -> Generator[list[Op]]:
        """Collect ops into a new block."""
        outer, self.block = self.block, []
        try:
            yield self.block
        finally:
            self.block = outer

    def known(self, val: Val, what: str) -> Array:
        """The array of a Val that has to be known. Raises NeedsStatic."""
        if val.const is not None:
            return val.const
        raise NeedsStatic(
            f"{what} has to be known at compile time", val.deps, self.loc, "give it as a constant"
        )

    def ints(self, val: Val, what: str) -> tuple[int, ...]:
        """A known integer vector (or scalar) as a tuple."""
        return tuple(int(v) for v in self.known(val, what).reshape(-1))

    def integer(self, val: Val, what: str) -> int:
        """A known single integer."""
        found = self.known(val, what).reshape(-1)
        if found.size != 1:
            raise ShapeError(f"{what} is not one number", self.loc)
        return int(found[0])

    # emission

    def emit(self, cls: type[Op], *operands: Any, **attributes: Any) -> Any:
        """One op: operands are Val, None or lists of Val. Returns a Val, or a tuple of them."""
        flat: list[Val] = []
        handles: list[Any] = []
        for item in operands:
            if isinstance(item, Val):
                flat.append(item)
                handles.append(self._peek(item))
            elif item is None:
                handles.append(None)
            else:
                flat.extend(item)
                handles.append(tuple(self._peek(v) for v in item))
        made = cls(*handles, loc=self.loc, **attributes)
        self._check_size(made)
        deps = _union(flat)
        consts = self._fold(made, cls, operands, flat)
        pure = all(v.pure for v in flat)
        if consts is not None and pure:
            self._folded += sum(c.size for c in consts if c.base is None)
            outs = [
                Val(self, r.type, None, c, True) for r, c in zip(made.results, consts, strict=True)
            ]
            return outs[0] if len(outs) == 1 else tuple(outs)
        for v in flat:
            if v.const is not None and v.value is not None:
                self._place(v.value)
        self.block.append(made)
        outs = [Val(self, r.type, r, None, False, deps) for r in made.results]
        if consts is not None:
            for out, const in zip(outs, consts, strict=True):
                out.const = const
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _check_size(self, made: Op) -> None:
        for result in made.results:
            if result.type.numel > MAX_NUMEL:
                raise ShapeError(
                    f"{made.opname}: the result {result.type} is too large",
                    self.loc,
                    f"a tensor may have at most {MAX_NUMEL} elements",
                )

    def _fold(
        self, made: Op, cls: type[Op], operands: tuple[Any, ...], flat: list[Val]
    ) -> tuple[Array, ...] | None:
        if made.has(RANDOM) or not made.has(Trait.PURE) or any(v.const is None for v in flat):
            return None
        pure = all(v.pure for v in flat)
        size = sum(r.type.numel for r in made.results)
        if not pure and size > _FOLD_BOUND:
            return None
        if not issubclass(cls, _VIEWS):
            source = sum(v.numel for v in flat)
            if (size > _FOLD_PURE and size > source) or self._folded + size > _FOLD_TOTAL:
                return None
            if issubclass(cls, (nn.Conv, nn.ConvTranspose)) and size > _FOLD_BOUND:
                return None
        arrays: list[Array | None] = []
        for item in operands:
            if isinstance(item, Val) or item is None:
                arrays.append(None if item is None else item.const)
            else:
                arrays.extend(v.const for v in item)
        try:
            return evaluate_op(made, *arrays)
        except PoplarPyError:
            return None  # left to fail, or not, where it runs

    # element-wise helpers

    def add(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Add, a, self._same(b, a))

    def sub(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Sub, a, self._same(b, a))

    def mul(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Mul, a, self._same(b, a))

    def div(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Div, a, self._same(b, a))

    def neg(self, a: Val) -> Val:
        if a.dtype.kind == "u":
            return self.emit(ew.Sub, self.like(0, a), a)
        return self.emit(ew.Neg, a)

    def power(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Pow, a, self._same(b, a))

    def minimum(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Min, a, self._same(b, a))

    def maximum(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Max, a, self._same(b, a))

    def less(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Less, a, self._same(b, a))

    def greater_equal(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.GreaterEqual, a, self._same(b, a))

    def equal(self, a: Val, b: Val | float) -> Val:
        return self.emit(ew.Equal, a, self._same(b, a))

    def both(self, a: Val, b: Val) -> Val:
        return self.emit(ew.And, a, b)

    def negate(self, a: Val) -> Val:
        return self.emit(ew.Not, a)

    def select(self, cond: Val, a: Val | float, b: Val | float) -> Val:
        """cond ? a : b, where one of a and b may be a number."""
        like = a if isinstance(a, Val) else b
        assert isinstance(like, Val)
        first, second = self._same(a, like), self._same(b, like)
        if cond.const is not None and cond.pure and cond.const.size:
            shape = np.broadcast_shapes(cond.shape, first.shape, second.shape)
            if cond.const.all():
                return self.expand(first, shape)
            if not cond.const.any():
                return self.expand(second, shape)
        return self.emit(ew.Select, cond, first, second)

    def cast(self, x: Val, dtype: DType) -> Val:
        return x if x.dtype is dtype and not x.tag else self.emit(ew.Cast, x, dtype=dtype)

    def unary(self, cls: type[Op], x: Val) -> Val:
        return self.emit(cls, x)

    # layout helpers

    def reshape(self, x: Val, shape: Sequence[int]) -> Val:
        if x.shape == tuple(shape):
            return x
        return self.emit(tensor.Reshape, x, shape=tuple(int(d) for d in shape))

    def transpose(self, x: Val, perm: Sequence[int]) -> Val:
        if tuple(perm) == tuple(range(x.rank)):
            return x
        return self.emit(tensor.Transpose, x, perm=tuple(int(p) for p in perm))

    def swap(self, x: Val, a: int, b: int) -> Val:
        """Exchange two axes."""
        perm = list(range(x.rank))
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(x, perm)

    def expand(self, x: Val, shape: Sequence[int]) -> Val:
        if x.shape == tuple(shape):
            return x
        return self.emit(tensor.Expand, x, shape=tuple(int(d) for d in shape))

    def unsqueeze(self, x: Val, *axes: int) -> Val:
        """Put axes of size 1 where the result has `axes`."""
        rank = x.rank + len(axes)
        places = {a % rank for a in axes}
        dims = iter(x.shape)
        return self.reshape(x, [1 if i in places else next(dims) for i in range(rank)])

    def slice(self, x: Val, axis: int, start: int, size: int, step: int = 1) -> Val:
        """`size` elements along one axis."""
        axis %= x.rank
        if start == 0 and step == 1 and size == x.shape[axis]:
            return x
        starts, sizes, steps = [0] * x.rank, list(x.shape), [1] * x.rank
        starts[axis], sizes[axis], steps[axis] = start, size, step
        return self.emit(
            tensor.Slice, x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps)
        )

    def flip(self, x: Val, axis: int) -> Val:
        """Elements of one axis in reverse order."""
        axis %= x.rank
        size = x.shape[axis]
        return x if size < 2 else self.slice(x, axis, size - 1, size, -1)

    def pick(self, x: Val, axis: int, index: int) -> Val:
        """One element along an axis, which goes away."""
        axis %= x.rank
        cut = self.slice(x, axis, index, 1)
        return self.reshape(cut, x.shape[:axis] + x.shape[axis + 1 :])

    def concat(self, parts: Sequence[Val], axis: int) -> Val:
        if len(parts) == 1:
            return parts[0]
        return self.emit(tensor.Concat, list(parts), axis=axis % parts[0].rank)

    def pad(self, x: Val, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Val:
        if not any(before) and not any(after):
            return x
        return self.emit(tensor.Pad, x, before=tuple(before), after=tuple(after), value=value)

    def split(self, x: Val, sizes: Sequence[int], axis: int) -> list[Val]:
        out: list[Val] = []
        start = 0
        for size in sizes:
            out.append(self.slice(x, axis, start, size))
            start += size
        return out

    # indexing and reduction helpers

    def index(self, indices: Val, dim: int) -> Val:
        """i32 indices with negative ones counted from the end."""
        known = indices.const
        if known is not None and indices.pure:
            return self.const(np.where(known < 0, known + dim, known), i32)
        idx = self.cast(indices, i32)
        if indices.dtype.kind == "u":
            return idx
        return self.select(self.less(idx, 0), idx + dim, idx)

    def gather(self, x: Val, indices: Val, axis: int) -> Val:
        """Gather by i32 indices in range."""
        return self.emit(tensor.Gather, x, indices, axis=axis % x.rank)

    def scattered(self, rows: Val, places: Val, size: int) -> Val:
        """rows[n, w] moved to places[n] of `size` rows; those sent to `size` are dropped."""
        zero = np.zeros((), rows.dtype.numpy)
        start = self.const(np.broadcast_to(zero, (size + 1, rows.shape[1])))
        return self.slice(self.emit(tensor.Scatter, start, places, rows), 0, 0, size)

    def packed(self, rows: Val, flags: Val) -> tuple[Val, Val]:
        """The rows[n, w] whose flag[n] is set, in front and in order; how many (i32[])."""
        ones = self.cast(flags, i32)
        before = self.emit(tensor.Cumulative, ones, axis=0, exclusive=True)
        places = self.select(flags, before, self.const(flags.numel, i32))
        return self.scattered(rows, places, flags.numel), self.sum(ones, (0,))

    def reduce(self, x: Val, kind: str, axes: Sequence[int], keep: bool = False) -> Val:
        if not axes:
            return x
        where = tuple(sorted({a % x.rank for a in axes}))
        return self.emit(tensor.Reduce, x, kind=kind, axes=where, keep=keep)

    def sum(self, x: Val, axes: Sequence[int], keep: bool = False) -> Val:
        return self.reduce(x, "sum", axes, keep)

    def mean(self, x: Val, axes: Sequence[int], keep: bool = False) -> Val:
        count = int(np.prod([x.shape[a] for a in axes])) if axes else 1
        total = self.sum(x, axes, keep)
        return total if count == 1 else total / count

    def matmul(self, a: Val, b: Val) -> Val:
        return self.emit(nn.MatMul, a, b)

    def table(self, count: float) -> None:
        """Check the size of a table of positions or weights before the host makes it."""
        if count > MAX_TABLE:
            raise ShapeError(f"a table of {count:g} elements is too large", self.loc)

    def iota(self, size: int, dtype: DType = i32) -> Val:
        self.table(size)
        return self.const(np.arange(size), dtype)

    def wide(self, x: Val) -> Val:
        """x in f32 if it is f16 or bf16."""
        return self.cast(x, f32) if x.dtype.is_float and x.dtype.size == 2 else x

    def flag(self, x: Val) -> Val:
        """x != 0."""
        return self.cast(x, bool_)

    def refuse(self, why: str, remedy: str = "") -> UnsupportedOp:
        """The error for what cannot be imported."""
        return UnsupportedOp(why, self.loc, remedy)


def _union(vals: list[Val]) -> frozenset[str]:
    deps = NO_DEPS
    for v in vals:
        if v.deps and v.deps is not deps:
            deps = deps | v.deps if deps else v.deps
    return deps
