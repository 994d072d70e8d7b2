"""sin, cos and tan of any f64, by Payne and Hanek's reduction.

x = m 2^(e - 52) times 2 / pi modulo 4 needs only 192 bits of 2 / pi: those before would give
multiples of 4, those after less than 2^-137. The products are exact integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poplar_py.codegen.emit_core import llvm_type
from poplar_py.codegen.lanes import Lanes, poly, select
from poplar_py.codegen.pairs import Pair, choose, constant, fast_sum
from poplar_py.types import DTYPES, f64, i64

__all__ = ["Circular", "circular"]

_PI_2 = ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54")
_SIN = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(10, 0, -1))  # |r| < pi / 4
_COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(10, 1, -1))
_TWO_OVER_PI = (
    0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D,
)  # fmt: skip
"""The binary digits of 2 / pi. The table in the code starts with 64 zeros."""
_TABLE = "@two_over_pi"


@dataclass(frozen=True, slots=True)
class Circular:
    """Results of one reduction; what is not used is not kept by the compiler."""

    sine: Lanes
    cosine: Lanes
    tangent: Lanes


def circular(x: Lanes) -> Circular:
    n, r = _reduced(x)
    s, c = _sine(r), _cosine(r)
    odd = (n & 1).differs(0)
    minus_sine = (n & 2).differs(0)
    minus_cosine = ((n + 1) & 2).differs(0)
    sine = choose(odd, c, s).value
    cosine = choose(odd, s, c).value
    tangent = (choose(odd, -c, s) / choose(odd, s, c)).value
    sine = _signed(x, select(minus_sine, -sine, sine))
    cosine = select(minus_cosine, -cosine, cosine)
    broken = x.abs() < math.inf
    nan = x.const(math.nan)
    return Circular(
        select(broken, sine, nan),
        select(broken, cosine, nan),
        select(broken, _signed(x, tangent), nan),
    )


def _signed(x: Lanes, value: Lanes) -> Lanes:
    """An odd function was taken of |x|."""
    value = select(x < 0.0, -value, value)
    return select(x.abs() < 1e-9, x, value)


def _sine(r: Pair) -> Pair:
    z = r.hi * r.hi
    tail = poly(z, _SIN) * (z * r.hi) + r.lo * (1.0 - z * 0.5)
    return fast_sum(r.hi, tail)


def _cosine(r: Pair) -> Pair:
    z = r.hi * r.hi
    lost = r.hi.fma(r.hi, -z)  # of the square
    half = z * 0.5
    one = fast_sum(z.const(1.0), -half)
    tail = poly(z, _COS) * (z * z) - (r.hi * r.lo + lost * 0.5)
    return fast_sum(one.hi, one.lo + tail)


def _reduced(x: Lanes) -> tuple[Lanes, Pair]:
    """(quadrant as i64, rest in -pi/4..pi/4) of |x|."""
    a = x.abs()
    bits = a.bits(i64)
    e = (bits >> 52) - 1023
    e = select(e < -1, e.const(-1), select(e > 1023, e.const(1023), e))
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    w = _window(e + 10)
    low = m * w[2]
    middle, carry = m * w[1], _high(m, w[2])
    p1 = middle + carry
    over = _bit(_below(p1, middle))
    p0 = m * w[0] + _high(m, w[1]) + over
    quarter = p0 + (1 << 61)
    n = _shifted_right(quarter, 62)
    first = (p0 << 2) | _shifted_right(p1, 62)
    second = (p1 << 2) | _shifted_right(low, 62)
    head = (first >> 11) << 11
    start = fast_sum(head.to_float(f64) * 2.0**-64, (first - head).to_float(f64) * 2.0**-64)
    end = _shifted_right(second, 11).to_float(f64) * 2.0**-117
    fraction = fast_sum(start.hi, start.lo + end)
    r = fraction * constant(a, _PI_2)
    small = a < math.pi / 4
    return select(small, n.const(0), n), choose(small, Pair.of(a), r)


def _window(at: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """192 bits of the table from bit `at` on, as three words."""
    word, shift = at >> 6, at & 63
    words = [_loaded(word + k) for k in range(4)]
    return tuple(_joined(words[k], words[k + 1], shift) for k in range(3))  # type: ignore[return-value]


def _loaded(index: Lanes) -> Lanes:
    """Table words, lane by lane."""
    e, ty = index.e, index.ty
    values = ", ".join(f"i64 {w - (1 << 64) if w >> 63 else w}" for w in (0, *_TWO_OVER_PI))
    size = len(_TWO_OVER_PI) + 1
    e.declares.add(f"{_TABLE} = private unnamed_addr constant [{size} x i64] [{values}]")
    if ty.lanes == 1:
        return Lanes(e, _load(index, index.text), ty)
    vector = llvm_type(ty)
    result = "poison"
    for lane in range(ty.lanes):
        part = e.op(f"extractelement {vector} {index.text}, i32 {lane}")
        value = _load(index, part)
        result = e.op(f"insertelement {vector} {result}, i64 {value}, i32 {lane}")
    return Lanes(e, result, ty)


def _load(index: Lanes, at: str) -> str:
    pointer = index.e.op(f"getelementptr i64, ptr {_TABLE}, i64 {at}")
    return index.e.op(f"load i64, ptr {pointer}, align 8")


def _joined(a: Lanes, b: Lanes, shift: Lanes) -> Lanes:
    """The upper word of (a, b) shifted left by 0 to 63."""
    value = a.e.intrinsic("fshl", llvm_type(a.ty), a.text, b.text, shift.text)
    return Lanes(a.e, value, a.ty)


def _high(a: Lanes, b: Lanes) -> Lanes:
    """The upper half of the unsigned product."""
    e, ty = a.e, a.ty
    narrow = llvm_type(ty)
    wide = "i128" if ty.lanes == 1 else f"<{ty.lanes} x i128>"
    count = "64" if ty.lanes == 1 else "splat (i128 64)"
    x, y = (e.op(f"zext {narrow} {v.text} to {wide}") for v in (a, b))
    top = e.op(f"lshr {wide} {e.op(f'mul {wide} {x}, {y}')}, {count}")
    return Lanes(e, e.op(f"trunc {wide} {top} to {narrow}"), ty)


def _shifted_right(a: Lanes, count: int) -> Lanes:
    """Without the sign."""
    text = f"lshr {llvm_type(a.ty)} {a.text}, {a.const(count).text}"
    return Lanes(a.e, a.e.op(text), a.ty)


def _below(a: Lanes, b: Lanes) -> Lanes:
    """a < b without signs."""
    sign = -(1 << 63)
    return (a ^ sign) < (b ^ sign)


def _bit(cond: Lanes) -> Lanes:
    ty = type(cond.ty)(DTYPES["i64"], cond.ty.lanes)
    value = cond.e.op(f"zext {llvm_type(cond.ty)} {cond.text} to {llvm_type(ty)}")
    return Lanes(cond.e, value, ty)
