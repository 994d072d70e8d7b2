"""Operators of the vertex language: promotion, folding, short circuits."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import BOOL, I32, TRAPPING, Expr, Stmt, Ty, walk_expr
from poplar_py.codelets.lower_expr import (
    HANDLERS,
    as_operand,
    condition,
    lower_expr,
    lower_operands,
    lower_values,
    rvalue,
)
from poplar_py.codelets.lowering import (
    Lowering,
    Value,
    compile_time,
)
from poplar_py.codelets.source import EnumType, EnumValue
from poplar_py.types import DType, bool_, i64

__all__ = ["BINARY_OPERATORS", "arithmetic", "logical"]

BINARY_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "eq",
    ast.IsNot: "ne",
}
_operator: Any = operator
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": _operator.add,
    "sub": _operator.sub,
    "mul": _operator.mul,
    "div": _operator.truediv,
    "floordiv": _operator.floordiv,
    "mod": _operator.mod,
    "pow": _operator.pow,
    "and": _operator.and_,
    "or": _operator.or_,
    "xor": _operator.xor,
    "shl": _operator.lshift,
    "shr": _operator.rshift,
    "eq": _operator.eq,
    "ne": _operator.ne,
    "lt": _operator.lt,
    "le": _operator.le,
    "gt": _operator.gt,
    "ge": _operator.ge,
}


def _binop(low: Lowering, node: ast.BinOp) -> Value:
    op = BINARY_OPERATORS.get(type(node.op))
    if op is None:
        raise low.fail(node, "this operator is not in the vertex language")
    a, b = lower_operands(low, [node.left, node.right])
    return arithmetic(low, node, op, a, b)


def arithmetic(
    low: Lowering, node: ast.AST, op: str, a: build.Operand, b: build.Operand
) -> build.Operand:
    """One operator; folded when both operands are known ints (or Python numbers).

    As in C, an int of 8 or 16 bits counts as i32. Quotients and remainders of i32 and u32 are those
    of the numbers, in the type of the dividend: `hash % len(table)` is never negative.
    """
    a, b = _as_int(a), _as_int(b)
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return _fold(low, node, op, a, b)
    x, y = compile_time(a), compile_time(b)
    if isinstance(x, int) and isinstance(y, int) and op != "div":
        return _fold_typed(low, node, op, a, b, x, y)
    if op == "pow":
        return _power(a, b)
    if op in ("floordiv", "mod") and _kinds(a, b) == {"i", "u"}:
        wide, ty = Ty(i64), build.as_expr(a).ty
        x, y = (build.cast(build.as_expr(v), wide) for v in (a, b))
        exact = build.binary(op, x, y)
        return build.cast(exact, ty)
    return build.binary(op, a, b)


def _as_int(x: build.Operand) -> build.Operand:
    """A scalar int narrower than 32 bits as i32 (C's integer promotion); the rest as it is."""
    if not isinstance(x, Expr) or x.ty.lanes > 1 or x.ty.ref:
        return x
    d = x.ty.dtype
    return build.cast(x, I32) if d.is_integer and d is not bool_ and d.size < 4 else x


def _kinds(a: build.Operand, b: build.Operand) -> set[str]:
    """Signed and unsigned kinds of two scalar variables of 32 bits; empty for others."""
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        return set()
    kinds = {x.ty.dtype.kind for x in (a, b) if x.ty.lanes == 1 and x.ty.dtype.size == 4}
    return kinds if a.ty.dtype.size == b.ty.dtype.size else set()


def _fold(low: Lowering, node: ast.AST, op: str, a: Any, b: Any) -> int | float | bool:
    if op in ("shl", "pow") and isinstance(b, int) and abs(b) > 4096:
        raise low.fail(node, "the compile-time value is too large")
    try:
        value: int | float | bool = _PYTHON[op](a, b)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise low.fail(node, f"compile-time arithmetic: {error}") from None
    if isinstance(value, int) and value.bit_length() > 64:
        raise low.fail(node, "the compile-time integer does not fit in 64 bits")
    return value


def _fold_typed(
    low: Lowering, node: ast.AST, op: str, a: build.Operand, b: build.Operand, x: int, y: int
) -> build.Operand:
    """Known ints of which one has a type: computed in it, wrapping."""
    if op in ("shl", "shr"):
        left, right = build.as_expr(a), y
        known = compile_time(left)
    else:
        left, other = build.promote(a, b)
        known, right = compile_time(left), compile_time(other)
    d = left.ty.dtype
    whole = isinstance(known, int) and isinstance(right, int)
    if not whole or d is bool_ or d.is_float or (op == "pow" and int(right or 0) < 0):
        return build.binary(op, a, b)
    return build.const(_wrapped(low, node, op, (int(known or 0), int(right or 0)), d), left.ty)


def _wrapped(low: Lowering, node: ast.AST, op: str, pair: tuple[int, int], d: DType) -> int:
    x, y = pair
    if op in ("shl", "shr"):
        y &= d.bits - 1
    try:
        value = pow(x, y, 1 << d.bits) if op == "pow" else int(_PYTHON[op](x, y))
    except ArithmeticError as error:
        raise low.fail(node, f"compile-time arithmetic: {error}") from None
    bits = value & ((1 << d.bits) - 1)
    return bits - (1 << d.bits) if d.kind == "i" and bits >> (d.bits - 1) else bits


def _power(a: build.Operand, b: build.Operand) -> Expr:
    """x ** n; small known int exponents are multiplications, rounded one by one."""
    n = compile_time(b)
    if isinstance(a, Expr) and isinstance(n, int) and 0 < n <= 4:
        square = a if n == 1 else build.binary("mul", a, a)
        if n == 3:
            return build.binary("mul", square, a)
        return build.binary("mul", square, square) if n == 4 else square
    return build.binary("pow", a, b)


def _unaryop(low: Lowering, node: ast.UnaryOp) -> Value:
    value = rvalue(low, node.operand)
    if isinstance(node.op, ast.UAdd):
        return value
    known = compile_time(value)
    if isinstance(node.op, ast.Not):
        if known is not None:
            return not known
        return build.unary("not", value)
    if isinstance(node.op, ast.Invert):
        if isinstance(value, Expr) and value.ty.dtype is bool_:
            return build.unary("not", value)
        return build.unary("inv", _as_int(value)) if isinstance(value, Expr) else ~int(value)
    if not isinstance(value, Expr):
        return -value
    value = _as_int(value)
    assert isinstance(value, Expr)
    if isinstance(known, int) and value.ty.dtype.is_integer:
        return arithmetic(low, node, "sub", build.const(0, value.ty), value)
    return build.unary("neg", value)


def _compare(low: Lowering, node: ast.Compare) -> Value:
    """A comparison; of a chain, what comes after a false link is not evaluated."""
    op = _COMPARE.get(type(node.ops[0]))
    if op is None:
        raise low.fail(node, "this comparison is not in the vertex language")
    nodes = (node.left, node.comparators[0])
    left, right = lower_values(low, nodes)
    chained = len(node.ops) > 1
    if chained and isinstance(right, Expr) and right.op != "const" and not right.ty.ref:
        right = low.temp(right)
    first = _compare_two(low, node, op, (nodes[0], left), (nodes[1], right))
    if not chained:
        return first
    name = low.fresh("link")
    low.frame.names[name] = right
    link = ast.copy_location(ast.Name(id=name, ctx=ast.Load()), nodes[1])
    rest = ast.Compare(left=link, ops=node.ops[1:], comparators=node.comparators[1:])
    return _and_then(low, node, "and", first, ast.copy_location(rest, node))


def _compare_two(
    low: Lowering,
    node: ast.AST,
    op: str,
    left: tuple[ast.expr, Value],
    right: tuple[ast.expr, Value],
) -> build.Operand:
    types = (DType, Ty, str, type(None), tuple, EnumType)
    enums = isinstance(left[1], EnumValue) and isinstance(right[1], EnumValue)
    if isinstance(left[1], types) or isinstance(right[1], types) or (enums and op in ("eq", "ne")):
        if op not in ("eq", "ne"):
            raise low.fail(node, "types have no order")
        return bool(_PYTHON[op](_plain(left[1]), _plain(right[1])))
    a, b = (_as_int(as_operand(low, *side)) for side in (left, right))
    if isinstance(a, Expr) or isinstance(b, Expr):
        left_value, right_value = build.promote(a, b)
        x, y = compile_time(left_value), compile_time(right_value)
    else:
        x, y = a, b
    if x is not None and y is not None:
        return bool(_PYTHON[op](x, y))
    return build.compare(op, a, b)


def _plain(value: Value) -> Value:
    return value.dtype if isinstance(value, Ty) and value.lanes == 1 else value


def _boolop(low: Lowering, node: ast.BoolOp) -> Value:
    op = "and" if isinstance(node.op, ast.And) else "or"
    result = _truth(low, node.values[0])
    for item in node.values[1:]:
        result = _and_then(low, node, op, result, item)
    return result


def _and_then(
    low: Lowering, node: ast.AST, op: str, first: build.Operand, item: ast.expr
) -> build.Operand:
    """`first` and/or `item`, whose statements run only where they are needed."""
    known = compile_time(first)
    if known is not None:
        return bool(known) if bool(known) == (op == "or") else _truth(low, item)
    assert isinstance(first, Expr)
    saved, low.out = low.out, []
    term = _truth(low, item)
    inner, low.out = low.out, saved
    if not inner:
        return logical(low, node, op, [first, term])
    name = low.fresh("b")
    local = Expr("local", BOOL, (), (name,))
    low.emit(Stmt("assign", (first,), (name,)))
    inner.append(Stmt("assign", (build.as_expr(term),), (name,), line=low.line))
    test = local if op == "and" else build.logical_not(local)
    low.emit(Stmt("if", (test,), (), inner))
    return local


def _truth(low: Lowering, node: ast.expr) -> build.Operand:
    value = rvalue(low, node)
    known = compile_time(value)
    return bool(known) if known is not None else build.to_bool(value)


def logical(low: Lowering, node: ast.AST, op: str, terms: Sequence[build.Operand]) -> build.Operand:
    """and/or of truth values; the second scalar is only evaluated if needed when it may trap.

    A first operand that may trap is evaluated even where the second one decides.
    """
    a, b = terms
    for x, y in ((a, b), (b, a)):
        if not isinstance(x, Expr):
            neutral = bool(x) == (op == "and")
            if not neutral and y is a and isinstance(a, Expr) and _may_trap(a):
                low.temp(a)
            return y if neutral else bool(x)
    assert isinstance(a, Expr)
    assert isinstance(b, Expr)
    if a.ty.lanes == 1 and b.ty.lanes == 1 and _may_trap(b):
        return Expr("andalso" if op == "and" else "orelse", BOOL, (a, b))
    return build.binary(op, a, b)


def _may_trap(e: Expr) -> bool:
    return any(node.op in TRAPPING for node in walk_expr(e))


def _ifexp(low: Lowering, node: ast.IfExp) -> Value:
    cond = condition(low, node.test)
    if isinstance(cond, bool):
        return lower_expr(low, node.body if cond else node.orelse)
    (a, before_a), (b, before_b) = (_apart(low, n) for n in (node.body, node.orelse))
    x, y = build.promote(a, b)
    if before_a or before_b:
        return _choose_by_branch(low, cond, (before_a, x), (before_b, y))
    if _may_trap(x) or _may_trap(y):
        return Expr("choose", x.ty, (cond, x, y))
    return build.select(cond, x, y)


def _apart(low: Lowering, node: ast.expr) -> tuple[build.Operand, list[Stmt]]:
    """A value and the statements that compute it, kept out of the way."""
    saved, low.out = low.out, []
    value = rvalue(low, node)
    made, low.out = low.out, saved
    return value, made


def _choose_by_branch(
    low: Lowering, cond: Expr, a: tuple[list[Stmt], Expr], b: tuple[list[Stmt], Expr]
) -> Expr:
    """`a if c else b` whose operands call helpers: only the chosen one runs."""
    name = low.fresh("choice")
    sides = [
        [*before, Stmt("assign", (value,), (name,), line=low.line)] for before, value in (a, b)
    ]
    low.emit(Stmt("if", (cond,), (), sides[0], sides[1]))
    return Expr("local", a[1].ty, (), (name,))


HANDLERS.update(
    {
        ast.BinOp: _binop,
        ast.UnaryOp: _unaryop,
        ast.Compare: _compare,
        ast.BoolOp: _boolop,
        ast.IfExp: _ifexp,
    }
)
