"""`match` of the vertex language: Poplar's switch, as tests one after the other."""

from __future__ import annotations

import ast

from poplar_py.codelets.codelet_ir import Expr, Stmt
from poplar_py.codelets.lower_expr import lower_expr
from poplar_py.codelets.lower_stmt import HANDLERS, lower_body
from poplar_py.codelets.lowering import Local, Lowering

__all__: list[str] = []


def _match(low: Lowering, node: ast.Match) -> bool:
    """The subject is evaluated once; a subject known at compile time leaves one case."""
    name = low.fresh("match")
    value = lower_expr(low, node.subject)
    if isinstance(value, Expr) and value.op != "const" and not value.ty.ref:
        low.emit(Stmt("assign", (value,), (name,)))
        low.frame.names[name] = Local(name, value.ty)
    else:
        low.frame.names[name] = value
    subject = ast.copy_location(ast.Name(id=name, ctx=ast.Load()), node.subject)
    return lower_body(low, _cases(low, subject, node.cases))


def _cases(low: Lowering, subject: ast.Name, cases: list[ast.match_case]) -> list[ast.stmt]:
    """Cases as one chain of `if`."""
    rest: list[ast.stmt] = []
    for case in reversed(cases):
        test = _test(low, subject, case.pattern)
        if case.guard is not None:
            parts = [case.guard] if test is None else [test, case.guard]
            test = ast.BoolOp(op=ast.And(), values=parts) if len(parts) > 1 else parts[0]
        if test is None:
            rest = case.body
            continue
        test = ast.fix_missing_locations(ast.copy_location(test, case.pattern))
        made = ast.If(test=test, body=case.body, orelse=rest)
        rest = [ast.copy_location(made, case.pattern)]
    return rest


def _test(low: Lowering, subject: ast.Name, pattern: ast.pattern) -> ast.expr | None:
    """The condition of a pattern; None for one that always holds."""
    match pattern:
        case ast.MatchValue(value=value):
            return ast.Compare(left=subject, ops=[ast.Eq()], comparators=[value])
        case ast.MatchSingleton(value=value):
            known = ast.Constant(value=value)
            return ast.Compare(left=subject, ops=[ast.Eq()], comparators=[known])
        case ast.MatchOr(patterns=patterns):
            tests = [_test(low, subject, p) for p in patterns]
            known = [t for t in tests if t is not None]
            if len(known) < len(tests):
                return None
            return ast.BoolOp(op=ast.Or(), values=known)
        case ast.MatchAs(pattern=None, name=None):
            return None
        case _:
            raise low.fail(pattern, "a case is a value, values joined by |, or _")


HANDLERS[ast.Match] = _match
