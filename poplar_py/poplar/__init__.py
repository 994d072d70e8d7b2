"""Poplar in Python: graphs of variables and vertices on tiles, and the programs that run them."""

from poplar_py.poplar import errors, program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.groups import ComputeSet, StateVectors, VertexGroup
from poplar_py.poplar.layout import AlignedBlock, align_views
from poplar_py.poplar.mapping import Atlas, Interval, Mapping, TensorMapping
from poplar_py.poplar.pending import FieldRef, VertexRef
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor, append, concat
from poplar_py.poplar.variable import Variable
from poplar_py.target import Target

__all__ = [
    "AlignedBlock",
    "Atlas",
    "ComputeSet",
    "DataStream",
    "Edges",
    "FieldRef",
    "Function",
    "Graph",
    "HostFunction",
    "Interval",
    "Mapping",
    "RemoteBuffer",
    "StateVectors",
    "Target",
    "Tensor",
    "TensorMapping",
    "Variable",
    "VertexGroup",
    "VertexRef",
    "align_views",
    "append",
    "concat",
    "errors",
    "program",
]

_LATER = ("Device", "Engine", "compile_graph")


def __getattr__(name: str) -> object:
    """Engine, Device and compile_graph stand above this level; they are loaded when asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("poplar_py.runtime.poplar_engine"), name)
