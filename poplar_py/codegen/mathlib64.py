"""f64 kernels behind f32 functions: accurate to about 1e-13, so that one rounding to f32 remains.

Multiplications and additions are separate (no fma) except in argument reduction, where the exact
product matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from poplar_py.codegen.lanes import Lanes, poly, power_of_two, select
from poplar_py.types import f64, i64

__all__ = ["BINARY", "UNARY"]

# (e^r - 1 - r) / r^2, |r| < 0.3501; error 2e-18
_EXP = (
    2.0915442297780116e-09,
    2.5106274733573296e-08,
    2.75572718102198e-07,
    2.755725283351691e-06,
    2.4801587327007187e-05,
    0.00019841269876864356,
    0.0013888888888883327,
    0.008333333333325544,
    0.04166666666666667,
    0.1666666666666667,
    0.5,
)
# (2 atanh(s) - 2 s) / s^3 over s^2, s^2 < 0.0296; error 3e-16
_LOG = (
    0.1462395660821188,
    0.1533111258796017,
    0.1818290749767122,
    0.22222210881932927,
    0.28571428627528794,
    0.3999999999989607,
    0.666666666666667,
)
# (sin(x) / x - 1) / x^2 and (cos(x) - 1 + x^2 / 2) / x^4 over x^2, |x| < pi / 4; error 3e-14
_SIN = (
    -2.480514540674743e-08,
    2.7555985625200863e-06,
    -0.00019841266899437397,
    0.00833333333106116,
    -0.16666666666663857,
)
_COS = (
    2.070024946756277e-09,
    -2.755636590225902e-07,
    2.4801585198441217e-05,
    -0.0013888888887264425,
    0.04166666666666466,
)
# (atan(x) / x - 1) / x^2 over x^2, x < tan(pi / 8); error 2e-14
_ATAN = (
    -0.027229216205351358,
    0.051685983524229116,
    -0.06550845567353254,
    0.07681036852195926,
    -0.09090255330370971,
    0.11111089624183755,
    -0.14285713929887936,
    0.19999999997721254,
    -0.3333333333333092,
)

_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # high: 33 bits
_PIO2 = float.fromhex("0x1.921fb54442d18p+0")
_PIO2_LOW = float.fromhex("0x1.1a62633145c07p-54")
# 2^(16 q) mod 2 pi, as two f64 each, q = 1..6
_TWO_POWERS = tuple(
    (float.fromhex(a), float.fromhex(b))
    for a, b in (
        ("0x1.304999cb579e8p+1", "-0x1.e90aa2efac07ep-53"),
        ("0x1.cf9802b702942p+1", "0x1.b956a569e09d0p-55"),
        ("0x1.09f4683d25023p-3", "0x1.fee10ecf6f246p-59"),
        ("0x1.8f1a5c3d52d34p+1", "0x1.ade7e21ae7526p-55"),
        ("0x1.50146cdd56c8fp+2", "0x1.fcc374a30da1ap-55"),
        ("0x1.89a58c41dc40cp+1", "-0x1.27745096c7eeep-53"),
    )
)


def exp(x: Lanes) -> Lanes:
    """e^x for results within f32's range (clamped just outside it)."""
    x = x.at_most(200.0).at_least(-200.0)
    n = (x * math.log2(math.e)).round()
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = poly(r, _EXP, fused=False) * (r * r) + r
    return (p + 1.0) * power_of_two(n.to_int(i64))


def log(x: Lanes) -> Lanes:
    """log of a normal positive f64 or of any f32: 0, negative, infinite and NaN as usual."""
    bits = x.bits(i64)
    exponent = (bits - 0x3FE6A09E667F3BCD) >> 52
    f = (bits - (exponent << 52)).bits(f64) - 1.0
    e = _small_int(exponent)
    s = f / (f + 2.0)
    z = s * s
    value = poly(z, _LOG, fused=False) * (z * s) + s * 2.0
    value = e * _LN2_HIGH + (value + e * _LN2_LOW)
    value = select(x.equals(0.0), x.const(-math.inf), value)
    value = select(x < 0.0, x.const(math.nan), value)
    value = select(x.equals(math.inf), x, value)
    return select(x.is_nan(), x, value)


