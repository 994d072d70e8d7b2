"""Statements of the vertex language to codelet IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, Ty
from poplar_py.codelets.errors import place
from poplar_py.codelets.hints import statement_hint
from poplar_py.codelets.lower_expr import (
    array_index,
    as_operand,
    condition,
    constant_int,
    element_index,
    field_ref,
    index_expr,
    lower_expr,
    pin,
    rvalue,
    type_value,
)
from poplar_py.codelets.lower_ops import BINARY_OPERATORS as OPERATORS
from poplar_py.codelets.lower_vectors import check_writable
from poplar_py.codelets.lowering import (
    ArrayRef,
    FieldRef,
    Local,
    Lowering,
    Value,
    compile_time,
)
from poplar_py.diagnostics import PoplarPyError

__all__ = ["HANDLERS", "lower_body", "number_of"]


def lower_body(low: Lowering, body: Sequence[ast.stmt]) -> bool:
    """Statements in order. True when control does not reach the end."""
    for node in body:
        if low.frame.module is low.template.module:  # else the line of the call, in its own file
            low.line = node.lineno
        handler = HANDLERS.get(type(node))
        if handler is None:
            words, remedy = statement_hint(node)
            raise low.fail(node, f"{words} is not in the vertex language", remedy)
        try:
            if handler(low, node):
                return True
        except PoplarPyError as error:
            if not error.loc.known:
                error.loc = place(low.frame.module.file, node)
            raise
    return False


# ---------------------------------------------------------------- assignment


def _assign(low: Lowering, node: ast.Assign) -> bool:
    value = lower_expr(low, node.value)
    if len(node.targets) > 1 or isinstance(node.targets[0], ast.Tuple):
        value = _kept(low, value)
    for target in node.targets:
        _assign_to(low, target, value, node.value)
    return False


def _kept(low: Lowering, value: Value) -> Value:
    """A value that several stores use, evaluated before the first of them."""
    if isinstance(value, tuple):
        return tuple(_kept(low, v) for v in value)
    if isinstance(value, FieldRef) and value.field.rank == 0:
        value = build.load(field_ref(value), build.const(0, I32))
    if not isinstance(value, Expr) or value.op == "const" or value.ty.ref:
        return value
    return low.temp(value)


def _assign_to(low: Lowering, target: ast.expr, value: Value, at: ast.expr) -> None:
    """Stores to a target, or to the targets of a tuple one after the other."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        _store_to(low, target, value, at)
        return
    if not isinstance(value, tuple) or len(value) != len(target.elts):
        raise low.fail(at, f"{len(target.elts)} values are wanted on the right")
    for item, part in zip(target.elts, value, strict=True):
        _assign_to(low, item, part, at)


def _annassign(low: Lowering, node: ast.AnnAssign) -> bool:
    if not isinstance(node.target, ast.Name):
        raise low.fail(node, "only a local can have a type here")
    if node.value is None:
        raise low.fail(node, "a local needs a first value")
    ty = type_value(low, node.annotation)
    name = node.target.id
    known = low.frame.types.get(name)
    if known is not None and known != ty:
        raise low.fail(node, f"{name} is {known} already", "use another name")
    value = rvalue(low, node.value)
    _no_silent_float(low, node.value, value, ty)
    _set_local(low, name, build.cast(build.as_expr(value, ty), ty))
    return False


def _augassign(low: Lowering, node: ast.AugAssign) -> bool:
    op = OPERATORS.get(type(node.op))
    if op is None:
        raise low.fail(node, "this operator is not in the vertex language")
    target = node.target
    if isinstance(target, ast.Subscript):
        target = _pin_index(low, target)
    read = ast.copy_location(_as_load(target), target)
    value = ast.copy_location(ast.BinOp(left=read, op=node.op, right=node.value), node)
    _store_to(low, target, lower_expr(low, value), node.value)
    return False


