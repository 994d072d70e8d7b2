"""Long kernels over few channels give what a direct convolution gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from model_cases import assert_same
from onnx import TensorProto, helper, numpy_helper

import poplar_py as pp


@pytest.mark.parametrize("stride", [1, 2, 8, 16, 24, 64])
@pytest.mark.parametrize(("channels", "taps", "pad"), [(1, 64, 0), (2, 48, 5)])
def test_long_kernel(stride: int, channels: int, taps: int, pad: int) -> None:
    rng = np.random.default_rng(stride)
    w = (rng.standard_normal((5, channels, taps)) / taps**0.5).astype(np.float32)
    x = rng.standard_normal((2, channels, 401)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride], pads=[pad, pad])
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "y")]
    infos[0] = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph(
        [node], "conv", [infos[0]], [infos[1]], [numpy_helper.from_array(w, "w")]
    )
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = np.asarray(session.run(None, {"x": x})[0])
    engine = pp.Engine(pp.load(model), tiles_per_ipu=64)
    assert_same(engine.run({"x": x})["y"], expected, "y")
