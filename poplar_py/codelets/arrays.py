"""Which local arrays live in registers."""

from __future__ import annotations

from poplar_py.codelets.codelet_ir import Expr, Stmt, Ty, walk_expr, walk_stmts

__all__ = ["MAX_ARRAY_BYTES", "register_arrays"]

MAX_REGISTER_ARRAY = 64
MAX_ARRAY_BYTES = 16 << 10  # of arrays on the stack, per codelet


def register_arrays(body: list[Stmt]) -> set[str]:
    """Arrays whose every index is known, and access whole: their elements become SSA values."""
    found: dict[str, Ty | None] = {}
    in_memory: set[str] = set()

    def access(name: str, index: Expr, ty: Ty) -> None:
        if index.op != "const" or found.get(name, ty) != ty:
            in_memory.add(name)

    for stmt in walk_stmts(body):
        if stmt.op == "array":
            found[str(stmt.attr[0])] = stmt.ty
            if int(stmt.attr[1]) > MAX_REGISTER_ARRAY:
                in_memory.add(str(stmt.attr[0]))
        if stmt.op == "astore":
            access(str(stmt.attr[0]), stmt.args[0], stmt.args[1].ty)
        for expr in (e for arg in stmt.args for e in walk_expr(arg)):
            if expr.op == "aload":
                access(str(expr.attr[0]), expr.args[0], expr.ty)
    return set(found) - in_memory
