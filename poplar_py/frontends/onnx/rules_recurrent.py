"""ONNX LSTM, GRU and RNN: one op per direction, or steps where they are out of the ordinary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_activation import hard_sigmoid, softplus
from poplar_py.frontends.onnx.rules_control import counted
from poplar_py.frontends.onnx.rules_index import reverse_steps
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import i32

__all__: list[str] = []

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_OP_SIZE = 24  # ops of an unrolled step, roughly

Activation = Callable[[Builder, Val, float | None, float | None], Val]


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


_ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": lambda b, x, p, q: b.emit(ew.Sigmoid, x),
    "tanh": lambda b, x, p, q: b.emit(ew.Tanh, x),
    "relu": lambda b, x, p, q: b.emit(nn.Relu, x),
    "affine": lambda b, x, p, q: x * _or(p, 1.0) + _or(q, 0.0),
    "leakyrelu": lambda b, x, p, q: b.emit(nn.LeakyRelu, x, alpha=_or(p, 0.01)),
    "thresholdedrelu": lambda b, x, p, q: b.select(
        b.emit(ew.Greater, x, b.like(_or(p, 1.0), x)), x, 0.0
    ),
    "scaledtanh": lambda b, x, p, q: b.emit(ew.Tanh, x * _or(q, 1.0)) * _or(p, 1.0),
    "hardsigmoid": lambda b, x, p, q: hard_sigmoid(b, x, _or(p, 0.2), _or(q, 0.5)),
    "elu": lambda b, x, p, q: b.select(b.less(x, 0), (b.emit(ew.Exp, x) - 1) * _or(p, 1.0), x),
    "softsign": lambda b, x, p, q: x / (b.emit(ew.Abs, x) + 1),
    "softplus": lambda b, x, p, q: softplus(b, x),
}


@dataclass
class _Cell:
    """One direction: weights, states, and everything unusual."""

    kind: str
    x: Val  # [T, B, I]
    w: Val
    r: Val
    bias: Val | None  # [2 * G * H]
    lengths: Val | None
    h: Val
    c: Val | None
    peephole: Val | None
    functions: list[Callable[[Val], Val]]
    names: tuple[str, ...]
    clip: float
    reverse: bool
    linear: bool
    couple: bool

    @property
    def ordinary(self) -> bool:
        """Whether one op does it."""
        usual = self.names == _DEFAULTS[self.kind] or (
            self.kind == "RNN" and self.names[0] in ("tanh", "relu", "sigmoid")
        )
        plain = self.peephole is None and not self.clip and not self.couple
        return usual and plain and self.lengths is None


@imports("LSTM", "GRU", "RNN")
def recurrent(b: Builder, n: Node) -> list[Val]:
    kind = n.op_type
    batch_first = bool(n.int("layout"))
    x = b.swap(n[0], 0, 1) if batch_first else n[0]
    if x.rank != 3 or n[1].rank != 3 or n[2].rank != 3:
        raise ShapeError(f"x is {x.type}, w {n[1].type}, r {n[2].type}", n.loc)
    direction = n.str("direction", "forward")
    sides = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in sides or n[1].shape[0] != len(sides[direction]):
        raise InputError(f"direction {direction!r} with w {n[1].type}", n.loc)
    ys: list[Val] = []
    hs: list[Val] = []
    cs: list[Val] = []
    for d, reverse in enumerate(sides[direction]):
        cell = _cell(b, n, kind, x, d, reverse, batch_first)
        y, h, c = _one_op(b, cell) if cell.ordinary else _steps(b, cell)
        ys.append(b.unsqueeze(y, 1))
        hs.append(b.unsqueeze(h, 0))
        if c is not None:
            cs.append(b.unsqueeze(c, 0))
    y, h = b.concat(ys, 1), b.concat(hs, 0)  # [T, D, B, H], [D, B, H]
    outs = [y, h, b.concat(cs, 0)] if cs else [y, h]
    if batch_first:
        outs[0] = b.transpose(outs[0], (2, 0, 1, 3))
        outs[1:] = [b.swap(v, 0, 1) for v in outs[1:]]
    return outs


def _cell(
    b: Builder, n: Node, kind: str, x: Val, d: int, reverse: bool, batch_first: bool
) -> _Cell:
    hidden = n[2].shape[-1]
    batch = x.shape[1]

    def side(i: int) -> Val | None:
        return b.pick(n[i], 0, d) if n.has(i) else None

    def state(i: int) -> Val:
        if not n.has(i):
            return b.const(np.broadcast_to(np.zeros((), x.dtype.numpy), (batch, hidden)))
        full = b.swap(n[i], 0, 1) if batch_first else n[i]
        return b.pick(full, 0, d)

    per = len(_DEFAULTS[kind])
    given = [s.lower() for s in n.strs("activations")]
    names = tuple(given[d * per : d * per + per]) or _DEFAULTS[kind]
    lengths = n.get(4)
    if lengths is not None and lengths.const is not None and lengths.pure:
        lengths = None if (lengths.const == x.shape[0]).all() else lengths
    return _Cell(
        kind=kind,
        x=x,
        w=b.pick(n[1], 0, d),
        r=b.pick(n[2], 0, d),
        bias=side(3),
        lengths=lengths,
        h=state(5),
        c=state(6) if kind == "LSTM" else None,
        peephole=side(7) if kind == "LSTM" else None,
        functions=_functions(b, n, names, d * per),
        names=names,
        clip=n.float("clip"),
        reverse=reverse,
        linear=bool(n.int("linear_before_reset")),
        couple=bool(n.int("input_forget")),
    )


_USES_ALPHA = {
    "affine",
    "leakyrelu",
    "thresholdedrelu",
    "scaledtanh",
    "hardsigmoid",
    "elu",
}
_USES_BETA = {"affine", "scaledtanh", "hardsigmoid"}


def _functions(b: Builder, n: Node, names: Sequence[str], first: int) -> list[Callable[[Val], Val]]:
    """Activations with their parameters, which the lists give in order of use."""
    alphas, betas = list(n.floats("activation_alpha")), list(n.floats("activation_beta"))
    given = [s.lower() for s in n.strs("activations")]
    used_a = sum(s in _USES_ALPHA for s in given[:first])
    used_b = sum(s in _USES_BETA for s in given[:first])
    out: list[Callable[[Val], Val]] = []
    for name in names:
        if name not in _ACTIVATIONS:
            raise InputError(f"no activation is called {name!r}", n.loc)
        alpha = beta = None
        if name in _USES_ALPHA and used_a < len(alphas):
            alpha, used_a = alphas[used_a], used_a + 1
        if name in _USES_BETA and used_b < len(betas):
            beta, used_b = betas[used_b], used_b + 1
        out.append(_bound(b, _ACTIVATIONS[name], alpha, beta))
    return out


def _bound(
    b: Builder, fn: Activation, alpha: float | None, beta: float | None
) -> Callable[[Val], Val]:
    return lambda x: fn(b, x, alpha, beta)


def _summed(b: Builder, bias: Val | None) -> Val | None:
    if bias is None:
        return None
    half = bias.shape[0] // 2
    return b.slice(bias, 0, 0, half) + b.slice(bias, 0, half, half)


def _one_op(b: Builder, cell: _Cell) -> tuple[Val, Val, Val | None]:
    if cell.kind == "LSTM":
        return b.emit(
            nn.Lstm,
            cell.x,
            cell.w,
            cell.r,
            _summed(b, cell.bias),
            cell.h,
            cell.c,
            reverse=cell.reverse,
        )
    if cell.kind == "GRU":
        y, h = b.emit(
            nn.Gru,
            cell.x,
            cell.w,
            cell.r,
            cell.bias,
            cell.h,
            reverse=cell.reverse,
            linear_before_reset=cell.linear,
        )
        return y, h, None
    y, h = b.emit(
        nn.Rnn,
        cell.x,
        cell.w,
        cell.r,
        _summed(b, cell.bias),
        cell.h,
        reverse=cell.reverse,
        activation=cell.names[0],
    )
    return y, h, None


def _steps(b: Builder, cell: _Cell) -> tuple[Val, Val, Val | None]:
    """Step by step: input products first, then the recurrence over a buffer of outputs."""
    x = cell.x
    if cell.reverse:
        x = b.flip(x, 0) if cell.lengths is None else reverse_steps(b, x, cell.lengths, 0)
    trip, batch = x.shape[0], x.shape[1]
    hidden = cell.h.shape[1]
    base = b.matmul(x, b.swap(cell.w, 0, 1))
    bias_r: Val | None = None
    if cell.bias is not None:
        half = cell.bias.shape[0] // 2
        base = base + b.slice(cell.bias, 0, 0, half)
        bias_r = b.slice(cell.bias, 0, half, half)
    zero = np.broadcast_to(np.zeros((), x.dtype.numpy), (trip, batch, hidden))
    carried = [b.const(zero), cell.h, *([] if cell.c is None else [cell.c])]

    def step(i: Val, values: list[Val]) -> tuple[Val | None, list[Val]]:
        y, h = values[0], values[1]
        now = b.emit(tensor.DynamicSlice, base, i, axis=0, size=1)
        gates = b.reshape(now, now.shape[1:])
        state = values[2] if cell.kind == "LSTM" else None
        new, memory = _cell_step(b, cell, gates, h, state, bias_r)
        shown = new
        if cell.lengths is not None:
            alive = b.unsqueeze(b.less(b.reshape(i, (1,)), b.cast(cell.lengths, i32)), 1)
            shown = b.select(alive, new, 0.0)
            new = b.select(alive, new, h)
            if memory is not None and state is not None:
                memory = b.select(alive, memory, state)
        y = b.emit(tensor.DynamicUpdate, y, b.unsqueeze(shown, 0), i, axis=0)
        return None, [y, new, *([] if memory is None else [memory])]

    y, h, *rest = counted(b, trip, carried, step, _OP_SIZE)
    if cell.reverse:
        y = b.flip(y, 0) if cell.lengths is None else reverse_steps(b, y, cell.lengths, 0)
    return y, h, rest[0] if rest else None


def _cell_step(
    b: Builder, cell: _Cell, gates: Val, h: Val, state: Val | None, bias_r: Val | None
) -> tuple[Val, Val | None]:
    if cell.kind == "GRU":
        return _gru_step(b, cell, gates, h, bias_r), None
    total = gates + b.matmul(h, b.swap(cell.r, 0, 1))
    total = total if bias_r is None else total + bias_r
    if cell.kind == "RNN":
        return cell.functions[0](_clip(b, cell, total)), None
    assert state is not None
    return _lstm_step(b, cell, total, state)


def _clip(b: Builder, cell: _Cell, x: Val) -> Val:
    return b.minimum(b.maximum(x, -cell.clip), cell.clip) if cell.clip else x


def _lstm_step(b: Builder, cell: _Cell, total: Val, state: Val) -> tuple[Val, Val]:
    size = cell.h.shape[1]
    i, o, f, c = b.split(total, [size] * 4, 1)
    p: list[Val | None] = [None] * 3
    if cell.peephole is not None:
        p = list(b.split(cell.peephole, [size] * 3, 0))
    i = i if p[0] is None else i + p[0] * state
    f = f if p[2] is None else f + p[2] * state
    gate, squash, show = cell.functions
    i = gate(_clip(b, cell, i))
    f = 1.0 - i if cell.couple else gate(_clip(b, cell, f))
    memory = f * state + i * squash(_clip(b, cell, c))
    o = o if p[1] is None else o + p[1] * memory
    return gate(_clip(b, cell, o)) * show(memory), memory


def _gru_step(b: Builder, cell: _Cell, gates: Val, h: Val, bias_r: Val | None) -> Val:
    size = cell.h.shape[1]
    z, r, n = b.split(gates, [size] * 3, 1)
    wz, wr, wn = b.split(cell.r, [size] * 3, 0)
    biases = [None] * 3 if bias_r is None else b.split(bias_r, [size] * 3, 0)

    def recur(state: Val, w: Val, bias: Val | None) -> Val:
        out = b.matmul(state, b.swap(w, 0, 1))
        return out if bias is None else out + bias

    gate, squash = cell.functions
    z = gate(_clip(b, cell, z + recur(h, wz, biases[0])))
    r = gate(_clip(b, cell, r + recur(h, wr, biases[1])))
    inner = r * recur(h, wn, biases[2]) if cell.linear else recur(r * h, wn, biases[2])
    n = squash(_clip(b, cell, n + inner))
    return (1.0 - z) * n + z * h