def _as_load(node: ast.expr) -> ast.expr:
    match node:
        case ast.Name():
            return ast.Name(id=node.id, ctx=ast.Load())
        case ast.Attribute():
            return ast.Attribute(value=node.value, attr=node.attr, ctx=ast.Load())
        case ast.Subscript():
            return ast.Subscript(value=node.value, slice=node.slice, ctx=ast.Load())
        case _:
            return node


def _pin_index(low: Lowering, node: ast.Subscript) -> ast.Subscript:
    """Evaluate the index of `a[i] += e` once when it is more than a name or a number."""
    if not any(isinstance(n, ast.Call) for n in ast.walk(node.slice)):
        return node
    value = index_expr(low, node.slice)
    if value.op == "const":
        return node
    name = low.fresh("index")
    low.emit(Stmt("assign", (value,), (name,)))
    low.frame.names[name] = Local(name, value.ty)
    pinned = ast.copy_location(ast.Name(id=name, ctx=ast.Load()), node.slice)
    made = ast.Subscript(value=node.value, slice=pinned, ctx=node.ctx)
    return ast.copy_location(made, node)


def _store_to(low: Lowering, target: ast.expr, value: Value, at: ast.expr) -> None:
    if isinstance(target, ast.Name):
        _assign_name(low, target, value, at)
    elif isinstance(target, ast.Attribute):
        _assign_attribute(low, target, number_of(low, value, at), at)
    elif isinstance(target, ast.Subscript):
        _assign_subscript(low, target, number_of(low, value, at), at)
    else:
        raise low.fail(target, "this cannot be assigned to")


def number_of(low: Lowering, value: Value, at: ast.expr) -> build.Operand:
    return as_operand(low, at, value)


def _assign_name(low: Lowering, target: ast.Name, value: Value, at: ast.expr) -> None:
    name = target.id
    if name in low.frame.loop_names:
        raise low.fail(target, f"the loop variable {name} cannot be assigned", "use another name")
    if isinstance(value, FieldRef) and value.field.rank == 0:
        value = number_of(low, value, at)
    if isinstance(value, Expr) and value.ty.ref:
        low.frame.names[name] = low.alias(value, name)
        return
    if not isinstance(value, (Expr, int, float)):
        if isinstance(low.frame.names.get(name), Local):
            raise low.fail(target, f"{name} is a number already", "use another name")
        low.frame.names[name] = value
        return
    if name.isupper():
        if compile_time(value) is None:
            raise low.fail(at, f"{name} is in capitals: its value must be known at compile time")
        low.frame.names[name] = value
        return
    _set_local(low, name, _to_local_type(low, name, value, at))


def _to_local_type(low: Lowering, name: str, value: build.Operand, at: ast.expr) -> Expr:
    ty = low.frame.types.get(name)
    if ty is None:
        return build.as_expr(value)
    _no_silent_float(low, at, value, ty)
    expr = build.as_expr(value, ty)
    if expr.ty.lanes > ty.lanes:
        raise low.fail(at, f"{expr.ty} assigned to {name}, which is {ty}")
    return build.cast(expr, ty)


def _no_silent_float(low: Lowering, at: ast.expr, value: build.Operand, ty: Ty) -> None:
    is_float = value.ty.dtype.is_float if isinstance(value, Expr) else isinstance(value, float)
    if is_float and not ty.dtype.is_float:
        raise low.fail(at, f"a float assigned to {ty}", f"write cast(x, {ty}), or make it a float")


def _set_local(low: Lowering, name: str, value: Expr) -> None:
    low.frame.types[name] = value.ty
    ir_name = low.frame.ir_names.setdefault(name, low.fresh(name))
    low.emit(Stmt("assign", (value,), (ir_name,)))
    number = compile_time(value)
    known = value if isinstance(number, int) and not value.ty.dtype.is_float else None
    low.frame.names[name] = Local(ir_name, value.ty, known)
    low.frame.lost.pop(name, None)


