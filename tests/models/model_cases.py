"""Real models from the packages of requirements-models.txt, with inputs that mean something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

Array = npt.NDArray[Any]
Inputs = dict[str, Array]


def packaged_file(package: str, ending: str) -> Path:
    """A file of an installed distribution; skips the test when the package is missing."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        pytest.skip(f"package {package} of requirements-models.txt is not installed")
    found = next(file for file in files if file.as_posix().endswith(ending))
    return Path(str(found.locate()))


@dataclass(frozen=True)
class Case:
    """A model file, its inputs for a batch size, and the batch size of a single run."""

    name: str
    package: str
    ending: str
    inputs: Callable[[int], Inputs]
    slow: bool = False
    batched: bool = True
    """Whether replicas may split a batch (a static batch of 1 may)."""
    consts: dict[str, Array] = field(default_factory=dict[str, Array])

    def path(self) -> Path:
        return packaged_file(self.package, self.ending)


def images(*shape: int, name: str = "x") -> Callable[[int], Inputs]:
    """Smooth random images of values in [-1, 1]: noise alone drives detectors into nonsense."""

    def make(batch: int) -> Inputs:
        rng = np.random.default_rng(7)
        coarse = rng.uniform(-1, 1, (batch, shape[0], 8, 8)).astype(np.float32)
        rows = np.linspace(0, 7, shape[1]).astype(int)
        columns = np.linspace(0, 7, shape[2]).astype(int)
        smooth = coarse[:, :, rows][:, :, :, columns]
        noise = rng.normal(0, 0.1, (batch, *shape)).astype(np.float32)
        return {name: (smooth + noise).astype(np.float32)}

    return make


def file_bytes(batch: int) -> Inputs:
    """2,048 tokens a file: text, then padding (256), then other text."""
    rng = np.random.default_rng(8)
    tokens = np.full((batch, 2048), 256, np.int32)
    tokens[:, :900] = rng.integers(32, 127, (batch, 900))
    tokens[:, -300:] = rng.integers(9, 127, (batch, 300))
    return {"bytes": tokens}


def speech(batch: int) -> Inputs:
    """One frame of 512 samples at 16 kHz with 64 samples of context."""
    rng = np.random.default_rng(9)
    time = np.arange(576) / 16000
    tone = np.sin(2 * np.pi * 220 * time) * 0.3
    frame = (tone + rng.normal(0, 0.02, (batch, 576))).astype(np.float32)
    state = rng.normal(0, 0.1, (2, batch, 128)).astype(np.float32)
    return {"input": frame, "sr": np.array(16000, np.int64), "state": state}


def audio(batch: int) -> Inputs:
    """Two seconds of two notes in noise at 22,050 Hz.

    The model takes logarithms of band powers: without the noise, empty bands are rounding errors.
    """
    time = np.arange(43844) / 22050
    wave = 0.4 * np.sin(2 * np.pi * 440 * time) + 0.2 * np.sin(2 * np.pi * 660 * time)
    rng = np.random.default_rng(10)
    noisy = wave[None, :, None] + rng.normal(0, 0.2, (batch, 43844, 1))
    return {"serving_default_input_2:0": noisy.astype(np.float32)}


def name_source(batch: int) -> Inputs:
    """Twelve characters a name, two of them padding."""
    rng = np.random.default_rng(11)
    mask = np.ones((batch, 12), np.bool_)
    mask[:, 10:] = False
    return {"src": rng.integers(4, 40, (batch, 12), dtype=np.int64), "src_mask": mask}


def name_prefix(batch: int) -> Inputs:
    """A decoder step with a prefix of three characters."""
    rng = np.random.default_rng(12)
    mask = np.ones((batch, 12), np.bool_)
    mask[:, 10:] = False
    return {
        "prefix": rng.integers(4, 40, (batch, 3), dtype=np.int64),
        "memory": rng.normal(0, 0.5, (batch, 12, 256)).astype(np.float32),
        "src_mask": mask,
        "hidden": rng.normal(0, 0.5, (batch, 2, 256)).astype(np.float32),
    }


CASES = [
    Case("magika", "magika", "standard_v3_3/model.onnx", file_bytes),
    Case(
        "rapidocr_cls",
        "rapidocr-onnxruntime",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        images(3, 48, 192),
    ),
    Case(
        "rapidocr_rec",
        "rapidocr-onnxruntime",
        "ch_PP-OCRv4_rec_infer.onnx",
        images(3, 48, 160),
        slow=True,
    ),
    Case(
        "ddddocr_det", "ddddocr", "common_det.onnx", images(3, 416, 416, name="images"), slow=True
    ),
    Case("silero_vad", "silero-vad", "silero_vad_op18_ifless.onnx", speech),
    Case("basic_pitch", "basic-pitch", "icassp_2022/nmp.onnx", audio, slow=True),
    Case("romanizer_encoder", "arabic-name-romanizer", "resources/encoder.onnx", name_source),
    Case("romanizer_decoder", "arabic-name-romanizer", "resources/decoder.onnx", name_prefix),
]

LIGHT = [
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
]


def light_path(name: str) -> Path:
    """One of the nine topologies that the onnx package carries."""
    return Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"


def he_scaled(model: onnx.ModelProto, seed: int = 5) -> onnx.ModelProto:
    """A copy whose generated weights are seeded, He-scaled random ones.

    The light models fill weights with constants (ConstantOfShape nodes); those of rank two or more
    are replaced. Vectors keep their value, so batch norms stay sane.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rng = np.random.default_rng(seed)
    shapes = {i.name: numpy_helper.to_array(i) for i in copy.graph.initializer}
    kept: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        shape = shapes.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        if shape is None or len(shape) < 2:
            kept.append(node)
            continue
        sizes = tuple(int(d) for d in shape)
        scale = (2.0 / max(1, int(np.prod(sizes[1:])))) ** 0.5
        weights = (rng.standard_normal(sizes) * scale).astype(np.float32)
        copy.graph.initializer.append(numpy_helper.from_array(weights, node.output[0]))
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    return copy


def assert_same(ours: Array, reference: Array, name: str) -> None:
    """The project's rule for "same output as onnxruntime"."""
    assert ours.shape == reference.shape, name
    if reference.dtype.kind != "f":
        np.testing.assert_array_equal(ours, reference, err_msg=name)
        return
    wide, expected = ours.astype(np.float64), reference.astype(np.float64)
    for special in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(special(wide), special(expected), err_msg=name)
    finite = np.isfinite(expected)
    if not finite.any():
        return
    limit = 1e-4 * np.abs(expected[finite]).max() + 1e-5
    worst = np.abs(wide[finite] - expected[finite]).max()
    assert worst <= limit, f"{name}: differs by {worst:.3g}, allowed {limit:.3g}"
