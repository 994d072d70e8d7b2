"""Convolutions with every transform of Poplar's parameters, against the definition in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py import poplin
from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.poplar import Graph, program
from poplar_py.poplin import ConvParams, InputTransform, OutputTransform
from poplar_py.types import DType, f16, f32
from tests.poplin.cases import sample, target
from tests.poplin.flat import Flat
from tests.poplin.mappings import scatter_mapping

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = {"f32": 1e-5, "f16": 4e-3}


def transformed(a: Array, t: InputTransform) -> Array:
    """a [.., .., *field] truncated, dilated, padded, flipped, in this order."""
    for d in range(a.ndim - 2):
        axis = d + 2
        a = a.take(np.arange(t.truncation_lower[d], a.shape[axis] - t.truncation_upper[d]), axis)
        n = a.shape[axis]
        shape = list(a.shape)
        shape[axis] = (n - 1) * t.dilation[d] + 1 if n else 0
        wide = np.zeros(shape)
        if n:
            np.moveaxis(wide, axis, 0)[:: t.dilation[d]] = np.moveaxis(a, axis, 0)
        pads = [(0, 0)] * a.ndim
        pads[axis] = (t.padding_lower[d], t.padding_upper[d])
        a = np.pad(wide, pads)
        a = np.flip(a, axis) if t.flip[d] else a
    return a


def reference(x: Array, w: Array, params: ConvParams) -> Array:
    """x [N, G I, *field] with w [G, O, I, *kernel] in float64, literally."""
    full = params.validate()
    rank, groups = full.get_num_field_dims(), full.num_conv_groups
    x = transformed(x.astype(np.float64), full.input_transform)
    w = transformed(w.astype(np.float64).reshape(-1, *w.shape[2:]), full.kernel_transform)
    w = w.reshape(groups, full.output_channels_per_conv_group, *w.shape[1:])
    x = x.reshape(x.shape[0], groups, full.input_channels_per_conv_group, *x.shape[2:])
    sizes = [full.get_untransformed_output_size(d) for d in range(rank)]
    out: Array = np.zeros((x.shape[0], groups, w.shape[1], *sizes))
    for tap in np.ndindex(*w.shape[3:]):
        cut = tuple(slice(t, t + n) for t, n in zip(tap, sizes, strict=True))
        out += np.einsum("ngc...,goc->ngo...", x[(..., *cut)], w[(..., *tap)])
    out = out.reshape(x.shape[0], full.get_num_output_chans(), *sizes)
    t = full.output_transform
    for d in range(rank):
        axis = d + 2
        kept = np.arange(
            t.truncation_lower[d], out.shape[axis] - t.truncation_upper[d], t.stride[d]
        )
        out = out.take(kept, axis)
        pads = [(0, 0)] * out.ndim
        pads[axis] = (t.padding_lower[d], t.padding_upper[d])
        out = np.pad(out, pads)
    return out


def run(
    params: ConvParams, *, constant: bool, bias: bool = False, seed: int = 0
) -> tuple[Array, Array]:
    """(result, reference) over randomly mapped operands."""
    rng = np.random.default_rng(seed)
    graph, prog = Graph(target(32)), program.Sequence()
    dtype = params.input_type
    x, w = sample(rng, dtype, params.input_shape()), sample(rng, dtype, params.weights_shape())
    tensor = graph.add_variable(dtype, x.shape, "x", mapping=scatter_mapping(rng, x.size, 32))
    weights: Any = w
    written = [(tensor, x)]
    if not constant:
        mapping = scatter_mapping(rng, w.size, 32)
        weights = graph.add_variable(dtype, w.shape, "w", mapping=mapping)
        written.append((weights, w))
    wanted = reference(x, w, params)
    b = sample(rng, params.output_type, (wanted.shape[1],)) if bias else None
    out = poplin.convolution(graph, tensor, weights, b, params, prog, "conv")
    if b is not None:
        wanted = wanted + b.astype(np.float64).reshape((-1,) + (1,) * (wanted.ndim - 2))
    flat = Flat(graph)
    for t, data in written:
        flat.write(t, data)
    flat.run(prog)
    return flat.read(out), wanted


def check(params: ConvParams, **options: Any) -> None:
    got, wanted = run(params, **options)
    assert got.shape == params.validate().output_shape()
    assert got.dtype == params.output_type.numpy
    scale = max(np.abs(wanted).max(initial=0), 1.0)
    error = np.abs(got.astype(np.float64) - wanted).max(initial=0) / scale
    assert error <= TOLERANCE[params.output_type.name]


@st.composite
def conv_params(draw: st.DrawFn, dtype: DType) -> ConvParams:
    """Small lawful parameters of any kind."""
    rank = draw(st.integers(1, 3))
    most = (9, 7, 5)[rank - 1]

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    def transform(shape: tuple[int, ...]) -> InputTransform:
        lower = tuple(draw(st.integers(0, min(2, n))) for n in shape)
        upper = tuple(
            draw(st.integers(0, min(1, n - a))) for n, a in zip(shape, lower, strict=True)
        )
        flip = tuple(draw(st.booleans()) for _ in shape)
        return InputTransform(lower, upper, sizes(1, 3), sizes(0, 3), sizes(0, 3), flip)

    field, kernel = sizes(1, most), sizes(1, 3)
    groups = draw(st.sampled_from([1, 1, 2, 5]))
    params = ConvParams(
        dtype,
        dtype,
        draw(st.integers(1, 2)),
        field,
        kernel,
        draw(st.sampled_from([1, 3, 16, 20])),
        draw(st.sampled_from([1, 4, 17])),
        groups,
        transform(field),
        transform(kernel),
    )
    x, k = list(params.input_transform.padding_upper), [0] * rank
    for d in range(rank):
        x[d] += max(0, params.get_transformed_kernel_size(d) - params.get_transformed_input_size(d))
    params.input_transform.padding_upper = x
    low = [
        draw(st.integers(0, min(2, params.get_untransformed_output_size(d)))) for d in range(rank)
    ]
    for d in range(rank):
        k[d] = draw(st.integers(0, min(1, params.get_untransformed_output_size(d) - low[d])))
    params.output_transform = OutputTransform(low, k, sizes(1, 3), sizes(0, 2), sizes(0, 1))
    return params


@settings(max_examples=25, deadline=None)
@given(conv_params(f32), st.booleans(), st.booleans(), st.integers(0, 99))
def test_random_parameters(params: ConvParams, constant: bool, bias: bool, seed: int) -> None:
    check(params, constant=constant, bias=bias, seed=seed)


@settings(max_examples=10, deadline=None)
@given(conv_params(f16), st.booleans(), st.integers(0, 99))
def test_random_parameters_in_half(params: ConvParams, constant: bool, seed: int) -> None:
    check(params, constant=constant, seed=seed)


@settings(max_examples=60, deadline=None)
@given(conv_params(f32), st.integers(0, 99))
def test_canonical_parameters_mean_the_same(params: ConvParams, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-9, 9, s) for s in (params.input_shape(), params.weights_shape()))
    canonical = params.canonicalize()
    np.testing.assert_array_equal(reference(x, w, params), reference(x, w, canonical))
    assert canonical.canonicalize() == canonical


def simple(**changes: Any) -> ConvParams:
    return replace(ConvParams(f32, f32, 2, (12, 14), (3, 3), 16, 32), **changes)


def test_sizes_as_documented() -> None:
    params = simple(
        input_transform=InputTransform((1, 0), (0, 2), (2, 3), (4, 5), (6, 7)),
        kernel_transform=InputTransform(dilation=(2, 2), padding_lower=(1, 0)),
        output_transform=OutputTransform((1, 2), (0, 1), (3, 2), (1, 0), (0, 2)),
    )
    assert params.get_transformed_input_size(0) == 4 + (11 - 1) * 2 + 1 + 6
    assert params.get_transformed_input_size(1) == 5 + (12 - 1) * 3 + 1 + 7
    assert params.get_transformed_kernel_size(0) == 6
    assert params.get_padded_dilated_kernel_size(1) == 5
    assert params.get_untransformed_output_size(0) == 31 + 1 - 6
    assert params.get_output_size(0) == 1 + 9  # ceil((26 - 1) / 3)
    assert params.get_output_size(1) == 20 + 2  # 46 + 1 - 5 - 3 = 39, halved and rounded up
    assert params.output_shape() == (2, 32, *params.get_output_field_shape())


def test_fields_may_be_set_one_by_one() -> None:
    params = simple()
    params.input_transform.padding_lower = params.input_transform.padding_upper = (1, 1)
    params.output_transform.stride = (2, 2)
    assert params.get_output_field_shape() == (6, 7)
    check(params, constant=False, bias=True)


def test_usual_parameters_take_the_block_kernels() -> None:
    params = simple(input_transform=InputTransform(padding_lower=(1, 1), padding_upper=(1, 1)))
    graph, prog = Graph(target(32)), program.Sequence()
    x = graph.add_variable(f32, params.input_shape(), "x", mapping="linear")
    w = np.ones(params.weights_shape(), np.float32)
    poplin.convolution(graph, x, w, None, params, prog, "conv")
    names = {g.codelet.name.split("<")[0] for cs in graph.compute_sets for g in cs.groups}
    assert names == {"poplin::LaneBlock", "poplin::ConvBlock"}
    assert not any(isinstance(s, program.Copy) for s in prog.steps)


@pytest.mark.parametrize("groups", [1, 3])
def test_backward_convolution(groups: int) -> None:
    """The gradient of the input: what scattering each output's gradient gives."""
    forward = ConvParams(f32, f32, 2, (7, 9), (3, 2), 4, 5, groups)
    backward = ConvParams(
        f32,
        f32,
        2,
        forward.get_output_field_shape(),
        (3, 2),
        5,
        4,
        groups,
        InputTransform(padding_lower=(2, 1), padding_upper=(2, 1)),
    )
    rng = np.random.default_rng(4)
    graph, prog = Graph(target(16)), program.Sequence()
    g, w = sample(rng, f32, backward.input_shape()), sample(rng, f32, forward.weights_shape())
    t = graph.add_variable(f32, g.shape, "g", mapping="linear")
    out = poplin.convolution(
        graph, t, w, None, backward, prog, "bwd", transpose_and_flip_weights=True
    )
    flat = Flat(graph)
    flat.write(t, g)
    flat.run(prog)
    wanted = np.zeros((2, groups, 4, 7, 9))
    split = g.reshape(2, groups, 5, *g.shape[2:]).astype(np.float64)
    for i, j in np.ndindex(3, 2):
        part = np.einsum("ngohw,goc->ngchw", split, w[..., i, j].astype(np.float64))
        wanted[..., i : i + g.shape[2], j : j + g.shape[3]] += part
    got = flat.read(out).reshape(wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


WRONG = {
    "input_field_shape": {"input_field_shape": ()},
    "kernel_shape: 2 dims": {"kernel_shape": (3,)},
    "num_conv_groups": {"num_conv_groups": 0},
    "output_channels_per_conv_group": {"output_channels_per_conv_group": 0},
    "input_transform.dilation: 2 entries": {"input_transform": InputTransform(dilation=(1,))},
    "kernel_transform.dilation: entries of at least 1": {
        "kernel_transform": InputTransform(dilation=(0, 1))
    },
    "input_transform.padding_lower": {"input_transform": InputTransform(padding_lower=(-1, 0))},
    "kernel_transform.truncation": {
        "kernel_transform": InputTransform((2, 0), (2, 0)),
    },
    "output_transform.truncation": {"output_transform": OutputTransform((11, 0))},
    "output_transform.stride": {"output_transform": OutputTransform(stride=(1, 0))},
    "dim 1 reaches over 16": {"kernel_shape": (3, 16)},
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_name_the_field(what: str) -> None:
    with pytest.raises(ShapeError, match=what.replace(".", r"\.")):
        simple(**WRONG[what]).validate()


def test_operands_must_fit() -> None:
    graph, prog = Graph(target(16)), program.Sequence()
    x = graph.add_variable(f32, (2, 16, 12, 13), "x", mapping="linear")
    w = np.ones((1, 32, 16, 3, 3), np.float32)
    with pytest.raises(ShapeError, match="an input"):
        poplin.convolution(graph, x, w, None, simple(), prog)
    good = graph.add_variable(f32, (2, 16, 12, 14), "x", mapping="linear")
    with pytest.raises(ShapeError, match="weights of shape"):
        poplin.convolution(graph, good, w[:, 1:], None, simple(), prog)
    with pytest.raises(TypeMismatch, match="input_type"):
        poplin.convolution(graph, good, w.astype(np.float16), None, simple(), prog)


def test_getters() -> None:
    params = ConvParams(f16, f32, 3, (9, 7), (3, 2), 4, 5, 2)
    assert (params.get_batch_size(), params.get_num_conv_groups()) == (3, 2)
    assert params.get_input_field_shape() == (9, 7)
    assert (params.get_input_size(1), params.get_kernel_shape()) == (7, (3, 2))
    one = params.get_num_input_chans_per_conv_group(), params.get_num_output_chans_per_conv_group()
    assert one == (4, 5)
    assert (params.get_num_input_chans(), params.get_num_output_chans()) == (8, 10)
    assert params.get_output_field_shape() == (7, 6)
