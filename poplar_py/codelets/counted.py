"""`while i < n: ...; i += 1` as the counted loop it is, for the issue model."""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, walk_expr, walk_stmts

__all__ = ["CountedWhile", "counted_while"]

_BOUNDS = {"lt": (1, 0), "le": (1, 1), "gt": (-1, 0), "ge": (-1, -1)}
"""Direction of the counter, and what is added to the bound to make it the first value outside."""


@dataclass(frozen=True, slots=True)
class CountedWhile:
    """The counter, the first value it does not reach, and its step."""

    counter: Expr
    stop: Expr
    step: int


def counted_while(s: Stmt) -> CountedWhile | None:
    """What a `while` counts: a local that its body changes once, by a known step, in every round.

    None for other loops: those that compare loaded values, or move the bound in the body.
    """
    if s.op != "while" or s.args[0].op not in (*_BOUNDS, "ne"):
        return None
    counter, bound = _plain(s.args[0].args[0]), s.args[0].args[1]
    changed = {str(b.attr[0]) for b in walk_stmts(s.body) if b.op == "assign"}
    if counter.op != "local" or _depends(bound, changed):
        return None
    step = _step(s.body, str(counter.attr[0]))
    towards, more = _BOUNDS.get(s.args[0].op, (step, 0))
    if step * towards <= 0:
        return None
    if more:
        bound = Expr("add", I32, (bound, Expr("const", I32, (), (more,))))
    return CountedWhile(counter, bound, step)


def _plain(e: Expr) -> Expr:
    while e.op == "cast":
        e = e.args[0]
    return e


def _depends(e: Expr, names: set[str]) -> bool:
    return any(x.op == "local" and str(x.attr[0]) in names for x in walk_expr(e))


def _step(body: list[Stmt], name: str) -> int:
    """By how much the body moves the local; 0 when that is not known."""
    moves = [b for b in walk_stmts(body) if b.op == "assign" and b.attr[0] == name]
    if len(moves) != 1 or not any(b is moves[0] for b in body):
        return 0
    value = _plain(moves[0].args[0])
    if value.op not in ("add", "sub"):
        return 0
    left, right = (_plain(a) for a in value.args)
    if left.op != "local" or left.attr[0] != name or right.op != "const":
        return 0
    by = right.attr[0]
    return 0 if not isinstance(by, int) else by if value.op == "add" else -by
