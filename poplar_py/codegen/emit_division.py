"""Division of ints to LLVM text: checked where the code is, and never a trap of the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.codegen.emit_core import const_text, llvm_type, scalar_type
from poplar_py.codelets.codelet_ir import Expr, Ty

if TYPE_CHECKING:
    from poplar_py.codegen.emit import Kernel

__all__ = ["divide", "int_division"]


def int_division(k: Kernel, expr: Expr, a: str, b: str) -> str:
    """quot, rem (truncating), floordiv, mod (as Python). Never traps."""
    ty = expr.ty
    text, signed = llvm_type(ty), ty.dtype.kind == "i"
    known = expr.args[1].op == "const" and int(expr.args[1].attr[0]) not in (0, -1)
    if k.checked and not known and ty.lanes == 1:
        _check_division(k, text, signed, ty, a, b)
    return divide(k, expr.op, a, b, ty, known)


def _check_division(k: Kernel, text: str, signed: bool, ty: Ty, a: str, b: str) -> None:
    e = k.e
    wide = _to_i64(k, a, ty)
    k.fail_if(e.op(f"icmp eq {text} {b}, 0"), 2, -1, wide, "0")
    if signed:
        lowest = -(1 << ty.dtype.bits - 1)
        least = e.op(f"icmp eq {text} {a}, {lowest}")
        minus = e.op(f"icmp eq {text} {b}, -1")
        k.fail_if(e.op(f"and i1 {least}, {minus}"), 3, -1, wide, "-1")


def _to_i64(k: Kernel, value: str, ty: Ty) -> str:
    if ty.dtype.size == 8:
        return value
    extend = "sext" if ty.dtype.kind == "i" else "zext"
    return k.e.op(f"{extend} {scalar_type(ty.dtype)} {value} to i64")


def divide(k: Kernel, op: str, a: str, b: str, ty: Ty, known: bool) -> str:
    """Division whose divisor 0 counts as 1, and INT_MIN // -1 wraps."""
    e, text, signed = k.e, llvm_type(ty), ty.dtype.kind == "i"
    mask = f"<{ty.lanes} x i1>" if ty.lanes > 1 else "i1"
    zero, one = const_text(0, ty), const_text(1, ty)
    safe, minus = b, ""
    if not known:
        bad = e.op(f"icmp eq {text} {b}, {zero}")
        if signed:
            minus = e.op(f"icmp eq {text} {b}, {const_text(-1, ty)}")
            bad = e.op(f"or {mask} {bad}, {minus}")
        safe = e.op(f"select {mask} {bad}, {text} {one}, {text} {b}")
    quotient = e.op(f"{'sdiv' if signed else 'udiv'} {text} {a}, {safe}")
    if minus:
        negated = e.op(f"sub {text} {zero}, {a}")
        quotient = e.op(f"select {mask} {minus}, {text} {negated}, {text} {quotient}")
    if op == "quot":
        return quotient
    divisor = e.op(f"select {mask} {minus}, {text} {b}, {text} {safe}") if minus else safe
    product = e.op(f"mul {text} {quotient}, {divisor}")
    rest = e.op(f"sub {text} {a}, {product}")
    if op == "rem":
        return rest
    other_sign = e.op(f"xor {text} {rest}, {divisor}")
    negative = e.op(f"icmp slt {text} {other_sign}, {zero}")
    nonzero = e.op(f"icmp ne {text} {rest}, {zero}")
    fix = e.op(f"and {mask} {negative}, {nonzero}")
    if op == "floordiv":
        less = e.op(f"sub {text} {quotient}, {one}")
        return e.op(f"select {mask} {fix}, {text} {less}, {text} {quotient}")
    more = e.op(f"add {text} {rest}, {divisor}")
    return e.op(f"select {mask} {fix}, {text} {more}, {text} {rest}")
