"""Integer arrays as affine forms: exact, compact text.

    array := INT [ "[" digit {"," digit} "]" ]      a value, plus a sum over a mixed-radix index
           | "(" array {"," array} ")"              pieces joined; "()" is empty
           | TYPE "dense<sha256:...>"               an irregular table, out of line
    digit := COUNT "x" STEP                         outer digit first, regular
           | COUNT "x" "(" array {"," array} ")"    explicit offsets

``0[4x6144,16x24576,23x0]`` is ``0 + 6144 i + 24576 j`` for i < 4, j < 16, each value 23 times.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.ir.attributes import Array, array_hash, attribute_text
from poplar_py.poplar.arrays import I8, Ints

MAX_PIECES = 64
_SMALL = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64))

Digit = tuple[int, int | str]
"""Count, and a step or explicit offsets as text."""


def ints_text(values: npt.NDArray[np.integer], tables: MutableMapping[str, Array]) -> str:
    """The text of a vector of integers; a table it needs is entered into ``tables``."""
    x = np.asarray(values, I8)
    n = len(x)
    if n == 0:
        return "()"
    if n == 1:
        return str(int(x[0]))
    digits: list[Digit] = []
    y = x
    while len(y) > 1:
        d = np.diff(y)
        change = np.flatnonzero(d != d[0])
        q = len(y) if len(change) == 0 else int(change[0]) + 1
        if q > 1 and len(y) % q == 0 and _repeats(y, q):
            _push(digits, q, int(d[0]))
            y = y[::q]
            continue
        period = _period(y, d)
        inner = None if period is None else _pieces(y[:period] - y[0])
        if period is None or inner is None:
            return _irregular(x, tables)
        digits.append((period, f"({inner})"))
        y = y[::period]
    body = ",".join([f"{count}x{step}" for count, step in reversed(digits)])
    return f"{int(x[0])}[{body}]"


def _irregular(x: Ints, tables: MutableMapping[str, Array]) -> str:
    pieces = _pieces(x)
    if pieces is not None:
        return f"({pieces})"
    low, high = int(x.min()), int(x.max())
    dtype = next(t for t in _SMALL if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    table = np.ascontiguousarray(x.astype(dtype))
    table.flags.writeable = False
    tables[array_hash(table)] = table
    return attribute_text(table, tables)


def _repeats(y: Ints, q: int) -> bool:
    """Whether all rows of length q are the first one moved."""
    if len(y) == q:
        return True
    z = y.reshape(-1, q)
    return bool((z[:, 1:] - z[:, :1] == z[0, 1:] - z[0, 0]).all())


def _push(digits: list[Digit], count: int, step: int) -> None:
    """Add an outer digit, joined with the one inside it where they step as one."""
    if digits:
        inner, inner_step = digits[-1]
        if isinstance(inner_step, int) and inner * inner_step == step:
            digits[-1] = (inner * count, inner_step)
            return
    digits.append((count, step))


def _period(y: Ints, d: Ints) -> int | None:
    """Smallest proper divisor q of the length such that all rows of length q are alike."""
    n = len(y)
    for q in _divisors(n):
        if q + 1 < n and d[0] != d[q]:
            continue
        if _repeats(y, q):
            return q
    return None


def _divisors(n: int) -> list[int]:
    small = [q for q in range(2, int(n**0.5) + 1) if n % q == 0]
    large = [n // q for q in reversed(small) if q * q != n]
    return [*small, *large]


def _pieces(x: Ints) -> str | None:
    """At most MAX_PIECES stretches of constant step, or None."""
    out: list[str] = []
    d = np.diff(x)
    begin, n = 0, len(x)
    for change in (np.flatnonzero(d[1:] != d[:-1]) + 1).tolist():
        if change < begin:
            continue
        out.append(_stretch(x, begin, change + 1))
        begin = change + 1
        if len(out) > MAX_PIECES:
            return None
    if begin < n:
        out.append(_stretch(x, begin, n))
    return ",".join(out)


def _stretch(x: Ints, begin: int, end: int) -> str:
    first = int(x[begin])
    if end - begin == 1:
        return str(first)
    return f"{first}[{end - begin}x{int(x[begin + 1]) - first}]"


def values_text(values: npt.NDArray[Any], tables: MutableMapping[str, Array]) -> str:
    """Any vector: integers as affine forms, others as ``TYPE dense<...>``."""
    if values.dtype.kind in "iu" and _small(values):
        return ints_text(values, tables)
    return attribute_text(np.ascontiguousarray(values), tables)


def _small(values: npt.NDArray[Any]) -> bool:
    """Whether values and their differences are within what the reader takes for a number."""
    limit = 1 << 61
    return not len(values) or (-limit <= int(values.min()) and int(values.max()) <= limit)
