"""A step done for every element of a sequence: what all recurrences share, forward and backward.

Short sequences are unrolled; long ones run as a Repeat whose steps are taken from and written to
tables by a device counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import concat, program
from poplar_py.poplar.faults import fail
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

__all__ = ["Cell", "Operand", "Step", "hidden_size", "input_gates", "run_steps"]

UNROLL = 3
"""Longest sequence that is unrolled."""

Operand = Any
"""A tensor, or an array of a constant, which the products lay out as they want."""
Step = Callable[
    ["Tensor", "Sequence[Tensor]", program.Sequence], "tuple[list[Tensor], list[Tensor]]"
]
"""From an element of the sequence [B, G] and the states: new states, and what is kept of each
step."""


def input_gates(
    graph: Graph, x: Tensor, w: Operand, bias: Tensor | None, prog: program.Sequence, name: str
) -> Tensor:
    """x [T, B, I] @ w.T + bias for all steps: [T, B, G]. Raises ShapeError."""
    if len(x.shape) != 3 or len(w.shape) != 2:
        fail(ShapeError, f"{name}: x {list(x.shape)} is [T, B, I], w {list(w.shape)} [G, I]")
    steps, batch, size = x.shape
    rows = x.reshape((steps * batch, size))
    out = mat_mul(graph, rows, w.transpose(), prog, f"{name}/input")
    if bias is not None:
        out = map_expr(graph, "add($0,$1)", [out, bias], prog, f"{name}/bias", x.dtype)
    return out.reshape((steps, batch, w.shape[0]))


def run_steps(
    graph: Graph,
    given: Tensor,
    states: Sequence[Tensor],
    step: Step,
    reverse: bool,
    prog: program.Sequence,
    name: str,
) -> tuple[list[Tensor], list[Tensor]]:
    """`step` over the time of `given` [T, B, G]: what it keeps [T, B, ..], and the last states.

    Raises ShapeError for a sequence of no steps.
    """
    if not given.shape[0]:
        fail(ShapeError, f"{name}: a sequence of no steps")
    if given.shape[0] <= UNROLL:
        return _unrolled(given, states, step, reverse, prog)
    return _repeated(graph, given, states, step, reverse, prog, name)


def _unrolled(
    given: Tensor, states: Sequence[Tensor], step: Step, reverse: bool, prog: program.Sequence
) -> tuple[list[Tensor], list[Tensor]]:
    count = given.shape[0]
    held = list(states)
    kept: dict[int, list[Tensor]] = {}
    for t in reversed(range(count)) if reverse else range(count):
        held, now = step(given.index(t), held, prog)
        kept[t] = [k.expand((0,)) for k in now]
    rows = zip(*(kept[t] for t in range(count)), strict=True)
    return [concat(list(row), 0) for row in rows], held


def _repeated(
    graph: Graph,
    given: Tensor,
    states: Sequence[Tensor],
    step: Step,
    reverse: bool,
    prog: program.Sequence,
    name: str,
) -> tuple[list[Tensor], list[Tensor]]:
    count, dtype = given.shape[0], given.dtype
    held = [
        graph.add_variable(dtype, s.shape, f"{name}/state{i}", mapping="linear")
        for i, s in enumerate(states)
    ]
    for var, s in zip(held, states, strict=True):
        prog.add(program.Copy(s, var))
    counter = graph.add_variable(i32, (1,), f"{name}/step", mapping=0)
    fill(graph, counter, count - 1 if reverse else 0, prog, f"{name}/first")
    rows = slice_table(graph, given.flatten(1), prog, f"{name}/gates").reshape(given.shape)
    body = program.Sequence()
    now = dynamic_slice(graph, rows, counter, 0, 1, body, f"{name}/slice").index(0)
    new, kept = step(now, held, body)
    for var, s in zip(held, new, strict=True):
        body.add(program.Copy(s, var))
    outs: list[Tensor] = []
    for i, k in enumerate(kept):
        label = f"{name}/all" if i == 0 else f"{name}/all{i}"
        table = create_update_table(graph, dtype, (count, k.numel), 1, label)
        update_table(graph, table, k.reshape((1, k.numel)), counter, body, f"{name}/store")
        outs.append(table.tensor.reshape((count, *k.shape)))
    delta = "sub($0,c(1))" if reverse else "add($0,c(1))"
    map_with_output(graph, delta, [counter], counter, body, f"{name}/next")
    prog.add(program.Repeat(count, body))
    return outs, held


def hidden_size(r: Operand) -> int:
    """H of recurrent weights [gates H, H]. Raises ShapeError for other ranks."""
    if len(r.shape) != 2:
        fail(ShapeError, f"recurrent weights {list(r.shape)}", "give [gates x hidden, hidden]")
    return r.shape[1]


@dataclass(frozen=True)
class Cell:
    """What the steps of a layer share. `turned` are the recurrent weights [H, gates H]; `second`
    is the bias of their products, where it is one of its own."""

    graph: Graph
    name: str
    dtype: DType
    hidden: int
    turned: Operand
    second: Tensor | None = None

    @staticmethod
    def of(graph: Graph, x: Tensor, r: Operand, name: str, second: Tensor | None = None) -> Cell:
        return Cell(graph, name, x.dtype, hidden_size(r), r.transpose(), second)

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
