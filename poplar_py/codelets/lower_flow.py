"""Control flow of the vertex language: branches, `while`, returns (`for`: lower_loops)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import Expr, Stmt, Ty
from poplar_py.codelets.lower_expr import (
    condition,
    lower_expr,
)
from poplar_py.codelets.lower_stmt import HANDLERS, lower_body, number_of
from poplar_py.codelets.lowering import (
    Local,
    Lowering,
    Value,
    stored_names,
)
from poplar_py.types import DType

__all__ = ["forget_known", "loop_body", "no_else"]


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


def loop_body(low: Lowering, body: Sequence[ast.stmt]) -> list[Stmt]:
    """The statements of a loop's round; what they set first is lost after the loop."""
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
    no_else(low, node)
    forget_known(low, stored_names(node))
    line = low.line
    saved, low.out = low.out, []
    cond = condition(low, node.test)
    head, low.out = low.out, saved
    if cond is False:
        return False
    if cond is not True and not head:
        body = loop_body(low, node.body)
        low.line = line
        low.emit(Stmt("while", (cond,), (), body))
        return False
    if cond is not True:
        head.append(
            Stmt("if", (build.logical_not(cond),), (), [Stmt("break", line=line)], line=line)
        )
    body = head + loop_body(low, node.body)
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


def no_else(low: Lowering, node: ast.While | ast.For) -> None:
    """Refuse `else` after a loop."""
    if node.orelse:
        raise low.fail(node.orelse[0], "else after a loop is not in the vertex language")


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
        low.value_returned = True
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
        ast.Break: _break,
        ast.Continue: _continue,
        ast.Return: _return,
    }
)
