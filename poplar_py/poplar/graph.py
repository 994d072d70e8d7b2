"""Graph: variables, tensors, compute sets, streams and functions of one program."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

import numpy as np

from poplar_py.poplar import dot, tensor_text
from poplar_py.poplar.enums import ReplicatedStreamMode, SerializationFormat
from poplar_py.poplar.errors import (
    InvalidTileMapping,
    StreamConnectionError,
    TensorCreationError,
    TensorTypeError,
)
from poplar_py.poplar.faults import a_text, an_instance, element_type, fail, listed, whole_number
from poplar_py.poplar.graph_core import MAX_ELEMENTS
from poplar_py.poplar.graph_vertices import VertexGraph
from poplar_py.poplar.options import buffering_depth
from poplar_py.poplar.program import Program
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.virtual import VirtualGraph


class Graph(VertexGraph):
    """A program's data and work on a target's tiles.

    ``target`` may be a Target or a Device. ``location`` sets the place new objects are recorded
    with (compilers); without it the user's line is taken.
    """

    def create_virtual_graph(
        self, begin: int | Sequence[int], end: int | None = None
    ) -> VirtualGraph:
        """Tiles ``begin`` to ``end - 1``, the listed ones, or (one number alone, as in Poplar) the
        first so many tiles of every IPU, as a graph of their own numbers that shares all else with
        this one. Raises InvalidTileMapping."""
        from poplar_py.poplar.virtual import virtual_graph

        if isinstance(begin, int) and end is None:
            per_ipu = self.target.tiles_per_ipu
            if not 1 <= begin <= per_ipu:
                fail(InvalidTileMapping, f"{begin} tiles of IPUs that have {per_ipu}")
            begin = [t for t in range(self.num_tiles) if t % per_ipu < begin]
        return virtual_graph(self, begin, end)

    def get_top_level_graph(self) -> Graph:
        """The graph itself; of a virtual graph, the graph it is a part of."""
        return self

    def convert_virtual_tile_to_physical_tile(self, tile: int) -> int:
        """The number in the target of a tile of this graph; differs in virtual graphs. Raises
        InvalidTileMapping."""
        return int(self._physical(np.array([self._one_tile(tile)], np.int32))[0])

    def get_replication_factor(self) -> int:
        return self.replication_factor

    def output_compute_graph(self) -> str:
        """DOT text with a node for every compute set and the variables it uses."""
        return dot.compute_graph(self)

    def output_vertex_graph(self) -> str:
        """DOT text with a node for every vertex and the variables it uses."""
        return dot.vertex_graph(self)

    # ------------------------------------------------------------------ host side
    def add_host_to_device_fifo(
        self,
        handle: str,
        dtype: DType,
        num_elements: int,
        mode: str = ReplicatedStreamMode.REPLICATE,
        options: MappingType[str, str] | None = None,
    ) -> DataStream:
        """A stream from the host; each copy takes ``num_elements``. ``mode``: replicate (each
        replica has data of its own) or broadcast. ``options``: bufferingDepth, splitLimit."""
        return self._add_stream(handle, dtype, num_elements, False, mode, options)

    def add_device_to_host_fifo(
        self,
        handle: str,
        dtype: DType,
        num_elements: int,
        options: MappingType[str, str] | None = None,
    ) -> DataStream:
        """A stream to the host; each copy gives ``num_elements``."""
        return self._add_stream(handle, dtype, num_elements, True, "replicate", options)

    def _add_stream(
        self,
        handle: str,
        dtype: DType,
        num_elements: int,
        to_host: bool,
        mode: str,
        options: MappingType[str, str] | None,
    ) -> DataStream:
        _new_handle(self.streams, handle, "a stream")
        mode = a_text(mode, "the mode of a stream").lower()
        if mode not in list(ReplicatedStreamMode):
            fail(StreamConnectionError, f"unknown mode {mode!r}", "replicate or broadcast")
        n = _size(num_elements, 0, "a stream of elements")
        depth = buffering_depth(options)
        stream = DataStream(
            len(self.streams), handle, element_type(dtype), n, to_host, self.here(), mode, depth
        )
        self.streams[handle] = stream
        return stream

    def add_remote_buffer(
        self,
        handle: str,
        dtype: DType,
        num_elements: int,
        repeats: int = 1,
        rearrange_on_host: bool = False,
        optimise_memory: bool = False,
    ) -> RemoteBuffer:
        """``repeats`` rows of ``num_elements`` in memory beside the IPUs. The last two arguments
        change nothing here: copies go row by row in any case."""
        _new_handle(self.remote_buffers, handle, "a remote buffer")
        n, rows = (
            _size(x, 1, f"the {what} of a remote buffer")
            for x, what in ((num_elements, "elements"), (repeats, "rows"))
        )
        buffer = RemoteBuffer(
            len(self.remote_buffers), handle, element_type(dtype), n, rows, self.here()
        )
        self.remote_buffers[handle] = buffer
        return buffer

    def create_host_write(
        self, handle: str, tensor: Tensor, rearrange_on_host: bool = False
    ) -> None:
        """Let ``Engine.write_tensor(handle, ...)`` set this tensor."""
        self._host_handle(self.host_writes, handle, tensor)

    def create_host_read(
        self, handle: str, tensor: Tensor, rearrange_on_host: bool = False
    ) -> None:
        """Let ``Engine.read_tensor(handle)`` get this tensor."""
        self._host_handle(self.host_reads, handle, tensor)

    def _host_handle(self, table: dict[str, Tensor], handle: str, tensor: Tensor) -> None:
        _new_handle(table, handle, "a tensor of handle")
        table[handle] = self._own(tensor, f"the tensor of handle {handle!r}")

    def add_function(self, program: Program, name: str = "") -> Function:
        """A program several Calls share."""
        step = an_instance(program, Program, "the program of a function", "give a program")
        name = a_text(name, "the name of a function")
        function = Function(len(self.functions), name, step, self.here())
        self.functions.append(function)
        return function

    def add_host_function(
        self,
        handle: str,
        inputs: Sequence[tuple[DType, int]],
        outputs: Sequence[tuple[DType, int]],
    ) -> HostFunction:
        """A Python function connected to the engine later, with its argument types and sizes."""
        _new_handle(self.host_functions, handle, "a host function")
        ident = len(self.host_functions)
        ins, outs = (_host_arguments(handle, x) for x in (inputs, outputs))
        function = HostFunction(ident, handle, ins, outs, self.here())
        self.host_functions[handle] = function
        return function

    # ------------------------------------------------------------------ text
    def serialize_tensors(
        self, out: TextIO, tensors: Sequence[Tensor], form: str = SerializationFormat.JSON
    ) -> None:
        """Write which elements of which variables the tensors list, as JSON; no values."""
        remedy = "give a list of tensors"
        parts = [self._own(t, "a tensor") for t in listed(tensors, "the tensors", remedy)]
        tensor_text.write_tensors(out, parts, form)

    def deserialize_tensors(
        self, source: TextIO, form: str = SerializationFormat.JSON
    ) -> list[Tensor]:
        """The tensors that `serialize_tensors` wrote, in a graph with the same variables. Raises
        TensorCreationError where they do not fit."""
        return tensor_text.read_tensors(self, source, form)


def _new_handle(table: MappingType[str, object], handle: str, what: str) -> None:
    if a_text(handle, f"the handle of {what}", StreamConnectionError) in table:
        fail(StreamConnectionError, f"{what} {handle!r} exists already")


def _size(value: int, least: int, what: str) -> int:
    size = whole_number(value, what, TensorCreationError)
    if not least <= size <= MAX_ELEMENTS:
        fail(TensorCreationError, f"{what}: {size}", f"give a number from {least} on")
    return size


def _host_arguments(handle: str, arguments: Any) -> list[tuple[DType, int]]:
    """Types and sizes of a host function's arguments."""
    what, remedy = f"the arguments of host function {handle!r}", "give (type, elements) pairs"
    out: list[tuple[DType, int]] = []
    for a in listed(arguments, what, remedy):
        if not isinstance(a, (tuple, list)) or len(cast("Sequence[Any]", a)) != 2:
            fail(TensorTypeError, f"{what} hold {a!r}", remedy)
        dtype, size = cast("Sequence[Any]", a)
        out.append((element_type(dtype), _size(size, 0, "the size of an argument")))
    return out
