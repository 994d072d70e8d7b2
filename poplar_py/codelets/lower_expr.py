"""Expressions of the vertex language to codelet IR, with compile-time evaluation."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import BOOL, I32, Expr, Stmt, Ty, walk_expr
from poplar_py.codelets.errors import place
from poplar_py.codelets.fold import FOLDABLE, fold
from poplar_py.codelets.hints import expression_hint
from poplar_py.codelets.lowering import (
    MAX_EXPR_DEPTH,
    ArrayRef,
    Builtin,
    FieldRef,
    Helper,
    Lowering,
    Value,
    compile_time,
)
from poplar_py.codelets.source import EnumValue
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import DTYPES, DType, f32

__all__ = [
    "HANDLERS",
    "as_type",
    "condition",
    "constant_int",
    "element_index",
    "index_expr",
    "lower_expr",
    "lower_operands",
    "lower_values",
    "pin",
    "rvalue",
    "to_ref",
    "type_value",
]


def lower_expr(low: Lowering, node: ast.expr) -> Value:
    """The value of an expression: IR, or something known at compile time."""
    if type(node) in FOLDABLE:
        known = fold(low, node)
        if known is not None:
            return known
    low.depth += 1
    if low.depth > MAX_EXPR_DEPTH:
        raise low.fail(node, "the expression is nested too deeply", "use locals")
    handler = HANDLERS.get(type(node))
    if handler is None:
        words, remedy = expression_hint(node)
        raise low.fail(node, f"{words} is not in the vertex language", remedy)
    try:
        value = handler(low, node)
    except PoplarPyError as error:
        if not error.loc.known:
            error.loc = place(low.frame.module.file, node)
        raise
    low.depth -= 1
    return value


def rvalue(low: Lowering, node: ast.expr) -> build.Operand:
    """A number or an IR value; rank-0 edges are read."""
    return as_operand(low, node, lower_expr(low, node))


def as_operand(low: Lowering, node: ast.AST, value: Value) -> build.Operand:
    if isinstance(value, FieldRef) and value.field.rank == 0:
        return build.load(field_ref(value), build.const(0, I32))
    if isinstance(value, EnumValue):
        return value.value
    if isinstance(value, (Expr, int, float)) and not (isinstance(value, Expr) and value.ty.ref):
        return value
    what = _describe(value)
    remedies = {"a tuple": "a local array is array(T, n)", "a function": "call it"}
    remedy = "index it" if "field" in what else remedies.get(what, "")
    raise low.fail(node, f"{what} is no number here", remedy)


def _describe(value: Value) -> str:
    match value:
        case FieldRef():
            return f"the field {value.field.name}"
        case ArrayRef():
            return "an array"
        case DType() | Ty():
            return f"the type {value}"
        case Helper() | Builtin():
            return "a function"
        case str():
            return "a string"
        case None:
            return "nothing (a function without a result)"
        case Expr(ty=ty):
            return "a row of a field" if ty.ref else "a number"
        case int() | float():
            return "a number"
        case tuple():
            return "a tuple"
        case _:
            return "this"


def lower_operands(low: Lowering, nodes: Sequence[ast.expr]) -> list[build.Operand]:
    """Numbers in order. What comes before a helper call with effects is evaluated before it."""
    return _in_order(low, nodes, rvalue)


def lower_values(low: Lowering, nodes: Sequence[ast.expr]) -> list[Value]:
    """As `lower_operands`, for values of every kind."""
    return _in_order(low, nodes, lower_expr)


_V = TypeVar("_V")


def _in_order(
    low: Lowering, nodes: Sequence[ast.expr], lower: Callable[[Lowering, ast.expr], _V]
) -> list[_V]:
    done: list[_V] = []
    for node in nodes:
        mark = len(low.out)
        value = lower(low, node)
        if len(low.out) > mark:
            done = [cast(_V, pin(low, v, mark)) for v in done]
        done.append(value)
    return done


def pin(low: Lowering, value: _V, mark: int) -> _V | Expr:
    """The value as it was before statement `mark`: kept in a local if it could have changed."""
    if not isinstance(value, Expr) or value.ty.ref:
        return value
    if not any(e.op in _CHANGES for e in walk_expr(value)):
        return value
    name = low.fresh("t")
    low.out.insert(mark, Stmt("assign", (value,), (name,), line=low.line))
    return Expr("local", value.ty, (), (name,))


_CHANGES = frozenset({"load", "gather", "aload", "state", "local"})


def constant_int(low: Lowering, node: ast.expr, what: str) -> int:
    """A compile-time int, or an error that says what needed it."""
    value = compile_time(lower_expr(low, node))
    if not isinstance(value, int):
        raise low.fail(node, f"{what} must be known at compile time")
    return int(value)


def index_expr(low: Lowering, node: ast.expr) -> Expr:
    value = build.as_expr(rvalue(low, node))
    if value.ty.lanes != 1 or not value.ty.dtype.is_integer:
        raise low.fail(node, f"an index must be an integer, found {value.ty}")
    return value


def element_index(low: Lowering, node: ast.expr) -> Expr:
    """The index of an element or row: a known one must not be negative."""
    value = index_expr(low, node)
    known = compile_time(value)
    if known is not None and known < 0:
        raise low.fail(node, f"the index {known} is negative", "write len(x) - k for the end")
    return value


def condition(low: Lowering, node: ast.expr) -> Expr | bool:
    """A scalar truth value; a Python bool when known at compile time."""
    value = rvalue(low, node)
    known = compile_time(value)
    if known is not None:
        return bool(known)
    try:
        result = build.to_bool(value)
    except PoplarPyError as error:
        raise error.at(place(low.frame.module.file, node)) from None
    if result.ty.lanes != 1:
        raise low.fail(node, "a condition must be a scalar", "use select() for lanes")
    return result


def type_value(low: Lowering, node: ast.expr) -> Ty:
    """A value type: f32, T, f32x16, Vec[f32, 16]."""
    found = as_type(lower_expr(low, node))
    if found is None:
        raise low.fail(node, "a type is wanted here, such as f32 or f32x16")
    return found


def as_type(value: Value) -> Ty | None:
    """A value as a type, None for others. `float` and `int` are f32 and i32, as in C++."""
    if isinstance(value, Builtin) and value.name in _C_SCALARS:
        value = _C_SCALARS[value.name]
    return Ty(value) if isinstance(value, DType) else value if isinstance(value, Ty) else None


_C_SCALARS = {"float": f32, "int": DTYPES["i32"]}


def field_ref(value: FieldRef) -> Expr:
    f = value.field
    return Expr("field", Ty(f.dtype, 1, True, not f.one_ptr), (), (f.name,))


def to_ref(low: Lowering, node: ast.expr) -> Expr:
    """A run of elements: a rank-0 or rank-1 field, or a row of a rank-2 field."""
    value = lower_expr(low, node)
    if isinstance(value, FieldRef):
        if value.field.rank == 2:
            raise low.fail(node, f"{value.field.name} is a list of rows", "index it first")
        return field_ref(value)
    if isinstance(value, Expr) and value.ty.ref:
        return value
    raise low.fail(node, "a field or a row of a field is wanted here")


# ---------------------------------------------------------------- leaves


def _constant(low: Lowering, node: ast.Constant) -> Value:
    value = node.value
    if isinstance(value, (bool, int, float, str)) or value is None:
        if isinstance(value, int) and value.bit_length() > 64:
            raise low.fail(node, "the integer does not fit in 64 bits")
        return value
    raise low.fail(node, f"the literal {value!r} is not in the vertex language")


def _tuple(low: Lowering, node: ast.Tuple | ast.List) -> Value:
    return tuple(lower_values(low, node.elts))


# ---------------------------------------------------------------- subscripts and calls


def _subscript(low: Lowering, node: ast.Subscript) -> Value:
    base = lower_expr(low, node.value)
    if isinstance(base, Builtin) and base.name == "Vec":
        return _vec_type(low, node)
    if isinstance(base, ArrayRef):
        return array_load(low, base, node.slice)
    if isinstance(base, FieldRef):
        index = element_index(low, node.slice)
        f = base.field
        if f.rank == 2:
            return Expr("row", Ty(f.dtype, 1, True, not f.inner_one_ptr), (index,), (f.name,))
        return build.load(field_ref(base), index)
    if isinstance(base, tuple):
        return _part(low, node, base)
    if isinstance(base, Expr) and base.ty.ref:
        return build.load(base, element_index(low, node.slice))
    if isinstance(base, Expr) and base.ty.lanes > 1:
        lane = constant_int(low, node.slice, "the lane of a vector")
        if not 0 <= lane < base.ty.lanes:
            raise low.fail(node, f"lane {lane} of {base.ty} does not exist")
        return Expr("extract", Ty(base.ty.dtype), (base,), (lane,))
    raise low.fail(node, f"{_describe(base)} cannot be indexed")


def _part(low: Lowering, node: ast.Subscript, base: tuple[Value, ...]) -> Value:
    """A part of a tuple; of known numbers any part, by an index that only the vertex knows."""
    at = compile_time(lower_expr(low, node.slice))
    if at is None:
        return array_load(low, _table(low, node, base), node.slice)
    if not isinstance(at, int) or not -len(base) <= at < len(base):
        raise low.fail(node, f"the tuple has {len(base)} parts")
    return base[at]


def _table(low: Lowering, node: ast.Subscript, base: tuple[Value, ...]) -> ArrayRef:
    """A tuple of known numbers as a local array, filled when the vertex starts."""
    numbers = [compile_time(v.value if isinstance(v, EnumValue) else v) for v in base]
    known = tuple(n for n in numbers if n is not None)
    if len(known) < len(base) or not known:
        remedy = "put them into an array first: a = array(f32, n)"
        raise low.fail(node, "a tuple of values that are not known at compile time", remedy)
    ty = _table_type(low, node, base, known)
    if (ty, known) not in low.tables:
        name = low.fresh("table")
        low.arrays[name] = place(low.frame.module.file, node)
        low.tables[ty, known] = ArrayRef(name, ty, len(known))
        low.table_stores.append(Stmt("array", (), (name, len(known)), line=low.line, ty=ty))
        for i, n in enumerate(known):
            stored = (build.const(i, I32), build.const(n, ty))
            low.table_stores.append(Stmt("astore", stored, (name,), line=low.line))
    return low.tables[ty, known]


def _table_type(
    low: Lowering, node: ast.AST, base: tuple[Value, ...], known: tuple[int | float, ...]
) -> Ty:
    """f32 or i32 for literals, the type of the parts where they have one."""
    types = {v.ty for v in base if isinstance(v, Expr)}
    if len(types) > 1:
        raise low.fail(node, "the parts of a table have one type")
    if types:
        return types.pop()
    if any(isinstance(n, float) for n in known):
        return Ty(f32)
    if all(isinstance(n, bool) for n in known):
        return BOOL
    return build.literal_type(max(known, key=abs))


def _vec_type(low: Lowering, node: ast.Subscript) -> Ty:
    if not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
        raise low.fail(node, "write Vec[f32, 16]")
    dtype = type_value(low, node.slice.elts[0]).dtype
    lanes = constant_int(low, node.slice.elts[1], "the lane count")
    if not 1 <= lanes <= 64:
        raise low.fail(node, f"{lanes} lanes: 1 to 64 are possible")
    return Ty(dtype, lanes)


def array_load(low: Lowering, array: ArrayRef, node: ast.expr) -> Expr:
    return Expr("aload", array.ty, (array_index(low, array, node),), (array.name,))


def array_index(low: Lowering, array: ArrayRef, node: ast.expr) -> Expr:
    index = index_expr(low, node)
    known = compile_time(index)
    if known is not None and not 0 <= known < array.size:
        raise low.fail(node, f"index {known} is outside the array of {array.size}")
    return index


HANDLERS: dict[type[ast.expr], Callable[[Lowering, Any], Value]] = {
    ast.Constant: _constant,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Subscript: _subscript,
}
