"""Gradients, norms and losses of popnn, against derivatives and NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poplar_py import popnn
from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar import Tensor
from poplar_py.types import DType, f16, f32, f64, i32
from tests.poplin.cases import sample
from tests.poplin.setting import Setting
from tests.popnn.test_mappings import both, close

Array = np.ndarray[Any, np.dtype[Any]]
ERF = np.vectorize(math.erf)


def softmax(x: Array) -> Array:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


FORWARD: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + ERF(x / np.sqrt(2))),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "softmax": softmax,
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(f64, 1e-8), (f32, 1e-5), (f16, 1e-2)], ids=str)
@pytest.mark.parametrize("kind", FORWARD)
def test_activations(kind: str, dtype: DType, tolerance: float) -> None:
    """Against the difference quotient of the forward function, along a random direction."""
    rng = np.random.default_rng(5)
    x, g = (2 * sample(rng, dtype, (7, 9)) for _ in range(2))
    wide, step = x.astype(np.float64), 1e-6
    given_argument = kind in ("gelu", "gelu_erf", "swish")

    def build(s: Setting, xt: Tensor, gt: Tensor) -> tuple[Tensor, ...]:
        out = popnn.non_linearity(s.graph, kind, xt, s.prog)
        seen = xt if given_argument else out
        return out, popnn.non_linearity_input_gradient(s.graph, kind, seen, gt, s.prog)

    out, gradient = both(build, dtype, 3, x, g)
    forward = FORWARD[kind]
    want = forward(wide)
    np.testing.assert_allclose(out, want, rtol=tolerance, atol=tolerance)
    if kind == "softmax":
        slope = want * (g - (want * g.astype(np.float64)).sum(-1, keepdims=True))
    else:
        slope = g * (forward(wide + step) - forward(wide - step)) / (2 * step)
    np.testing.assert_allclose(gradient, slope, rtol=tolerance, atol=4 * tolerance)


def test_unknown_activation() -> None:
    s = Setting()
    t = s.graph.add_variable(f32, (3,), mapping=0)
    with pytest.raises(OptionError, match="there is no activation"):
        popnn.non_linearity_input_gradient(s.graph, "cube", t, t, s.prog)


def grouped(x: Array, groups: int, strided: bool) -> Array:
    """x [N, C, *sp] with the members of a group joined: [N, groups, members]."""
    n, c = x.shape[:2]
    if strided:
        x = x.reshape(n, c // groups, groups, -1).swapaxes(1, 2)
    return x.reshape(n, groups, -1)


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("groups", [1, 3, 12], ids=["layer", "group", "instance"])
@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_group_norm(groups: int, strided: bool, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    shape = (2, 12, 4, 3)
    x, g = sample(rng, dtype, shape), sample(rng, dtype, shape)
    gamma, beta = sample(rng, dtype, (12,)), sample(rng, dtype, (12,))

    def build(s: Setting, xt: Tensor, gt: Tensor, gammas: Tensor, betas: Tensor) -> Any:
        graph, prog = s.graph, s.prog
        mean, inverse = popnn.group_norm_statistics(graph, xt, 1e-3, prog, groups, strided=strided)
        y, white = popnn.group_normalise(
            graph, xt, gammas, betas, mean, inverse, prog, strided=strided
        )
        back = popnn.group_norm_gradients(graph, white, gt, inverse, gammas, prog, strided=strided)
        return mean, inverse, y, back, *popnn.group_norm_param_gradients(graph, white, gt, prog)

    got = both(build, dtype, 2, x, g, gamma, beta, sums=True)
    x, g, gamma, beta = (t.astype(np.float64) for t in (x, g, gamma, beta))

    def whiten(v: Array) -> tuple[Array, Array, Array]:
        parts = grouped(v, groups, strided)
        mean = parts.mean(2)
        inverse = 1 / np.sqrt(parts.var(2) + 1e-3)
        channel = np.arange(12) % groups if strided else np.arange(12) // (12 // groups)
        column = (slice(None), channel, None, None)
        return mean, inverse, (v - mean[column]) * inverse[column]

    mean, inverse, white = whiten(x)
    scale = gamma[:, None, None]
    close(got[0], mean.ravel(), dtype, 4)
    close(got[1], inverse.ravel(), dtype, 8)
    close(got[2], white * scale + beta[:, None, None], dtype, 8)
    close(got[4], (g * white).sum((0, 2, 3)), dtype, 8)
    close(got[5], g.sum((0, 2, 3)), dtype, 8)
    t, step = rng.standard_normal(shape), 1e-5
    slope = (whiten(x + step * t)[2] - whiten(x - step * t)[2]) / (2 * step)
    want, found = (slope * g * scale).sum(), (got[3].astype(np.float64) * t).sum()
    assert abs(want - found) <= (1e-4 if dtype is f32 else 5e-2) * (1 + abs(want))


def test_short_forms_of_norms() -> None:
    """Instance and layer statistics are those of groups; a batch norm is poplin's."""
    x = sample(np.random.default_rng(1), f32, (3, 4, 5))
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)

    def build(s: Setting, t: Tensor, gamma: Tensor, beta: Tensor) -> Any:
        graph, prog = s.graph, s.prog
        mean, inverse = popnn.batch_norm_statistics(graph, t, 1e-3, prog)
        y, white = popnn.batch_normalise(graph, t, gamma, beta, mean, inverse, prog)
        back = popnn.batch_norm_gradients(graph, white, t, inverse, gamma, prog)
        instance = popnn.instance_norm_statistics(graph, t, 1e-3, prog)
        layer = popnn.layer_norm_statistics(graph, t, 1e-3, prog)
        return y, back, instance[0], layer[0]

    got = both(build, f32, 1, x, ones, zeros, sums=True)
    wide = x.astype(np.float64)
    inverse = 1 / np.sqrt(wide.var((0, 2), keepdims=True) + 1e-3)
    white = (wide - wide.mean((0, 2), keepdims=True)) * inverse
    close(got[0], white, f32, 4)
    centred = wide - wide.mean((0, 2), keepdims=True)
    shared = (wide * white).mean((0, 2), keepdims=True)
    close(got[1], inverse * (centred - white * shared), f32, 8)
    close(got[2], wide.mean(2).ravel(), f32)
    close(got[3], wide.mean((1, 2)), f32)
    s = Setting()
    odd = s.graph.add_variable(f32, (3, 4, 5), mapping=0)
    with pytest.raises(ShapeError, match="3 groups"):
        popnn.group_norm_statistics(s.graph, odd, 1e-3, s.prog, 3)


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
def test_losses(dtype: DType, labels: bool) -> None:
    rng = np.random.default_rng(1)
    x = sample(rng, dtype, (6, 10))
    label = rng.integers(0, 10, 6).astype(np.int32)
    hot = np.eye(10)[label]
    if not labels:
        hot = softmax(rng.standard_normal((6, 10)))
    p = softmax(x.astype(np.float64)).astype(dtype.numpy)
    s = Setting()
    xt, pt = s.input(x, dtype), s.input(p, dtype)
    expected = s.input(label, i32) if labels else s.input(hot.astype(dtype.numpy), dtype)
    made: list[Tensor] = []
    cases = ((xt, "sum_squared"), (pt, "cross_entropy"), (xt, "softmax_cross_entropy"))
    for t, kind in cases:
        made += popnn.calc_loss(s.graph, t, expected, kind, s.prog)
    got = s.run(*made)
    x, p = x.astype(np.float64), p.astype(np.float64)
    hot = hot.astype(dtype.numpy).astype(np.float64)
    close(got[0], 0.5 * ((x - hot) ** 2).sum(1), dtype, 4)
    close(got[1], x - hot, dtype)
    close(got[2], -(hot * np.log(p)).sum(1), dtype, 8)
    close(got[3], p - hot, dtype)
    exact = softmax(x)
    close(got[4], -(hot * np.log(exact)).sum(1), dtype, 8)
    close(got[5], exact - hot, dtype, 4)


