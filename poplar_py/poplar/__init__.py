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
