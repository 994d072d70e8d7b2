"""Tensors without elements as inputs, outputs and operands: the same as onnxruntime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import poplar_py as pp

Shapes = tuple[tuple[int, ...], ...]

CASES: list[tuple[str, Shapes, dict[str, Any]]] = [
    ("Relu", ((0, 4),), {}),
    ("Add", ((0, 4), (4,)), {}),
    ("Concat", ((0, 4), (3, 4)), {"axis": 0}),
    ("Transpose", ((0, 4),), {}),
    ("MatMul", ((0, 4), (4, 5)), {}),
    ("MatMul", ((3, 0), (0, 5)), {}),
    ("MatMul", ((0, 3, 4), (0, 4, 5)), {}),
    ("Gemm", ((0, 4), (4, 5)), {}),
    ("Einsum", ((3, 0), (0, 5)), {"equation": "ab,bc->ac"}),
    ("Softmax", ((4, 0),), {}),
    ("ReduceSum", ((0, 4),), {}),
    ("ReduceMax", ((0, 4),), {"axes": [1]}),
    ("Conv", ((0, 3, 8, 8), (4, 3, 3, 3)), {}),
    ("MaxPool", ((0, 3, 8, 8),), {"kernel_shape": [2, 2]}),
    ("GlobalAveragePool", ((0, 3, 8, 8),), {}),
    ("InstanceNormalization", ((0, 3, 4, 4), (3,), (3,)), {}),
    ("DepthToSpace", ((0, 4, 4, 4),), {"blocksize": 2}),
]


@pytest.mark.parametrize(("op", "shapes", "attributes"), CASES)
def test_no_elements(op: str, shapes: Shapes, attributes: dict[str, Any]) -> None:
    inputs = {f"x{i}": np.ones(shape, np.float32) for i, shape in enumerate(shapes)}
    declared = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in inputs.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(op, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], "g", declared, [result])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    got = pp.Engine(model, system="ipu", tiles_per_ipu=8).run(inputs)["y"]
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected)
