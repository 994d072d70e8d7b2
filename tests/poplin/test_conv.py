"""Convolutions against float64 NumPy: every path, layouts, borders, types, epilogues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py import poplin
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Graph, Tensor, concat, program
from poplar_py.poplin.lanes import blocked_copy
from poplar_py.poplin.place import TileRange
from poplar_py.poplin.plan import piece_widths
from poplar_py.types import DType, bf16, f16, f32, f64, i8, i32, u8
from tests.poplin.cases import outcome, reference_conv, run_conv, sample, target
from tests.poplin.flat import Flat

of = poplin.ConvForm.of
SAME = of(2, pads=(1, 1, 1, 1))
TOLERANCE = {"f32": 1e-5, "f64": 1e-13, "f16": 4e-3, "bf16": 1e-2}


@pytest.mark.parametrize("dtype", [f32, f16, f64, bf16, i32, i8, u8], ids=str)
def test_every_type(dtype: DType) -> None:
    done = run_conv(dtype, (2, 3, 9, 10), (5, 3, 3, 3), SAME, blocked=False)
    assert done.error <= TOLERANCE.get(dtype.name, 0.0)


CASES = {
    "3x3": ((1, 32, 14, 14), (32, 32, 3, 3), SAME),
    "pieces": ((2, 24, 9, 28), (40, 24, 3, 3), SAME),
    "stride 2": ((1, 32, 28, 28), (32, 32, 3, 3), of(2, strides=(2, 2), pads=(1, 1, 1, 1))),
    "upper pad": ((1, 32, 28, 28), (32, 32, 3, 3), of(2, strides=(2, 2), pads=(0, 0, 1, 1))),
    "odd": ((1, 32, 27, 27), (32, 32, 3, 3), of(2, strides=(2, 2), pads=(1, 1, 1, 1))),
    "1x1 s2": ((1, 32, 28, 28), (48, 32, 1, 1), of(2, strides=(2, 2))),
    "uneven pieces": ((1, 20, 13, 37), (33, 20, 5, 5), of(2, pads=(2, 2, 2, 2))),
    "dilated": ((1, 32, 13, 30), (32, 32, 3, 3), of(2, pads=(2,) * 4, dilations=(2, 2))),
    "cut": ((1, 32, 13, 30), (32, 32, 3, 3), of(2, pads=(-1, -2, 0, -1))),
    "1x1 image": ((1, 64, 1, 1), (128, 64, 1, 1), of(2)),
    "reduced in parts": ((3, 256, 7, 7), (64, 256, 3, 3), SAME),
    "depthwise": ((1, 32, 14, 14), (32, 1, 3, 3), of(2, pads=(1,) * 4, groups=32)),
    "depthwise s2": (
        (1, 40, 15, 15),
        (40, 1, 5, 5),
        of(2, strides=(2, 2), pads=(2,) * 4, groups=40),
    ),
    "two groups": ((1, 64, 14, 14), (128, 32, 3, 3), of(2, pads=(1,) * 4, groups=2)),
    "narrow groups": ((1, 32, 14, 14), (32, 4, 3, 3), of(2, pads=(1,) * 4, groups=8)),
    "groups across blocks": ((1, 24, 14, 14), (48, 8, 3, 3), of(2, pads=(1,) * 4, groups=3)),
    "1-D": ((2, 20, 33), (17, 20, 5), of(1, strides=(2,), pads=(2, 1))),
    "3-D": ((1, 16, 3, 5, 6), (16, 16, 2, 3, 3), of(3, pads=(1, 1, 1, 0, 1, 1))),
    "zeros between": ((1, 16, 5, 6), (8, 16, 3, 3), of(2, pads=(2,) * 4, input_dilations=(2, 3))),
}


@pytest.mark.parametrize("case", CASES)
def test_shapes(case: str) -> None:
    x, w, params = CASES[case]
    if params.input_dilations != (1,) * params.rank:
        pytest.skip("covered by the transposed convolutions")
    done = run_conv(f32, x, w, params)
    assert done.error <= 1e-5
    assert done.gathered == 0, "an edge was not one run"


IMAGES = {
    "one channel": ((32, 1, 28, 28), (6, 1, 5, 5), of(2, pads=(2,) * 4)),
    "few channels": ((16, 6, 14, 14), (16, 6, 5, 5), of(2)),
    "stride": ((16, 3, 15, 15), (8, 3, 3, 3), of(2, strides=(2, 2), pads=(1,) * 4)),
}


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("epilogue", ["relu($0)", "relu(add($0,$1))"])
@pytest.mark.parametrize("case", IMAGES)
def test_lanes_are_images(case: str, epilogue: str, dtype: DType) -> None:
    done = run_conv(dtype, *IMAGES[case], blocked=False, epilogue=epilogue)
    assert done.error <= TOLERANCE[dtype.name]
    assert any(name.startswith("LaneConv") for name in done.codelets)


@pytest.mark.parametrize("case", ["3x3", "pieces", "stride 2", "1x1 s2", "depthwise"])
def test_reads_in_place(case: str) -> None:
    done = run_conv(f32, *CASES[case])
    moved = done.copies + done.codelets.count("LaneBlock<float>")
    assert moved == 1, "the one that blocks the test's input"


@pytest.mark.parametrize("case", ["3x3", "reduced in parts", "depthwise"])
def test_half(case: str) -> None:
    assert run_conv(f16, *CASES[case]).error <= 4e-3


@pytest.mark.parametrize(
    "epilogue",
    [
        "relu($0)",
        "relu(add($0,$1))",
        "add(mul($0,sigmoid($0)),$1)",
        "min(max($0,c(0.0)),c(6.0))",
        "tanh($0)",
        "mul($0,min(max(add(mul($0,c(0.16666667)),c(0.5)),c(0)),c(1)))",
        "select(less($0,c(0)),mul($0,c(0.1)),$0)",
    ],
)
@pytest.mark.parametrize("case", ["3x3", "reduced in parts", "depthwise"])
def test_epilogues_inside(case: str, epilogue: str) -> None:
    done = run_conv(f32, *CASES[case], epilogue=epilogue)
    assert done.error <= (1e-4 if "tanh" in epilogue else 1e-5), "tanh keeps a sum's absolute error"
    assert not any("Map" in name for name in done.codelets)


def test_computed_weights() -> None:
    done = run_conv(f32, *CASES["3x3"], computed_weights=True)
    assert done.error <= 1e-5


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 2),
    st.integers(1, 40),
    st.tuples(st.integers(3, 12), st.integers(3, 40)),
    st.integers(1, 40),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.tuples(*[st.integers(0, 2)] * 4),
)
def test_random_shapes(
    n: int,
    c: int,
    spatial: tuple[int, int],
    o: int,
    kernel: tuple[int, int],
    stride: int,
    pads: tuple[int, int, int, int],
) -> None:
    params = of(2, strides=(stride, stride), pads=pads)
    done = run_conv(f32, (n, c, *spatial), (o, c, *kernel), params, tiles=16)
    assert done.error <= 1e-5


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(PoplarPyError, match="channels do not fit"):
        SAME.output_shape((1, 8, 4, 4), (4, 9, 3, 3))
    with pytest.raises(PoplarPyError, match="does not fit"):
        of(2).output_shape((1, 8, 2, 2), (4, 8, 3, 3))
    with pytest.raises(PoplarPyError, match="4 pads are needed"):
        of(2, pads=(1, 1))


def test_sizes_follow_the_definition() -> None:
    params = of(2, strides=(2, 1), pads=(1, 0, 2, 3), dilations=(2, 1))
    assert params.output_spatial((9, 7), (3, 2)) == (4, 9)
    assert np.prod(params.padded_input((9, 7))) == 12 * 10


def test_joined_channels_are_read_in_place() -> None:
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(64)), program.Sequence()
    parts: list[Tensor] = []
    data: list[np.ndarray] = []
    written: list[tuple[Tensor, np.ndarray]] = []
    for channels in (24, 16, 40):
        values = sample(rng, f32, (1, channels, 14, 14))
        plain = graph.add_variable(f32, values.shape, "x", mapping="linear")
        parts.append(blocked_copy(graph, plain, prog, "in", TileRange(0, 64), piece_widths(14)))
        data.append(values)
        written.append((plain, values))
    w = sample(rng, f32, (32, 80, 3, 3))
    before = len(graph.compute_sets)
    out = poplin.convolution(graph, concat(parts, 1), w, None, SAME, prog, "conv")
    names = [g.codelet.name for cs in graph.compute_sets[before:] for g in cs.groups]
    assert not any("LaneBlock" in name for name in names)
    flat = Flat(graph)
    for tensor, values in written:
        flat.write(tensor, values)
    done = outcome(graph, prog, flat, out, reference_conv(np.concatenate(data, 1), w, None, SAME))
    assert done.error <= 1e-5
    assert done.gathered == 0


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_strided_rows_become_lanes(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(64)), program.Sequence()
    values = sample(rng, dtype, (1, 3, 36, 44))
    image = graph.add_variable(dtype, values.shape, "x", mapping="linear")
    corners = [(a, b) for a in (0, 1) for b in (0, 1)]
    parts = [image[:, :, a::2, b::2] for a, b in corners]
    w = sample(rng, dtype, (16, 12, 3, 3))
    out = poplin.convolution(graph, concat(parts, 1), w, None, SAME, prog, "conv")
    assert any("LaneBlock" in g.codelet.name for cs in graph.compute_sets for g in cs.groups)
    flat = Flat(graph)
    flat.write(image, values)
    focus = np.concatenate([values[:, :, a::2, b::2] for a, b in corners], 1)
    done = outcome(graph, prog, flat, out, reference_conv(focus, w, None, SAME))
    assert done.error <= TOLERANCE[dtype.name]


WIDE = {
    "blocks": ((1, 32, 3, 40), (16, 32, 2, 17), of(2, pads=(1, 8, 0, 8))),
    "few channels": ((1, 3, 4, 60), (20, 3, 1, 39), of(2, pads=(0, 19, 0, 19), strides=(1, 2))),
    "depthwise": ((1, 32, 60), (32, 1, 13), of(1, pads=(6, 6), groups=32)),
    "images": ((16, 2, 40), (8, 2, 14), of(1)),
    "dilated": ((1, 16, 70), (16, 16, 12), of(1, dilations=(3,), pads=(4, 9))),
}


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("case", WIDE)
def test_wide_kernels_run_in_loops(case: str, dtype: DType) -> None:
    done = run_conv(dtype, *WIDE[case], blocked=False)
    assert done.error <= TOLERANCE[dtype.name]
    assert any(n.startswith(("ConvBlock", "DepthwiseBlock", "LaneConv")) for n in done.codelets)
