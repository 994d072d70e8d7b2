"""Elementary functions as LLVM text: the same operations for a scalar and for every lane.

f32: exp, exp2, log, tanh, erf, sigmoid, rsqrt in f32 with fma (at most 3 ulp); the other functions
compute in f64 and round once at the end. f64: `math_f64`, at most 1 ulp. The polynomials are
Chebyshev fits made for these ranges. Fitted ranges and errors stand beside the coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from poplar_py.codegen import math_f64, mathlib64
from poplar_py.codegen.emit_core import Emitter, const_text, llvm_type
from poplar_py.codegen.lanes import Lanes, poly, select
from poplar_py.codelets.codelet_ir import Ty
from poplar_py.types import f32, f64, i16, i32

__all__ = [
    "bf16_to_f32",
    "binary",
    "f32_to_bf16",
    "f64_to_f32_odd",
    "float_mod",
    "int_power",
    "unary",
]


def bf16_to_f32(e: Emitter, value: str, lanes: int) -> str:
    wide, narrow = llvm_type(Ty(i32, lanes)), llvm_type(Ty(i16, lanes))
    bits = e.op(f"zext {narrow} {value} to {wide}")
    bits = e.op(f"shl {wide} {bits}, {const_text(16, Ty(i32, lanes))}")
    return e.op(f"bitcast {wide} {bits} to {llvm_type(Ty(f32, lanes))}")


def f32_to_bf16(e: Emitter, value: str, lanes: int) -> str:
    """Round to nearest even; NaN becomes a quiet NaN."""
    ty = Ty(i32, lanes)
    text, narrow, flt = llvm_type(ty), llvm_type(Ty(i16, lanes)), llvm_type(Ty(f32, lanes))
    mask = "i1" if lanes == 1 else f"<{lanes} x i1>"
    bits = e.op(f"bitcast {flt} {value} to {text}")
    high = e.op(f"lshr {text} {bits}, {const_text(16, ty)}")
    odd = e.op(f"and {text} {high}, {const_text(1, ty)}")
    bias = e.op(f"add {text} {odd}, {const_text(0x7FFF, ty)}")
    rounded = e.op(f"add {text} {bits}, {bias}")
    rounded = e.op(f"lshr {text} {rounded}, {const_text(16, ty)}")
    quiet = e.op(f"or {text} {high}, {const_text(0x40, ty)}")
    nan = e.op(f"fcmp uno {flt} {value}, {value}")
    result = e.op(f"select {mask} {nan}, {text} {quiet}, {text} {rounded}")
    return e.op(f"trunc {text} {result} to {narrow}")


def f64_to_f32_odd(e: Emitter, value: str, lanes: int) -> str:
    """Round to odd: inexact results get their last bit set, so that a second rounding is exact."""
    x = Lanes(e, value, Ty(f64, lanes))
    near = x.to_float(f32)
    back = near.to_float(f64)
    bits = near.bits(i32)
    toward_zero = select(back.abs() > x.abs(), bits - 1, bits)
    return select(back.differs(x), toward_zero | 1, bits).bits(f32).text


def float_mod(e: Emitter, a: str, b: str, ty: Ty) -> str:
    """Python's %: the sign of the divisor."""
    text = llvm_type(ty)
    mask = "i1" if ty.lanes == 1 else f"<{ty.lanes} x i1>"
    rest = e.op(f"frem {text} {a}, {b}")
    zero = const_text(0.0, ty)
    nonzero = e.op(f"fcmp une {text} {rest}, {zero}")
    rest_negative = e.op(f"fcmp olt {text} {rest}, {zero}")
    divisor_negative = e.op(f"fcmp olt {text} {b}, {zero}")
    differ = e.op(f"xor {mask} {rest_negative}, {divisor_negative}")
    fix = e.op(f"and {mask} {nonzero}, {differ}")
    moved = e.op(f"fadd {text} {rest}, {b}")
    return e.op(f"select {mask} {fix}, {text} {moved}, {text} {rest}")


