"""LSTM, GRU and simple RNN over a sequence, as ONNX describes them.

The input products of all steps are one matrix product; each step multiplies the state by the
recurrent weights, then one map a gate set makes the new state. The gradients
(`recurrent_gradients`) run the same steps and keep what they need of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from poplar_py.poplar import program
from poplar_py.popnn.steps import Cell, Operand, Step, hidden_size, input_gates, run_steps

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["gru", "gru_step", "lstm", "lstm_step", "rnn", "rnn_step"]

Candidate = Callable[..., "tuple[Tensor, list[Tensor]]"]
"""How a GRU makes its new values, and the product it makes for them, if it does."""
Stepped = tuple[list["Tensor"], list["Tensor"]]


def lstm(
    graph: Graph,
    x: Tensor,
    w: Operand,
    r: Operand,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    prog: program.Sequence,
    name: str = "",
    *,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gates i, o, f, c: x [T, B, I], w [4H, I], r [4H, H], bias [4H] -> y [T, B, H], h, c."""
    name = name or "lstm"
    gates = input_gates(graph, x, w, bias, prog, name)
    step = _first(partial(lstm_step, Cell.of(graph, x, r, name)))
    (y,), (h, c) = run_steps(graph, gates, (h0, c0), step, reverse, prog, name)
    return y, h, c


def _first(step: Step) -> Step:
    """The step with nothing kept but the first."""

    def kept(now: Tensor, states: Sequence[Tensor], body: program.Sequence) -> Stepped:
        new, all_kept = step(now, states, body)
        return new, all_kept[:1]

    return kept


def lstm_step(
    cell: Cell, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> Stepped:
    """Keeps h, c and the recurrent product."""
    h, c = states
    back = cell.product(h, cell.turned, body, "recurrent")
    a = [cell.part(now, k) for k in range(4)]
    b = [cell.part(back, k) for k in range(4)]
    keep = "mul(sigmoid(add($0,$1)),$2)"
    new = f"add({keep},mul(sigmoid(add($3,$4)),tanh(add($5,$6))))"
    c = cell.map(new, [a[2], b[2], c, a[0], b[0], a[3], b[3]], body, "cell")
    text = "mul(sigmoid(add($0,$1)),tanh($2))"
    h = cell.map(text, [a[1], b[1], c], body, "out")
    return [h, c], [h, c, back]


def gru(
    graph: Graph,
    x: Tensor,
    w: Operand,
    r: Operand,
    bias: Tensor | None,
    h0: Tensor,
    prog: program.Sequence,
    name: str = "",
    *,
    reverse: bool = False,
    linear_before_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    """Gates z, r, h: x [T, B, I], w [3H, I], r [3H, H], bias [6H] -> y [T, B, H], h [B, H]."""
    name = name or "gru"
    hidden = hidden_size(r)
    first = None if bias is None else bias.slice(0, 3 * hidden, 0)
    second = None if bias is None else bias.slice(3 * hidden, 6 * hidden, 0)
    gates = input_gates(graph, x, w, first, prog, name)
    cell = Cell.of(graph, x, r, name, second)
    step = _first(partial(gru_step, cell, linear_before_reset))
    (y,), (h,) = run_steps(graph, gates, (h0,), step, reverse, prog, name)
    return y, h


def gru_step(
    cell: Cell, linear: bool, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> Stepped:
    """(1 - z) new + z h. Keeps h and the recurrent products of the three gates."""
    h = states[0]
    new: Candidate = _new_from_product if linear else _new_from_state
    width = 3 if linear else 2
    back = cell.product(h, cell.part(cell.turned, 0, width), body, "recurrent")
    held = [cell.part(now, 1), cell.part(back, 1)]
    reset = f"sigmoid({cell.biased('add($0,$1)', 1, held)})"
    fresh, more = new(cell, now, back, h, reset, held, body)
    held = [cell.part(now, 0), cell.part(back, 0)]
    gate = f"sigmoid({cell.biased('add($0,$1)', 0, held)})"
    n = len(held)
    text = f"add(mul(sub(c(1),{gate}),${n}),mul({gate},${n + 1}))"
    out = cell.map(text, [*held, fresh, h], body, "out")
    return [out], [out, back, *more]


def _new_from_product(
    cell: Cell,
    now: Operand,
    back: Tensor,
    h: Tensor,
    reset: str,
    held: list[Tensor],
    body: program.Sequence,
) -> tuple[Tensor, list[Tensor]]:
    """tanh(x + reset (h r + bias)): the reset gate scales the product."""
    held.append(cell.part(back, 2))
    inner = cell.biased(f"${len(held) - 1}", 2, held)
    held.append(cell.part(now, 2))
    text = f"tanh(add(${len(held) - 1},mul({reset},{inner})))"
    return cell.map(text, held, body, "new"), []


def _new_from_state(
    cell: Cell,
    now: Operand,
    back: Tensor,
    h: Tensor,
    reset: str,
    held: list[Tensor],
    body: program.Sequence,
) -> tuple[Tensor, list[Tensor]]:
    """tanh(x + (reset h) r + bias): the reset gate scales the state."""
    held.append(h)
    gated = cell.map(f"mul({reset},${len(held) - 1})", held, body, "reset")
    again = cell.product(gated, cell.part(cell.turned, 2), body, "candidate")
    held = [cell.part(now, 2), again]
    text = f"tanh({cell.biased('add($0,$1)', 2, held)})"
    return cell.map(text, held, body, "new"), [again]


def rnn(
    graph: Graph,
    x: Tensor,
    w: Operand,
    r: Operand,
    bias: Tensor | None,
    h0: Tensor,
    prog: program.Sequence,
    name: str = "",
    *,
    reverse: bool = False,
    activation: str = "tanh",
) -> tuple[Tensor, Tensor]:
    """h = f(x_t @ w.T + h @ r.T + bias): y [T, B, H], last h [B, H]. f: tanh, relu or sigmoid."""
    name = name or "rnn"
    gates = input_gates(graph, x, w, bias, prog, name)
    step = partial(rnn_step, Cell.of(graph, x, r, name), activation)
    (y,), (h,) = run_steps(graph, gates, (h0,), step, reverse, prog, name)
    return y, h


def rnn_step(
    cell: Cell, activation: str, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> Stepped:
    """Keeps h."""
    back = cell.product(states[0], cell.turned, body, "recurrent")
    h = cell.map(f"{activation}(add($0,$1))", [now, back], body, "out")
    return [h], [h]
