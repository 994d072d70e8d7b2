"""Gradients of LSTM, GRU and simple RNN with respect to everything they take.

The forward steps run again and keep their states and products (Poplar's full recomputation). What
the gradient of a step is multiplied by is made for all steps at once; a loop from the last step to
the first then needs one product a step, and those for the weights run over all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar import concat, program
from poplar_py.poplar.faults import fail
from poplar_py.poplin import mat_mul
from poplar_py.popnn.recurrent import gru_step, lstm_step, rnn_step
from poplar_py.popnn.steps import Cell, Operand, Step, hidden_size, input_gates, run_steps
from poplar_py.popops.reduction import reduce
from poplar_py.types import f32, f64

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["RecurrentGradients", "gru_gradients", "lstm_gradients", "rnn_gradients"]

SLOPES = {
    "tanh": "sub(c(1),mul($0,$0))",
    "sigmoid": "mul($0,sub(c(1),$0))",
    "relu": "select(gt($0,c(0)),c(1),c(0))",
}
"""Derivative of an RNN's activation from its result."""
Stepped = tuple[list["Tensor"], list["Tensor"]]


@dataclass(frozen=True)
class RecurrentGradients:
    """Gradients of a layer's operands, each of the operand's shape; bias and c0 where it has
    them."""

    x: Tensor
    w: Tensor
    r: Tensor
    bias: Tensor | None
    h0: Tensor
    c0: Tensor | None = None


@dataclass(frozen=True)
class _Layer:
    """What all three share: operands, program and direction."""

    graph: Graph
    x: Tensor
    w: Operand
    r: Operand
    bias: Tensor | None
    h0: Tensor
    prog: program.Sequence
    name: str
    reverse: bool

    def gates(self, bias: Tensor | None) -> Tensor:
        return input_gates(self.graph, self.x, self.w, bias, self.prog, self.name)

    def cell(self, second: Tensor | None = None) -> Cell:
        return Cell.of(self.graph, self.x, self.r, self.name, second)

    def before(self, states: Tensor, first: Tensor) -> Tensor:
        """The state [T, B, H] that each step started from."""
        if self.reverse:
            return concat([states.slice(1, states.shape[0], 0), first.expand((0,))], 0)
        return concat([first.expand((0,)), states.slice(0, states.shape[0] - 1, 0)], 0)

    def last(self, like: Tensor, given: Tensor | None) -> Tensor:
        """The gradient of a last state: what is given, or zeros."""
        if given is None:
            return self.graph.add_constant(like.dtype, like.shape, 0, f"{self.name}/none", "linear")
        if given.shape != like.shape:
            fail(ShapeError, f"a gradient {list(given.shape)} of a last state {list(like.shape)}")
        return given

    def back(self, given: Tensor, states: Sequence[Tensor], step: Step) -> Stepped:
        """`step` from the last element of the forward direction to its first."""
        turned, label = not self.reverse, f"{self.name}/back"
        return run_steps(self.graph, given, states, step, turned, self.prog, label)

    def sum(self, gates: Tensor, label: str) -> Tensor:
        """Over time and batch, [G]; in f32 at least."""
        acc = f64 if gates.dtype is f64 else f32
        total = reduce(self.graph, gates, (0, 1), "sum", self.prog, f"{self.name}/{label}", acc)
        return self.cell().map(f"cast($0,{gates.dtype.name})", [total], self.prog, label)

    def product(self, gates: Tensor, states: Tensor, label: str) -> Tensor:
        """gates [T, B, G] transposed times states [T, B, K], over time and batch: [G, K]."""
        turned = _rows(gates).dim_shuffle((1, 0))
        return mat_mul(self.graph, turned, _rows(states), self.prog, f"{self.name}/{label}")

    def of_input(self, gates: Tensor) -> Tensor:
        out = mat_mul(self.graph, _rows(gates), self.w, self.prog, f"{self.name}/of_input")
        return out.reshape(self.x.shape)

    def check(self, y_gradient: Tensor) -> None:
        shape = (*self.x.shape[:2], hidden_size(self.r))
        if tuple(y_gradient.shape) != shape:
            fail(ShapeError, f"y_gradient {list(y_gradient.shape)}; the layer gives {list(shape)}")


