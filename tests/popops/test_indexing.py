"""Gather, scatter, dynamic slices, pads and fills against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from popops_harness import Program, check, compare, normal

from poplar_py import popops
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import DTYPES, bool_, f16, f32, i8, i64

RNG = np.random.default_rng(4)


def index(n: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, n, shape).astype(np.int32)


@pytest.mark.parametrize(
    ("shape", "count", "axis"),
    [
        ((200, 48), (5, 6), 0),
        ((3, 200, 5), (7,), 1),
        ((60000, 3), (50,), 0),
        ((40000,), (900,), 0),
        ((20, 700), (), 0),
        ((4, 5, 6), (2, 0), 2),
    ],
)
def test_gather(shape: tuple[int, ...], count: tuple[int, ...], axis: int) -> None:
    where = index(shape[axis], *count)
    check(
        lambda p, x, i: popops.gather(p.graph, x, i, axis, p.prog),
        lambda v, i: np.take(v, i, axis),
        normal(*shape),
        where,
    )


@pytest.mark.parametrize("dtype", [f16, i8, i64, bool_], ids=str)
def test_gather_types(dtype: object) -> None:
    check(
        lambda p, x, i: popops.gather(p.graph, x, i, 0, p.prog),
        lambda v, i: v[i],
        normal(90, 20, dtype=DTYPES[str(dtype)]),
        index(90, 33),
        oracle=True,
    )


def test_gather_from_a_table_in_parts() -> None:
    p = Program()
    table, where = normal(3000, 32), index(3000, 64)
    x = popops.constant_table(p.graph, table, 64)
    out = popops.gather(p.graph, x, p.input(where), 0, p.prog)
    compare(p.run(out)[0], table[where], 0.0)


@pytest.mark.parametrize("bad", [-1, 90])
def test_index_out_of_range_stops_the_run(bad: int) -> None:
    p = Program()
    where = np.array([3, bad], np.int32)
    out = popops.gather(p.graph, p.input(normal(90, 4)), p.input(where), 0, p.prog)
    with pytest.raises(PoplarPyError):
        p.run(out)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(("rows", "width"), [(200, 48), (30000, 1)])
def test_scatter(reduction: str, rows: int, width: int) -> None:
    join = {
        "none": lambda a, b: b,
        "add": np.add,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
    }[reduction]

    def reference(v: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = v.copy()
        for k, row in enumerate(i):
            out[row] = join(out[row], u[k])
        return out

    check(
        lambda p, x, i, u: popops.scatter(p.graph, x, i, u, p.prog, reduction=reduction),
        reference,
        normal(rows, width),
        index(rows, 40),
        normal(40, width, seed=3),
    )


@pytest.mark.parametrize("start", [0, 5, 17, -3, 100])
@pytest.mark.parametrize("axis", [0, 1])
def test_dynamic_slice_and_update(start: int, axis: int) -> None:
    array = normal(20, 20, 3)
    update = normal(*(4 if d == axis else n for d, n in enumerate(array.shape)), seed=5)
    first = min(max(start, 0), 16)
    where = [slice(None)] * 3
    where[axis] = slice(first, first + 4)
    changed = array.copy()
    changed[tuple(where)] = update
    p = Program()
    x, u, s = p.input(array), p.input(update), p.input(np.array([start], np.int32))
    cut = popops.dynamic_slice(p.graph, x, s, axis, 4, p.prog)
    new = popops.dynamic_update(p.graph, x, u, s, axis, p.prog)
    got = p.run(cut, new)
    compare(got[0], array[tuple(where)], 0.0)
    compare(got[1], changed, 0.0)


def test_pad_fill_iota() -> None:
    p = Program()
    array = normal(2, 32, 5, 5)
    x = p.input(array).dim_shuffle((0, 1, 3, 2))
    padded = popops.pad(p.graph, x, (0, 1, 1, 2), (0, 0, 0, 1), 1.5, p.prog)
    held = popops.fill_constant(p.graph, f16, (3, 100), 2.5, p.prog)
    steps = popops.iota(p.graph, 9, start=-4)
    got = p.run(padded, held, steps)
    want = np.pad(
        array.transpose(0, 1, 3, 2), ((0, 0), (1, 0), (1, 0), (2, 1)), constant_values=1.5
    )
    compare(got[0], want, 0.0)
    compare(got[1], np.full((3, 100), 2.5, np.float16), 0.0)
    compare(got[2], np.arange(-4, 5, dtype=np.int32), 0.0)
    assert got[0].dtype == f32.numpy
