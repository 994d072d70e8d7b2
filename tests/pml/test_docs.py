"""The language's page is true: its models build, and it names every function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from poplar_py import ir
from poplar_py.frontends.pml import parse_pml
from poplar_py.frontends.pml.builtins import BUILTINS
from poplar_py.frontends.pml.initialisers import INITIALISERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "pml.md").read_text(encoding="utf-8")
MODELS = re.findall(r"```pml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", MODELS)
def test_models_build(text: str) -> None:
    ir.verify(parse_pml(text, "docs.pml", dims={"batch": 4}))


def test_functions_are_listed() -> None:
    missing = [n for n in (*BUILTINS, *INITIALISERS, "load") if not re.search(rf"\b{n}\b", PAGE)]
    assert not missing


def test_python_example() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "ir.md").read_text(), re.DOTALL)
    exec(compile(code, "ir.md", "exec"), {})


def test_samples_build() -> None:
    for path in sorted((DOCS.parent / "samples" / "models").glob("*.pml")):
        ir.verify(parse_pml(path.read_text(encoding="utf-8"), str(path)))