def _assign_attribute(
    low: Lowering, target: ast.Attribute, value: build.Operand, at: ast.expr
) -> None:
    f = low.fields.get(target.attr)
    if f is None:
        raise low.fail(target, f"{low.template.name} has no field {target.attr}")
    if f.kind == "state" and f.rank == 0:
        low.assigned_state.add(f.name)
        ty = Ty(f.dtype)
        _no_silent_float(low, at, value, ty)
        stored = build.cast(build.as_expr(value, ty), ty)
        low.emit(Stmt("setstate", (stored,), (f.name,)))
        return
    if f.rank != 0:
        raise low.fail(target, f"{f.name} has rank {f.rank}: index it to assign")
    _store(low, target, field_ref(FieldRef(f)), build.const(0, I32), value, at)


def _assign_subscript(
    low: Lowering, target: ast.Subscript, value: build.Operand, at: ast.expr
) -> None:
    mark = len(low.out)
    base = lower_expr(low, target.value)
    if isinstance(base, ArrayRef):
        _no_silent_float(low, at, value, base.ty)
        index = array_index(low, base, target.slice)
        value = pin(low, value, mark) if len(low.out) > mark else value
        stored = build.cast(build.as_expr(value, base.ty), base.ty)
        low.emit(Stmt("astore", (index, stored), (base.name,)))
        return
    if isinstance(base, FieldRef) and base.field.rank < 2:
        base = field_ref(base)
    if isinstance(base, Expr) and base.ty.lanes > 1 and isinstance(target.value, ast.Name):
        _set_lane(low, target, base, value, at)
        return
    if isinstance(base, tuple):
        raise low.fail(target, "a tuple is fixed", "make it an array: a = array(f32, [1.0, 2.0])")
    if not isinstance(base, Expr) or not base.ty.ref:
        raise low.fail(target, "this cannot be assigned to", "use insert() for vector lanes")
    index = element_index(low, target.slice)
    value = pin(low, value, mark) if len(low.out) > mark else value
    _store(low, target, base, index, value, at)


def _set_lane(
    low: Lowering, target: ast.Subscript, vector: Expr, value: build.Operand, at: ast.expr
) -> None:
    """`v[K] = s` of a local short vector: the local becomes insert(v, K, s)."""
    assert isinstance(target.value, ast.Name)
    lane = constant_int(low, target.slice, "the lane of a vector")
    if not 0 <= lane < vector.ty.lanes:
        raise low.fail(target, f"lane {lane} of {vector.ty} does not exist")
    ty = Ty(vector.ty.dtype)
    _no_silent_float(low, at, value, ty)
    scalar = build.cast(build.as_expr(value, ty), ty)
    made = Expr("insert", vector.ty, (vector, scalar), (lane,))
    _assign_name(low, target.value, made, at)


def _store(
    low: Lowering, target: ast.AST, ref: Expr, index: Expr, value: build.Operand, at: ast.expr
) -> None:
    check_writable(low, target, ref)
    try:
        stored = build.store_value(ref, value, 1)
    except PoplarPyError as error:
        raise error.at(place(low.frame.module.file, at)) from None
    low.emit(Stmt("store", (ref, index, stored)))


# ---------------------------------------------------------------- the rest


def _expr(low: Lowering, node: ast.Expr) -> bool:
    if isinstance(node.value, ast.Constant):
        return False
    if not isinstance(node.value, ast.Call):
        raise low.fail(node, "this statement has no effect")
    lower_expr(low, node.value)
    return False


def _assert(low: Lowering, node: ast.Assert) -> bool:
    cond = condition(low, node.test)
    if cond is True:
        return False
    message = ""
    if isinstance(node.msg, ast.Constant):
        message = str(node.msg.value)
    if cond is False:
        raise low.fail(node, message or "the compile-time assertion does not hold")
    low.emit(Stmt("abort", (build.logical_not(cond),)))
    return False


def _pass(_low: Lowering, _node: ast.Pass) -> bool:
    return False


HANDLERS: dict[type[ast.stmt], Callable[[Lowering, Any], bool]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annassign,
    ast.AugAssign: _augassign,
    ast.Expr: _expr,
    ast.Assert: _assert,
    ast.Pass: _pass,
}
