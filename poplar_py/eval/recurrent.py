"""NumPy meaning of nn.lstm, nn.gru and nn.rnn: step by step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from poplar_py.eval.elementwise import sigmoid
from poplar_py.eval.registry import Array, meaning, narrow, widen
from poplar_py.ops import nn as ops

__all__: list[str] = []


def _steps(count: int, reverse: bool) -> list[int]:
    return list(range(count - 1, -1, -1)) if reverse else list(range(count))


@meaning(ops.Lstm)
def lstm(
    op: ops.Lstm, x: Array, w: Array, r: Array, bias: Array | None, h0: Array, c0: Array
) -> tuple[Array, ...]:
    wx, ww, wr = widen(x), widen(w), widen(r)
    base = np.matmul(wx, ww.T)
    base = base if bias is None else base + widen(bias)
    h, c = widen(h0), widen(c0)
    y = np.empty((x.shape[0], *h.shape), h.dtype)
    for t in _steps(x.shape[0], op.reverse):
        i, o, f, n = np.split(base[t] + h @ wr.T, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
        h = sigmoid(o) * np.tanh(c)
        y[t] = h
    return narrow(y, x), narrow(h, x), narrow(c, x)


@meaning(ops.Gru)
def gru(
    op: ops.Gru, x: Array, w: Array, r: Array, bias: Array | None, h0: Array
) -> tuple[Array, ...]:
    wx, ww, wr = widen(x), widen(w), widen(r)
    size = r.shape[1]
    bias_w, bias_r = (None, None) if bias is None else np.split(widen(bias), 2)
    base = np.matmul(wx, ww.T)
    base = base if bias_w is None else base + bias_w
    shift = np.zeros(3 * size, base.dtype) if bias_r is None else bias_r
    h = widen(h0)
    y = np.empty((x.shape[0], *h.shape), h.dtype)
    for t in _steps(x.shape[0], op.reverse):
        gates = sigmoid(base[t][:, : 2 * size] + h @ wr[: 2 * size].T + shift[: 2 * size])
        z, reset = gates[:, :size], gates[:, size:]
        if op.linear_before_reset:
            inner = reset * (h @ wr[2 * size :].T + shift[2 * size :])
        else:
            inner = (reset * h) @ wr[2 * size :].T + shift[2 * size :]
        n = np.tanh(base[t][:, 2 * size :] + inner)
        h = (h.dtype.type(1) - z) * n + z * h
        y[t] = h
    return narrow(y, x), narrow(h, x)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": _relu,
    "sigmoid": sigmoid,
}


@meaning(ops.Rnn)
def rnn(
    op: ops.Rnn, x: Array, w: Array, r: Array, bias: Array | None, h0: Array
) -> tuple[Array, ...]:
    wx, ww, wr = widen(x), widen(w), widen(r)
    base = np.matmul(wx, ww.T)
    base = base if bias is None else base + widen(bias)
    h = widen(h0)
    y = np.empty((x.shape[0], *h.shape), h.dtype)
    for t in _steps(x.shape[0], op.reverse):
        h = _ACTIVATIONS[op.activation](base[t] + h @ wr.T)
        y[t] = h
    return narrow(y, x), narrow(h, x)
