"""Ops of the domain com.microsoft against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from test_control import expected, run

Array = np.ndarray[Any, np.dtype[Any]]
DOMAIN = "com.microsoft"
R = np.random.default_rng(3)


def floats(*shape: int) -> Array:
    return R.normal(0, 1, shape).astype(np.float32)


def bytes_(*shape: int, signed: bool = False) -> Array:
    return (
        R.integers(-100, 100, shape).astype(np.int8)
        if signed
        else R.integers(0, 255, shape).astype(np.uint8)
    )


def scale(value: float) -> Array:
    return np.asarray(value, np.float32)


def zero(value: int, signed: bool = False) -> Array:
    return np.asarray(value, np.int8 if signed else np.uint8)


def check(
    op: str, inputs: Sequence[Array | None], steps: int = 0, outputs: int = 1, **attributes: Any
) -> None:
    """The first `outputs` results agree; integers may differ by `steps` (ties of the rounding)."""
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    data = [(k, x) for k, x in zip(names, inputs, strict=True) if x is not None]
    node = helper.make_node(
        op, names, [f"o{k}" for k in range(outputs)], domain=DOMAIN, **attributes
    )
    kinds = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(data[0][0], kinds(data[0][1].dtype), data[0][1].shape)],
        [helper.make_empty_tensor_value_info(f"o{k}") for k in range(outputs)],
        [numpy_helper.from_array(x, k) for k, x in data[1:]],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    feeds = {data[0][0]: data[0][1]}
    got, _ = run(model, feeds)
    for a, b in zip(got, expected(model, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
        else:
            assert np.abs(a.astype(int) - b.astype(int)).max() <= steps


def test_fused_products() -> None:
    for activation in ("Relu", "LeakyRelu"):
        given = {"activation_alpha": 0.3} if activation == "LeakyRelu" else {}
        gemm = [floats(3, 4), floats(5, 4), floats(5)]
        check("FusedGemm", gemm, transB=1, alpha=0.5, activation=activation, **given)
    check("FusedMatMul", [floats(2, 3, 4), floats(2, 5, 4)], transB=1, alpha=0.5)
    check(
        "FusedConv",
        [floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(4)],
        activation="Relu",
        kernel_shape=[3, 3],
    )


def test_activations() -> None:
    check("Gelu", [floats(3, 5)])
    check("BiasGelu", [floats(3, 5), floats(5)])
    check("FastGelu", [floats(3, 5), floats(5)])
    check("QuickGelu", [floats(3, 5)])


def test_skip_norms() -> None:
    x, skip, gamma, beta = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8)
    check("SkipLayerNormalization", [x, skip, gamma, beta, floats(8)], epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma], epsilon=1e-5)


def test_attention() -> None:
    mask = np.asarray([[1, 1, 1, 1], [1, 1, 0, 0]], np.int32)
    x, w, bias = floats(2, 4, 8), floats(8, 24), floats(24)
    check("Attention", [x, w, bias], num_heads=2)
    check("Attention", [x, w, bias, mask], num_heads=2)
    check("Attention", [x, w, bias, np.asarray([4, 2], np.int32)], num_heads=2)
    check("Attention", [x, w, bias], num_heads=2, unidirectional=1)
    q, k, v = floats(2, 4, 8), floats(2, 5, 8), floats(2, 5, 8)
    check("MultiHeadAttention", [q, k, v], num_heads=2)


@pytest.mark.parametrize("signed", [False, True])
def test_quantised_elementwise(signed: bool) -> None:
    a, c = bytes_(3, 4, signed=signed), bytes_(3, 4, signed=signed)
    z = zero(3, signed)
    check("QLinearAdd", [a, scale(0.1), z, c, scale(0.2), z, scale(0.3), z], 1)
    check("QLinearMul", [a, scale(0.1), z, c, scale(0.2), z, scale(3.0), z], 1)
    check("QLinearSigmoid", [a, scale(0.05), z, scale(0.01), z], 1)
    check("QLinearLeakyRelu", [a, scale(0.05), z, scale(0.05), z], 1, alpha=0.2)


def test_quantised_pools_and_concat() -> None:
    x = bytes_(1, 3, 6, 6)
    check("QLinearGlobalAveragePool", [x, scale(0.1), zero(5), scale(0.1), zero(3)], 1)
    check(
        "QLinearAveragePool",
        [x, scale(0.1), zero(5), scale(0.1), zero(3)],
        1,
        kernel_shape=[2, 2],
        strides=[2, 2],
    )


def test_quantised_products() -> None:
    a, w = bytes_(3, 8), bytes_(8, 5, signed=True)
    check(
        "QGemm",
        [a, scale(0.1), zero(7), w, scale(0.02), zero(2, True), None, scale(0.5), zero(9)],
        1,
    )
    check("MatMulIntegerToFloat", [a, w, scale(0.1), scale(0.02), zero(7), zero(2, True)])
    check("DynamicQuantizeMatMul", [floats(3, 8), w, scale(0.02), zero(2, True), floats(5)])


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_dynamic_lstm(direction: str) -> None:
    hidden, inputs = 4, 3
    check(
        "DynamicQuantizeLSTM",
        [
            floats(5, 1, inputs),
            bytes_(1, inputs, 4 * hidden, signed=True),
            bytes_(1, hidden, 4 * hidden, signed=True),
            floats(1, 8 * hidden),
            None,
            None,
            None,
            None,
            np.full(1, 0.01, np.float32),
            np.zeros(1, np.int8),
            np.full(1, 0.01, np.float32),
            np.zeros(1, np.int8),
        ],
        outputs=3,
        hidden_size=hidden,
        direction=direction,
    )


def test_attention_with_a_past() -> None:
    past = floats(2, 2, 2, 5, 8)
    operands = [floats(2, 1, 16), floats(16, 48), floats(48), None, past]
    check("Attention", operands, outputs=2, num_heads=2, unidirectional=1)
    keys = [floats(2, 1, 16), floats(2, 1, 16), floats(2, 1, 16), floats(48), None, None]
    check("MultiHeadAttention", [*keys, *floats(2, 2, 2, 5, 8)], outputs=3, num_heads=2)
    check("MultiHeadAttention", [floats(2, 3, 16), *floats(2, 2, 2, 5, 8)], num_heads=2)


@pytest.mark.parametrize("with_past", [False, True])
def test_quantised_attention(with_past: bool) -> None:
    x, w = bytes_(2, 5, 16), bytes_(16, 48, signed=True)
    operands = [x, w, floats(48), scale(0.02), scale(0.01), None, zero(128), zero(0, True)]
    past: list[Array | None] = [floats(2, 2, 2, 3, 8)] if with_past else []
    check("QAttention", [*operands, *past], outputs=1 + with_past, num_heads=2, unidirectional=1)


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("rotary", [0, 1])
def test_grouped_query_attention(past: int, rotary: int) -> None:
    new = 1 if past else 4
    angles = np.outer(np.arange(16), 1 / 10 ** np.arange(8)).astype(np.float32)
    check(
        "GroupQueryAttention",
        [
            *(floats(1, new, width) for width in (64, 32, 32)),
            *(floats(1, 2, past, 16) for _ in range(2)),
            np.asarray([past + new - 1], np.int32),
            np.asarray(past + new, np.int32),
            *([np.cos(angles), np.sin(angles)] if rotary else []),
        ],
        outputs=3,
        num_heads=4,
        kv_num_heads=2,
        do_rotary=rotary,
        local_window_size=3,
    )


@pytest.mark.parametrize("paired", [0, 1])
def test_rotary_embedding(paired: int) -> None:
    tables = [floats(16, 4), floats(16, 4)]
    start, each = np.asarray([4], np.int64), np.asarray([[0, 1, 2], [5, 6, 7]], np.int64)
    check("RotaryEmbedding", [floats(2, 3, 32), start, *tables], interleaved=paired)
    check("RotaryEmbedding", [floats(2, 4, 3, 8), each, *tables], interleaved=paired)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("width", "block"), [(64, 32), (40, 16)])
def test_packed_weights(zeros: bool, width: int, block: int) -> None:
    blocks = -(-width // block)
    points: list[Array | None] = [bytes_(8 * -(-blocks // 2))] if zeros else []
    packed, scales = bytes_(8, blocks, block // 2), np.abs(floats(8 * blocks))
    operands = [floats(3, width), packed, scales, *points]
    check("MatMulNBits", operands, K=width, N=8, bits=4, block_size=block)


def test_quantised_softmax() -> None:
    operands = [bytes_(2, 3, 5), scale(0.05), zero(7), scale(1 / 256), zero(0)]
    check("QLinearSoftmax", operands, 1, axis=-1, opset=13)
    check("QLinearSoftmax", operands, 1, axis=1, opset=11)
