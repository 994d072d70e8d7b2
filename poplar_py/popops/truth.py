"""Tests written over their operand, sums of logarithms, and whether a cast keeps a value.

A test in place leaves 1 where it holds and 0 elsewhere, in the operand's own type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.errors import TensorTypeError
from poplar_py.poplar.faults import fail
from poplar_py.popops.arithmetic import BINARY, UNARY
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place, map_with_output
from poplar_py.popops.variants import BinaryInPlace, UnaryInPlace
from poplar_py.types import bool_

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.types import DType

__all__ = [
    "check_accuracy_when_cast",
    "eq_in_place",
    "gt_in_place",
    "gteq_in_place",
    "is_finite_in_place",
    "is_inf_in_place",
    "is_nan_in_place",
    "log_add",
    "log_add_in_place",
    "log_add_with_output",
    "lt_in_place",
    "lteq_in_place",
    "neq_in_place",
]

LOG_ADD = "add(max($0,$1),log1p(exp(select(equal($0,$1),c(0),neg(abs(sub($0,$1)))))))"
"""log(exp(a) + exp(b)) without overflow; equal infinities keep their sign."""


def _unary_truth(kind: str) -> UnaryInPlace:
    def op(graph: Graph, a: Tensor, prog: Sequence, name: str = "") -> None:
        map_in_place(graph, f"cast({UNARY[kind]},{a.dtype.name})", [a], prog, name or kind)

    return op


def _binary_truth(kind: str) -> BinaryInPlace:
    def op(graph: Graph, a: Tensor, b: Tensor, prog: Sequence, name: str = "") -> None:
        map_in_place(graph, f"cast({BINARY[kind]},{a.dtype.name})", [a, b], prog, name or kind)

    return op


is_finite_in_place = _unary_truth("is_finite")
is_inf_in_place = _unary_truth("is_inf")
is_nan_in_place = _unary_truth("is_nan")
eq_in_place = _binary_truth("eq")
gt_in_place = _binary_truth("gt")
gteq_in_place = _binary_truth("gteq")
lt_in_place = _binary_truth("lt")
lteq_in_place = _binary_truth("lteq")
neq_in_place = _binary_truth("neq")


def log_add(graph: Graph, a: Tensor, b: Tensor, prog: Sequence, name: str = "log_add") -> Tensor:
    """log(exp(a) + exp(b)), broadcast as NumPy does; -inf is the logarithm of nothing."""
    return map_expr(graph, LOG_ADD, [a, b], prog, name)


def log_add_in_place(
    graph: Graph, a: Tensor, b: Tensor, prog: Sequence, name: str = "log_add"
) -> None:
    """a = log(exp(a) + exp(b))."""
    map_in_place(graph, LOG_ADD, [a, b], prog, name)


def log_add_with_output(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, prog: Sequence, name: str = "log_add"
) -> None:
    """out = log(exp(a) + exp(b))."""
    map_with_output(graph, LOG_ADD, [a, b], out, prog, name)


def check_accuracy_when_cast(
    graph: Graph,
    x: Tensor,
    dtype: DType,
    tolerance: float,
    prog: Sequence,
    name: str = "check_accuracy",
) -> Tensor:
    """bool, rank 0: whether a scalar survives a cast to `dtype` within a relative `tolerance`.

    ``|cast(x) - x| <= tolerance * |x|``, compared in the type of x; a value that becomes infinite
    does not survive. Raises ShapeError for more than one element, TensorTypeError unless both types
    are floats.
    """
    if x.numel != 1:
        fail(ShapeError, f"the accuracy of {x.numel} elements", remedy="give one element")
    if not (x.dtype.is_float and dtype.is_float):
        fail(TensorTypeError, f"the accuracy of {x.dtype.name} as {dtype.name}")
    back = f"cast(cast($0,{dtype.name}),{x.dtype.name})"
    text = f"less_equal(abs(sub({back},$0)),mul(abs($0),c({float(tolerance)!r})))"
    return map_expr(graph, text, [x.reshape(())], prog, name, bool_)
