"""Models as converters leave them: quantised, in other element types, of other opsets."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from kind_cases import Inputs, Kind, Weight, floats, i64
from onnx import version_converter
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType

Convert = Callable[[onnx.ModelProto], onnx.ModelProto]
Feeds = Callable[[np.random.Generator], Inputs]

logging.getLogger().setLevel(logging.ERROR)  # the quantisers advise about preprocessing


class Samples(quantization.CalibrationDataReader):
    """A few inputs to calibrate with."""

    def __init__(self, feeds: Feeds) -> None:
        self.left = [feeds(np.random.default_rng(seed)) for seed in range(4)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def through_files(work: Callable[[str, str], None]) -> Convert:
    def convert(model: onnx.ModelProto) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
            onnx.save(model, before)
            work(str(before), str(after))
            return onnx.load(after)

    return convert


def static(feeds: Feeds, format: QuantFormat, act: QuantType, **options: Any) -> Convert:
    def work(before: str, after: str) -> None:
        given = {"quant_format": format, "activation_type": act, **options}
        quantization.quantize_static(before, after, Samples(feeds), **given)

    return through_files(work)


def dynamic(weights: QuantType) -> Convert:
    return through_files(lambda a, b: quantization.quantize_dynamic(a, b, weight_type=weights))


def opset(version: int) -> Convert:
    return lambda model: version_converter.convert_version(model, version)


def half(*blocked: str) -> Convert:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    def convert(model: onnx.ModelProto) -> onnx.ModelProto:
        inferred = onnx.shape_inference.infer_shapes(model)
        kept = list(blocked) or None
        return convert_float_to_float16(inferred, keep_io_types=True, op_block_list=kept)

    return convert


def optimised(convert: Convert) -> Convert:
    """What onnxruntime makes of a converted model: ops of com.microsoft."""

    def work(before: str, after: str) -> None:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = after
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        onnxruntime.InferenceSession(before, options, providers=["CPUExecutionProvider"])

    return lambda model: through_files(work)(convert(model))


CNN: dict[str, Weight] = {
    "w1": (8, 3, 3, 3),
    "s1": (8,),
    "w2": (8, 1, 3, 3),
    "w3": (8, 8, 1, 1),
    "w4": (5, 8),
    "s2": (5,),
    "lo": np.float32(0),
    "six": np.float32(6),
}
TRANSFORMER: dict[str, Weight] = {
    "w1": (30, 16),
    "s1": (16,),
    "b1": np.zeros(16, np.float32),
    **{f"w{k}": (16, 16) for k in (2, 3, 4)},
    "sc": np.float32(0.25),
    "w5": (16, 32),
    "s2": (32,),
    "w6": (32, 16),
    "w7": (16, 10),
}
LSTM: dict[str, Weight] = {"w1": (1, 20, 6), "w2": (1, 20, 5), "one": i64(1), "w3": (5, 4)}


def tokens(r: np.random.Generator) -> Inputs:
    return {"ids": r.integers(0, 30, (2, 7))}


IMAGES, FRAMES = floats(x=(2, 3, 12, 12)), floats(x=(6, 2, 6))


def cnn(convert: Convert, **more: Any) -> Kind:
    return Kind(
        "float[n, 3, 12, 12] x",
        "y",
        """a = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w1, s1) b = Relu(a)
        c = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(b)
        d = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8>(c, w2) e = Clip(d, lo, six)
        f = Conv<kernel_shape=[1, 1]>(e, w3) g = Add(f, c) h = GlobalAveragePool(g)
        i = Flatten(h) y = Gemm<transB=1>(i, w4, s2)""",
        CNN,
        IMAGES,
        convert=convert,
        **more,
    )


def transformer(convert: Convert, **more: Any) -> Kind:
    return Kind(
        "int64[b, s] ids",
        "y",
        """e = Gather(w1, ids) n = LayerNormalization<axis=-1>(e, s1, b1) q = MatMul(n, w2)
        k = MatMul(n, w3) v = MatMul(n, w4) kt = Transpose<perm=[0, 2, 1]>(k) a = MatMul(q, kt)
        ad = Mul(a, sc) p = Softmax(ad) o = MatMul(p, v) r = Add(e, o) h = MatMul(r, w5)
        hb = Add(h, s2) g = Relu(hb) z = MatMul(g, w6) r2 = Add(r, z) y = MatMul(r2, w7)""",
        TRANSFORMER,
        tokens,
        convert=convert,
        **more,
    )


def lstm(convert: Convert, **more: Any) -> Kind:
    return Kind(
        "float[t, b, 6] x",
        "y",
        """a, h, c = LSTM<hidden_size=5>(x, w1, w2) s = Squeeze(a, one) y = MatMul(s, w3)""",
        LSTM,
        FRAMES,
        convert=convert,
        **more,
    )


QDQ, QOPS = QuantFormat.QDQ, QuantFormat.QOperator
U8, S8 = QuantType.QUInt8, QuantType.QInt8
BY_CHANNEL: dict[str, Any] = {"weight_type": S8, "per_channel": True}

CONVERTED = {
    "cnn_qdq": cnn(static(IMAGES, QDQ, U8, weight_type=S8)),
    "cnn_qdq_by_channel": cnn(static(IMAGES, QDQ, S8, **BY_CHANNEL)),
    "cnn_qdq_u16": cnn(static(IMAGES, QDQ, QuantType.QUInt16, weight_type=S8)),
    "cnn_qdq_int4": cnn(static(IMAGES, QDQ, S8, weight_type=QuantType.QInt4), opset=21),
    "cnn_ops": cnn(static(IMAGES, QOPS, U8, weight_type=U8)),
    "cnn_ops_by_channel": cnn(static(IMAGES, QOPS, S8, **BY_CHANNEL)),
    "cnn_dynamic": cnn(dynamic(U8)),
    "cnn_f16": cnn(half(), tolerance=2e-3),
    "transformer_qdq": transformer(static(tokens, QDQ, U8, weight_type=S8)),
    "transformer_ops": transformer(static(tokens, QOPS, S8, weight_type=S8)),
    "transformer_dynamic": transformer(dynamic(S8)),
    "transformer_f16": transformer(half(), tolerance=4e-3),
    "transformer_f16_in_part": transformer(half("Softmax"), tolerance=4e-3),
    "lstm_dynamic": lstm(dynamic(S8)),
    "lstm_f16": lstm(half(), tolerance=2e-3),
}
OPTIMISED = {
    "cnn_qdq": cnn(optimised(static(IMAGES, QDQ, U8, weight_type=S8))),
    "cnn_qdq_by_channel": cnn(optimised(static(IMAGES, QDQ, S8, **BY_CHANNEL))),
    "cnn_ops": cnn(optimised(static(IMAGES, QOPS, U8, weight_type=U8))),
    "transformer_qdq": transformer(optimised(static(tokens, QDQ, U8, weight_type=S8))),
    "transformer_dynamic": transformer(optimised(dynamic(S8))),
    "lstm_dynamic": lstm(optimised(dynamic(S8))),
}
"""For the processor that the test runs on."""
OPSETS = {
    **{f"cnn_opset_{v}": cnn(opset(v)) for v in range(18, 26)},
    **{f"transformer_opset_{v}": transformer(opset(v)) for v in (18, 19, 21, 22, 23, 24, 25)},
    **{f"lstm_opset_{v}": lstm(opset(v)) for v in (14, 18, 21, 22, 24)},
}
