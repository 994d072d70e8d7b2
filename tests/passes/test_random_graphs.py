"""Random graphs mean the same before and after the model passes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py import ir
from poplar_py.diagnostics import PoplarPyError
from poplar_py.eval import evaluate
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.ops.core import If
from poplar_py.passes import PassContext, PassManager
from poplar_py.types import TensorType, bool_, f32

UNARY = (ew.Exp, ew.Neg, ew.Abs, ew.Tanh, ew.Sigmoid, nn.Relu, nn.Gelu, ew.Sqrt, ew.Floor)
BINARY = (ew.Add, ew.Sub, ew.Mul, ew.Div, ew.Min, ew.Max)
NUMBERS = (0.0, -0.0, 1.0, 2.0, 0.5, -1.0, 3.0)


class Maker:
    """Grows a graph by random ops over values of mixed shapes."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.graph = ir.Graph("main")
        self.b = ir.Builder(self.graph)
        self.rng = np.random.default_rng(draw(st.integers(0, 99)))
        self.pool = [
            self.graph.add_input(TensorType(f32, shape), f"in{i}")
            for i, shape in enumerate(((2, 3, 4), (3, 4), (4, 4), (1, 2, 6)))
        ]
        self.flag = self.graph.add_input(TensorType(bool_, ()), "flag")

    def pick(self) -> ir.Value:
        return self.draw(st.sampled_from(self.pool))

    def one_of(self, items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def constant(self, shape: tuple[int, ...]) -> ir.Value:
        return self.b.constant(self.rng.standard_normal(shape), dtype=f32)

    def step(self) -> None:
        kind = self.draw(st.integers(0, 11))
        x = self.pick()
        steps = (self.unary, self.binary, self.binary, self.number, self.layout, self.layout)
        steps += (self.product, self.conv, self.norm, self.reduce, self.branch, self.join)
        self.pool.append(steps[kind](x))

    def unary(self, x: ir.Value) -> ir.Value:
        return self.b.add(self.one_of(UNARY), x)

    def binary(self, x: ir.Value) -> ir.Value:
        return self.b.add(self.one_of(BINARY), x, self.pick())

    def number(self, x: ir.Value) -> ir.Value:
        c = self.b.constant(self.one_of(NUMBERS), dtype=f32)
        pair = (x, c) if self.draw(st.booleans()) else (c, x)
        return self.b.add(self.one_of((*BINARY, ew.Pow)), *pair)

    def layout(self, x: ir.Value) -> ir.Value:
        shape = x.type.static_shape
        kind = self.draw(st.integers(0, 4))
        if kind == 0:
            perm = tuple(self.draw(st.permutations(range(x.rank))))
            return self.b.add(tensor.Transpose, x, perm)
        if kind == 1:
            wide = (*shape, 1) if self.draw(st.booleans()) else (-1,)
            return self.b.add(tensor.Reshape, x, (x.type.numel,) if wide == (-1,) else wide)
        if kind == 2 and x.rank:
            axis = self.draw(st.integers(0, x.rank - 1))
            half = max(1, shape[axis] // 2)
            sizes = tuple(half if i == axis else d for i, d in enumerate(shape))
            return self.b.add(tensor.Slice, x, (0,) * x.rank, sizes, (1,) * x.rank)
        if kind == 3:
            return self.b.add(tensor.Expand, x, (2, *shape))
        index = self.b.constant(np.array([0], np.int32))
        return self.b.add(tensor.Gather, x, index, 0) if x.rank else x

    def product(self, x: ir.Value) -> ir.Value:
        size = x.type.static_shape[-1]
        y = self.b.add(nn.MatMul, x, self.constant((size, 16)))
        if self.draw(st.booleans()):
            y = self.b.add(ew.Add, y, self.constant((16,)))
        return y

    def conv(self, x: ir.Value) -> ir.Value:
        channels = x.type.static_shape[1]
        w = self.constant((3, channels, 1))
        y = self.b.add(nn.Conv, x, w, None, (1,), (0, 0), (1,))
        cls = self.one_of((ew.Mul, ew.Add, ew.Div, ew.Sub))
        return self.b.add(cls, y, self.constant((3, 1)))

    def norm(self, x: ir.Value) -> ir.Value:
        size = self.b.constant(float(x.type.static_shape[-1]), dtype=f32)
        axes = (x.rank - 1,)
        mean = self.b.add(ew.Div, self.b.add(tensor.Reduce, x, "sum", axes, True), size)
        d = self.b.add(ew.Sub, x, mean)
        square = self.b.add(ew.Mul, d, d)
        spread = self.b.add(ew.Div, self.b.add(tensor.Reduce, square, "sum", axes, True), size)
        eps = self.b.constant(0.01, dtype=f32)
        y = self.b.add(ew.Div, d, self.b.add(ew.Sqrt, self.b.add(ew.Add, spread, eps)))
        return self.b.add(ew.Mul, y, self.constant(x.type.static_shape[-1:]))

    def reduce(self, x: ir.Value) -> ir.Value:
        axis = self.draw(st.integers(0, x.rank - 1))
        kind = self.one_of(("sum", "max", "min"))
        return self.b.add(tensor.Reduce, x, kind, (axis,), self.draw(st.booleans()))

    def branch(self, x: ir.Value) -> ir.Value:
        yes, no = ir.Graph(), ir.Graph(outputs=[x])
        yes.outputs = [ir.Builder(yes).add(ew.Neg, ir.Builder(yes).add(ew.Exp, x))]
        known = self.b.constant(self.draw(st.booleans()))
        return self.b.add(If, self.one_of((self.flag, known)), yes, no)

    def join(self, x: ir.Value) -> ir.Value:
        return self.b.add(tensor.Concat, (x, self.b.add(nn.Relu, x)), 0)


@st.composite
def modules(draw: st.DrawFn) -> ir.Module:
    maker = Maker(draw)
    for _ in range(draw(st.integers(2, 14))):
        try:
            maker.step()
        except (PoplarPyError, IndexError):
            continue  # shapes that do not fit
    for index, value in enumerate(maker.pool[-3:]):
        maker.graph.add_output(value, f"out{index}")
    return ir.Module("m", [maker.graph])


def sample(value: ir.Value) -> np.ndarray:
    rng = np.random.default_rng(len(value.name) + value.index)
    if value.dtype is bool_:
        return np.array(True)
    return rng.uniform(0.2, 1.5, value.type.static_shape).astype("f4")


@given(modules())
@settings(max_examples=120, deadline=None)
def test_passes_keep_the_meaning(module: ir.Module) -> None:
    before = ir.clone_module(module)
    PassManager(PassContext()).run(module, "infer-shapes,simplify,fuse")
    inputs = [sample(v) for v in before.main.inputs]
    assert [v.name for v in module.main.inputs] == [v.name for v in before.main.inputs]
    for a, b in zip(evaluate(before.main, inputs), evaluate(module.main, inputs), strict=True):
        assert a.shape == b.shape
        fine = np.isfinite(a)
        np.testing.assert_array_equal(fine, np.isfinite(b))
        scale = float(np.max(np.abs(a[fine]), initial=0.0))
        np.testing.assert_allclose(b[fine], a[fine], rtol=1e-3, atol=1e-4 * scale + 1e-6)
    text = ir.print_module(module)
    PassManager(PassContext()).run(module, "infer-shapes,simplify,fuse")
    assert ir.print_module(module) == text
