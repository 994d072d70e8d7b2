"""Calls in the vertex language: conversions and the function table."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, Ty
from poplar_py.codelets.inline import inline
from poplar_py.codelets.language_names import MATH_BINARY, MATH_UNARY
from poplar_py.codelets.lower_expr import (
    HANDLERS,
    as_operand,
    as_type,
    condition,
    lower_expr,
    lower_operands,
    rvalue,
    to_ref,
    type_value,
)
from poplar_py.codelets.lower_random import RANDOM_FUNCTIONS
from poplar_py.codelets.lower_vectors import VECTOR_FUNCTIONS
from poplar_py.codelets.lowering import (
    ArrayRef,
    Builtin,
    FieldRef,
    Helper,
    Lowering,
    Value,
    compile_time,
)
from poplar_py.types import DTYPES, DType, bool_

__all__ = ["lower_call"]


def lower_call(low: Lowering, node: ast.Call) -> Value:
    target = lower_expr(low, node.func)
    if isinstance(target, Helper):
        return inline(low, node, target)
    if node.keywords:
        raise low.fail(node, "keyword arguments are for helpers only")
    if isinstance(target, Ty) and target.lanes == len(node.args) > 1:
        return _vector_of(low, node, target)
    if isinstance(target, (DType, Ty)):
        _arity(low, node, 1, 1)
        return _convert(low, node, rvalue(low, node.args[0]), target)
    if isinstance(target, Builtin):
        return _builtin(low, node, target.name)
    raise low.fail(node, "this cannot be called")


def _arity(low: Lowering, node: ast.Call, least: int, most: int) -> None:
    if not least <= len(node.args) <= most:
        want = str(least) if least == most else f"{least} to {most}"
        raise low.fail(node, f"{want} arguments are wanted, found {len(node.args)}")


def _builtin(low: Lowering, node: ast.Call, name: str) -> Value:
    if name in MATH_UNARY:
        _arity(low, node, 1, 1)
        return _math_unary(low, node, name, rvalue(low, node.args[0]))
    if name in MATH_BINARY:
        return _math_binary(low, node, name)
    entry = _SPECIAL.get(name)
    if entry is None:
        raise low.fail(node, f"{name} cannot be called here")
    least, most, function = entry
    _arity(low, node, least, most)
    return function(low, node)


_FOLD: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
}


def _math_unary(low: Lowering, node: ast.Call, name: str, value: build.Operand) -> Value:
    if isinstance(value, Expr):
        return build.unary(name, value)
    if name in ("popcount", "clz"):
        return build.unary(name, build.as_expr(value))
    if name not in _FOLD:
        return build.unary(name, build.as_expr(float(value)))
    try:
        return _FOLD[name](value)
    except (ValueError, OverflowError) as error:
        raise low.fail(node, f"compile-time {name}: {error}") from None


def _math_binary(low: Lowering, node: ast.Call, name: str) -> Value:
    if len(node.args) == 1 and name in ("min", "max"):
        raise low.fail(node, f"{name} takes numbers, 2 to 16 of them", "loop over the elements")
    _arity(low, node, 2, 16 if name in ("min", "max") else 2)
    values = lower_operands(low, node.args)
    result = values[0]
    for value in values[1:]:
        result = _pair(name, result, value)
    return result


def _pair(name: str, a: build.Operand, b: build.Operand) -> build.Operand:
    """One step of min, max, ...; known ints stay known and keep their type."""
    if name not in ("min", "max") or not _is_int(a) or not _is_int(b):
        return build.binary(name, a, b)
    best = min if name == "min" else max
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return best(a, b)
    x, y = build.promote(a, b)
    known = (compile_time(x), compile_time(y))
    if known[0] is None or known[1] is None:
        return build.binary(name, x, y)
    return build.const(best(known[0], known[1]), x.ty)


def _is_int(value: build.Operand) -> bool:
    return isinstance(compile_time(value), int)


def _convert(low: Lowering, node: ast.AST, value: build.Operand, target: DType | Ty) -> Value:
    ty = Ty(target) if isinstance(target, DType) else target
    lanes = value.ty.lanes if isinstance(value, Expr) and isinstance(target, DType) else ty.lanes
    ty = Ty(ty.dtype, lanes)
    if isinstance(value, Expr):
        if ty.dtype is bool_:
            return build.splat(build.to_bool(value), lanes)
        return build.cast(value, ty)
    if isinstance(value, float) and ty.dtype.is_integer:
        value = _saturate(value, ty.dtype)
    return build.const(value, ty)


def _vector_of(low: Lowering, node: ast.Call, ty: Ty) -> Value:
    """`float2(a, b)`: a short vector from its lanes."""
    lanes = [
        build.cast(build.as_expr(v, Ty(ty.dtype)), Ty(ty.dtype))
        for v in lower_operands(low, node.args)
    ]
    vector = build.splat(lanes[0], ty.lanes)
    for i, lane in enumerate(lanes[1:], 1):
        vector = Expr("insert", ty, (vector, lane), (i,))
    return vector


def _saturate(value: float, dtype: DType) -> int:
    low = -(1 << dtype.bits - 1) if dtype.kind == "i" else 0
    high = (1 << dtype.bits - (dtype.kind == "i")) - 1
    if math.isnan(value):
        return 0
    return low if value <= low else high if value >= high else int(value)


# ---------------------------------------------------------------- special functions


def _len(low: Lowering, node: ast.Call) -> Value:
    value = lower_expr(low, node.args[0])
    if isinstance(value, tuple):
        return len(value)
    if isinstance(value, ArrayRef):
        return value.size
    if isinstance(value, FieldRef) and value.field.rank == 2:
        return Expr("nrows", I32, (), (value.field.name,))
    ref = to_ref(low, node.args[0])
    if not ref.ty.sized:
        raise low.fail(
            node, "a ONE_PTR field has no length", "use a state field for it, or another layout"
        )
    return Expr("len", I32, (ref,))


def _cast(low: Lowering, node: ast.Call) -> Value:
    target: Value = lower_expr(low, node.args[1])
    target = target if isinstance(target, (DType, Ty)) else as_type(target)
    if target is None:
        raise low.fail(node.args[1], "cast(x, T) wants a type as its second argument")
    return _convert(low, node, rvalue(low, node.args[0]), target)


def _bitcast(low: Lowering, node: ast.Call) -> Value:
    value = build.as_expr(rvalue(low, node.args[0]))
    return build.bitcast(value, type_value(low, node.args[1]).dtype)


def _fma(low: Lowering, node: ast.Call) -> Value:
    a, b, c = lower_operands(low, node.args)
    return build.fma(a, b, c)


def _select(low: Lowering, node: ast.Call) -> Value:
    c, a, b = lower_operands(low, node.args)
    return build.select(c, a, b)


def _isfinite(low: Lowering, node: ast.Call) -> Value:
    value = build.unary("abs", build.as_expr(rvalue(low, node.args[0])))
    return build.compare("lt", value, math.inf)


def _andc(low: Lowering, node: ast.Call) -> Value:
    """a & ~b."""
    a, b = build.promote(*lower_operands(low, node.args))
    return build.binary("and", a, build.unary("inv", b))


def _num_workers(_low: Lowering, _node: ast.Call) -> Value:
    return 6


def _abort_if(low: Lowering, node: ast.Call) -> Value:
    cond = condition(low, node.args[0])
    if cond is not False:
        low.emit(Stmt("abort", (build.as_expr(cond),)))
    return None


def _size_of(low: Lowering, node: ast.Call) -> Value:
    return type_value(low, node.args[0]).nbytes


def _is_float(low: Lowering, node: ast.Call) -> Value:
    return type_value(low, node.args[0]).dtype.is_float


_FLOAT_MAX = {"f16": 65504.0, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}
_FLOAT_MAX["bf16"] = 3.3895313892515355e38


def _limit(which: str) -> Callable[[Lowering, ast.Call], Value]:
    def function(low: Lowering, node: ast.Call) -> Value:
        ty = type_value(low, node.args[0])
        return build.const(_limit_value(ty.dtype, which), ty)

    return function


def _limit_value(d: DType, which: str) -> int | float | bool:
    if which in ("inf", "nan"):
        return math.inf if which == "inf" else math.nan
    if d is bool_:
        return which == "max"
    if d.is_float:
        top = _FLOAT_MAX[d.name]
        return {"max": top, "min": -top, "lowest": -math.inf}[which]
    if which == "max":
        return (1 << d.bits - (d.kind == "i")) - 1
    return -(1 << d.bits - 1) if d.kind == "i" else 0


def _number(name: str) -> Callable[[Lowering, ast.Call], Value]:
    def function(low: Lowering, node: ast.Call) -> Value:
        value = as_operand(low, node, lower_expr(low, node.args[0]))
        if not isinstance(value, Expr):
            return float(value) if name == "f32" else int(value)
        return _convert(low, node, value, DTYPES[name])

    return function


_SPECIAL: dict[str, tuple[int, int, Callable[[Lowering, ast.Call], Value]]] = {
    **VECTOR_FUNCTIONS,
    **RANDOM_FUNCTIONS,
    "isfinite": (1, 1, _isfinite),
    "andc": (2, 2, _andc),
    "len": (1, 1, _len),
    "cast": (2, 2, _cast),
    "bitcast": (2, 2, _bitcast),
    "fma": (3, 3, _fma),
    "select": (3, 3, _select),
    "abort_if": (1, 1, _abort_if),
    "size_of": (1, 1, _size_of),
    "is_float": (1, 1, _is_float),
    "limit_max": (1, 1, _limit("max")),
    "limit_min": (1, 1, _limit("min")),
    "lowest": (1, 1, _limit("lowest")),
    "inf": (1, 1, _limit("inf")),
    "nan": (1, 1, _limit("nan")),
    "num_workers": (0, 0, _num_workers),
    "float": (1, 1, _number("f32")),
    "int": (1, 1, _number("i32")),
}

HANDLERS[ast.Call] = lower_call
