"""Real models: import and reference interpreter against onnxruntime."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest
from real_models import MODELS, RealModel, he_scaled

from poplar_py.eval import evaluate
from poplar_py.frontends.onnx import open_onnx, pack_outputs

QUICK = ("magika", "ocr_cls", "ocr_rec", "silero", "encoder", "decoder", "light_squeezenet")
ALL = [
    pytest.param(m, id=m.name, marks=() if m.name in QUICK else pytest.mark.slow) for m in MODELS
]


def session(model: Any) -> Any:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def assert_parity(got: list[Any], want: list[Any]) -> None:
    """The project's tolerance: 1e-4 of the largest reference value plus 1e-5; integers equal."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
        elif b.size:
            limit = 1e-4 * float(np.abs(b).max()) + 1e-5
            assert float(np.abs(a - b).max()) <= limit


@pytest.mark.parametrize("model", ALL)
def test_parity(model: RealModel) -> None:
    if model.file is None:
        pytest.skip(f"{model.package} is not installed")
    feeds = model.feeds(np.random.default_rng(0))
    made = open_onnx(model.file).specialise_for(feeds)
    got = pack_outputs(made.module, list(evaluate(made.module.main, made.feeds)))
    assert_parity(got, session(str(model.file)).run(None, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "shufflenet", "inception_v2"])
def test_scaled_weights(name: str) -> None:
    model = next(m for m in MODELS if m.name == f"light_{name}")
    if model.file is None:
        pytest.skip("the light models are not installed")
    scaled = he_scaled(onnx.load(str(model.file)), 1)
    feeds = model.feeds(np.random.default_rng(0))
    made = open_onnx(scaled).specialise_for(feeds)
    got = pack_outputs(made.module, list(evaluate(made.module.main, made.feeds)))
    want = session(scaled.SerializeToString()).run(None, feeds)
    assert_parity(got, want)


def test_import_is_fast() -> None:
    model = next(m for m in MODELS if m.name == "ocr_rec")
    if model.file is None:
        pytest.skip("rapidocr is not installed")
    start = time.perf_counter()
    open_onnx(model.file).specialise_for(model.feeds(np.random.default_rng(0)))
    assert time.perf_counter() - start < 2
