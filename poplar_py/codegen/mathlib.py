"""Elementary functions as LLVM text: the same operations for a scalar and for every lane."""

from __future__ import annotations

from poplar_py.codegen.emit_core import Emitter, const_text, llvm_type
from poplar_py.codelets.codelet_ir import Ty
from poplar_py.types import f32, i16, i32

__all__ = ["bf16_to_f32", "binary", "f32_to_bf16", "float_mod", "int_power", "unary"]


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


def unary(e: Emitter, op: str, x: str, ty: Ty) -> str:
    return e.intrinsic(op, llvm_type(ty), x)


def binary(e: Emitter, op: str, a: str, b: str, ty: Ty) -> str:
    return e.intrinsic(op, llvm_type(ty), a, b)


def int_power(e: Emitter, a: str, b: str, ty: Ty) -> str:
    raise AssertionError("int power")
