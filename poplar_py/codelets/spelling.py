"""Spellings of the same program, brought to one form before anything else looks at the tree.

`poplar.Vertex` and `language.f32` (of a module that the source imports) and `VectorLayout.ONE_PTR`
become plain names; annotations in quotes become expressions. Python's keywords cannot name a field:
`in_: Input[...]`, read as `self.in_`, is the field that vertices connect as `in`.
"""

from __future__ import annotations

import ast
import keyword
import textwrap
from typing import TypeVar

__all__ = ["one_spelling", "plain_text"]

_MODULES = frozenset({"poplar", "language", "codelets"})
_F = TypeVar("_F", ast.FunctionDef, ast.AsyncFunctionDef)


def plain_text(text: str) -> str:
    """The text without a byte order mark and without a margin that all its lines share."""
    text = text.removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    return textwrap.dedent(text) if first[:1].isspace() else text


def one_spelling(tree: ast.Module) -> ast.Module:
    """The tree, changed in place. Raises SyntaxError for an annotation in quotes that is none."""
    made = _OneSpelling({"poplar", "VectorLayout", *_module_names(tree)}).visit(tree)
    assert isinstance(made, ast.Module)
    return made


def _module_names(tree: ast.Module) -> set[str]:
    """Names under which the source imports the vertex language as a module."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            ours = (a for a in node.names if a.name.startswith("poplar_py."))
            found |= {a.asname for a in ours if a.asname}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("poplar_py"):
            found |= {a.asname or a.name for a in node.names if a.name in _MODULES}
    return found


def _field_name(name: str) -> str:
    return name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name


class _OneSpelling(ast.NodeTransformer):
    def __init__(self, modules: set[str]) -> None:
        self.modules = modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return ast.copy_location(ast.Name(id=node.attr, ctx=node.ctx), node)
        node.attr = _field_name(node.attr)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                item.target.id = _field_name(item.target.id)
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = _unquoted(node.annotation)
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        if node.annotation is not None:
            node.annotation = self.visit(_unquoted(node.annotation))
        return node

    def _function(self, node: _F) -> _F:
        if node.returns is not None:
            node.returns = _unquoted(node.returns)
        self.generic_visit(node)
        return node

    visit_FunctionDef = _function
    visit_AsyncFunctionDef = _function


def _unquoted(node: ast.expr) -> ast.expr:
    """The expression that an annotation in quotes holds, at the place of the quotes."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return node
    made = ast.parse(node.value, mode="eval").body
    for part in ast.walk(made):
        if isinstance(part, ast.expr):
            ast.copy_location(part, node)
    return made
