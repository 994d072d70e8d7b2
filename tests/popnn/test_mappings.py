"""popnn over inputs on random tiles: right values, and the bits of the linear mapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py import popnn
from poplar_py.poplar import Tensor
from poplar_py.types import DType
from tests.poplin.cases import sample
from tests.poplin.setting import Setting, put
from tests.poplin.test_mappings import FLOATS

Array = np.ndarray[Any, np.dtype[Any]]
Build = Callable[..., Tensor | tuple[Tensor, ...]]
EXACT = {"f32": 2e-6, "f16": 2e-3}


def both(build: Build, dtype: DType, seed: int, *arrays: Array, sums: bool = False) -> list[Array]:
    """The results over random tiles, which must be those over linear ones bit by bit; where `sums`
    over several tiles are taken in the order of the mapping, up to rounding."""
    rng = np.random.default_rng(seed)
    found: list[list[Array]] = []
    for where in (rng, None):
        s = Setting()
        made = build(s, *(put(s, where, a, dtype) for a in arrays))
        found.append(s.run(*(made if isinstance(made, tuple) else (made,))))
    for first, second in zip(*found, strict=True):
        if sums:
            close(first, second.astype(np.float64), dtype)
        else:
            np.testing.assert_array_equal(first, second)
    return found[0]


def close(got: Array, want: Array, dtype: DType, factor: float = 1.0) -> None:
    assert got.dtype == dtype.numpy
    assert got.shape == want.shape
    scale = max(np.abs(want).max(initial=0), 1.0)
    error = np.abs(got.astype(np.float64) - want).max(initial=0)
    assert error <= factor * EXACT[dtype.name] * scale


@settings(max_examples=10, deadline=None)
@given(
    FLOATS,
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(0, 9),
)
def test_softmax(dtype: DType, shape: list[int], axis: int, seed: int) -> None:
    axis %= len(shape)
    x = sample(np.random.default_rng(seed), dtype, tuple(shape))
    got = both(
        lambda s, t: (
            popnn.softmax(s.graph, t, axis, s.prog),
            popnn.log_softmax(s.graph, t, axis, s.prog),
        ),
        dtype,
        seed,
        x,
    )
    power = np.exp(x.astype(np.float64))
    want = power / power.sum(axis, keepdims=True)
    close(got[0], want, dtype)
    close(got[1], np.log(want), dtype)


@settings(max_examples=10, deadline=None)
@given(
    FLOATS,
    st.lists(st.integers(2, 12), min_size=2, max_size=3),
    st.integers(0, 1),
    st.booleans(),
    st.integers(0, 9),
)
def test_layer_norm(dtype: DType, shape: list[int], axis: int, affine: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inner = tuple(shape[axis:])
    x, scale, bias = (sample(rng, dtype, d) for d in (tuple(shape), inner, inner))

    def build(s: Setting, t: Tensor, scales: Tensor, biases: Tensor) -> Tensor:
        extra = (scales, biases) if affine else (None, None)
        return popnn.layer_norm(s.graph, t, *extra, axis, 1e-2, s.prog)

    (got,) = both(build, dtype, seed, x, scale, bias)
    wide, axes = x.astype(np.float64), tuple(range(axis, len(shape)))
    want = wide - wide.mean(axes, keepdims=True)
    want /= np.sqrt(wide.var(axes, keepdims=True) + 1e-2)
    close(got, want * scale + bias if affine else want, dtype, 4)


def windows(v: Array, params: popnn.PoolParams, fill: float) -> Array:
    """[taps, N, C, *out] of v [N, C, *in] padded with `fill`."""
    rank = len(params.kernel)
    pads = [(0, 0), (0, 0), *zip(params.pads[:rank], params.pads[rank:], strict=True)]
    padded = np.pad(v.astype(np.float64), pads, constant_values=fill)
    outs = params.out_sizes(v.shape[2:])
    taps: list[Array] = []
    for tap in np.ndindex(*params.kernel):
        rows = zip(tap, params.dilations, params.strides, outs, strict=True)
        cut = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in rows)
        taps.append(padded[(slice(None), slice(None), *cut)])
    return np.stack(taps)


@st.composite
def pools(draw: st.DrawFn) -> tuple[tuple[int, ...], popnn.PoolParams]:
    rank = draw(st.integers(1, 3))

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, dilations = sizes(1, 3), sizes(1, 2)
    pads = tuple(draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    spatial = tuple(
        (k - 1) * d + draw(st.integers(1, 12 // rank))
        for k, d in zip(kernel, dilations, strict=True)
    )
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 16, 20])), *spatial)
    return shape, popnn.PoolParams(kernel, sizes(1, 3), pads, dilations)


@settings(max_examples=15, deadline=None)
@given(FLOATS, pools(), st.booleans(), st.integers(0, 9))
def test_pooling(
    dtype: DType, case: tuple[tuple[int, ...], popnn.PoolParams], include: bool, seed: int
) -> None:
    """Windows that lie in the padding alone have no mean and no winner, and are not compared."""
    shape, params = case
    x = sample(np.random.default_rng(seed), dtype, shape)

    def build(s: Setting, t: Tensor) -> tuple[Tensor, ...]:
        top, _ = popnn.max_pool(s.graph, t, params, s.prog)
        again, where = popnn.max_pool(s.graph, t, params, s.prog, indices=True)
        assert where is not None
        mean = popnn.avg_pool(s.graph, t, params, s.prog, count_include_pad=include)
        return top, again, where, mean

    rng = np.random.default_rng(seed)
    found: list[list[Array]] = []
    for where in (rng, None):
        s = Setting()
        found.append(s.run(*build(s, put(s, where, x, dtype))))
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)
    top, again, where, mean = found[0]
    count = windows(np.ones(shape), params, 0.0).sum(0)
    some = count > 0
    want = windows(x, params, -np.inf).max(0)
    np.testing.assert_array_equal(top[some], want[some])
    np.testing.assert_array_equal(again[some], want[some])
    flat = x.reshape(*shape[:2], -1)
    picked = np.take_along_axis(
        flat, where.reshape(*shape[:2], -1) * some.reshape(*shape[:2], -1), 2
    )
    np.testing.assert_array_equal(picked.reshape(top.shape)[some], want[some])
    total = windows(x, params, 0.0).sum(0)
    divisor = np.prod(params.kernel) if include else np.maximum(count, 1)
    close(np.where(some, mean, 0), np.where(some, total / divisor, 0), dtype, 2)


def logistic(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


LAYERS = {"lstm": 4, "gru": 3, "rnn": 1}


def layer_reference(kind: str, x: Array, w: Array, r: Array, bias: Array, h: Array) -> Array:
    """The states of all steps, in float64; every first state is h."""
    hidden, c, outs = h.shape[1], h, []
    for now in x:
        if kind == "gru":
            a, b = now @ w.T + bias[: 3 * hidden], h @ r.T + bias[3 * hidden :]
            z, reset = (
                logistic(a[:, k * hidden : (k + 1) * hidden] + b[:, k * hidden : (k + 1) * hidden])
                for k in range(2)
            )
            new = np.tanh(a[:, 2 * hidden :] + reset * b[:, 2 * hidden :])
            h = (1 - z) * new + z * h
        else:
            g = now @ w.T + h @ r.T + bias
            if kind == "rnn":
                h = np.tanh(g)
            else:
                i, o, f, n = (g[:, k * hidden : (k + 1) * hidden] for k in range(4))
                c = logistic(f) * c + logistic(i) * np.tanh(n)
                h = logistic(o) * np.tanh(c)
        outs.append(h)
    return np.stack(outs)


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=4, deadline=None)
@given(
    FLOATS,
    st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 20), st.integers(1, 20)),
    st.booleans(),
    st.integers(0, 9),
)
def test_recurrences(
    kind: str, dtype: DType, sizes: tuple[int, int, int, int], reverse: bool, seed: int
) -> None:
    steps, batch, inputs, hidden = sizes
    rng, gates = np.random.default_rng(seed), LAYERS[kind]
    width = gates * hidden
    shapes = [(steps, batch, inputs), (width, inputs), (width, hidden)]
    shapes += [(width * (2 if kind == "gru" else 1),), (batch, hidden)]
    x, w, r, bias, h = (0.5 * sample(rng, dtype, d) for d in shapes)

    def build(s: Setting, *t: Tensor) -> tuple[Tensor, ...]:
        if kind == "lstm":
            return popnn.lstm(s.graph, *t, t[-1], s.prog, reverse=reverse)[:2]
        if kind == "gru":
            return popnn.gru(s.graph, *t, s.prog, reverse=reverse, linear_before_reset=True)
        return popnn.rnn(s.graph, *t, s.prog, reverse=reverse)

    got = both(build, dtype, seed, *(a.astype(dtype.numpy) for a in (x, w, r, bias, h)))
    wide = [a.astype(dtype.numpy).astype(np.float64) for a in (x, w, r, bias, h)]
    wide[0] = wide[0][::-1] if reverse else wide[0]
    want = layer_reference(kind, *wide)
    close(got[1], want[-1], dtype, 5)
    close(got[0], want[::-1] if reverse else want, dtype, 5)
