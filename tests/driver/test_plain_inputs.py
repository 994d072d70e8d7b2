"""Arrays that need no check go straight to their regions: same results, same refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poplar_py as pp
from poplar_py.diagnostics import InputError, PoplarPyErrors

MODEL = """
model m(x: f32[4, 6], n: i32[4]) -> (y: f32[4, 6], z: i32[4]) {
    y = x * 2.0 + 1.0
    z = n + n
}
"""
X = np.arange(24, dtype=np.float32).reshape(4, 6)
N = np.arange(4, dtype=np.int32)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> pp.Engine:
    path: Path = tmp_path_factory.mktemp("plain") / "m.pml"
    path.write_text(MODEL)
    made = pp.Engine(pp.compile(pp.load(path), system="ipu", tiles_per_ipu=4), threads=1)
    made.run({"x": X.tolist(), "n": N.tolist()})
    return made


@pytest.mark.parametrize(
    "x",
    [X, X.tolist(), np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2], X.astype(np.float64)],
    ids=["plain", "list", "columns", "strided", "double"],
)
def test_every_form_gives_the_same(engine: pp.Engine, x: Any) -> None:
    given = {"n": N, "x": x}
    out = engine.run(given)
    assert list(out) == ["y", "z"]
    np.testing.assert_array_equal(out["y"], X * 2 + 1)
    np.testing.assert_array_equal(out["z"], N + N)


def test_all_faults_are_told_at_once(engine: pp.Engine) -> None:
    with pytest.raises(PoplarPyErrors, match="unknown input 'm'") as told:
        engine.run({"x": X, "m": N})
    assert "'n' is missing" in str(told.value)


def test_outputs_belong_to_the_caller(engine: pp.Engine) -> None:
    first = engine.run({"x": X, "n": N})
    kept = first["y"].copy()
    engine.run({"x": X + 1, "n": N})
    np.testing.assert_array_equal(first["y"], kept)
    first["y"][:] = 0
    np.testing.assert_array_equal(engine.run({"x": X, "n": N})["y"], kept)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"x": X}, "'n' is missing"),
        ({"x": X, "n": N, "m": N}, "unknown input 'm'"),
        ({"x": X.T, "n": N}, r"shape \[6,4\]"),
        ({"x": np.ma.masked_array(X), "n": N}, "masked"),
        ({"x": X, "n": X[:, 0]}, "'n'"),
    ],
)
def test_what_does_not_fit_is_refused(engine: pp.Engine, given: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        engine.run(given)


def test_the_report_is_of_the_last_run(engine: pp.Engine) -> None:
    cycles: list[int] = []
    for _ in range(2):
        engine.run({"x": X, "n": N})
        cycles.append(engine.report().counts()["cycles"])
    assert cycles[0] == cycles[1] > 0
