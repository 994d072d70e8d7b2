"""Every public function of the five libraries, called with what is not of its kind in each place
in turn: it answers, or raises an error of ours at the user's line.

The valid call is the one that the function's case of the lab makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from poplar_py.poplar import Graph, Tensor, program
from poplar_py.types import f32
from tests.libraries.lab import Case, Lab
from tests.libraries.test_libraries import CASES, public_functions
from tests.libraries.test_misuse import fresh_cases, refusal

NAMES = [(library, name) for library, cases in CASES.items() for name in cases]
WRONG: list[Any] = [
    *(None, 3, "x", [0, 0], 1.5, -1, object(), [None], {"a": 1}),
    *([], [[]], [1.5], 2**40, -(2**40), 2**70, [2**40], ["x"], True, float("nan"), f32),
]
STRICT = (Graph, Tensor, program.Sequence)
"""What has no other form: anything else in its place is refused, unless its kind is that too."""


class _Enough(Exception):
    """The calls are made; the rest of the case does not matter."""


class Spy:
    """Stands in for the functions of the libraries: the first call of the one it is set to is made
    again and again with wrong arguments."""

    def __init__(self) -> None:
        self.name = ("", "")
        self.quick = True

    def around(self, name: tuple[str, str], real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if self.name != name:
                return real(*args, **named)
            self.name = ("", "")
            try_all(name[1], real, args, named)
            raise _Enough

        return call


def try_all(name: str, real: Callable[..., Any], args: Any, named: dict[str, Any]) -> None:
    places = [*range(len(args)), *named]
    given = {**dict(enumerate(args)), **named}
    names = list(inspect.signature(real).parameters)
    more = [n for n in names[len(args) :] if n not in named]
    for place in (*places, *more):
        for wrong in WRONG:
            changed = {**given, place: wrong}
            own = [changed[i] for i in range(len(args))]
            what = f"{name}({place}={wrong!r})"
            taken = attempt(what, real, own, {k: v for k, v in changed.items() if k in names})
            free = not isinstance(given.get(place), STRICT)
            assert free or not taken or _may_be(wrong, given[place]), f"{what} is taken"


def _may_be(wrong: Any, valid: Any) -> bool:
    """Some places take a number, a shape or nothing instead of a tensor."""
    shape = isinstance(wrong, list) and all(type(n) is int for n in wrong)
    return isinstance(valid, Tensor) and (shape or wrong is None or isinstance(wrong, float | int))


def attempt(what: str, real: Callable[..., Any], args: Any, named: dict[Any, Any]) -> bool:
    """Whether the call is taken; any error is ours and at a line of this file."""
    try:
        error = refusal(real, args, named)
    except Exception as other:
        raise AssertionError(f"{what} raises {other!r}") from other
    at_line = error is None or Path(error.loc.file).parent == Path(__file__).parent
    assert at_line, f"{what}: {error!r}"
    return error is None


Given = tuple[Spy, dict[str, dict[str, Case]]]


@pytest.fixture(scope="module")
def given() -> Iterator[Given]:
    """A spy before every function of the libraries, and the cases that go through it."""
    spy, patch = Spy(), pytest.MonkeyPatch()
    for library in CASES:
        module = import_module(f"poplar_py.{library}")
        for name in public_functions(library):
            patch.setattr(module, name, spy.around((library, name), getattr(module, name)))
    yield spy, {library: fresh_cases(library) for library in CASES}
    patch.undo()
    for library in CASES:
        fresh_cases(library)


@pytest.mark.parametrize(("library", "name"), NAMES)
def test_wrong_kinds(given: Given, library: str, name: str) -> None:
    spy, cases = given
    spy.name = (library, name)
    with pytest.raises(_Enough):
        cases[library][name](Lab(f32, 0))
