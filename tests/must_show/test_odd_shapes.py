"""Random graphs over odd shapes (empty, one, prime, five axes, big strides): compiled vertices
give what the reference interpreter gives."""

from __future__ import annotations

import random

import numpy as np
import pytest

import poplar_py as pp
from poplar_py import ir
from poplar_py.diagnostics import OutOfTileMemory, ShapeError, TypeMismatch
from poplar_py.eval import evaluate
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import TensorType, f32, i32

SIZES = (0, 1, 1, 2, 3, 5, 7, 13, 31)
UNARY = (ew.Neg, ew.Abs, ew.Tanh, ew.Sigmoid, nn.Relu, ew.Floor, ew.Cos)
BINARY = (ew.Add, ew.Sub, ew.Mul, ew.Min, ew.Max)


class Maker:
    """Grows one graph; `step` adds a random op, or nothing when shapes do not fit."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.graph = ir.Graph("main")
        self.b = ir.Builder(self.graph)
        shapes = [self.shape(self.r.randrange(6)) for _ in range(3)]
        self.pool = [
            self.graph.add_input(TensorType(f32, s), f"in{i}") for i, s in enumerate(shapes)
        ]

    def shape(self, rank: int) -> tuple[int, ...]:
        shape = [self.r.choice(SIZES) for _ in range(rank)]
        while np.prod(shape, dtype=int) > 3000:
            shape[self.r.randrange(rank)] = 1
        return tuple(shape)

    def constant(self, shape: tuple[int, ...]) -> ir.Value:
        return self.b.constant(self.rng.standard_normal(shape).astype(np.float32), dtype=f32)

    def step(self) -> None:
        kinds = (
            self.unary, self.binary, self.partner, self.transpose, self.reshape, self.slice,
            self.pad, self.reduce, self.softmax, self.product, self.conv, self.pool_window,
            self.concat, self.gather, self.cumulative, self.expand, self.norm,
        )  # fmt: skip
        x = self.r.choice(self.pool[-4:])
        try:
            made = self.r.choice(kinds)(x)
        except (ShapeError, TypeMismatch):
            return
        if made is not None and made.type.numel <= 4000:
            self.pool.append(made)

    def unary(self, x: ir.Value) -> ir.Value:
        return self.b.add(self.r.choice(UNARY), x)

    def binary(self, x: ir.Value) -> ir.Value:
        return self.b.add(self.r.choice(BINARY), x, self.r.choice(self.pool))

    def partner(self, x: ir.Value) -> ir.Value:
        shape = tuple(d if self.r.random() < 0.6 else 1 for d in x.type.static_shape)
        pair = [x, self.constant(shape)]
        self.r.shuffle(pair)
        return self.b.add(self.r.choice(BINARY), *pair)

    def transpose(self, x: ir.Value) -> ir.Value:
        return self.b.add(tensor.Transpose, x, tuple(self.r.sample(range(x.rank), x.rank)))

    def reshape(self, x: ir.Value) -> ir.Value:
        shape = list(x.type.static_shape)
        if shape and self.r.random() < 0.5:
            at = self.r.randrange(len(shape))
            shape[at - 1 : at + 1] = [int(np.prod(shape[at - 1 : at + 1], dtype=int))]
        else:
            shape.insert(self.r.randrange(len(shape) + 1), 1)
        return self.b.add(tensor.Reshape, x, tuple(shape))

    def slice(self, x: ir.Value) -> ir.Value:
        starts, sizes, steps = [], [], []
        for d in x.type.static_shape:
            step = self.r.choice((1, 1, 2, 3, -1, -2))
            size = self.r.randint(0 if self.r.random() < 0.1 else min(1, d), -(-d // abs(step)))
            span = max(0, size - 1) * abs(step)
            low = self.r.randint(0, max(0, d - 1 - span))
            starts.append(low if step > 0 else low + span)
            sizes.append(size)
            steps.append(step)
        return self.b.add(tensor.Slice, x, tuple(starts), tuple(sizes), tuple(steps))

    def pad(self, x: ir.Value) -> ir.Value:
        before = tuple(self.r.randrange(3) for _ in range(x.rank))
        after = tuple(self.r.randrange(3) for _ in range(x.rank))
        return self.b.add(tensor.Pad, x, before, after, 0.5)

    def axis(self, x: ir.Value) -> int | None:
        return self.r.randrange(x.rank) if x.rank else None

    def reduce(self, x: ir.Value) -> ir.Value | None:
        axes = tuple(a for a in range(x.rank) if self.r.random() < 0.5)
        if any(x.type.static_shape[a] == 0 for a in axes):
            return self.b.add(tensor.Reduce, x, "sum", axes, self.r.random() < 0.5)
        kind = self.r.choice(("sum", "max", "min", "prod"))
        return self.b.add(tensor.Reduce, x, kind, axes, self.r.random() < 0.5)

    def softmax(self, x: ir.Value) -> ir.Value | None:
        axis = self.axis(x)
        if axis is None or x.type.static_shape[axis] == 0:
            return None
        return self.b.add(self.r.choice((nn.Softmax, nn.LogSoftmax)), x, axis)

    def product(self, x: ir.Value) -> ir.Value | None:
        if not x.rank:
            return None
        inner = x.type.static_shape[-1]
        batch = x.type.static_shape[:-2] if x.rank > 2 and self.r.random() < 0.4 else ()
        return self.b.add(nn.MatMul, x, self.constant((*batch, inner, self.r.choice(SIZES))))

    def conv(self, x: ir.Value) -> ir.Value | None:
        if not 3 <= x.rank <= 5 or 0 in x.type.static_shape:
            return None
        n, channels = x.rank - 2, x.type.static_shape[1]
        groups = self.r.choice([g for g in (1, channels) if channels % g == 0])
        window = tuple(self.r.choice((1, 2, 3)) for _ in range(n))
        w = self.constant((groups * self.r.choice((1, 2, 3)), channels // groups, *window))
        strides = tuple(self.r.choice((1, 2, 5)) for _ in range(n))
        pads = tuple(self.r.randrange(2) for _ in range(2 * n))
        dilations = tuple(self.r.choice((1, 1, 2)) for _ in range(n))
        return self.b.add(nn.Conv, x, w, None, strides, pads, dilations, groups)

    def pool_window(self, x: ir.Value) -> ir.Value | None:
        if not 3 <= x.rank <= 5 or 0 in x.type.static_shape:
            return None
        window = tuple(min(d, self.r.choice((1, 2, 3))) for d in x.type.static_shape[2:])
        strides = tuple(self.r.choice((1, 2, 4)) for _ in window)
        kind = self.r.choice((nn.MaxPool, nn.AvgPool))
        zeros, ones = (0,) * (2 * len(window)), (1,) * len(window)
        return self.b.add(kind, x, window, strides, zeros, ones)

    def concat(self, x: ir.Value) -> ir.Value | None:
        axis = self.axis(x)
        if axis is None:
            return None
        shape = list(x.type.static_shape)
        shape[axis] = self.r.choice(SIZES)
        return self.b.add(tensor.Concat, (x, self.constant(tuple(shape)), x), axis)

    def gather(self, x: ir.Value) -> ir.Value | None:
        axis = self.axis(x)
        if axis is None or x.type.static_shape[axis] == 0:
            return None
        size = x.type.static_shape[axis]
        index = self.rng.integers(0, size, self.shape(self.r.randrange(3)))
        return self.b.add(tensor.Gather, x, self.b.constant(index, dtype=i32), axis)

    def cumulative(self, x: ir.Value) -> ir.Value | None:
        axis = self.axis(x)
        return None if axis is None else self.b.add(tensor.Cumulative, x, "sum", axis)

    def expand(self, x: ir.Value) -> ir.Value:
        shape = tuple(self.r.choice(SIZES) if d == 1 else d for d in x.type.static_shape)
        return self.b.add(tensor.Expand, x, (self.r.choice((1, 2, 3)), *shape))

    def norm(self, x: ir.Value) -> ir.Value | None:
        if not x.rank or 0 in x.type.static_shape:
            return None
        # Rows of equal elements have no variance but rounding noise: eps keeps it noise.
        scale = self.constant(x.type.static_shape[-1:])
        return self.b.add(nn.LayerNorm, x, scale, None, eps=0.1)


def compare(seed: int) -> None:
    maker = Maker(seed)
    for _ in range(maker.r.randint(2, 9)):
        maker.step()
    for index, value in enumerate(maker.pool[-3:]):
        maker.graph.add_output(value, f"out{index}")
    module = ir.Module("m", [maker.graph])
    feeds = {
        v.name: maker.rng.standard_normal(v.type.static_shape).astype(np.float32)
        for v in maker.graph.inputs
    }
    with np.errstate(all="ignore"):
        wanted = list(evaluate(maker.graph, list(feeds.values())))
    try:
        engine = pp.Engine(module, system="ipu", tiles_per_ipu=maker.r.choice((1, 5, 16)))
        got = engine.run(feeds)
    except OutOfTileMemory:
        return
    text = f"seed {seed}\n{ir.print_module(module)}"
    for index, want in enumerate(wanted):
        found = got[f"out{index}"]
        assert (found.shape, found.dtype) == (want.shape, want.dtype), text
        fine = np.isfinite(want)
        assert np.array_equal(np.isfinite(found), fine), text
        limit = 1e-4 * float(np.abs(want[fine]).max(initial=0.0)) + 1e-5
        assert float(np.abs(found - want)[fine].max(initial=0.0)) <= limit, text


@pytest.mark.parametrize("block", range(3))
def test_few(block: int) -> None:
    for seed in range(block * 12, block * 12 + 12):
        compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many(block: int) -> None:
    for seed in range(1000 + block * 60, 1060 + block * 60):
        compare(seed)
