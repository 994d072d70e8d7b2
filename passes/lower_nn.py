"""Lowering rules of nn.*: products and convolutions through poplin, the rest through popnn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from poplar_py import poplin, popnn
from poplar_py.ir import Value
from poplar_py.ops import nn as ops
from poplar_py.passes.lower_context import Array, LowerContext, rule
from poplar_py.passes.lower_math import lower_expression
from poplar_py.passes.lower_products import put_off
from poplar_py.poplar import Graph, Tensor
from poplar_py.poplar.program import Sequence
from poplar_py.poplin import Epilogue
from poplar_py.types import DType, i32

__all__: list[str] = []

Operand = Tensor | Array


@rule("nn.relu")
def lower_relu(ctx: LowerContext, op: ops.Relu) -> None:
    lower_expression(ctx, op, "relu($0)", (op.x,), op.x.dtype)


@rule("nn.leaky_relu")
def lower_leaky_relu(ctx: LowerContext, op: ops.LeakyRelu) -> None:
    text = f"select(less($0,c(0)),mul($0,c({float(op.alpha)!r})),$0)"
    lower_expression(ctx, op, text, (op.x,), op.x.dtype)


@rule("nn.gelu")
def lower_gelu(ctx: LowerContext, op: ops.Gelu) -> None:
    kind = "gelu" if op.approximate == "tanh" else "gelu_erf"
    lower_expression(ctx, op, popnn.ACTIVATIONS[kind], (op.x,), op.x.dtype)


@rule("nn.softmax")
def lower_softmax(ctx: LowerContext, op: ops.Softmax) -> None:
    x = ctx.tensor(op.x)
    ctx.set(op.result, popnn.softmax(ctx.graph, x, op.axis % op.x.rank, ctx.prog, ctx.name(op)))


@rule("nn.log_softmax")
def lower_log_softmax(ctx: LowerContext, op: ops.LogSoftmax) -> None:
    x = ctx.tensor(op.x)
    out = popnn.log_softmax(ctx.graph, x, op.axis % op.x.rank, ctx.prog, ctx.name(op))
    ctx.set(op.result, out)


@rule("nn.layer_norm")
def lower_layer_norm(ctx: LowerContext, op: ops.LayerNorm) -> None:
    scale = None if op.scale is None else ctx.tensor(op.scale)
    bias = None if op.bias is None else ctx.tensor(op.bias)
    axis = op.axis % op.x.rank
    x = ctx.tensor(op.x)
    out = popnn.layer_norm(ctx.graph, x, scale, bias, axis, op.eps, ctx.prog, ctx.name(op))
    ctx.set(op.result, out)


def _matmul(ctx: LowerContext, op: Any, dtype: DType | None) -> None:
    """Vectors become matrices of one row or column."""
    a, b = ctx.operand(op.a), ctx.operand(op.b)
    a = a.reshape((1, *a.shape)) if op.a.rank == 1 else a
    b = b.reshape((*b.shape, 1)) if op.b.rank == 1 else b
    shape, name = op.result.type.static_shape, ctx.name(op)

    def emit(graph: Graph, prog: Sequence, bias: Array | None, epilogue: Epilogue | None) -> Tensor:
        out = poplin.mat_mul(graph, a, b, prog, name, bias=bias, epilogue=epilogue, out_dtype=dtype)
        return out.reshape(shape)

    if op.a.rank == 1 or op.b.rank == 1:
        ctx.set(op.result, emit(ctx.graph, ctx.prog, None, None))
        return
    put_off(ctx, op, emit, -1, False)


@rule("nn.matmul")
def lower_matmul(ctx: LowerContext, op: ops.MatMul) -> None:
    _matmul(ctx, op, None)


@rule("nn.matmul_integer")
def lower_matmul_integer(ctx: LowerContext, op: ops.MatMulInteger) -> None:
    _matmul(ctx, op, i32)


def _bias(ctx: LowerContext, value: Value | None) -> Operand | None:
    return None if value is None else ctx.operand(value)


def _conv(ctx: LowerContext, op: Any, dtype: DType | None) -> None:
    """Spatial dims of one pixel that the kernel does not reach beyond are left out."""
    keep = _spatial_dims(op)
    rank = op.x.rank - 2
    params = poplin.ConvForm.of(
        len(keep),
        strides=[op.strides[d] for d in keep],
        pads=[op.pads[d] for d in keep] + [op.pads[d + rank] for d in keep],
        dilations=[op.dilations[d] for d in keep],
        groups=op.groups,
    )

    def fewer(t: Operand) -> Operand:
        """An operand or result without the dims that are left out."""
        if len(t.shape) != rank + 2 or len(keep) == rank:
            return t
        return t.reshape((*t.shape[:2], *(t.shape[2 + d] for d in keep)))

    x, w = fewer(ctx.tensor(op.x)), fewer(ctx.operand(op.w))
    own, name, shape = _bias(ctx, op.bias), ctx.name(op), op.result.type.static_shape

    def emit(graph: Graph, prog: Sequence, bias: Array | None, epilogue: Epilogue | None) -> Tensor:
        first = own if own is not None else bias
        if epilogue is not None and len(keep) != rank:
            tensors = cast("tuple[Tensor, ...]", tuple(fewer(t) for t in epilogue.tensors))
            epilogue = Epilogue(epilogue.expr, tensors)
        out = poplin.convolution(
            graph,
            cast("Tensor", x),
            w,
            first,
            params,
            prog,
            name,
            epilogue=epilogue,
            out_dtype=dtype,
        )
        return out.reshape(shape)

    put_off(ctx, op, emit, 1, own is not None)


def _spatial_dims(op: Any) -> list[int]:
    """The spatial dims a convolution has to slide over; one at least."""
    rank = op.x.rank - 2
    x, w = op.x.type.static_shape[2:], op.w.type.static_shape[2:]
    pads = [op.pads[d] + op.pads[d + rank] for d in range(rank)]
    keep = [d for d in range(rank) if (x[d], w[d], pads[d]) != (1, 1, 0)]
    return keep or [rank - 1]


@rule("nn.conv")
def lower_conv(ctx: LowerContext, op: ops.Conv) -> None:
    _conv(ctx, op, None)


@rule("nn.conv_integer")
def lower_conv_integer(ctx: LowerContext, op: ops.ConvInteger) -> None:
    _conv(ctx, op, i32)


@rule("nn.conv_transpose")
def lower_conv_transpose(ctx: LowerContext, op: ops.ConvTranspose) -> None:
    params = poplin.ConvForm.of(
        op.x.rank - 2,
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        groups=op.groups,
    )
    name, out = ctx.name(op), op.results[0]
    if out.type.numel == 0:  # pads cut everything off
        ctx.set(out, ctx.graph.add_variable(out.dtype, out.type.static_shape, name, "linear"))
        return
    x, w, own = ctx.tensor(op.x), ctx.operand(op.w), _bias(ctx, op.bias)

    def emit(graph: Graph, prog: Sequence, bias: Array | None, epilogue: Epilogue | None) -> Tensor:
        first = own if own is not None else bias
        return poplin.conv_transpose(graph, x, w, first, params, prog, name, epilogue=epilogue)

    put_off(ctx, op, emit, 1, own is not None)


def _pool_params(op: Any) -> popnn.PoolParams:
    return popnn.PoolParams(op.kernel, op.strides, op.pads, op.dilations)


@rule("nn.max_pool")
def lower_max_pool(ctx: LowerContext, op: ops.MaxPool) -> None:
    x = ctx.tensor(op.x)
    params = _pool_params(op)
    out, where = popnn.max_pool(ctx.graph, x, params, ctx.prog, ctx.name(op), indices=op.indices)
    ctx.set(op.results[0], out)
    if op.indices and where is not None:
        ctx.set(op.results[1], where)


@rule("nn.avg_pool")
def lower_avg_pool(ctx: LowerContext, op: ops.AvgPool) -> None:
    out = popnn.avg_pool(
        ctx.graph,
        ctx.tensor(op.x),
        _pool_params(op),
        ctx.prog,
        ctx.name(op),
        count_include_pad=op.count_include_pad,
        extra=op.extra,
    )
    ctx.set(op.result, out)


def _recurrent(
    ctx: LowerContext, op: Any, run: Callable[..., tuple[Tensor, ...]], **options: Any
) -> None:
    """A layer of popnn over the op's x, w, r, bias and first states."""
    x, w, r = ctx.tensor(op.x), ctx.operand(op.w), ctx.operand(op.r)
    bias = None if op.bias is None else ctx.tensor(op.bias)
    states = [ctx.tensor(s) for s in ((op.h0, op.c0) if run is popnn.lstm else (op.h0,))]
    name, reverse = ctx.name(op), op.reverse
    found = run(ctx.graph, x, w, r, bias, *states, ctx.prog, name, reverse=reverse, **options)
    for result, tensor in zip(op.results, found, strict=True):
        ctx.set(result, tensor)


@rule("nn.lstm")
def lower_lstm(ctx: LowerContext, op: ops.Lstm) -> None:
    _recurrent(ctx, op, popnn.lstm)


@rule("nn.gru")
def lower_gru(ctx: LowerContext, op: ops.Gru) -> None:
    _recurrent(ctx, op, popnn.gru, linear_before_reset=op.linear_before_reset)


@rule("nn.rnn")
def lower_rnn(ctx: LowerContext, op: ops.Rnn) -> None:
    _recurrent(ctx, op, popnn.rnn, activation=op.activation)
