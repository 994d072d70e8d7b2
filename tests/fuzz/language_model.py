"""The vertex language in NumPy: the text of a `compute` runs as Python on these values.

`Num` is a scalar or a short vector of one element type with the language's promotion, wrapping,
saturation and rounding; `Run` is a field, row or local array whose indices are checked. What has no
value raises `Trap`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.types import DTYPES, DType, bool_

Array = npt.NDArray[Any]
I32, U32, F16, F32 = (DTYPES[n] for n in ("i32", "u32", "f16", "f32"))


class Trap(Exception):
    """An index out of range, a division without a value, an abort."""


class Num:
    """`a`: an array of shape () or (lanes,) of the NumPy type of `t`."""

    __slots__ = ("a", "t")

    def __init__(self, t: DType, a: Any) -> None:
        self.t, self.a = t, np.asarray(a, t.numpy)

    @property
    def lanes(self) -> int:
        return self.a.size if self.a.ndim else 1

    def __bool__(self) -> bool:
        assert self.a.ndim == 0
        return bool(self.a != 0)

    def __index__(self) -> int:
        return int(self.a)

    def __getitem__(self, lane: int) -> Num:
        return Num(self.t, self.a[lane])

    def __add__(self, o: Any) -> Num:
        return arithmetic("add", self, o)

    def __radd__(self, o: Any) -> Num:
        return arithmetic("add", o, self)

    def __sub__(self, o: Any) -> Num:
        return arithmetic("sub", self, o)

    def __rsub__(self, o: Any) -> Num:
        return arithmetic("sub", o, self)

    def __mul__(self, o: Any) -> Num:
        return arithmetic("mul", self, o)

    def __rmul__(self, o: Any) -> Num:
        return arithmetic("mul", o, self)

    def __truediv__(self, o: Any) -> Num:
        return arithmetic("div", self, o)

    def __rtruediv__(self, o: Any) -> Num:
        return arithmetic("div", o, self)

    def __floordiv__(self, o: Any) -> Num:
        return arithmetic("floordiv", self, o)

    def __rfloordiv__(self, o: Any) -> Num:
        return arithmetic("floordiv", o, self)

    def __mod__(self, o: Any) -> Num:
        return arithmetic("mod", self, o)

    def __rmod__(self, o: Any) -> Num:
        return arithmetic("mod", o, self)

    def __and__(self, o: Any) -> Num:
        return arithmetic("and", self, o)

    def __rand__(self, o: Any) -> Num:
        return arithmetic("and", o, self)

    def __or__(self, o: Any) -> Num:
        return arithmetic("or", self, o)

    def __ror__(self, o: Any) -> Num:
        return arithmetic("or", o, self)

    def __xor__(self, o: Any) -> Num:
        return arithmetic("xor", self, o)

    def __rxor__(self, o: Any) -> Num:
        return arithmetic("xor", o, self)

    def __lshift__(self, o: Any) -> Num:
        return shift(self, o, left=True)

    def __rshift__(self, o: Any) -> Num:
        return shift(self, o, left=False)

    def __pow__(self, n: int) -> Num:
        square = self if n == 1 else self * self
        return square * self if n == 3 else square * square if n == 4 else square

    def __neg__(self) -> Num:
        return Num(
            self.t, -self.a if self.t.is_float else _wrapped(0 - self.a.astype(object), self.t)
        )

    def __invert__(self) -> Num:
        return Num(self.t, ~self.a)

    def __lt__(self, o: Any) -> Num:
        return compare(np.less, self, o)

    def __le__(self, o: Any) -> Num:
        return compare(np.less_equal, self, o)

    def __gt__(self, o: Any) -> Num:
        return compare(np.greater, self, o)

    def __ge__(self, o: Any) -> Num:
        return compare(np.greater_equal, self, o)

    def __eq__(self, o: object) -> Num:  # type: ignore[override]
        return compare(np.equal, self, o)

    def __ne__(self, o: object) -> Num:  # type: ignore[override]
        return compare(np.not_equal, self, o)

    __hash__ = None  # type: ignore[assignment]


# ---------------------------------------------------------------- types


def _wrapped(values: Any, t: DType) -> Array:
    """Python ints modulo the width of the type."""
    array = np.asarray(values, object)
    mask, sign = (1 << t.bits) - 1, 1 << (t.bits - 1)
    flat = [int(v) & mask for v in array.ravel()]
    if t.kind == "i":
        flat = [v - 2 * sign if v & sign else v for v in flat]
    return np.array(flat, t.numpy).reshape(array.shape)


def cast(x: Any, t: DType) -> Num:
    """Convert: ints wrap, floats saturate (NaN: 0), one rounding."""
    if not isinstance(x, Num):
        if isinstance(x, float) and t.is_integer:
            return cast(Num(DTYPES["f64"], x), t)
        return Num(t, x)
    s = x.t
    if s is t:
        return x
    if t is bool_:
        return Num(t, x.a != 0)
    if t.is_float:
        return Num(t, x.a.astype(t.numpy))
    if not s.is_float:
        return Num(t, _wrapped(x.a.astype(object), t))
    info = np.iinfo(t.numpy)
    flat = [_saturate(float(v), info) for v in np.ravel(x.a)]
    return Num(t, np.array(flat, object).reshape(x.a.shape).astype(t.numpy))


def _saturate(v: float, info: Any) -> int:
    if v != v:
        return 0
    return int(info.min) if v <= info.min else int(info.max) if v >= info.max else int(v)


def _join(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a is bool_ or b is bool_:
        return b if a is bool_ else a
    if a.size != b.size:
        return a if a.size > b.size else b
    return a if a.kind == "i" else b


def promote(a: Any, b: Any) -> tuple[Num, Num]:
    """Both in the common type; a Python number takes the other's type where that keeps its kind."""
    if not isinstance(a, Num):
        y, x = promote(b, a)
        return x, y
    if not isinstance(b, Num):
        literal = F32 if isinstance(b, float) and not a.t.is_float else a.t
        b = Num(literal, b)
    t = _join(a.t, b.t)
    x, y = cast(a, t), cast(b, t)
    shape = np.broadcast_shapes(x.a.shape, y.a.shape)
    return Num(t, np.broadcast_to(x.a, shape)), Num(t, np.broadcast_to(y.a, shape))


