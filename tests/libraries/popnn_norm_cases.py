"""popnn: batch, group, instance and layer norms, applied and in reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from poplar_py import popnn
from tests.libraries.lab import Array, Case, Lab
from tests.libraries.poplin_cases import wide
from tests.libraries.poplin_norm_cases import (
    activations,
    channelwise,
    moments,
    statistics_gradient,
)

__all__ = ["CASES"]


def _regrouped(acts: Array, groups: int, strided: bool) -> Array:
    """Activations with the groups of every sample as channels: [1, N groups, C / groups, ..]."""
    n, channels, *spatial = acts.shape
    split = (channels // groups, groups) if strided else (groups, channels // groups)
    apart = acts.reshape((n, *split, *spatial))
    apart = apart.swapaxes(1, 2) if strided else apart
    return apart.reshape((1, n * groups, channels // groups, *spatial))


def _back(view: Array, shape: tuple[int, ...], strided: bool) -> Array:
    n, channels, *spatial = shape
    groups = view.shape[1] // n
    apart = view.reshape((n, groups, channels // groups, *spatial))
    return (apart.swapaxes(1, 2) if strided else apart).reshape(shape)


def _grouped_activations(lab: Lab) -> tuple[Array, int, bool]:
    groups = lab.pick(1, 4)
    channels = groups * lab.pick(1, 5)
    shape = (lab.pick(1, 3), channels, *lab.shape(0, 2, 6))
    return lab.values(shape), groups, lab.chance()


def _group_statistics(lab: Lab) -> None:
    for unbiased in (False, True):
        acts, groups, strided = _grouped_activations(lab)
        mean, inverse = popnn.group_norm_statistics(
            lab.graph, lab.put(acts), 0.1, lab.prog, groups, unbiased, strided=strided
        )
        want = moments(_regrouped(acts, groups, strided), 0.1, unbiased)
        lab.expect(mean, want[0])
        lab.expect(inverse, want[1])


def _statistics_of(f: Any, groups_of: Callable[[Array], int] | None) -> Case:
    """Of a batch norm (None) or of so many groups of each sample."""

    def case(lab: Lab) -> None:
        acts = activations(lab)
        mean, inverse = f(lab.graph, lab.put(acts), 0.1, lab.prog)
        seen = acts if groups_of is None else _regrouped(acts, groups_of(acts), True)
        want = moments(seen, 0.1, False)
        lab.expect(mean, want[0])
        lab.expect(inverse, want[1])

    return case


def _batch(lab: Lab) -> tuple[Array, list[Array]]:
    """Activations, and mean, 1 / deviation, gamma and beta of their channels."""
    acts = activations(lab)
    return acts, [lab.values(acts.shape[1:2], 0.5, 2) for _ in range(4)]


def _batch_whiten(lab: Lab) -> None:
    acts, (mean, inverse, _, _) = _batch(lab)
    given = lab.put(acts), lab.put(mean), lab.put(inverse)
    out = popnn.batch_norm_whiten(lab.graph, *given, lab.prog)
    lab.expect(out, (wide(acts) - channelwise(acts, mean)) * channelwise(acts, inverse))


def _batch_normalise(lab: Lab) -> None:
    acts, (mean, inverse, gamma, beta) = _batch(lab)
    given = [lab.put(t) for t in (acts, gamma, beta, mean, inverse)]
    out, whitened = popnn.batch_normalise(lab.graph, *given, lab.prog)
    white = (wide(acts) - channelwise(acts, mean)) * channelwise(acts, inverse)
    lab.expect(whitened, white)
    lab.expect(out, white * channelwise(acts, gamma) + channelwise(acts, beta))


def _batch_gradients(lab: Lab) -> None:
    acts, (inverse, gamma, _, _) = _batch(lab)
    grads = lab.values(acts.shape)
    given = [lab.put(t) for t in (acts, grads, inverse, gamma)]
    out = popnn.batch_norm_gradients(lab.graph, *given, lab.prog)
    scaled = wide(grads) * channelwise(acts, gamma)
    lab.expect(out, statistics_gradient(wide(acts), scaled, inverse))


def _params_of(create: Any, normalise: Any) -> Case:
    """Gamma and beta made for activations are used as such."""

    def case(lab: Lab) -> None:
        acts, (mean, inverse, gamma, beta) = _batch(lab)
        n = 1 if normalise is popnn.batch_normalise else acts.shape[0]
        x = lab.put(acts)
        made = create(lab.graph, x)
        held = [lab.put(v, t) for v, t in zip((gamma, beta), made, strict=True)]
        moment = [lab.put(np.full(n, 0.5, t.dtype) if n > 1 else t) for t in (mean, inverse)]
        out, _ = normalise(lab.graph, x, *held, *moment, lab.prog)
        column = [0.5 if n > 1 else channelwise(acts, t) for t in (mean, inverse)]
        white = (wide(acts) - column[0]) * column[1]
        lab.expect(out, white * channelwise(acts, gamma) + channelwise(acts, beta))

    return case


def _param_gradients(f: Any) -> Case:
    def case(lab: Lab) -> None:
        acts = activations(lab)
        grads, axes = lab.values(acts.shape), (0, *range(2, acts.ndim))
        gamma, beta = f(lab.graph, lab.put(acts), lab.put(grads), lab.prog)
        lab.expect(gamma, (wide(acts) * grads).sum(axes))
        lab.expect(beta, wide(grads).sum(axes))

    return case


def _group_whiten(f: Any) -> Case:
    def case(lab: Lab) -> None:
        acts, groups, strided = _grouped_activations(lab)
        mean, inverse = (lab.values((acts.shape[0] * groups,), 0.5, 2) for _ in range(2))
        given = lab.put(acts), lab.put(mean), lab.put(inverse)
        out = f(lab.graph, *given, lab.prog, strided=strided)
        view = wide(_regrouped(acts, groups, strided))
        white = (view - channelwise(view, mean)) * channelwise(view, inverse)
        lab.expect(out, _back(white, acts.shape, strided))

    return case


def _group_normalise(f: Any) -> Case:
    def case(lab: Lab) -> None:
        acts, groups, strided = _grouped_activations(lab)
        mean, inverse = (lab.values((acts.shape[0] * groups,), 0.5, 2) for _ in range(2))
        gamma, beta = (lab.values(acts.shape[1:2]) for _ in range(2))
        given = [lab.put(t) for t in (acts, gamma, beta, mean, inverse)]
        out, whitened = f(lab.graph, *given, lab.prog, strided=strided)
        view = wide(_regrouped(acts, groups, strided))
        white = (view - channelwise(view, mean)) * channelwise(view, inverse)
        white = _back(white, acts.shape, strided)
        lab.expect(whitened, white)
        lab.expect(out, white * channelwise(acts, gamma) + channelwise(acts, beta))

    return case


def _group_gradients(f: Any) -> Case:
    def case(lab: Lab) -> None:
        acts, groups, strided = _grouped_activations(lab)
        grads, gamma = lab.values(acts.shape), lab.values(acts.shape[1:2])
        inverse = lab.values((acts.shape[0] * groups,), 0.5, 2)
        given = [lab.put(t) for t in (acts, grads, inverse, gamma)]
        out = f(lab.graph, *given, lab.prog, strided=strided)
        scaled = wide(grads) * channelwise(acts, gamma)
        views = (_regrouped(t, groups, strided) for t in (wide(acts), scaled))
        lab.expect(out, _back(statistics_gradient(*views, inverse), acts.shape, strided))

    return case


CASES: dict[str, Case] = {
    "batch_norm_statistics": _statistics_of(popnn.batch_norm_statistics, None),
    "batch_norm_whiten": _batch_whiten,
    "batch_normalise": _batch_normalise,
    "batch_norm_gradients": _batch_gradients,
    "group_norm_statistics": _group_statistics,
    "instance_norm_statistics": _statistics_of(
        popnn.instance_norm_statistics, lambda acts: acts.shape[1]
    ),
    "layer_norm_statistics": _statistics_of(popnn.layer_norm_statistics, lambda _: 1),
}
for _kind in ("batch", "group", "instance", "layer"):
    _normal = getattr(popnn, f"{_kind}_normalise")
    _create = f"create_{_kind}_norm_params"
    CASES[_create] = _params_of(getattr(popnn, _create), _normal)
    CASES[f"{_kind}_norm_param_gradients"] = _param_gradients(
        getattr(popnn, f"{_kind}_norm_param_gradients")
    )
for _kind in ("group", "instance", "layer"):
    CASES[f"{_kind}_norm_whiten"] = _group_whiten(getattr(popnn, f"{_kind}_norm_whiten"))
    CASES[f"{_kind}_normalise"] = _group_normalise(getattr(popnn, f"{_kind}_normalise"))
    CASES[f"{_kind}_norm_gradients"] = _group_gradients(getattr(popnn, f"{_kind}_norm_gradients"))
