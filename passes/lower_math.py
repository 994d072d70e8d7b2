"""Lowering rules of math.*: every op is one expression over tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poplar_py import popops
from poplar_py.codelets import expr as expressions
from poplar_py.ir import Op, Value
from poplar_py.ops import elementwise as ops
from poplar_py.passes.lower_context import LowerContext, rule
from poplar_py.passes.lower_products import fuse_product
from poplar_py.types import DType

__all__ = ["lower_expression"]

UNARY = (
    *("abs", "neg", "sign", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf"),
    *("sigmoid", "floor", "ceil", "round", "not", "bitwise_not", "is_nan"),
)
BINARY = (
    *("add", "sub", "mul", "div", "pow", "min", "max", "and", "or", "xor"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"),
    *("equal", "less", "less_equal", "greater", "greater_equal"),
)


def lower_expression(
    ctx: LowerContext, op: Op, text: str, operands: Sequence[Value], dtype: DType
) -> None:
    """Bind op's result to an expression over its operands; small constants become literals."""
    result = op.results[0]
    arrays = [ctx.constant_array(v) for v in operands]
    if all(a is not None for a in arrays):
        known = [a for a in arrays if a is not None]
        ctx.set_array(result, _evaluate(text, known, dtype, result.type.static_shape))
        return
    scalars = [None if a is None else ctx.scalar(v) for a, v in zip(arrays, operands, strict=True)]
    keep = [i for i, s in enumerate(scalars) if s is None or not _literal_ok(scalars[i])]
    shape = result.type.static_shape
    text = _substitute(text, scalars, keep)
    if fuse_product(ctx, op, text, [operands[i] for i in keep], dtype):
        return
    tensors = [ctx.tensor(operands[i]) for i in keep]
    out = popops.map(ctx.graph, text, tensors, ctx.prog, ctx.name(op), dtype)
    ctx.set(result, out.broadcast_to(shape) if tuple(out.shape) != shape else out)


def _literal_ok(number: object) -> bool:
    return bool(np.isfinite(float(number)))  # type: ignore[arg-type]


def _evaluate(
    text: str, arrays: Sequence[np.ndarray], dtype: DType, shape: tuple[int, ...]
) -> np.ndarray:
    out = np.asarray(expressions.evaluate(text, arrays)).astype(dtype.numpy, copy=False)
    return np.broadcast_to(out, shape)


def _substitute(text: str, scalars: Sequence[object], keep: Sequence[int]) -> str:
    """Operand numbers changed to those of the kept tensors, scalars written as literals."""
    place = {i: k for k, i in enumerate(keep)}
    parts = text.split("$")
    out = parts[0]
    for part in parts[1:]:
        digits = len(part) - len(part.lstrip("0123456789"))
        index = int(part[:digits])
        out += (f"${place[index]}" if index in place else literal(scalars[index])) + part[digits:]
    return out


def literal(number: object) -> str:
    """A NumPy scalar as a typed constant of the expression language."""
    return expressions.constant(number)


def _unary(name: str) -> None:
    @rule(f"math.{name}")
    def lower(ctx: LowerContext, op: ops.Unary) -> None:
        lower_expression(ctx, op, f"{name}($0)", (op.x,), op.result.dtype)


def _binary(name: str) -> None:
    @rule(f"math.{name}")
    def lower(ctx: LowerContext, op: ops.Binary) -> None:
        lower_expression(ctx, op, f"{name}($0,$1)", (op.a, op.b), op.result.dtype)


for _name in UNARY:
    _unary(_name)
for _name in BINARY:
    _binary(_name)


@rule("math.is_inf")
def lower_is_inf(ctx: LowerContext, op: ops.IsInf) -> None:
    both = op.negative and op.positive
    if both:
        text = "is_inf($0)"
    elif op.positive:
        text = "and(is_inf($0),greater($0,c(0)))"
    elif op.negative:
        text = "and(is_inf($0),less($0,c(0)))"
    else:
        text = "and(is_inf($0),not(is_inf($0)))"
    lower_expression(ctx, op, text, (op.x,), op.result.dtype)


@rule("math.mod")
def lower_mod(ctx: LowerContext, op: ops.Mod) -> None:
    name = "fmod" if op.fmod else "mod"
    lower_expression(ctx, op, f"{name}($0,$1)", (op.a, op.b), op.result.dtype)


@rule("math.select")
def lower_select(ctx: LowerContext, op: ops.Select) -> None:
    lower_expression(ctx, op, "select($0,$1,$2)", (op.cond, op.a, op.b), op.result.dtype)


@rule("math.cast")
def lower_cast(ctx: LowerContext, op: ops.Cast) -> None:
    if op.dtype is op.x.dtype:
        array = ctx.constant_array(op.x)
        if array is not None:
            ctx.set_array(op.result, array)
        else:
            ctx.set(op.result, ctx.tensor(op.x))
        return
    lower_expression(ctx, op, f"cast($0,{op.dtype.name})", (op.x,), op.dtype)


@rule("math.map")
def lower_map(ctx: LowerContext, op: ops.Map) -> None:
    lower_expression(ctx, op, op.expr, op.inputs, op.dtype)
