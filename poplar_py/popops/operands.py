"""What element-wise operations take beside tensors: numbers, and expressions as objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from poplar_py.diagnostics import TypeMismatch
from poplar_py.poplar.faults import fail
from poplar_py.poplar.tensor import Tensor
from poplar_py.popops import expr as expressions

__all__ = ["Expression", "Value", "plain"]

Expression = str | expressions.Any
Value = Any
"""A tensor, or a number that takes the type of the tensors it meets."""

_TENSOR = re.compile(r"\$(\d+)")


def plain(expr: Expression, values: Sequence[Value]) -> tuple[str, list[Tensor]]:
    """The expression as text over tensors alone: numbers among the values become constants.

    Raises TypeMismatch for a value that is neither a tensor nor a number.
    """
    text = expr if isinstance(expr, str) else str(expr)
    if all(isinstance(v, Tensor) for v in values):
        return text, list(values)
    tensors: list[Tensor] = []
    names: list[str] = []
    for value in values:
        if isinstance(value, Tensor):
            names.append(f"${len(tensors)}")
            tensors.append(value)
        else:
            names.append(_constant(value))
    if not tensors:
        fail(TypeMismatch, "an operation on numbers alone", remedy="one operand is a tensor")

    def named(match: re.Match[str]) -> str:
        at = int(match[1])
        return names[at] if at < len(names) else match[0]

    return _TENSOR.sub(named, text), tensors


def _constant(value: Any) -> str:
    if isinstance(cast("object", value), np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        what = type(value).__name__
        fail(TypeMismatch, f"an operand is {what}", remedy="give a tensor or a number")
    return expressions.Const(value).text
