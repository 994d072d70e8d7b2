"""Elementary functions of f64, at most 1 ulp: no C library, so the same bits on every CPU.

A NaN comes out as it went in: for functions of one number `mathlib.unary` sees to it.

Arguments are reduced and results joined in pairs of f64 (see `pairs`). The series are Taylor's,
whose coefficients are known exactly; erf alone uses a Chebyshev fit. The same operations serve a
scalar and every lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from poplar_py.codegen.arc_f64 import acos, asin, atan, atan2
from poplar_py.codegen.lanes import Lanes, poly, power_of_two, select
from poplar_py.codegen.pairs import (
    Pair,
    choose,
    constant,
    fast_sum,
    product,
    two_sum,
)
from poplar_py.codegen.trig_f64 import circular
from poplar_py.types import f64, i64

__all__ = ["BINARY", "UNARY"]

# ln 2: the first part has 41 bits, so that its product with an exponent is exact
_LN2_PART = float.fromhex("0x1.62e42fefa3000p-1")
_LN2_REST = ("0x1.3de6af278ece6p-42", "0x1.f97b57a079a19p-103")
_LN2 = ("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56")
_INV_LN2 = ("0x1.71547652b82fep+0", "0x1.777d0ffda0d24p-56")
_INV_LN10 = ("0x1.bcb7b1526e50ep-2", "0x1.95355baaafad3p-57")
_TWO_THIRDS = ("0x1.5555555555555p-1", "0x1.5555555555555p-55")
_TWO_SQRT_PI = ("0x1.20dd750429b6dp+0", "0x1.1ae3a914fed80p-56")
_EXP = tuple(1.0 / math.factorial(k) for k in range(16, 2, -1))  # r^3 and up, |r| < 0.347
_LOG = tuple(2.0 / (2 * k + 1) for k in range(14, 1, -1))  # z^2 and up, z < 0.0295
_MINUS_THIRD = ("-0x1.5555555555555p-2", "-0x1.5555555555555p-56")
_ERF = tuple((-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(17, 1, -1))
"""x^4 and up of the series of erf, over z = x^2; its x^2 is a pair."""
# erfc(x) e^(x^2) (1 + 2 x) over t = (x - 2) / (x + 2), 0.4375 < x < 6 (used from 1 on); error 2e-20
_ERFC = (
    6.299516743991707e-08,
    1.2717356463390755e-07,
    -1.5810985669984984e-07,
    -7.962968831917996e-07,
    -7.546420511089522e-07,
    1.4745670235377966e-06,
    5.245157573609163e-06,
    3.722816978750092e-06,
    -1.3498137735160713e-05,
    -3.6426480964000065e-05,
    -1.5089454346246412e-06,
    0.00015103970877916785,
    0.00020636710802647218,
    -0.00045434088904286024,
    -0.0014568139395958989,
    0.0012713389697890192,
    0.008722653875413192,
    -0.00803401508256536,
    -0.05422000099203159,
    0.16405128003344446,
    -0.1660303976152894,
    -0.09276382658574601,
    1.2769783815525286,
)

# ---------------------------------------------------------------- powers


def _scale(value: Lanes, n: Lanes) -> Lanes:
    """value * 2^n for n in -2100..2046, in three steps: overflow and subnormals come out right."""
    third = n >> 2
    step = power_of_two(third)
    return value * step * step * step * power_of_two(n - third - third - third)


def _exp_parts(x: Pair) -> tuple[Lanes, Pair]:
    """(n, e^r - 1) with x = n ln 2 + r."""
    n = (x.hi * math.log2(math.e)).round()
    first = n.fma(-_LN2_PART, x.hi)
    rest = product(n, x.hi.const(float.fromhex(_LN2_REST[0])))
    r = two_sum(first, -rest.hi)
    r = fast_sum(r.hi, r.lo + (x.lo - rest.lo))
    return n.to_int(i64), _expm1_small(r)


def _expm1_small(r: Pair) -> Pair:
    """e^r - 1 for |r| < 0.35; error below 2^-60 of r."""
    square = product(r.hi, r.hi)
    cube = square.hi * r.hi
    tail = poly(r.hi, _EXP) * cube
    low = square.lo * 0.5 + (tail + r.lo.fma(r.hi, r.lo))
    start = fast_sum(r.hi, square.hi * 0.5)
    return fast_sum(start.hi, start.lo + low)


def _exp_pair(x: Pair) -> tuple[Lanes, Pair]:
    """(n, m) with e^x = 2^n m."""
    n, p = _exp_parts(x)
    one = fast_sum(x.hi.const(1.0), p.hi)
    return n, fast_sum(one.hi, one.lo + p.lo)


def _exp_of(x: Pair) -> Lanes:
    n, m = _exp_pair(x)
    return _scale(m.value, n)


def _clamped(x: Lanes, low: float, high: float) -> Lanes:
    return x.at_most(high).at_least(low)


def exp(x: Lanes) -> Lanes:
    return _exp_of(Pair.of(_clamped(x, -760.0, 720.0)))


def exp2(x: Lanes) -> Lanes:
    x = _clamped(x, -1090.0, 1030.0)
    n = x.round()
    p = _expm1_small(constant(x, _LN2) * (x - n))
    one = fast_sum(x.const(1.0), p.hi)
    return _scale(one.hi + (one.lo + p.lo), n.to_int(i64))


def _expm1_pair(x: Lanes) -> Pair:
    """e^x - 1 for -40 < x < 709."""
    n, p = _exp_parts(Pair.of(x))
    power = power_of_two(n)
    whole = two_sum(power, x.const(-1.0))
    return choose(n.equals(0), p, whole + Pair(p.hi * power, p.lo * power))


def expm1(x: Lanes) -> Lanes:
    value = _expm1_pair(_clamped(x, -40.0, 709.0)).value
    value = select(x > 700.0, exp(x), value)
    return select(x.abs() < 1e-17, x, value)


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + e^-x); below 0 as e^x / (1 + e^x)."""
    n, m = _exp_pair(Pair.of(_clamped(-x.abs(), -700.0, 0.0)))
    power = power_of_two(n)
    t = Pair(m.hi * power, m.lo * power)
    one = Pair.of(x.const(1.0))
    value = (choose(x < 0.0, t, one) / (one + t)).value
    return select(x < -700.0, exp(x), value)


