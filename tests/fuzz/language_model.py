"""The vertex language in NumPy: the text of a `compute` runs as Python on these values.

`Run` is a field, row or local array whose indices are checked; numbers are those of `language_num`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from language_num import (
    F16,
    F32,
    I32,
    U32,
    Array,
    Num,
    Trap,
    arithmetic,
    cast,
    promote,
    wrapped,
)

from poplar_py.types import DTYPES, DType, bool_

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
    def wrapper(*args: Num) -> Num:
        with np.errstate(all="ignore"):
            return Num(args[0].t, function(*(a.a for a in args)))

    return wrapper


def magnitude(x: Num) -> Num:
    if x.t.is_float or x.t.kind == "u":
        return Num(x.t, np.abs(x.a))
    return Num(x.t, wrapped(np.abs(x.a.astype(object)), x.t))


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


def andc(a: Any, b: Any) -> Num:
    """a & ~b in the common type, which functions do not promote."""
    x, y = promote(a, b)
    return Num(x.t, x.a & ~y.a)


def select(c: Num, a: Any, b: Any) -> Num:
    x, y = promote(a, b)
    return Num(x.t, np.where(c.a, x.a, y.a))


def _count(function: Callable[[int, int], int]) -> Callable[[Num], Num]:
    def wrapper(x: Num) -> Num:
        mask = (1 << x.t.bits) - 1
        flat = [function(int(v) & mask, x.t.bits) for v in np.ravel(x.a)]
        return Num(x.t, np.array(flat, object).reshape(x.a.shape).astype(x.t.numpy))

    return wrapper


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
    "andc": andc,
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
