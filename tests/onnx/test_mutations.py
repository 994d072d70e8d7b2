"""Valid models with random damage: an error of the project or a module, nothing else, and soon."""

from __future__ import annotations

import random
import time
import warnings
from typing import Any

import node_cases
import onnx
import pytest

from poplar_py.diagnostics import PoplarPyError
from poplar_py.frontends.onnx import open_onnx

NUMBERS = (0, -1, 1, 2, 7, -2, 100, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, -(2**63), 2**63 - 1)
OPS = "Relu Conv Reshape Loop If Foo Resize TopK LSTM Gather MaxPool Einsum Scan Pad Slice Unique"


def damage(r: random.Random, model: onnx.ModelProto) -> None:
    """Change one to three places of a model."""
    graph = model.graph
    kinds = (_attribute, _drop, _rename, _input_type, _node, _opset, _weight)
    for _ in range(r.choice((1, 1, 2, 3))):
        if graph.node:
            r.choice(kinds)(r, model)


def _attribute(r: random.Random, model: onnx.ModelProto) -> None:
    node = r.choice(model.graph.node)
    if not node.attribute:
        return
    a = r.choice(node.attribute)
    if a.type == onnx.AttributeProto.INT:
        a.i = r.choice(NUMBERS)
    elif a.type == onnx.AttributeProto.INTS:
        if a.ints and r.random() < 0.7:
            a.ints[r.randrange(len(a.ints))] = r.choice(NUMBERS)
        else:
            a.ints.append(r.choice(NUMBERS))
    elif a.type == onnx.AttributeProto.STRING:
        a.s = r.choice((b"", b"foo", b"\xff\xfe", b"linear"))
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = r.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    elif a.type == onnx.AttributeProto.TENSOR and a.t.dims:
        a.t.dims[0] = r.choice(NUMBERS)


def _drop(r: random.Random, model: onnx.ModelProto) -> None:
    node = r.choice(model.graph.node)
    if node.attribute and r.random() < 0.5:
        del node.attribute[r.randrange(len(node.attribute))]
    elif node.input:
        del node.input[r.randrange(len(node.input))]


def _rename(r: random.Random, model: onnx.ModelProto) -> None:
    node = r.choice(model.graph.node)
    names = ["", "nope", *(i.name for i in model.graph.input), *node.output]
    if node.input and r.random() < 0.8:
        node.input[r.randrange(len(node.input))] = r.choice(names)
    else:
        node.input.append(r.choice(names))


def _input_type(r: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.input:
        return
    kind = r.choice(model.graph.input).type.tensor_type
    if kind.shape.dim and r.random() < 0.7:
        r.choice(kind.shape.dim).dim_value = r.choice(NUMBERS)
    else:
        kind.elem_type = r.randrange(30)


def _node(r: random.Random, model: onnx.ModelProto) -> None:
    r.choice(model.graph.node).op_type = r.choice(OPS.split())


def _opset(r: random.Random, model: onnx.ModelProto) -> None:
    model.opset_import[0].version = r.choice((1, 7, 11, 13, 17, 21, 28, 99, 0, -3))


def _weight(r: random.Random, model: onnx.ModelProto) -> None:
    if model.graph.initializer:
        weight = r.choice(model.graph.initializer)
        if weight.dims:
            weight.dims[0] = r.choice(NUMBERS)


def outcome(model: onnx.ModelProto, feeds: dict[str, Any] | None) -> str:
    try:
        opened = open_onnx(model)
        if feeds is None:
            opened.specialise()
        else:
            opened.specialise_for(feeds)
    except PoplarPyError as error:
        return str(error)
    return "fine"


@pytest.mark.parametrize("count", [300, pytest.param(4000, marks=pytest.mark.slow)])
def test_damaged_models(count: int) -> None:
    r = random.Random(count)
    cases = node_cases.all_cases()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(count):
            case = r.choice(cases)
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            names = [i.name for i in model.graph.input]
            damage(r, model)
            feeds = dict(zip(names, map(node_cases.as_array, case.data[0][0]), strict=False))
            start = time.perf_counter()
            text = outcome(model, feeds if r.random() < 0.7 else None)
            assert text == "fine" or text.startswith("error["), case.name
            assert time.perf_counter() - start < 5, case.name
