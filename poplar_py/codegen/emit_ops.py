"""Arithmetic, conversions and lanes of codelet expressions to LLVM text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.codegen import mathlib
from poplar_py.codegen.emit_core import const_text, llvm_type, mangle, scalar_type
from poplar_py.codegen.lanes import Lanes
from poplar_py.codelets.codelet_ir import BINARY, COMPARE, UNARY, Expr, Ty
from poplar_py.types import bf16, bool_, f16, f32, f64, i32

if TYPE_CHECKING:
    from poplar_py.codegen.emit import Kernel

from poplar_py.codegen.emit_expr import HANDLERS, emit_expr

__all__ = ["binary_op", "convert", "shuffle"]


def _cast(k: Kernel, e: Expr) -> str:
    return convert(k, emit_expr(k, e.args[0]), e.args[0].ty, e.ty)


def convert(k: Kernel, value: str, src: Ty, dst: Ty) -> str:
    """Numeric conversion, lane by lane."""
    a, b, s, d = src.dtype, dst.dtype, llvm_type(src), llvm_type(dst)
    if a is bf16:
        return convert(k, mathlib.bf16_to_f32(k.e, value, src.lanes), Ty(f32, src.lanes), dst)
    if a is b:
        return value
    if b is bf16 or (b is f16 and a is f64):
        return _narrow(k, value, src, dst)
    if b is bool_:
        if a.is_float:
            return k.e.op(f"fcmp une {s} {value}, {const_text(0, src)}")
        return k.e.op(f"icmp ne {s} {value}, {const_text(0, src)}")
    if a is bool_:
        return k.e.op(f"{'uitofp' if b.is_float else 'zext'} {s} {value} to {d}")
    if a.is_float and b.is_float:
        return k.e.op(f"{'fpext' if b.size > a.size else 'fptrunc'} {s} {value} to {d}")
    if a is f32 and src.lanes > 1 and (b.size < 4 or b is i32):
        return Lanes(k.e, value, src).saturated(b).text
    if a.is_float:
        sat = "fptosi.sat" if b.kind == "i" else "fptoui.sat"
        return k.e.call(d, f"llvm.{sat}.{mangle(d)}.{mangle(s)}", f"{s} {value}")
    if b is f16:
        # exact below 2^24, infinite above 65504: the step over f32 rounds once
        wide = Ty(f32, src.lanes)
        return convert(k, convert(k, value, src, wide), wide, dst)
    if b.is_float:
        return k.e.op(f"{'sitofp' if a.kind == 'i' else 'uitofp'} {s} {value} to {d}")
    if a.size == b.size:
        return value
    if a.size > b.size:
        return k.e.op(f"trunc {s} {value} to {d}")
    return k.e.op(f"{'sext' if a.kind == 'i' else 'zext'} {s} {value} to {d}")


def _narrow(k: Kernel, value: str, src: Ty, dst: Ty) -> str:
    """To bf16, or f64 to f16: one rounding, by an odd step over f32."""
    if src.dtype.is_integer or src.dtype is bool_:
        value, src = convert(k, value, src, Ty(f64, src.lanes)), Ty(f64, src.lanes)
    if src.dtype is f64:
        value, src = mathlib.f64_to_f32_odd(k.e, value, src.lanes), Ty(f32, src.lanes)
    if dst.dtype is bf16:
        return mathlib.f32_to_bf16(k.e, convert(k, value, src, Ty(f32, src.lanes)), src.lanes)
    return convert(k, value, src, dst)


def _bitcast(k: Kernel, e: Expr) -> str:
    a, b = llvm_type(e.args[0].ty), llvm_type(e.ty)
    value = emit_expr(k, e.args[0])
    return value if a == b else k.e.op(f"bitcast {a} {value} to {b}")


# ---------------------------------------------------------------- lanes


def _extract(k: Kernel, e: Expr) -> str:
    vector = e.args[0]
    return k.e.op(f"extractelement {llvm_type(vector.ty)} {emit_expr(k, vector)}, i32 {e.attr[0]}")


def _insert(k: Kernel, e: Expr) -> str:
    v, s = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    scalar = scalar_type(e.ty.dtype)
    return k.e.op(f"insertelement {llvm_type(e.ty)} {v}, {scalar} {s}, i32 {e.attr[0]}")


def _shuffle(k: Kernel, e: Expr) -> str:
    a, b = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    return shuffle(k, llvm_type(e.args[0].ty), a, b, [int(i) for i in e.attr])


def shuffle(k: Kernel, vector: str, a: str, b: str, lanes: list[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in lanes)
    return k.e.op(f"shufflevector {vector} {a}, {vector} {b}, <{len(lanes)} x i32> <{mask}>")


def _reduce(k: Kernel, e: Expr) -> str:
    """Fold the upper half onto the lower one until one lane is left."""
    op = {"add": "add", "mul": "mul", "min": "min", "max": "max"}[e.op.removeprefix("reduce_")]
    value, ty = emit_expr(k, e.args[0]), e.args[0].ty
    while ty.lanes > 1:
        half, vector = Ty(ty.dtype, ty.lanes // 2), llvm_type(ty)
        first = list(range(half.lanes))
        low = shuffle(k, vector, value, "poison", first)
        high = shuffle(k, vector, value, "poison", [i + half.lanes for i in first])
        if half.lanes == 1:
            low, high = _lane0(k, low, half), _lane0(k, high, half)
        value, ty = binary_op(k, op, low, high, half), half
    return value


def _lane0(k: Kernel, value: str, ty: Ty) -> str:
    return k.e.op(f"extractelement <1 x {scalar_type(ty.dtype)}> {value}, i32 0")


# ---------------------------------------------------------------- arithmetic


def _binary(k: Kernel, e: Expr) -> str:
    a, b = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    if e.op in ("quot", "rem", "floordiv", "mod") and e.ty.dtype.is_integer:
        return k.int_division(e, a, b)
    return binary_op(k, e.op, a, b, e.ty)


_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fmod": "frem"}


def binary_op(k: Kernel, op: str, a: str, b: str, ty: Ty) -> str:
    text, d = llvm_type(ty), ty.dtype
    if op in ("min", "max", "fmin", "fmax"):
        return min_max(k, op, a, b, ty)
    if d.is_float:
        if op in _FLOAT:
            return k.e.op(f"{_FLOAT[op]} {text} {a}, {b}")
        if op == "copysign":
            return k.e.intrinsic("copysign", text, a, b)
        if op == "mod":
            return mathlib.float_mod(k.e, a, b, ty)
        return mathlib.binary(k.e, op, a, b, ty)
    if op in _INT:
        return k.e.op(f"{_INT[op]} {text} {a}, {b}")
    if op in ("shl", "shr"):
        count = k.e.op(f"and {text} {b}, {const_text(d.bits - 1, ty)}")
        name = "shl" if op == "shl" else "ashr" if d.kind == "i" else "lshr"
        return k.e.op(f"{name} {text} {a}, {count}")
    assert op == "pow", op
    return mathlib.int_power(k.e, a, b, ty)


def min_max(k: Kernel, op: str, a: str, b: str, ty: Ty) -> str:
    """Compare and select: the same bits everywhere. min/max give NaN if either operand is NaN,
    fmin/fmax the number. Between equal values (also 0 and -0) the first operand wins."""
    text, d = llvm_type(ty), ty.dtype
    small = op in ("min", "fmin")
    mask = f"<{ty.lanes} x i1>" if ty.lanes > 1 else "i1"
    if d is bool_:
        return k.e.op(f"{'and' if small else 'or'} {text} {a}, {b}")
    if not d.is_float:
        name = ("s" if d.kind == "i" else "u") + ("min" if small else "max")
        return k.e.intrinsic(name, text, a, b)
    test = k.e.op(f"fcmp {'ogt' if small else 'olt'} {text} {a}, {b}")
    best = k.e.op(f"select {mask} {test}, {text} {b}, {text} {a}")
    wins = b if op in ("min", "max") else a
    if not wins.startswith("%") and "0x7FF8" not in wins:
        return best
    unordered = k.e.op(f"fcmp uno {text} {wins}, {wins}")
    return k.e.op(f"select {mask} {unordered}, {text} {b}, {text} {best}")


_ICMP = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FCMP = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def _compare(k: Kernel, e: Expr) -> str:
    a, b = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    ty = e.args[0].ty
    text, d = llvm_type(ty), ty.dtype
    if d.is_float:
        return k.e.op(f"fcmp {_FCMP[e.op]} {text} {a}, {b}")
    code = _ICMP[e.op]
    if code not in ("eq", "ne"):
        code = ("s" if d.kind == "i" else "u") + code
    return k.e.op(f"icmp {code} {text} {a}, {b}")


_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


def _unary(k: Kernel, e: Expr) -> str:
    value, ty = emit_expr(k, e.args[0]), e.args[0].ty
    text = llvm_type(ty)
    match e.op:
        case "neg":
            if ty.dtype.is_float:
                return k.e.op(f"fneg {text} {value}")
            return k.e.op(f"sub {text} {const_text(0, ty)}, {value}")
        case "not" | "inv":
            return k.e.op(f"xor {text} {value}, {const_text(_ones(ty), ty)}")
        case "abs":
            if ty.dtype.is_float:
                return k.e.intrinsic("fabs", text, value)
            return k.e.call(text, f"llvm.abs.{mangle(text)}", f"{text} {value}", "i1 false")
        case "sqrt":
            return k.e.intrinsic("sqrt", text, value)
        case "isnan":
            return k.e.op(f"fcmp uno {text} {value}, {value}")
        case "isinf":
            size = k.e.intrinsic("fabs", text, value)
            return k.e.op(f"fcmp oeq {text} {size}, {const_text(float('inf'), ty)}")
        case "popcount":
            return k.e.intrinsic("ctpop", text, value)
        case "clz":
            return k.e.call(text, f"llvm.ctlz.{mangle(text)}", f"{text} {value}", "i1 false")
        case _ if e.op in _ROUNDING:
            return k.e.intrinsic(_ROUNDING[e.op], text, value)
        case _:
            return mathlib.unary(k.e, e.op, value, ty)


def _ones(ty: Ty) -> object:
    return True if ty.dtype is bool_ else -1


def _fma(k: Kernel, e: Expr) -> str:
    a, b, c = (emit_expr(k, x) for x in e.args)
    return k.e.intrinsic("fma", llvm_type(e.ty), a, b, c)


def _select(k: Kernel, e: Expr) -> str:
    c, a, b = (emit_expr(k, x) for x in e.args)
    text = llvm_type(e.ty)
    return k.e.op(f"select {llvm_type(e.args[0].ty)} {c}, {text} {a}, {text} {b}")


# ---------------------------------------------------------------- what branches


def _lazy(k: Kernel, e: Expr) -> str:
    """andalso, orelse, choose: only the wanted operand is evaluated."""
    cond = emit_expr(k, e.args[0])
    yes, no, end = (k.e.block_name(p) for p in ("yes", "no", "end"))
    if e.op == "andalso":
        yes_expr, no_expr = e.args[1], None
    elif e.op == "orelse":
        yes_expr, no_expr = None, e.args[1]
    else:
        yes_expr, no_expr = e.args[1], e.args[2]
    k.e.branch(cond, yes, no)
    parts = [_lazy_arm(k, yes, yes_expr, end, "true"), _lazy_arm(k, no, no_expr, end, "false")]
    k.e.start(end)
    incoming = ", ".join(f"[{value}, %{block}]" for value, block in parts)
    return k.e.raw(f"phi {llvm_type(e.ty)} {incoming}")


def _lazy_arm(
    k: Kernel, label: str, expr: Expr | None, end: str, otherwise: str
) -> tuple[str, str]:
    k.e.start(label)
    k.e.memo.append({})
    value = otherwise if expr is None else emit_expr(k, expr)
    k.e.memo.pop()
    block = k.e.label
    k.e.jump(end)
    return value, block


HANDLERS.update(
    {
        **dict.fromkeys(BINARY, _binary),
        **dict.fromkeys(COMPARE, _compare),
        **dict.fromkeys(UNARY, _unary),
        "cast": _cast,
        "bitcast": _bitcast,
        "extract": _extract,
        "insert": _insert,
        "shuffle": _shuffle,
        "reduce_add": _reduce,
        "reduce_mul": _reduce,
        "reduce_min": _reduce,
        "reduce_max": _reduce,
        "fma": _fma,
        "select": _select,
        "andalso": _lazy,
        "orelse": _lazy,
        "choose": _lazy,
    }
)
