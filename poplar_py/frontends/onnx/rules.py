"""Importing this registers every rule of `IMPORT`."""

from __future__ import annotations

from poplar_py.frontends.onnx import (
    rules_activation,
    rules_control,
    rules_conv,
    rules_image,
    rules_index,
    rules_layout,
    rules_linear,
    rules_math,
    rules_ml,
    rules_narrow,
    rules_norm,
    rules_quant,
    rules_random,
    rules_recurrent,
    rules_reduce,
    rules_resize,
    rules_select,
    rules_sequence,
    rules_signal,
    rules_training,
)

__all__ = [
    "rules_activation",
    "rules_control",
    "rules_conv",
    "rules_image",
    "rules_index",
    "rules_layout",
    "rules_linear",
    "rules_math",
    "rules_ml",
    "rules_narrow",
    "rules_norm",
    "rules_quant",
    "rules_random",
    "rules_recurrent",
    "rules_reduce",
    "rules_resize",
    "rules_select",
    "rules_sequence",
    "rules_signal",
    "rules_training",
]
