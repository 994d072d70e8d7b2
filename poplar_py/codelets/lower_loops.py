"""`for` of the vertex language: ranges, unrolled loops, loops over runs of elements."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, Ty
from poplar_py.codelets.cycles import ROUNDS
from poplar_py.codelets.lower_expr import constant_int, index_expr, lower_expr
from poplar_py.codelets.lower_flow import forget_known, loop_body, no_else
from poplar_py.codelets.lower_stmt import HANDLERS, lower_body
from poplar_py.codelets.lowering import (
    ArrayRef,
    FieldRef,
    Local,
    Lowering,
    Value,
    compile_time,
    stored_names,
)
from poplar_py.types import i64

__all__: list[str] = []

_PAIRS = frozenset({"enumerate", "zip"})


def _for(low: Lowering, node: ast.For) -> bool:
    no_else(low, node)
    call = node.iter
    function = (
        call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
    )
    if isinstance(call, ast.Call) and not call.keywords:
        if function in _PAIRS and function not in low.frame.names:
            return _for(low, _by_indices(low, node, call, function))
        if function == "unroll":
            return _unroll(low, node, _one_name(low, node), call)
        if function == "range":
            return _for_range(low, node, _one_name(low, node), call)
    values = lower_expr(low, node.iter)
    if isinstance(values, (FieldRef, ArrayRef)) or (isinstance(values, Expr) and values.ty.ref):
        return _for(low, _over(low, node, [node.iter], node.target))
    if not isinstance(values, tuple):
        raise low.fail(node.iter, "a loop runs over range(...), unroll(...), a run or a tuple")
    return _unrolled(low, node, node.target, values)


def _one_name(low: Lowering, node: ast.For) -> str:
    if not isinstance(node.target, ast.Name):
        raise low.fail(node.target, "the loop variable must be one name")
    return node.target.id


def _by_indices(low: Lowering, node: ast.For, call: ast.Call, function: str) -> ast.For:
    """`enumerate(run)` and `zip(a, b)` as a loop over indices."""
    target = node.target
    count = len(target.elts) if isinstance(target, ast.Tuple) else 1
    if function == "zip" and isinstance(target, ast.Tuple) and count == len(call.args):
        return _over(low, node, call.args, *target.elts)
    if function == "enumerate" and count == 2 and len(call.args) == 1:
        assert isinstance(target, ast.Tuple)
        return _over(low, node, call.args, target.elts[1], index=target.elts[0])
    wants = "for i, v in enumerate(run), for a, b in zip(x, y)"
    raise low.fail(call, f"{function} is known in this form: {wants}")


def _over(
    low: Lowering,
    node: ast.For,
    runs: Sequence[ast.expr],
    *targets: ast.expr,
    index: ast.expr | None = None,
) -> ast.For:
    """`for v in run: ...` as `for i in range(len(run)): v = run[i]; ...`, for several runs."""
    name = low.fresh("at")
    at = ast.Name(id=name, ctx=ast.Load())
    lengths: list[ast.expr] = [_call("len", [run]) for run in runs]
    rounds = _call("range", [lengths[0] if len(lengths) == 1 else _call("min", lengths)])
    first = [] if index is None else [ast.Assign(targets=[index], value=at)]
    first += [
        ast.Assign(targets=[target], value=ast.Subscript(value=run, slice=at, ctx=ast.Load()))
        for target, run in zip(targets, runs, strict=True)
    ]
    variable = ast.Name(id=name, ctx=ast.Store())
    made = ast.For(target=variable, iter=rounds, body=[*first, *node.body], orelse=[])
    for part in (made, rounds, variable, at, *first):
        for child in ast.walk(part):
            if isinstance(child, (ast.expr, ast.stmt)) and not hasattr(child, "lineno"):
                ast.copy_location(child, node.iter)
    return made


def _call(function: str, args: list[ast.expr]) -> ast.Call:
    return ast.Call(func=ast.Name(id=function, ctx=ast.Load()), args=args, keywords=[])


def _unroll(low: Lowering, node: ast.For, name: str, call: ast.Call) -> bool:
    bounds = [constant_int(low, a, "a bound of unroll") for a in call.args]
    if not 1 <= len(bounds) <= 3 or (len(bounds) == 3 and bounds[2] == 0):
        raise low.fail(call, "unroll wants 1 to 3 compile-time ints, like range")
    values = range(*bounds)
    if len(values) > 65536:
        raise low.fail(call, f"unroll of {len(values)} rounds is too much", "use range")
    return _unrolled(low, node, ast.Name(id=name, ctx=ast.Store()), tuple(values))


def _unrolled(low: Lowering, node: ast.For, target: ast.expr, values: tuple[Value, ...]) -> bool:
    if _has_jump(node.body):
        raise low.fail(node, "break and continue cannot leave an unrolled loop", "use if")
    names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
    held = {name: low.frame.names.get(name) for name in names}
    for value in values:
        _bind(low, target, value)
        low.frame.loop_names.update(names)
        ends = lower_body(low, node.body)
        low.frame.loop_names.difference_update(names)
        if ends:
            return True
    for name in names:
        low.frame.names.pop(name, None)
        if held[name] is not None:
            low.frame.names[name] = held[name]
    return False


def _bind(low: Lowering, target: ast.expr, value: Value) -> None:
    """The names of an unrolled loop's target stand for a value of this round."""
    if isinstance(target, ast.Name):
        low.frame.names[target.id] = value
        return
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    if not parts or not isinstance(value, tuple) or len(value) != len(parts):
        raise low.fail(target, "the target of a loop over tuples is a name, or a name a part")
    for part, item in zip(parts, value, strict=True):
        _bind(low, part, item)