_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def arithmetic(op: str, a: Any, b: Any) -> Num:
    x, y = promote(a, b)
    t = x.t
    if t is bool_ and op in ("and", "or", "xor"):
        return Num(t, _PYTHON[op](x.a, y.a))
    if t.is_float:
        with np.errstate(all="ignore"):
            function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[op]
            return Num(t, function(x.a, y.a))
    if op in ("floordiv", "mod"):
        return _division(op, x, y)
    return Num(t, _wrapped(_PYTHON[op](x.a.astype(object), y.a.astype(object)), t))


def _division(op: str, x: Num, y: Num) -> Num:
    """Python's; a scalar by zero, or INT_MIN by -1, has no value. Lanes: by zero counts as by 1."""
    t = x.t
    out: list[int] = []
    for a, b in zip(np.ravel(x.a).tolist(), np.ravel(y.a).tolist(), strict=True):
        if x.lanes == 1 and (b == 0 or (t.kind == "i" and b == -1 and a == np.iinfo(t.numpy).min)):
            raise Trap("division")
        divisor = b or 1
        out.append(a // divisor if op == "floordiv" else a % divisor)
    return Num(t, _wrapped(np.array(out, object).reshape(x.a.shape), t))


def shift(a: Num, b: Any, *, left: bool) -> Num:
    """The count takes the type of the left operand and is masked."""
    count = np.asarray(cast(b, a.t).a).astype(object) & (a.t.bits - 1)
    values = a.a.astype(object)
    return Num(a.t, _wrapped(values << count if left else values >> count, a.t))


def compare(op: Callable[[Array, Array], Array], a: Any, b: Any) -> Num:
    x, y = promote(a, b)
    return Num(bool_, op(x.a, y.a))


# ---------------------------------------------------------------- functions


def _extreme(small: bool, number: bool) -> Callable[..., Num]:
    """min, max: NaN if either is; fmin, fmax: the number. Of equal ones the first."""

    def function(first: Any, *rest: Any) -> Num:
        for other in rest:
            x, y = promote(first, other)
            best = np.where(x.a > y.a if small else x.a < y.a, y.a, x.a)
            if x.t.is_float:
                broken = np.isnan(x.a) if number else np.isnan(y.a)
                best = np.where(broken, y.a, best)
                if not number:
                    best = np.where(np.isnan(x.a), x.a, best)
            first = Num(x.t, best)
        return first

    return function


def _float(function: Callable[..., Array]) -> Callable[..., Num]:
    def wrapped(*args: Num) -> Num:
        with np.errstate(all="ignore"):
            return Num(args[0].t, function(*(a.a for a in args)))

    return wrapped


def magnitude(x: Num) -> Num:
    if x.t.is_float or x.t.kind == "u":
        return Num(x.t, np.abs(x.a))
    return Num(x.t, _wrapped(np.abs(x.a.astype(object)), x.t))


def fma(a: Num, b: Num, c: Num) -> Num:
    """f32 and f16: one rounding to f32 by an odd step over f64."""
    x, y, z = (np.asarray(v.a, np.float64) for v in (a, b, c))
    with np.errstate(all="ignore"):
        product = x * y
        total = product + z
        back = total - product
        lost = (product - (total - back)) + (z - back)
    bits = total.view(np.int64) if total.ndim else np.float64(total).view(np.int64)
    toward = np.where((lost > 0) == (total > 0), 1, -1)
    inexact = (lost != 0) & np.isfinite(lost) & np.isfinite(total) & ((bits & 1) == 0)
    odd = np.where(inexact, bits + np.where(toward > 0, 1, -1), bits)
    with np.errstate(all="ignore"):
        rounded = np.asarray(odd, np.int64).view(np.float64).astype(np.float32)
        return Num(a.t, rounded.astype(a.t.numpy))


def select(c: Num, a: Any, b: Any) -> Num:
    x, y = promote(a, b)
    return Num(x.t, np.where(c.a, x.a, y.a))


def _count(function: Callable[[int, int], int]) -> Callable[[Num], Num]:
    def wrapped(x: Num) -> Num:
        mask = (1 << x.t.bits) - 1
        flat = [function(int(v) & mask, x.t.bits) for v in np.ravel(x.a)]
        return Num(x.t, np.array(flat, object).reshape(x.a.shape).astype(x.t.numpy))

    return wrapped


def _reduce(op: str) -> Callable[[Num], Num]:
    """By the fixed tree: the upper half onto the lower one."""

    def function(v: Num) -> Num:
        wide = cast(v, F32) if v.t is F16 else v
        while wide.a.size > 1:
            half = wide.a.size // 2
            low, high = Num(wide.t, wide.a[:half]), Num(wide.t, wide.a[half:])
            known = op in ("add", "mul")
            wide = arithmetic(op, low, high) if known else FUNCTIONS[op](low, high)
        return cast(Num(wide.t, wide.a.reshape(())), v.t)

    return function


def splat(x: Any, lanes: int) -> Num:
    return Num(x.t, np.full(lanes, x.a))


def insert(v: Num, lane: int, s: Num) -> Num:
    out = v.a.copy()
    out[lane] = cast(s, v.t).a
    return Num(v.t, out)


def shuffle(a: Num, b: Num, lanes: tuple[int, ...]) -> Num:
    return Num(a.t, np.concatenate([a.a, b.a])[list(lanes)])


def abort_if(c: Any) -> None:
    if c:
        raise Trap("abort")


# ---------------------------------------------------------------- memory


class Run:
    """Elements of one type that can be read and written; indices are checked."""

    def __init__(self, t: DType, values: Array) -> None:
        self.t, self.values = t, values

    def span(self, i: Any, count: int) -> slice:
        at = int(i)
        if at < 0 or at + count > len(self.values):
            raise Trap("index")
        return slice(at, at + count)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: Any) -> Num:
        return Num(self.t, self.values[self.span(i, 1)][0])

    def __setitem__(self, i: Any, v: Any) -> None:
        where = self.span(i, 1)
        with np.errstate(all="ignore"):
            self.values[where] = cast(v, self.t).a

    def __iter__(self) -> Iterator[Num]:
        for k in range(len(self.values)):
            yield self[k]


