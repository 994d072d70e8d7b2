"""popnn: activations, softmax, norms, losses and resizing. Pooling and recurrences have files of
their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from poplar_py import popnn
from poplar_py.popnn import ACTIVATIONS
from poplar_py.types import i32, u32
from tests.libraries.lab import Array, Case, Lab
from tests.libraries.poplin_cases import wide
from tests.libraries.poplin_norm_cases import (
    activations,
    channelwise,
    moments,
    statistics_gradient,
)

__all__ = ["CASES"]

Function = Callable[[Array], Array]


# ---------------------------------------------------------------------- activations
def _sigmoid(x: Array) -> Array:
    return special.expit(x)


SLOPE = np.sqrt(2 / np.pi)
FORWARD: dict[str, Function] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(SLOPE * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: x * special.ndtr(x),
    "swish": lambda x: x * _sigmoid(x),
    "SOFTMAX": lambda x: special.softmax(x, -1),
    "SOFTMAX_STABLE": lambda x: special.softmax(x, -1),
}
OF_RESULT: dict[str, Callable[[Array, Array], Array]] = {
    "relu": lambda y, g: np.where(y > 0, g, 0),
    "sigmoid": lambda y, g: g * y * (1 - y),
    "tanh": lambda y, g: g * (1 - y * y),
    "hard_sigmoid": lambda y, g: np.where((y > 0) & (y < 1), 0.2 * g, 0),
    "SOFTMAX": lambda y, g: y * (g - (y * g).sum(-1, keepdims=True)),
}
"""Gradients of the argument from the result."""
OF_ARGUMENT = ("gelu", "gelu_erf", "swish")


def _argument(lab: Lab) -> Array:
    return lab.values(lab.shape(1, 4, 9), -6, 6)


def _non_linearity(lab: Lab) -> None:
    assert {k.lower() for k in FORWARD} >= set(ACTIVATIONS)
    for kind, f in FORWARD.items():
        x = _argument(lab)
        out = popnn.non_linearity(lab.graph, kind, lab.put(x), lab.prog)
        lab.expect(out, f(wide(x)))


def _in_place(lab: Lab) -> None:
    for kind, f in FORWARD.items():
        x = _argument(lab)
        held = lab.put(x)
        popnn.non_linearity_in_place(lab.graph, kind, held, lab.prog)
        lab.expect(held, f(wide(x)))


def _input_gradient(lab: Lab) -> None:
    for kind, slope in OF_RESULT.items():
        y = lab.values(lab.shape(1, 4, 9), 0.01, 0.99)
        y = np.where(lab.rng.random(y.shape) < 0.2, 0, y).astype(y.dtype)
        g = lab.values(y.shape)
        out = popnn.non_linearity_input_gradient(lab.graph, kind, lab.put(y), lab.put(g), lab.prog)
        lab.expect(out, slope(wide(y), wide(g)))
    for kind in OF_ARGUMENT:
        x = _argument(lab)
        g, f, step = lab.values(x.shape), FORWARD[kind], 1e-6
        out = popnn.non_linearity_input_gradient(lab.graph, kind, lab.put(x), lab.put(g), lab.prog)
        lab.expect(out, g * (f(wide(x) + step) - f(wide(x) - step)) / (2 * step))


def _along(f: Any, meaning: Callable[[Array, int], Array]) -> Case:
    def case(lab: Lab) -> None:
        for _ in range(3):
            x = _argument(lab)
            axis = lab.pick(0, x.ndim - 1)
            out = f(lab.graph, lab.put(x), axis, lab.prog)
            lab.expect(out, meaning(wide(x), axis))
        x = lab.values((2, 30000), -6, 6)  # more than a vertex takes
        t = lab.put(x, lab.variable(lab.dtype, x.shape))
        lab.expect(f(lab.graph, t, 1, lab.prog), meaning(wide(x), 1))

    return case


def _layer_norm(lab: Lab) -> None:
    for given in (True, False):
        x = lab.values(lab.shape(1, 4, 9))
        axis = lab.pick(0, x.ndim - 1)
        dims, inner = tuple(range(axis, x.ndim)), x.shape[axis:]
        scale, bias = lab.values(inner), lab.values(inner[-1:])
        out = popnn.layer_norm(
            lab.graph, lab.put(x), lab.put(scale) if given else None,
            lab.put(bias) if given else None, axis, 0.1, lab.prog,
        )  # fmt: skip
        centred = wide(x) - wide(x).mean(dims, keepdims=True)
        want = centred / np.sqrt((centred**2).mean(dims, keepdims=True) + 0.1)
        lab.expect(out, want * scale + bias if given else want)


# ---------------------------------------------------------------------- norms
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


def _group_whiten(lab: Lab) -> None:
    acts, groups, strided = _grouped_activations(lab)
    mean, inverse = (lab.values((acts.shape[0] * groups,), 0.5, 2) for _ in range(2))
    given = lab.put(acts), lab.put(mean), lab.put(inverse)
    out = popnn.group_norm_whiten(lab.graph, *given, lab.prog, strided=strided)
    view = wide(_regrouped(acts, groups, strided))
    white = (view - channelwise(view, mean)) * channelwise(view, inverse)
    lab.expect(out, _back(white, acts.shape, strided))


def _group_normalise(lab: Lab) -> None:
    acts, groups, strided = _grouped_activations(lab)
    mean, inverse = (lab.values((acts.shape[0] * groups,), 0.5, 2) for _ in range(2))
    gamma, beta = (lab.values(acts.shape[1:2]) for _ in range(2))
    given = [lab.put(t) for t in (acts, gamma, beta, mean, inverse)]
    out, whitened = popnn.group_normalise(lab.graph, *given, lab.prog, strided=strided)
    view = wide(_regrouped(acts, groups, strided))
    white = (view - channelwise(view, mean)) * channelwise(view, inverse)
    white = _back(white, acts.shape, strided)
    lab.expect(whitened, white)
    lab.expect(out, white * channelwise(acts, gamma) + channelwise(acts, beta))


def _group_gradients(lab: Lab) -> None:
    acts, groups, strided = _grouped_activations(lab)
    grads, gamma = lab.values(acts.shape), lab.values(acts.shape[1:2])
    inverse = lab.values((acts.shape[0] * groups,), 0.5, 2)
    given = [lab.put(t) for t in (acts, grads, inverse, gamma)]
    out = popnn.group_norm_gradients(lab.graph, *given, lab.prog, strided=strided)
    scaled = wide(grads) * channelwise(acts, gamma)
    views = (_regrouped(t, groups, strided) for t in (wide(acts), scaled))
    lab.expect(out, _back(statistics_gradient(*views, inverse), acts.shape, strided))


# ---------------------------------------------------------------------- losses
def _distinct(lab: Lab) -> Array:
    """Outputs [N, C] whose rows hold no number twice but where that is wanted."""
    n, classes = lab.pick(1, 9), lab.pick(1, 30)
    rows = [lab.rng.permutation(classes) for _ in range(n)]
    return (np.array(rows) / 4 - 3).astype(lab.dtype.numpy)


def _labels(lab: Lab, n: int, classes: int) -> Array:
    return lab.values((n,), 0, classes - 1, i32 if lab.chance() else u32)


def _calc_loss(lab: Lab) -> None:
    for kind in ("SUM_SQUARED", "CROSS_ENTROPY", "SOFTMAX_CROSS_ENTROPY"):
        for labels in (True, False):
            n, classes = lab.pick(1, 9), lab.pick(1, 20)
            x = lab.values((n, classes), 0.05, 1)
            given = _labels(lab, n, classes) if labels else lab.values((n, classes), 0, 1)
            loss, deltas = popnn.calc_loss(lab.graph, lab.put(x), lab.put(given), kind, lab.prog)
            wanted = np.eye(classes)[given] if labels else wide(given)
            want = _loss(kind, wide(x), wanted)
            lab.expect(loss, want[0])
            lab.expect(deltas, want[1])


def _loss(kind: str, x: Array, wanted: Array) -> tuple[Array, Array]:
    if kind == "SUM_SQUARED":
        return 0.5 * ((x - wanted) ** 2).sum(1), x - wanted
    shown = special.softmax(x, 1) if kind.startswith("SOFTMAX") else x
    return -special.xlogy(wanted, shown).sum(1), shown - wanted


def _calc_accuracy(lab: Lab) -> None:
    x = _distinct(lab)
    labels = np.where(lab.rng.random(len(x)) < 0.5, x.argmax(1), _labels(lab, *x.shape))
    labels = labels.astype(np.int32 if lab.chance() else np.uint32)
    right = popnn.calc_accuracy(lab.graph, lab.put(x), lab.put(labels), lab.prog)
    lab.expect(right, np.array([(x.argmax(1) == labels).sum()]))


def _arg(f: Any, meaning: Callable[[Array], Array]) -> Case:
    """The first of equals too."""

    def case(lab: Lab) -> None:
        for x in (_distinct(lab), lab.values((lab.pick(1, 9), 30), -2, 2, i32)):
            out = f(lab.graph, lab.put(x), lab.prog)
            assert out.dtype is u32
            lab.expect(out, meaning(x))

    return case


def _max_and_arg_max(lab: Lab) -> None:
    x = _distinct(lab)
    top, place = popnn.max_and_arg_max(lab.graph, lab.put(x), lab.prog)
    lab.expect(top, x.max(1), exact=True)
    lab.expect(place, x.argmax(1))


# ---------------------------------------------------------------------- resizing
def _places(before: int, after: int, kind: str) -> Array:
    """Where each of the new elements lies in the old ones."""
    i = np.arange(after)
    if kind == "align_corners":
        return i * (before - 1) / max(after - 1, 1)
    return i * before / after if kind == "asymmetric" else (i + 0.5) * before / after - 0.5


def _resized(x: Array, sizes: tuple[int, ...], method: str, kind: str) -> Array:
    for d, size in enumerate(sizes, 2):
        at = np.clip(_places(x.shape[d], size, kind), 0, x.shape[d] - 1)
        if method == "nearest":
            x = x.take(np.ceil(at - 0.5).astype(int), d)
            continue
        low = np.floor(at).astype(int)
        share = (at - low).reshape((-1, *(1,) * (x.ndim - d - 1)))
        high = np.minimum(low + 1, x.shape[d] - 1)
        x = x.take(low, d) * (1 - share) + x.take(high, d) * share
    return x


def _resize(lab: Lab) -> None:
    for method in ("nearest", "linear"):
        for kind in ("half_pixel", "align_corners", "asymmetric"):
            x = lab.values(lab.shape(3, 4, 6))
            sizes = tuple(lab.pick(1, 9) for _ in x.shape[2:])
            out = popnn.resize(
                lab.graph, lab.put(x), sizes, lab.prog, method=method, coordinates=kind
            )
            lab.expect(out, _resized(wide(x), sizes, method, kind), exact=method == "nearest")


CASES: dict[str, Case] = {
    "non_linearity": _non_linearity,
    "non_linearity_in_place": _in_place,
    "non_linearity_input_gradient": _input_gradient,
    "softmax": _along(popnn.softmax, special.softmax),
    "log_softmax": _along(popnn.log_softmax, special.log_softmax),
    "layer_norm": _layer_norm,
    "batch_norm_statistics": _statistics_of(popnn.batch_norm_statistics, None),
    "batch_norm_whiten": _batch_whiten,
    "batch_normalise": _batch_normalise,
    "batch_norm_gradients": _batch_gradients,
    "batch_norm_param_gradients": _param_gradients(popnn.batch_norm_param_gradients),
    "create_batch_norm_params": _params_of(popnn.create_batch_norm_params, popnn.batch_normalise),
    "group_norm_statistics": _group_statistics,
    "instance_norm_statistics": _statistics_of(
        popnn.instance_norm_statistics, lambda acts: acts.shape[1]
    ),
    "layer_norm_statistics": _statistics_of(popnn.layer_norm_statistics, lambda _: 1),
    "group_norm_whiten": _group_whiten,
    "group_normalise": _group_normalise,
    "group_norm_gradients": _group_gradients,
    "group_norm_param_gradients": _param_gradients(popnn.group_norm_param_gradients),
    "create_group_norm_params": _params_of(popnn.create_group_norm_params, popnn.group_normalise),
    "calc_loss": _calc_loss,
    "calc_accuracy": _calc_accuracy,
    "arg_max": _arg(popnn.arg_max, lambda x: x.argmax(1)),
    "arg_min": _arg(popnn.arg_min, lambda x: x.argmin(1)),
    "max_and_arg_max": _max_and_arg_max,
    "resize": _resize,
}
