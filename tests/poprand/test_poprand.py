"""Random tensors: distributions by SciPy's tests, any mapping, any threads, seeds, generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from poplar_py import poprand
from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Engine, Graph, Mapping, Target, Tensor, program
from poplar_py.types import DTYPES, DType, bf16, f16, f32, i8, i32, i64, u8, u16, u32, u64

Array = npt.NDArray[Any]
TILES = 8
Make = Callable[[Graph, Any, program.Sequence], Tensor]


def random_mapping(rng: np.random.Generator, size: int) -> Mapping:
    """Up to 9 intervals on random tiles, at any element."""
    cuts = np.sort(rng.integers(0, size + 1, int(rng.integers(0, 9))))
    bounds = np.concatenate([[0], cuts, [size]])
    return Mapping(bounds, rng.integers(0, TILES, len(bounds) - 1).astype(np.int32)).normal()


def run(make: Make, shape: tuple[int, ...], reference: int | None = None, **options: Any) -> Array:
    """The values of one draw of a shape, or like a reference on random tiles."""
    graph = Graph(Target.ipu("gc200", 1, TILES))
    like: Any = shape
    if reference is not None:
        rng = np.random.default_rng(reference)
        size = int(np.prod(shape))
        like = graph.add_variable(f32, shape, "reference", mapping=random_mapping(rng, size))
    prog = program.Sequence()
    out = make(graph, like, prog)
    if reference is not None:
        found, wanted = graph.get_tile_mapping(out), graph.get_tile_mapping(like)
        np.testing.assert_array_equal(found.tile, wanted.tile)
    graph.create_host_read("out", out)
    engine = Engine(graph, prog, **{"threads": 1, **options})
    try:
        engine.run(timeout=60)
        return np.asarray(engine.read_tensor("out")).reshape(shape)
    finally:
        engine.close()


def shapes(seed: int) -> tuple[int, ...]:
    """A random shape of some 6,000 elements."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    sizes = rng.integers(3, 60, rank - 1)
    return (*sizes.tolist(), -(-6000 // int(np.prod(sizes))))


# ---------------------------------------------------------------- distributions

FLOATS = (f32, f16, bf16)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("number", range(2))
def test_uniform(dtype: DType, number: int) -> None:
    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        return poprand.uniform(g, 40 + number, like, -2.0, 6.0, prog, dtype=dtype)

    x = run(make, shapes(number), reference=number).astype(np.float64).ravel()
    assert x.min() >= -2
    assert x.max() <= 6
    step = 2.0 ** {"f32": -20, "f16": -9, "bf16": -6}[dtype.name]
    assert stats.kstest(x + np.random.default_rng(1).uniform(-step, step, x.size), "uniform",
                        (-2, 8)).pvalue > 0.01  # fmt: skip
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / np.sqrt(x.size)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal(dtype: DType) -> None:
    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        return poprand.normal(g, 3, like, 1.0, 2.0, prog, dtype=dtype)

    x = run(make, shapes(7), reference=7).astype(np.float64).ravel()
    assert stats.kstest(x, "norm", (1, 2)).pvalue > 0.01
    assert stats.normaltest(x).pvalue > 0.01
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / np.sqrt(x.size)


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5])
def test_truncated_normal(dtype: DType, alpha: float) -> None:
    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        return poprand.truncated_normal(g, 11, like, -1.0, 3.0, alpha, prog, dtype=dtype)

    x = run(make, shapes(2), reference=3).astype(np.float64).ravel()
    assert np.abs(x + 1).max() <= 3 * alpha * (1 + 2.0**-9)
    limits = (-alpha, alpha, -1, 3)
    assert stats.kstest(x, "truncnorm", limits).pvalue > 0.01


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_log_uniform(dtype: DType) -> None:
    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        return poprand.log_uniform(g, 5, like, 0.01, 100.0, prog, dtype=dtype)

    x = run(make, shapes(4), reference=4).astype(np.float64).ravel()
    assert stats.kstest(np.log(x), "uniform", (np.log(0.01), np.log(1e4))).pvalue > 0.01


@pytest.mark.parametrize("dtype", [f32, f16, i32, u8], ids=str)
@pytest.mark.parametrize("prob", [0.0, 0.25, 0.9, 1.0])
def test_bernoulli(dtype: DType, prob: float) -> None:
    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        return poprand.bernoulli(g, 6, like, prob, prog, dtype=dtype)

    x = run(make, shapes(6), reference=6).astype(np.float64)
    assert set(np.unique(x)) <= {0.0, 1.0}
    assert stats.binomtest(int(x.sum()), x.size, prob).pvalue > 0.01


