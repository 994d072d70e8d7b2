"""The planner: deterministic, quick, within the kernels' limits; pieces that layers agree on."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poplar_py import poplin
from poplar_py.poplar import Graph, program
from poplar_py.poplin.epilogue import fold_bias, inline_form, supports_epilogue
from poplar_py.poplin.plan import MAX_SUMS, Problem, make_plan, piece_widths
from poplar_py.types import f32
from tests.poplin.cases import target


def problem(tiles: int = 1472, **sizes: int) -> Problem:
    base = {
        "size": 4,
        "rows": 28,
        "width": 28,
        "out_blocks": 8,
        "in_blocks": 8,
        "kernel_rows": 3,
        "kernel_width": 3,
        "stride": 1,
        "dilation": 1,
        "chans": 16,
        "read_piece": 14,
    }
    return Problem(tiles=tiles, **(base | sizes))  # type: ignore[arg-type]


@given(st.integers(1, 2000))
def test_pieces_cover_the_row(width: int) -> None:
    pieces = piece_widths(width)
    assert sum(pieces) == width
    assert min(pieces) >= 1
    assert max(pieces) <= 30


@pytest.mark.parametrize(("width", "piece"), [(112, 14), (56, 14), (28, 14), (14, 14), (7, 7)])
def test_resnet_widths_agree(width: int, piece: int) -> None:
    assert set(piece_widths(width)) == {piece}


@pytest.mark.parametrize("width", [416, 208, 104, 52, 26])
def test_halving_keeps_the_piece(width: int) -> None:
    assert set(piece_widths(width)) == {26}


@given(
    st.integers(1, 64),
    st.integers(1, 300),
    st.integers(1, 64),
    st.integers(1, 64),
    st.sampled_from([1, 3, 5, 7]),
    st.integers(1, 2),
    st.sampled_from([16, 1472, 5888]),
)
def test_plans_are_lawful(
    rows: int, width: int, outs: int, ins: int, kernel: int, stride: int, tiles: int
) -> None:
    p = problem(
        tiles,
        rows=rows,
        width=width,
        out_blocks=outs,
        in_blocks=ins,
        kernel_rows=kernel,
        kernel_width=kernel,
        stride=stride,
    )
    plan = make_plan(p)
    assert plan.px * plan.nb <= MAX_SUMS
    assert outs % plan.nb == 0
    assert 1 <= plan.splits <= ins
    assert plan.vertices > 0
    assert plan.cycles > 0
    assert make_plan.__wrapped__(p) == plan


def test_quick() -> None:
    start = time.perf_counter()
    for width in range(200, 220):
        make_plan.__wrapped__(problem(width=width, rows=64, out_blocks=64, in_blocks=128))
    assert (time.perf_counter() - start) / 20 < 0.01


def test_fills_tiles_and_says_so() -> None:
    plan = make_plan(problem(rows=14, width=14, out_blocks=16, in_blocks=16))
    assert plan.vertices > 736
    assert f"{plan.vertices} vertices" in plan.report()
    assert "cycles" in plan.report()


def test_more_tiles_more_vertices() -> None:
    small, large = make_plan(problem(1472)), make_plan(problem(5888))
    assert large.vertices >= small.vertices
    assert large.cycles <= small.cycles


FORMS = {
    "relu($0)": (1, 0),
    "relu(add($1,$0))": (1, 1),
    "max($0,c(0))": (1, 0),
    "mul(mul($0,c(0.5)),add(c(1),erf(mul($0,c(0.7071067811865476)))))": (2, 0),
    "mul($0,sigmoid($0))": (4, 0),
    "div($0,add(c(1),exp(neg($0))))": (4, 0),
    "min(max($0,c(0)),c(6))": (6, 0),
    "add($0,$1)": (0, 1),
}


@pytest.mark.parametrize("expr", FORMS)
def test_inline_forms(expr: str) -> None:
    form = inline_form(expr)
    assert form is not None
    assert (form.act, form.residual) == FORMS[expr]


@pytest.mark.parametrize("expr", ["exp($0)", "mul($0,$1)", "mul($0,add(c(1),erf($0)))", "relu($1)"])
def test_others_need_their_own_step(expr: str) -> None:
    assert not supports_epilogue(expr)


def test_bias_folds_only_when_it_vanishes() -> None:
    assert fold_bias("add(add($1,$0),$2)", 1) == "add($0,$1)"
    assert fold_bias("relu(add($0,$1))", 1) == "relu($0)"
    assert fold_bias("mul(add($0,$1),$1)", 1) is None


def test_a_graph_reports_its_plans() -> None:
    graph, prog = Graph(target(64)), program.Sequence()
    x = graph.add_variable(f32, (64, 64), "x", mapping="linear")
    w = np.ones((64, 32), np.float32)
    for _ in range(2):
        poplin.mat_mul(graph, x, w, prog, "dense")
    assert list(poplin.plans(graph)) == ["dense", "dense (2)"]
    assert poplin.plan_report(graph).startswith("dense: block: outputs / ")
