"""Activations as expressions."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import program
from poplar_py.poplar.faults import fail
from poplar_py.popnn.norm import softmax
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place
from poplar_py.popops.reduction import reduce
from poplar_py.types import sum_type

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = [
    "ACTIVATIONS",
    "NonLinearityType",
    "non_linearity",
    "non_linearity_in_place",
    "non_linearity_input_gradient",
]


class NonLinearityType(StrEnum):
    """An activation; every member is the text that functions here take as well."""

    SIGMOID = "sigmoid"
    HARD_SIGMOID = "hard_sigmoid"
    RELU = "relu"
    TANH = "tanh"
    GELU = "gelu"
    GELU_ERF = "gelu_erf"
    SWISH = "swish"
    SOFTMAX = "softmax"
    SOFTMAX_STABLE = "softmax_stable"
    SOFTMAX_SCALED = "softmax_scaled"


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


_NORMAL = "mul(c(0.3989422804014327),exp(mul(c(-0.5),mul($0,$0))))"
_INNER = "tanh(mul(c(0.7978845608028654),add($0,mul(c(0.044715),mul($0,mul($0,$0))))))"
_SLOPE = "mul(c(0.7978845608028654),add(c(1),mul(c(0.134145),mul($0,$0))))"
GRADIENTS = {
    "relu": "select(gt($0,c(0)),$1,c(0))",
    "sigmoid": "mul($1,mul($0,sub(c(1),$0)))",
    "tanh": "mul($1,sub(c(1),mul($0,$0)))",
    "hard_sigmoid": "select(and(gt($0,c(0)),lt($0,c(1))),mul($1,c(0.2)),c(0))",
    "gelu": (
        f"mul($1,mul(c(0.5),add(add(c(1),{_INNER}),"
        f"mul(mul($0,sub(c(1),mul({_INNER},{_INNER}))),{_SLOPE}))))"
    ),
    "gelu_erf": (
        f"mul($1,add(mul(c(0.5),add(c(1),erf(mul($0,c(0.7071067811865476))))),mul($0,{_NORMAL})))"
    ),
    "swish": "mul($1,mul(sigmoid($0),add(c(1),mul($0,sub(c(1),sigmoid($0))))))",
}
"""Gradient of the argument from $0 and the gradient $1 of the result. $0 is the result, for gelu,
gelu_erf and swish the argument (poplibs, popnn NonLinearity)."""


SCALING = 62000.0
"""What softmax_scaled multiplies by, so that halves keep their precision (poplibs, popnn)."""


def _is_softmax(kind: str) -> bool:
    """Raises OptionError for a softmax that does not exist."""
    if not kind.lower().startswith("softmax"):
        return False
    if kind.lower() not in ("softmax", "softmax_stable", "softmax_scaled"):
        _text(kind)
    return True


def _softmax(graph: Graph, kind: str, x: Tensor, prog: program.Sequence, name: str) -> Tensor:
    """Along the last dim. Softmax is stable here in any case: its largest argument is
    subtracted."""
    axis = len(x.shape) - 1
    if kind.lower() != "softmax_scaled":
        return softmax(graph, x, axis, prog, name)
    name, acc = name or "softmax_scaled", sum_type(x.dtype)
    wide = map_expr(graph, f"cast($0,{acc.name})", [x], prog, f"{name}/wide", acc)
    share = softmax(graph, wide, axis, prog, f"{name}/share")
    text = f"cast(mul($0,c({SCALING})),{x.dtype.name})"
    return map_expr(graph, text, [share], prog, name, x.dtype)


def _text(kind: str) -> str:
    found = ACTIVATIONS.get(kind.lower())
    if found is None:
        names = ", ".join((*ACTIVATIONS, "softmax", "softmax_stable", "softmax_scaled"))
        fail(OptionError, f"there is no activation {kind!r}", remedy=f"use one of {names}")
    return found


def non_linearity(
    graph: Graph, kind: str, x: Tensor, prog: program.Sequence, name: str = ""
) -> Tensor:
    """The activation `kind` of x; softmax is along the last dim. Raises OptionError."""
    if _is_softmax(kind):
        return _softmax(graph, kind, x, prog, name)
    return map_expr(graph, _text(kind), [x], prog, name or kind, x.dtype)


def non_linearity_in_place(
    graph: Graph, kind: str, x: Tensor, prog: program.Sequence, name: str = ""
) -> None:
    """As non_linearity, written over x."""
    if _is_softmax(kind):
        prog.add(program.Copy(_softmax(graph, kind, x, prog, name), x))
        return
    map_in_place(graph, _text(kind), [x], prog, name or kind)


def non_linearity_input_gradient(
    graph: Graph,
    kind: str,
    out: Tensor,
    out_gradient: Tensor,
    prog: program.Sequence,
    name: str = "",
) -> Tensor:
    """The gradient of an activation's argument from that of its result.

    `out` is the result; for gelu, gelu_erf and swish it is the argument. Raises OptionError.
    """
    name = name or f"{kind}_gradient"
    if _is_softmax(kind):
        scale = SCALING if kind.lower() == "softmax_scaled" else 1.0
        return _softmax_gradient(graph, out, out_gradient, scale, prog, name)
    _text(kind)
    parts = [out, out_gradient]
    return map_expr(graph, GRADIENTS[kind.lower()], parts, prog, name, out.dtype)


def _softmax_gradient(
    graph: Graph,
    out: Tensor,
    out_gradient: Tensor,
    scale: float,
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """out (g - sum(g out) / scale) along the last dim, the sum in f32 at least."""
    acc = sum_type(out.dtype)
    text = f"mul(mul(cast($0,{acc.name}),c({1 / scale!r})),cast($1,{acc.name}))"
    product = map_expr(graph, text, [out, out_gradient], prog, f"{name}/product", acc)
    total = reduce(graph, product, (out.rank - 1,), "sum", prog, f"{name}/sum", acc)
    column = total.reshape((*out.shape[:-1], 1))
    text = f"mul(cast($0,{acc.name}),sub(cast($1,{acc.name}),$2))"
    parts = [out, out_gradient, column]
    return map_expr(graph, f"cast({text},{out.dtype.name})", parts, prog, name, out.dtype)
