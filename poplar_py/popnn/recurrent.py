"""LSTM, GRU and simple RNN over a sequence.

The input products of all steps are one matrix product; each step multiplies the state by the
recurrent weights, then one map a gate set makes the new state. Short sequences are unrolled; long
ones run as a Repeat with the step taken from and written to tables by a device counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import concat, program
from poplar_py.poplin import mat_mul
from poplar_py.popops.dynamic import dynamic_slice, slice_table, update_table
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_with_output
from poplar_py.popops.fill import fill
from poplar_py.popops.scattering import create_update_table
from poplar_py.types import i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["gru", "lstm", "rnn"]

UNROLL = 3
"""Longest sequence that is unrolled."""

Operand = Any
"""A tensor, or an array of a constant, which the products lay out as they want."""
Step = Callable[["Tensor", "Sequence[Tensor]", program.Sequence], "list[Tensor]"]


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
    hidden = r.shape[1]
    gates = _inputs(graph, x, w, bias, prog, name)
    turned = r.transpose()

    def step(now: Operand, states: Sequence[Tensor], body: program.Sequence) -> list[Tensor]:
        h, c = states
        back = mat_mul(graph, h, turned, body, f"{name}/recurrent")
        a = [now.slice(k * hidden, (k + 1) * hidden, 1) for k in range(4)]
        b = [back.slice(k * hidden, (k + 1) * hidden, 1) for k in range(4)]
        keep = "mul(sigmoid(add($0,$1)),$2)"
        new = f"add({keep},mul(sigmoid(add($3,$4)),tanh(add($5,$6))))"
        operands = [a[2], b[2], c, a[0], b[0], a[3], b[3]]
        cell = map_expr(graph, new, operands, body, f"{name}/cell", x.dtype)
        text = "mul(sigmoid(add($0,$1)),tanh($2))"
        return [map_expr(graph, text, [a[1], b[1], cell], body, f"{name}/out", x.dtype), cell]

    y, (h, c) = _run(graph, gates, (h0, c0), step, reverse, prog, name)
    return y, h, c


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
    turned = r.transpose()

    def part(t: Operand, k: int, width: int = 1) -> Operand:
        begin, end = k * hidden, (k + width) * hidden
        if isinstance(t, np.ndarray):
            return cast("npt.NDArray[Any]", t)[..., begin:end]
        return t.slice(begin, end, len(t.shape) - 1)

    def plus(text: str, k: int, held: list[Tensor]) -> str:
        if second is None:
            return text
        held.append(part(second, k))
        return f"add({text},${len(held) - 1})"

    def step(now: Operand, states: Sequence[Tensor], body: program.Sequence) -> list[Tensor]:
        h = states[0]
        width = 3 if linear_before_reset else 2
        back = mat_mul(graph, h, part(turned, 0, width=width), body, f"{name}/recurrent")
        held = [part(now, 1), part(back, 1)]
        reset = f"sigmoid({plus('add($0,$1)', 1, held)})"
        if linear_before_reset:
            held.append(part(back, 2))
            inner = plus(f"${len(held) - 1}", 2, held)
            held.append(part(now, 2))
            text = f"tanh(add(${len(held) - 1},mul({reset},{inner})))"
            fresh = map_expr(graph, text, held, body, f"{name}/new", x.dtype)
        else:
            held.append(h)
            gated = map_expr(
                graph, f"mul({reset},${len(held) - 1})", held, body, f"{name}/reset", x.dtype
            )
            again = mat_mul(graph, gated, part(turned, 2), body, f"{name}/candidate")
            held = [part(now, 2), again]
            text = f"tanh({plus('add($0,$1)', 2, held)})"
            fresh = map_expr(graph, text, held, body, f"{name}/new", x.dtype)
        held = [part(now, 0), part(back, 0)]
        gate = f"sigmoid({plus('add($0,$1)', 0, held)})"
        n = len(held)
        held += [fresh, h]
        text = f"add(mul(sub(c(1),{gate}),${n}),mul({gate},${n + 1}))"
        return [map_expr(graph, text, held, body, f"{name}/out", x.dtype)]

    y, (h,) = _run(graph, gates, (h0,), step, reverse, prog, name)
    return y, h


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
    turned = r.transpose()

    def step(now: Operand, states: Sequence[Tensor], body: program.Sequence) -> list[Tensor]:
        back = mat_mul(graph, states[0], turned, body, f"{name}/recurrent")
        text = f"{activation}(add($0,$1))"
        return [map_expr(graph, text, [now, back], body, f"{name}/out", x.dtype)]

    y, (h,) = _run(graph, gates, (h0,), step, reverse, prog, name)
    return y, h
