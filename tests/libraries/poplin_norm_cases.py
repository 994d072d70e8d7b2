"""poplin: statistics, application and gradients of norms, channel by channel."""

from __future__ import annotations

import numpy as np

from poplar_py import poplin
from tests.libraries.lab import Array, Case, Lab

__all__ = ["CASES", "activations", "channelwise", "moments", "statistics_gradient"]


def channelwise(acts: Array, t: Array) -> Array:
    return t.reshape((-1, *(1,) * (acts.ndim - 2)))


def activations(lab: Lab) -> Array:
    return lab.values(lab.shape(2, 4, 9))


def _vectors(lab: Lab, acts: Array, count: int = 2) -> list[Array]:
    return [lab.values(acts.shape[1:2], 0.5, 2) for _ in range(count)]


def moments(acts: Array, eps: float, unbiased: bool) -> tuple[Array, Array]:
    """(mean, 1 / deviation) of every channel."""
    axes, x = (0, *range(2, acts.ndim)), acts.astype(np.float64)
    count = acts.size // acts.shape[1]
    square = ((x - x.mean(axes, keepdims=True)) ** 2).sum(axes)
    return x.mean(axes), 1 / np.sqrt(square / max(count - unbiased, 1) + eps)


def _statistics(lab: Lab) -> None:
    for unbiased in (False, True):
        acts = activations(lab)
        mean, inverse = poplin.norm_statistics(
            lab.graph, lab.put(acts), 0.1, lab.prog, unbiased_var_estimate=unbiased
        )
        want = moments(acts, 0.1, unbiased)
        lab.expect(mean, want[0])
        lab.expect(inverse, want[1])


def _whiten(lab: Lab) -> None:
    acts = activations(lab)
    mean, inverse = _vectors(lab, acts)
    given = lab.put(acts), lab.put(mean), lab.put(inverse)
    out = poplin.norm_whiten(lab.graph, *given, lab.prog)
    x = acts.astype(np.float64)
    lab.expect(out, (x - channelwise(acts, mean)) * channelwise(acts, inverse))


def _normalise(lab: Lab) -> None:
    acts = activations(lab)
    gamma, beta = _vectors(lab, acts)
    given = lab.put(acts), lab.put(gamma), lab.put(beta)
    out = poplin.normalise(lab.graph, *given, lab.prog)
    x = acts.astype(np.float64)
    lab.expect(out, x * channelwise(acts, gamma) + channelwise(acts, beta))


def _norm_params(lab: Lab) -> None:
    """Gamma and beta made for activations are used as such."""
    acts = activations(lab)
    x = lab.put(acts)
    values = _vectors(lab, acts, 4)
    gamma = lab.put(values[0], poplin.create_norm_gamma(lab.graph, x))
    beta = lab.put(values[1], poplin.create_norm_beta(lab.graph, x))
    both = poplin.create_norm_params(lab.graph, x)
    for t, value in zip(both, values[2:], strict=True):
        lab.put(value, t)
    wide = acts.astype(np.float64)
    for held, (g, b) in (((gamma, beta), values[:2]), (both, values[2:])):
        out = poplin.normalise(lab.graph, x, *held, lab.prog)
        lab.expect(out, wide * channelwise(acts, g) + channelwise(acts, b))


def _param_gradients(lab: Lab) -> None:
    acts = activations(lab)
    grads, axes = lab.values(acts.shape), (0, *range(2, acts.ndim))
    out = poplin.norm_param_gradients(lab.graph, lab.put(acts), lab.put(grads), lab.prog)
    lab.expect(out[0], (acts.astype(np.float64) * grads).sum(axes))
    lab.expect(out[1], grads.astype(np.float64).sum(axes))


def _norm_gradients(lab: Lab) -> None:
    acts = activations(lab)
    (gamma,) = _vectors(lab, acts, 1)
    out = poplin.norm_gradients(lab.graph, lab.put(acts), lab.put(gamma), lab.prog)
    lab.expect(out, acts.astype(np.float64) * channelwise(acts, gamma))


def statistics_gradient(white: Array, grads: Array, inverse: Array) -> Array:
    """The derivative of whitening, by its Jacobian: I - 1/n - w w^T / n, times 1 / deviation."""
    axes, g = (0, *range(2, white.ndim)), grads.astype(np.float64)
    count = white.size // white.shape[1]
    mean = g.sum(axes, keepdims=True) / count
    along = (g * white).sum(axes, keepdims=True) / count
    return (g - mean - white * along) * channelwise(white, inverse)


def _statistics_gradients(lab: Lab) -> None:
    white = activations(lab)
    (inverse,), grads = _vectors(lab, white, 1), lab.values(white.shape)
    given = lab.put(white), lab.put(grads), lab.put(inverse)
    out = poplin.norm_statistics_gradients(lab.graph, *given, lab.prog)
    lab.expect(out, statistics_gradient(white.astype(np.float64), grads, inverse))


CASES: dict[str, Case] = {
    "norm_statistics": _statistics,
    "norm_whiten": _whiten,
    "normalise": _normalise,
    "create_norm_gamma": _norm_params,
    "create_norm_beta": _norm_params,
    "create_norm_params": _norm_params,
    "norm_param_gradients": _param_gradients,
    "norm_gradients": _norm_gradients,
    "norm_statistics_gradients": _statistics_gradients,
}
