"""Reductions, searches and running sums against NumPy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from popops_harness import Program, check, compare, normal

from poplar_py import popops
from poplar_py.diagnostics import OptionError
from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.poplar import Tensor, program
from poplar_py.poplar.mapping import Mapping, linear
from poplar_py.poputil.blocked import add_blocked, blocked_base
from poplar_py.runtime.cycles import count_cycles
from poplar_py.runtime.engine import TileEngine
from poplar_py.types import DTYPES, DType, bf16, bool_, dtype_of, f16, f32, f64, i8, i32, u8


def _wide(v: np.ndarray) -> np.ndarray:
    return v.astype(np.float64) if v.dtype.kind in "fV" else v


REFERENCE = {
    "sum": lambda v, a: _wide(v).sum(a, dtype=_wide(v).dtype),
    "prod": lambda v, a: _wide(v).prod(a, dtype=_wide(v).dtype),
    "max": lambda v, a: v.max(a),
    "min": lambda v, a: v.min(a),
    "square_sum": lambda v, a: (v.astype(np.float64) ** 2).sum(a),
}
DIMS = [d for k in (1, 2, 3) for d in combinations(range(3), k)]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("kind", sorted(REFERENCE))
def test_dims_and_kinds(kind: str, dims: tuple[int, ...]) -> None:
    check(
        lambda p, x: popops.reduce(p.graph, x, dims, kind, p.prog),
        lambda v: REFERENCE[kind](v, dims),
        normal(3, 40, 37),
        tolerance=1e-5,
    )


@pytest.mark.parametrize("dtype", [f16, bf16, f64, i8, i32, u8], ids=str)
@pytest.mark.parametrize("dims", [(0,), (1,)])
def test_types(dtype: object, dims: tuple[int, ...]) -> None:
    dt = DTYPES[str(dtype)]
    tolerance = {2: 1e-2, 8: 1e-12}.get(dt.size, 0.0)
    for kind in ("sum", "max", "min"):
        check(
            lambda p, x, k=kind: popops.reduce(p.graph, x, dims, k, p.prog),
            lambda v, k=kind: REFERENCE[k](v, dims),
            normal(60, 70, dtype=dt),
            tolerance=tolerance,
        )


@pytest.mark.parametrize("channels", [20, 32, 3])
@pytest.mark.parametrize("dims", [(2, 3), (0,), (3,), (0, 2, 3)])
def test_blocked_activations(channels: int, dims: tuple[int, ...]) -> None:
    array = normal(2, channels, 9, 11)
    p = Program()
    blocks, view = add_blocked(p.graph, f32, array.shape, "blocks")
    p.graph.set_tile_mapping(blocks, 3)
    popops.zero(p.graph, blocks, p.prog)
    p.prog.add(program.Copy(p.input(array), view))
    mean = popops.reduce(p.graph, view, dims, "mean", p.prog)
    top = popops.reduce(p.graph, view, dims, "max", p.prog)
    got = p.run(mean, top)
    compare(got[0], array.astype(np.float64).mean(dims), 1e-5)
    compare(got[1], array.max(dims), 0.0)
    if dims == (2, 3) and channels == 20:
        assert blocked_base(p.graph, mean.reshape((2, 20, 1, 1))) is not None


def test_logic() -> None:
    array = normal(40, 3, dtype=bool_)
    for kind, f in (("and", np.all), ("or", np.any)):
        check(
            lambda p, x, k=kind: popops.reduce(p.graph, x, (1,), k, p.prog),
            lambda v, g=f: g(v, 1),
            array,
        )


@pytest.mark.parametrize("shape", [(20000,), (3, 9000), (9000, 3), (50, 50, 20)])
def test_large_sums_take_several_steps(shape: tuple[int, ...]) -> None:
    axis = int(np.argmax(shape))
    p = check(
        lambda p, x: popops.reduce(p.graph, x, (axis,), "sum", p.prog),
        lambda v: v.astype(np.float64).sum(axis),
        normal(*shape),
        tolerance=1e-5,
    )
    assert len(p.graph.compute_sets) <= 4


def test_nan_wins_and_infinities_stay() -> None:
    array = normal(4, 50)
    array[1, 7], array[2, 30], array[3, 49] = np.nan, np.inf, -np.inf
    for kind in ("max", "min"):
        check(
            lambda p, x, k=kind: popops.reduce(p.graph, x, (1,), k, p.prog),
            lambda v, k=kind: REFERENCE[k](v, 1),
            array,
        )


def scattered(p: Program, array: np.ndarray, piece: int) -> Tensor:
    """The array in pieces on random tiles."""
    rng = np.random.default_rng(3)
    x = p.graph.add_variable(dtype_of(array), array.shape, "x")
    for begin in range(0, array.size, piece):
        part = x.flatten().slice(begin, min(begin + piece, array.size))
        p.graph.set_tile_mapping(part, int(rng.integers(0, p.graph.num_tiles)))
    return p.place(x, array)


MAPPINGS = {
    "linear": lambda p, array: p.input(array),
    "one tile": lambda p, array: p.input(array, 5),
    "pieces": lambda p, array: scattered(p, array, 40),
    "rows": lambda p, array: p.input(array, map_rows(array.shape)),
}


def map_rows(shape: tuple[int, ...]) -> Mapping:
    """Columns of every row on the same tiles."""
    cols = linear(shape[-1], 8, grain=4, least=4)
    rows = array_size(shape) // shape[-1]
    bounds = (np.arange(rows)[:, None] * shape[-1] + cols.bounds[:-1]).ravel()
    return Mapping(np.append(bounds, array_size(shape)), np.tile(cols.tile, rows))


def array_size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


@pytest.mark.parametrize("tiles", [8, 40])
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("mapping", sorted(MAPPINGS))
def test_every_mapping(mapping: str, dims: tuple[int, ...], tiles: int) -> None:
    """Whole numbers add up to the same whatever lies where and however it is cut."""
    array = np.random.default_rng(1).integers(-99, 99, (7, 60, 36)).astype(np.int32)
    p = Program(tiles)
    out = popops.reduce(p.graph, MAPPINGS[mapping](p, array), dims, "sum", p.prog)
    np.testing.assert_array_equal(p.run(out)[0], array.sum(dims))


@pytest.mark.parametrize("shape", [(5, 4000), (3000, 12), (6, 500, 16)])
@pytest.mark.parametrize("mapping", sorted(MAPPINGS))
def test_one_plan_gives_the_same_bits(mapping: str, shape: tuple[int, ...]) -> None:
    """Whatever runs it: threads, neighbours merged or not, edges in place or copied."""
    array = normal(*shape)
    p = Program(40)
    outs = [
        popops.reduce(p.graph, MAPPINGS[mapping](p, array), (d,), "sum", p.prog)
        for d in range(len(shape))
    ]
    found = p.run(*outs, oracle=True)
    for d, got in enumerate(found):
        compare(got, array.astype(np.float64).sum(d), 1e-5)
    exe = build_executable(p.graph, [p.prog], BuildOptions(names=["main"]))
    for threads, faithful, merge in ((1, True, False), (2, False, True), (4, False, False)):
        how = {"threads": threads, "faithful_exchange": faithful, "merge_vertices": merge}
        with TileEngine(exe, **how) as engine:
            for name, (_, values) in p.inputs.items():
                engine.write(name, values.ravel())
            engine.run("main")
            for i, got in enumerate(found):
                again = engine.read(f"out{i}")
                np.testing.assert_array_equal(again.view(np.uint32), got.ravel().view(np.uint32))


def cycles_of(p: Program) -> int:
    exe = build_executable(p.graph, [p.prog], BuildOptions(names=["main"]))
    found = count_cycles(exe, np.ones(len(exe.steps), np.int64))
    return found.compute + found.exchange + found.sync


@pytest.mark.parametrize(
    ("shape", "dims", "dtype", "kind", "most"),
    [
        ((100_000, 4), (0,), f16, "sum", 2500),
        ((4, 100_000), (1,), f32, "sum", 1800),
        ((300_000,), (0,), f32, "max", 2000),
        ((64, 4096), (0,), f32, "sum", 3200),
        ((16, 12, 256, 8), (1, 2), f16, "square_sum", 2300),
        ((5000, 60), (1,), f32, "max", 1000),
        ((100_000,), (0,), i32, "min", 2700),
    ],
)
def test_cycles(
    shape: tuple[int, ...], dims: tuple[int, ...], dtype: DType, kind: str, most: int
) -> None:
    """A whole IPU works on what is large: tall, wide, full, of several axes."""
    p = Program(1472)
    x = p.graph.add_variable(dtype, shape, "x", mapping="linear")
    p.graph.create_host_read("out", popops.reduce(p.graph, x, dims, kind, p.prog))
    assert cycles_of(p) <= most


def test_small_sums_stay_where_they_are() -> None:
    p = Program(1472)
    x = p.graph.add_variable(f32, (6, 20), "x", mapping=7)
    out = popops.reduce(p.graph, x, (1,), "sum", p.prog)
    p.graph.create_host_read("out", out)
    assert set(p.graph.get_tile_mapping(out).tile.tolist()) == {7}
    assert len(p.graph.compute_sets) == 1


def test_many_reductions_share_compute_sets() -> None:
    arrays = [normal(4000, 3), normal(20, 50), normal(30, 7, dtype=i32)]
    p = Program(40)
    given = [(p.input(a), (0,), "sum") for a in arrays]
    outs = popops.reduce_many(p.graph, given, p.prog)
    for got, array in zip(p.run(*outs, oracle=True), arrays, strict=True):
        compare(got, _wide(array).sum(0, dtype=_wide(array).dtype), 1e-5)
    alone = Program(40)
    popops.reduce(alone.graph, alone.input(arrays[0]), (0,), "sum", alone.prog)
    assert len(p.graph.compute_sets) == len(alone.graph.compute_sets)


def test_nothing_reduced_and_nothing_there() -> None:
    p = Program()
    x = p.graph.add_variable(f32, (3, 0), "x", mapping="linear")
    out = popops.reduce(p.graph, x, (1,), "max", p.prog)
    compare(p.run(out)[0], np.full(3, -np.inf, np.float32), 0.0)
    with pytest.raises(OptionError):
        popops.reduce(p.graph, x, (1,), "median", p.prog)
    flags = p.graph.add_variable(bool_, (3, 4), "flags", mapping="linear")
    for t, kind in ((flags, "sum"), (x, "or")):
        with pytest.raises(OptionError):
            popops.reduce(p.graph, t, (1,), kind, p.prog)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_views(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4)))
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    perm = data.draw(st.permutations(range(len(shape))))
    array = normal(*shape, dtype=i32)
    p = Program(5)
    stored = p.input(np.ascontiguousarray(array.transpose(perm)))
    x = stored.dim_shuffle(np.argsort(perm).tolist())
    out = popops.reduce(p.graph, x, dims, "sum", p.prog)
    np.testing.assert_array_equal(p.run(out)[0], array.sum(dims, dtype=np.int32))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "k", "axis"), [((5, 100), 7, 1), ((60, 4), 60, 0), ((9,), 1, 0)])
def test_top_k(shape: tuple[int, ...], k: int, axis: int, largest: bool) -> None:
    def reference(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        key = -v.astype(np.int64) if largest else v
        order = np.argsort(key, axis, kind="stable").take(range(k), axis)
        return np.take_along_axis(v, order, axis), order.astype(np.int32)

    check(
        lambda p, x: popops.top_k(p.graph, x, k, axis, largest, p.prog),
        reference,
        normal(*shape, dtype=i32),
        oracle=True,
    )


@pytest.mark.parametrize("dtype", [f32, f16, i32, u8], ids=str)
@pytest.mark.parametrize("shape", [(3, 900), (1, 6000), (40, 300)])
def test_searches_on_all_tiles(shape: tuple[int, int], dtype: DType) -> None:
    """Long rows of many equal elements: the first, and the last, of the best; best first."""
    array = np.random.default_rng(5).integers(0, 50, shape).astype(dtype.numpy)
    key = array.astype(np.int64)
    p = Program(100)
    x = p.input(array)
    firsts = [f(p.graph, x, 1, p.prog) for f in (popops.arg_max, popops.arg_min)]
    lasts = [f(p.graph, x, 1, p.prog, last=True) for f in (popops.arg_max, popops.arg_min)]
    best = [*popops.top_k(p.graph, x, 1, 1, True, p.prog)]
    few = [*popops.top_k(p.graph, x, 7, 1, False, p.prog)]
    got = p.run(*firsts, *lasts, *best, *few)
    wanted = [key.argmax(1), key.argmin(1)]
    wanted += [shape[1] - 1 - f(key[:, ::-1], 1) for f in (np.argmax, np.argmin)]
    order = np.argsort(key, 1, kind="stable")[:, :7]
    wanted += [key.max(1)[:, None], key.argmax(1)[:, None]]
    wanted += [np.take_along_axis(key, order, 1), order]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(g.astype(np.int64), w)


def test_the_best_of_nans() -> None:
    array = normal(3, 2000)
    array[0, [70, 900]], array[2, :] = np.nan, np.inf
    p = Program(100)
    x = p.input(array)
    got = p.run(
        popops.arg_max(p.graph, x, 1, p.prog), popops.arg_min(p.graph, x, 1, p.prog, last=True)
    )
    np.testing.assert_array_equal(got[0], array.argmax(1))
    assert got[1].tolist() == [900, int(array[1].argmin()), 1999]


@pytest.mark.parametrize(("k", "most"), [(1, 5000), (5, 360_000)])
def test_cycles_of_searches(k: int, most: int) -> None:
    p = Program(1472)
    x = p.graph.add_variable(f32, (16, 1000), "x", mapping="linear")
    for i, t in enumerate(popops.top_k(p.graph, x, k, 1, True, p.prog)):
        p.graph.create_host_read(f"out{i}", t)
    assert cycles_of(p) <= most


def test_top_k_of_long_rows() -> None:
    array = normal(2, 40000)
    order = np.argsort(-array, 1, kind="stable")[:, :5]
    check(
        lambda p, x: popops.top_k(p.graph, x, 5, 1, True, p.prog),
        lambda v: (np.take_along_axis(v, order, 1), order.astype(np.int32)),
        array,
    )


def test_sort_and_positions() -> None:
    array = normal(6, 33, 4, dtype=i8)
    check(lambda p, x: popops.sort(p.graph, x, 1, p.prog)[0], lambda v: np.sort(v, 1), array)
    for axis in range(3):
        check(
            lambda p, x, a=axis: popops.arg_max(p.graph, x, a, p.prog),
            lambda v, a=axis: v.argmax(a).astype(np.int32),
            array,
        )
        check(
            lambda p, x, a=axis: popops.arg_min(p.graph, x, a, p.prog, last=True),
            lambda v, a=axis: (v.shape[a] - 1 - np.flip(v, a).argmin(a)).astype(np.int32),
            array,
        )


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(exclusive: bool, reverse: bool) -> None:
    def reference(v: np.ndarray) -> np.ndarray:
        w = np.flip(v, 1) if reverse else v
        out = w.cumsum(1, dtype=v.dtype)
        out = out - w if exclusive else out
        return np.flip(out, 1) if reverse else out

    check(
        lambda p, x: popops.cumulative(
            p.graph, x, 1, "sum", p.prog, exclusive=exclusive, reverse=reverse
        ),
        reference,
        normal(4, 30, 3, dtype=i32),
    )
