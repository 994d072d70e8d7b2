"""Rules of simplify that recognise layer normalisation spelled out in arithmetic.

    %m = reduce sum of x over the last axes / n
    %d = x - %m                                    =>  %y = nn.layer_norm(%x, %scale, %bias)
    %v = reduce sum of %d * %d / n
    %y = %d / sqrt(%v + eps) * %scale + %bias

The one op computes the same formula in fewer steps; only the order of sums differs.
"""

from __future__ import annotations

import math

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.ir.core import Value
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.passes.simplify_rules import Rewriter, constant_of, rule, uniform
from poplar_py.types import broadcast_shapes

__all__ = ["layer_norm_of_quotient", "scale_into_norm"]


@rule(ew.Div)
def layer_norm_of_quotient(op: ew.Div, rw: Rewriter) -> Value | None:
    """d / sqrt(mean(d * d) + eps) with d = x - mean(x)."""
    root = op.b.owner
    return _normalised(op.a, root.x, rw) if isinstance(root, ew.Sqrt) else None


@rule(ew.Mul)
def layer_norm_of_product(op: ew.Mul, rw: Rewriter) -> Value | None:
    """d * (1 / sqrt(mean(d * d) + eps)) with d = x - mean(x)."""
    for d, factor in ((op.a, op.b), (op.b, op.a)):
        inverse = factor.owner
        if isinstance(inverse, ew.Rsqrt):
            return _normalised(d, inverse.x, rw)
        if isinstance(inverse, ew.Reciprocal) and isinstance(inverse.x.owner, ew.Sqrt):
            return _normalised(d, inverse.x.owner.x, rw)
    return None


def _normalised(d: Value, spread: Value, rw: Rewriter) -> Value | None:
    """layer_norm(x) for d = x - mean(x) and spread = mean(d * d) + eps."""
    centred, sum_ = d.owner, spread.owner
    if not isinstance(centred, ew.Sub) or not isinstance(sum_, ew.Add):
        return None
    x = centred.a
    axis = _mean_axis(centred.b, x)
    if axis is None or d.dtype.size < 4:
        return None
    for variance, constant in ((sum_.a, sum_.b), (sum_.b, sum_.a)):
        eps = uniform(constant)
        square = _averaged(variance)
        if eps is None or square is None or not isinstance(square.owner, ew.Mul):
            continue
        if square.owner.a is d and square.owner.b is d and _mean_axis(variance, square) == axis:
            return rw.add(nn.LayerNorm, x, None, None, axis, float(eps))
    return None


def _averaged(mean: Value) -> Value | None:
    """What `mean` is the mean of: a kept sum divided by the number of its terms."""
    quotient = mean.owner
    if not isinstance(quotient, (ew.Div, ew.Mul)):
        return None
    total = quotient.a.owner
    number = uniform(quotient.b)
    if not isinstance(total, tensor.Reduce) or total.kind != "sum" or not total.keep:
        return None
    if number is None or not total.x.type.is_static:
        return None
    count = math.prod(total.x.type.static_shape[a] for a in total.axes)
    wanted = float(count) if isinstance(quotient, ew.Div) else 1.0 / max(count, 1)
    return total.x if np.float32(number) == np.float32(wanted) else None


def _mean_axis(mean: Value, x: Value) -> int | None:
    """The first axis if `mean` is that of x over some axis to the last one."""
    if _averaged(mean) is not x or mean.owner is None:
        return None
    total = mean.owner.operands()[0].owner
    if not isinstance(total, tensor.Reduce) or not total.axes:
        return None
    first = x.rank - len(total.axes)
    return first if total.axes == tuple(range(first, x.rank)) else None


@rule(ew.Mul, ew.Add)
def scale_into_norm(op: ew.Mul | ew.Add, rw: Rewriter) -> Value | None:
    """layer_norm(x) * scale, and layer_norm(x, scale) + bias, as one op."""
    for y, part in ((op.a, op.b), (op.b, op.a)):
        norm = y.owner
        if not isinstance(norm, nn.LayerNorm) or not rw.once(y) or norm.bias is not None:
            continue
        if isinstance(op, ew.Mul) and norm.scale is not None:
            continue
        fitted = _as_part(part, y, norm.axis % y.rank, rw)
        if fitted is None or op.result.type != y.type:
            continue
        scale, bias = (fitted, None) if isinstance(op, ew.Mul) else (norm.scale, fitted)
        return rw.add(nn.LayerNorm, norm.x, scale, bias, norm.axis, norm.eps)
    return None


def _as_part(part: Value, y: Value, axis: int, rw: Rewriter) -> Value | None:
    """`part` as a scale or bias over the normalised axes; a constant may lose leading ones."""
    group = y.shape[axis:]
    array = constant_of(part)
    if array is not None and array.ndim > len(group):
        if any(d != 1 for d in array.shape[: array.ndim - len(group)]):
            return None
        array = array.reshape(array.shape[array.ndim - len(group) :])
        part = rw.constant(array, part.dtype)
    if part.rank == 0 or part.rank > len(group):
        return None
    try:
        return part if broadcast_shapes(part.shape, group) == group else None
    except ShapeError:
        return None