def int_power(e: Emitter, a: str, b: str, ty: Ty) -> str:
    """a ** b on ints by squaring, wrapping; a negative power gives 0 unless the base is 1 or -1."""
    base, power = Lanes(e, a, ty), Lanes(e, b, ty)
    value, square, rest = base.const(1), base, power
    for k in range(min(ty.dtype.bits, 64)):
        value = select((rest & 1).differs(0), value * square, value)
        if k < ty.dtype.bits - 1:
            square, rest = square * square, rest >> 1
    if ty.dtype.kind != "i":
        return value.text
    odd = (power & 1).differs(0)
    of_minus = select(odd, base, base.const(1))
    inverse = select(base.equals(-1), of_minus, select(base.equals(1), base, base.const(0)))
    return select(power < 0, inverse, value).text


# ---------------------------------------------------------------- f32

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the high part has 9 bits: n * high is exact
# (e^r - 1 - r) / r^2, |r| < 0.3501; error 1.5e-9
_EXP = (
    1.989198131397769e-4,
    1.3934541928270264e-3,
    8.333310024225292e-3,
    4.166645680967788e-2,
    0.16666666682534356,
    0.5000000014286223,
)
# (2^r - 1 - r ln 2) / r^2, |r| < 0.505; error 7e-10
_EXP2 = (
    1.5291717629198683e-5,
    1.5454162087917222e-4,
    1.3333520851226755e-3,
    9.618080665269781e-3,
    5.5504108717664896e-2,
    0.24022650764548661,
)
# (log(1 + f) - f + f^2 / 2) / f^3, sqrt(1/2) < 1 + f < sqrt(2); error 4.6e-9
_LOG = (
    -0.062012550710320705,
    0.10534191596830812,
    -0.10647998294930272,
    0.1103744815368858,
    -0.12450500309539271,
    0.14286530641153808,
    -0.16668010846109002,
    0.2000001011074413,
    -0.249999901874816,
    0.333333332806775,
)
# erf(x) / x - 1 over x^2, |x| < 0.925; error 4e-10
_ERF = (
    8.36726747903113e-5,
    -8.142244260061798e-4,
    5.201049268950192e-3,
    -2.6859425606078503e-2,
    0.11283696452445899,
    -0.3761263383704432,
    0.128379166653634,
)
# log(erfc(x)), 0.92 < x < 3.93; error 1.4e-8
_ERFC = (
    1.6669576011262248e-6,
    -4.661014216054057e-5,
    6.011353445217893e-4,
    -4.778304409016307e-3,
    2.646964664650744e-2,
    -0.11015701596934499,
    -0.6317535793156802,
    -1.130270270564733,
    3.278091158620499e-4,
)


def _power_of_two(n: Lanes) -> Lanes:
    """2^n for ints -126..127, as f32."""
    return ((n + 127) << 23).bits(f32)


def _scale(value: Lanes, n: Lanes) -> Lanes:
    """value * 2^n for n in -252..254, in two steps: overflow and subnormals come out right."""
    half = n >> 1
    return value * _power_of_two(half) * _power_of_two(n - half)


def _exp_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """(n, e^r - 1) with x = n ln 2 + r; x already clamped."""
    n = (x * _LOG2E).round()
    r = n.fma(-_LN2_HIGH, x)
    r = n.fma(-_LN2_LOW, r)
    return n, poly(r, _EXP).fma(r * r, r)


def exp(x: Lanes) -> Lanes:
    """e^x, at most 1.5 ulp."""
    n, p = _exp_parts(x.at_most(89.0).at_least(-104.0))
    return _scale(p + 1.0, n.to_int(i32))


