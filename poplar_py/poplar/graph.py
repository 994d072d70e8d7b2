"""Graph: variables, tensors, compute sets, streams and functions of one program."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poplar import dot
from poplar_py.poplar.errors import (
    InvalidTileMapping,
    StreamConnectionError,
    TensorCreationError,
)
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program import Program
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.virtual import VirtualGraph
from poplar_py.poplar.graph_vertices import VertexGraph


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
        mode: str = "replicate",
        options: MappingType[str, str] | None = None,
    ) -> DataStream:
        """A stream from the host; each copy takes ``num_elements``."""
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
        n: int,
        to_host: bool,
        mode: str,
        options: MappingType[str, str] | None,
    ) -> DataStream:
        if handle in self.streams:
            fail(StreamConnectionError, f"a stream {handle!r} exists already")
        if mode.lower() not in ("replicate", "broadcast"):
            fail(StreamConnectionError, f"unknown mode {mode!r}", "replicate or broadcast")
        if n < 0:
            fail(TensorCreationError, f"a stream of {n} elements")
        depth = int((options or {}).get("bufferingDepth", 1))
        stream = DataStream(
            len(self.streams), handle, dtype, int(n), to_host, self.here(), mode.lower(), depth
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
        """``repeats`` rows of ``num_elements`` in memory beside the IPUs."""
        if handle in self.remote_buffers:
            fail(StreamConnectionError, f"a remote buffer {handle!r} exists already")
        if num_elements < 1 or repeats < 1:
            fail(TensorCreationError, f"a remote buffer of {repeats} rows of {num_elements}")
        buffer = RemoteBuffer(
            len(self.remote_buffers), handle, dtype, num_elements, repeats, self.here()
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
        if handle in table:
            fail(StreamConnectionError, f"handle {handle!r} exists already")
        table[handle] = tensor

    def add_function(self, program: Program, name: str = "") -> Function:
        """A program several Calls share."""
        function = Function(len(self.functions), name, program, self.here())
        self.functions.append(function)
        return function

    def add_host_function(
        self,
        handle: str,
        inputs: Sequence[tuple[DType, int]],
        outputs: Sequence[tuple[DType, int]],
    ) -> HostFunction:
        """A Python function connected to the engine later, with its argument types and sizes."""
        if handle in self.host_functions:
            fail(StreamConnectionError, f"a host function {handle!r} exists already")
        ident = len(self.host_functions)
        function = HostFunction(ident, handle, list(inputs), list(outputs), self.here())
        self.host_functions[handle] = function
        return function
