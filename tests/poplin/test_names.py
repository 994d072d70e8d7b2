"""Names of poplin and poprand that are made of others, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poplar_py import poplin, poprand
from poplar_py.poplar import program
from poplar_py.types import DType, f16, f32, u32
from tests.poplin.setting import Setting, whole

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.mark.parametrize("dtype", [f32, f16])
def test_products(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    s = Setting()
    a, b, c = (whole(rng, n, dtype) for n in ((3, 5, 16), (3, 16, 7), (3, 5, 7)))
    x = s.put(poplin.create_mat_mul_grouped_input_lhs(s.graph, dtype, a.shape, b.shape), a)
    y = s.put(poplin.create_mat_mul_grouped_input_rhs(s.graph, dtype, a.shape, b.shape), b)
    acc = s.input(c, dtype)
    scaled = s.input(c, dtype)
    scale = s.input(np.array([-2], dtype.numpy), dtype)
    made = poplin.mat_mul_grouped(s.graph, x, y, s.prog)
    poplin.mat_mul_grouped_acc(s.graph, acc, 0.5, x, y, s.prog)
    poplin.mat_mul_grouped_acc(s.graph, scaled, scale, x, y, s.prog)
    out = s.graph.add_variable(dtype, (3, 7, 5), "out", mapping="linear")
    turned = poplin.transpose_grouped_matrix(out)
    poplin.mat_mul_grouped_with_output(s.graph, x, y, turned, s.prog)
    want = a.astype(np.float64) @ b
    got = s.run(made, acc, scaled, out)
    expected = (want, c + 0.5 * want, c - 2 * want, want.swapaxes(1, 2))
    for found, right in zip(got, expected, strict=True):
        np.testing.assert_array_equal(found, right.astype(dtype.numpy))


@pytest.mark.parametrize("dtype", [f32, f16])
def test_convolution_with_bias(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    s = Setting()
    pad = poplin.InputTransform(padding_lower=(1,), padding_upper=(1,))
    params = poplin.ConvParams(dtype, dtype, 2, (9,), (3,), 4, 6, 1, pad)
    x, w, bias = (whole(rng, n, dtype) for n in ((2, 4, 9), (6, 4, 3), (6,)))
    xt = s.put(poplin.create_input(s.graph, params), x)
    wt = s.put(poplin.create_weights(s.graph, params), w)
    out = s.graph.add_variable(dtype, (2, 6, 9), "out", mapping="linear")
    poplin.convolution_with_output(s.graph, xt, wt, out, params, s.prog)
    poplin.add_bias(s.graph, out, s.put(poplin.create_biases(s.graph, out), bias), s.prog)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, 2)
    want = np.einsum("ncik,ock->noi", windows, w.astype(np.float64)) + bias[:, None]
    np.testing.assert_array_equal(s.run(out)[0], want.astype(dtype.numpy))
    assert poplin.get_fwd_flops(params) == 2 * 2 * 6 * 4 * (9 * 3 - 2)
    assert poplin.get_fwd_perfect_cycle_count(s.graph, params) == -(
        -1200 // (16 * 16 if dtype is f32 else 64 * 16)
    )


def test_views_and_constants() -> None:
    s = Setting()
    w = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    flipped = poplin.weights_transpose_chans_flip_xy(s.input(w, f32))
    apart = s.input(w.reshape(2, 1, 3, 4), f32)
    grouped = poplin.weights_transpose_chans_flip_xy(apart, grouped=True)
    line = poplin.linspace(s.graph, f32, -1, 1, 5)
    mask = poplin.triangular_mask(s.graph, 4)
    out = [
        s.graph.add_variable(f32, t.shape, mapping="linear") for t in (flipped, line, mask, grouped)
    ]
    for t, copy in zip((flipped, line, mask, grouped), out, strict=True):
        s.prog.add(program.Copy(t, copy))
    got = s.run(*out)
    np.testing.assert_array_equal(got[0], w[:, :, ::-1].transpose(1, 0, 2))
    np.testing.assert_array_equal(got[1], np.linspace(-1, 1, 5).astype(np.float32))
    np.testing.assert_array_equal(got[2], np.tril(np.ones((4, 4))))
    np.testing.assert_array_equal(got[3], w[:, :, None, ::-1])


@pytest.mark.parametrize("dtype", [f32, f16])
def test_random(dtype: DType) -> None:
    """Log-uniform within its ends with the right mean; a mask shared along rows; seeds."""
    s = Setting()
    seed = s.graph.add_variable(u32, (2,), "seed", mapping=0)
    master = s.input(np.array([7, 9], np.uint32), u32)
    poprand.set_seed(s.graph, master, 0, s.prog, out=seed)
    x = poprand.log_uniform(s.graph, seed, (4000,), 0.01, 100, s.prog, dtype=dtype)
    ones = s.input(np.ones((50, 6), dtype.numpy), dtype)
    kept = poprand.shaped_dropout(s.graph, seed, ones, (50, 1), 0.5, 2, s.prog)
    same = poprand.log_uniform(s.graph, 7 + (9 << 32), (4000,), 0.01, 100, s.prog, dtype=dtype)
    got = s.run(x, kept, same, seed)
    logs = np.log(got[0].astype(np.float64))
    assert abs(logs.mean()) < 0.2
    assert logs.min() >= np.log(0.0099)
    assert logs.max() <= np.log(100.1)
    assert set(np.unique(got[1])) == {0.0, 2.0}
    assert (got[1] == got[1][:, :1]).all()
    assert 10 < (got[1][:, 0] > 0).sum() < 40
    np.testing.assert_array_equal(got[2], got[0])
    np.testing.assert_array_equal(got[3], [7, 9])
