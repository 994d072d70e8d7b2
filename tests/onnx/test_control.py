"""If, Loop, Scan and recurrences: unrolled, on the device, and against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from poplar_py.eval import evaluate
from poplar_py.frontends.onnx import load_onnx, open_onnx, pack_outputs

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Array = np.ndarray[Any, np.dtype[Any]]


def info(name: str, kind: int, shape: list[int] | None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def make(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Any = ()) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> tuple[list[Array], list[str]]:
    """Outputs by the interpreter, and the names of all ops."""
    made = open_onnx(model).specialise_for(feeds)
    got = pack_outputs(made.module, list(evaluate(made.module.main, made.feeds)))
    return got, [op.opname for op in made.module.main.walk()]


def expected(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    made = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return made.run(None, feeds)


def agree(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[str]:
    got, names = run(model, feeds)
    for a, b in zip(got, expected(model, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return names


def branch(op: str) -> Any:
    return helper.make_graph([helper.make_node(op, ["x"], ["o"])], "b", [], [info("o", F, None)])


@pytest.mark.parametrize("flag", [True, False])
def test_if_on_device(flag: bool) -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Neg"), else_branch=branch("Exp")
    )
    model = make([node], [info("c", B, []), info("x", F, [3])], [info("y", F, [3])])
    names = agree(model, {"c": np.asarray(flag), "x": np.arange(3, dtype=np.float32)})
    assert "core.if" in names


def test_if_with_branches_of_other_shapes_is_decided() -> None:
    other = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["o"], keepdims=0)], "b", [], [info("o", F, None)]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=other, else_branch=branch("Neg"))
    model = make([node], [info("c", B, []), info("x", F, [3])], [info("y", F, None)])
    feeds = {"c": np.asarray(True), "x": np.arange(3, dtype=np.float32)}
    made = open_onnx(model).specialise_for(feeds)
    assert made.consts == ("c",)
    assert "core.if" not in agree(model, feeds)


def loop_model(body_nodes: list[Any], scans: int = 0, trip: int | None = None) -> Any:
    body = helper.make_graph(
        body_nodes,
        "body",
        [info("i", INT, []), info("go", B, []), info("a", F, [2])],
        [info("go_out", B, []), info("a_out", F, [2])]
        + [info(f"s{k}", F, [2]) for k in range(scans)],
    )
    node = helper.make_node(
        "Loop", ["m", "c", "x"], ["y", *(f"t{k}" for k in range(scans))], body=body
    )
    weights = [] if trip is None else [numpy_helper.from_array(np.asarray(trip), "m")]
    inputs = [info("c", B, []), info("x", F, [2])] + ([info("m", INT, [])] if trip is None else [])
    outs = [info("y", F, [2])] + [info(f"t{k}", F, None) for k in range(scans)]
    return make([node], inputs, outs, weights)


HALVE = [
    helper.make_node("Constant", [], ["half"], value_float=0.5),
    helper.make_node("Mul", ["a", "half"], ["a_out"]),
]


def test_loop_with_count_on_device() -> None:
    nodes = [*HALVE, helper.make_node("Identity", ["go"], ["go_out"])]
    model = loop_model(nodes)
    for count in (0, 3, 9):
        feeds = {
            "m": np.asarray(count),
            "c": np.asarray(True),
            "x": np.asarray([1.0, -8.0], np.float32),
        }
        assert "core.loop" in agree(model, feeds)


def test_while_loop_on_device() -> None:
    nodes = [
        *HALVE,
        helper.make_node("ReduceMax", ["a_out"], ["top"], keepdims=0),
        helper.make_node("Constant", [], ["edge"], value_float=0.1),
        helper.make_node("Greater", ["top", "edge"], ["go_out"]),
    ]
    model = loop_model(nodes)
    feeds = {
        "m": np.asarray(50),
        "c": np.asarray(True),
        "x": np.asarray([1.0, -8.0], np.float32),
    }
    assert "core.loop" in agree(model, feeds)


@pytest.mark.parametrize("trip", [2, 50, 2**63 - 1])
def test_while_loop_with_known_count(trip: int) -> None:
    nodes = [
        *HALVE,
        helper.make_node("ReduceMax", ["a_out"], ["top"], keepdims=0),
        helper.make_node("Constant", [], ["edge"], value_float=0.1),
        helper.make_node("Greater", ["top", "edge"], ["go_out"]),
    ]
    feeds = {"c": np.asarray(True), "x": np.asarray([1.0, -8.0], np.float32)}
    assert "core.loop" in agree(loop_model(nodes, 0, trip), feeds)


@pytest.mark.parametrize("trip", [1, 5, 200])
def test_loop_collects_outputs(trip: int) -> None:
    nodes = [
        *HALVE,
        helper.make_node("Cast", ["i"], ["fi"], to=F),
        helper.make_node("Add", ["a", "fi"], ["s0"]),
        helper.make_node("Identity", ["go"], ["go_out"]),
    ]
    model = loop_model(nodes, 1, trip)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(True), "c"))
    del model.graph.input[0]
    names = agree(model, {"x": np.asarray([1.0, -8.0], np.float32)})
    assert ("core.loop" in names) == (trip == 200)


@pytest.mark.parametrize("steps", [3, 150])
def test_scan(steps: int) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "e"], ["s_out"]),
            helper.make_node("Tanh", ["s_out"], ["o"]),
        ],
        "body",
        [info("s", F, [2]), info("e", F, [2])],
        [info("s_out", F, [2]), info("o", F, [2])],
    )
    node = helper.make_node(
        "Scan",
        ["s0", "x"],
        ["s1", "y"],
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[1],
        scan_output_directions=[1],
    )
    model = make(
        [node],
        [info("s0", F, [2]), info("x", F, [steps, 2])],
        [info("s1", F, [2]), info("y", F, [steps, 2])],
    )
    r = np.random.default_rng(0)
    names = agree(
        model,
        {
            "s0": np.zeros(2, np.float32),
            "x": r.normal(0, 0.1, (steps, 2)).astype(np.float32),
        },
    )
    assert ("core.loop" in names) == (steps == 150)


def recurrent(kind: str, gates: int, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
    r = np.random.default_rng(1)
    steps, batch, inputs, hidden = attributes.pop("steps", 5), 2, 3, 4
    sides = 2 if attributes.get("direction") == "bidirectional" else 1
    biases = 2 * gates * hidden
    weights = {
        "w": r.normal(0, 0.5, (sides, gates * hidden, inputs)),
        "r": r.normal(0, 0.5, (sides, gates * hidden, hidden)),
        "b": r.normal(0, 0.5, (sides, biases)),
    }
    with_lengths = attributes.pop("lengths", False)
    names = ["x", "w", "r", "b", "n" if with_lengths else ""]
    node = helper.make_node(kind, names, ["y", "h"], hidden_size=hidden, **attributes)
    ins = [info("x", F, [steps, batch, inputs])]
    feeds = {"x": r.normal(0, 1, (steps, batch, inputs)).astype(np.float32)}
    if with_lengths:
        ins.append(info("n", TensorProto.INT32, [batch]))
        feeds["n"] = np.asarray([steps, 2], np.int32)
    model = make(
        [node],
        ins,
        [info("y", F, None), info("h", F, None)],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    return model, feeds


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("lengths", [False, True])
def test_recurrent(kind: str, gates: int, direction: str, lengths: bool) -> None:
    model, feeds = recurrent(kind, gates, direction=direction, lengths=lengths)
    names = agree(model, feeds)
    assert (f"nn.{kind.lower()}" in names) == (not lengths)


def test_long_recurrence_with_lengths_is_a_loop() -> None:
    model, feeds = recurrent("LSTM", 4, lengths=True, steps=40)
    assert "core.loop" in agree(model, feeds)


def test_clip_and_linear_reset() -> None:
    agree(*recurrent("LSTM", 4, clip=0.3))
    agree(*recurrent("GRU", 3, linear_before_reset=1))
    agree(*recurrent("RNN", 1, activations=["Relu"]))


def test_local_function_with_attribute() -> None:
    scale = helper.make_node("Constant", [], ["k"])
    ref = onnx.AttributeProto(name="value_float", ref_attr_name="factor")
    ref.type = onnx.AttributeProto.FLOAT
    scale.attribute.append(ref)
    function = helper.make_function(
        "local",
        "Scale",
        ["a"],
        ["b"],
        [scale, helper.make_node("Mul", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 17)],
        ["factor"],
    )
    node = helper.make_node("Scale", ["x"], ["y"], domain="local", factor=3.0)
    model = make([node], [info("x", F, [2])], [info("y", F, [2])])
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    module = load_onnx(model)
    out = evaluate(module.main, {"x": np.asarray([1.0, 2.0], np.float32)})[0]
    np.testing.assert_array_equal(out, [3.0, 6.0])