RANGES: dict[str, tuple[DType, int, int]] = {
    "a die": (i32, 1, 6),
    "all of i8": (i8, -128, 127),
    "all of u16": (u16, 0, 65535),
    "three quarters of u32": (u32, 0, 3 * (1 << 30) - 1),
    "all of u32": (u32, 0, (1 << 32) - 1),
    "all of i32": (i32, -(1 << 31), (1 << 31) - 1),
    "beyond 32 bits": (i64, -(1 << 40), 1 << 41),
    "all of u64": (u64, 0, (1 << 64) - 1),
    "one value": (i64, -5, -5),
}


@pytest.mark.parametrize("name", RANGES)
def test_uniform_int(name: str) -> None:
    dtype, low, high = RANGES[name]

    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        return poprand.uniform(g, 77, like, low, high, prog, dtype=dtype)

    x = [int(v) for v in run(make, shapes(8), reference=8).ravel()]
    assert low <= min(x)
    assert max(x) <= high
    count = high - low + 1
    bins = min(count, 12)
    at = np.array([(v - low) * bins // count for v in x])
    if bins > 1:
        assert stats.chisquare(np.bincount(at, minlength=bins)).pvalue > 0.01
    if count > 100:  # the lower digits are even too
        digits = np.array([v % 3 for v in x])
        assert stats.chisquare(np.bincount(digits, minlength=3)).pvalue > 0.01


# ---------------------------------------------------------------- what a value depends on

DRAWS: dict[str, Make] = {
    "uniform": lambda g, s, p: poprand.uniform(g, 5, s, -1, 3, p),
    "ints": lambda g, s, p: poprand.uniform(g, 5, s, 0, 100, p, dtype=u8),
    "normal": lambda g, s, p: poprand.normal(g, 5, s, 1, 2, p, dtype=f16),
    "truncated": lambda g, s, p: poprand.truncated_normal(g, 5, s, 0, 1, 0.5, p),
    "bernoulli": lambda g, s, p: poprand.bernoulli(g, 5, s, 0.5, p),
}


@pytest.mark.parametrize("name", DRAWS)
def test_neither_tiles_nor_threads_change_a_value(name: str) -> None:
    """Also where a vertex starts inside a block of four."""
    shape = (7, 143)
    want = run(DRAWS[name], shape)
    for reference in range(4):
        np.testing.assert_array_equal(run(DRAWS[name], shape, reference), want)
    ways: list[dict[str, Any]] = [{"threads": 2}, {"faithful_exchange": True}, {"checked": True}]
    for way in ways:
        np.testing.assert_array_equal(run(DRAWS[name], shape, 1, **way), want)


def test_seed_modifier_and_position_do() -> None:
    def values(seed: int, modifier: int, size: int = 100) -> Array:
        return run(lambda g, s, p: poprand.uniform(g, seed, s, 0, 1, p, modifier=modifier), (size,))

    base = values(1, 0)
    others = [values(2, 0), values(1 << 32, 0), values(1, 1)]
    for other in others:
        assert not np.isin(base, other).any()
    np.testing.assert_array_equal(values(1, 0, 60), base[:60])
    assert len(np.unique(base)) == 100


def test_philox_is_the_published_one() -> None:
    """The known answer of Random123 for counter 0 and key 0: words as u32, drawn over all values.

    A value of all 64 bits is the word of the first call above that of the second.
    """

    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        return poprand.uniform(g, 0, like, 0, (1 << 64) - 1, prog, dtype=u64)

    got = run(make, (4,)) >> np.uint64(32)
    assert [int(v) for v in got] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_replicas_draw_alike() -> None:
    graph = Graph(Target.ipu("gc200", 2, TILES), replication_factor=2)
    prog = program.Sequence()
    own = graph.add_variable(u32, (2,), "own", mapping=0)
    same = poprand.uniform(graph, 9, (64,), 0, 1, prog)
    apart = poprand.uniform(graph, own, (64,), 0, 1, prog)
    graph.create_host_write("own", own)
    for name, t in (("same", same), ("apart", apart)):
        graph.create_host_read(name, t)
    engine = Engine(graph, prog, threads=1, replicas=2)
    engine.write_tensor("own", np.array([[1, 2], [3, 4]], np.uint32))
    engine.run()
    a, b = np.asarray(engine.read_tensor("same")).reshape(2, 64)
    np.testing.assert_array_equal(a, b)
    a, b = np.asarray(engine.read_tensor("apart")).reshape(2, 64)
    assert not np.isin(a, b).any()
    engine.close()


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("reference", [None, 2, 9])
def test_dropout(dtype: DType, reference: int | None) -> None:
    rng = np.random.default_rng(3)
    shape = (13, 501)
    x = (1 + rng.random(shape)).astype(dtype.numpy)

    def make(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
        t = g.add_constant(dtype, shape, x, "x", mapping="linear")
        given = None if reference is None else like
        return poprand.dropout(g, 4, t, 0.7, 1 / 0.7, prog, reference=given)

    got = run(make, shape, reference)
    kept = got != 0
    scaled = (x.astype(np.float32) * np.float32(1 / 0.7)).astype(dtype.numpy)
    np.testing.assert_array_equal(got[kept], scaled[kept])
    assert stats.binomtest(int(kept.sum()), x.size, 0.7).pvalue > 0.01
    np.testing.assert_array_equal(run(make, shape, reference), got)  # as the backward pass wants


def test_shaped_dropout() -> None:
    def make(g: Graph, _like: Any, prog: program.Sequence) -> Tensor:
        x = g.add_constant(f32, (200, 6), np.ones((200, 6)), "x", mapping="linear")
        return poprand.shaped_dropout(g, 5, x, (200, 1), 0.5, 2, prog)

    got = run(make, (200, 6))
    assert set(np.unique(got)) == {0.0, 2.0}
    assert (got == got[:, :1]).all()
    assert stats.binomtest(int((got[:, 0] > 0).sum()), 200, 0.5).pvalue > 0.01


# ---------------------------------------------------------------- the generator of a graph


def test_generator_state_is_saved_and_restored() -> None:
    """Two draws, then the saved state, then the same two draws again; a run goes on."""
    graph = Graph(Target.ipu("gc200", 1, TILES))
    prog = program.Sequence()
    saved = poprand.get_hw_seeds(graph, prog)
    first = [poprand.uniform(graph, None, (50,), 0, 1, prog) for _ in range(2)]
    poprand.set_hw_seeds(graph, saved, prog)
    again = [poprand.uniform(graph, None, (5, 10), 0, 1, prog) for _ in range(2)]
    for k, t in enumerate(first + again):
        graph.create_host_read(f"t{k}", t)
    engine = Engine(graph, prog, threads=1)
    runs: list[list[Array]] = []
    for _ in range(2):
        engine.run()
        runs.append([np.asarray(engine.read_tensor(f"t{k}")).ravel() for k in range(4)])
    engine.close()
    for values in runs:
        np.testing.assert_array_equal(values[0], values[2])
        np.testing.assert_array_equal(values[1], values[3])
    assert len(np.unique(np.concatenate([runs[0][0], runs[0][1], runs[1][0], runs[1][1]]))) == 200


def test_set_seed_sets_the_generator() -> None:
    def make(modifier: int) -> Make:
        def function(g: Graph, like: Any, prog: program.Sequence) -> Tensor:
            master = g.add_constant(u32, (2,), [7, 9], "master", 0)
            poprand.uniform(g, None, (8,), 0, 1, prog)
            poprand.set_seed(g, master, modifier, prog)
            return poprand.normal(g, None, like, 0, 1, prog)

        return function

    seeded = run(lambda g, s, p: poprand.normal(g, 7 + (9 << 32), s, 0, 1, p), (64,))
    np.testing.assert_array_equal(run(make(0), (64,)), seeded)
    assert not np.isin(run(make(1), (64,)), seeded).any()


WRONG: dict[str, Make] = {
    "low above high": lambda g, s, p: poprand.uniform(g, 1, s, 2, 1, p),
    "infinite": lambda g, s, p: poprand.uniform(g, 1, s, 0, float("inf"), p),
    "not in the type": lambda g, s, p: poprand.uniform(g, 1, s, 0, 256, p, dtype=u8),
    "bool": lambda g, s, p: poprand.uniform(g, 1, s, 0, 1, p, dtype=DTYPES["bool"]),
    "log of 0": lambda g, s, p: poprand.log_uniform(g, 1, s, 0, 1, p),
    "deviation": lambda g, s, p: poprand.normal(g, 1, s, 0, -1, p),
    "alpha": lambda g, s, p: poprand.truncated_normal(g, 1, s, 0, 1, 0, p),
    "probability": lambda g, s, p: poprand.bernoulli(g, 1, s, 1.5, p),
    "not a number": lambda g, s, p: poprand.bernoulli(g, 1, s, float("nan"), p),
    "seed": lambda g, s, p: poprand.bernoulli(g, g.add_constant(f32, (2,), 0), s, 0.5, p),
    "state": lambda g, s, p: poprand.set_hw_seeds(g, g.add_variable(u32, (3,), "s", mapping=0), p),
    "dropout of ints": lambda g, s, p: poprand.dropout(
        g, 1, g.add_variable(i32, (4,), "x", mapping=0), 0.5, 2, p
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_refused(what: str) -> None:
    graph = Graph(Target.ipu("gc200", 1, TILES))
    with pytest.raises(OptionError):
        WRONG[what](graph, (4,), program.Sequence())


def test_empty_tensors() -> None:
    graph = Graph(Target.ipu("gc200", 1, TILES))
    prog = program.Sequence()
    assert poprand.uniform(graph, 1, (0, 3), 0, 1, prog).shape == (0, 3)
    like = graph.add_variable(f32, (2, 0), "x", mapping=0)
    assert poprand.normal(graph, None, like, 0, 1, prog).shape == (2, 0)
