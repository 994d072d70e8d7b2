"""popops.map: broadcasts, layouts, element types, against NumPy and the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from popops_harness import Program, check, compare, normal

from poplar_py import popops
from poplar_py.codelets import expr
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Tensor, concat, program
from poplar_py.poplar.mapping import linear
from poplar_py.popops.elementwise import split_work
from poplar_py.poputil.blocked import add_blocked, blocked_base
from poplar_py.poputil.layout import memory_order
from poplar_py.types import DTYPES, bf16, f16, f32, f64, i8, i32, i64, u8

SHAPES = [
    ((40, 50), (40, 50)),
    ((40, 50), (50,)),
    ((40, 50), (40, 1)),
    ((40, 50), ()),
    ((4, 10, 50), (4, 1, 50)),
    ((4, 10, 5), (4, 1, 5)),
    ((40, 1), (1, 50)),
    ((3, 1, 7, 2), (5, 1, 2)),
    ((1,), (1,)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check(
        lambda p, x, y: popops.sub(p.graph, x, y, p.prog),
        np.subtract,
        normal(*a),
        normal(*b, seed=1),
        oracle=True,
    )


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_broadcasts(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    shapes = []
    for _ in range(data.draw(st.integers(1, 3))):
        kept = [n if data.draw(st.booleans()) else 1 for n in shape]
        shapes.append(tuple(kept[data.draw(st.integers(0, len(kept) - 1)) :]))
    arrays = [normal(*s, seed=i) for i, s in enumerate([shape, *shapes])]
    p = Program(7)
    tensors = []
    for array in arrays:
        perm = data.draw(st.permutations(range(array.ndim)))
        stored = p.input(np.ascontiguousarray(array.transpose(perm)))
        tensors.append(stored.dim_shuffle(np.argsort(perm).tolist()))
    text, want = "$0", arrays[0]
    for i in range(1, len(arrays)):
        text, want = f"add({text},${i})", want + arrays[i]
    out = popops.map(p.graph, text, tensors, p.prog)
    compare(p.run(out)[0], want, 0.0)


def _blocked(p: Program, array: np.ndarray) -> Tensor:
    blocks, view = add_blocked(p.graph, f32, array.shape, "blocked")
    flat = blocks.flatten()
    half = flat.numel // 2 // 16 * 16
    p.graph.set_tile_mapping(flat.slice(0, half), 1)
    p.graph.set_tile_mapping(flat.slice(half, flat.numel), 2)
    popops.zero(p.graph, blocks, p.prog)
    p.prog.add(program.Copy(p.input(array), view))
    return view


@pytest.mark.parametrize("channels", [16, 32, 20, 3, 1])
@pytest.mark.parametrize("other", ["same", "bias", "gate", "scalar", "row_major", "constant"])
def test_blocked_layouts(channels: int, other: str) -> None:
    shape = (2, channels, 5, 6)
    shapes = {"same": shape, "row_major": shape, "gate": (2, channels, 1, 1), "scalar": ()}
    a, b = normal(*shape), normal(*shapes.get(other, (1, channels, 1, 1)), seed=1)
    p = Program()
    x = _blocked(p, a)
    if other in ("same", "gate"):
        y = _blocked(p, b)
    elif other == "constant":
        y = p.graph.add_constant(f32, b.shape, b, "bias", "linear")
    else:
        y = p.input(b)
    out = popops.map(p.graph, "relu(mul($0,$1))", [x, y], p.prog)
    compare(p.run(out)[0], np.maximum(a * b, 0), 0.0)
    if other in ("same", "scalar", "constant") and channels > 1:
        kept = blocked_base(p.graph, out) is not None or memory_order(out) is not None
        assert kept, "the result is blocked again"


def test_joined_input_gives_joined_output() -> None:
    p = Program()
    a, b = normal(4, 30, 9), normal(4, 12, 9, seed=1)
    x = concat([p.input(a), p.input(b, 3)], 1)
    out = popops.exp(p.graph, x, p.prog)
    compare(p.run(out)[0], np.exp(np.concatenate([a, b], 1)), 1e-6)
    assert len(out.variables()) == 2


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64, i8, i32, i64, u8], ids=str)
def test_types(dtype: object) -> None:
    dt = DTYPES[str(dtype)]
    a, b = normal(6, 40, dtype=dt), normal(6, 40, dtype=dt, seed=2)
    for text in ("add($0,$1)", "mul($0,$1)", "max($0,$1)", "less($0,$1)", "equal($0,$1)"):
        check(
            lambda p, x, y, t=text: popops.map(p.graph, t, [x, y], p.prog),
            lambda x, y, t=text: expr.evaluate(t, [x, y]),
            a,
            b,
        )


@pytest.mark.parametrize("source", sorted(DTYPES))
def test_casts(source: str) -> None:
    array = normal(5, 30, dtype=DTYPES[source])
    for target in DTYPES.values():
        check(
            lambda p, x, d=target: popops.cast(p.graph, x, d, p.prog),
            lambda x, d=target: expr.evaluate(f"cast($0,{d.name})", [x]),
            array,
        )


def test_float_to_integer_saturates() -> None:
    values = np.array([1e10, -1e10, np.nan, np.inf, -np.inf, 2.9, -2.9], np.float32)
    want = np.array([2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), 2, -2], np.int32)
    check(lambda p, x: popops.cast(p.graph, x, i32, p.prog), lambda _: want, values)


def test_in_place_and_scaled_add() -> None:
    p = Program()
    a, b = normal(30, 7), normal(30, 7, seed=1)
    x, y = p.input(a), p.input(b)
    popops.mul_in_place(p.graph, x, y, p.prog)
    popops.scaled_add_to(p.graph, x, y, 0.5, p.prog)
    compare(p.run(x)[0], a * b + np.float32(0.5) * b, 1e-6)


def test_select_clamp_one_hot() -> None:
    p = Program()
    a, b = normal(9, 9), normal(9, 9, seed=1)
    index = np.array([0, 3, 4, -1], np.int32)
    x, y = p.input(a), p.input(b)
    low = p.graph.add_constant(f32, (), -0.5, "low", 0)
    high = p.graph.add_constant(f32, (), 0.5, "high", 0)
    chosen = popops.select(p.graph, x, y, popops.gt(p.graph, x, y, p.prog), p.prog)
    clamped = popops.clamp(p.graph, x, low, high, p.prog)
    hot = popops.one_hot(p.graph, p.input(index), 5, f16, p.prog)
    got = p.run(chosen, clamped, hot)
    compare(got[0], np.maximum(a, b), 0.0)
    compare(got[1], np.clip(a, -0.5, 0.5), 0.0)
    compare(got[2], (index[:, None] == np.arange(5)).astype(np.float16), 0.0)


def test_checks_and_counted_loops() -> None:
    p = Program()
    a = normal(30, 4)
    b = a.copy()
    b[7, 2] = np.nan
    x, y = p.input(a), p.input(b)
    below = popops.lt(p.graph, x, popops.exp(p.graph, x, p.prog), p.prog)
    outs = [
        popops.all_true(p.graph, below, p.prog),
        popops.has_nan(p.graph, x, p.prog),
        popops.has_nan(p.graph, y, p.prog),
        popops.has_nan_or_inf(p.graph, y, p.prog),
    ]
    total = popops.fill_constant(p.graph, i32, (1,), 0, p.prog)

    def body(i: Tensor) -> program.Sequence:
        step = program.Sequence()
        popops.add_in_place(p.graph, total, i, step)
        return step

    p.prog.add(popops.counted_for_loop(p.graph, 3, 12, 2, body))
    got = p.run(*outs, total)
    assert [bool(g) for g in got[:4]] == [True, False, True, True]
    assert got[4][0] == sum(range(3, 12, 2))


def test_empty_tensors_need_no_vertices() -> None:
    p = Program()
    x = p.graph.add_variable(f32, (0, 4), "x", mapping="linear")
    out = popops.relu(p.graph, x, p.prog)
    assert out.shape == (0, 4)
    assert p.vertices == 0


def test_unknown_function_is_an_error() -> None:
    p = Program()
    with pytest.raises(PoplarPyError):
        popops.map(p.graph, "frobnicate($0)", [p.input(normal(3))], p.prog)


@pytest.mark.parametrize(("size", "cols", "block"), [(100, 10, 100), (97, 97, 97), (600, 7, 42)])
def test_work_covers_everything_once(size: int, cols: int, block: int) -> None:
    work = split_work(linear(size, 5, 3, 8), cols, block)
    assert work.begin[0] == 0
    assert work.end[-1] == size
    assert (work.begin[1:] == work.end[:-1]).all()
    length = work.end - work.begin
    inside = (work.begin // cols == (work.end - 1) // cols) | (
        (work.begin % cols == 0) & (length % cols == 0)
    )
    assert inside.all(), "whole rows, or part of one row"
    assert (work.begin // block == (work.end - 1) // block).all()
    assert math.prod([1, *np.bincount(work.tile).clip(1, 1)]) == 1
