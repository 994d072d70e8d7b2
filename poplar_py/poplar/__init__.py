"""Poplar in Python: graphs of variables and vertices on tiles, and the programs that run them."""

from poplar_py.poplar import errors, program
from poplar_py.poplar.cycles import cycle_count, cycle_stamp
from poplar_py.poplar.device import Device, DeviceManager, IPUModel
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.estimates import VertexIntrospector, VertexPerfEstimate
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.groups import ComputeSet, StateVectors, VertexGroup
from poplar_py.poplar.layout import AlignedBlock, align_views
from poplar_py.poplar.mapping import Atlas, Interval, Mapping, TensorMapping
from poplar_py.poplar.options import OptionFlags
from poplar_py.poplar.pending import FieldRef, VertexRef
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
from poplar_py.target import Target

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
    "ComputeSet",
    "DataStream",
    "Device",
    "DeviceManager",
    "Edges",
    "FieldRef",
    "Function",
    "Graph",
    "HostFunction",
    "IPUModel",
    "Interval",
    "Mapping",
    "OptionFlags",
    "RemoteBuffer",
    "StateVectors",
    "StreamCallback",
    "Target",
    "Tensor",
    "TensorMapping",
    "Variable",
    "VertexGroup",
    "VertexIntrospector",
    "VertexPerfEstimate",
    "VertexRef",
    "align_views",
    "append",
    "concat",
    "cycle_count",
    "cycle_stamp",
    "errors",
    "program",
]

_LATER = ("Engine", "compile_graph")


def __getattr__(name: str) -> object:
    """Engine and compile_graph stand above this level; they are loaded when asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("poplar_py.driver.poplar_engine"), name)
