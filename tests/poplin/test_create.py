"""Created operands: right values, and nothing of them is rearranged or leaves its tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poplar_py import poplin
from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import Graph, Tensor, program
from poplar_py.poplin import ConvParams, InputTransform, OutputTransform
from poplar_py.types import DType, f16, f32, i32
from tests.poplin.cases import sample, target
from tests.poplin.flat import Flat
from tests.poplin.test_conv_params import TOLERANCE, reference

Array = np.ndarray[Any, np.dtype[Any]]


def owner(graph: Graph, t: Tensor) -> tuple[int, int]:
    """First and end address of the variable of a tensor."""
    (variable,) = t.variables()
    return variable.base, variable.base + variable.size


def rearranged(graph: Graph, prog: program.Sequence, t: Tensor) -> list[str]:
    """Copies and rearranging vertices that read the variable of `t`."""
    begin, end = owner(graph, t)
    found: list[str] = []
    for step in prog.steps:
        if isinstance(step, program.Copy):
            start = step.src.runs()[0]
            found += ["copy"] * bool(((start >= begin) & (start < end)).any())
    for group in (g for cs in graph.compute_sets for g in cs.groups):
        name = group.codelet.name.split("<")[0]
        if name not in ("poplin::LaneBlock", "poplin::TransposeBlock"):
            continue
        for edges in group.edges.values():
            start = edges.runs()[1]
            found += [name] * bool(((start >= begin) & (start < end)).any())
    return found


def foreign(graph: Graph, t: Tensor) -> tuple[int, int, int]:
    """(elements that reach a vertex on another tile, pairs of element and tile, elements)."""
    begin, end = owner(graph, t)
    mapping = t.variables()[0].mapping
    pairs: set[tuple[int, int]] = set()
    for group in (g for cs in graph.compute_sets for g in cs.groups):
        for edges in group.edges.values():
            edge, start, length = edges.runs()
            tile = group.tiles[edges.edge_vertex()[edge]]
            for a, n, at in zip(start.tolist(), length.tolist(), tile.tolist(), strict=True):
                if begin <= a < end:
                    pairs.update((e, at) for e in range(a, a + n))
    element = np.array([e for e, _ in pairs], np.int64)
    where = np.array([t for _, t in pairs], np.int64)
    away = int((mapping.tile_at(element) != where).sum())
    return away, len(pairs), len(np.unique(element))


MATRICES = [
    ((64, 48), (48, 96), f32),
    ((1, 64), (64, 128), f32),
    ((5, 37), (37, 21), f32),
    ((3, 20, 40), (3, 40, 33), f16),
    ((2, 3, 9, 16), (2, 3, 16, 32), f32),
    ((7, 30), (30, 64), i32),
]


@pytest.mark.parametrize(("a", "b", "dtype"), MATRICES, ids=str)
def test_matrices(a: tuple[int, ...], b: tuple[int, ...], dtype: DType) -> None:
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(64)), program.Sequence()
    x = poplin.create_mat_mul_input_lhs(graph, dtype, a, b)
    y = poplin.create_mat_mul_input_rhs(graph, dtype, a, b)
    assert x.shape == a
    assert y.shape == b
    out = poplin.mat_mul(graph, x, y, prog)
    for t in (x, y):
        assert rearranged(graph, prog, t) == []
        away, pairs, elements = foreign(graph, t)
        assert away == pairs - elements, "an element is on a tile that does not use it"
    left, right = sample(rng, dtype, a), sample(rng, dtype, b)
    flat = Flat(graph)
    flat.write(x, left)
    flat.write(y, right)
    flat.run(prog)
    want = np.matmul(left.astype(np.float64), right.astype(np.float64))
    error = np.abs(flat.read(out) - want).max() / np.abs(want).max()
    assert error <= TOLERANCE.get(dtype.name, 0.0)


def test_a_single_row_moves_no_weights() -> None:
    graph, prog = Graph(target(64)), program.Sequence()
    a, b = (1, 256), (256, 512)
    x = poplin.create_mat_mul_input_lhs(graph, f32, a, b)
    y = poplin.create_mat_mul_input_rhs(graph, f32, a, b)
    poplin.mat_mul(graph, x, y, prog)
    assert foreign(graph, y)[0] == 0


def conv(dtype: DType, **changes: Any) -> ConvParams:
    base = {
        "batch_size": 1,
        "input_field_shape": (14, 14),
        "kernel_shape": (3, 3),
        "input_channels_per_conv_group": 32,
        "output_channels_per_conv_group": 48,
        "input_transform": InputTransform(padding_lower=(1, 1), padding_upper=(1, 1)),
    }
    return ConvParams(dtype, dtype, **(base | changes))


CONVS = {
    "block": conv(f32),
    "half": conv(f16, batch_size=2),
    "one row": conv(f32, input_field_shape=(1, 16), input_channels_per_conv_group=64),
    "uneven channels": conv(
        f32, input_channels_per_conv_group=24, output_channels_per_conv_group=20
    ),
    "stride": conv(
        f32,
        input_field_shape=(28, 28),
        output_transform=OutputTransform(stride=(2, 2)),
    ),
    "planar": conv(f32, input_channels_per_conv_group=3),
    "groups": conv(
        f32,
        num_conv_groups=4,
        input_channels_per_conv_group=4,
        output_channels_per_conv_group=8,
    ),
    "one dim": conv(
        f32,
        input_field_shape=(40,),
        kernel_shape=(5,),
        input_transform=InputTransform(padding_lower=(2,), padding_upper=(2,)),
    ),
}


@pytest.mark.parametrize("case", CONVS)
def test_convolutions(case: str) -> None:
    params = CONVS[case]
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(64)), program.Sequence()
    x = poplin.create_input(graph, params)
    w = poplin.create_weights(graph, params)
    assert w.shape == params.weights_shape()
    out = poplin.convolution(graph, x, w, None, params, prog)
    biases = poplin.create_biases(graph, out)
    assert rearranged(graph, prog, w) == []
    away, pairs, elements = foreign(graph, w)
    assert away == pairs - elements
    planes = [v for v in graph.variables if v.name.endswith("/planes")]
    if planes:
        assert rearranged(graph, prog, x) == ["copy"], "padding is added"
        source, (copy,) = owner(graph, x)[0], [s for s in prog.steps if isinstance(s, program.Copy)]
        moved = copy.src.addresses().ravel()
        inside = (moved >= source) & (moved < owner(graph, x)[1])
        to = copy.dst.addresses().ravel()[inside]
        tile = x.variables()[0].mapping.tile_at(moved[inside])
        assert (planes[0].mapping.tile_at(to) == tile).all(), "padding costs exchange"
    else:
        assert rearranged(graph, prog, x) == []
    poplin.add_bias(graph, out, biases, prog)
    a, b = sample(rng, params.input_type, x.shape), sample(rng, params.input_type, w.shape)
    c = sample(rng, params.input_type, biases.shape)
    flat = Flat(graph)
    for t, data in ((x, a), (w, b), (biases, c)):
        flat.write(t, data)
    flat.run(prog)
    want = reference(a, b, params)
    want = want + c.astype(np.float64).reshape((-1,) + (1,) * (want.ndim - 2))
    error = np.abs(flat.read(out) - want).max() / np.abs(want).max()
    assert error <= TOLERANCE[params.input_type.name]


def test_changed_kernels_are_copied_and_right() -> None:
    params = conv(f32, kernel_transform=InputTransform(flip=(True, False)))
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(64)), program.Sequence()
    x, w = poplin.create_input(graph, params), poplin.create_weights(graph, params)
    out = poplin.convolution(graph, x, w, None, params, prog)
    a, b = sample(rng, f32, x.shape), sample(rng, f32, w.shape)
    flat = Flat(graph)
    flat.write(x, a)
    flat.write(w, b)
    flat.run(prog)
    want = reference(a, b, params)
    assert np.abs(flat.read(out) - want).max() <= 1e-5 * np.abs(want).max()


def test_wrong_shapes() -> None:
    graph = Graph(target(16))
    with pytest.raises(ShapeError, match="cannot be multiplied"):
        poplin.create_mat_mul_input_rhs(graph, f32, (3, 4), (5, 6))
    with pytest.raises(ShapeError, match="num_conv_groups"):
        poplin.create_input(graph, conv(f32, num_conv_groups=0))
