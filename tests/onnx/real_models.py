"""Where the real models lie, and small inputs for them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = dict[str, Array]

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def locate(package: str, path: str) -> Path | None:
    """A file of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    found = Path(next(iter(spec.submodule_search_locations))) / path
    return found if found.exists() else None


@dataclass(frozen=True)
class RealModel:
    name: str
    package: str
    path: str
    feeds: Callable[[np.random.Generator], Feeds]

    @property
    def file(self) -> Path | None:
        return locate(self.package, self.path)


def _bytes(r: np.random.Generator) -> Feeds:
    text = (b"import os\nprint(os.getcwd())\n" * 80)[:2048]
    return {"bytes": np.frombuffer(text, np.uint8)[None].astype(np.int32)}


def _image(h: int, w: int, name: str = "x", channels: int = 3) -> Callable[..., Feeds]:
    def make(r: np.random.Generator) -> Feeds:
        return {name: r.normal(0, 0.5, (1, channels, h, w)).astype(np.float32)}

    return make


def _silero(r: np.random.Generator) -> Feeds:
    return {
        "input": r.normal(0, 0.1, (1, 576)).astype(np.float32),
        "sr": np.asarray(16000, np.int64),
        "state": np.zeros((2, 1, 128), np.float32),
    }


def _audio(r: np.random.Generator) -> Feeds:
    t = np.arange(43844) / 22050
    wave = 0.3 * np.sin(2 * np.pi * 440 * t) + 0.3 * r.normal(size=t.size)
    return {"serving_default_input_2:0": wave.astype(np.float32)[None, :, None]}


def _encoder(r: np.random.Generator) -> Feeds:
    src = r.integers(4, 40, (1, 7), dtype=np.int64)
    return {"src": src, "src_mask": np.ones((1, 7), bool)}


def _decoder(r: np.random.Generator) -> Feeds:
    return {
        "prefix": r.integers(1, 40, (1, 3), dtype=np.int64),
        "memory": r.normal(0, 0.5, (1, 7, 256)).astype(np.float32),
        "src_mask": np.ones((1, 7), bool),
        "hidden": r.normal(0, 0.5, (1, 2, 256)).astype(np.float32),
    }


_OCR = "rapidocr_onnxruntime"
MODELS = (
    RealModel("magika", "magika", "models/standard_v3_3/model.onnx", _bytes),
    RealModel("ocr_cls", _OCR, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", _image(48, 192)),
    RealModel("ocr_rec", _OCR, "models/ch_PP-OCRv4_rec_infer.onnx", _image(48, 160)),
    RealModel("ocr_det", _OCR, "models/ch_PP-OCRv4_det_infer.onnx", _image(96, 128)),
    RealModel("det", "ddddocr", "common_det.onnx", _image(416, 416, "images")),
    RealModel("ddddocr", "ddddocr", "common.onnx", _image(64, 96, "input1", 1)),
    RealModel("silero", "silero_vad", "data/silero_vad_op18_ifless.onnx", _silero),
    RealModel("basic_pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx", _audio),
    RealModel("encoder", "arabic_name_romanizer", "resources/encoder.onnx", _encoder),
    RealModel("decoder", "arabic_name_romanizer", "resources/decoder.onnx", _decoder),
    *(
        RealModel(
            f"light_{name}",
            "onnx",
            f"backend/test/data/light/light_{name}.onnx",
            _image(
                224,
                224,
                "gpu_0/data_0" if name in ("resnet50", "shufflenet", "zfnet512") else "data_0",
            ),
        )
        for name in LIGHT
    ),
)


def he_scaled(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A light topology with seeded He-scaled weights in place of its ConstantOfShape nodes."""
    r = np.random.default_rng(seed)
    out = onnx.ModelProto()
    out.CopyFrom(model)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in out.graph.initializer}
    kept = [n for n in out.graph.node if n.op_type != "ConstantOfShape"]
    used = _roles(kept)
    for node in out.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(d) for d in shapes[node.input[0]])
            array = _weights(r, shape, used.get(node.output[0], ""))
            out.graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
    del out.graph.node[:]
    out.graph.node.extend(kept)
    return out


def _roles(nodes: list[onnx.NodeProto]) -> dict[str, str]:
    roles: dict[str, str] = {}
    for node in nodes:
        names = {
            "BatchNormalization": ("", "scale", "zero", "zero", "one"),
            "Unsqueeze": ("scale",),
        }.get(node.op_type, ())
        roles.update(dict(zip(node.input, names, strict=False)))
    return roles


def _weights(r: np.random.Generator, shape: tuple[int, ...], role: str) -> Array:
    if role == "one":
        return r.uniform(0.5, 1.5, shape).astype(np.float32)
    if role == "scale":
        return r.uniform(0.8, 1.2, shape).astype(np.float32)
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 0
    spread = np.sqrt(2 / fan) if fan else 0.05
    return r.normal(0, spread, shape).astype(np.float32)
