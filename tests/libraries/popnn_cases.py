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
    "SOFTMAX_SCALED": lambda x: 62000 * special.softmax(x, -1),
}
OF_RESULT: dict[str, Callable[[Array, Array], Array]] = {
    "relu": lambda y, g: np.where(y > 0, g, 0),
    "sigmoid": lambda y, g: g * y * (1 - y),
    "tanh": lambda y, g: g * (1 - y * y),
    "hard_sigmoid": lambda y, g: np.where((y > 0) & (y < 1), 0.2 * g, 0),
    "SOFTMAX": lambda y, g: y * (g - (y * g).sum(-1, keepdims=True)),
    "SOFTMAX_SCALED": lambda y, g: y * (g - (y * g).sum(-1, keepdims=True) / 62000),
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


def _spatial_softmax(lab: Lab) -> None:
    """Expected row and column of each field, from -1 to 1."""
    for kind in ("number", "tensor", "none"):
        x = lab.values(lab.shape(3, 3), 0, 1)
        given: Any = lab.put(np.full((), 0.5, x.dtype)) if kind == "tensor" else 0.5
        off = kind == "none"
        out = popnn.spatial_softmax_2d(lab.graph, lab.put(x), given, lab.prog, disable_softmax=off)
        share = wide(x) if off else special.softmax(wide(x) / 0.5, (1, 2))
        rows, columns = (np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in x.shape[1:])
        want = [(share.sum(2) * rows).sum(1), (share.sum(1) * columns).sum(1)]
        lab.expect(out, np.stack(want, 1))


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
    "spatial_softmax_2d": _spatial_softmax,
    "calc_loss": _calc_loss,
    "calc_accuracy": _calc_accuracy,
    "arg_max": _arg(popnn.arg_max, lambda x: x.argmax(1)),
    "arg_min": _arg(popnn.arg_min, lambda x: x.argmin(1)),
    "max_and_arg_max": _max_and_arg_max,
    "resize": _resize,
}
