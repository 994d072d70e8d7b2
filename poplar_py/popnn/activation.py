"""Activations as expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import program
from poplar_py.popnn.norm import softmax
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["ACTIVATIONS", "non_linearity", "non_linearity_in_place"]

ACTIVATIONS = {
    "relu": "relu($0)",
    "sigmoid": "sigmoid($0)",
    "tanh": "tanh($0)",
    "hard_sigmoid": "min(max(add(mul($0,c(0.2)),c(0.5)),c(0)),c(1))",
    "gelu": (
        "mul(mul($0,c(0.5)),add(c(1),tanh(mul(c(0.7978845608028654),"
        "add($0,mul(c(0.044715),mul($0,mul($0,$0))))))))"
    ),
    "gelu_erf": "mul(mul($0,c(0.5)),add(c(1),erf(mul($0,c(0.7071067811865476)))))",
    "swish": "mul($0,sigmoid($0))",
}


def _text(kind: str) -> str:
    found = ACTIVATIONS.get(kind.lower())
    if found is None:
        names = ", ".join((*ACTIVATIONS, "softmax"))
        raise OptionError(f"there is no activation {kind!r}", remedy=f"use one of {names}")
    return found


def non_linearity(
    graph: Graph, kind: str, x: Tensor, prog: program.Sequence, name: str = ""
) -> Tensor:
    """The activation `kind` of x; softmax is along the last dim. Raises OptionError."""
    if kind.lower().startswith("softmax"):
        return softmax(graph, x, len(x.shape) - 1, prog, name)
    return map_expr(graph, _text(kind), [x], prog, name or kind, x.dtype)


def non_linearity_in_place(
    graph: Graph, kind: str, x: Tensor, prog: program.Sequence, name: str = ""
) -> None:
    """As non_linearity, written over x."""
    if kind.lower().startswith("softmax"):
        prog.add(program.Copy(softmax(graph, x, len(x.shape) - 1, prog, name), x))
        return
    map_in_place(graph, _text(kind), [x], prog, name or kind)
