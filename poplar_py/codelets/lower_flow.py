"""Control flow of the vertex language: branches, loops, returns."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, Ty
from poplar_py.codelets.lower_expr import (
    condition,
    constant_int,
    index_expr,
    lower_expr,
)
from poplar_py.codelets.lower_stmt import HANDLERS, lower_body, number_of
from poplar_py.codelets.lowering import (
    ArrayRef,
    FieldRef,
    Local,
    Lowering,
    Value,
    stored_names,
)
from poplar_py.types import DType, i64

__all__: list[str] = []


def forget_known(low: Lowering, names: frozenset[str]) -> None:
    """Locals about to change in a loop or branch no longer have a known value."""
    for name in names:
        binding = low.frame.names.get(name)
        if isinstance(binding, Local) and binding.known is not None:
            low.frame.names[name] = Local(binding.name, binding.ty)


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
    numbers = [number_of(low, p, node) for p in parts if p is not None]  # type: ignore[arg-type]
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


HANDLERS.update(
    {
        ast.If: _if,
        ast.While: _while,
        ast.For: _for,
        ast.Break: _break,
        ast.Continue: _continue,
        ast.Return: _return,
    }
)
