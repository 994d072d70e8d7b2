"""Results without elements, and shifts of a constant: found by random graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import poplar_py as pp

F32, U64 = TensorProto.FLOAT, TensorProto.UINT64


def run(
    op: str, x: np.ndarray, constants: list[np.ndarray | None], opset: int = 17, **attributes: Any
) -> np.ndarray:
    """The node's result; the first operand is an input, the others are constants."""
    names = ["" if c is None else f"c{i}" for i, c in enumerate(constants)]
    held = [
        numpy_helper.from_array(c, n)
        for c, n in zip(constants, names, strict=True)
        if c is not None
    ]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return pp.Engine(pp.load(model), tiles_per_ipu=2).run({"x": x})["y"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_to_nothing(mode: str) -> None:
    x = np.ones((1, 1, 1, 2), np.float32)
    scales = np.array([1, 1, 0.5, 2], np.float32)
    assert run("Resize", x, [None, scales], mode=mode).shape == (1, 1, 0, 4)


@pytest.mark.parametrize("opset", [7, 13])
def test_hardmax_of_nothing(opset: int) -> None:
    x = np.ones((2, 7, 0), np.float32)
    assert run("Hardmax", x, [], opset, axis=2).shape == (2, 7, 0)


def test_conv_transpose_whose_pads_cut_all() -> None:
    x, w = np.ones((1, 2, 3, 1), np.float32), np.ones((2, 3, 1, 1), np.float32)
    assert run("ConvTranspose", x, [w], pads=[0, 1, 0, 0]).shape == (1, 3, 3, 0)


@pytest.mark.parametrize(("direction", "size"), [("LEFT", 1), ("RIGHT", 1), ("LEFT", 40)])
def test_shift_of_a_constant(direction: str, size: int) -> None:
    """The first operand is the constant: vectors of it are made where the second is one."""
    x = (np.arange(size) % 7 + 1).astype(np.uint64)
    left = np.array([2**64 - 3], np.uint64)
    graph = helper.make_graph(
        [helper.make_node("BitShift", ["c", "x"], ["y"], direction=direction)],
        "g",
        [helper.make_tensor_value_info("x", U64, x.shape)],
        [helper.make_tensor_value_info("y", U64, None)],
        [numpy_helper.from_array(left, "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    got = pp.Engine(pp.load(model), tiles_per_ipu=2).run({"x": x})["y"]
    assert np.array_equal(got, left << x if direction == "LEFT" else left >> x)


@pytest.mark.parametrize("last", [2**31 - 1, 2**63 - 1, -(2**63)])
def test_slice_backwards_to_the_end(last: int) -> None:
    """onnxruntime takes the largest end for the end of the axis, whichever way the slice goes."""
    x = np.arange(5, dtype=np.float32)
    bounds = [np.array([k], np.int64) for k in (3, last, 0, -1)]
    np.testing.assert_array_equal(run("Slice", x, bounds), x[3::-1])
