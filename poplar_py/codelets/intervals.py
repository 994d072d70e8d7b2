"""Intervals of integers, one per vertex, as `codelets.reach` walks codelet IR.

An integer of the IR has the bits of its type, but an index is computed without wrapping. What may
leave its type's range is therefore both: the exact interval joined with all values of the type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from poplar_py.codelets.codelet_ir import Expr, Ty

Number = Any
"""int, bool, or an array over the vertices."""
ENDLESS = 1 << 60


@dataclass(frozen=True, eq=False)
class Interval:
    """From ``low`` to ``high``, both included; with a ``base``, that much more than what the number
    of that name was when the round of a loop began."""

    low: Number
    high: Number
    base: str = ""


ANY = Interval(-ENDLESS, ENDLESS)
BIT = Interval(0, 1)


def of_type(ty: Ty) -> Interval:
    """All values of an integer type; anything for others."""
    if ty.dtype.kind == "b":
        return BIT
    if not ty.dtype.is_integer or ty.dtype.size > 4:
        return ANY
    bits = ty.dtype.size * 8
    return (
        Interval(-(1 << bits - 1), (1 << bits - 1) - 1)
        if ty.dtype.kind == "i"
        else Interval(0, (1 << bits) - 1)
    )


def join(a: Interval, b: Interval) -> Interval:
    """What is either."""
    if a.base != b.base:
        return ANY
    return Interval(np.minimum(a.low, b.low), np.maximum(a.high, b.high), a.base)


def in_type(v: Interval, ty: Ty) -> Interval:
    """A result as its type holds it."""
    if v.base:
        return v
    whole = of_type(ty)
    fits = np.logical_and(v.low >= whole.low, v.high <= whole.high)
    if np.all(fits):
        return v
    return _clipped(
        np.where(fits, v.low, np.minimum(v.low, whole.low)),
        np.where(fits, v.high, np.maximum(v.high, whole.high)),
    )


def cast_interval(v: Interval, source: Ty, target: Ty) -> Interval:
    """A conversion between integers; from floats anything the type holds."""
    if source.dtype.kind == "b" or target.dtype.kind == "b":
        return BIT
    if not source.dtype.is_integer or not target.dtype.is_integer:
        return of_type(target)
    return in_type(v, target)


def only_where(v: Interval, op: str, bound: Interval) -> Interval:
    """The part of an interval for which a comparison may hold."""
    low, high = v.low, v.high
    if op in ("lt", "le", "eq"):
        high = np.minimum(high, bound.high - (op == "lt"))
    if op in ("gt", "ge", "eq"):
        low = np.maximum(low, bound.low + (op == "gt"))
    return Interval(low, high)


def total_rounds(start: Interval, stop: Interval, step: int) -> tuple[Interval, Number]:
    """Of a loop: all values of its counter, and the most rounds it takes."""
    if start.base or stop.base:
        return ANY, ENDLESS
    if step > 0:
        rounds = np.maximum(-(-(stop.high - start.low) // step), 0)
        last = np.minimum(
            stop.high - 1, start.high + bounded_product(np.maximum(rounds - 1, 0), step)
        )
        return Interval(start.low, np.maximum(last, start.low)), rounds
    rounds = np.maximum(-(-(start.high - stop.low) // -step), 0)
    more = bounded_product(np.maximum(rounds - 1, 0), step)
    last = np.maximum(stop.low + 1, start.low + more)
    return Interval(np.minimum(last, start.high), start.high), rounds


def added(entry: Interval, low: Number, high: Number, rounds: Number) -> Interval:
    """A number after up to ``rounds`` rounds that each add from ``low`` to ``high``."""
    least = entry.low + np.minimum(bounded_product(low, rounds), 0)
    most = entry.high + np.maximum(bounded_product(high, rounds), 0)
    wide = np.logical_or(least < -(1 << 31), most >= 1 << 31)  # may have wrapped
    return _clipped(np.where(wide, -ENDLESS, least), np.where(wide, ENDLESS, most), entry.base)


def compute(e: Expr, args: list[Interval]) -> Interval:
    """The result of an operation on integers."""
    if e.op in ("add", "sub") and args[0].base and not args[1].base:
        return in_type(_sum(e.op, *args), e.ty)
    args = [ANY if a.base else a for a in args]
    if e.op in _COMPARE:
        return _truth(e.op, *args)
    found = _OPERATIONS.get(e.op)
    if found is None:
        return of_type(e.ty)
    return in_type(found(e.ty, *args), e.ty)


def _clipped(low: Number, high: Number, base: str = "") -> Interval:
    return Interval(np.clip(low, -ENDLESS, ENDLESS), np.clip(high, -ENDLESS, ENDLESS), base)


def bounded_product(a: Number, b: Number) -> Number:
    """A product that stays within ENDLESS."""
    rough = np.multiply(a, b, dtype=np.float64)
    exact = np.multiply(a, b, dtype=np.int64)
    big = np.abs(rough) > ENDLESS
    return np.where(big, np.where(rough > 0, ENDLESS, -ENDLESS), exact)


def _sum(op: str, a: Interval, b: Interval) -> Interval:
    if op == "add":
        return _clipped(a.low + b.low, a.high + b.high, a.base)
    return _clipped(a.low - b.high, a.high - b.low, a.base)


def _product(_ty: Ty, a: Interval, b: Interval) -> Interval:
    corners = [bounded_product(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(reduce(np.minimum, corners), reduce(np.maximum, corners))


def _quotient(ty: Ty, a: Interval, b: Interval) -> Interval:
    """Of a number that is not negative by one that is positive; else anything."""
    fine = np.logical_and(a.low >= 0, b.low >= 1)
    low, high = a.low // np.maximum(b.high, 1), a.high // np.maximum(b.low, 1)
    return _or_type(ty, fine, low, high)


def _remainder(ty: Ty, a: Interval, b: Interval) -> Interval:
    fine = np.logical_and(a.low >= 0, b.low >= 1)
    return _or_type(ty, fine, 0, np.minimum(a.high, b.high - 1))


def _modulo(ty: Ty, a: Interval, b: Interval) -> Interval:
    return _or_type(ty, b.low >= 1, 0, b.high - 1)


def _or_type(ty: Ty, fine: Number, low: Number, high: Number) -> Interval:
    whole = of_type(ty)
    return Interval(np.where(fine, low, whole.low), np.where(fine, high, whole.high))


def _and(ty: Ty, a: Interval, b: Interval) -> Interval:
    if ty.dtype.kind == "b":
        return Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high))
    for x, mask in ((a, b), (b, a)):
        if np.ndim(mask.low) == 0 and mask.low == mask.high and mask.low < 0:
            whole = of_type(ty)
            fine = np.logical_and(x.low >= whole.low, x.high <= whole.high)
            if -mask.low & (-mask.low - 1) == 0:  # minus a power of two: rounds down
                return _or_type(ty, fine, x.low & mask.low, x.high & mask.low)
    most = np.minimum(np.where(a.low >= 0, a.high, ENDLESS), np.where(b.low >= 0, b.high, ENDLESS))
    return _or_type(ty, np.logical_or(a.low >= 0, b.low >= 0), 0, most)


def _or(ty: Ty, a: Interval, b: Interval) -> Interval:
    if ty.dtype.kind == "b":
        return Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high))
    return of_type(ty)


def _not(_ty: Ty, a: Interval) -> Interval:
    return Interval(1 - a.high, 1 - a.low)


def _left(ty: Ty, a: Interval, b: Interval) -> Interval:
    fine = np.logical_and(b.low >= 0, b.high < 31)
    if not np.all(fine):
        return ANY
    return _product(ty, a, Interval(1 << b.low, 1 << b.high))


def _right(ty: Ty, a: Interval, b: Interval) -> Interval:
    fine = np.logical_and(np.logical_and(a.low >= 0, b.low >= 0), b.high < ty.dtype.bits)
    high = a.high >> np.clip(b.low, 0, 31)
    return _or_type(ty, fine, 0, high)


def _truth(op: str, a: Interval, b: Interval) -> Interval:
    """Whether a comparison must, or may, hold."""
    if op in ("gt", "ge"):
        a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
    if op == "lt":
        return Interval(np.where(a.high < b.low, 1, 0), np.where(a.low < b.high, 1, 0))
    if op == "le":
        return Interval(np.where(a.high <= b.low, 1, 0), np.where(a.low <= b.high, 1, 0))
    apart = np.logical_or(a.high < b.low, a.low > b.high)
    same = np.logical_and(np.equal(a.low, a.high), np.equal(b.low, b.high))
    same = np.logical_and(same, np.equal(a.low, b.low))
    if op == "eq":
        return Interval(np.where(same, 1, 0), np.where(apart, 0, 1))
    return Interval(np.where(apart, 1, 0), np.where(same, 0, 1))


def _add(_ty: Ty, a: Interval, b: Interval) -> Interval:
    return _sum("add", a, b)


def _sub(_ty: Ty, a: Interval, b: Interval) -> Interval:
    return _sum("sub", a, b)


def _neg(_ty: Ty, a: Interval) -> Interval:
    return Interval(-a.high, -a.low)


def _least(_ty: Ty, a: Interval, b: Interval) -> Interval:
    return Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high))


def _most(_ty: Ty, a: Interval, b: Interval) -> Interval:
    return Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


def _either(_ty: Ty, _test: Interval, a: Interval, b: Interval) -> Interval:
    return join(a, b)


_COMPARE = frozenset("lt le gt ge eq ne".split())
_OPERATIONS: dict[str, Callable[..., Interval]] = {
    "add": _add,
    "sub": _sub,
    "mul": _product,
    "neg": _neg,
    "floordiv": _quotient,
    "quot": _quotient,
    "mod": _modulo,
    "rem": _remainder,
    "and": _and,
    "or": _or,
    "andalso": _and,
    "orelse": _or,
    "not": _not,
    "shl": _left,
    "shr": _right,
    "min": _least,
    "max": _most,
    "select": _either,
    "choose": _either,
}
