"""Masked vectors in the issue model: `load16(run, i, n)` and what is computed from it cost by lane.

A tile has no vector of sixteen lanes: it takes two floats, four halves or one int at a time, so the
rest of a run costs what its elements cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.codelets.codelet_ir import Expr, Stmt, walk_expr, walk_stmts
from poplar_py.types import DType, bf16, f16, f32

__all__ = ["Masked", "masked"]

_STEP: dict[DType, int] = {f16: 4, bf16: 4, f32: 2}
_NESTED = frozenset({"for", "while", "loop", "if", "block"})


@dataclass(frozen=True, slots=True)
class Masked:
    """Straight code on the first `count` of `lanes` lanes, `step` at a time."""

    count: Expr
    lanes: int
    step: int


def masked(body: list[Stmt]) -> Masked | None:
    """What straight code is masked by; None where it is not, or not by one count throughout."""
    found: dict[str, Masked] = {}
    for s in walk_stmts(body):
        if s.op in _NESTED:
            return None
        for lanes, count, dtype in _accesses(s):
            step = _STEP.get(dtype, 1)
            if count is None:
                if lanes > 1:
                    return None
                continue
            before = found.get(repr(count))
            least = step if before is None else max(step, before.step)
            found[repr(count)] = Masked(count, lanes, least)
    return next(iter(found.values())) if len(found) == 1 else None


def _accesses(s: Stmt) -> list[tuple[int, Expr | None, DType]]:
    """Lanes, count and type of the loads and stores of a statement."""
    found: list[tuple[int, Expr | None, DType]] = []
    if s.op == "store":
        value = s.args[2]
        found.append((value.ty.lanes, s.args[3] if len(s.args) > 3 else None, value.ty.dtype))
    for arg in s.args:
        for e in walk_expr(arg):
            if e.op == "load":
                found.append((e.ty.lanes, e.args[2] if len(e.args) > 2 else None, e.ty.dtype))
    return found