def exp2(x: Lanes) -> Lanes:
    x = x.at_most(129.0).at_least(-151.0)
    n = x.round()
    r = x - n
    p = poly(r, _EXP2).fma(r * r, r * math.log(2.0))
    return _scale(p + 1.0, n.to_int(i32))


def expm1(x: Lanes) -> Lanes:
    """e^x - 1, also near 0."""
    n, p = _exp_parts(x.at_most(89.0).at_least(-18.0))
    half = _power_of_two(n.to_int(i32) - 1)
    value = half.fma(p, half - 0.5) * 2.0
    return select(x.abs() < 1e-9, x, value)


def _log_parts(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(e, f, y): x = 2^e (1 + f) and log(1 + f) = f + y; x positive and finite."""
    tiny = x < 1.1754943508222875e-38
    scaled = select(tiny, x * 8388608.0, x)
    bits = scaled.bits(i32)
    exponent = (bits - 0x3F3504F3) >> 23
    f = (bits - (exponent << 23)).bits(f32) - 1.0
    e = exponent.to_float(f32)
    e = select(tiny, e - 23.0, e)
    return e, f, poly(f, _LOG).fma(f, -0.5) * (f * f)


def _log_edges(x: Lanes, value: Lanes) -> Lanes:
    """log at 0, below it, at infinity and NaN."""
    value = select(x.equals(0.0), x.const(-math.inf), value)
    value = select(x < 0.0, x.const(math.nan), value)
    infinite = x.equals(math.inf)
    infinite_or_nan = Lanes(x.e, x.e.op(_or(infinite, x.is_nan())), infinite.ty)
    return select(infinite_or_nan, x + x, value)


def _or(a: Lanes, b: Lanes) -> str:
    return f"or {llvm_type(a.ty)} {a.text}, {b.text}"


def log(x: Lanes) -> Lanes:
    """Natural logarithm, at most 1.5 ulp."""
    e, f, y = _log_parts(x)
    value = e.fma(_LN2_HIGH, f + e.fma(_LN2_LOW, y))
    return _log_edges(x, value)


def tanh(x: Lanes) -> Lanes:
    """tanh, at most 2 ulp: by expm1(2x)."""
    a = x.abs().at_most(10.0)
    t = expm1(a * 2.0)
    value = t / (t + 2.0)
    return select(x.is_nan(), x, value.copysign(x))


def sigmoid(x: Lanes) -> Lanes:
    t = exp(-x.abs())
    top = select(x < 0.0, t, x.const(1.0))
    return top / (t + 1.0)


def erf(x: Lanes) -> Lanes:
    """erf, at most 1.5 ulp."""
    a = x.abs()
    inner = poly(x * x, _ERF).fma(x, x)
    outer = 1.0 - exp(poly(a.at_most(3.93), _ERFC))
    value = select(a < 0.921875, inner, outer.copysign(x))
    return select(x.is_nan(), x, value)


def rsqrt(x: Lanes) -> Lanes:
    return 1.0 / x.sqrt()


_F32: dict[str, Callable[[Lanes], Lanes]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "erf": erf,
}


def unary(e: Emitter, op: str, x: str, ty: Ty) -> str:
    """A function of one f32 or f64 value (scalar or lanes)."""
    value = Lanes(e, x, ty)
    if op == "rsqrt":
        return rsqrt(value).text
    if ty.dtype is f32:
        if op in _F32:
            return _F32[op](value).text
        return mathlib64.UNARY[op](value.to_float(f64)).to_float(f32).text
    return select(value.is_nan(), value, math_f64.UNARY[op](value)).text


def binary(e: Emitter, op: str, a: str, b: str, ty: Ty) -> str:
    """pow and atan2."""
    if ty.dtype is f32:
        x, y = Lanes(e, a, ty).to_float(f64), Lanes(e, b, ty).to_float(f64)
        return mathlib64.BINARY[op](x, y).to_float(f32).text
    return math_f64.BINARY[op](Lanes(e, a, ty), Lanes(e, b, ty)).text
