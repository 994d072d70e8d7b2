"""The one border to the `onnx` package: its protobuf classes and schemas, typed as Any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class _Meta(type):
        def __getattr__(cls, name: str) -> Any: ...

    class _Proto(metaclass=_Meta):
        def __init__(self, **fields: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    class AttributeProto(_Proto): ...

    class FunctionProto(_Proto): ...

    class GraphProto(_Proto): ...

    class ModelProto(_Proto): ...

    class NodeProto(_Proto): ...

    class SparseTensorProto(_Proto): ...

    class TensorProto(_Proto): ...

    class TypeProto(_Proto): ...

    class ValueInfoProto(_Proto): ...

    defs: Any = None
    helper: Any = None
else:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        SparseTensorProto,
        TensorProto,
        TypeProto,
        ValueInfoProto,
        defs,
        helper,
    )

__all__ = [
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "SparseTensorProto",
    "TensorProto",
    "TypeProto",
    "ValueInfoProto",
    "defs",
    "helper",
]
