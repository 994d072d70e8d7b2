"""popnn: recurrences as ONNX describes them, and their gradients by difference quotients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from poplar_py import popnn
from poplar_py.poplar import Tensor
from poplar_py.types import f16
from tests.libraries.lab import Array, Case, Lab
from tests.libraries.poplin_cases import wide

__all__ = ["CASES"]

Step = Callable[[Array, list[Array]], list[Array]]
Layer = Callable[..., list[Array]]
"""(x, w, r, bias, *states): all first states [T, B, H], then the last states; in f64."""


# ---------------------------------------------------------------------- the meaning
def _unrolled(x: Array, states: list[Array], step: Step, reverse: bool) -> list[Array]:
    all_states = np.zeros((len(x), *states[0].shape))
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        states = step(x[t], states)
        all_states[t] = states[0]
    return [all_states, *states]


def _lstm_of(reverse: bool) -> Layer:
    def layer(x: Array, w: Array, r: Array, bias: Array, h: Array, c: Array) -> list[Array]:
        def step(now: Array, states: list[Array]) -> list[Array]:
            i, o, f, g = np.split(now @ w.T + states[0] @ r.T + bias, 4, -1)
            cell = special.expit(f) * states[1] + special.expit(i) * np.tanh(g)
            return [special.expit(o) * np.tanh(cell), cell]

        return _unrolled(x, [h, c], step, reverse)

    return layer


def _gru_of(reverse: bool, linear: bool) -> Layer:
    def layer(x: Array, w: Array, r: Array, bias: Array, h: Array) -> list[Array]:
        first, second = np.split(bias, 2)
        bz, br, bh = np.split(second, 3)
        of_z, of_r, of_h = (part.T for part in np.split(r, 3))

        def step(now: Array, states: list[Array]) -> list[Array]:
            xz, xr, xh = np.split(now @ w.T + first, 3, -1)
            old = states[0]
            z, reset = special.expit(xz + old @ of_z + bz), special.expit(xr + old @ of_r + br)
            inner = reset * (old @ of_h + bh) if linear else (reset * old) @ of_h + bh
            return [(1 - z) * np.tanh(xh + inner) + z * old]

        return _unrolled(x, [h], step, reverse)

    return layer


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": special.expit,
}


def _rnn_of(reverse: bool, kind: str) -> Layer:
    f = ACTIVATIONS[kind]

    def layer(x: Array, w: Array, r: Array, bias: Array, h: Array) -> list[Array]:
        return _unrolled(x, [h], lambda now, s: [f(now @ w.T + s[0] @ r.T + bias)], reverse)

    return layer


# ---------------------------------------------------------------------- chance
def _operands(lab: Lab, gates: int, biases: int, states: int, limit: int) -> list[Array]:
    """x [T, B, I], w [G H, I], r [G H, H], bias, states [B, H]; short and long sequences."""
    steps, batch, size, hidden = lab.pick(1, 6), *(lab.pick(1, n) for n in (3, limit, limit))
    shapes = [(steps, batch, size), (gates * hidden, size), (gates * hidden, hidden)]
    shapes += [(biases * hidden,), *[(batch, hidden)] * states]
    return [lab.values(shape, -1, 1) for shape in shapes]


def _given(lab: Lab, operands: list[Array], with_bias: bool) -> list[Any]:
    """Tensors, weights now and then constants, and the bias only if there is one."""
    made: list[Any] = [lab.put(t) for t in operands]
    for i in (1, 2):
        made[i] = operands[i] if lab.chance() else made[i]
    made[3] = made[3] if with_bias else None
    return made


def _close(lab: Lab, outs: tuple[Tensor | None, ...], wanted: list[Array]) -> None:
    """f16 states are rounded at every step."""
    for out, want in zip(outs, wanted, strict=True):
        assert out is not None
        lab.expect(out, want, tolerance=2e-2 if lab.dtype is f16 else 2e-5)


def _forward(lab: Lab, f: Any, meaning: Layer, sizes: tuple[int, int, int], **options: Any) -> None:
    operands, with_bias = _operands(lab, *sizes, 9), lab.chance()
    outs = f(lab.graph, *_given(lab, operands, with_bias), lab.prog, **options)
    held = [wide(t) for t in operands]
    held[3] = held[3] * with_bias
    _close(lab, outs, meaning(*held))


# ---------------------------------------------------------------------- gradients
def _quotients(meaning: Layer, operands: list[Array], weights: list[Array]) -> list[Array]:
    """Of the weighted sum of a layer's results, with respect to every element of its operands."""
    held = [wide(t) for t in operands]
    found: list[Array] = []
    for t in held:
        slope = np.zeros(t.shape)
        for i in np.ndindex(*t.shape):
            kept, ends = t[i], []
            for step in (1e-5, -1e-5):
                t[i] = kept + step
                ends.append(
                    sum((a * b).sum() for a, b in zip(meaning(*held), weights, strict=True))
                )
            t[i] = kept
            slope[i] = (ends[0] - ends[1]) / 2e-5
        found.append(slope)
    return found


def _backward(
    lab: Lab, f: Any, meaning: Layer, sizes: tuple[int, int, int], **options: Any
) -> None:
    operands, with_bias, with_last = _operands(lab, *sizes, 3), lab.chance(), lab.chance()
    if not with_bias:
        operands[3] = 0 * operands[3]
    x, states = operands[0], operands[4:]
    y = lab.values((*x.shape[:2], states[0].shape[1]), -1, 1)
    last = [lab.values(s.shape, -1, 1) * with_last for s in states]
    names = ("h_gradient", "c_gradient") if with_last else ()
    note = {n: lab.put(t) for n, t in zip(names, last, strict=False)}
    given = _given(lab, operands, with_bias)
    made = f(lab.graph, *given, lab.put(y), lab.prog, **note, **options)
    want = _quotients(meaning, operands, [wide(y), *map(wide, last)])
    outs = [made.x, made.w, made.r, made.bias, made.h0, made.c0][: 4 + len(states)]
    if not with_bias:
        assert made.bias is None
        del outs[3], want[3]
    _close(lab, tuple(outs), want)


def _lstm(run: Any, f: Any) -> Case:
    def case(lab: Lab) -> None:
        for reverse in (False, True):
            run(lab, f, _lstm_of(reverse), (4, 4, 2), reverse=reverse)

    return case


def _gru(run: Any, f: Any) -> Case:
    def case(lab: Lab) -> None:
        for linear in (False, True):
            reverse = lab.chance()
            meaning = _gru_of(reverse, linear)
            run(lab, f, meaning, (3, 6, 1), reverse=reverse, linear_before_reset=linear)

    return case


def _rnn(run: Any, f: Any) -> Case:
    def case(lab: Lab) -> None:
        for kind in ACTIVATIONS:
            reverse = lab.chance()
            run(lab, f, _rnn_of(reverse, kind), (1, 1, 1), reverse=reverse, activation=kind)

    return case


CASES: dict[str, Case] = {
    "lstm": _lstm(_forward, popnn.lstm),
    "gru": _gru(_forward, popnn.gru),
    "rnn": _rnn(_forward, popnn.rnn),
    "lstm_gradients": _lstm(_backward, popnn.lstm_gradients),
    "gru_gradients": _gru(_backward, popnn.gru_gradients),
    "rnn_gradients": _rnn(_backward, popnn.rnn_gradients),
}
