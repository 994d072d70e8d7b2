"""Gradients and updates of convolutions, products and norms, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py import poplin
from poplar_py.diagnostics import ShapeError
from poplar_py.poplin import ConvParams, InputTransform, OutputTransform
from poplar_py.types import DType, f16, f32
from tests.poplin.setting import Setting, put, whole
from tests.poplin.test_conv_params import conv_params, reference

Array = np.ndarray[Any, np.dtype[Any]]


def weight_gradient(z: Array, x: Array, params: ConvParams) -> Array:
    """By definition: how much of z each weight alone would have made."""
    out = np.zeros(params.weights_shape())
    for at in np.ndindex(*out.shape):
        one = np.zeros(out.shape)
        one[at] = 1
        out[at] = (z * reference(x, one, params)).sum()
    return out


def small(params: ConvParams) -> ConvParams:
    params.input_channels_per_conv_group = min(params.input_channels_per_conv_group, 3)
    params.output_channels_per_conv_group = min(params.output_channels_per_conv_group, 4)
    params.num_conv_groups = min(params.num_conv_groups, 2)
    return params


@settings(max_examples=15, deadline=None)
@given(conv_params(f32).map(small), st.integers(0, 99))
def test_weight_deltas(params: ConvParams, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, z = whole(rng, params.input_shape(), f32), whole(rng, params.validate().output_shape(), f32)
    s = Setting()
    made = poplin.calculate_weight_deltas(
        s.graph, put(s, rng, z, f32), put(s, rng, x, f32), params, s.prog
    )
    want = weight_gradient(z.astype(np.float64), x, params)
    np.testing.assert_array_equal(s.run(made)[0], want)


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_updates(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    params = ConvParams(
        dtype,
        dtype,
        2,
        (6, 7),
        (3, 2),
        3,
        4,
        2,
        InputTransform(padding_lower=(1, 0), padding_upper=(1, 1)),
        output_transform=OutputTransform(stride=(2, 1)),
    )
    x, w = whole(rng, params.input_shape(), dtype), whole(rng, params.weights_shape(), dtype)
    z, b = whole(rng, params.output_shape(), dtype), whole(rng, (8,), dtype)
    s = Setting()
    zt, xt = put(s, rng, z, dtype), put(s, rng, x, dtype)
    wt = s.put(poplin.create_weights(s.graph, params), w)
    bt = put(s, rng, b, dtype)
    half = put(s, rng, np.array([0.5], dtype.numpy), dtype)
    poplin.convolution_weight_update(s.graph, zt, wt, xt, params, -0.5, s.prog)
    poplin.convolution_bias_update(s.graph, zt, bt, half, s.prog)
    got = s.run(wt, bt)
    wide = z.astype(np.float64)
    want = w - 0.5 * weight_gradient(wide, x, params)
    np.testing.assert_array_equal(got[0], want.astype(dtype.numpy))
    np.testing.assert_array_equal(got[1], (b + 0.5 * wide.sum((0, 2, 3))).astype(dtype.numpy))


def test_wrong_deltas() -> None:
    s = Setting()
    params = ConvParams(f32, f32, 1, (4,), (3,), 1, 1)
    t = s.graph.add_variable(f32, (1, 1, 4), mapping=0)
    with pytest.raises(ShapeError, match="z_deltas"):
        poplin.calculate_weight_deltas(s.graph, t, t, params, s.prog)


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_fully_connected(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    params = poplin.FullyConnectedParams(2, 5, 20, 9)
    x, w, b, z = (whole(rng, n, dtype) for n in ((2, 5, 20), (2, 20, 9), (2, 9), (2, 5, 9)))
    s = Setting()
    xt, wt, bt, zt = (put(s, rng, t, dtype) for t in (x, w, b, z))
    y = poplin.fully_connected(s.graph, xt, wt, bt, params, s.prog)
    back = poplin.fully_connected_backward(s.graph, zt, wt, params, s.prog)
    poplin.fully_connected_weight_update(s.graph, zt, wt, xt, 0.25, params, s.prog)
    got = s.run(y, back, wt)
    x, w, b, z = (t.astype(np.float64) for t in (x, w, b, z))
    want = (x @ w + b[:, None], z @ w.swapaxes(1, 2), w + 0.25 * x.swapaxes(1, 2) @ z)
    for found, right in zip(got, want, strict=True):
        np.testing.assert_array_equal(found, right.astype(dtype.numpy))
    with pytest.raises(ShapeError, match="the layer says"):
        poplin.fully_connected(s.graph, wt, xt, None, params, s.prog)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("shape", [(4, 7), (2, 20, 5, 3)], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(f32, 2e-5), (f16, 1e-2)], ids=str)
def test_norms(shape: tuple[int, ...], dtype: DType, tolerance: float, unbiased: bool) -> None:
    """The gradient is checked against the derivative of the norm, in float64."""
    rng = np.random.default_rng(1)
    x, g = (rng.standard_normal(shape).astype(dtype.numpy) for _ in range(2))
    gamma, beta = (rng.standard_normal(shape[1]).astype(dtype.numpy) for _ in range(2))
    s = Setting()
    xt, gt = put(s, rng, x, dtype), put(s, rng, g, dtype)
    gammas, betas = poplin.create_norm_params(s.graph, xt)
    s.put(gammas, gamma)
    s.put(betas, beta)
    mean, inverse = poplin.norm_statistics(s.graph, xt, 1e-3, s.prog, unbiased)
    white = poplin.norm_whiten(s.graph, xt, mean, inverse, s.prog)
    y = poplin.normalise(s.graph, white, gammas, betas, s.prog)
    d_gamma, d_beta = poplin.norm_param_gradients(s.graph, white, gt, s.prog)
    d_white = poplin.norm_gradients(s.graph, gt, gammas, s.prog)
    d_x = poplin.norm_statistics_gradients(s.graph, white, d_white, inverse, s.prog)
    got = s.run(mean, inverse, y, d_gamma, d_beta, d_x)
    axes = tuple(d for d in range(len(shape)) if d != 1)
    column = (-1,) + (1,) * (len(shape) - 2)
    x, g, gamma, beta = (t.astype(np.float64) for t in (x, g, gamma, beta))
    count = x.size // shape[1]

    def whiten(v: Array) -> tuple[Array, Array, Array]:
        middle = v.mean(axes)
        inv = 1 / np.sqrt(v.var(axes, ddof=int(unbiased)) + 1e-3)
        return middle, inv, (v - middle.reshape(column)) * inv.reshape(column)

    middle, inv, w = whiten(x)
    want = [middle, inv, w * gamma.reshape(column) + beta.reshape(column)]
    want += [(g * w).sum(axes), g.sum(axes)]
    if not unbiased and count > 1:
        t, step = np.random.default_rng(2).standard_normal(shape), 1e-5
        slope = (whiten(x + step * t)[2] - whiten(x - step * t)[2]) / (2 * step)
        along = (slope * g * gamma.reshape(column)).sum()
        found = (got[5].astype(np.float64) * t).sum()
        assert abs(found - along) <= tolerance * 10 * (1 + abs(along))
    for found, right in zip(got, want, strict=False):
        assert found.dtype == dtype.numpy
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance * 3)
