"""Forms of Poplar's libraries: expression objects, numbers as operands, names and orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poplar_py import poplar, poplin, popnn, popops, poprand, poputil
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import FLOAT, HALF, INT, UNSIGNED_INT
from poplar_py.poplar.program import Sequence
from poplar_py.popops import Operation, ReduceParams
from poplar_py.popops import expr as pe

X = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]], np.float32)
Y = np.array([[1.5, 2.5, 0.5], [4.0, 1.0, 2.0]], np.float32)
Build = Callable[[poplar.Graph, list[poplar.Tensor], Sequence], Any]


def outcome(build: Build, *values: np.ndarray) -> np.ndarray:
    """What `build(graph, tensors, prog)` gives, or the first tensor if it gives nothing."""
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    kinds = {"float32": FLOAT, "float16": HALF, "int32": INT, "uint32": UNSIGNED_INT}
    kinds["bool"] = poplar.BOOL
    tensors: list[poplar.Tensor] = []
    for i, value in enumerate(values):
        t = graph.add_variable(kinds[value.dtype.name], value.shape, f"v{i}", mapping="linear")
        graph.create_host_write(f"v{i}", t)
        tensors.append(t)
    prog = Sequence()
    out = build(graph, tensors, prog)
    out = tensors[0] if out is None else out
    graph.create_host_read("out", out)
    engine = poplar.Engine(graph, prog)
    for i, value in enumerate(values):
        engine.write_tensor(f"v{i}", value)
    engine.run()
    return engine.read_tensor("out").reshape(out.shape)


# ---------------------------------------------------------------- expressions

ONE, TWO = pe._1, pe._2
EXPRESSIONS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "calls": (pe.Add(pe.Mul(ONE, ONE), pe.Const(2.0)), lambda x, y: x * x + 2),
    "operators": (2.0 * ONE - TWO / 4.0, lambda x, y: 2 * x - y / 4),
    "select": (pe.Select(ONE, TWO, pe.Gt(ONE, TWO)), lambda x, y: np.where(x > y, x, y)),
    "clamp": (pe.Clamp(ONE, -1.0, pe.Const(1.0)), lambda x, y: np.clip(x, -1, 1)),
    "negative": (-pe.Abs(ONE), lambda x, y: -np.abs(x)),
    "compared": (pe.Cast((ONE > 0.0), FLOAT), lambda x, y: (x > 0).astype(np.float32)),
    "deviation": (pe.VarianceToInvStdDev(TWO, pe.Const(0.5)), lambda x, y: 1 / np.sqrt(y + 0.5)),
    "twentieth": (pe.Exp(pe.PlaceHolder(2)), lambda x, y: np.exp(y)),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name: str) -> None:
    expression, want = EXPRESSIONS[name]
    got = outcome(lambda g, t, p: popops.map(g, expression, t, p, "map"), X, Y)
    np.testing.assert_allclose(got, want(X, Y), rtol=1e-6)


def test_every_name_compiles() -> None:
    """Each name is an expression of the language with one or two operands."""
    for name in pe.UNARY_NAMES:
        kind = np.int32 if name in ("BitwiseNot", "CountLeadingZeros", "Popcount") else np.float32
        build = getattr(pe, name)
        outcome(lambda g, t, p, b=build: popops.map(g, b(ONE), t, p), Y.astype(kind))
    for name in pe.BINARY_NAMES:
        kind = np.int32 if name.startswith(("Bitwise", "Sh")) else np.float32
        build = getattr(pe, name)
        values = (Y.astype(kind), Y.astype(kind))
        outcome(lambda g, t, p, b=build: popops.map(g, b(ONE, TWO), t, p), *values)
    with pytest.raises(AttributeError, match="Bogus"):
        _ = pe.Bogus
    with pytest.raises(TypeError, match="takes 2"):
        pe.Add(ONE)


def test_expressions_in_place_and_with_output() -> None:
    got = outcome(lambda g, t, p: popops.map_in_place(g, ONE + TWO, t, p), X, Y)
    np.testing.assert_array_equal(got, X + Y)

    def into(g: poplar.Graph, t: list[poplar.Tensor], p: Sequence) -> poplar.Tensor:
        out = g.clone(t[0], "out")
        popops.map_with_output(g, pe.Max(ONE, TWO), t, out, p)
        return out

    np.testing.assert_array_equal(outcome(into, X, Y), np.maximum(X, Y))


# ---------------------------------------------------------------- numbers as operands

NUMBERS: dict[str, tuple[Build, Any]] = {
    "add": (lambda g, t, p: popops.add(g, t[0], 1.5, p, "add"), X + 1.5),
    "sub from": (lambda g, t, p: popops.sub(g, 1.0, t[0], p), 1.0 - X),
    "less": (lambda g, t, p: popops.lt(g, t[0], 0, p), X < 0),
    "max": (lambda g, t, p: popops.max(g, t[0], np.float32(0.25), p), np.maximum(X, 0.25)),
    "in place": (lambda g, t, p: popops.mul_in_place(g, t[0], -2.0, p), X * -2),
    "sub in place": (lambda g, t, p: popops.sub_in_place(g, t[0], 2.0, p), X - 2),
    "clamp": (lambda g, t, p: popops.clamp(g, t[0], -1.0, 1.0, p), np.clip(X, -1, 1)),
    "mapped": (lambda g, t, p: popops.map(g, ONE * TWO, [t[0], 3], p), X * 3),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    build, want = NUMBERS[name]
    np.testing.assert_array_equal(outcome(build, X), want)


def test_numbers_take_the_type_of_the_tensor() -> None:
    half = X.astype(np.float16)
    got = outcome(lambda g, t, p: popops.mul(g, t[0], 0.5, p), half)
    assert got.dtype == np.float16
    ints = np.array([7, -7], np.int32)
    got = outcome(lambda g, t, p: popops.add(g, t[0], 1, p), ints)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, [8, -6])


def test_numbers_alone_and_strangers_are_refused() -> None:
    with pytest.raises(PoplarPyError, match="numbers alone"):
        outcome(lambda g, t, p: popops.add(g, 1.0, 2.0, p), X)
    with pytest.raises(PoplarPyError, match="an operand is list"):
        outcome(lambda g, t, p: popops.add(g, t[0], [1.0], p), X)


# ---------------------------------------------------------------- names and orders


def test_reduce_in_poplars_order() -> None:
    half = X.astype(np.float16)
    got = outcome(lambda g, t, p: popops.reduce(g, t[0], FLOAT, [1], Operation.ADD, p, "sum"), half)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, X.sum(1))
    params = ReduceParams(Operation.MAX)
    np.testing.assert_array_equal(
        outcome(lambda g, t, p: popops.reduce(g, t[0], [0], params, p), X), X.max(0)
    )


def test_reduce_params_scale_and_update() -> None:
    def build(g: poplar.Graph, t: list[poplar.Tensor], p: Sequence) -> poplar.Tensor:
        out = g.add_variable(FLOAT, [3], "out", mapping="linear")
        popops.fill(g, out, 1.0, p)
        params = ReduceParams(Operation.ADD, update=True, scale=0.5)
        popops.reduce_with_output(g, t[0], out, [0], params, p, "grow")
        return out

    np.testing.assert_allclose(outcome(build, X), 1 + 0.5 * X.sum(0))
    params = ReduceParams(Operation.ADD, scale=2.0)
    with pytest.raises(PoplarPyError, match="scale or an update") as caught:
        outcome(lambda g, t, p: popops.reduce(g, t[0], [0], params, p), X)
    assert "reduce_with_output" in caught.value.remedy


def test_products_in_poplars_order() -> None:
    a, b = X, Y.T.copy()
    options = poplar.OptionFlags({"availableMemoryProportion": "0.4"})
    got = outcome(lambda g, t, p: poplin.mat_mul(g, *t, p, FLOAT, "product", options), a, b)
    np.testing.assert_allclose(got, a @ b, rtol=1e-6)
    bad = {"availableMemory": "0.4"}
    with pytest.raises(PoplarPyError, match="unknown option 'availableMemory'"):
        outcome(lambda g, t, p: poplin.mat_mul(g, *t, p, FLOAT, "product", bad), a, b)


def test_random_numbers_in_poplars_order() -> None:
    seed = np.array([3, 4], np.uint32)

    def ours(g: poplar.Graph, t: list[poplar.Tensor], p: Sequence) -> poplar.Tensor:
        return poprand.uniform(g, t[0], t[1], -1.0, 1.0, p, dtype=HALF, modifier=7)

    def poplars(g: poplar.Graph, t: list[poplar.Tensor], p: Sequence) -> poplar.Tensor:
        return poprand.uniform(g, t[0], 7, t[1], HALF, -1.0, 1.0, p, "draw")

    first, second = outcome(ours, seed, X), outcome(poplars, seed, X)
    np.testing.assert_array_equal(first, second)
    assert first.dtype == np.float16
    kept = outcome(
        lambda g, t, p: poprand.dropout(g, t[0], 7, t[1], t[1], 0.5, 2.0, p, "drop"), seed, X
    )
    assert set(np.unique(kept)) <= {*np.unique(2 * X), 0.0}


def test_names() -> None:
    kind = popnn.NonLinearityType.SIGMOID
    got = outcome(lambda g, t, p: popnn.non_linearity(g, kind, t[0], p, "gate"), X)
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-X)), rtol=1e-5)
    name = poputil.template_vertex("my::Vertex", FLOAT, UNSIGNED_INT, 4, True, Operation.ADD)
    assert name == "my::Vertex<float,unsigned int,4,true,Operation::ADD>"
    assert poputil.template_vertex("Plain") == "Plain"


def test_mappings_in_poplars_order() -> None:
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 8))
    for library in (popops, poplin, popnn, poprand, poputil):
        library.add_codelets(graph)
    t = graph.add_variable(FLOAT, [3, 64], "t")
    mapping = poputil.calc_linear_tile_mapping(graph, t)
    graph.set_tile_mapping(t, mapping)
    other = graph.add_variable(FLOAT, [3, 64], "other")
    poputil.map_tensor_linearly(graph, other)
    assert list(graph.get_tile_mapping(t)) == list(graph.get_tile_mapping(other))
    assert poputil.get_tile_imbalance(graph, t) == poputil.get_tile_imbalance(mapping)
    graph.set_tile_mapping(t, 3)
    assert poputil.get_tile_imbalance(graph, t, 0, 1) == 3 * 64 - 24
    row = poputil.create_broadcast_operand(graph, other, HALF, 1, False, "row")
    assert row.shape == (64,)
    assert row.element_type() is HALF


def test_counted_loops() -> None:
    def build(g: poplar.Graph, t: list[poplar.Tensor], p: Sequence) -> None:
        def body(i: poplar.Tensor) -> Sequence:
            inner = Sequence()
            popops.add_in_place(g, t[0], i, inner)
            return inner

        p.add(popops.counted_loop(g, 2, 11, 3, body, "loop"))
        p.add(popops.counted_loop(g, 3, body))

    got = outcome(build, np.zeros(4, np.int32))
    np.testing.assert_array_equal(got, np.full(4, 2 + 5 + 8 + 0 + 1 + 2))
