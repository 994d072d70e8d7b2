"""Small models written as text: their form, their weights, and how they are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.parser
from onnx import numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Inputs = dict[str, Array]
Weight = tuple[int, ...] | Array | np.generic


def same(model: onnx.ModelProto) -> onnx.ModelProto:
    return model


@dataclass(frozen=True)
class Kind:
    """Signature, nodes and weights of a model, and its inputs from a generator.

    A weight is an array, or a shape: He-scaled normals for names from `w` on, `s*` positive scales.
    `convert` is applied to the built model: quantisation, other element types, other opsets.
    """

    inputs: str
    outputs: str
    nodes: str
    weights: dict[str, Weight]
    feeds: Callable[[np.random.Generator], Inputs]
    opset: int = 17
    convert: Callable[[onnx.ModelProto], onnx.ModelProto] = field(default=same)
    tolerance: float = 1e-4


def i64(*values: int) -> Array:
    """A one-dimensional tensor of shapes, axes or indices."""
    return np.array(values, np.int64)


def floats(**shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Inputs]:
    def make(r: np.random.Generator) -> Inputs:
        return {k: r.standard_normal(shape).astype(np.float32) for k, shape in shapes.items()}

    return make


def weight(r: np.random.Generator, name: str, given: Weight) -> Array:
    if not isinstance(given, tuple):
        return np.asarray(given)
    if name.startswith("s"):
        return r.uniform(0.5, 1.5, given).astype(np.float32)
    fan = int(np.prod(given[1:])) or 1
    return (r.standard_normal(given) * np.sqrt(2 / fan)).astype(np.float32)


def build(kind: Kind) -> onnx.ModelProto:
    ir = 8 if kind.opset < 21 else 10
    model = onnx.parser.parse_model(
        f'<ir_version: {ir}, opset_import: ["": {kind.opset}]>\n'
        f"g ({kind.inputs}) => ({kind.outputs}) {{ {kind.nodes} }}"
    )
    r = np.random.default_rng(5)
    for name, given in kind.weights.items():
        model.graph.initializer.append(numpy_helper.from_array(weight(r, name, given), name))
    return kind.convert(model)
