"""The folders, the package list and the direction of imports are what the design says they are."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINKED = {"passes": "poplar_py.passes", "grammar": "poplar_py.grammar"}

LEVELS = (
    ("grammar", "diagnostics", "lazy"),
    ("files", "arguments"),
    ("types",),
    ("ir",),
    ("ops",),
    ("eval",),
    ("target",),
    ("codelets",),
    ("poplar",),
    ("poputil", "popops", "poprand", "poplin", "popnn"),
    ("passes",),
    ("codegen",),
    ("executable",),
    ("runtime",),
    ("profile",),
    ("driver",),
    ("frontends",),
    ("api",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: depth for depth, names in enumerate(LEVELS) for name in names}


def python_files() -> Iterator[tuple[str, Path]]:
    """Yields (module name, path) of every product file, linked folders under their real path."""
    for path in sorted((ROOT / "poplar_py").rglob("*.py")):
        if path.relative_to(ROOT / "poplar_py").parts[0] not in LINKED:
            yield module_name(path.relative_to(ROOT)), path
    for folder in LINKED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield "poplar_py." + module_name(path.relative_to(ROOT)), path


def module_name(relative: Path) -> str:
    parts = list(relative.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def area_of(module: str) -> str | None:
    """Returns the area (second component) of a dotted name, None for the top package."""
    parts = module.split(".")
    return parts[1] if parts[0] == "poplar_py" and len(parts) > 1 else None


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields (imported dotted name, line), imports inside functions included.

    Imports under `if TYPE_CHECKING` do not run and are skipped.
    """
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "poplar_py":
                yield from ((f"poplar_py.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


def test_package_list_names_every_package() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(config["tool"]["setuptools"]["packages"])
    found = {name for name, path in python_files() if path.name == "__init__.py"}
    assert listed == found


def test_every_folder_with_code_is_a_package() -> None:
    bare = {path.parent for _, path in python_files() if not (path.parent / "__init__.py").exists()}
    assert not bare


@pytest.mark.parametrize("folder", sorted(LINKED))
def test_links(folder: str) -> None:
    link = ROOT / "poplar_py" / folder
    assert link.is_symlink()
    assert link.resolve() == (ROOT / folder).resolve()


def test_imports_go_one_way() -> None:
    wrong: list[str] = []
    for module, path in python_files():
        area = area_of(module)
        if area is None:
            continue
        for name, line in imported(ast.parse(path.read_text(), str(path))):
            other = area_of(name)
            if other is None or other not in LEVEL:
                continue
            if LEVEL[other] > LEVEL[area]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {area} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_every_area_has_a_level() -> None:
    areas = {area for name, _ in python_files() if (area := area_of(name)) is not None}
    assert areas <= set(LEVEL)


def test_no_relative_imports_and_postponed_annotations() -> None:
    wrong: list[str] = []
    for _, path in python_files():
        tree = ast.parse(path.read_text(), str(path))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if any(node.level for node in nodes):
            wrong.append(f"{path.relative_to(ROOT)}: relative import")
        futures = [node for node in nodes if node.module == "__future__"]
        if not futures and path.name != "__init__.py" and path.parent.name != "builtin":
            wrong.append(f"{path.relative_to(ROOT)}: no postponed annotations")
    assert not wrong, "\n".join(wrong)


def test_one_copy_of_linked_packages() -> None:
    assert "passes" not in sys.modules
    assert "grammar" not in sys.modules


def test_no_absolute_paths_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.])/(?:root|home|tmp)/\w")
    texts = [path for _, path in python_files()]
    texts += [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "samples").rglob("*.py")]
    wrong = [str(path.relative_to(ROOT)) for path in texts if machine.search(path.read_text())]
    assert not wrong
