"""Poplar in Python: graphs of variables and vertices on tiles, and the programs that run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.lazy import lazy_names

if TYPE_CHECKING:
    from poplar_py.driver.poplar_compile import compile_graph
    from poplar_py.driver.poplar_engine import Engine
    from poplar_py.executable.executable import Executable
    from poplar_py.poplar import errors, program
    from poplar_py.poplar.cycles import cycle_count, cycle_stamp
    from poplar_py.poplar.debug_context import DebugContext
    from poplar_py.poplar.device import Device, DeviceManager
    from poplar_py.poplar.edges import Edges
    from poplar_py.poplar.enums import (
        CodeletFileType,
        FunctionBufferMappingType,
        RelativeSyncDelayType,
        ReplicatedStreamMode,
        SerializationFormat,
        SyncType,
        TargetType,
        TensorCloneDuplicationMethod,
        TensorCloneMethod,
        UpsampleMethod,
        VariableMappingMethod,
    )
    from poplar_py.poplar.estimates import VertexIntrospector, VertexPerfEstimate
    from poplar_py.poplar.floating import (
        FloatingPointBehaviour,
        set_floating_point_behaviour,
        set_stochastic_rounding,
    )
    from poplar_py.poplar.graph import Graph
    from poplar_py.poplar.groups import ComputeSet, StateVectors, VertexGroup
    from poplar_py.poplar.ipu_model import IPUModel
    from poplar_py.poplar.layout import AlignedBlock, align_views
    from poplar_py.poplar.mapping import Atlas, Interval, Mapping, TensorMapping
    from poplar_py.poplar.options import OptionFlags
    from poplar_py.poplar.stream_callback import StreamCallback
    from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
    from poplar_py.poplar.tensor import Tensor, append, concat
    from poplar_py.poplar.type_names import (
        BOOL,
        CHAR,
        DOUBLE,
        FLOAT,
        HALF,
        INT,
        LONG,
        LONGLONG,
        SHORT,
        SIGNED_CHAR,
        UNSIGNED_CHAR,
        UNSIGNED_INT,
        UNSIGNED_LONG,
        UNSIGNED_LONGLONG,
        UNSIGNED_SHORT,
    )
    from poplar_py.poplar.variable import Variable
    from poplar_py.poplar.vertex_ref import FieldRef, VertexRef
    from poplar_py.target import Target
    from poplar_py.types import DType

__all__ = [
    "BOOL",
    "CHAR",
    "DOUBLE",
    "FLOAT",
    "HALF",
    "INT",
    "LONG",
    "LONGLONG",
    "SHORT",
    "SIGNED_CHAR",
    "UNSIGNED_CHAR",
    "UNSIGNED_INT",
    "UNSIGNED_LONG",
    "UNSIGNED_LONGLONG",
    "UNSIGNED_SHORT",
    "AlignedBlock",
    "Atlas",
    "CodeletFileType",
    "ComputeSet",
    "DType",
    "DataStream",
    "DebugContext",
    "Device",
    "DeviceManager",
    "Edges",
    "Engine",
    "Executable",
    "FieldRef",
    "FloatingPointBehaviour",
    "Function",
    "FunctionBufferMappingType",
    "Graph",
    "HostFunction",
    "IPUModel",
    "Interval",
    "Mapping",
    "OptionFlags",
    "RelativeSyncDelayType",
    "RemoteBuffer",
    "ReplicatedStreamMode",
    "SerializationFormat",
    "StateVectors",
    "StreamCallback",
    "SyncType",
    "Target",
    "TargetType",
    "Tensor",
    "TensorCloneDuplicationMethod",
    "TensorCloneMethod",
    "TensorMapping",
    "UpsampleMethod",
    "Variable",
    "VariableMappingMethod",
    "VertexGroup",
    "VertexIntrospector",
    "VertexPerfEstimate",
    "VertexRef",
    "align_views",
    "append",
    "compile_graph",
    "concat",
    "cycle_count",
    "cycle_stamp",
    "errors",
    "program",
    "set_floating_point_behaviour",
    "set_stochastic_rounding",
]

_HOMES = {
    "poplar_py.driver.poplar_compile": ("compile_graph",),
    "poplar_py.driver.poplar_engine": ("Engine",),
    "poplar_py.executable.executable": ("Executable",),
    "poplar_py.poplar.cycles": ("cycle_count", "cycle_stamp"),
    "poplar_py.poplar.debug_context": ("DebugContext",),
    "poplar_py.poplar.device": ("Device", "DeviceManager"),
    "poplar_py.poplar.edges": ("Edges",),
    "poplar_py.poplar.enums": (
        "CodeletFileType",
        "FunctionBufferMappingType",
        "RelativeSyncDelayType",
        "ReplicatedStreamMode",
        "SerializationFormat",
        "SyncType",
        "TargetType",
        "TensorCloneDuplicationMethod",
        "TensorCloneMethod",
        "UpsampleMethod",
        "VariableMappingMethod",
    ),
    "poplar_py.poplar.estimates": ("VertexIntrospector", "VertexPerfEstimate"),
    "poplar_py.poplar.floating": (
        "FloatingPointBehaviour",
        "set_floating_point_behaviour",
        "set_stochastic_rounding",
    ),
    "poplar_py.poplar.graph": ("Graph",),
    "poplar_py.poplar.groups": ("ComputeSet", "StateVectors", "VertexGroup"),
    "poplar_py.poplar.ipu_model": ("IPUModel",),
    "poplar_py.poplar.layout": ("AlignedBlock", "align_views"),
    "poplar_py.poplar.mapping": ("Atlas", "Interval", "Mapping", "TensorMapping"),
    "poplar_py.poplar.options": ("OptionFlags",),
    "poplar_py.poplar.vertex_ref": ("FieldRef", "VertexRef"),
    "poplar_py.poplar.stream_callback": ("StreamCallback",),
    "poplar_py.poplar.streams": ("DataStream", "Function", "HostFunction", "RemoteBuffer"),
    "poplar_py.poplar.tensor": ("Tensor", "append", "concat"),
    "poplar_py.poplar.type_names": (
        "BOOL",
        "CHAR",
        "DOUBLE",
        "FLOAT",
        "HALF",
        "INT",
        "LONG",
        "LONGLONG",
        "SHORT",
        "SIGNED_CHAR",
        "UNSIGNED_CHAR",
        "UNSIGNED_INT",
        "UNSIGNED_LONG",
        "UNSIGNED_LONGLONG",
        "UNSIGNED_SHORT",
    ),
    "poplar_py.poplar.variable": ("Variable",),
    "poplar_py.target": ("Target",),
    "poplar_py.types": ("DType",),
}
"""Where each name is defined: most users of the tile level's arrays build no graph, and what stands
above this level (the engine) is loaded when it is asked for."""

__getattr__ = lazy_names(__name__, _HOMES, modules=("errors", "program"))