class Rows:
    """A list of runs."""

    def __init__(self, rows: list[Run]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: Any) -> Run:
        at = int(i)
        if not 0 <= at < len(self.rows):
            raise Trap("index")
        return self.rows[at]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.rows)


def load(run: Run, i: Any, lanes: int, n: Any = None) -> Num:
    """Lanes at i, the first n of them; f16 comes as f32."""
    raw = load_raw(run, i, lanes, n)
    return cast(raw, F32) if run.t is F16 else raw


def load_raw(run: Run, i: Any, lanes: int, n: Any = None) -> Num:
    count = lanes if n is None else int(n)
    out = np.zeros(lanes, run.t.numpy)
    out[:count] = run.values[run.span(i, count)]
    return Num(run.t, out)


def store(run: Run, i: Any, v: Num, n: Any = None) -> None:
    count = v.lanes if n is None else int(n)
    where = run.span(i, count)
    with np.errstate(all="ignore"):
        run.values[where] = cast(v, run.t).a[:count]


def gather(run: Run, index: Num) -> Num:
    values = np.array([run[k].a for k in index.a])
    raw = Num(run.t, values)
    return cast(raw, F32) if run.t is F16 else raw


def array(t: Any, n: int) -> Run:
    return Run(t.dtype, np.zeros(n, t.dtype.numpy))