def _small_int(n: Lanes) -> Lanes:
    """An i64 of small size as f64, by adding 1.5 * 2^52 (AVX2 has no conversion)."""
    magic = 0x4338000000000000
    return (n + magic).bits(f64) - 6755399441055744.0


def _sinh(x: Lanes) -> Lanes:
    e = exp(x.abs())
    value = ((e - 1.0 / e) * 0.5).copysign(x)
    return select(x.abs() < 1e-4, x + x * x * x * (1.0 / 6.0), value)


def _cosh(x: Lanes) -> Lanes:
    e = exp(x.abs())
    return (e + 1.0 / e) * 0.5


def _log1p(x: Lanes) -> Lanes:
    small = x - x * x * 0.5 + x * x * x * (1.0 / 3.0)
    return select(x.abs() < 1e-5, small, log(x + 1.0))


def _log2(x: Lanes) -> Lanes:
    return log(x) * math.log2(math.e)


def _log10(x: Lanes) -> Lanes:
    return log(x) * math.log10(math.e)


def _asinh(x: Lanes) -> Lanes:
    a = x.abs()
    value = log(a + (a * a + 1.0).sqrt())
    value = select(a < 1e-3, a - a * a * a * (1.0 / 6.0), value)
    return select(x.is_nan(), x, value.copysign(x))


def _acosh(x: Lanes) -> Lanes:
    value = log(x + ((x - 1.0) * (x + 1.0)).sqrt())
    return select(x < 1.0, x.const(math.nan), value)


def _atanh(x: Lanes) -> Lanes:
    value = log((x + 1.0) / (1.0 - x)) * 0.5
    return select(x.abs() < 1e-3, x + x * x * x * (1.0 / 3.0), value)


# ---------------------------------------------------------------- circular functions


def _reduce(x: Lanes) -> tuple[Lanes, Lanes]:
    """(quadrant as i64, rest in -pi/4..pi/4) of any f32 value given as f64.

    Above 2^40 the power of two is first replaced by its remainder modulo 2 pi, in two parts.
    """
    bits = x.abs().bits(i64)
    exponent = (bits >> 52) - 1023
    step = select(exponent > 39, (exponent - 24) >> 4, exponent.const(0))
    shift = step << 4
    mantissa = (bits - (shift << 52)).bits(f64)
    high, low = x.const(1.0), x.const(0.0)
    for q, (a, b) in enumerate(_TWO_POWERS, 1):
        here = step.equals(q)
        high, low = select(here, x.const(a), high), select(here, x.const(b), low)
    product = mantissa * high
    rest = mantissa.fma(high, -product) + mantissa * low
    n = (product * (1.0 / _PIO2)).round()
    r = n.fma(-_PIO2, product)
    r = r + (rest - n * _PIO2_LOW)
    return n.to_int(i64), select(x.abs() < math.inf, r, x.const(math.nan))


def _sin_cos(r: Lanes) -> tuple[Lanes, Lanes]:
    z = r * r
    sine = poly(z, _SIN, fused=False) * (z * r) + r
    cosine = poly(z, _COS, fused=False) * (z * z) + (1.0 - z * 0.5)
    return sine, cosine


def _odd(n: Lanes) -> Lanes:
    return (n & 1).differs(0)


def _negate_if(cond: Lanes, value: Lanes) -> Lanes:
    return select(cond, -value, value)


def _sin(x: Lanes) -> Lanes:
    n, r = _reduce(x)
    sine, cosine = _sin_cos(r)
    value = _negate_if((n & 2).differs(0), select(_odd(n), cosine, sine))
    value = _negate_if(x < 0.0, value)
    return select(x.equals(0.0), x, value)


