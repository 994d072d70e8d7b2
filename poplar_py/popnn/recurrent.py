"""LSTM, GRU and simple RNN over a sequence.

The input products of all steps are one matrix product; each step multiplies the state by the
recurrent weights, then one map a gate set makes the new state. Short sequences are unrolled; long
ones run as a Repeat with the step taken from and written to tables by a device counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import concat, program
from poplar_py.poplin import mat_mul
from poplar_py.popops.dynamic import dynamic_slice, slice_table, update_table
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_with_output
from poplar_py.popops.fill import fill
from poplar_py.popops.tables import create_update_table
from poplar_py.types import i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = ["gru", "lstm", "rnn"]

UNROLL = 3
"""Longest sequence that is unrolled."""

Operand = Any
"""A tensor, or an array of a constant, which the products lay out as they want."""
Step = Callable[["Tensor", "Sequence[Tensor]", program.Sequence], "list[Tensor]"]
Candidate = Callable[..., "Tensor"]
"""How a GRU makes its new values: `_new_from_product` or `_new_from_state`."""


def _inputs(
    graph: Graph, x: Tensor, w: Operand, bias: Tensor | None, prog: program.Sequence, name: str
) -> Tensor:
    """x [T, B, I] @ w.T + bias for all steps: [T, B, G]."""
    steps, batch, size = x.shape
    rows = x.reshape((steps * batch, size))
    out = mat_mul(graph, rows, w.transpose(), prog, f"{name}/input")
    if bias is not None:
        out = map_expr(graph, "add($0,$1)", [out, bias], prog, f"{name}/bias", x.dtype)
    return out.reshape((steps, batch, w.shape[0]))


def _run(
    graph: Graph,
    gates: Tensor,
    states: Sequence[Tensor],
    step: Step,
    reverse: bool,
    prog: program.Sequence,
    name: str,
) -> tuple[Tensor, list[Tensor]]:
    """Runs `step` over the time of `gates` [T, B, G]: all first states [T, B, H], last states."""
    count = gates.shape[0]
    if count <= UNROLL:
        return _unrolled(gates, states, step, reverse, prog)
    return _repeated(graph, gates, states, step, reverse, prog, name)


def _unrolled(
    gates: Tensor, states: Sequence[Tensor], step: Step, reverse: bool, prog: program.Sequence
) -> tuple[Tensor, list[Tensor]]:
    count = gates.shape[0]
    held = list(states)
    outs: list[Tensor] = [gates] * count
    for t in reversed(range(count)) if reverse else range(count):
        held = step(gates.index(t), held, prog)
        outs[t] = held[0].expand((0,))
    return concat(outs, 0), held


def _repeated(
    graph: Graph,
    gates: Tensor,
    states: Sequence[Tensor],
    step: Step,
    reverse: bool,
    prog: program.Sequence,
    name: str,
) -> tuple[Tensor, list[Tensor]]:
    count, batch, _ = gates.shape
    hidden = states[0].shape[-1]
    dtype = gates.dtype
    held = [
        graph.add_variable(dtype, s.shape, f"{name}/state{i}", mapping="linear")
        for i, s in enumerate(states)
    ]
    for var, s in zip(held, states, strict=True):
        prog.add(program.Copy(s, var))
    counter = graph.add_variable(i32, (1,), f"{name}/step", mapping=0)
    fill(graph, counter, count - 1 if reverse else 0, prog, f"{name}/first")
    table = create_update_table(graph, dtype, (count, batch * hidden), 1, f"{name}/all")
    held_gates = slice_table(graph, gates.flatten(1), prog, f"{name}/gates")
    held_gates = held_gates.reshape(gates.shape)
    body = program.Sequence()
    now = dynamic_slice(graph, held_gates, counter, 0, 1, body, f"{name}/slice").index(0)
    new = step(now, held, body)
    for var, s in zip(held, new, strict=True):
        body.add(program.Copy(s, var))
    row = new[0].reshape((1, batch * hidden))
    update_table(graph, table, row, counter, body, f"{name}/store")
    delta = "sub($0,c(1))" if reverse else "add($0,c(1))"
    map_with_output(graph, delta, [counter], counter, body, f"{name}/next")
    prog.add(program.Repeat(count, body))
    return table.tensor.reshape((count, batch, hidden)), held


@dataclass(frozen=True)
class _Cell:
    """What the steps of a layer share. `turned` are the recurrent weights [H, gates H]; `second`
    is the bias of their products, where it is one of its own."""

    graph: Graph
    name: str
    dtype: DType
    hidden: int
    turned: Operand
    second: Tensor | None = None

    @staticmethod
    def of(graph: Graph, x: Tensor, r: Operand, name: str, second: Tensor | None = None) -> _Cell:
        return _Cell(graph, name, x.dtype, r.shape[1], r.transpose(), second)

    def part(self, t: Operand, k: int, width: int = 1) -> Operand:
        """Gates k to k + width - 1 of something whose last dim holds all gates."""
        begin, end = k * self.hidden, (k + width) * self.hidden
        if isinstance(t, np.ndarray):
            return cast("npt.NDArray[Any]", t)[..., begin:end]
        return t.slice(begin, end, len(t.shape) - 1)

    def product(self, h: Tensor, w: Operand, body: program.Sequence, label: str) -> Tensor:
        return mat_mul(self.graph, h, w, body, f"{self.name}/{label}")

    def map(self, text: str, held: Sequence[Tensor], body: program.Sequence, label: str) -> Tensor:
        return map_expr(self.graph, text, held, body, f"{self.name}/{label}", self.dtype)

    def biased(self, text: str, k: int, held: list[Tensor]) -> str:
        """`text` plus the second bias of gate k, which joins the operands `held`."""
        if self.second is None:
            return text
        held.append(self.part(self.second, k))
        return f"add({text},${len(held) - 1})"


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
    gates = _inputs(graph, x, w, bias, prog, name)
    cell = _Cell.of(graph, x, r, name)
    y, (h, c) = _run(graph, gates, (h0, c0), partial(_lstm_step, cell), reverse, prog, name)
    return y, h, c


def _lstm_step(
    cell: _Cell, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> list[Tensor]:
    h, c = states
    back = cell.product(h, cell.turned, body, "recurrent")
    a = [cell.part(now, k) for k in range(4)]
    b = [cell.part(back, k) for k in range(4)]
    keep = "mul(sigmoid(add($0,$1)),$2)"
    new = f"add({keep},mul(sigmoid(add($3,$4)),tanh(add($5,$6))))"
    c = cell.map(new, [a[2], b[2], c, a[0], b[0], a[3], b[3]], body, "cell")
    text = "mul(sigmoid(add($0,$1)),tanh($2))"
    return [cell.map(text, [a[1], b[1], c], body, "out"), c]


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
    hidden = r.shape[1]
    first = None if bias is None else bias.slice(0, 3 * hidden, 0)
    second = None if bias is None else bias.slice(3 * hidden, 6 * hidden, 0)
    gates = _inputs(graph, x, w, first, prog, name)
    cell = _Cell.of(graph, x, r, name, second)
    new = _new_from_product if linear_before_reset else _new_from_state
    y, (h,) = _run(graph, gates, (h0,), partial(_gru_step, cell, new), reverse, prog, name)
    return y, h


def _gru_step(
    cell: _Cell, new: Candidate, now: Operand, states: Sequence[Tensor], body: program.Sequence
) -> list[Tensor]:
    """(1 - z) new + z h."""
    h = states[0]
    width = 3 if new is _new_from_product else 2
    back = cell.product(h, cell.part(cell.turned, 0, width), body, "recurrent")
    held = [cell.part(now, 1), cell.part(back, 1)]
    reset = f"sigmoid({cell.biased('add($0,$1)', 1, held)})"
    fresh = new(cell, now, back, h, reset, held, body)
    held = [cell.part(now, 0), cell.part(back, 0)]
    gate = f"sigmoid({cell.biased('add($0,$1)', 0, held)})"
    n = len(held)
    text = f"add(mul(sub(c(1),{gate}),${n}),mul({gate},${n + 1}))"
    return [cell.map(text, [*held, fresh, h], body, "out")]


def _new_from_product(
    cell: _Cell,
    now: Operand,
    back: Tensor,
    h: Tensor,
    reset: str,
    held: list[Tensor],
    body: program.Sequence,
) -> Tensor:
    """tanh(x + reset (h r + bias)): the reset gate scales the product."""
    held.append(cell.part(back, 2))
    inner = cell.biased(f"${len(held) - 1}", 2, held)
    held.append(cell.part(now, 2))
    text = f"tanh(add(${len(held) - 1},mul({reset},{inner})))"
    return cell.map(text, held, body, "new")


def _new_from_state(
    cell: _Cell,
    now: Operand,
    back: Tensor,
    h: Tensor,
    reset: str,
    held: list[Tensor],
    body: program.Sequence,
) -> Tensor:
    """tanh(x + (reset h) r + bias): the reset gate scales the state."""
    held.append(h)
    gated = cell.map(f"mul({reset},${len(held) - 1})", held, body, "reset")
    again = cell.product(gated, cell.part(cell.turned, 2), body, "candidate")
    held = [cell.part(now, 2), again]
    return cell.map(f"tanh({cell.biased('add($0,$1)', 2, held)})", held, body, "new")


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
    gates = _inputs(graph, x, w, bias, prog, name)
    cell = _Cell.of(graph, x, r, name)

    def step(now: Operand, states: Sequence[Tensor], body: program.Sequence) -> list[Tensor]:
        back = cell.product(states[0], cell.turned, body, "recurrent")
        return [cell.map(f"{activation}(add($0,$1))", [now, back], body, "out")]

    y, (h,) = _run(graph, gates, (h0,), step, reverse, prog, name)
    return y, h
