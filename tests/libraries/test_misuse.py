"""Wrong arguments of library functions are refused by an error of ours, at a line outside the
libraries: every case of the lab runs with one argument of its function changed at random.

A change that happens to make sense is fine: then the call does not fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module, reload
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Graph, Tensor, program
from poplar_py.types import DType, bool_, f16, f32, f64, i32, u8
from tests.libraries.lab import Case, Lab
from tests.libraries.test_libraries import CASE_FILES, CASES, public_functions

LIBRARIES = ("popops", "poplin", "popnn", "poprand", "poputil")
NAMES = [(library, name) for library in LIBRARIES for name in CASES[library]]


class _Enough(Exception):
    """The changed call is over; the rest of the case does not matter."""


# ---------------------------------------------------------------------- changes
def _tensor(rng: np.random.Generator, graph: Graph, t: Tensor) -> Tensor:
    """Another rank, size or type; no elements."""
    sizes = list(t.shape)
    if sizes:
        sizes[int(rng.integers(len(sizes)))] += 1
    shapes = ((*t.shape, 2), t.shape[1:], tuple(sizes), (0,) * t.rank, t.shape, t.shape)
    kind = int(rng.integers(len(shapes)))
    dtype = t.dtype
    if kind >= 4:
        dtype = (i32 if t.dtype.is_float else f32) if kind == 4 else f16 if dtype is f32 else f32
    return graph.add_variable(dtype, shapes[kind], mapping=0)


def _sizes(rng: np.random.Generator, given: Sequence[int]) -> tuple[int, ...]:
    rest = tuple(given[1:])
    kinds = ((*given, 1), rest, (-1, *rest), (0, *rest))
    return kinds[int(rng.integers(len(kinds)))]


def _changed(rng: np.random.Generator, graph: Graph, value: Any) -> Any:
    """Something else of the same kind; the same where that cannot be."""
    if isinstance(value, Tensor):
        return _tensor(rng, graph, value)
    if isinstance(value, np.ndarray):
        return (value[None], value.astype(np.int32), value[:0])[int(rng.integers(3))]
    if isinstance(value, DType):
        return (bool_, i32, u8, f64)[int(rng.integers(4))]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(rng.choice([-1, 0, 99, 10**4, -(10**6)]))
    if isinstance(value, float):
        return float(rng.choice([np.nan, np.inf, -1.0, 0.0]))
    if isinstance(value, str):
        return "nonsense"
    if isinstance(value, tuple | list) and value and all(isinstance(v, int) for v in value):
        return _sizes(rng, value)
    return _record(rng, graph, value)


def _record(rng: np.random.Generator, graph: Graph, value: Any) -> Any:
    """Parameters with one field changed; refusing that is right as well."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = dataclasses.fields(value)
    field = fields[int(rng.integers(len(fields)))].name
    try:
        return dataclasses.replace(value, **{field: _changed(rng, graph, getattr(value, field))})
    except PoplarPyError:
        return value


def refusal(call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The error of ours that a call raises, or None."""
    try:
        call(*args, **kwargs)
    except PoplarPyError as error:
        return error
    return None


class Switch:
    """Stands in for the functions of a library; changes the first call of the one it is set to."""

    def __init__(self) -> None:
        self.name = ""
        self.rng = np.random.default_rng(0)

    def around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.name != name or not args or not isinstance(args[0], Graph):
                return real(*args, **kwargs)
            self.name = ""
            self._changed_call(real, list(args), dict(kwargs))
            raise _Enough

        return call

    def _changed_call(self, real: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        held: list[tuple[Any, Any]] = [(args, i) for i in range(1, len(args))]
        held += [(kwargs, k) for k in kwargs]
        held = [(where, k) for where, k in held if not isinstance(where[k], program.Sequence)]
        if held:
            where, key = held[int(self.rng.integers(len(held)))]
            where[key] = _changed(self.rng, args[0], where[key])
        error = refusal(real, args, kwargs)
        assert error is None or Path(error.loc.file).parent == Path(__file__).parent, error


Given = tuple[Switch, dict[str, dict[str, Case]]]


def fresh_cases(library: str) -> dict[str, Case]:
    """The cases anew: their tables hold the functions the library has now."""
    modules = [reload(import_module(f"tests.libraries.{file}")) for file in CASE_FILES[library]]
    return {name: case for module in modules for name, case in module.CASES.items()}


@pytest.fixture(scope="module")
def given() -> Iterator[Given]:
    """A switch before every function of the libraries, and the cases that go through it."""
    switch, patch = Switch(), pytest.MonkeyPatch()
    for library in LIBRARIES:
        module = import_module(f"poplar_py.{library}")
        for name in public_functions(library):
            patch.setattr(module, name, switch.around(name, getattr(module, name)))
    yield switch, {library: fresh_cases(library) for library in LIBRARIES}
    patch.undo()
    for library in LIBRARIES:
        fresh_cases(library)


def run(given: Given, library: str, name: str, seed: int) -> None:
    switch, cases = given
    switch.name, switch.rng = name, np.random.default_rng([seed, 7])
    try:
        cases[library][name](Lab((f32, f16)[seed % 2], seed))
    except _Enough:
        pass
    finally:
        switch.name = ""


@pytest.mark.parametrize(("library", "name"), NAMES)
def test_wrong_arguments(given: Given, library: str, name: str) -> None:
    for seed in range(3):
        run(given, library, name, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), NAMES)
def test_more_wrong_arguments(given: Given, library: str, name: str) -> None:
    for seed in range(3, 40):
        run(given, library, name, seed)
