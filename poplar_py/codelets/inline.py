"""Helper functions of the vertex language: their bodies in place of their calls."""

from __future__ import annotations

import ast

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import Expr, Stmt, walk_stmts
from poplar_py.codelets.lower_expr import (
    as_operand,
    as_type,
    lower_expr,
    lower_values,
)
from poplar_py.codelets.lowering import (
    MAX_INLINE_DEPTH,
    FieldRef,
    Frame,
    Helper,
    Local,
    Lowering,
    SelfRef,
    Value,
    guard,
    stored_names,
)

__all__ = ["inline"]


def inline(low: Lowering, node: ast.Call, helper: Helper) -> Value:
    """The body of a helper in place of its call. Returns its result."""
    function = helper.node
    if function.name in low.inlining:
        raise low.fail(node, f"{function.name} calls itself: recursion is not possible on a tile")
    if len(low.inlining) >= MAX_INLINE_DEPTH:
        raise low.fail(node, "helpers call each other too deeply")
    from poplar_py.codelets.lower_stmt import lower_body

    frame = Frame({}, helper.module, low.fresh(function.name), None, function.returns)
    _bind_arguments(low, node, helper, frame)
    caller, low.frame = low.frame, frame
    low.inlining.append(function.name)
    saved, low.out = low.out, []
    loops, low.loops = low.loops, 0
    try:
        ends = lower_body(low, function.body)
        if frame.results is not None and not ends:
            raise low.fail(function, f"{function.name} does not return a value on every path")
    finally:
        body, low.out = low.out, saved
        low.inlining.pop()
        low.frame, low.loops = caller, loops
    _emit_inlined(low, frame, body)
    if frame.results is None:
        return None
    values: list[Value] = [Expr("local", r.ty, (), (r.name,)) for r in frame.results]
    return values[0] if len(values) == 1 and not frame.returns_tuple else tuple(values)


def _emit_inlined(low: Lowering, frame: Frame, body: list[Stmt]) -> None:
    """Drop the block when its only `leave` is the last statement."""
    if body and body[-1].op == "leave" and body[-1].attr == (frame.label,):
        body.pop()
    if frame.leaves > 1 or (frame.leaves == 1 and _mentions(body, frame.label)):
        low.emit(Stmt("block", (), (frame.label,), body))
    else:
        low.out.extend(body)


def _mentions(body: list[Stmt], label: str) -> bool:
    return any(s.op == "leave" and s.attr == (label,) for s in walk_stmts(body))


def _bind_arguments(low: Lowering, node: ast.Call, helper: Helper, frame: Frame) -> None:
    spec = helper.node.args
    if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs:
        raise low.fail(helper.node, "a helper has plain positional parameters only")
    params = list(spec.args)
    if helper.method:
        frame.names[params.pop(0).arg if params else "self"] = SelfRef()
    nodes, given = _argument_nodes(low, node, helper.node, params)
    values = lower_values(low, nodes[:given])
    values += [lower_expr(low, d) for d in nodes[given:]]
    for param, value, at in zip(params, values, nodes, strict=True):
        with guard(low, at):
            _enter(frame, param.arg, _bind_argument(low, helper, param, value, at))


def _enter(frame: Frame, name: str, bound: Local | Value) -> None:
    """A parameter as a name of the helper's frame."""
    frame.names[name] = bound
    if not isinstance(bound, Local):
        return
    frame.ir_names[name] = bound.name
    if not bound.ty.ref:
        frame.types[name] = bound.ty


def _argument_nodes(
    low: Lowering, node: ast.Call, function: ast.FunctionDef, params: list[ast.arg]
) -> tuple[list[ast.expr], int]:
    """What each parameter gets, in order, and how many of them the call gives."""
    args, names = list(node.args), [p.arg for p in params]
    least = len(names) - len(function.args.defaults)
    named = {k.arg: k.value for k in node.keywords}
    wrong = next((k for k in named if k not in names[len(args) :]), None)
    if named and (wrong is not None or None in named):
        raise low.fail(node, f"{function.name} has no parameter {wrong} left to give")
    for i, name in enumerate(names[len(args) :], len(args)):
        if not named:
            break
        if name not in named and i < least:
            break
        args.append(named.pop(name) if name in named else function.args.defaults[i - least])
    if named or not least <= len(args) <= len(names):
        raise low.fail(node, f"{function.name} wants {len(names)} arguments")
    given = len(args)
    return [*args, *function.args.defaults[given - least :]], given


def _bind_argument(
    low: Lowering, helper: Helper, param: ast.arg, value: Value, at: ast.expr
) -> Local | Value:
    if isinstance(value, FieldRef) and value.field.rank == 0 and param.annotation is not None:
        value = as_operand(low, at, value)
    if isinstance(value, Expr) and value.ty.ref:
        return low.alias(value, param.arg) if value.op == "row" else value
    if not isinstance(value, (Expr, int, float)):
        return value
    if param.annotation is not None:
        caller, low.frame = low.frame, Frame({}, helper.module)
        annotated = lower_expr(low, param.annotation)
        low.frame = caller
        ty = as_type(annotated)
        if ty is not None:
            value = build.cast(build.as_expr(value, ty), ty)
    if not isinstance(value, Expr):
        if param.arg not in stored_names(helper.node):
            return value
        value = build.as_expr(value)
    name = low.fresh(param.arg)
    known = value if value.op == "const" and value.ty.lanes == 1 else None
    low.emit(Stmt("assign", (value,), (name,)))
    return Local(name, value.ty, known if known and isinstance(known.attr[0], int) else None)
