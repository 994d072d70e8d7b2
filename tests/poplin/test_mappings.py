"""Products over operands on random tiles: right values, and the bits of the linear mapping."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py import poplin
from poplar_py.types import DType, f16, f32
from tests.poplin.cases import sample
from tests.poplin.setting import Setting, put
from tests.poplin.test_conv_params import TOLERANCE, conv_params, reference

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS = st.sampled_from([f32, f16])


def close(got: Array, want: Array, dtype: DType) -> None:
    scale = max(np.abs(want).max(initial=0), 1.0)
    assert np.abs(got.astype(np.float64) - want).max(initial=0) <= TOLERANCE[dtype.name] * scale


@settings(max_examples=15, deadline=None)
@given(
    FLOATS,
    st.lists(st.integers(1, 3), max_size=2),
    st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 40)),
    st.booleans(),
    st.integers(0, 99),
)
def test_matrices(
    dtype: DType, batch: list[int], sizes: tuple[int, int, int], bias: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = sizes
    a, b = sample(rng, dtype, (*batch, m, k)), sample(rng, dtype, (*batch, k, n))
    c = sample(rng, dtype, (n,))
    found: list[Array] = []
    for where in (rng, None):
        s = Setting()
        x, y = put(s, where, a, dtype), put(s, where, b, dtype)
        extra = put(s, where, c, dtype) if bias else None
        found += s.run(poplin.mat_mul(s.graph, x, y, s.prog, bias=extra))
    want = np.matmul(a.astype(np.float64), b.astype(np.float64))
    close(found[0], want + c.astype(np.float64) if bias else want, dtype)
    np.testing.assert_array_equal(found[0], found[1])


@settings(max_examples=15, deadline=None)
@given(st.one_of(conv_params(f32), conv_params(f16)), st.booleans(), st.integers(0, 99))
def test_convolutions(params: poplin.ConvParams, created: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = params.input_type
    x, w = sample(rng, dtype, params.input_shape()), sample(rng, dtype, params.weights_shape())
    found: list[Array] = []
    for where in (rng, None):
        s = Setting()
        if created and where is not None:
            xt = s.put(poplin.create_input(s.graph, params), x)
            wt = s.put(poplin.create_weights(s.graph, params), w)
        else:
            xt, wt = put(s, where, x, dtype), put(s, where, w, dtype)
        out = poplin.convolution(s.graph, xt, wt, None, params, s.prog)
        if not out.numel:
            return
        found += s.run(out)
    close(found[0], reference(x, w, params), dtype)
    np.testing.assert_array_equal(found[0], found[1])


@settings(max_examples=10, deadline=None)
@given(
    FLOATS,
    st.tuples(st.integers(1, 30), st.integers(1, 60), st.integers(1, 30)),
    st.sampled_from([0.5, -2.0, 1.0]),
    st.integers(0, 99),
)
def test_accumulated(dtype: DType, sizes: tuple[int, int, int], scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = sizes
    a, b, c = (sample(rng, dtype, d) for d in ((2, m, k), (2, k, n), (2, m, n)))
    found: list[Array] = []
    for where in (rng, None):
        s = Setting()
        x, y, acc = (put(s, where, t, dtype) for t in (a, b, c))
        poplin.mat_mul_grouped_acc(s.graph, acc, scale, x, y, s.prog)
        found += s.run(acc)
    wide = a.astype(np.float64), b.astype(np.float64)
    close(found[0], c + scale * np.matmul(*wide), dtype)
    np.testing.assert_array_equal(found[0], found[1])
