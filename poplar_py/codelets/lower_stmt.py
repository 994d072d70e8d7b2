"""Statements of the vertex language to codelet IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, Ty
from poplar_py.codelets.errors import place
from poplar_py.codelets.lower_expr import BINARY_OPERATORS as OPERATORS
from poplar_py.codelets.lower_expr import (
    array_index,
    condition,
    constant_int,
    element_index,
    field_ref,
    index_expr,
    lower_expr,
    rvalue,
    type_value,
)
from poplar_py.codelets.lowering import (
    ArrayRef,
    FieldRef,
    Local,
    Lowering,
    Value,
    compile_time,
    stored_names,
)
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import DType, i64

__all__ = ["lower_body"]


def lower_body(low: Lowering, body: Sequence[ast.stmt]) -> bool:
    """Statements in order. True when control does not reach the end."""
    for node in body:
        low.line = node.lineno
        handler = _HANDLERS.get(type(node))
        if handler is None:
            name = type(node).__name__.lower()
            raise low.fail(node, f"the statement {name!r} is not in the vertex language")
        try:
            if handler(low, node):
                return True
        except PoplarPyError as error:
            if not error.loc.known:
                error.loc = place(low.frame.module.file, node)
            raise
    return False


def forget_known(low: Lowering, names: frozenset[str]) -> None:
    """Locals about to change in a loop or branch no longer have a known value."""
    for name in names:
        binding = low.frame.names.get(name)
        if isinstance(binding, Local) and binding.known is not None:
            low.frame.names[name] = Local(binding.name, binding.ty)


# ---------------------------------------------------------------- assignment


def _assign(low: Lowering, node: ast.Assign) -> bool:
    if len(node.targets) != 1:
        raise low.fail(node, "a chained assignment is not in the vertex language")
    target = node.targets[0]
    if isinstance(target, ast.Tuple):
        _assign_tuple(low, node, target)
        return False
    _store_to(low, target, lower_expr(low, node.value), node.value)
    return False


def _assign_tuple(low: Lowering, node: ast.Assign, target: ast.Tuple) -> None:
    value = lower_expr(low, node.value)
    if not isinstance(value, tuple) or len(value) != len(target.elts):
        raise low.fail(node, f"{len(target.elts)} values are wanted on the right")
    pinned = [
        low.temp(v) if isinstance(v, Expr) and v.op != "const" and not v.ty.ref else v
        for v in value
    ]
    for item, part in zip(target.elts, pinned, strict=True):
        _store_to(low, item, part, node.value)


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
        _assign_attribute(low, target, _number(low, value, at), at)
    elif isinstance(target, ast.Subscript):
        _assign_subscript(low, target, _number(low, value, at), at)
    else:
        raise low.fail(target, "this cannot be assigned to")


def _number(low: Lowering, value: Value, at: ast.expr) -> build.Operand:
    from poplar_py.codelets.lower_expr import as_operand

    return as_operand(low, at, value)


def _assign_name(low: Lowering, target: ast.Name, value: Value, at: ast.expr) -> None:
    name = target.id
    if name in low.frame.loop_names:
        raise low.fail(target, f"the loop variable {name} cannot be assigned", "use another name")
    if isinstance(value, FieldRef) and value.field.rank == 0:
        value = _number(low, value, at)
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
    base = lower_expr(low, target.value)
    if isinstance(base, ArrayRef):
        _no_silent_float(low, at, value, base.ty)
        stored = build.cast(build.as_expr(value, base.ty), base.ty)
        index = array_index(low, base, target.slice)
        low.emit(Stmt("astore", (index, stored), (base.name,)))
        return
    if isinstance(base, FieldRef) and base.field.rank < 2:
        base = field_ref(base)
    if not isinstance(base, Expr) or not base.ty.ref:
        raise low.fail(target, "this cannot be assigned to", "use insert() for vector lanes")
    _store(low, target, base, element_index(low, target.slice), value, at)


def _store(
    low: Lowering, target: ast.AST, ref: Expr, index: Expr, value: build.Operand, at: ast.expr
) -> None:
    from poplar_py.codelets.lower_calls import check_writable

    check_writable(low, target, ref)
    try:
        stored = build.store_value(ref, value, 1)
    except PoplarPyError as error:
        raise error.at(place(low.frame.module.file, at)) from None
    low.emit(Stmt("store", (ref, index, stored)))


# ---------------------------------------------------------------- control flow


def _if(low: Lowering, node: ast.If) -> bool:
    cond = condition(low, node.test)
    if isinstance(cond, bool):
        return lower_body(low, node.body if cond else node.orelse)
    line = low.line
    before = dict(low.frame.names)
    then, then_ends, then_names = _branch(low, node.body, before)
    orelse, else_ends, else_names = _branch(low, node.orelse, before)
    low.line = line
    low.emit(Stmt("if", (cond,), (), then, orelse))
    if then_ends and else_ends:
        return True
    if then_ends or else_ends:
        low.frame.names = else_names if then_ends else then_names
        return False
    low.frame.names = _merge(low, then_names, else_names)
    return False


def _branch(
    low: Lowering, body: Sequence[ast.stmt], before: dict[str, Any]
) -> tuple[list[Stmt], bool, dict[str, Any]]:
    saved, low.out = low.out, []
    low.frame.names = dict(before)
    ends = lower_body(low, body)
    out, low.out = low.out, saved
    return out, ends, low.frame.names


def _merge(low: Lowering, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in {**a, **b}:
        if name not in a or name not in b:
            low.frame.lost[name] = low.line
            continue
        x, y = a[name], b[name]
        if isinstance(x, Local) and isinstance(y, Local) and x.name == y.name:
            merged[name] = x if x.known == y.known else Local(x.name, x.ty)
        elif x == y:
            merged[name] = x
        else:
            low.frame.lost[name] = low.line
    return merged


def _loop_body(low: Lowering, body: Sequence[ast.stmt]) -> list[Stmt]:
    before = dict(low.frame.names)
    low.loops += 1
    out, _, after = _branch(low, body, before)
    low.loops -= 1
    for name in after:
        if name not in before:
            low.frame.lost[name] = low.line
    low.frame.names = before
    return out


def _while(low: Lowering, node: ast.While) -> bool:
    _no_else(low, node)
    forget_known(low, stored_names(node))
    line = low.line
    saved, low.out = low.out, []
    cond = condition(low, node.test)
    head, low.out = low.out, saved
    if cond is False:
        return False
    if cond is not True and not head:
        body = _loop_body(low, node.body)
        low.line = line
        low.emit(Stmt("while", (cond,), (), body))
        return False
    if cond is not True:
        head.append(
            Stmt("if", (build.logical_not(cond),), (), [Stmt("break", line=line)], line=line)
        )
    body = head + _loop_body(low, node.body)
    low.line = line
    low.emit(Stmt("loop", (), (), body))
    return cond is True and not _breaks(body)


def _breaks(body: list[Stmt]) -> bool:
    for stmt in body:
        if stmt.op == "break":
            return True
        if stmt.op in ("if", "block") and (_breaks(stmt.body) or _breaks(stmt.orelse)):
            return True
    return False


def _no_else(low: Lowering, node: ast.While | ast.For) -> None:
    if node.orelse:
        raise low.fail(node.orelse[0], "else after a loop is not in the vertex language")


def _for(low: Lowering, node: ast.For) -> bool:
    _no_else(low, node)
    if not isinstance(node.target, ast.Name):
        raise low.fail(node.target, "the loop variable must be one name")
    call = node.iter
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.keywords:
        return _for_values(low, node)
    if call.func.id == "unroll":
        return _unroll(low, node, node.target.id, call)
    if call.func.id == "range":
        return _for_range(low, node, node.target.id, call)
    return _for_values(low, node)


def _for_values(low: Lowering, node: ast.For) -> bool:
    values = lower_expr(low, node.iter)
    assert isinstance(node.target, ast.Name)
    if isinstance(values, (FieldRef, ArrayRef)) or (isinstance(values, Expr) and values.ty.ref):
        return _for(low, _by_index(low, node))
    if not isinstance(values, tuple):
        raise low.fail(node.iter, "a loop runs over range(...), unroll(...) or a tuple")
    return _unrolled(low, node, node.target.id, values)


def _by_index(low: Lowering, node: ast.For) -> ast.For:
    """`for v in run: ...` as `for i in range(len(run)): v = run[i]; ...`."""
    name = low.fresh("at")
    length = ast.Call(func=ast.Name(id="len", ctx=ast.Load()), args=[node.iter], keywords=[])
    rounds = ast.Call(func=ast.Name(id="range", ctx=ast.Load()), args=[length], keywords=[])
    element = ast.Subscript(
        value=node.iter, slice=ast.Name(id=name, ctx=ast.Load()), ctx=ast.Load()
    )
    first = ast.Assign(targets=[node.target], value=element)
    target = ast.Name(id=name, ctx=ast.Store())
    made = ast.For(target=target, iter=rounds, body=[first, *node.body], orelse=[])
    for part in (length, rounds, element, first, target, made, *ast.walk(element)):
        if not hasattr(part, "lineno") and isinstance(part, (ast.expr, ast.stmt)):
            ast.copy_location(part, node.iter)
    return ast.fix_missing_locations(made)


def _unroll(low: Lowering, node: ast.For, name: str, call: ast.Call) -> bool:
    bounds = [constant_int(low, a, "a bound of unroll") for a in call.args]
    if not 1 <= len(bounds) <= 3 or (len(bounds) == 3 and bounds[2] == 0):
        raise low.fail(call, "unroll wants 1 to 3 compile-time ints, like range")
    values = range(*bounds)
    if len(values) > 65536:
        raise low.fail(call, f"unroll of {len(values)} rounds is too much", "use range")
    return _unrolled(low, node, name, tuple(values))


def _unrolled(low: Lowering, node: ast.For, name: str, values: tuple[Value, ...]) -> bool:
    if _has_jump(node.body):
        raise low.fail(node, "break and continue cannot leave an unrolled loop", "use if")
    held = low.frame.names.get(name)
    for value in values:
        low.frame.names[name] = value
        low.frame.loop_names.add(name)
        ends = lower_body(low, node.body)
        low.frame.loop_names.discard(name)
        if ends:
            return True
    low.frame.names.pop(name, None)
    if held is not None:
        low.frame.names[name] = held
    return False


def _has_jump(body: Sequence[ast.stmt]) -> bool:
    for stmt in body:
        if isinstance(stmt, (ast.Break, ast.Continue)):
            return True
        if isinstance(stmt, ast.If) and (_has_jump(stmt.body) or _has_jump(stmt.orelse)):
            return True
    return False


def _for_range(low: Lowering, node: ast.For, name: str, call: ast.Call) -> bool:
    if not 1 <= len(call.args) <= 3:
        raise low.fail(call, "range wants 1 to 3 arguments")
    step = constant_int(low, call.args[2], "the step of range") if len(call.args) == 3 else 1
    if step == 0:
        raise low.fail(call.args[2], "the step of range is 0")
    start = index_expr(low, call.args[0]) if len(call.args) > 1 else build.const(0, I32)
    stop = index_expr(low, call.args[min(1, len(call.args) - 1)])
    ty = Ty(i64) if 8 in (start.ty.dtype.size, stop.ty.dtype.size) else I32
    forget_known(low, stored_names(node))
    line = low.line
    held = low.frame.names.get(name)
    ir_name = low.fresh(name)
    low.frame.names[name] = Local(ir_name, ty)
    low.frame.loop_names.add(name)
    body = _loop_body(low, node.body)
    low.frame.loop_names.discard(name)
    low.frame.names.pop(name, None)
    if held is not None:
        low.frame.names[name] = held
    low.line = line
    low.emit(Stmt("for", (start, stop), (ir_name, step), body, ty=ty))
    return False


def _break(low: Lowering, node: ast.Break) -> bool:
    if not low.loops:
        raise low.fail(node, "break outside a loop")
    low.emit(Stmt("break"))
    return True


def _continue(low: Lowering, node: ast.Continue) -> bool:
    if not low.loops:
        raise low.fail(node, "continue outside a loop")
    low.emit(Stmt("continue"))
    return True


def _return(low: Lowering, node: ast.Return) -> bool:
    if not low.frame.label:
        return _return_compute(low, node)
    if node.value is not None and not _is_none(node.value):
        if low.frame.bare_return:
            raise low.fail(node, "a return with and one without a value in one function")
        _set_results(low, node, lower_expr(low, node.value))
    elif low.frame.results is not None:
        raise low.fail(node, "a return with and one without a value in one function")
    else:
        low.frame.bare_return = True
    low.frame.leaves += 1
    low.emit(Stmt("leave", (), (low.frame.label,)))
    return True


def _return_compute(low: Lowering, node: ast.Return) -> bool:
    args: tuple[Expr, ...] = ()
    if node.value is not None and not _is_none(node.value):
        cond = condition(low, node.value)
        args = (build.as_expr(cond),)
    low.emit(Stmt("return", args))
    return True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _set_results(low: Lowering, node: ast.Return, value: Value) -> None:
    frame = low.frame
    frame.returns_tuple = isinstance(value, tuple)
    parts = value if isinstance(value, tuple) else (value,)
    numbers = [_number(low, p, node) for p in parts if p is not None]  # type: ignore[arg-type]
    exprs = [build.as_expr(n) for n in numbers]
    if frame.returns_annotation is not None and len(exprs) == 1:
        annotated = lower_expr(low, frame.returns_annotation)
        if isinstance(annotated, (DType, Ty)):
            ty = Ty(annotated) if isinstance(annotated, DType) else annotated
            exprs = [build.cast(build.as_expr(numbers[0], ty), ty)]
    if frame.results is None:
        frame.results = [Local(low.fresh("result"), e.ty) for e in exprs]
    if len(frame.results) != len(exprs):
        raise low.fail(node, "returns of different length")
    pinned = [low.temp(e) if len(exprs) > 1 else e for e in exprs]
    for local, expr in zip(frame.results, pinned, strict=True):
        low.emit(Stmt("assign", (build.cast(expr, local.ty),), (local.name,)))


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


_HANDLERS: dict[type[ast.stmt], Callable[[Lowering, Any], bool]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annassign,
    ast.AugAssign: _augassign,
    ast.If: _if,
    ast.While: _while,
    ast.For: _for,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Return: _return,
    ast.Expr: _expr,
    ast.Assert: _assert,
    ast.Pass: _pass,
}