def _has_jump(body: Sequence[ast.stmt]) -> bool:
    for stmt in body:
        if isinstance(stmt, (ast.Break, ast.Continue)):
            return True
        if isinstance(stmt, ast.If) and (_has_jump(stmt.body) or _has_jump(stmt.orelse)):
            return True
    return False


# ---------------------------------------------------------------- ranges


def _for_range(low: Lowering, node: ast.For, name: str, call: ast.Call) -> bool:
    if not 1 <= len(call.args) <= 3:
        raise low.fail(call, "range wants 1 to 3 arguments")
    step = index_expr(low, call.args[2]) if len(call.args) == 3 else build.const(1, I32)
    known = compile_time(step)
    if known == 0:
        raise low.fail(call.args[2], "the step of range is 0")
    start = index_expr(low, call.args[0]) if len(call.args) > 1 else build.const(0, I32)
    stop = index_expr(low, call.args[min(1, len(call.args) - 1)])
    wide = 8 in (start.ty.dtype.size, stop.ty.dtype.size, step.ty.dtype.size)
    ty = Ty(i64) if wide else I32
    if known is not None:
        _emit_for(low, node, name, (start, stop, int(known)), ty)
        return False
    _strided(low, node, name, (start, stop, step), ty)
    return False


def _emit_for(
    low: Lowering, node: ast.For, name: str, bounds: tuple[Expr, Expr, int], ty: Ty
) -> None:
    """The loop of a range whose step is known."""
    ir_name = low.fresh(name)
    body = _rounds(low, node, name, Local(ir_name, ty), [])
    low.emit(Stmt("for", bounds[:2], (ir_name, bounds[2]), body, ty=ty))


def _strided(
    low: Lowering, node: ast.For, name: str, bounds: tuple[Expr, Expr, Expr], ty: Ty
) -> None:
    """A step that only the vertex knows: as many rounds as fit, name = start + round * step.

    A step of 0 ends the run, as Python's range does.
    """
    start, stop, step = (low.temp(build.cast(b, ty), name) for b in bounds)
    low.emit(Stmt("abort", (build.compare("eq", step, 0),)))
    whole = build.binary("floordiv", build.binary("sub", start, stop), step)
    rounds = low.temp(build.unary("neg", whole), ROUNDS)
    counter, ir_name = low.fresh(name), low.fresh(name)
    at = Expr("local", ty, (), (counter,))
    value = build.binary("add", start, build.binary("mul", at, step))
    first = [Stmt("assign", (value,), (ir_name,), line=low.line)]
    body = _rounds(low, node, name, Local(ir_name, ty), first)
    low.emit(Stmt("for", (build.const(0, ty), rounds), (counter, 1), body, ty=ty))


def _rounds(
    low: Lowering, node: ast.For, name: str, variable: Local, first: list[Stmt]
) -> list[Stmt]:
    """The body of a loop whose variable is `variable`; `first` sets it where that is needed."""
    forget_known(low, stored_names(node))
    line = low.line
    held = low.frame.names.get(name)
    low.frame.names[name] = variable
    low.frame.loop_names.add(name)
    body = [*first, *loop_body(low, node.body)]
    low.frame.loop_names.discard(name)
    low.frame.names.pop(name, None)
    low.frame.ended_loops.add(name)
    if held is not None:
        low.frame.names[name] = held
    low.line = line
    return body


HANDLERS[ast.For] = _for
