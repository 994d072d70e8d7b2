"""Malformed and hostile files end in one located error, soon."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from poplar_py.diagnostics import (
    DuplicateName,
    FileError,
    InputError,
    PoplarPyError,
    ShapeError,
    TypeMismatch,
    UnboundDims,
    UnknownName,
    UnsupportedOp,
)
from poplar_py.eval import evaluate
from poplar_py.frontends.onnx import load_onnx, open_onnx, pack_outputs

F = TensorProto.FLOAT


def model(
    nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: Any = (), opset: int = 21
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(k, F, v) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@contextmanager
def soon(seconds: float = 2.0) -> Iterator[None]:
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < seconds


def test_random_bytes() -> None:
    r = random.Random(1)
    with soon(5):
        for _ in range(50):
            data = bytes(r.randrange(256) for _ in range(r.randrange(300)))
            with pytest.raises(PoplarPyError):
                load_onnx(data)


def test_truncated_and_edited() -> None:
    w = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    good = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 4]}, ["y"], [w])
    data = good.SerializeToString()
    r = random.Random(2)
    for _ in range(200):
        bad = bytearray(data[: r.randrange(len(data))] if r.random() < 0.5 else data)
        if bad:
            bad[r.randrange(len(bad))] = r.randrange(256)
        assert outcome(bytes(bad)).startswith(("fine", "error["))


def outcome(data: Any) -> str:
    """What loading gives: the text of the error, or "fine"."""
    try:
        load_onnx(data)
    except PoplarPyError as error:
        return str(error)
    return "fine"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        open_onnx(tmp_path / "none.onnx")


def test_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    with pytest.raises(InputError, match="cycle"):
        load_onnx(model(nodes, {"x": [2]}, ["b"]))


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Neg", ["x"], ["a"])]
    module = load_onnx(model(nodes, {"x": [2]}, ["b"]))
    assert [op.opname for op in module.main.ops] == ["math.neg", "nn.relu"]


def test_unknown_op_names_node_and_output() -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="frob")
    with pytest.raises(UnsupportedOp, match="Frobnicate") as caught:
        load_onnx(model([node], {"x": [2]}, ["y"]))
    assert caught.value.loc.name == "frob"
    assert caught.value.loc.output == "y"


def test_unknown_domain() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], domain="com.example")
    with pytest.raises(UnsupportedOp, match=r"com\.example"):
        load_onnx(model([node], {"x": [2]}, ["y"]))


def test_huge_dims() -> None:
    with soon(), pytest.raises(ShapeError):
        load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2**40]}, ["y"]))
    shape = numpy_helper.from_array(np.asarray([2**20, 2**20]), "s")
    node = helper.make_node("ConstantOfShape", ["s"], ["y"])
    with soon(), pytest.raises(ShapeError):
        load_onnx(model([node], {"x": [2]}, ["y"], [shape]))
    bad = TensorProto(name="w", data_type=F, dims=[2**40])
    with soon(), pytest.raises(ShapeError):
        load_onnx(model([helper.make_node("Relu", ["w"], ["y"])], {"x": [2]}, ["y"], [bad]))


def test_wrong_amount_of_data() -> None:
    bad = TensorProto(name="w", data_type=F, dims=[4], raw_data=b"abc")
    with pytest.raises(FileError, match="3 bytes"):
        load_onnx(model([helper.make_node("Relu", ["w"], ["y"])], {"x": [2]}, ["y"], [bad]))


def test_duplicate_names() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])]
    with pytest.raises(DuplicateName):
        load_onnx(model(nodes, {"x": [2]}, ["y"]))


def test_missing_value_and_output() -> None:
    with pytest.raises(UnknownName):
        load_onnx(model([helper.make_node("Relu", ["q"], ["y"])], {"x": [2]}, ["y"]))
    with pytest.raises(UnknownName):
        load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["z"]))


def test_mixed_types() -> None:
    w = numpy_helper.from_array(np.ones(2, np.float64), "w")
    with pytest.raises(TypeMismatch):
        load_onnx(model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, ["y"], [w]))


def test_strings_are_refused() -> None:
    node = helper.make_node("StringConcat", ["x", "x"], ["y"])
    with pytest.raises(UnsupportedOp, match="StringConcat"):
        load_onnx(model([node], {"x": [2]}, ["y"]))


def test_data_dependent_shape_is_refused() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=F),
        helper.make_node("Softmax", ["f"], ["y"], axis=1, name="total"),
    ]
    with pytest.raises(UnsupportedOp, match="depends on values") as caught:
        load_onnx(model(nodes, {"x": [2]}, ["y"]))
    assert caught.value.loc.name == "total"


def test_data_dependent_output_is_cut_by_the_host() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    module = load_onnx(model([node], {"x": [4]}, ["y"]))
    outputs = evaluate(module.main, {"x": np.asarray([0, 2, 0, 1], np.float32)})
    np.testing.assert_array_equal(pack_outputs(module, list(outputs))[0], [[1, 3]])


def test_large_data_is_never_a_compile_time_value() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["n"], ["y"]),
    ]
    with pytest.raises(UnsupportedOp, match="depends on x"):
        open_onnx(model(nodes, {"x": [100]}, ["y"])).shape_inputs()
    small = open_onnx(model(nodes, {"x": [2]}, ["y"]))
    assert small.shape_inputs() == ("x",)
    made = small.specialise(consts={"x": np.asarray([2, 3], np.float32)})
    assert made.main.outputs[0].shape == (2, 3)


def test_free_dims_are_listed() -> None:
    free = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", 3, "width"]}, ["y"])
    with pytest.raises(UnboundDims, match="batch, width"):
        load_onnx(free)
    module = load_onnx(free, dims={"batch": 2, "width": 5})
    assert module.main.outputs[0].shape == (2, 3, 5)
    assert load_onnx(free, shapes={"x": (1, 3, 7)}).main.inputs[0].shape == (1, 3, 7)
    with pytest.raises(InputError):
        load_onnx(free, shapes={"x": (1, 4, 7)})
    with pytest.raises(InputError):
        load_onnx(free, shapes={"q": (1, 4, 7)})


def test_newer_opset() -> None:
    with pytest.raises(UnsupportedOp, match="opset"):
        load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"], opset=999))


def external(location: str, offset: int = 0, length: int = 16) -> onnx.ModelProto:
    w = TensorProto(name="w", data_type=F, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        w.external_data.add(key=key, value=str(value))
    return model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], [w])


def test_external_data(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    values = np.arange(4, dtype=np.float32)
    (folder / "w.bin").write_bytes(b"\0" * 8 + values.tobytes())
    (tmp_path / "secret.bin").write_bytes(values.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = folder / "m.onnx"
    path.write_bytes(external("w.bin", 8).SerializeToString())
    constant = load_onnx(path).main.ops[0]
    np.testing.assert_array_equal(constant.attributes()["value"], values)
    bad = [("../secret.bin", 0), ("link.bin", 0), (str(tmp_path / "secret.bin"), 0)]
    bad += [("w.bin", 16), ("w.bin", -4), ("gone.bin", 0), ("", 0)]
    for location, offset in bad:
        path.write_bytes(external(location, offset).SerializeToString())
        with pytest.raises(FileError):
            load_onnx(path)
    with pytest.raises(FileError, match="outside"):
        load_onnx(external("w.bin"))


def test_deep_nesting() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["o"])],
        "b",
        [],
        [helper.make_empty_tensor_value_info("o")],
    )
    for _ in range(90):
        node = helper.make_node("If", ["c"], ["o"], then_branch=body, else_branch=body)
        body = helper.make_graph([node], "b", [], [helper.make_empty_tensor_value_info("o")])
        if body.ByteSize() > 1 << 18:
            break
    nested = model(list(body.node), {"x": [2]}, ["o"])
    nested.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    with soon(20):
        assert outcome(nested)


def test_recursive_function() -> None:
    node = helper.make_node("F", ["x"], ["y"], domain="local")
    function = helper.make_function(
        "local", "F", ["x"], ["y"], [node], [helper.make_opsetid("local", 1)]
    )
    graph = model([node], {"x": [2]}, ["y"])
    graph.opset_import.append(helper.make_opsetid("local", 1))
    graph.functions.append(function)
    with soon(), pytest.raises(PoplarPyError, match="nested"):
        load_onnx(graph)
