"""Element types below a byte and 8-bit floats: stored in bytes, converted by arithmetic.

int4, uint4, int2 and uint2 hold their number in an i8 or u8. The float types hold their bits in a
u8: reading looks up a table, writing rounds to nearest even with integer arithmetic on f32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.proto import TAGS
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import tensor
from poplar_py.types import DType, bool_, f32, i8, i32, u8, u32

__all__ = ["INT_RANGES", "convert", "decode", "encode"]

INT_RANGES = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


@dataclass(frozen=True)
class _Format:
    mantissa: int
    bias: int
    largest: int  # code of the largest finite value
    infinity: int | None  # code of infinity; None: NaN stands for it
    nan: int
    zero_signed: bool = True


_FORMATS = {
    "float8_e4m3fn": _Format(3, 7, 0x7E, None, 0x7F),
    "float8_e4m3fnuz": _Format(3, 8, 0x7F, None, 0x80, False),
    "float8_e5m2": _Format(2, 15, 0x7B, 0x7C, 0x7F),
    "float8_e5m2fnuz": _Format(2, 16, 0x7F, None, 0x80, False),
    "float4_e2m1fn": _Format(1, 1, 0x7, None, 0x8),
}


def convert(
    b: Builder, x: Val, dtype: DType, tag: str, saturate: bool, round_mode: str = "up"
) -> Val:
    """ONNX Cast between any two numeric element types."""
    if x.tag == tag and x.dtype is dtype:
        return x
    if x.tag:
        x = decode(b, x)
    if not tag:
        return b.cast(x, dtype)
    return encode(b, x, tag, saturate, round_mode)


def decode(b: Builder, x: Val) -> Val:
    """The numbers a stored narrow tensor stands for: f32, or its bytes for small integers."""
    if x.tag in INT_RANGES:
        return _retag(b, x, "")
    table = np.arange(256, dtype=np.uint8)
    if x.tag == "float4_e2m1fn":
        table = table & np.uint8(15)
    numbers = b.const(table.view(TAGS[x.tag]).astype(np.float32))
    return b.gather(numbers, b.emit(ew.Cast, _retag(b, x, ""), dtype=i32), 0)


def encode(b: Builder, x: Val, tag: str, saturate: bool = True, round_mode: str = "up") -> Val:
    """Store numbers as a narrow type."""
    if tag in INT_RANGES:
        return _encode_integer(b, x, tag)
    wide = b.cast(x, f32)
    if tag == "float8_e8m0fnu":
        return _retag(b, _encode_exponent(b, wide, saturate, round_mode), tag)
    return _retag(b, _encode_float(b, wide, _FORMATS[tag], tag, saturate), tag)


def _retag(b: Builder, x: Val, tag: str) -> Val:
    return Val(b, x.type, x.value, x.const, x.pure, x.deps, tag, x.name)


def _encode_integer(b: Builder, x: Val, tag: str) -> Val:
    low, high = INT_RANGES[tag]
    storage = u8 if low == 0 else i8
    if x.dtype is bool_:
        return _retag(b, b.cast(x, storage), tag)
    number = b.cast(x, i32)  # truncates; then the low bits stay
    if low == 0:
        number = b.emit(ew.BitwiseAnd, number, b.const(high, i32))
    else:
        unused = b.const(32 - (high - low).bit_length(), i32)
        number = b.emit(ew.ShiftRight, b.emit(ew.ShiftLeft, number, unused), unused)
    return _retag(b, b.cast(number, storage), tag)


def _encode_float(b: Builder, x: Val, form: _Format, tag: str, saturate: bool) -> Val:
    def number(value: int) -> Val:
        return b.const(value, u32)

    bits = b.emit(tensor.Bitcast, x, dtype=u32)
    size = b.emit(ew.BitwiseAnd, bits, number(0x7FFFFFFF))
    shift = 23 - form.mantissa
    odd = b.emit(ew.BitwiseAnd, b.emit(ew.ShiftRight, size, number(shift)), number(1))
    rounded = b.emit(ew.ShiftRight, size + number((1 << (shift - 1)) - 1) + odd, number(shift))
    normal = rounded - number((127 - form.bias) << form.mantissa)
    scale = 2.0 ** (form.bias - 1 + form.mantissa)
    magnitude = b.emit(ew.Abs, x)
    tiny = b.cast(b.emit(ew.Round, b.minimum(magnitude * scale, 1024.0)), u32)
    code = b.select(b.less(magnitude, 2.0 ** (1 - form.bias)), tiny, normal)
    is_inf = b.equal(size, number(0x7F800000))
    above = b.emit(ew.Greater, code, number(form.largest))
    over = b.emit(ew.Or, above, is_inf)
    four = tag == "float4_e2m1fn"
    limit = form.largest
    if not saturate and not four:
        limit = form.nan if form.infinity is None else form.infinity
    code = b.select(over, number(limit), code)
    sign_bit = 8 if four else 128
    sign = b.select(b.less(b.emit(tensor.Bitcast, x, dtype=i32), 0), number(sign_bit), number(0))
    if not form.zero_signed:
        keep = b.emit(ew.And, b.negate(b.equal(code, number(0))), b.less(code, number(128)))
        sign = b.select(keep, sign, number(0))
    code = b.emit(ew.BitwiseOr, code, sign)
    nan = number(form.nan)
    if form.nan == 0x7F:
        nan = b.emit(ew.BitwiseOr, nan, sign)
    return b.cast(b.select(b.emit(ew.IsNan, x), nan, code), u8)


def _encode_exponent(b: Builder, x: Val, saturate: bool, mode: str) -> Val:
    """float8_e8m0: the exponent of |x|, rounded up, down or to nearest."""
    bits = b.emit(ew.BitwiseAnd, b.emit(tensor.Bitcast, x, dtype=u32), b.const(0x7FFFFFFF, u32))
    add = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}.get(mode, 0x7FFFFF)
    code = b.emit(ew.ShiftRight, bits + b.const(add, u32), b.const(23, u32))
    over = b.emit(ew.Greater, code, b.const(254, u32))
    code = b.select(over, b.const(254 if saturate else 255, u32), code)
    return b.cast(b.select(b.emit(ew.IsNan, x), b.const(255, u32), code), u8)
