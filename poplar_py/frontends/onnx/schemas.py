"""What the onnx package knows of a standard op: defaults of attributes, function bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poplar_py.frontends.onnx import protos
from poplar_py.frontends.onnx.node import Node
from poplar_py.frontends.onnx.proto import TAGS
from poplar_py.frontends.onnx.values import Item, Val

__all__ = ["Attributes", "function_of", "with_defaults"]

Attributes = Mapping[str, protos.AttributeProto]


def function_of(proto: protos.NodeProto, node: Node) -> protos.FunctionProto | None:
    """The body of a standard op as a function of simpler ones, None where it has none."""
    try:
        schema = protos.defs.get_schema(proto.op_type, node.version, node.domain)
    except protos.defs.SchemaError:
        return None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= node.version]
        if versions:
            data = schema.get_function_with_opset_version(max(versions))
            return protos.FunctionProto.FromString(data)
    if schema.has_context_dependent_function:
        return _context_function(schema, proto, node)
    return None


def with_defaults(node: Node, attributes: Attributes) -> Attributes:
    """Attributes of a standard op, those left out by their defaults."""
    try:
        schema = protos.defs.get_schema(node.op_type, node.version, node.domain)
    except protos.defs.SchemaError:
        return attributes
    defaults = {
        name: spec.default_value
        for name, spec in schema.attributes.items()
        if spec.default_value.type != protos.AttributeProto.UNDEFINED
    }
    return {**defaults, **attributes}


def _context_function(
    schema: Any, proto: protos.NodeProto, node: Node
) -> protos.FunctionProto | None:
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
    if not versions:
        return None
    resolved = protos.NodeProto()
    resolved.CopyFrom(proto)
    del resolved.attribute[:]
    for name, attribute in node.attributes.items():
        copy = resolved.attribute.add()
        copy.CopyFrom(attribute)
        copy.name = name
    types = [_type_proto(v) for v in node.inputs]
    data = schema.get_context_dependent_function_with_opset_version(
        max(versions), resolved.SerializeToString(), types
    )
    return protos.FunctionProto.FromString(data) if data else None


def _type_proto(value: Item | None) -> bytes:
    if not isinstance(value, Val):
        return protos.TypeProto().SerializeToString()
    numpy = TAGS[value.tag] if value.tag else value.dtype.numpy
    code = protos.helper.np_dtype_to_tensor_dtype(numpy)
    return protos.helper.make_tensor_type_proto(code, value.shape).SerializeToString()