def test_places_and_accuracy() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 5, (9, 7)).astype(np.float32)
    labels = x.argmax(1).astype(np.int32)
    labels[::3] = (labels[::3] + 1) % 7
    s = Setting()
    t, lt = s.input(x, f32), s.input(labels, i32)
    top, place = popnn.max_and_arg_max(s.graph, t, s.prog)
    low = popnn.arg_min(s.graph, t, s.prog)
    right = popnn.calc_accuracy(s.graph, t, lt, s.prog)
    got = s.run(top, place, low, right)
    np.testing.assert_array_equal(got[0], x.max(1))
    np.testing.assert_array_equal(got[1], x.argmax(1))
    np.testing.assert_array_equal(got[2], x.argmin(1))
    assert got[1].dtype == np.uint32
    assert got[3].tolist() == [6]


def test_wrong_losses() -> None:
    s = Setting()
    x = s.graph.add_variable(f32, (3, 4), mapping=0)
    odd = s.graph.add_variable(f32, (3,), mapping=0)
    with pytest.raises(OptionError, match="there is no loss 'hinge'"):
        popnn.calc_loss(s.graph, x, x, "hinge", s.prog)
    with pytest.raises(ShapeError, match="expected f32"):
        popnn.calc_loss(s.graph, x, odd, "sum_squared", s.prog)
    with pytest.raises(ShapeError, match="labels"):
        popnn.calc_accuracy(s.graph, x, s.graph.add_variable(i32, (4,), mapping=0), s.prog)
