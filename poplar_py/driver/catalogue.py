"""What ops, passes and codelets there are, as data: for `poplar-py ops|passes` and the docs."""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, fields
from importlib import import_module, resources
from typing import Any, TypeGuard

from poplar_py.ir import REGISTRY
from poplar_py.passes import PIPELINES, get_pass, pass_names
from poplar_py.passes.registry import option_text

__all__ = [
    "Entry",
    "codelet_entries",
    "op_entries",
    "op_tables",
    "pass_entries",
    "pipeline_entries",
]

Entry = dict[str, Any]


def _summary(cls: type) -> str:
    """First line of a class's docstring."""
    return inspect.cleandoc(cls.__doc__ or "").split("\n")[0]


def pass_entries() -> list[Entry]:
    """All passes in the order of the default pipeline."""
    return [_pass_entry(name) for name in pass_names()]


def _pass_entry(name: str) -> Entry:
    cls = get_pass(name)
    module = import_module(cls.__module__)
    options = [
        {
            "name": f.name.replace("_", "-"),
            "type": f.type if isinstance(f.type, str) else f.type.__name__,
            "default": "none" if f.default is MISSING else option_text(f.default),
        }
        for f in fields(cls)
    ]
    return {
        "name": name,
        "level": cls.level,
        "leaves": cls.leaves or cls.level,
        "after": list(cls.after),
        "summary": _summary(cls),
        "doc": module.__doc__ or cls.__doc__ or "",
        "options": options,
    }


def pipeline_entries() -> list[Entry]:
    """The named pipelines."""
    return [{"name": name, "passes": ",".join(passes)} for name, passes in PIPELINES.items()]


def op_tables() -> dict[str, set[str]]:
    """The tables that give ops a meaning: table name to the names of the ops it covers."""
    import_module("poplar_py.ops")
    import_module("poplar_py.codelets.meaning")  # enters the meaning of math.map
    from poplar_py.eval import EVAL
    from poplar_py.passes.lower import LOWER

    return {
        "EVAL": {cls.opname for cls in EVAL},
        "LOWER": {cls.opname for cls in LOWER},
    }


def op_entries() -> list[Entry]:
    """All ops of the model level, by name."""
    tables = op_tables()
    return [_op_entry(name, tables) for name in sorted(REGISTRY)]


def _op_entry(name: str, tables: dict[str, set[str]]) -> Entry:
    cls = REGISTRY[name]
    spec = cls.spec

    def listed(part: Any) -> list[Entry]:
        return [{"name": f.name, "type": f.annotation + _default(f.default)} for f in part]

    return {
        "name": name,
        "summary": _summary(cls),
        "doc": cls.__doc__ or "",
        "operands": listed(spec.operands),
        "attributes": listed(spec.attributes),
        "regions": listed(spec.regions),
        "traits": sorted(trait.value for trait in spec.traits),
        "tables": [table for table, names in tables.items() if name in names],
    }


def _default(default: object) -> str:
    return "" if default is MISSING or default is None else f" = {default!r}"


def codelet_entries() -> list[Entry]:
    """All built-in vertex classes, read from their sources."""
    folder = resources.files("poplar_py.codelets.builtin")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".py")), key=lambda f: f.name)
    return [entry for file in files for entry in _codelets_in(file.name, file.read_text())]


def _codelets_in(name: str, text: str) -> list[Entry]:
    tree = ast.parse(text)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    vertices = [c for c in classes if any(ast.unparse(d) == "vertex" for d in c.decorator_list)]
    space = next(
        (str(ast.literal_eval(node.value)) for node in tree.body if _assigns(node, "NAMESPACE")), ""
    )
    return [_codelet_entry(name, space, c) for c in vertices]


def _assigns(node: ast.stmt, name: str) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


def _codelet_entry(file: str, space: str, node: ast.ClassDef) -> Entry:
    bases = [ast.unparse(base) for base in node.bases]
    generic = next((b[len("Generic[") : -1] for b in bases if b.startswith("Generic[")), "")
    name = f"{space}::{node.name}" if space else node.name
    fields_ = [
        f"{ast.unparse(s.target)}: {ast.unparse(s.annotation)}"
        for s in node.body
        if isinstance(s, ast.AnnAssign)
    ]
    return {
        "name": f"{name}<{generic}>" if generic else name,
        "kind": "MultiVertex" if "MultiVertex" in bases else "Vertex",
        "fields": fields_,
        "summary": inspect.cleandoc(ast.get_docstring(node) or "").split("\n")[0],
        "file": file,
    }
