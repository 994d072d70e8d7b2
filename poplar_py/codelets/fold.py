"""Quick compile-time arithmetic: expressions over known numbers are run as compiled Python.

Unrolled kernels compute thousands of indices; walking their syntax trees one by one is slow. What
is not plain arithmetic on known numbers is left to the walker, which also words the errors.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from poplar_py.codelets.lowering import Lowering

__all__ = ["FOLDABLE", "fold"]

FOLDABLE = frozenset({ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp})
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class _Plan:
    """Compiled code and the names it reads; names of class constants start with `self.`."""

    code: CodeType
    names: tuple[str, ...]


_plans: WeakKeyDictionary[ast.expr, _Plan | None] = WeakKeyDictionary()
"""By node: a plan goes when the source it was made for goes."""


def fold(low: Lowering, node: ast.expr) -> int | float | bool | None:
    """The value of an expression over known numbers, or None."""
    plan = _plans[node] if node in _plans else _make(node)
    if plan is None:
        return None
    values: dict[str, object] = {}
    for name in plan.names:
        value = _number(low, name)
        if value is None:
            return None
        values[name] = value
    try:
        result = eval(plan.code, {"__builtins__": {}}, values)
    except ArithmeticError:
        return None
    if type(node) is ast.BoolOp:
        return bool(result)
    in_range = isinstance(result, (bool, float)) or -_MAX < result < _MAX
    return result if in_range else None


def _number(low: Lowering, name: str) -> int | float | None:
    if name.startswith("self."):
        return _class_constant(low, name[5:])
    names = low.frame.names
    if name in names:
        value = names[name]
    elif name in low.frame.lost:
        return None
    else:
        value = low.bindings.get(name)
    return value if isinstance(value, (int, float)) else None


def _class_constant(low: Lowering, name: str) -> int | float | None:
    if name in low.folded_constants:
        return low.folded_constants[name]
    from poplar_py.codelets.lower_expr import lower_expr

    node = low.class_constants.get(name)
    value = None if node is None or name in low.fields else lower_expr(low, node)
    number = value if isinstance(value, (int, float)) else None
    if not low.inlining and node is not None:
        low.folded_constants[name] = number
    return number


def _make(node: ast.expr) -> _Plan | None:
    names: list[str] = []
    tree = _copy(node, names)
    plan = None
    if tree is not None:
        code = compile(ast.fix_missing_locations(ast.Expression(tree)), "<constant>", "eval")
        plan = _Plan(code, tuple(dict.fromkeys(names)))
    _plans[node] = plan
    return plan


def _copy(node: ast.expr, names: list[str]) -> ast.expr | None:
    """The same expression with `self.N` as one name; None when it is not plain arithmetic."""
    match node:
        case ast.Constant(value=int() | float()):
            return node
        case ast.Name(id=name):
            names.append(name)
            return node
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            names.append(f"self.{attr}")
            return ast.Name(id=f"self.{attr}", ctx=ast.Load())
        case ast.UnaryOp(op=op, operand=x) if isinstance(op, _OPERATORS):
            inner = _copy(x, names)
            return ast.UnaryOp(op=op, operand=inner) if inner is not None else None
        case ast.BinOp(left=a, op=op, right=b) if isinstance(op, _OPERATORS):
            left, right = _copy(a, names), _copy(b, names)
            if left is None or right is None:
                return None
            return ast.BinOp(left=left, op=op, right=right)
        case ast.Compare(left=a, ops=ops, comparators=rest) if all(
            isinstance(op, _OPERATORS) for op in ops
        ):
            parts = _copies([a, *rest], names)
            return (
                None
                if parts is None
                else ast.Compare(left=parts[0], ops=ops, comparators=parts[1:])
            )
        case ast.BoolOp(op=op, values=values) if isinstance(op, _OPERATORS):
            parts = _copies(values, names)
            return None if parts is None else ast.BoolOp(op=op, values=parts)
        case _:
            return None


def _copies(nodes: list[ast.expr], names: list[str]) -> list[ast.expr] | None:
    parts = [p for p in (_copy(n, names) for n in nodes) if p is not None]
    return parts if len(parts) == len(nodes) else None
