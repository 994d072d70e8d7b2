"""Real models give onnxruntime's outputs: on one machine, spread over IPUs, and on replicas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from model_cases import CASES, LIGHT, Array, Case, Inputs, assert_same, he_scaled, light_path

import poplar_py as pp

onnxruntime.set_default_logger_severity(3)


def reference(model: Path | onnx.ModelProto, inputs: Inputs) -> dict[str, Array]:
    """onnxruntime's outputs by name."""
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return {n: np.asarray(v) for n, v in zip(names, session.run(names, inputs), strict=True)}


def check(model: Path | onnx.ModelProto, inputs: Inputs, **options: object) -> pp.Engine:
    """Runs a model for its inputs and compares all outputs."""
    engine = pp.Engine(pp.load(model), **options)  # type: ignore[arg-type]
    outputs = engine.run(inputs)
    for name, expected in reference(model, inputs).items():
        assert_same(outputs[name], expected, name)
    return engine


def marked(case: Case) -> object:
    return pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_model(case: Case) -> None:
    check(case.path(), case.inputs(1))


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
def test_spread(case: Case) -> None:
    engine = check(case.path(), case.inputs(1), placement="spread")
    assert engine.executable.ipus == 4
    assert sum(s.bytes_between for s in engine.executable.tile.steps) > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES if c.batched])
def test_replicas(case: Case) -> None:
    inputs = case.inputs(4)
    engine = pp.Engine(pp.load(case.path()), replicas=4)
    outputs = engine.run(inputs)
    if case.name == "ddddocr_det":  # its batch is fixed at one: the reference runs four times
        parts = [reference(case.path(), {"images": image[None]}) for image in inputs["images"]]
        expected = {n: np.concatenate([p[n] for p in parts]) for n in parts[0]}
    else:
        expected = reference(case.path(), inputs)
    for name, array in expected.items():
        assert_same(outputs[name], array, name)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["as_is", "he"])
@pytest.mark.parametrize("name", LIGHT)
def test_light(name: str, weights: str) -> None:
    path = light_path(name)
    model = onnx.load(str(path))
    given = {tensor.name for tensor in model.graph.initializer}
    info = next(value for value in model.graph.input if value.name not in given)
    shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
    image = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    check(he_scaled(model) if weights == "he" else path, {info.name: image})


def test_decoder_in_a_loop() -> None:
    """Greedy decoding of one name: each step gets a longer prefix and the state of the last."""
    encoder, decoder = (
        next(c for c in CASES if c.name == f"romanizer_{part}") for part in ("encoder", "decoder")
    )
    source = encoder.inputs(1)
    ours, theirs = pp.Engine(pp.load(decoder.path())), decoder.path()
    encoded = pp.Engine(pp.load(encoder.path())).run(source)
    prefix = np.array([[1]], np.int64)
    hidden = encoded["hidden_out"]
    for _ in range(3):
        inputs: Inputs = {
            "prefix": prefix,
            "memory": encoded["memory_out"],
            "src_mask": encoded["src_mask_out"],
            "hidden": hidden,
        }
        outputs = ours.run(inputs)
        for name, expected in reference(theirs, inputs).items():
            assert_same(outputs[name], expected, name)
        hidden = outputs["hidden_out"]
        best = outputs["logprobs"].argmax(axis=-1).astype(np.int64)
        prefix = np.concatenate([prefix, best[:, None]], axis=1)
