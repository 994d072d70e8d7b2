"""The page for porters is true: its program runs, its Python forms parse and name what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from poplar_py import poplar, poplin, popnn, popops, poprand, poputil
from poplar_py.codelets import language
from poplar_py.executable.executable import Executable
from poplar_py.poplar import program
from poplar_py.popops import expr as pe

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "porting.md").read_text(encoding="utf-8")
OWNERS: dict[str, type | ModuleType] = {
    "poplar": poplar, "popops": popops, "poplin": poplin, "popnn": popnn, "poprand": poprand,
    "poputil": poputil, "program": program, "pe": pe, "graph": poplar.Graph,
    "engine": poplar.Engine, "t": poplar.Tensor, "interval": poplar.Interval,
    "executable": Executable, "VectorLayout": language.VectorLayout,
}  # fmt: skip
ROWS = re.findall(r"^\| (?!---|C\+\+)(.*) \| (.*) \|$", PAGE, re.MULTILINE)
WORDS = ("match", '"in"', "@vertex", "//", "%")
"""Words and signs of Python that are no statements."""
FORMS = [form for _, cell in ROWS for form in re.findall(r"`([^`]+)`", cell)]


def test_the_program_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "porting.md", "exec"), {})


def test_the_tables_are_read() -> None:
    assert len(ROWS) > 60
    assert len(FORMS) > 90


def parsed(form: str) -> ast.AST:
    """A form as Python: a statement, the head of a block, or a field."""
    if form.startswith("except"):
        return ast.parse(f"try:\n    pass\n{form}:\n    pass")
    return ast.parse(f"{form}\n    pass" if form.endswith(":") else form)


@pytest.mark.parametrize("form", FORMS)
def test_forms_parse_and_name_what_exists(form: str) -> None:
    if form in WORDS:
        return
    for node in ast.walk(parsed(form)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = OWNERS.get(node.value.id)
            assert node.value.id in (*OWNERS, "self", "prog"), form
            assert owner is None or hasattr(owner, node.attr) or _is_field(owner, node.attr), form
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            assert hasattr(language, name) or name in ("len", "range"), form


def _is_field(owner: object, name: str) -> bool:
    return name in getattr(owner, "__annotations__", {}) or name in getattr(owner, "_fields", ())