def tanh(x: Lanes) -> Lanes:
    t = _expm1_pair((x.abs() * 2.0).at_most(80.0))
    value = (t / (t + 2.0)).value
    return select(x.abs() < 1e-9, x.abs(), value).copysign(x)


def _sinh_cosh(x: Lanes) -> tuple[Pair, Pair, Lanes]:
    """(sinh, cosh) of |x| < 40 as pairs; e^|x| / 2 of larger ones."""
    a = x.abs()
    t = _expm1_pair(a.at_most(40.0))
    inverse = t / (t + 1.0)
    n, m = _exp_pair(Pair.of(a.at_most(712.0)))
    large = _scale(m.value, n - 1)
    sine = (t + inverse).scaled(0.5)
    cosine = (t - inverse).scaled(0.5) + 1.0
    return sine, cosine, large


def sinh(x: Lanes) -> Lanes:
    sine, _, large = _sinh_cosh(x)
    value = select(x.abs() > 40.0, large, sine.value)
    return select(x.abs() < 1e-9, x.abs(), value).copysign(x)


def cosh(x: Lanes) -> Lanes:
    _, cosine, large = _sinh_cosh(x)
    return select(x.abs() > 40.0, large, cosine.value)


# ---------------------------------------------------------------- logarithms


def _log_pair(x: Pair) -> Pair:
    """log of a positive finite pair; error near 2^-65 of the result."""
    tiny = x.hi < 2.2250738585072014e-308
    scale = select(tiny, x.hi.const(2.0**54), x.hi.const(1.0))
    hi, lo = x.hi * scale, x.lo * scale
    bits = hi.bits(i64)
    exponent = (bits - 0x3FE6A09E667F3BCD) >> 52
    mantissa = (bits - (exponent << 52)).bits(f64)
    e = exponent.to_float(f64)
    e = select(tiny, e - 54.0, e)
    f = mantissa - 1.0
    s = Pair.of(f) / two_sum(f.const(2.0), f)
    z = s * s
    cube = s * z
    tail = poly(z.hi, _LOG) * z.hi
    odd = cube * (constant(f, _TWO_THIRDS) + tail)
    value = s.scaled(2.0) + odd
    rest = constant(f, _LN2_REST) * e
    total = two_sum(e * _LN2_PART, value.hi)
    total = fast_sum(total.hi, total.lo + value.lo) + rest
    r = lo / hi  # log(1 + r), to second order
    return total + Pair(r, r.fma(-hi, lo) / hi - r * r * 0.5)


def _log_edges(x: Lanes, value: Lanes) -> Lanes:
    """log at 0, below it and at infinity."""
    value = select(x.equals(0.0), x.const(-math.inf), value)
    value = select(x < 0.0, x.const(math.nan), value)
    return select(x.equals(math.inf), x, value)


def log(x: Lanes) -> Lanes:
    return _log_edges(x, _log_pair(Pair.of(x)).value)


def log2(x: Lanes) -> Lanes:
    return _log_edges(x, (_log_pair(Pair.of(x)) * constant(x, _INV_LN2)).value)


def log10(x: Lanes) -> Lanes:
    return _log_edges(x, (_log_pair(Pair.of(x)) * constant(x, _INV_LN10)).value)


def _log1p_pair(x: Pair) -> Pair:
    """log(1 + x) for x > -1."""
    one = two_sum(x.hi.const(1.0), x.hi)
    return _log_pair(fast_sum(one.hi, one.lo + x.lo))