def _cos(x: Lanes) -> Lanes:
    n, r = _reduce(x)
    sine, cosine = _sin_cos(r)
    return _negate_if(((n + 1) & 2).differs(0), select(_odd(n), sine, cosine))


def _tan(x: Lanes) -> Lanes:
    n, r = _reduce(x)
    sine, cosine = _sin_cos(r)
    odd = _odd(n)
    value = select(odd, -cosine, sine) / select(odd, sine, cosine)
    value = _negate_if(x < 0.0, value)
    return select(x.equals(0.0), x, value)


_TAN_PI_8 = 0.41421356237309503


def _atan_positive(a: Lanes) -> Lanes:
    """atan of a >= 0 (also infinite)."""
    swap = a > 1.0
    t = select(swap, 1.0 / a, a)
    middle = t > _TAN_PI_8
    u = select(middle, (t - 1.0) / (t + 1.0), t)
    z = u * u
    value = poly(z, _ATAN, fused=False) * (z * u) + u
    value = select(middle, value + math.pi / 4, value)
    return select(swap, math.pi / 2 - value, value)


def _atan(x: Lanes) -> Lanes:
    return select(x.is_nan(), x, _atan_positive(x.abs()).copysign(x))


def _atan2(y: Lanes, x: Lanes) -> Lanes:
    a, b = y.abs(), x.abs()
    same = _and(a.equals(b), _either(a > 0.0, a.equals(math.inf)))
    ratio = select(same, a.const(1.0), a / b)
    ratio = select(_and(a.equals(0.0), b.equals(0.0)), a.const(0.0), ratio)
    value = _atan_positive(ratio)
    negative = x.bits(i64) < 0
    value = select(negative, math.pi - value, value).copysign(y)
    return select(_either(x.is_nan(), y.is_nan()), x + y, value)


def _and(a: Lanes, b: Lanes) -> Lanes:
    return a & b


def _either(a: Lanes, b: Lanes) -> Lanes:
    return a | b


def _asin(x: Lanes) -> Lanes:
    c = ((1.0 - x) * (x + 1.0)).sqrt()
    value = _atan_positive(x.abs() / c).copysign(x)
    return select(c.is_nan(), c, value)


def _acos(x: Lanes) -> Lanes:
    c = ((1.0 - x) * (x + 1.0)).sqrt()
    value = _atan_positive(c / x.abs())
    value = select(x.equals(0.0), x.const(math.pi / 2), value)
    value = select(x < 0.0, math.pi - value, value)
    return select(c.is_nan(), c, value)


def _pow(x: Lanes, y: Lanes) -> Lanes:
    """x^y with IEEE's special cases. Both are f32 values, so products keep enough bits."""
    t = log(x.abs()) * y
    value = exp(t)
    value = select(t > 199.0, x.const(math.inf), value)
    value = select(t < -199.0, x.const(0.0), value)
    half = y * 0.5
    whole = y.floor().equals(y)
    odd = _and(whole, half.floor().differs(half))
    negative = x.bits(i64) < 0
    value = _negate_if(_and(odd, negative), value)
    finite_base = _and(x < 0.0, x > -math.inf)
    broken = _and(finite_base, y.floor().differs(y))
    value = select(broken, x.const(math.nan), value)
    unit = _and(x.abs().equals(1.0), y.abs().equals(math.inf))
    value = select(unit, x.const(1.0), value)
    value = select(_either(x.is_nan(), y.is_nan()), x + y, value)
    return select(_either(y.equals(0.0), x.equals(1.0)), x.const(1.0), value)


UNARY: dict[str, Callable[[Lanes], Lanes]] = {
    "sinh": _sinh,
    "cosh": _cosh,
    "log1p": _log1p,
    "log2": _log2,
    "log10": _log10,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "atan": _atan,
    "asin": _asin,
    "acos": _acos,
}
BINARY: dict[str, Callable[[Lanes, Lanes], Lanes]] = {"pow": _pow, "atan2": _atan2}
