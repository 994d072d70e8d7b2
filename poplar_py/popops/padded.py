"""Element-wise work on blocked activations whose last channel block is padded.

A view [N, C, *spatial] with C no multiple of 16 covers only part of its variable. Walking the
whole variable, padding lanes included, keeps long runs and gives a result of the same layout; it
needs every operand in blocked form and an expression that keeps finite numbers finite.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poputil.blocked import LANES, blocked_base, blocks_of

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["blocked_operands", "keeps_finite"]

# fmt: off
FINITE = frozenset(
    (
        "abs", "add", "and", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "c",
        "cast", "ceil", "clamp", "clip", "cos", "equal", "erf", "floor", "gelu", "greater",
        "greater_equal", "hardsigmoid", "hardswish", "is_inf", "is_nan", "less", "less_equal",
        "max", "min", "mul", "neg", "not", "or", "relu", "round", "select", "sigmoid", "sign",
        "silu", "sin", "sub", "tanh", "xor", "eq", "ne", "lt", "le", "gt", "ge", "fma",
        "round_away",
    )
)
# fmt: on
"""Functions with finite results for finite arguments of moderate size."""

_WORD = re.compile(r"[a-z_][a-z_0-9]*(?=\()")
_SAFE_DIV = re.compile(r"div\([^()]*,c\((?!0(?:\.0*)?\))[^()]*\)\)")


def keeps_finite(expr: str) -> bool:
    """Whether padding lanes stay finite under the expression."""
    return all(word in FINITE for word in _WORD.findall(_SAFE_DIV.sub("add($0)", expr)))


def blocked_operands(
    graph: Graph, expr: str, tensors: Sequence[Tensor], shape: tuple[int, ...]
) -> list[Tensor] | None:
    """Every operand as blocks [N, C/16, *spatial, 16] that broadcast together; None when not all
    can be, or nothing is padded."""
    if len(shape) < 3 or shape[1] % LANES == 0 or not keeps_finite(expr):
        return None
    out: list[Tensor] = []
    found = False
    for t in tensors:
        block = _operand(graph, t, shape)
        if block is None:
            return None
        found = found or (t.shape == shape and not t.contains_constant())
        out.append(block)
    return out if found else None


def _operand(graph: Graph, t: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    rank = len(shape)
    view = t.reshape((*([1] * (rank - len(t.shape))), *t.shape))
    if view.shape[1] == 1 and view.shape != shape:
        n, _, *spatial = view.shape
        if shape[1] == 1 and t.numel > 1:
            return None
        return view.reshape((n, 1, *spatial, 1))
    if t.contains_constant():
        return _constant(graph, view)
    return blocked_base(graph, view)


def _constant(graph: Graph, view: Tensor) -> Tensor | None:
    """A small constant with its channels padded by zeros."""
    held = view.variables()
    if len(held) != 1 or held[0].constant is None or held[0].size > 1 << 16:
        return None
    if held[0].replica_index:
        return None
    values = held[0].constant[view.addresses() - held[0].base]
    n, channels, *spatial = values.shape
    pads = [(0, 0)] * values.ndim
    pads[1] = (0, blocks_of(channels) * LANES - channels)
    padded = np.pad(values, pads).reshape((n, blocks_of(channels), LANES, *spatial))
    padded = np.moveaxis(padded, 2, -1)
    mapping = "linear" if prod(padded.shape) > 64 else 0
    return graph.add_constant(view.dtype, padded.shape, padded, f"{held[0].name}/blocks", mapping)