def _rows(t: Tensor) -> Tensor:
    """[T, B, K] as [T B, K]."""
    return t.reshape((t.shape[0] * t.shape[1], t.shape[2]))


# ---------------------------------------------------------------------- LSTM
def lstm_gradients(
    graph: Graph,
    x: Tensor,
    w: Operand,
    r: Operand,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    y_gradient: Tensor,
    prog: program.Sequence,
    name: str = "lstm_gradients",
    *,
    h_gradient: Tensor | None = None,
    c_gradient: Tensor | None = None,
    reverse: bool = False,
) -> RecurrentGradients:
    """Gradients of `lstm` from those of y [T, B, H] and, where given, of its last h and c [B, H].

    Raises ShapeError.
    """
    layer = _Layer(graph, x, w, r, bias, h0, prog, name, reverse)
    layer.check(y_gradient)
    cell, gates = layer.cell(), layer.gates(bias)
    step = partial(lstm_step, cell)
    (h, c, back), _ = run_steps(graph, gates, (h0, c0), step, reverse, prog, f"{name}/again")
    factors = _lstm_factors(cell, gates, back, c, layer.before(c, c0), prog)
    ends = (layer.last(h0, h_gradient), layer.last(c0, c_gradient))
    given = concat([y_gradient, *factors], 2)
    (deltas,), (of_h, of_c) = layer.back(given, ends, partial(_lstm_back, cell, r))
    return RecurrentGradients(
        layer.of_input(deltas),
        layer.product(deltas, x, "of_w"),
        layer.product(deltas, layer.before(h, h0), "of_r"),
        None if bias is None else layer.sum(deltas, "of_bias"),
        of_h,
        of_c,
    )


def _lstm_factors(
    cell: Cell, gates: Tensor, back: Tensor, c: Tensor, before: Tensor, prog: program.Sequence
) -> list[Tensor]:
    """What the gradients of h and c are multiplied by, [T, B, H] each: h's for c; those of the
    gates i, o, f, c; c's for the c before."""
    pairs = [[cell.part(gates, k), cell.part(back, k)] for k in range(4)]
    i, o, f = (cell.map("sigmoid(add($0,$1))", pairs[k], prog, f"gate{k}") for k in (0, 1, 2))
    g = cell.map("tanh(add($0,$1))", pairs[3], prog, "gate3")
    t = cell.map("tanh($0)", [c], prog, "tanh")
    times = "mul($1,mul($0,sub(c(1),$0)))"
    slope = "mul($0,sub(c(1),mul($1,$1)))"
    return [
        cell.map(slope, [o, t], prog, "of_c"),
        cell.map(times, [i, g], prog, "of_i"),
        cell.map(times, [o, t], prog, "of_o"),
        cell.map(times, [f, before], prog, "of_f"),
        cell.map(slope, [i, g], prog, "of_g"),
        f,
    ]