class Type:
    """`f32`, `i8x4`: converts; a scalar is splat over the lanes."""

    def __init__(self, dtype: DType, lanes: int = 1) -> None:
        self.dtype, self.lanes = dtype, lanes

    def __call__(self, x: Any) -> Num:
        with np.errstate(all="ignore"):
            value = cast(x, self.dtype)
        if self.lanes > 1 and value.lanes == 1:
            return splat(value, self.lanes)
        return value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _extreme(True, False),
    "max": _extreme(False, False),
    "fmin": _extreme(True, True),
    "fmax": _extreme(False, True),
    "abs": magnitude,
    "sqrt": _float(np.sqrt),
    "floor": _float(np.floor),
    "ceil": _float(np.ceil),
    "trunc": _float(np.trunc),
    "round": _float(np.rint),
    "copysign": _float(np.copysign),
    "isnan": lambda x: Num(bool_, np.isnan(x.a)),
    "isinf": lambda x: Num(bool_, np.isinf(x.a)),
    "isfinite": lambda x: Num(bool_, np.isfinite(x.a)),
    "popcount": _count(lambda v, _bits: v.bit_count()),
    "clz": _count(lambda v, bits: bits - v.bit_length()),
    "andc": lambda a, b: a & ~b,
    "fma": fma,
    "select": select,
    "sum": _reduce("add"),
    "prod": _reduce("mul"),
    "reduce_max": _reduce("max"),
    "reduce_min": _reduce("min"),
    "splat": splat,
    "insert": insert,
    "shuffle": shuffle,
    "iota": lambda n: Num(U32, np.arange(n)),
    "load": load,
    "load_raw": load_raw,
    "store": store,
    "store_raw": store,
    "gather": gather,
    "array": array,
    "abort_if": abort_if,
}


def scope() -> dict[str, Any]:
    """Names a `compute` text sees when it runs as Python."""
    names: dict[str, Any] = {**FUNCTIONS, "unroll": builtins.range, "math": math}
    for name, t in DTYPES.items():
        names[name] = Type(t)
        for lanes in (2, 4, 8, 16):
            names[f"{name}x{lanes}"] = Type(t, lanes)
    names["len"] = lambda x: Num(I32, len(x))
    names["range"] = lambda *b: (Num(I32, k) for k in builtins.range(*(int(v) for v in b)))
    names["cast"] = lambda x, t: t(x)
    return names
