"""Expressions of the vertex language to codelet IR, with compile-time evaluation."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import BOOL, I32, TRAPPING, Expr, Stmt, Ty, walk_expr
from poplar_py.codelets.errors import place
from poplar_py.codelets.fold import FOLDABLE, fold
from poplar_py.codelets.language_names import (
    BUILTIN_FUNCTIONS,
    LAYOUTS,
    MATH_BINARY,
    MATH_UNARY,
    TYPE_NAMES,
    vector_named,
)
from poplar_py.codelets.lowering import (
    MAX_EXPR_DEPTH,
    ArrayRef,
    Builtin,
    FieldRef,
    Helper,
    Local,
    Lowering,
    SelfRef,
    Value,
    compile_time,
)
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import DType, bool_

__all__ = [
    "condition",
    "constant_int",
    "element_index",
    "index_expr",
    "lower_expr",
    "lower_operands",
    "read_local",
    "rvalue",
    "to_ref",
    "type_value",
]

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


def lower_expr(low: Lowering, node: ast.expr) -> Value:
    """The value of an expression: IR, or something known at compile time."""
    if type(node) in FOLDABLE:
        known = fold(low, node)
        if known is not None:
            return known
    low.depth += 1
    if low.depth > MAX_EXPR_DEPTH:
        raise low.fail(node, "the expression is nested too deeply", "use locals")
    handler = _HANDLERS.get(type(node))
    if handler is None:
        name = type(node).__name__.lower()
        raise low.fail(node, f"the expression form {name!r} is not in the vertex language")
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
    if isinstance(value, (Expr, int, float)) and not (isinstance(value, Expr) and value.ty.ref):
        return value
    what = _describe(value)
    raise low.fail(node, f"{what} is no number here", "index it" if "field" in what else "")


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
        case Expr():
            return "a row of a field"
        case _:
            return "this"


def lower_operands(low: Lowering, nodes: Sequence[ast.expr]) -> list[build.Operand]:
    """Operands in order. What comes before a helper call with effects is evaluated before it."""
    done: list[build.Operand] = []
    for node in nodes:
        mark = len(low.out)
        value = rvalue(low, node)
        if len(low.out) > mark:
            done = [_pin(low, v, mark) for v in done]
        done.append(value)
    return done


def _pin(low: Lowering, value: build.Operand, mark: int) -> build.Operand:
    if not isinstance(value, Expr) or not any(e.op in _CHANGES for e in walk_expr(value)):
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
    value = lower_expr(low, node)
    if isinstance(value, DType):
        return Ty(value)
    if isinstance(value, Ty):
        return value
    raise low.fail(node, "a type is wanted here, such as f32 or f32x16")


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


def _name(low: Lowering, node: ast.Name) -> Value:
    name = node.id
    if name in low.frame.names:
        return read_local(low.frame.names[name])
    if name in low.frame.lost:
        raise low.fail(
            node,
            f"{name} may be unassigned here: it was set in a branch or loop only",
            "assign it before the branch or loop",
        )
    if name in low.bindings:
        return low.bindings[name]
    module = low.frame.module
    if name in module.constants:
        return _module_constant(low, name)
    if name in module.functions:
        return Helper(module.functions[name], module)
    found = TYPE_NAMES.get(name) or vector_named(name)
    if found is not None:
        return found
    if name in LAYOUTS:
        return LAYOUTS[name]
    if name in BUILTIN_FUNCTIONS:
        return Builtin(name)
    raise low.fail(node, f"unknown name {name}")


def _module_constant(low: Lowering, name: str) -> Value:
    module = low.frame.module
    key = (module.file, name)
    if key not in low.constant_values:
        if len(low.inlining) > MAX_EXPR_DEPTH:
            raise low.fail(module.constants[name], f"the constant {name} depends on itself")
        low.inlining.append(name)
        low.constant_values[key] = lower_expr(low, module.constants[name])
        low.inlining.pop()
    return low.constant_values[key]


def read_local(binding: Local | Value) -> Value:
    if not isinstance(binding, Local):
        return binding
    if binding.known is not None:
        return binding.known
    return Expr("local", binding.ty, (), (binding.name,))


def _attribute(low: Lowering, node: ast.Attribute) -> Value:
    if isinstance(node.value, ast.Name) and node.value.id == "math":
        return _math_name(low, node)
    base = lower_expr(low, node.value)
    if not isinstance(base, SelfRef):
        raise low.fail(node, "only attributes of self exist in the vertex language")
    name = node.attr
    if name in low.fields:
        f = low.fields[name]
        if f.kind == "state" and f.rank == 0:
            return Expr("state", Ty(f.dtype), (), (name,))
        return FieldRef(f)
    if name in low.class_constants:
        return lower_expr(low, low.class_constants[name])
    if name in low.template.methods:
        return Helper(low.template.methods[name], low.template.module, True)
    raise low.fail(
        node,
        f"{low.template.name} has no field {name}",
        "fields are: " + ", ".join(low.fields),
    )


def _math_name(low: Lowering, node: ast.Attribute) -> Value:
    """`math.pi`, `math.sqrt`: the constants and functions the language has under these names."""
    constants = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf, "nan": math.nan}
    if node.attr in constants:
        return constants[node.attr]
    if node.attr in MATH_UNARY or node.attr in MATH_BINARY:
        return Builtin(node.attr)
    raise low.fail(node, f"there is no math.{node.attr} in the vertex language")


def _tuple(low: Lowering, node: ast.Tuple | ast.List) -> Value:
    return tuple(lower_expr(low, item) for item in node.elts)


# ---------------------------------------------------------------- operators


def _binop(low: Lowering, node: ast.BinOp) -> Value:
    op = BINARY_OPERATORS.get(type(node.op))
    if op is None:
        raise low.fail(node, "this operator is not in the vertex language")
    a, b = lower_operands(low, [node.left, node.right])
    return arithmetic(low, node, op, a, b)


def arithmetic(
    low: Lowering, node: ast.AST, op: str, a: build.Operand, b: build.Operand
) -> build.Operand:
    """One operator; folded when both operands are known ints (or Python numbers)."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return _fold(low, node, op, a, b)
    x, y = compile_time(a), compile_time(b)
    if isinstance(x, int) and isinstance(y, int) and op != "div":
        return _fold_typed(low, node, op, a, b, x, y)
    if op == "pow":
        return _power(a, b)
    return build.binary(op, a, b)


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
    left, right = build.promote(a, b) if op not in ("shl", "shr") else (a, a)
    assert isinstance(left, Expr) or isinstance(right, Expr)
    typed = left if isinstance(left, Expr) else right
    assert isinstance(typed, Expr)
    if typed.ty.dtype is bool_ or typed.ty.dtype.is_float:
        return build.binary(op, a, b)
    if op in ("shl", "shr"):
        y &= typed.ty.dtype.bits - 1
    value = _fold(low, node, op, x, y)
    return build.cast(build.const(value, Ty(_WIDE_INT)), typed.ty)


