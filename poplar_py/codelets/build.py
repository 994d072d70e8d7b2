"""Typed constructors of codelet expressions: promotion, casts, the f16/bf16 rule.

Operands are `Expr`, or Python numbers that take the other operand's type. Errors are TypeMismatch
without a place: the caller adds it with `.at(loc)`.
"""

from __future__ import annotations

import math

from poplar_py.codelets.codelet_ir import BOOL, COMPARE, Expr, Ty
from poplar_py.diagnostics import TypeMismatch
from poplar_py.types import DTYPES, DType, bf16, bool_, f16, f32, i32

__all__ = [
    "Operand",
    "as_expr",
    "binary",
    "bitcast",
    "cast",
    "compare",
    "const",
    "fma",
    "load",
    "logical_not",
    "promote",
    "reduce",
    "select",
    "splat",
    "store_value",
    "to_bool",
    "unary",
]

Operand = Expr | int | float | bool

_FLOAT_ONLY = frozenset(
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh "
    "acosh atanh erf sigmoid floor ceil round trunc div fmod atan2 fmin fmax copysign".split()
)
_INT_ONLY = frozenset("inv popcount clz shl shr and or xor quot rem".split())
_BOOL_OK = frozenset("and or xor min max not".split())
_NARROW = (f16, bf16)


def const(value: int | float | bool, ty: Ty) -> Expr:
    """A constant of the scalar type, splat over the lanes. Ints out of range are refused."""
    d = ty.dtype
    if d is bool_:
        value = bool(value)
    elif d.is_float:
        value = float(value)
    else:
        if isinstance(value, float):
            raise TypeMismatch(f"the float {value!r} where {d} is wanted", remedy="write a cast")
        low = -(1 << d.bits - 1) if d.kind == "i" else 0
        high = (1 << d.bits - (d.kind == "i")) - 1
        value = int(value)
        if not low <= value <= high:
            raise TypeMismatch(f"{value} does not fit in {d}")
    return Expr("const", ty, (), (value,))


def literal_type(value: int | float | bool) -> Ty:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        wide = not -(1 << 31) <= value < 1 << 31
        return Ty(DTYPES["i64" if value < 1 << 63 else "u64"] if wide else i32)
    return Ty(f32)


def as_expr(value: Operand, hint: Ty | None = None) -> Expr:
    """An operand as an expression; a literal takes `hint`'s type where that keeps its kind."""
    if isinstance(value, Expr):
        return value
    if hint is None or hint.ref:
        return const(value, literal_type(value))
    d = hint.dtype
    if isinstance(value, float) and not d.is_float:
        return const(value, Ty(f32, hint.lanes))
    if d is bool_ and not isinstance(value, bool):
        return const(value, Ty(literal_type(value).dtype, hint.lanes))
    return const(value, hint)


