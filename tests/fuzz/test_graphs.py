"""Random legal graphs equal NumPy in every way of running; broken ones raise a documented error."""

from __future__ import annotations

from typing import Any

import graph_cases
import numpy as np
import pytest
from graph_cases import BREAKS, Case
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from poplar_py.diagnostics import InternalError, PoplarPyError
from poplar_py.poplar.tile_parse import parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module

WAYS = (
    {"threads": 1},
    {"threads": 1, "checked": True},
    {"threads": 1, "checked": False},
    {"threads": 2, "faithful_exchange": True},
)


def tries(count: int) -> settings:
    """So many examples, in any time."""
    checks = list(HealthCheck)
    return settings(max_examples=count, deadline=None, suppress_health_check=checks, database=None)


def equals_numpy(number: int, steps: int) -> None:
    """All ways of running one graph give NumPy's values; its text reads back to the same bytes."""
    case = Case(number)
    case.build(steps)
    wanted = case.expected()
    tables: dict[str, Any] = {}
    text = print_tile_module(case.graph, [case.prog], resources=tables)
    found = parse_tile_module(text, "case.pir", tables)
    assert print_tile_module(found.graph, found.programs, resources={}) == text
    for way in WAYS:
        for got, want in zip(case.run(**way), wanted, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {number}, {way}")


def is_refused(number: int, wrong: str) -> None:
    """A graph with one thing wrong raises an error that says what it is."""
    case = Case(number)
    case.build(number % 3)

    def attempt() -> None:
        getattr(graph_cases, wrong)(case)
        case.build(number % 2)
        case.run(threads=1)

    with pytest.raises(PoplarPyError) as caught:
        attempt()
    assert not isinstance(caught.value, InternalError)
    assert caught.value.code != "error"
    assert caught.value.message


@seed(1)
@tries(12)
@given(st.integers(0, 1 << 30), st.integers(1, 6))
def test_legal(number: int, steps: int) -> None:
    equals_numpy(number, steps)


@pytest.mark.parametrize("wrong", [f.__name__ for f in BREAKS])
def test_illegal(wrong: str) -> None:
    for number in range(2):
        is_refused(number, wrong)


@pytest.mark.slow
@seed(2)
@tries(300)
@given(st.integers(0, 1 << 30), st.integers(1, 14))
def test_legal_long(number: int, steps: int) -> None:
    equals_numpy(number, steps)


@pytest.mark.slow
@seed(3)
@tries(300)
@given(st.integers(0, 1 << 30), st.sampled_from([f.__name__ for f in BREAKS]))
def test_illegal_long(number: int, wrong: str) -> None:
    is_refused(number, wrong)