_WIDE_INT = TYPE_NAMES["i64"]


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
        return build.unary("inv", value) if isinstance(value, Expr) else ~int(value)
    if not isinstance(value, Expr):
        return -value
    if isinstance(known, int) and value.ty.dtype.is_integer:
        return arithmetic(low, node, "sub", build.const(0, value.ty), value)
    return build.unary("neg", value)


def _compare(low: Lowering, node: ast.Compare) -> Value:
    values = [lower_expr(low, n) for n in (node.left, *node.comparators)]
    result: build.Operand | None = None
    nodes = (node.left, *node.comparators)
    for k, op_node in enumerate(node.ops):
        op = _COMPARE.get(type(op_node))
        if op is None:
            raise low.fail(node, "this comparison is not in the vertex language")
        term = _compare_two(low, node, op, (nodes[k], values[k]), (nodes[k + 1], values[k + 1]))
        result = term if result is None else logical(low, node, "and", [result, term])
    assert result is not None
    return result


def _compare_two(
    low: Lowering,
    node: ast.AST,
    op: str,
    left: tuple[ast.expr, Value],
    right: tuple[ast.expr, Value],
) -> build.Operand:
    types = (DType, Ty, str, type(None), tuple)
    if isinstance(left[1], types) or isinstance(right[1], types):
        if op not in ("eq", "ne"):
            raise low.fail(node, "types have no order")
        return bool(_PYTHON[op](_plain(left[1]), _plain(right[1])))
    a, b = as_operand(low, left[0], left[1]), as_operand(low, right[0], right[1])
    x, y = compile_time(a), compile_time(b)
    if x is not None and y is not None:
        return bool(_PYTHON[op](x, y))
    return build.compare(op, a, b)