def log1p(x: Lanes) -> Lanes:
    value = _log1p_pair(Pair.of(x)).value
    value = select(x.abs() < 1e-17, x, value)
    value = select(x.equals(-1.0), x.const(-math.inf), value)
    value = select(x < -1.0, x.const(math.nan), value)
    return select(x.equals(math.inf), x, value)


_LARGE = 2.0**30


def _log_twice(a: Lanes) -> Lanes:
    """log(2 a) of large a."""
    return (_log_pair(Pair.of(a)) + constant(a, _LN2)).value


def asinh(x: Lanes) -> Lanes:
    """log(1 + a + a^2 / (1 + sqrt(1 + a^2)))."""
    a = x.abs()
    b = a.at_most(_LARGE)
    square = product(b, b)
    root = (square + 1.0).sqrt()
    value = _log1p_pair(square / (root + 1.0) + b).value
    value = select(a > _LARGE, _log_twice(a), value)
    value = select(a < 1e-9, a, value)
    return select(a.equals(math.inf), a, value).copysign(x)


def acosh(x: Lanes) -> Lanes:
    """log(1 + t + sqrt(2 t + t^2)), t = x - 1."""
    t = two_sum(x.at_most(_LARGE), x.const(-1.0))
    root = (t * t + t.scaled(2.0)).sqrt()
    value = _log1p_pair(t + root).value
    value = select(x > _LARGE, _log_twice(x), value)
    value = select(x.equals(math.inf), x, value)
    value = select(x.equals(1.0), x.const(0.0), value)
    return select(x < 1.0, x.const(math.nan), value)


def atanh(x: Lanes) -> Lanes:
    """log(1 + 2 a / (1 - a)) / 2."""
    a = x.abs()
    ratio = Pair.of(a + a) / two_sum(a.const(1.0), -a)
    value = _log1p_pair(ratio).value * 0.5
    value = select(a < 1e-9, a, value)
    value = select(a.equals(1.0), a.const(math.inf), value)
    return select(a > 1.0, a.const(math.nan), value).copysign(x)


# ---------------------------------------------------------------- erf, pow


def erf(x: Lanes) -> Lanes:
    a = x.abs()
    z = product(a.at_most(1.0), a.at_most(1.0))
    series = constant(x, _MINUS_THIRD) + poly(z.hi, _ERF) * z.hi
    line = constant(x, _TWO_SQRT_PI) * x
    inner = (line + line * (series * z)).value
    b = _clamped(a, 0.4375, 6.0)
    t = (b - 2.0) / (b + 2.0)
    square = product(b, b)
    factor = poly(t, _ERFC) / (b + b + 1.0)
    outer = 1.0 - _exp_of(-square) * factor
    value = select(a < 1.0, inner, outer.copysign(x))
    return select(x.equals(0.0), x, value)


def pow_(x: Lanes, y: Lanes) -> Lanes:
    """x^y with IEEE's special cases."""
    a = x.abs()
    t = _log_pair(Pair.of(a)) * _clamped(y, -(2.0**70), 2.0**70)  # beyond it is 0, 1 or infinite
    zero = x.const(0.0)
    fits = t.hi.abs() < 800.0
    value = _exp_of(Pair(select(fits, t.hi, zero), select(fits, t.lo, zero)))
    edge = a.equals(0.0) | a.equals(math.inf)
    way = select(a.equals(0.0), -y, select(a.equals(math.inf), y, t.hi))
    limit = select(edge, zero, x.const(799.0))
    value = select(way > limit, x.const(math.inf), value)
    value = select(way < -limit, zero, value)
    return _pow_signs(x, y, value)


def _pow_signs(x: Lanes, y: Lanes, value: Lanes) -> Lanes:
    half = y * 0.5
    whole = y.floor().equals(y)
    odd = whole & half.floor().differs(half)
    negative = x.bits(i64) < 0
    value = select(odd & negative, -value, value)
    broken = (x < 0.0) & (x > -math.inf) & y.floor().differs(y)
    value = select(broken, x.const(math.nan), value)
    value = select(x.abs().equals(1.0) & y.abs().equals(math.inf), x.const(1.0), value)
    value = select(x.is_nan(), x, select(y.is_nan(), y, value))
    return select(y.equals(0.0) | x.equals(1.0), x.const(1.0), value)


def sin(x: Lanes) -> Lanes:
    return circular(x).sine


def cos(x: Lanes) -> Lanes:
    return circular(x).cosine


def tan(x: Lanes) -> Lanes:
    return circular(x).tangent


UNARY: dict[str, Callable[[Lanes], Lanes]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "erf": erf,
    "sigmoid": sigmoid,
}
BINARY: dict[str, Callable[[Lanes, Lanes], Lanes]] = {"pow": pow_, "atan2": atan2}
