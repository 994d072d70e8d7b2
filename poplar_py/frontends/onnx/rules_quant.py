"""ONNX quantised operators: integer products in i32, scales in float."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_conv import conv_window
from poplar_py.frontends.onnx.rules_narrow import INT_RANGES, decode, encode
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.ops.tensor import check_axis
from poplar_py.types import DType, f32, i32, u8

__all__ = ["centred", "dequantize", "lone", "qlinear_conv_of", "quantize", "saturated"]


def _spread(b: Builder, part: Val, x: Val, axis: int, block: int) -> Val:
    """A scale or zero point shaped to broadcast against x: one number, one per place, per block."""
    if part.numel == 1 and block == 0:
        return b.reshape(part, ())
    axis = check_axis(axis, x.rank)
    if block == 0:
        if part.rank != 1 or part.numel != x.shape[axis]:
            raise ShapeError(f"{part.type} for axis {axis} of {x.type}", b.loc)
        return b.reshape(part, [part.numel if i == axis else 1 for i in range(x.rank)])
    if part.rank != x.rank:
        raise ShapeError(f"{part.type} for blocks of {block} of {x.type}", b.loc)
    count = part.shape[axis]
    spread = b.expand(
        b.unsqueeze(part, axis + 1), (*part.shape[: axis + 1], block, *part.shape[axis + 1 :])
    )
    flat = b.reshape(spread, (*part.shape[:axis], count * block, *part.shape[axis + 1 :]))
    return b.slice(flat, axis, 0, x.shape[axis])


def _limits(dtype: DType, tag: str) -> tuple[int, int]:
    if tag:
        return INT_RANGES[tag]
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def saturated(b: Builder, number: Val, zero: Val | None, dtype: DType, tag: str) -> Val:
    """Rounded floats plus a zero point, limited to an integer type. NaN becomes the least of it, as
    in onnxruntime."""
    low, high = _limits(dtype, tag)
    whole = b.emit(ew.Round, number)
    if zero is not None:
        whole = whole + b.cast(zero, whole.dtype)
    limited = b.minimum(b.select(b.greater_equal(whole, low), whole, low), high)
    out = b.cast(limited, dtype)
    out.tag = tag
    return out


@imports("QuantizeLinear")
def quantize(b: Builder, n: Node) -> Val:
    x, scale = n[0], n[1]
    zero = n.get(2)
    if zero is not None:
        dtype, tag = zero.dtype, zero.tag
    elif n.int("output_dtype"):
        dtype, tag = n.dtype("output_dtype", 2)
    else:
        dtype, tag = u8, ""
    axis, block = n.int("axis", 1), n.int("block_size")
    wide = b.wide(x if x.dtype.is_float else b.cast(x, f32))
    inner = scale.dtype if n.version >= 23 else wide.dtype  # as onnxruntime: f32 before opset 23
    if n.int("precision"):
        inner = n.dtype("precision", 1)[0]
    divided = b.cast(wide, inner) / b.cast(_spread(b, scale, x, axis, block), inner)
    number = b.cast(divided, wide.dtype)
    if tag and tag not in INT_RANGES:
        return encode(b, number, tag, bool(n.int("saturate", 1)))
    point = None if zero is None else _spread(b, _number(b, zero), x, axis, block)
    return saturated(b, number, point, dtype, tag)


def _number(b: Builder, x: Val) -> Val:
    return decode(b, x) if x.tag else x


@imports("DequantizeLinear")
def dequantize(b: Builder, n: Node) -> Val:
    x, scale = n[0], n[1]
    axis, block = n.int("axis", 1), n.int("block_size")
    number = _number(b, x)
    out_type = n.dtype("output_dtype", 1)[0] if n.int("output_dtype") else scale.dtype
    if n.has(2) and number.dtype.is_integer:
        point = _spread(b, b.cast(_number(b, n[2]), i32), x, axis, block)
        number = b.cast(number, i32) - point
    wide = b.cast(number, f32)
    return b.cast(wide * b.cast(_spread(b, scale, x, axis, block), f32), out_type)


@imports("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder, n: Node) -> tuple[Val, Val, Val]:
    x = n[0]
    axes = tuple(range(x.rank))
    top = b.maximum(b.reduce(x, "max", axes), 0)
    bottom = b.minimum(b.reduce(x, "min", axes), 0)
    scale = (top - bottom) / 255.0
    safe = b.select(b.equal(scale, 0), 1.0, scale)
    point = b.emit(ew.Round, b.minimum(b.maximum((-bottom) / safe, 0), 255))
    zero = b.cast(point, u8)
    return saturated(b, x / safe, zero, u8, ""), safe, zero


def centred(b: Builder, x: Val, zero: Val | None, shape: Sequence[int] | None = None) -> Val:
    """x minus its zero point, in i32 (unchanged where the point is known to be 0)."""
    if zero is None or (zero.pure and zero.const is not None and not zero.const.any()):
        return x
    point = b.reshape(zero, shape) if shape is not None else zero
    return b.cast(x, i32) - b.cast(point, i32)


def _row_point(zero: Val | None, x: Val) -> Sequence[int] | None:
    """Shape of a zero point of the left operand: one, one per row, or full rank."""
    if zero is None or zero.rank != 1:
        return None
    return () if zero.numel == 1 else (zero.numel, 1)


@imports("MatMulInteger")
def matmul_integer(b: Builder, n: Node) -> Val:
    a, c = n[0], n[1]
    za, zc = n.get(2), n.get(3)
    left = centred(b, a, za, _row_point(za, a))
    right = centred(b, c, zc, () if zc is not None and zc.numel == 1 else None)
    return b.emit(nn.MatMulInteger, left, right)


@imports("QLinearMatMul")
def qlinear_matmul(b: Builder, n: Node) -> Val:
    a, sa, za, c, sc, zc, sy, zy = (n[i] for i in range(8))
    if a.tag or c.tag:
        raise b.refuse(f"operands of type {a.tag or c.tag} are not supported")
    left = centred(b, a, za, _row_point(za, a))
    right = centred(b, c, zc, () if zc.numel == 1 else None)
    total = b.cast(b.emit(nn.MatMulInteger, left, right), f32)
    rows = _row_point(sa, a)
    scale_a = b.cast(b.reshape(sa, rows) if rows is not None else sa, f32)
    scale = scale_a * b.cast(lone(b, sc), f32) / b.cast(lone(b, sy), f32)
    return saturated(b, total * scale, lone(b, zy), zy.dtype, zy.tag)


def lone(b: Builder, x: Val) -> Val:
    return b.reshape(x, ()) if x.numel == 1 else x


def _conv_integer(b: Builder, n: Node, x: Val, w: Val, bias: Val | None) -> Val:
    window = conv_window(n, x, w.shape[2:])
    return b.emit(
        nn.ConvInteger,
        x,
        w,
        bias,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=n.int("group", 1),
    )


@imports("ConvInteger")
def conv_integer(b: Builder, n: Node) -> Val:
    x, w = n[0], n[1]
    zw = n.get(3)
    shape = (-1,) if zw is None or zw.numel == 1 else (zw.numel, *(1,) * (w.rank - 1))
    left = centred(b, x, n.get(2), ())
    right = centred(b, w, zw, () if shape == (-1,) else shape)
    return _conv_integer(b, n, left, right, None)


@imports("QLinearConv")
def qlinear_conv(b: Builder, n: Node) -> Val:
    return qlinear_conv_of(b, n, n[0])


def qlinear_conv_of(b: Builder, n: Node, x: Val) -> Val:
    """The convolution that a node describes, over x [N, C, ...]."""
    sx, zx, w, sw, zw, sy, zy = (n[i] for i in range(1, 8))
    if x.tag or w.tag:
        raise InputError(f"operands of type {x.tag or w.tag} are not supported", n.loc)
    per = (zw.numel, *(1,) * (w.rank - 1)) if zw.numel > 1 else ()
    left, right = centred(b, x, zx, ()), centred(b, w, zw, per)
    total = b.cast(_conv_integer(b, n, left, right, n.get(8)), f32)
    scale = b.reshape(sx, ()) * lone(b, sw) / b.reshape(sy, ())
    if scale.numel > 1:
        scale = b.reshape(scale, (1, scale.numel, *(1,) * (x.rank - 2)))
    return saturated(b, total * b.cast(scale, f32), b.reshape(zy, ()), zy.dtype, zy.tag)
