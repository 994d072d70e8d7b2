"""Errors of the tile level, with Poplar's names where users know them."""

from __future__ import annotations

from poplar_py.diagnostics import PoplarPyError


class GraphError(PoplarPyError):
    """Base of everything a wrong graph can raise."""

    code = "graph-error"


class GraphConnectionError(GraphError):
    """An edge is missing, connected twice, or of the wrong rank."""

    code = "graph_connection_error"


class InvalidTileMapping(GraphError):
    """A tile out of range, an unmapped element, or a malformed mapping."""

    code = "invalid_tile_mapping"


class UnknownVertexType(GraphError):
    """No codelet of that name was added."""

    code = "unknown_vertex_type"


class UnknownField(GraphError):
    """The codelet has no field of that name."""

    code = "unknown_field"


class TensorTypeError(GraphError):
    """Element types differ, or a type is not allowed here."""

    code = "type_error"


class TensorIndexError(GraphError):
    """An index, a dim or a shape is out of range."""

    code = "index_error"


class TensorCreationError(GraphError):
    """A variable or a constant cannot be made from the arguments."""

    code = "tensor_creation_error"


class StreamConnectionError(GraphError):
    """A stream handle is unknown, duplicated or of the wrong size."""

    code = "stream_connection_error"


class WriteConflict(GraphError):
    """Two vertices of one compute set touch an element one of them writes."""

    code = "write_conflict"


class AliasedWrite(GraphError):
    """A tensor that holds an element twice cannot be written to."""

    code = "aliased_write"