def _plain(value: Value) -> Value:
    return value.dtype if isinstance(value, Ty) and value.lanes == 1 else value


def _boolop(low: Lowering, node: ast.BoolOp) -> Value:
    op = "and" if isinstance(node.op, ast.And) else "or"
    result: Value = op == "and"
    for item in node.values:
        known = compile_time(result)
        if known is not None and bool(known) == (op == "or"):
            return bool(known)
        if known is not None:
            result = _truth(low, item)
            continue
        assert isinstance(result, Expr)
        saved, low.out = low.out, []
        term = _truth(low, item)
        inner, low.out = low.out, saved
        if not inner:
            result = logical(low, node, op, [result, term])
            continue
        name = low.fresh("b")
        local = Expr("local", BOOL, (), (name,))
        low.emit(Stmt("assign", (result,), (name,)))
        inner.append(Stmt("assign", (build.as_expr(term),), (name,), line=low.line))
        test = local if op == "and" else build.logical_not(local)
        low.emit(Stmt("if", (test,), (), inner))
        result = local
    return result


def _truth(low: Lowering, node: ast.expr) -> build.Operand:
    value = rvalue(low, node)
    known = compile_time(value)
    return bool(known) if known is not None else build.to_bool(value)


def logical(low: Lowering, node: ast.AST, op: str, terms: Sequence[build.Operand]) -> build.Operand:
    """and/or of truth values; the second scalar is only evaluated if needed when it may trap."""
    a, b = terms
    for x, y in ((a, b), (b, a)):
        if not isinstance(x, Expr):
            neutral = bool(x) == (op == "and")
            return y if neutral else bool(x)
    assert isinstance(a, Expr)
    assert isinstance(b, Expr)
    if a.ty.lanes == 1 and b.ty.lanes == 1 and any(e.op in TRAPPING for e in walk_expr(b)):
        return Expr("andalso" if op == "and" else "orelse", BOOL, (a, b))
    return build.binary(op, a, b)


def _ifexp(low: Lowering, node: ast.IfExp) -> Value:
    cond = condition(low, node.test)
    if isinstance(cond, bool):
        return lower_expr(low, node.body if cond else node.orelse)
    a, b = lower_operands(low, [node.body, node.orelse])
    x, y = build.promote(a, b)
    if any(e.op in TRAPPING for e in (*walk_expr(x), *walk_expr(y))):
        return Expr("choose", x.ty, (cond, x, y))
    return build.select(cond, x, y)


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
        at = constant_int(low, node.slice, "an index into a tuple")
        if not -len(base) <= at < len(base):
            raise low.fail(node, f"the tuple has {len(base)} parts")
        return base[at]
    if isinstance(base, Expr) and base.ty.ref:
        return build.load(base, element_index(low, node.slice))
    if isinstance(base, Expr) and base.ty.lanes > 1:
        lane = constant_int(low, node.slice, "the lane of a vector")
        if not 0 <= lane < base.ty.lanes:
            raise low.fail(node, f"lane {lane} of {base.ty} does not exist")
        return Expr("extract", Ty(base.ty.dtype), (base,), (lane,))
    raise low.fail(node, f"{_describe(base)} cannot be indexed")


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


def _call(low: Lowering, node: ast.Call) -> Value:
    from poplar_py.codelets.lower_calls import lower_call

    return lower_call(low, node)


_HANDLERS: dict[type[ast.expr], Callable[[Lowering, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.BinOp: _binop,
    ast.UnaryOp: _unaryop,
    ast.Compare: _compare,
    ast.BoolOp: _boolop,
    ast.IfExp: _ifexp,
    ast.Subscript: _subscript,
    ast.Call: _call,
}
