"""Several convolutions at once, plans ahead, operands arranged ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poplar_py import poplin
from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Graph, program
from poplar_py.poplin import ConvolutionArgs, ConvParams, InputTransform, MatMulParams
from poplar_py.types import f16, f32, i32
from tests.poplin.cases import sample, target
from tests.poplin.flat import Flat
from tests.poplin.test_conv_params import reference
from tests.poplin.test_create import rearranged

PAD = InputTransform(padding_lower=(1, 1), padding_upper=(1, 1))
PARAMS = [
    ConvParams(f32, f32, 1, (14, 14), (3, 3), 32, 48, 1, PAD),
    ConvParams(f32, f32, 2, (8, 8), (3, 3), 3, 16, 1, PAD),
    ConvParams(f32, f32, 1, (28, 28), (1, 1), 16, 32),
]


def test_several_convolutions() -> None:
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(64)), program.Sequence()
    args: list[ConvolutionArgs] = []
    written: list[Any] = []
    for i, params in enumerate(PARAMS):
        x = poplin.multi_create_input(graph, PARAMS, i)
        w = poplin.multi_create_weights(graph, PARAMS, i)
        written += [(x, sample(rng, f32, x.shape)), (w, sample(rng, f32, w.shape))]
        args.append(ConvolutionArgs(x, w, params))
    made = poplin.multi_convolution(graph, args, prog)
    for x, w, _ in ((a.x, a.w, a.params) for a in args if a.params is not PARAMS[1]):
        assert rearranged(graph, prog, x) == rearranged(graph, prog, w) == []
    steps = [s for s in prog.steps if isinstance(s, program.Execute)]
    last = steps[-1].compute_set
    tiles = [set(g.tiles.tolist()) for g in last.groups]
    assert len(tiles) >= 3
    used = [set[int](), set[int](), set[int]()]
    for s in steps:
        for g in s.compute_set.groups:
            used[int(g.name.split("/")[1])] |= set(g.tiles.tolist())
    assert sum(len(u) for u in used) == len(used[0] | used[1] | used[2])
    flat = Flat(graph)
    for t, data in written:
        flat.write(t, data)
    flat.run(prog)
    for i, (out, params) in enumerate(zip(made, PARAMS, strict=True)):
        want = reference(written[2 * i][1], written[2 * i + 1][1], params)
        assert np.abs(flat.read(out) - want).max() <= 1e-5 * np.abs(want).max()


def test_more_convolutions_than_tiles() -> None:
    with pytest.raises(OptionError, match="3 convolutions side by side on 2 tiles"):
        poplin.multi_create_input(Graph(target(2)), PARAMS, 0)


def test_planning_cache() -> None:
    cache, machine = poplin.PlanningCache(), target(64)
    product = MatMulParams(f16, (64, 128), (128, 256))
    poplin.preplan(PARAMS, [product], machine, cache)
    assert (len(cache), cache.hits, cache.misses) == (4, 0, 4)
    poplin.preplan_mat_muls([product], target(64), cache)
    assert (len(cache), cache.hits, cache.misses) == (4, 1, 4)
    poplin.preplan_mat_muls([product], target(32), cache)
    assert len(cache) == 5, "another machine, another plan"
    graph, prog = Graph(machine), program.Sequence()
    text = poplin.mat_mul_report_plan(graph, product, cache)
    assert cache.hits == 2
    assert "vertices on" in text
    assert "cycles" in text
    a, b = (graph.add_variable(f16, s, mapping="linear") for s in (product.a, product.b))
    poplin.mat_mul(graph, a, b, prog, "real")
    assert poplin.mat_mul_report_plan(graph) == f"real: {text}", "the plan is the one that is used"


def test_reports_of_convolutions() -> None:
    graph, prog = Graph(target(64)), program.Sequence()
    text = poplin.report_plan_info(graph, PARAMS[0])
    (plan,) = poplin.PlanningCache().convolution(graph.target, PARAMS[0])
    assert text == plan.report()
    assert poplin.report_plan_estimated_costs(graph, PARAMS[0]) == plan.cycles > 0
    x, w = poplin.create_input(graph, PARAMS[0]), poplin.create_weights(graph, PARAMS[0])
    poplin.convolution(graph, x, w, None, PARAMS[0], prog, "real")
    assert poplin.plans(graph)["real"] == plan
    simple = MatMulParams(i32, (3, 4), (4, 5))
    assert "simple" in poplin.mat_mul_report_plan(graph, simple)


def test_arranged_ahead() -> None:
    """Two products share one arrangement of their second operand."""
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(64)), program.Sequence()
    a, b = sample(rng, f32, (5, 48)), sample(rng, f32, (48, 64))
    x = poplin.create_mat_mul_input_lhs(graph, f32, a.shape, b.shape)
    y = graph.add_variable(f32, b.shape, mapping="linear")
    arranged = poplin.pre_arrange_mat_mul_input_rhs(graph, a.shape, y, prog)
    first = poplin.mat_mul(graph, x, arranged, prog)
    second = poplin.mat_mul(graph, x, arranged, prog)
    assert rearranged(graph, prog, arranged) == []
    flat = Flat(graph)
    flat.write(x, a)
    flat.write(y, b)
    flat.run(prog)
    want = a.astype(np.float64) @ b
    for out in (first, second):
        assert np.abs(flat.read(out) - want).max() <= 1e-5 * np.abs(want).max()
