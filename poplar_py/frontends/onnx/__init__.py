"""ONNX models as modules of the model level."""

from __future__ import annotations

from poplar_py.frontends.onnx.model import (
    InputSpec,
    OnnxModel,
    Specialised,
    load_onnx,
    open_onnx,
    pack_outputs,
)
from poplar_py.frontends.onnx.node import IMPORT

__all__ = [
    "IMPORT",
    "InputSpec",
    "OnnxModel",
    "Specialised",
    "load_onnx",
    "open_onnx",
    "pack_outputs",
]
