"""Lowering: every op has a rule, and lowered graphs give what the reference interpreter gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from popops_harness import normal

from poplar_py.eval import evaluate
from poplar_py.executable.build import BuildOptions, build_from_module
from poplar_py.ir import REGISTRY, Builder, Value
from poplar_py.ir import Graph as ModelGraph
from poplar_py.passes.lower import LOWER, lower_graph
from poplar_py.passes.tile_module import TileModule
from poplar_py.runtime.engine import TileEngine
from poplar_py.target import Target
from poplar_py.types import DTYPES, TensorType, bool_, dtype_of, f32, i32

R = REGISTRY
Array = np.ndarray
Build = Callable[..., Value | Sequence[Value]]


def test_every_op_has_a_rule() -> None:
    assert [name for name, cls in REGISTRY.items() if cls not in LOWER] == []


def make(build: Build, arrays: Sequence[Array]) -> ModelGraph:
    graph = ModelGraph("main")
    inputs = [
        graph.add_input(TensorType(dtype_of(a), a.shape), f"x{i}") for i, a in enumerate(arrays)
    ]
    made = build(Builder(graph), *inputs)
    for i, value in enumerate(made if isinstance(made, tuple | list) else [made]):
        graph.add_output(value, f"y{i}")
    return graph


def run(
    graph: ModelGraph, arrays: Sequence[Array], ipus: int = 1
) -> tuple[list[Array], TileModule]:
    module = lower_graph(graph, Target.ipu("gc200", ipus=ipus, tiles_per_ipu=32))
    exe = build_from_module(module, BuildOptions(names=["main"]))
    with TileEngine(exe, threads=1) as engine:
        for value, array in zip(graph.inputs, arrays, strict=True):
            engine.write(f"input/{value.name}", np.ascontiguousarray(array).ravel())
        engine.run("main")
        outs = [
            engine.read(f"output/{graph.output_name(i)}").reshape(value.type.static_shape)
            for i, value in enumerate(graph.outputs)
        ]
    return outs, module


def check(build: Build, *arrays: Array, tolerance: float = 2e-5, ipus: int = 1) -> TileModule:
    graph = make(build, arrays)
    got, module = run(graph, arrays, ipus)
    wanted: Any = evaluate(graph, list(arrays))
    wanted = list(wanted.values()) if isinstance(wanted, dict) else wanted
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == np.shape(b)
        wide, want = a.astype(np.float64), np.asarray(b).astype(np.float64)
        np.testing.assert_allclose(wide, want, rtol=tolerance, atol=tolerance)
    return module


def vertices(module: TileModule) -> int:
    return sum(g.n for cs in module.graph.compute_sets for g in cs.groups)


def test_mlp_and_cnn() -> None:
    w1, b1, w2 = normal(64, 48), normal(48), normal(48, 10)

    def mlp(b: Builder, x: Value) -> Value:
        h = b.add(R["nn.matmul"], x, b.constant(w1))
        h = b.add(R["nn.relu"], b.add(R["math.add"], h, b.constant(b1)))
        return b.add(R["nn.softmax"], b.add(R["nn.matmul"], h, b.constant(w2)))

    check(mlp, normal(8, 64))
    w, c = normal(20, 3, 3, 3), normal(20)

    def cnn(b: Builder, x: Value) -> Value:
        one, pads = (1, 1), (1, 1, 1, 1)
        h = b.add(R["nn.conv"], x, b.constant(w), b.constant(c), one, pads, one)
        h = b.add(R["nn.max_pool"], b.add(R["nn.relu"], h), (2, 2), (2, 2), (0, 0, 0, 0), one)
        h = b.add(R["nn.avg_pool"], h, (3, 3), (1, 1), pads, one, count_include_pad=True)
        return b.add(R["tensor.reduce"], h, "sum", (2, 3))

    check(cnn, normal(2, 3, 12, 12), tolerance=2e-4)


@pytest.mark.parametrize("size", [(40, 1), (1, 40), (1, 1)])
def test_convolution_over_single_pixels(size: tuple[int, int]) -> None:
    kernel = tuple(3 if n > 1 else 1 for n in size)
    pads = tuple(1 if n > 1 else 0 for n in size) * 2
    w, c = normal(24, 16, *kernel), normal(24)

    def build(b: Builder, x: Value, r: Value) -> Value:
        h = b.add(R["nn.conv"], x, b.constant(w), b.constant(c), (1, 1), pads, (1, 1))
        return b.add(R["nn.relu"], b.add(R["math.add"], h, r))

    check(build, normal(1, 16, *size), normal(1, 24, *size), tolerance=1e-4)


def test_layout_ops_cost_no_vertices() -> None:
    def views(b: Builder, x: Value) -> Value:
        y = b.add(R["tensor.transpose"], x, (2, 0, 1))
        y = b.add(R["tensor.slice"], y, (3, 0, 1), (2, 4, 2), (-2, 1, 3))
        y = b.add(R["tensor.reshape"], y, (4, 4))
        y = b.add(R["tensor.concat"], (y, y), 1)
        y = b.add(R["tensor.reshape"], y, (4, 1, 8))
        return b.add(R["tensor.expand"], y, (4, 3, 8))

    assert vertices(check(views, normal(4, 6, 5))) == 0


def test_constant_parts_are_computed_at_compile_time() -> None:
    def folded(b: Builder, x: Value) -> Value:
        k = b.add(R["math.mul"], b.constant(normal(4)), b.constant(np.float32(2)))
        return b.add(R["math.add"], x, b.add(R["tensor.reshape"], k, (2, 2)))

    module = check(folded, normal(2, 2))
    assert len(module.graph.compute_sets) == 1


@pytest.mark.parametrize("target", sorted(DTYPES))
def test_casts(target: str) -> None:
    check(lambda b, x: b.add(R["math.cast"], x, DTYPES[target]), normal(5, 9) * 4)


def test_indexing_ops() -> None:
    index = np.array([3, 0, 3, 1], np.int32)

    def build(b: Builder, x: Value, i: Value, s: Value) -> list[Value]:
        rows = b.add(R["tensor.gather"], x, i, 0)
        known = b.add(R["tensor.gather"], x, b.constant(index[:, None]), 1)
        table = b.add(R["tensor.gather"], b.constant(normal(5, 32)), i, 0)
        new = b.add(R["tensor.scatter"], x, i, rows, "add")
        cut = b.add(R["tensor.dynamic_slice"], x, s, 0, 2)
        put = b.add(R["tensor.dynamic_update"], x, cut, b.constant(np.array([1], np.int32)), 0)
        return [rows, known, table, new, cut, put]

    check(build, normal(4, 8), index, np.array([2], np.int32))


def test_loop_with_limit_and_swapped_values() -> None:
    def build(b: Builder, x: Value, n: Value) -> list[Value]:
        body = ModelGraph("body")
        body.add_input(TensorType(i32, ()), "i")
        first = body.add_input(TensorType(f32, (4, 5)), "first")
        second = body.add_input(TensorType(f32, (4, 5)), "second")
        total = Builder(body).add(R["math.add"], first, second)
        body.add_output(second)
        body.add_output(total)
        return list(b.add_op(R["core.loop"], (x, x), n, None, body).results)

    for n in (0, 1, 5):
        check(build, normal(4, 5), np.array(n, np.int32))


def test_loop_that_fills_a_buffer_updates_it_in_place() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        body = ModelGraph("body")
        i = body.add_input(TensorType(i32, ()), "i")
        state = body.add_input(TensorType(f32, (3,)), "state")
        held = body.add_input(TensorType(f32, (6, 3)), "held")
        c = Builder(body)
        new = c.add(R["math.mul"], state, c.constant(np.float32(0.5)))
        row = c.add(R["tensor.reshape"], new, (1, 3))
        body.add_output(new)
        body.add_output(c.add(R["tensor.dynamic_update"], held, row, i, 0))
        start = b.constant(np.zeros((6, 3), np.float32))
        return list(b.add_op(R["core.loop"], (x, start), None, None, body, trip=6).results)

    module = check(build, normal(3))
    names = [g.codelet.name for cs in module.graph.compute_sets for g in cs.groups]
    assert sum("DynamicUpdate" in n for n in names) == 1


def test_loop_with_condition() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        body = ModelGraph("body")
        i = body.add_input(TensorType(i32, ()), "i")
        a = body.add_input(TensorType(f32, (4, 5)), "a")
        c = Builder(body)
        body.add_output(c.add(R["math.less"], i, c.constant(np.int32(2))))
        body.add_output(c.add(R["math.mul"], a, a))
        go = b.constant(np.array(True))
        return list(b.add_op(R["core.loop"], (x,), None, go, body).results)

    check(build, normal(4, 5))


@pytest.mark.parametrize("flag", [True, False])
def test_if(flag: bool) -> None:
    def build(b: Builder, c: Value, x: Value) -> list[Value]:
        yes, no = ModelGraph("yes"), ModelGraph("no")
        yes.add_output(Builder(yes).add(R["math.add"], x, x))
        yes.add_output(x)
        no.add_output(x)
        no.add_output(Builder(no).constant(normal(4, 5)))
        assert c.dtype is bool_
        return list(b.add_op(R["core.if"], c, yes, no).results)

    check(build, np.array(flag), normal(4, 5))


def test_epilogue_and_bias() -> None:
    w, c = normal(32, 48), normal(48)

    def build(b: Builder, x: Value, r: Value) -> Value:
        h = b.add(R["math.add"], b.add(R["nn.matmul"], x, b.constant(w)), b.constant(c))
        return b.add(R["nn.relu"], b.add(R["math.add"], h, r))

    module = check(build, normal(16, 32), normal(16, 48))
    names = [g.codelet.name for cs in module.graph.compute_sets for g in cs.groups]
    assert len(names) <= 3, "the bias is added inside the product's vertices"


def test_placed_ops_use_the_tiles_of_their_ipu() -> None:
    def build(b: Builder, x: Value) -> Value:
        b.ipu = 0
        h = b.add(R["math.exp"], x)
        b.ipu = 1
        return b.add(R["nn.softmax"], b.add(R["math.add"], h, h))

    module = check(build, normal(16, 32), ipus=2)
    first, *rest = (g for cs in module.graph.compute_sets for g in cs.groups)
    assert int(first.tiles.max()) < 32
    assert all(int(g.tiles.min()) >= 32 for g in rest)


def test_random_numbers_are_reproducible() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        u = b.add(R["core.random_uniform"], (50,), f32, 0.0, 1.0, 3)
        n = b.add(R["core.random_normal"], (50,), f32, 0.0, 1.0, 3)
        return [b.add(R["math.add"], x, u), n]

    arrays = [np.zeros(50, np.float32)]
    graph = make(build, arrays)
    first, second = run(graph, arrays)[0], run(graph, arrays)[0]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert 0 <= first[0].min() <= first[0].max() < 1
