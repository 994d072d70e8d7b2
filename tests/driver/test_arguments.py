"""What is not of its kind is refused at the Python API, with an error of the documented classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poplar_py as pp
from poplar_py.diagnostics import InputError, OptionError, PoplarPyError

TEXT = b"""model m(x: f32[b, 2]) -> y: f32[b, 2] {
    y = x * 2.0
}
"""
MODEL = pp.load(TEXT, "pml")
X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.mark.parametrize("origin", [None, 3, [1], np.zeros(3), object()])
def test_no_model(origin: Any) -> None:
    with pytest.raises(OptionError, match="is no model"):
        pp.load(origin)


@pytest.mark.parametrize(
    "options",
    [
        {"system": None},
        {"system": 3},
        {"ipus": "1"},
        {"ipus": 1.5},
        {"tiles_per_ipu": 2.0},
        {"replicas": "2"},
        {"replicas": 2.0},
        {"passes": None},
        {"passes": ["lower"]},
        {"progress": None},
        {"dims": 8},
        {"dims": [("b", 3)]},
        {"dims": {"b": 3.0}},
        {"dims": {1: 3}},
        {"shapes": [3]},
        {"shapes": {"x": 3}},
        {"shapes": {"x": (3.0, 2)}},
        {"consts": [1]},
        {"consts": {"x": [[1.0, 2.0], [3.0]]}},
    ],
    ids=repr,
)
def test_compile_options(options: dict[str, Any]) -> None:
    with pytest.raises(PoplarPyError):
        pp.compile(MODEL, **{"dims": {"b": 3}, **options})


def test_sizes_of_numpy_are_sizes() -> None:
    by_dim = pp.compile(MODEL, dims={"b": np.int32(3)}, tiles_per_ipu=np.int64(2))  # type: ignore[dict-item]
    by_shape = pp.compile(MODEL, shapes={"x": np.array([3, 2])}, tiles_per_ipu=2)  # type: ignore[dict-item]
    for exe in (by_dim, by_shape):
        assert np.array_equal(pp.Engine(exe).run({"x": X})["y"], X * 2)


@pytest.mark.parametrize(
    "value",
    [
        [[1.0, 2.0], [3.0]],
        np.ma.masked_all((3, 2), np.float32),
        np.zeros((3, 2), [("a", np.float32)]),
        "text",
    ],
    ids=["ragged", "masked", "records", "text"],
)
def test_inputs_that_are_no_arrays(value: Any) -> None:
    exe = pp.compile(MODEL, dims={"b": 3}, tiles_per_ipu=2)
    for engine in (pp.Engine(exe), pp.Engine(MODEL, tiles_per_ipu=2)):
        with pytest.raises(PoplarPyError):
            engine.run({"x": value})


@pytest.mark.parametrize("inputs", [None, [X], X, {3: X}])
def test_inputs_that_are_no_dict(inputs: Any) -> None:
    with pytest.raises(InputError):
        pp.Engine(pp.compile(MODEL, dims={"b": 3}, tiles_per_ipu=2)).run(inputs)


def test_a_list_is_an_array() -> None:
    assert np.array_equal(pp.Engine(MODEL, tiles_per_ipu=2).run({"x": X.tolist()})["y"], X * 2)


@pytest.mark.parametrize("threads", ["2", 1.5])
def test_threads(threads: Any) -> None:
    exe = pp.compile(MODEL, dims={"b": 3}, tiles_per_ipu=2)
    with pytest.raises(OptionError, match="threads"):
        pp.Engine(exe, threads=threads).run({"x": X})


def test_timeout() -> None:
    exe = pp.compile(MODEL, dims={"b": 3}, tiles_per_ipu=2)
    with pytest.raises(OptionError, match="timeout"):
        pp.Engine(exe).run({"x": X}, timeout="1")  # type: ignore[arg-type]
