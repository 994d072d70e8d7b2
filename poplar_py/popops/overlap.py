"""Operands that share elements with what is written.

An operation over its operand (`x += x reversed`) reads elements that other vertices of its compute
set write, which the machine forbids: such an operand is copied first, so that the values are those
from before the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poplar import program
from poplar_py.poputil.layout import fresh

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["apart"]


def apart(
    graph: Graph,
    tensors: Sequence[Tensor],
    out: Tensor,
    prog: program.Sequence,
    name: str,
    by_element: bool = True,
) -> list[Tensor]:
    """The operands, those copied that share elements with `out`.

    `by_element`: each element written depends only on those at its own place, so that an operand
    with the same elements in the same order needs no copy.
    """
    return [_copy(graph, t, prog, name) if _clash(t, out, by_element) else t for t in tensors]


def _clash(t: Tensor, out: Tensor, by_element: bool) -> bool:
    if by_element and t is out:
        return False
    if not _share_variable(t, out) or not t.intersects_with(out):
        return False
    if not by_element:
        return True
    return t.numel != out.numel or not all(map(np.array_equal, t.runs(), out.runs()))


def _share_variable(t: Tensor, out: Tensor) -> bool:
    return not {v.id for v in t.variables()}.isdisjoint(v.id for v in out.variables())


def _copy(graph: Graph, t: Tensor, prog: program.Sequence, name: str) -> Tensor:
    held = fresh(graph, t.dtype, tuple(t.shape), f"{name}/before")
    prog.add(program.Copy(t, held))
    return held
