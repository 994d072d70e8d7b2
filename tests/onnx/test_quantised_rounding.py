"""Quantised ops against onnxruntime, number for number: halves, odd zero points, only zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from compiled import interpreter_blocked
from onnx import TensorProto, helper, numpy_helper
from test_control import expected

import poplar_py as pp

Array = np.ndarray[Any, np.dtype[Any]]
PAIR = ["a", "sa", "za", "b", "sb", "zb", "sc", "zc"]
ONE = ["a", "sa", "za", "sc", "zc"]
CONTRIB = {"domain": "com.microsoft"}

NODES: dict[str, tuple[list[str], dict[str, Any], tuple[int, ...]]] = {
    "QLinearAdd": (PAIR, CONTRIB, (40, 40)),
    "QLinearMul": (PAIR, CONTRIB, (40, 40)),
    "QLinearMatMul": (PAIR, {}, (40, 40)),
    "QLinearSigmoid": (ONE, CONTRIB, (40, 40)),
    "QLinearLeakyRelu": (ONE, {**CONTRIB, "alpha": 0.25}, (40, 40)),
    "QLinearSoftmax": (ONE, {**CONTRIB, "opset": 13}, (40, 40)),
    "QLinearAveragePool": (ONE, {**CONTRIB, "kernel_shape": [2, 2]}, (2, 5, 12, 12)),
    "NhwcMaxPool": (["a"], {**CONTRIB, "kernel_shape": [2, 3], "strides": [2, 1]}, (2, 9, 8, 5)),
    "QLinearGlobalAveragePool": (ONE, CONTRIB, (40, 20, 2, 2)),
    "QLinearConcat": (["sc", "zc", *PAIR[:6]], {**CONTRIB, "axis": 1}, (40, 40)),
    "QuantizeLinear": (["x", "sa", "za"], {}, (40, 40)),
}


def compare(
    node: onnx.NodeProto, held: dict[str, Array], feeds: dict[str, Array], opset: int = 23
) -> None:
    """Runs the node on the device, and by onnxruntime; all outputs must be equal."""

    def infos(names: Any, types: dict[str, int]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(k, types[k], None) for k in names]

    types = {k: helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in feeds.items()}
    whole = helper.np_dtype_to_tensor_dtype((held | feeds).get("zc", np.zeros(0, "u1")).dtype)
    kept = [numpy_helper.from_array(np.asarray(v), k) for k, v in held.items()]
    out = dict.fromkeys(node.output, whole) | {"scale": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(k, types[k], v.shape) for k, v in feeds.items()]
    graph = helper.make_graph([node], "g", inputs, infos(node.output, out), kept)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    engine = pp.Engine(pp.load(model), system="ipu", tiles_per_ipu=4, threads=1)
    engine.run(feeds)
    with interpreter_blocked():
        ours = engine.run(feeds)
    for name, reference in zip(node.output, expected(model, feeds), strict=True):
        assert ours[name].dtype == reference.dtype
        np.testing.assert_array_equal(ours[name], reference)


@pytest.mark.parametrize("nice", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("name", NODES)
def test_every_number(name: str, dtype: Any, nice: bool) -> None:
    """`nice`: scales of powers of two and odd zero points, so that halves are frequent."""
    names, attributes, shape = NODES[name]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    r = np.random.default_rng(len(name) + 10 * nice)
    held: dict[str, Array] = {}
    for part in "abc":
        scale = r.choice([0.25, 0.5, 1.0, 2.0]) if nice else r.uniform(0.01, 0.05)
        zero = 2 * r.integers(low // 8, high // 8) + 1 if nice else r.integers(low, high + 1)
        held |= {f"s{part}": np.asarray(scale, np.float32), f"z{part}": np.asarray(zero, dtype)}
    if name in ("QLinearSigmoid", "QLinearSoftmax"):
        held["sc"] = np.asarray(1 / 256 if nice else 0.0035, np.float32)
    feeds = {k: r.integers(low, high + 1, shape).astype(dtype) for k in "ab" if k in names}
    if "x" in names:
        feeds["x"] = (np.arange(1600).reshape(shape) * 0.125 - 100).astype(np.float32)
        held["zc"] = held["za"]
    node = helper.make_node(name, names, ["y"], **attributes)
    compare(node, {k: v for k, v in held.items() if k in names or k == "zc"}, feeds)


@pytest.mark.parametrize(
    ("precision", "opset"), [(0, 21), (0, 23), (TensorProto.FLOAT, 23), (TensorProto.FLOAT16, 23)]
)
def test_precision_of_the_division(precision: int, opset: int) -> None:
    """The attribute came with opset 23, and with it another default."""
    given = {"precision": precision} if precision else {}
    node = helper.make_node("QuantizeLinear", ["x", "sa", "zc"], ["y"], **given)
    held = {"sa": np.asarray(0.0371, np.float16), "zc": np.asarray(128, np.uint8)}
    x = np.random.default_rng(3).standard_normal((60, 60)).astype(np.float16)
    compare(node, held, {"x": x}, opset)


@pytest.mark.parametrize("x", [np.zeros((2, 3)), -np.ones((2, 3)), np.array([[0.5, 255.0, 1.5]])])
def test_ranges_found_on_the_way(x: Array) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    compare(node, {}, {"x": x.astype(np.float32)})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_channels_in_the_last_axis(dtype: Any) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    r = np.random.default_rng(8)
    x = r.integers(low, high + 1, (2, 7, 6, 4)).astype(dtype)
    held: dict[str, Array] = {"sa": np.asarray(0.02, np.float32), "za": np.asarray(3, dtype)}
    held |= {"sc": np.asarray(0.11, np.float32), "zc": np.asarray(5, dtype)}
    pool = {**CONTRIB, "kernel_shape": [3, 2], "channels_last": 1}
    compare(helper.make_node("QLinearAveragePool", ["x", *ONE[1:]], ["y"], **pool), held, {"x": x})
    held |= {"w": r.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)}
    held |= {"sw": r.uniform(0.01, 0.02, 6).astype(np.float32), "zw": np.zeros(6, np.int8)}
    names = ["x", "sa", "za", "w", "sw", "zw", "sc", "zc"]
    shape = {"pads": [1, 1, 1, 1], "strides": [2, 1], "channels_last": 1}
    compare(helper.make_node("QLinearConv", names, ["y"], **CONTRIB, **shape), held, {"x": x})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_what_is_no_number(dtype: Any) -> None:
    """NaN comes from masks of infinities, whose scale was measured; it becomes the least number."""
    node = helper.make_node("QuantizeLinear", ["x", "sa", "zc"], ["y"])
    held = {"sa": np.asarray(0.5, np.float32), "zc": np.asarray(3, dtype)}
    x = np.array([[np.nan, np.inf, -np.inf, 1.25, -1.25]] * 5, np.float32)
    compare(node, held, {"x": x}, 21)


@pytest.mark.parametrize(
    "window",
    [
        "kernel_shape=[2, 2], strides=[2, 2]",
        "kernel_shape=[3, 3], pads=[1, 1, 1, 1]",
        "kernel_shape=[3, 2], strides=[2, 1], pads=[0, 1, 1, 0], count_include_pad=1",
    ],
)
def test_means_have_the_same_bits(window: str) -> None:
    """Means of dequantised numbers fall on halves: their last bit decides what they become."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1, 20, 13, 12] x) => (float[n,c,h,w] y)'
        f" {{ y = AveragePool<{window}>(x) }}"
    )
    x = np.random.default_rng(0).standard_normal((1, 20, 13, 12)).astype(np.float32)
    engine = pp.Engine(pp.load(model), system="ipu", tiles_per_ipu=4, threads=1)
    np.testing.assert_array_equal(engine.run({"x": x})["y"], expected(model, {"x": x})[0])