def _join_dtype(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.is_float or b.is_float:
        if not (a.is_float and b.is_float):
            return a if a.is_float else b
        return f32 if a.size == b.size else (a if a.size > b.size else b)
    if a is bool_ or b is bool_:
        return b if a is bool_ else a
    if a.size != b.size:
        return a if a.size > b.size else b
    return a if a.kind == "i" else b


def promote(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    """Both operands in their common type; scalars are splat against vectors."""
    if not isinstance(a, Expr):
        a = as_expr(a, b.ty if isinstance(b, Expr) else None)
    b = as_expr(b, a.ty)
    if a.ty.ref or b.ty.ref:
        raise TypeMismatch("a field or row is no value here", remedy="index it")
    lanes = max(a.ty.lanes, b.ty.lanes)
    if a.ty.lanes != b.ty.lanes and 1 not in (a.ty.lanes, b.ty.lanes):
        raise TypeMismatch(f"vectors of {a.ty.lanes} and {b.ty.lanes} lanes do not mix")
    dtype = _join_dtype(a.ty.dtype, b.ty.dtype)
    return cast(a, Ty(dtype, lanes)), cast(b, Ty(dtype, lanes))


def splat(x: Expr, lanes: int) -> Expr:
    if x.ty.lanes == lanes:
        return x
    if x.ty.lanes != 1:
        raise TypeMismatch(f"{x.ty} cannot become {lanes} lanes")
    if x.op == "const":
        return Expr("const", Ty(x.ty.dtype, lanes), (), x.attr)
    return Expr("splat", Ty(x.ty.dtype, lanes), (x,))


def cast(x: Expr, ty: Ty) -> Expr:
    """Convert lane by lane; a scalar is splat when `ty` has lanes. Float to int saturates."""
    if x.ty.ref:
        raise TypeMismatch("a field or row is no value here", remedy="index it")
    if x.ty.lanes != ty.lanes:
        if x.ty.lanes != 1:
            raise TypeMismatch(f"{x.ty} cannot become {ty.lanes} lanes")
        return splat(cast(x, Ty(ty.dtype)), ty.lanes)
    if x.ty.dtype is ty.dtype:
        return x
    folded = _fold_cast(x, ty)
    if folded is not None:
        return folded
    src, dst = x.ty.dtype, ty.dtype
    if src in _NARROW and dst is not f32:
        return cast(Expr("cast", Ty(f32, ty.lanes), (x,)), ty)
    return Expr("cast", ty, (x,))


def _fold_cast(x: Expr, ty: Ty) -> Expr | None:
    if x.op != "const":
        return None
    value, d = x.attr[0], ty.dtype
    if isinstance(value, str) or x.ty.dtype is bool_ or d in _NARROW or x.ty.dtype in _NARROW:
        return None
    if d is f32 and (x.ty.dtype.is_integer and abs(value) > 1 << 24):
        return None
    if d.is_float and x.ty.dtype.is_integer:
        return const(float(value), ty) if abs(value) <= 1 << 53 else None
    if d.is_integer and x.ty.dtype.is_integer:
        bits = int(value) & ((1 << d.bits) - 1)
        if d.kind == "i" and bits >> (d.bits - 1):
            bits -= 1 << d.bits
        return const(bits, ty)
    return None


def bitcast(x: Expr, dtype: DType) -> Expr:
    if x.ty.dtype is bool_ or dtype is bool_ or x.ty.dtype.size != dtype.size:
        raise TypeMismatch(f"bitcast from {x.ty.dtype} to {dtype}: sizes must be equal, no bool")
    if x.ty.dtype is dtype:
        return x
    return Expr("bitcast", Ty(dtype, x.ty.lanes), (x,))


def _check(op: str, d: DType) -> None:
    if op in _FLOAT_ONLY and not d.is_float:
        divide = "quot(a, b) divides ints as C does, // rounds down; or cast to a float"
        remedy = divide if op == "div" else "cast to a float"
        raise TypeMismatch(f"{op} wants floats, found {d}", remedy=remedy)
    if op in _INT_ONLY and d.is_float:
        raise TypeMismatch(f"{op} wants integers, found {d}", remedy="use bitcast or cast")
    if d is bool_ and op not in _BOOL_OK:
        raise TypeMismatch(f"{op} of bool", remedy="cast to a number")


def unary(op: str, x: Operand) -> Expr:
    x = as_expr(x)
    d = x.ty.dtype
    if x.ty.ref:
        raise TypeMismatch("a field or row is no value here", remedy="index it")
    if op in ("isnan", "isinf"):
        if not d.is_float:
            return const(False, Ty(bool_, x.ty.lanes))
        return Expr(op, Ty(bool_, x.ty.lanes), (cast(x, _wide(x.ty)),))
    if op == "not":
        return logical_not(x)
    if d.is_integer and op in ("floor", "ceil", "round", "trunc"):
        return x
    if d is bool_ and op == "abs":
        return x
    _check(op, d)
    if op == "abs" and d.kind == "u":
        return x
    if op == "neg" and x.op == "const" and isinstance(x.attr[0], float):
        return const(-x.attr[0], x.ty)
    return cast(Expr(op, _wide(x.ty), (cast(x, _wide(x.ty)),)), x.ty)


def _wide(ty: Ty) -> Ty:
    return Ty(f32, ty.lanes) if ty.dtype in _NARROW else ty


def logical_not(x: Expr) -> Expr:
    return Expr("not", Ty(bool_, x.ty.lanes), (to_bool(x),))


def to_bool(x: Operand) -> Expr:
    x = as_expr(x)
    if x.ty.dtype is bool_:
        return x
    return compare("ne", x, 0)


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """An arithmetic operation in the operands' common type; f16/bf16 through f32, rounded once."""
    if op in ("shl", "shr"):
        x = as_expr(a)
        y = as_expr(b, x.ty if x.ty.dtype.is_integer else None)
        x = splat(x, y.ty.lanes) if x.ty.lanes == 1 else x
        y = cast(y, x.ty)
    else:
        x, y = promote(a, b)
    if x.ty.dtype is bool_ and op in ("add", "sub", "mul"):
        x, y = cast(x, Ty(i32, x.ty.lanes)), cast(y, Ty(i32, y.ty.lanes))
    _check(op, x.ty.dtype)
    if op in ("floordiv", "mod") and x.ty.dtype.kind == "u":
        op = "quot" if op == "floordiv" else "rem"
    if op == "floordiv" and x.ty.dtype.is_float:
        return unary("floor", binary("div", x, y))
    wide = _wide(x.ty)
    return cast(Expr(op, wide, (cast(x, wide), cast(y, wide))), x.ty)


def compare(op: str, a: Operand, b: Operand) -> Expr:
    assert op in COMPARE
    x, y = promote(a, b)
    wide = _wide(x.ty)
    return Expr(op, Ty(bool_, x.ty.lanes), (cast(x, wide), cast(y, wide)))


def fma(a: Operand, b: Operand, c: Operand) -> Expr:
    """a * b + c, rounded once (in f32 for f16 and bf16, then once more on the way back)."""
    x, y = promote(a, b)
    x, z = promote(x, c)
    y = cast(y, x.ty)
    if not x.ty.dtype.is_float:
        return binary("add", binary("mul", x, y), z)
    wide = _wide(x.ty)
    return cast(Expr("fma", wide, (cast(x, wide), cast(y, wide), cast(z, wide))), x.ty)


def select(c: Operand, a: Operand, b: Operand) -> Expr:
    x, y = promote(a, b)
    cond = to_bool(c)
    lanes = max(cond.ty.lanes, x.ty.lanes)
    x, y, cond = splat(x, lanes), splat(y, lanes), splat(cond, lanes)
    return Expr("select", x.ty, (cond, x, y))


def reduce(kind: str, v: Expr) -> Expr:
    """sum, prod, min or max over the lanes by the fixed tree (halves folded onto each other)."""
    lanes = v.ty.lanes
    if lanes & (lanes - 1):
        raise TypeMismatch(f"a reduction wants a power of two of lanes, found {lanes}")
    op = {"sum": "reduce_add", "prod": "reduce_mul", "min": "reduce_min", "max": "reduce_max"}[kind]
    if lanes == 1:
        return v
    wide = _wide(v.ty)
    return cast(Expr(op, Ty(wide.dtype), (cast(v, wide),)), Ty(v.ty.dtype))


def load(ref: Expr, index: Expr, lanes: int = 1, count: Expr | None = None) -> Expr:
    args = (ref, index) if count is None else (ref, index, count)
    return Expr("load", Ty(ref.ty.dtype, lanes), args)


def store_value(ref: Expr, value: Operand, lanes: int | None = None) -> Expr:
    """`value` in the element type of `ref`, ready to store. Floats do not become ints silently."""
    want = ref.ty.dtype
    v = as_expr(value, Ty(want, lanes or 1))
    if v.ty.dtype.is_float and not want.is_float:
        raise TypeMismatch(f"{v.ty.dtype} stored in {want} memory", remedy=f"cast(x, {want})")
    return cast(v, Ty(want, lanes or v.ty.lanes))


def is_finite(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
