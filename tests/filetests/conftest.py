"""Collects `.pir` and `.pml` files of cases, each an input and the text expected of it.

    // run: simplify                     passes to run ("" only reads, verifies and prints)
    // dims: batch=4                     sizes of free dims, if any

    // ----- name of the first case
    module @m
    ...
    // expect
    exact text of the module after the passes
    // ----- name of the second case
    ...
    // expect-error
    exact text of the error

`pytest --bless` writes what came out in place of what was expected; review the difference. Besides
the text, every case checks that the result verifies, parses back to the same bytes with locations,
that running the passes again changes nothing, and that the reference interpreter gives the same
outputs before and after (within 1e-5 of the largest element).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import poplar_py.ops  # noqa: F401
from poplar_py import ir
from poplar_py.diagnostics import PoplarPyError
from poplar_py.eval import evaluate
from poplar_py.frontends.pml import parse_pml
from poplar_py.ir.printer import collect_resources
from poplar_py.passes import PassContext, PassManager

MARK, EXPECT, ERROR = "// ----- ", "// expect", "// expect-error"


@dataclass
class Case:
    name: str
    source: str
    kind: str
    expected: str


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix not in (".pir", ".pml"):
        return None
    text = file_path.read_text(encoding="utf-8")
    return CaseFile.from_parent(parent, path=file_path) if MARK in text else None


def split_cases(text: str) -> tuple[str, list[Case]]:
    """The head of a test file and its cases."""
    head, *parts = text.split(MARK)
    cases: list[Case] = []
    for part in parts:
        name, _, body = part.partition("\n")
        kind = ERROR if f"\n{ERROR}\n" in body else EXPECT
        source, _, expected = body.partition(f"\n{kind}\n")
        cases.append(Case(name.strip(), source.strip("\n") + "\n", kind, expected.strip("\n")))
    return head, cases


def join_cases(head: str, cases: list[Case]) -> str:
    parts = [f"{MARK}{c.name}\n{c.source}{c.kind}\n{c.expected}\n" for c in cases]
    return head.rstrip("\n") + "\n\n" + "\n".join(parts)


class CaseFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        head, cases = split_cases(self.path.read_text(encoding="utf-8"))
        options = dict(line[3:].split(": ", 1) for line in head.splitlines() if ": " in line)
        names = [c.name for c in cases]
        assert len(set(names)) == len(names), f"{self.path}: two cases of one name"
        for case in cases:
            yield CaseItem.from_parent(self, name=case.name, case=case, options=options)


class CaseItem(pytest.Item):
    def __init__(self, *, case: Case, options: dict[str, str], **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.case = case
        self.spec = options.get("run", "").strip('"')
        dims = options.get("dims", "").split()
        self.dims = {d.split("=")[0]: int(d.split("=")[1]) for d in dims}

    def runtest(self) -> None:
        try:
            kind, text = EXPECT, self._run()
        except PoplarPyError as error:
            kind, text = ERROR, str(error)
        if (kind, text.strip("\n")) == (self.case.kind, self.case.expected):
            return
        if self.config.getoption("--bless"):
            self._bless(kind, text.strip("\n"))
            return
        wanted = f"{self.case.kind}\n{self.case.expected}".splitlines()
        assert f"{kind}\n{text}".rstrip("\n").splitlines() == wanted, "run with --bless to accept"

    def _bless(self, kind: str, text: str) -> None:
        head, cases = split_cases(self.path.read_text(encoding="utf-8"))
        for case in cases:
            if case.name == self.case.name:
                case.kind, case.expected = kind, text
        self.path.write_text(join_cases(head, cases), encoding="utf-8")

    def _read(self) -> ir.Module:
        if self.path.suffix == ".pml":
            return parse_pml(self.case.source, "case.pml")
        return ir.parse_module(self.case.source, "case.pir")

    def _run(self) -> str:
        module = self._read()
        ir.verify(module)
        before = ir.clone_module(module)
        context = PassContext(dims=self.dims)
        PassManager(context).run(module, self.spec)
        check_round_trip(module)
        check_meaning(before, module, self.dims)
        text = ir.print_module(module, locations=False)
        PassManager(context).run(module, self.spec)
        assert ir.print_module(module, locations=False) == text, "a second run changed something"
        return text

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}::{self.name}"


def check_round_trip(module: ir.Module) -> None:
    """Print, parse and print again give the same bytes, with resources beside and inline."""
    resources = collect_resources(module)
    text = ir.print_module(module)
    assert ir.print_module(ir.parse_module(text, "again.pir", resources)) == text
    inline = ir.print_module(module, inline_resources=True)
    again = ir.parse_module(inline, "again.pir")
    assert ir.print_module(again, inline_resources=True) == inline


def check_meaning(before: ir.Module, after: ir.Module, dims: dict[str, int]) -> None:
    """Same outputs before and after, for seeded inputs."""
    PassManager(PassContext(dims=dims)).run(before, "infer-shapes{partial=true}")
    if before.free_dims or after.free_dims:
        return
    rng = np.random.default_rng(7)
    arrays = {v.name: sample(rng, v) for v in before.main.inputs}
    try:
        first, second = (evaluate(m.main, arrays) for m in (before, after))
    except PoplarPyError:
        return  # an op without a meaning in NumPy, or one that fails for these inputs
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        scale = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5 * float(scale) + 1e-7)


def sample(rng: np.random.Generator, value: ir.Value) -> np.ndarray:
    shape = value.type.static_shape
    if value.dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if value.dtype.is_integer:
        return rng.integers(0, 3, shape).astype(value.dtype.numpy)
    return rng.standard_normal(shape).astype(value.dtype.numpy)
