"""atan, atan2, asin and acos of f64 in pairs (see `math_f64`)."""

from __future__ import annotations

import math

from poplar_py.codegen.lanes import Lanes, poly, select
from poplar_py.codegen.pairs import Pair, choose, constant, fast_sum, two_sum
from poplar_py.types import i64

__all__ = ["acos", "asin", "atan", "atan2"]

_PI = ("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53")
_PI_2 = ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54")
_ATAN = tuple((-1) ** k / (2 * k + 1) for k in range(9, 0, -1))  # z and up, z < 1 / 256
_ATANS = (
    ("0x0.0p+0", "0x0.0p+0"),
    ("0x1.fd5ba9aac2f6ep-4", "-0x1.cd37686760c17p-59"),
    ("0x1.f5b75f92c80ddp-3", "0x1.8ab6e3cf7afbdp-57"),
    ("0x1.6f61941e4def1p-2", "-0x1.c63aae6f6e918p-56"),
    ("0x1.dac670561bb4fp-2", "0x1.a2b7f222f65e2p-56"),
    ("0x1.1e00babdefeb4p-1", "-0x1.928df287a668fp-58"),
    ("0x1.4978fa3269ee1p-1", "0x1.2419a87f2a458p-56"),
    ("0x1.700a7c5784634p-1", "-0x1.8c34d25aadef6p-56"),
    ("0x1.921fb54442d18p-1", "0x1.1a62633145c07p-55"),
)
"""atan(k / 8)."""
_MOST = 1.7976931348623157e308


def _atan_pair(t: Pair) -> Pair:
    """atan of 0 <= t <= 1: from the nearest eighth."""
    k = (t.hi * 8.0).round()
    c = k * 0.125
    u = (t + -c) / (t * c + 1.0)
    base = constant(c, _ATANS[0])
    for n, words in enumerate(_ATANS[1:], 1):
        base = choose(k.equals(float(n)), constant(c, words), base)
    z = u.hi * u.hi
    tail = poly(z, _ATAN) * (z * u.hi)
    return base + fast_sum(u.hi, tail + u.lo)


def _arc(y: Pair, x: Pair) -> Pair:
    """The angle of (x, y), neither negative, not both 0."""
    swap = y.hi > x.hi
    t = choose(swap, x, y) / choose(swap, y, x)
    a = _atan_pair(t)
    return choose(swap, constant(y.hi, _PI_2) - a, a)


def atan(x: Lanes) -> Lanes:
    a = x.abs()
    value = _arc(Pair.of(a.at_most(1e300)), Pair.of(a.const(1.0))).value
    return select(a < 1e-9, a, value).copysign(x)


def atan2(y: Lanes, x: Lanes) -> Lanes:
    a, b = y.abs(), x.abs()
    same = a.equals(b) & ((a > 0.0) | a.equals(math.inf))
    most = select(a > b, a, b)
    down = select(most > 2.0**500, a.const(2.0**-600), a.const(1.0))
    up = select(most < 2.0**-500, a.const(2.0**520), down)
    p, q = a.at_most(_MOST) * up, b.at_most(_MOST) * up
    p = select(same, p.const(1.0), p)
    q = select(same | (a.equals(0.0) & b.equals(0.0)), q.const(1.0), q)
    p = select(b.equals(math.inf) & (a < math.inf), p.const(0.0), p)
    q = select(a.equals(math.inf) & (b < math.inf), q.const(0.0), q)
    angle = _arc(Pair.of(p), Pair.of(q))
    negative = x.bits(i64) < 0
    ratio = a / b  # of a very small ratio it is the angle, and the pair may have lost it
    plain = select(ratio < 1e-9, ratio, angle.value)
    value = select(negative, (constant(x, _PI) - angle).value, plain).copysign(y)
    return select(x.is_nan(), x, select(y.is_nan(), y, value))


def asin(x: Lanes) -> Lanes:
    a = x.abs().at_most(1.0)
    value = _arc(Pair.of(a), _co_sine(a)).value
    value = select(x.abs() < 1e-9, x.abs(), value).copysign(x)
    return select(x.abs() > 1.0, x.const(math.nan), value)


def acos(x: Lanes) -> Lanes:
    a = x.abs().at_most(1.0)
    angle = _arc(_co_sine(a), Pair.of(a))
    value = select(x < 0.0, (constant(x, _PI) - angle).value, angle.value)
    return select(x.abs() > 1.0, x.const(math.nan), value)


def _co_sine(a: Lanes) -> Pair:
    """sqrt(1 - a^2) for 0 <= a <= 1."""
    return (two_sum(a.const(1.0), -a) * two_sum(a.const(1.0), a)).sqrt()
