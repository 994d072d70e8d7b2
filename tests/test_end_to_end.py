"""From a file to outputs: text models, ONNX models, every way of running, one set of bits."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from model_cases import Array, assert_same
from onnx import TensorProto, helper, numpy_helper

import poplar_py as pp
from poplar_py import ir, poplar
from poplar_py.eval import evaluate
from poplar_py.runtime.engine import TileEngine

SMALL = {"tiles_per_ipu": 64}


def reference(model: pp.LoadedModel, inputs: dict[str, Array]) -> list[Array]:
    """What the reference interpreter makes of a text model."""
    shapes = {name: array.shape for name, array in inputs.items()}
    module = model.specialise({}, shapes, {}, {}).module
    return list(evaluate(module.main, inputs))


@pytest.fixture(scope="module")
def mlp(repo_root: Path) -> pp.LoadedModel:
    return pp.load(repo_root / "samples/models/mlp.pml")


def images(batch: int) -> dict[str, Array]:
    rng = np.random.default_rng(batch)
    return {"x": rng.standard_normal((batch, 784)).astype(np.float32)}


@pytest.mark.parametrize("batch", [1, 8])
def test_mlp(mlp: pp.LoadedModel, batch: int) -> None:
    inputs = images(batch)
    outputs = pp.Engine(mlp).run(inputs)
    (expected,) = reference(mlp, inputs)
    assert_same(outputs["logits"], expected, "logits")


@pytest.mark.parametrize("model", ["mlp", "two_ipus"])
def test_one_set_of_bits(model: str, repo_root: Path) -> None:
    """Threads and faithful exchange change nothing."""
    loaded = pp.load(repo_root / f"samples/models/{model}.pml")
    inputs = images(8)
    executable = pp.compile(loaded, dims={"batch": 8})
    runs = [
        pp.Engine(executable, threads=threads, faithful_exchange=faithful).run(inputs)["logits"]
        for threads, faithful in ((1, False), (2, False), (4, False), (1, True), (2, True))
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(other, runs[0])


def test_placement_by_hand_and_spread(repo_root: Path, mlp: pp.LoadedModel) -> None:
    inputs = images(8)
    by_hand = pp.load(repo_root / "samples/models/two_ipus.pml")
    engine = pp.Engine(by_hand)
    (expected,) = reference(by_hand, inputs)
    assert_same(engine.run(inputs)["logits"], expected, "by hand")
    assert engine.executable.ipus == 2
    assert sum(step.bytes_between for step in engine.executable.tile.steps) > 0
    spread = pp.Engine(mlp, placement="spread")
    (expected,) = reference(mlp, inputs)
    assert_same(spread.run(inputs)["logits"], expected, "spread")
    assert spread.executable.ipus == 4
    assert spread.report().idle_ipus == 0


def test_replicas_split_the_batch(mlp: pp.LoadedModel) -> None:
    inputs = images(8)
    engine = pp.Engine(mlp, replicas=4)
    (expected,) = reference(mlp, inputs)
    assert_same(engine.run(inputs)["logits"], expected, "logits")
    assert engine.executable.signature.inputs[0].type.shape == (2, 784)


def test_engine_specialises_and_remembers(mlp: pp.LoadedModel) -> None:
    engine = pp.Engine(mlp)
    for batch in (1, 2, 1):
        engine.run(images(batch))
    first = engine.executable
    engine.run(images(2))
    engine.run(images(1))
    assert engine.executable is first


def test_pexe(mlp: pp.LoadedModel, tmp_path: Path) -> None:
    inputs = images(8)
    executable = pp.compile(mlp, dims={"batch": 8})
    expected = pp.Engine(executable).run(inputs)["logits"]
    executable.save(tmp_path / "mlp.pexe")
    loaded = pp.Executable.load(tmp_path / "mlp.pexe")
    np.testing.assert_array_equal(pp.Engine(loaded).run(inputs)["logits"], expected)


def small_cnn() -> onnx.ModelProto:
    """Convolution, batch norm, relu, pooling, a residual, a dense layer, softmax."""
    rng = np.random.default_rng(4)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        array = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(array.astype(np.float32), name)

    weights = [
        weight("w1", 8, 3, 3, 3), weight("w2", 8, 8, 3, 3), weight("w3", 5, 8 * 7 * 7),
        weight("b3", 5), *(weight(n, 8) for n in ("scale", "shift", "mean")),
        numpy_helper.from_array(np.linspace(0.5, 1.5, 8, dtype=np.float32), "var"),
    ]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "c1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["n"], "bn"),
        helper.make_node("Relu", ["n"], ["r"], "r1"),
        helper.make_node("Conv", ["r", "w2"], ["c"], "c2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "r"], ["s"], "add"),
        helper.make_node("MaxPool", ["s"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["g"], "dense", transB=1),
        helper.make_node("Softmax", ["g"], ["y"], "softmax"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 14, 14])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph(nodes, "cnn", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("placement", ["one", "spread"])
@pytest.mark.parametrize("batch", [1, 3])
def test_cnn(batch: int, placement: str) -> None:
    model = small_cnn()
    rng = np.random.default_rng(batch)
    inputs = {"x": rng.standard_normal((batch, 3, 14, 14)).astype(np.float32)}
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = np.asarray(session.run(None, inputs)[0])
    engine = pp.Engine(pp.load(model), placement=placement, **SMALL)
    assert_same(engine.run(inputs)["y"], expected, "y")


def test_steps_name_their_nodes() -> None:
    engine = pp.Engine(pp.load(small_cnn()), **SMALL)
    engine.run({"x": np.ones((1, 3, 14, 14), np.float32)})
    report = engine.report()
    places = " ".join(step.location for step in report.steps)
    assert "'pool'" in places
    assert "'dense'" in places
    assert report.cycles == sum(step.cycles for step in report.steps)


def test_wrong_inputs_are_told_all_at_once(mlp: pp.LoadedModel) -> None:
    engine = pp.Engine(pp.compile(mlp, dims={"batch": 2}))
    with pytest.raises(pp.PoplarPyError, match="has shape"):
        engine.run({"x": np.zeros((3, 784), np.float32)})
    with pytest.raises(pp.PoplarPyError, match="missing"):
        engine.run({})


def test_nothing_is_kept_of_a_dropped_engine(repo_root: Path) -> None:
    """Who compiles fifty models in one process holds the memory of one."""

    def live() -> list[str]:
        gc.collect()
        kinds = (poplar.Graph, ir.Module, TileEngine)
        return [type(found).__name__ for found in gc.get_objects() if type(found) in kinds]

    before = sorted(live())
    engine = pp.Engine(pp.load(repo_root / "samples/models/mlp.pml"), tiles_per_ipu=24)
    engine.run(images(3))
    assert "TileEngine" in live()
    del engine
    assert sorted(live()) == before
