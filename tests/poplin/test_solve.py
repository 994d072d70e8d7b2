"""Dense solvers against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poplar_py import poplin
from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.types import DType, f16, f32, f64, i32
from tests.poplin.setting import Setting, put

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = {"f16": 4e-3, "f32": 2e-5, "f64": 1e-13}


def close(got: Array, want: Array, dtype: DType) -> None:
    assert got.dtype == dtype.numpy
    error = np.abs(got.astype(np.float64) - want).max() / np.abs(want).max()
    assert error <= TOLERANCE[dtype.name]


def definite(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Symmetric positive definite matrices, their eigenvalues between 1 and about 5."""
    a = rng.standard_normal(shape) / shape[-1] ** 0.5
    return (a @ a.swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype.numpy)


SHAPES = [((1, 1), 8), ((7, 7), 3), ((40, 40), 16), ((2, 3, 20, 20), 64)]


@pytest.mark.parametrize("dtype", [f16, f32, f64], ids=str)
@pytest.mark.parametrize(("shape", "block"), SHAPES, ids=str)
def test_cholesky(shape: tuple[int, ...], block: int, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    s, a = Setting(), definite(rng, shape, dtype)
    want = np.linalg.cholesky(a.astype(np.float64))
    lower, upper = np.tril(a), np.triu(a)
    x = poplin.cholesky(s.graph, put(s, rng, lower, dtype), True, s.prog, block_size=block)
    y = poplin.cholesky(s.graph, put(s, rng, upper, dtype), False, s.prog, block_size=block)
    got = s.run(x, y)
    close(got[0], want, dtype)
    close(got[1], want.swapaxes(-1, -2), dtype)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(("dtype", "unit"), [(f32, False), (f64, True), (f16, True)], ids=str)
@pytest.mark.parametrize(("shape", "columns", "block"), [((20, 20), 5, 8), ((2, 9, 9), 1, 64)])
def test_triangular_solve(
    shape: tuple[int, ...],
    columns: int,
    block: int,
    dtype: DType,
    unit: bool,
    lower: bool,
    left: bool,
) -> None:
    """The other triangle holds NaN, as does a diagonal that is not read."""
    rng = np.random.default_rng(2)
    n = shape[-1]
    a = (0.3 * rng.standard_normal(shape) + 2 * np.eye(n)).astype(dtype.numpy)
    b = rng.standard_normal((*shape[:-2], *((n, columns) if left else (columns, n))))
    b = b.astype(dtype.numpy)
    triangle = np.tril(a) if lower else np.triu(a)
    exact = triangle.astype(np.float64)
    if unit:
        exact[..., range(n), range(n)] = 1
    wide = b.astype(np.float64)
    want = np.linalg.solve(exact, wide) if left else wide @ np.linalg.inv(exact)
    s = Setting()
    other = np.triu(np.ones((n, n), np.bool_), 0 if unit else 1)
    given = np.where(other if lower else other.T, np.nan, triangle).astype(dtype.numpy)
    x = poplin.triangular_solve(
        s.graph,
        put(s, rng, given, dtype),
        put(s, rng, b, dtype),
        left,
        lower,
        unit,
        s.prog,
        block_size=block,
    )
    close(s.run(x)[0], want, dtype)


@pytest.mark.parametrize("dtype", [f16, f32, f64], ids=str)
@pytest.mark.parametrize(("shape", "block"), SHAPES, ids=str)
def test_lu(shape: tuple[int, ...], block: int, dtype: DType) -> None:
    rng = np.random.default_rng(3)
    n = shape[-1]
    a = (rng.standard_normal(shape) / n**0.5 + 3 * np.eye(n)).astype(dtype.numpy)
    s = Setting()
    lower, upper = poplin.lu_factorization(s.graph, put(s, rng, a, dtype), s.prog, block_size=block)
    got = s.run(lower, upper)
    np.testing.assert_array_equal(got[0], np.tril(got[0]))
    np.testing.assert_array_equal(got[0][..., range(n), range(n)], 1)
    np.testing.assert_array_equal(got[1], np.triu(got[1]))
    assert got[0].dtype == got[1].dtype == dtype.numpy
    product = got[0].astype(np.float64) @ got[1].astype(np.float64)
    close(product.astype(dtype.numpy), a.astype(np.float64), dtype)


@pytest.mark.parametrize(("shape", "dtype"), [((6, 6), f32), ((9, 4), f64), ((4, 9), f16)], ids=str)
def test_qr(shape: tuple[int, int], dtype: DType) -> None:
    rng = np.random.default_rng(4)
    a = rng.standard_normal(shape).astype(dtype.numpy)
    s = Setting()
    q, r = poplin.qr_factorization(s.graph, put(s, rng, a, dtype), s.prog)
    got = [t.astype(np.float64) for t in s.run(q, r)]
    np.testing.assert_array_equal(got[1], np.triu(got[1]))
    close((got[0] @ got[1]).astype(dtype.numpy), a.astype(np.float64), dtype)
    close((got[0].T @ got[0]).astype(dtype.numpy), np.eye(shape[0]), dtype)


def test_zero_column() -> None:
    a = np.array([[0, 1], [0, 2], [0, 3]], np.float32)
    s = Setting()
    q, r = poplin.qr_factorization(s.graph, s.input(a, f32), s.prog)
    got = s.run(q, r)
    np.testing.assert_allclose(got[0] @ got[1], a, atol=1e-6)


def test_wrong_operands() -> None:
    s = Setting()
    wide = s.graph.add_variable(f32, (3, 4), mapping=0)
    square = s.graph.add_variable(f32, (3, 3), mapping=0)
    with pytest.raises(ShapeError, match="square"):
        poplin.cholesky(s.graph, wide, True, s.prog)
    with pytest.raises(ShapeError, match="do not fit"):
        poplin.triangular_solve(s.graph, square, wide, False, True, False, s.prog)
    whole = s.graph.add_variable(i32, (3, 3), mapping=0)
    with pytest.raises(TypeMismatch, match="solvers take"):
        poplin.lu_factorization(s.graph, whole, s.prog)
