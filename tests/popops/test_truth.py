"""Tests in place, sums of logarithms, accuracy of casts, scalars of rows, counts, sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from popops_harness import TILES, Array, Program, compare

from poplar_py import popops
from poplar_py.diagnostics import PoplarPyError, ShapeError
from poplar_py.poplar import Mapping
from poplar_py.poplar.errors import TensorTypeError
from poplar_py.types import DType, f16, f32, i32

UNARY: dict[str, Any] = {"is_finite": np.isfinite, "is_inf": np.isinf, "is_nan": np.isnan}
BINARY: dict[str, Any] = {
    "eq": np.equal, "gt": np.greater, "gteq": np.greater_equal, "lt": np.less,
    "lteq": np.less_equal, "neq": np.not_equal,
}  # fmt: skip


def scattered(p: Program, rng: np.random.Generator, array: Array) -> Any:
    """A variable holding the array, in up to nine intervals on random tiles."""
    cuts = np.sort(rng.integers(0, array.size + 1, int(rng.integers(0, 9))))
    bounds = np.concatenate([[0], cuts, [array.size]])
    tile = rng.integers(0, TILES, len(bounds) - 1).astype(np.int32)
    return p.input(array, Mapping(bounds, tile).normal())


@pytest.mark.parametrize("dtype", [f32, f16])
def test_in_place(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-1, 2, (5, 7)).astype(dtype.numpy) for _ in range(2))
    odd = x.copy()
    odd[0, :3] = [np.inf, -np.inf, np.nan]
    p = Program()
    held: list[Any] = []
    wanted: list[Array] = []
    for kind, function in UNARY.items():
        held.append(scattered(p, rng, odd))
        getattr(popops, f"{kind}_in_place")(p.graph, held[-1], p.prog)
        wanted.append(function(odd).astype(dtype.numpy))
    for kind, function in BINARY.items():
        held.append(scattered(p, rng, x))
        getattr(popops, f"{kind}_in_place")(p.graph, held[-1], scattered(p, rng, y), p.prog)
        wanted.append(function(x, y).astype(dtype.numpy))
    for got, want in zip(p.run(*held), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [f32, f16])
def test_log_add(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.uniform(-40, 40, (4, 9)).astype(dtype.numpy) for _ in range(2))
    p = Program()
    a, b = scattered(p, rng, x), scattered(p, rng, y)
    out = p.graph.add_variable(dtype, (4, 9), "out", mapping="linear")
    first = popops.log_add(p.graph, a, b, p.prog)
    popops.log_add_with_output(p.graph, a, b, out, p.prog)
    popops.log_add_in_place(p.graph, a, b, p.prog)
    want = np.logaddexp(x.astype(np.float64), y.astype(np.float64)).astype(dtype.numpy)
    for got in p.run(first, out, a):
        compare(got, want, 2e-3 if dtype is f16 else 1e-6)


def test_check_accuracy_when_cast() -> None:
    p = Program()
    values = np.array([1.0, 1 / 3, 1e6, 1e-9], np.float32)
    held = p.input(values)
    got = p.run(
        *(
            popops.check_accuracy_when_cast(p.graph, held[i], f16, 1e-3, p.prog).reshape((1,))
            for i in range(4)
        )
    )
    assert [bool(g[0]) for g in got] == [True, True, False, False]
    with pytest.raises(ShapeError):
        popops.check_accuracy_when_cast(p.graph, held, f16, 0.1, p.prog)
    with pytest.raises(TensorTypeError):
        popops.check_accuracy_when_cast(p.graph, held[0], i32, 0.1, p.prog)


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("seed", range(2))
def test_scalars_of_rows(dtype: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, cols = int(rng.integers(1, 300)), int(rng.integers(1, 30))
    rows = rng.standard_normal((n, cols)).astype(dtype.numpy)
    index = rng.integers(-1, cols + 1, n).astype(np.int32)
    values = rng.standard_normal(n).astype(dtype.numpy)
    p = Program()
    r, i = scattered(p, rng, rows), scattered(p, rng, index)
    picked = popops.select_scalar_from_rows(p.graph, r, i, p.prog)
    popops.update_scalar_in_rows(p.graph, r, i, p.prog, values=scattered(p, rng, values))
    got = p.run(picked, r)
    inside = (index >= 0) & (index < cols)
    at = (np.arange(n)[inside], index[inside])
    want = np.where(index == -1, 0, np.nan).astype(dtype.numpy)
    want[inside] = rows[at]
    np.testing.assert_array_equal(got[0], want)
    rows[at] = values[inside]
    rows[index == cols] = np.nan
    np.testing.assert_array_equal(got[1], rows)


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("size", [1, 70, 20000])
def test_histogram(dtype: DType, size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.standard_normal(size).astype(dtype.numpy)
    levels = np.sort(rng.standard_normal(int(rng.integers(1, 9)))).astype(dtype.numpy)
    p = Program()
    count = popops.histogram(p.graph, scattered(p, rng, x), p.input(levels), p.prog)
    got = p.run(count)[0]
    want = np.bincount(np.searchsorted(levels, x, "right"), minlength=len(levels) + 1)
    np.testing.assert_array_equal(got, want)
    assert sum(len(cs.groups) for cs in p.graph.compute_sets) <= 4


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("zero", [False, True])
def test_sequence_slice(dtype: DType, zero: bool) -> None:
    rng = np.random.default_rng(7)
    source = rng.standard_normal((20, 3, 2)).astype(dtype.numpy)
    first = rng.standard_normal((90, 3, 2)).astype(dtype.numpy)
    lengths, a, o = (np.array(v, np.int32) for v in ([4, 0, 7, 9], [3, 5, 13, 0], [0, 9, 40, 85]))
    p = Program()
    out = scattered(p, rng, first)
    n, s, t = (p.input(v) for v in (lengths, a, o))
    popops.sequence_slice(p.graph, scattered(p, rng, source), out, n, s, t, zero, p.prog)
    want = np.zeros_like(first) if zero else first.copy()
    for rows, begin, to in zip(lengths.tolist(), a.tolist(), o.tolist(), strict=True):
        rows = min(rows, 90 - to)
        want[to : to + rows] = source[begin : begin + rows]
    np.testing.assert_array_equal(p.run(out)[0], want)


def test_sequence_outside_ends_the_run() -> None:
    p = Program()
    out = p.graph.add_variable(f32, (8, 2), "out", mapping="linear")
    n, s, t = (p.input(np.array([v], np.int32)) for v in (4, 6, 0))
    source = p.input(np.ones((8, 2), np.float32))
    popops.sequence_slice(p.graph, source, out, n, s, t, False, p.prog)
    with pytest.raises(PoplarPyError, match="SequenceCopy"):
        p.run(out)
