"""Products that wait for what follows them, so that their vertices apply it.

A matmul or convolution whose result is used once is not lowered at once but kept as `Pending`.
When its user is element-wise (a bias, a residual, an activation, or an expression `fuse` made of
them), the two are lowered together; whoever else asks for the value gets it lowered at that moment,
in the place where the product stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py import poplin
from poplar_py.poplin.epilogue import fold_bias

if TYPE_CHECKING:
    from poplar_py.ir import Op, Value
    from poplar_py.passes.lower_context import LowerContext
    from poplar_py.poplar import Graph, Tensor, program
    from poplar_py.types import DType

__all__ = ["Pending", "fuse_product", "put_off"]

Array = npt.NDArray[Any]
Emit = Callable[["Graph", "program.Sequence", "Array | None", "poplin.Epilogue | None"], "Tensor"]


@dataclass
class Pending:
    """A product not yet lowered: `emit(graph, prog, bias, epilogue)` does it.

    `axis` is the result's channel axis; `biased` says that it has a bias of its own already.
    """

    op: Op
    graph: Graph
    prog: program.Sequence
    emit: Emit
    axis: int
    biased: bool


def put_off(ctx: LowerContext, op: Any, emit: Emit, axis: int, biased: bool) -> None:
    """Bind the op's result: later, with its only user, or now when it has several."""
    if ctx.uses.get(op.result, 0) == 1:
        ctx.pending[op.result] = Pending(op, ctx.graph, ctx.prog, emit, axis, biased)
        return
    ctx.set(op.result, emit(ctx.graph, ctx.prog, None, None))


def fuse_product(
    ctx: LowerContext, op: Op, text: str, operands: Sequence[Value], dtype: DType
) -> bool:
    """Lower an element-wise op together with a pending product among its operands, if possible."""
    result = op.results[0]
    for at, value in enumerate(operands):
        found = ctx.pending.get(value)
        if found is None or value.dtype is not dtype or not dtype.is_float:
            continue
        same = tuple(value.shape) == tuple(result.shape) and found.op.ipu == op.ipu
        same = same and list(operands).count(value) == 1 and found.prog is ctx.prog
        if same and _fuse(ctx, op, text, list(operands), at, found):
            return True
    return False


def _fuse(
    ctx: LowerContext, op: Op, text: str, operands: list[Value], at: int, found: Pending
) -> bool:
    others = [v for i, v in enumerate(operands) if i != at]
    text = _renumber(text, at)
    bias, text = (None, text) if found.biased else _take_bias(ctx, text, others, found)
    if bias is None and not poplin.supports_epilogue(text):
        return False
    value = operands[at]
    del ctx.pending[value]
    tensors = tuple(ctx.tensor(v) for v in others)
    with ctx.whole.location(found.op.loc):
        out = found.emit(found.graph, found.prog, bias, poplin.Epilogue(text, tensors))
    ctx.set(op.results[0], out)
    return True


def _renumber(text: str, at: int) -> str:
    """`$at` becomes `$0`, those before it move up by one."""
    parts = text.split("$")
    out = parts[0]
    for part in parts[1:]:
        digits = len(part) - len(part.lstrip("0123456789"))
        index = int(part[:digits])
        new = 0 if index == at else index + 1 if index < at else index
        out += f"${new}{part[digits:]}"
    return out


def _take_bias(
    ctx: LowerContext, text: str, others: list[Value], found: Pending
) -> tuple[Array | None, str]:
    """The first operand that can be the product's bias, taken out, and the text without it."""
    for k, other in enumerate(others, 1):
        bias = _bias_of(ctx, other, found)
        folded = None if bias is None else fold_bias(text, k)
        if folded is not None:
            del others[k - 1]
            return bias, folded
    return None, text


def _bias_of(ctx: LowerContext, value: Value, found: Pending) -> Array | None:
    """The constant as a bias [channels] of the product, when it varies along that axis alone."""
    array = ctx.constant_array(value)
    shape = found.op.results[0].type.static_shape
    axis = found.axis % len(shape)
    if array is None or array.ndim > len(shape):
        return None
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    wanted = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    if full.shape != wanted:
        return None
    return np.ascontiguousarray(full).reshape(-1)
