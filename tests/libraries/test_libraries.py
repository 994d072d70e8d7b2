"""Every function of the five libraries over random shapes, views and tile mappings, f32 and f16.

What a function must give is stated in the `*_cases.py` files of this folder; `lab.py` is the
setting. A public function without a case fails `test_complete`.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import pytest

from poplar_py.types import DType, f16, f32
from tests.libraries.lab import Case, Lab

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
CASE_FILES = {
    "popops": (
        "popops_elementwise_cases",
        "popops_index_cases",
        "popops_spline_cases",
        "popops_tensor_cases",
    ),
    "popops.embedding": ("popops_embedding_cases",),
    "popops.rearrange": ("popops_rearrange_cases",),
    "poplin": ("poplin_cases", "poplin_conv_cases", "poplin_norm_cases"),
    "popnn": (
        "popnn_cases",
        "popnn_norm_cases",
        "popnn_recurrent_cases",
        "popnn_window_cases",
    ),
    "poprand": ("poprand_cases",),
    "poputil": ("poputil_cases", "poputil_grouping_cases"),
}
EVERYWHERE = {
    "add_codelets": "tests/popops/test_poplar_forms.py::test_mappings_in_poplars_order",
}
"""What each of the five libraries has: it changes nothing."""


def _tables() -> tuple[dict[str, dict[str, Case]], dict[str, dict[str, str]]]:
    cases: dict[str, dict[str, Case]] = {}
    elsewhere: dict[str, dict[str, str]] = {}
    for library, files in CASE_FILES.items():
        modules = [import_module(f"tests.libraries.{file}") for file in files]
        cases[library] = _joined([m.CASES for m in modules])
        elsewhere[library] = _joined([getattr(m, "ELSEWHERE", {}) for m in modules])
        if "." not in library:
            elsewhere[library] |= EVERYWHERE
    return cases, elsewhere


def _joined(tables: list[dict[str, T]]) -> dict[str, T]:
    """One table; a name that stands in two would hide a case."""
    out = {name: value for table in tables for name, value in table.items()}
    assert len(out) == sum(map(len, tables))
    return out


CASES, ELSEWHERE = _tables()
NAMES = [(library, name) for library, cases in CASES.items() for name in cases]


def public_functions(library: str) -> set[str]:
    """What `__all__` names that is callable and no class."""
    module = import_module(f"poplar_py.{library}")
    found = {name: getattr(module, name) for name in module.__all__}
    return {n for n, f in found.items() if callable(f) and not isinstance(f, type)}


def run(library: str, name: str, dtype: DType, seed: int) -> None:
    lab = Lab(dtype, seed)
    CASES[library][name](lab)
    lab.run()


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize(("library", "name"), NAMES)
def test_function(library: str, name: str, dtype: DType) -> None:
    """One random program; f32 and f16 take different ones, of which one has faithful exchange."""
    run(library, name, dtype, 1 if dtype is f16 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize(("library", "name"), NAMES)
def test_function_again(library: str, name: str, dtype: DType) -> None:
    for seed in range(2, 12):
        run(library, name, dtype, seed)


@pytest.mark.parametrize("library", CASE_FILES)
def test_complete(library: str) -> None:
    assert not set(CASES[library]) & set(ELSEWHERE[library])
    assert set(CASES[library]) | set(ELSEWHERE[library]) == public_functions(library)


@pytest.mark.parametrize("library", CASE_FILES)
def test_what_is_tested_elsewhere(library: str) -> None:
    """The test a table names exists and names the function."""
    for name, why in ELSEWHERE[library].items():
        found = re.search(r"(tests/[\w/]+\.py)::(\w+)", why)
        assert found is not None, f"{name}: {why}"
        text = (ROOT / found[1]).read_text()
        assert f"def {found[2]}(" in text, why
        assert re.search(rf"\b{name}\b", text), f"{found[1]} does not use {name}"