def _lstm_back(
    cell: Cell, r: Operand, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> Stepped:
    y, of_c, i, o, f, g, keep = (cell.part(now, k) for k in range(7))
    h = cell.map("add($0,$1)", [y, states[0]], body, "h")
    c = cell.map("add($0,mul($1,$2))", [states[1], h, of_c], body, "c")
    parts = concat([i, o, f, g], 1)
    deltas = cell.map("mul($0,$1)", [concat([c, h, c, c], 1), parts], body, "deltas")
    before = cell.map("mul($0,$1)", [c, keep], body, "before")
    return [cell.product(deltas, r, body, "recurrent"), before], [deltas]


# ---------------------------------------------------------------------- GRU
def gru_gradients(
    graph: Graph,
    x: Tensor,
    w: Operand,
    r: Operand,
    bias: Tensor | None,
    h0: Tensor,
    y_gradient: Tensor,
    prog: program.Sequence,
    name: str = "gru_gradients",
    *,
    h_gradient: Tensor | None = None,
    reverse: bool = False,
    linear_before_reset: bool = False,
) -> RecurrentGradients:
    """Gradients of `gru` from those of y [T, B, H] and, where given, of its last h [B, H].

    Raises ShapeError.
    """
    layer = _Layer(graph, x, w, r, bias, h0, prog, name, reverse)
    layer.check(y_gradient)
    half = 3 * hidden_size(r)
    first, second = (
        None if bias is None else bias.slice(k * half, (k + 1) * half, 0) for k in (0, 1)
    )
    cell, gates = layer.cell(second), layer.gates(first)
    step = partial(gru_step, cell, linear_before_reset)
    (h, *products), _ = run_steps(graph, gates, (h0,), step, reverse, prog, f"{name}/again")
    before = layer.before(h, h0)
    ends = (layer.last(h0, h_gradient),)
    if linear_before_reset:
        factors = _gru_factors(cell, gates, products[0], before, prog)
        given = concat([y_gradient, *factors], 2)
        (found,), (of_h,) = layer.back(given, ends, partial(_gru_back, cell, r))
        deltas = concat([cell.part(found, 0, 2), cell.part(found, 3)], 2)
        recurrent = cell.part(found, 0, 3)
        of_r = layer.product(recurrent, before, "of_r")
    else:
        *factors, reset = _gru_state_factors(cell, gates, concat(products, 2), before, prog)
        given = concat([y_gradient, *factors, reset], 2)
        (deltas,), (of_h,) = layer.back(given, ends, partial(_gru_state_back, cell, r))
        recurrent = deltas
        gated = cell.map("mul($0,$1)", [reset, before], prog, "gated")
        parts = (cell.part(deltas, 0, 2), before), (cell.part(deltas, 2), gated)
        of_r = concat([layer.product(*p, f"of_r{i}") for i, p in enumerate(parts)], 0)
    sums = [] if bias is None else [layer.sum(deltas, "of_bias"), layer.sum(recurrent, "of_second")]
    return RecurrentGradients(
        layer.of_input(deltas),
        layer.product(deltas, x, "of_w"),
        of_r,
        concat(sums, 0) if sums else None,
        of_h,
    )


def _gru_gates(
    cell: Cell, gates: Tensor, back: Tensor, prog: program.Sequence
) -> tuple[Tensor, Tensor, Tensor]:
    """z, r and the product of the new values with its bias, over all steps."""
    found: list[Tensor] = []
    for k in (0, 1):
        held = [cell.part(gates, k), cell.part(back, k)]
        text = f"sigmoid({cell.biased('add($0,$1)', k, held)})"
        found.append(cell.map(text, held, prog, f"gate{k}"))
    held = [cell.part(back, 2)]
    text = cell.biased("$0", 2, held)
    inner = held[0] if cell.second is None else cell.map(text, held, prog, "inner")
    return found[0], found[1], inner


def _gru_shared(
    cell: Cell, z: Tensor, n: Tensor, before: Tensor, prog: program.Sequence
) -> tuple[Tensor, Tensor]:
    """Factors of the gates z and h from the gradient of the new state."""
    of_z = cell.map("mul(sub($1,$2),mul($0,sub(c(1),$0)))", [z, before, n], prog, "of_z")
    return of_z, cell.map("mul(sub(c(1),$0),sub(c(1),mul($1,$1)))", [z, n], prog, "of_n")


def _gru_factors(
    cell: Cell, gates: Tensor, back: Tensor, before: Tensor, prog: program.Sequence
) -> list[Tensor]:
    """Of z, r, the product of the new values, their input; and z."""
    z, r, inner = _gru_gates(cell, gates, back, prog)
    n = cell.map("tanh(add($0,mul($1,$2)))", [cell.part(gates, 2), r, inner], prog, "new")
    of_z, of_n = _gru_shared(cell, z, n, before, prog)
    of_r = cell.map("mul(mul($0,$1),mul($2,sub(c(1),$2)))", [of_n, inner, r], prog, "of_r")
    return [of_z, of_r, cell.map("mul($0,$1)", [of_n, r], prog, "of_inner"), of_n, z]


def _gru_back(
    cell: Cell, r: Operand, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> Stepped:
    h = cell.map("add($0,$1)", [cell.part(now, 0), states[0]], body, "h")
    wide = concat([h] * 4, 1)
    deltas = cell.map("mul($0,$1)", [wide, cell.part(now, 1, 4)], body, "deltas")
    back = cell.product(cell.part(deltas, 0, 3), r, body, "recurrent")
    return [cell.map("add(mul($0,$1),$2)", [h, cell.part(now, 5), back], body, "next")], [deltas]


def _gru_state_factors(
    cell: Cell, gates: Tensor, back: Tensor, before: Tensor, prog: program.Sequence
) -> list[Tensor]:
    """Of z; of r from the gradient of the gated state; of the new values' input; z and r."""
    z, r, inner = _gru_gates(cell, gates, back, prog)
    n = cell.map("tanh(add($0,$1))", [cell.part(gates, 2), inner], prog, "new")
    of_z, of_n = _gru_shared(cell, z, n, before, prog)
    of_r = cell.map("mul($0,mul($1,sub(c(1),$1)))", [before, r], prog, "of_r")
    return [of_z, of_r, of_n, z, r]


def _gru_state_back(
    cell: Cell, r: Operand, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> Stepped:
    y, of_z, of_r, of_n, z, reset = (cell.part(now, k) for k in range(6))
    h = cell.map("add($0,$1)", [y, states[0]], body, "h")
    new = cell.map("mul($0,$1)", [h, of_n], body, "new")
    size = cell.hidden
    gated = cell.product(new, r[2 * size : 3 * size], body, "gated")
    both = (concat([h, gated], 1), concat([of_z, of_r], 1))
    outer = cell.map("mul($0,$1)", both, body, "outer")
    back = cell.product(outer, r[: 2 * size], body, "recurrent")
    text = "add(add(mul($0,$1),mul($2,$3)),$4)"
    state = cell.map(text, [h, z, gated, reset, back], body, "next")
    return [state], [concat([outer, new], 1)]


# ---------------------------------------------------------------------- RNN
def rnn_gradients(
    graph: Graph,
    x: Tensor,
    w: Operand,
    r: Operand,
    bias: Tensor | None,
    h0: Tensor,
    y_gradient: Tensor,
    prog: program.Sequence,
    name: str = "rnn_gradients",
    *,
    h_gradient: Tensor | None = None,
    reverse: bool = False,
    activation: str = "tanh",
) -> RecurrentGradients:
    """Gradients of `rnn` from those of y [T, B, H] and, where given, of its last h [B, H].

    Raises OptionError or ShapeError.
    """
    if activation not in SLOPES:
        fail(
            OptionError,
            f"there is no gradient of {activation!r}",
            remedy=f"use one of {', '.join(SLOPES)}",
        )
    layer = _Layer(graph, x, w, r, bias, h0, prog, name, reverse)
    layer.check(y_gradient)
    cell, gates = layer.cell(), layer.gates(bias)
    step = partial(rnn_step, cell, activation)
    (h,), _ = run_steps(graph, gates, (h0,), step, reverse, prog, f"{name}/again")
    slope = cell.map(SLOPES[activation], [h], prog, "slope")
    given = concat([y_gradient, slope], 2)
    ends = (layer.last(h0, h_gradient),)
    (deltas,), (of_h,) = layer.back(given, ends, partial(_rnn_back, cell, r))
    return RecurrentGradients(
        layer.of_input(deltas),
        layer.product(deltas, x, "of_w"),
        layer.product(deltas, layer.before(h, h0), "of_r"),
        None if bias is None else layer.sum(deltas, "of_bias"),
        of_h,
    )


def _rnn_back(
    cell: Cell, r: Operand, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> Stepped:
    parts = [cell.part(now, 0), states[0], cell.part(now, 1)]
    deltas = cell.map("mul(add($0,$1),$2)", parts, body, "deltas")
    return [cell.product(deltas, r, body, "recurrent")], [deltas]
