"""Graph: variables, tensors, compute sets, streams and functions of one program."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingType
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.codelets import CodeletLibrary
from poplar_py.diagnostics import FileError, Location, PoplarPyError, UnknownName
from poplar_py.poplar.arrays import I8, Ints, Tiles, as_ints, cut
from poplar_py.poplar.clone import clone_tensor
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import (
    GraphConnectionError,
    InvalidTileMapping,
    StreamConnectionError,
    TensorCreationError,
    TensorIndexError,
    TensorTypeError,
    UnknownVertexType,
)
from poplar_py.poplar.groups import (
    ComputeSet,
    VertexGroup,
    check_edges,
    check_state,
    check_tiles,
)
from poplar_py.poplar.layout import (
    find_unbroadcast_tensor,
    memory_order,
    reorder_to_simplify,
    sorted_contiguous_regions,
)
from poplar_py.poplar.mapping import Atlas, Interval, Mapping, TensorMapping, linear
from poplar_py.poplar.pending import FieldRef, VertexRef
from poplar_py.poplar.program import Program
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor, fail, variable_ids
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.views import Affine, View
from poplar_py.poplar.where import caller
from poplar_py.target import Target
from poplar_py.types import DType, dtype_of

if TYPE_CHECKING:
    from poplar_py.poplar.virtual import VirtualGraph

MAX_ELEMENTS = 1 << 40

MappingSpec = str | int | Mapping | TensorMapping | Sequence[Sequence[tuple[int, int]]] | None


class Graph:
    """A program's data and work on a target's tiles.

    ``target`` may be a Target or a Device. ``location`` sets the place new objects are recorded
    with (compilers); without it the user's line is taken.
    """

    def __init__(self, target: Any, replication_factor: int = 1) -> None:
        found = target if isinstance(target, Target) else target.get_target()
        self.target: Target = found
        self.replication_factor = replication_factor
        self.variables: list[Variable] = []
        self.compute_sets: list[ComputeSet] = []
        self.functions: list[Function] = []
        self.host_functions: dict[str, HostFunction] = {}
        self.streams: dict[str, DataStream] = {}
        self.remote_buffers: dict[str, RemoteBuffer] = {}
        self.host_writes: dict[str, Tensor] = {}
        self.host_reads: dict[str, Tensor] = {}
        self.codelets = CodeletLibrary()
        self._tiles = found.num_tiles
        self._bases: list[int] = []
        self._base_array: Ints | None = None
        self._top = 0
        self._loc: Location | None = None
        self._atlas: tuple[tuple[int, int], Atlas] | None = None

    # ------------------------------------------------------------------ places
    @contextmanager
    def location(self, loc: Location) -> Iterator[None]:
        """Record ``loc`` with everything added inside the ``with`` block."""
        old = self._loc
        self._loc = loc if loc.known else old
        try:
            yield
        finally:
            self._loc = old

    def here(self) -> Location:
        """The place to record now."""
        return self._loc if self._loc is not None else caller()

    def get_target(self) -> Target:
        return self.target

    @property
    def num_tiles(self) -> int:
        """Tiles this graph (or virtual graph) may use."""
        return self._tiles

    def create_virtual_graph(
        self, begin: int | Sequence[int], end: int | None = None
    ) -> VirtualGraph:
        """Tiles ``begin`` to ``end - 1``, or the listed ones, as a graph of their own numbers that
        shares all else with this one. Raises InvalidTileMapping."""
        from poplar_py.poplar.virtual import virtual_graph

        return virtual_graph(self, begin, end)

    # ------------------------------------------------------------------ variables
    def add_variable(
        self,
        dtype: DType,
        shape: Sequence[int],
        name: str = "",
        mapping: MappingSpec = None,
        *,
        loc: Location | None = None,
    ) -> Tensor:
        """A new variable, as a row-major tensor.

        ``mapping``: None (map it later), "linear", a tile, a Mapping with bounds from 0, or
        Poplar's list of intervals per tile. Raises TensorCreationError, InvalidTileMapping.
        """
        dims = tuple([int(n) for n in shape])
        size = prod(dims)
        if min(dims, default=0) < 0 or size > MAX_ELEMENTS:
            fail(TensorCreationError, f"a variable of shape {list(dims)}")
        ident = len(self.variables)
        var = Variable(
            ident,
            name or f"v{ident}",
            dtype,
            dims,
            self._top,
            size,
            loc if loc is not None else self.here(),
        )
        self.variables.append(var)
        self._bases.append(self._top)
        self._base_array = None
        self._top += size + 1
        tensor = Tensor(self, Affine.dense(var.base, dims), dtype)
        if mapping is not None:
            self._first_mapping(var, tensor, mapping)
        return tensor

    def _first_mapping(self, var: Variable, tensor: Tensor, mapping: MappingSpec) -> None:
        if isinstance(mapping, str):
            if mapping != "linear":
                fail(InvalidTileMapping, f"unknown mapping {mapping!r}", "it is 'linear'")
            grain = max(1, 8 // var.dtype.size)
            self.place_variable(var, linear(var.size, self.num_tiles, grain))
        elif isinstance(mapping, Mapping):
            self.place_variable(var, mapping)
        else:
            self.set_tile_mapping(tensor, mapping)  # type: ignore[arg-type]

    def place_variable(self, var: Variable, mapping: Mapping) -> None:
        """Give a variable a mapping whose bounds start at 0."""
        bounds, tile = mapping.bounds, mapping.tile
        if len(bounds) != len(tile) + 1 or bounds[0] != 0 or bounds[-1] != var.size:
            fail(
                InvalidTileMapping,
                f"a mapping of elements {int(bounds[0])} to {int(bounds[-1])} for a variable of "
                f"{var.size}",
            )
        if bool((np.diff(bounds) < 0).any()):
            fail(InvalidTileMapping, "the bounds of a mapping must ascend")
        self._check_range(tile)
        var.mapping = Mapping(bounds + var.base, self._physical(tile)).normal()

    def _check_range(self, tile: npt.NDArray[Any]) -> None:
        if len(tile) and (int(tile.max()) >= self.num_tiles or int(tile.min()) < -1):
            fail(
                InvalidTileMapping,
                f"tile {int(tile.max()) if tile.max() >= self.num_tiles else int(tile.min())} of a "
                f"target with {self.num_tiles} tiles",
            )

    def _physical(self, tile: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Tiles of this graph as tiles of the target (differs in virtual graphs)."""
        return tile

    def add_constant(
        self,
        dtype: DType | None,
        shape: Sequence[int],
        values: npt.ArrayLike,
        name: str = "",
        mapping: MappingSpec = None,
        *,
        loc: Location | None = None,
    ) -> Tensor:
        """A read-only variable. One value fills the shape; otherwise as many as elements."""
        kind = dtype if dtype is not None else dtype_of(np.asarray(values))
        data = np.asarray(values).astype(kind.numpy, copy=False)
        tensor = self.add_variable(kind, shape, name, mapping, loc=loc)
        var = self.variables[-1]
        if data.size == 1:
            data = np.full(var.size, data.reshape(()), kind.numpy)
        if data.size != var.size:
            fail(
                TensorCreationError,
                f"{data.size} values for a constant of shape {list(shape)}",
                "give one value, or one per element",
            )
        var.constant = np.ascontiguousarray(data).reshape(var.size)
        return tensor

    def clone(
        self,
        tensor: Tensor,
        name: str = "",
        *,
        dtype: DType | None = None,
        method: str = "preserve_order_unless_aliases",
    ) -> Tensor:
        """A new tensor of the same shape, memory order and tile mapping (clone.clone_tensor)."""
        return clone_tensor(self, tensor, name, dtype, method)

    def memory_order(self, tensor: Tensor) -> Tensor:
        """The tensor's distinct elements as a vector in ascending address order."""
        return memory_order(tensor)

    def reorder_to_simplify(
        self, reference: Tensor, others: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """All tensors flattened and reordered alike, ``reference`` in memory order."""
        return reorder_to_simplify(reference, others)

    def get_sorted_contiguous_regions(
        self, tensor: Tensor, regions: Sequence[tuple[int, int]], remove_aliased: bool = False
    ) -> list[list[Interval]]:
        """Intervals of the flattened tensor sorted by address, grouped where contiguous."""
        return sorted_contiguous_regions(tensor, regions, remove_aliased)

    def find_unbroadcast_tensor(self, tensor: Tensor) -> Tensor:
        """The tensor without its regular repeats."""
        return find_unbroadcast_tensor(tensor)

    # ------------------------------------------------------------------ mapping
    def set_tile_mapping(
        self,
        what: Tensor | VertexRef | VertexGroup,
        mapping: int | Mapping | TensorMapping | Sequence[Sequence[tuple[int, int]]] | Tiles,
    ) -> None:
        """Place a vertex, or the elements of a tensor; the last call wins.

        ``mapping``: a tile; for tensors also a Mapping (bounds from 0), a TensorMapping, or
        Poplar's list of (begin, end) intervals per tile, all over the flattened tensor.
        """
        if type(what) is VertexRef:
            if type(mapping) is not int or not 0 <= mapping < self._tiles:
                mapping = self._one_tile(mapping)
            what.group.set_tile(what.index, mapping)
            return
        if isinstance(what, Tensor):
            if isinstance(mapping, (int, np.integer)):
                self._map_whole(what, int(mapping))
            else:
                self._map_parts(what, mapping)
            return
        tiles = check_tiles(np.broadcast_to(np.asarray(mapping), (what.n,)), self.num_tiles)
        what.tiles = self._physical(tiles).astype(np.int32)

    def _one_tile(self, tile: Any) -> int:
        if not isinstance(tile, (int, np.integer)) or not 0 <= tile < self.num_tiles:
            fail(InvalidTileMapping, f"tile {tile} of a target with {self.num_tiles} tiles")
        return int(tile)

    def _map_whole(self, tensor: Tensor, tile: int) -> None:
        tile = self._one_tile(tile)
        view = tensor.view
        if type(view) is Affine:
            digits = view.digits()
            if not digits or (len(digits) == 1 and digits[0][1] == 1):
                size = digits[0][0] if digits else 1
                if size and 0 not in view.shape:
                    self._owner(view.offset).log(view.offset, view.offset + size, tile)
                return
        start, length = view.runs()
        self._log_runs(start, start + length, tile)

    def _map_parts(self, tensor: Tensor, mapping: Any) -> None:
        if isinstance(mapping, Mapping):
            begin, end, tile = mapping.bounds[:-1], mapping.bounds[1:], mapping.tile
        else:
            if not isinstance(mapping, TensorMapping):
                if len(mapping) > self.num_tiles:
                    fail(
                        InvalidTileMapping,
                        f"{len(mapping)} lists of intervals for {self.num_tiles} tiles",
                    )
                mapping = TensorMapping.from_lists(mapping, self.num_tiles)
            begin, end, tile = mapping.begin, mapping.end, mapping.tile
        if len(begin) and (int(begin.min()) < 0 or int(end.max()) > tensor.numel):
            fail(
                InvalidTileMapping,
                f"intervals within {int(begin.min())} to {int(end.max())} for a tensor of "
                f"{tensor.numel} elements",
            )
        self._check_range(tile)
        keep = (tile >= 0) & (end > begin)
        begin, end, tile = begin[keep], end[keep], self._physical(tile[keep])
        s, n, window = cut(*tensor.view.runs(), begin, end)
        self._log_runs(s, s + n, tile[window])

    def _log_runs(self, start: Ints, end: Ints, tile: npt.ArrayLike) -> None:
        if len(start) == 0:
            return
        ids = np.searchsorted(self._base_index(), start, "right") - 1
        if int(ids[0]) == int(ids[-1]) and bool((ids == ids[0]).all()):
            self.variables[int(ids[0])].log_many(start, end, tile)
            return
        tiles = np.broadcast_to(as_ints(tile), start.shape)
        for i in variable_ids_of(ids):
            pick = ids == i
            self.variables[i].log_many(start[pick], end[pick], tiles[pick])

    def get_tile_mapping(
        self, tensor: Tensor, require_complete: bool = True, allow_external: bool = False
    ) -> TensorMapping:
        """Tile of every element, as intervals of the flattened tensor.

        Raises InvalidTileMapping when an element is unmapped and ``require_complete``.
        """
        start, length = tensor.view.runs()
        atlas = self.atlas() if len(self.variables) < 8 else self._atlas_of(tensor.view)
        _, interval, _, n = atlas.split(start, length)
        tile = atlas.tile[interval]
        end = np.cumsum(n)
        begin = end - n
        if len(tile):
            new = np.ones(len(tile), np.bool_)
            new[1:] = tile[1:] != tile[:-1]
            first = np.flatnonzero(new)
            begin, tile = begin[first], tile[first]
            end = end[np.append(first[1:], len(end)) - 1]
        lost = tile < 0
        if bool(lost.any()):
            if require_complete:
                i = int(np.argmax(lost))
                fail(
                    InvalidTileMapping,
                    f"elements {int(begin[i])} to {int(end[i])} of {tensor!r} "
                    f"({', '.join(v.name for v in tensor.variables()[:3])}) are on no tile",
                    "call set_tile_mapping, or give a mapping to add_variable",
                )
            begin, end, tile = begin[~lost], end[~lost], tile[~lost]
        return self._virtual_mapping(TensorMapping(begin, end, tile, self.target.num_tiles))

    def _virtual_mapping(self, mapping: TensorMapping) -> TensorMapping:
        return mapping

    def _atlas_of(self, view: View) -> Atlas:
        """An atlas of just the variables under a view, so that a query does not fold all logs."""
        ids = variable_ids(view, self._base_index())
        return build_atlas([self.variables[i] for i in ids])

    def atlas(self) -> Atlas:
        """All mappings as one interval array; rebuilt only when a mapping changed."""
        key = (len(self.variables), sum([v.version for v in self.variables]))
        if self._atlas is None or self._atlas[0] != key:
            self._atlas = (key, build_atlas(self.variables))
        return self._atlas[1]

    # ------------------------------------------------------------------ addresses
    def _base_index(self) -> Ints:
        if self._base_array is None:
            self._base_array = as_ints(self._bases)
        return self._base_array

    def _owner(self, address: int) -> Variable:
        return self.variables[bisect_right(self._bases, address) - 1]

    def locate_variables(self, address: Ints) -> tuple[Ints, Ints]:
        """Variable id and base address for each address."""
        bases = self._base_index()
        ids = np.searchsorted(bases, address, "right") - 1
        return ids, bases[ids]

    def variables_of(self, view: View) -> list[Variable]:
        """Variables under a view, by ascending address."""
        return [self.variables[i] for i in variable_ids(view, self._base_index())]

    def get_variable(self, tensor: Tensor) -> Variable:
        """The one variable a tensor belongs to; raises TensorIndexError when there are several."""
        found = tensor.variables()
        if len(found) != 1:
            fail(TensorIndexError, f"{tensor!r} belongs to {len(found)} variables")
        return found[0]

    # ------------------------------------------------------------------ vertices
    def add_compute_set(self, name: str = "", *, loc: Location | None = None) -> ComputeSet:
        """A new, empty compute set."""
        ident = len(self.compute_sets)
        place = loc if loc is not None else self.here()
        cs = ComputeSet(self, ident, name or f"cs{ident}", place)
        self.compute_sets.append(cs)
        return cs

    def get_codelet(self, name: str) -> Any:
        """The codelet of that name; raises UnknownVertexType with the nearest known name."""
        try:
            return self.codelets.get(name)
        except UnknownName as error:
            remedy = error.remedy or "add its source with add_codelets"
            fail(UnknownVertexType, f"no codelet {name!r}", remedy)

    def add_vertices(
        self,
        compute_set: ComputeSet,
        codelet: Any,
        tiles: npt.ArrayLike,
        edges: dict[str, Edges],
        state: dict[str, Any] | None = None,
        *,
        order: npt.ArrayLike | None = None,
        name: str = "",
        perf: npt.ArrayLike | None = None,
        loc: Location | None = None,
    ) -> VertexGroup:
        """Many vertices of one codelet at once.

        ``tiles`` int32[n]; ``edges`` per edge field; ``state`` per state field (a scalar, an array
        [n], for vectors [k], [n, k] or (ptr, values)). ``order`` int64[n] or [n, k]: host order,
        see VertexGroup. Raises the errors of poplar.errors at the caller's line.
        """
        code = self.get_codelet(codelet) if isinstance(codelet, str) else codelet
        t = check_tiles(tiles, self.num_tiles)
        n = len(t)
        key = None if order is None else as_ints(order)
        if key is not None and len(key) != n:
            fail(GraphConnectionError, f"an order of {len(key)} rows for {n} vertices")
        group = VertexGroup(
            compute_set,
            code,
            self._physical(t).astype(np.int32, copy=False),
            check_edges(code, edges, n),
            check_state(code, state or {}, n),
            key,
            name,
            loc if loc is not None else self.here(),
            compute_set.sequence(n),
        )
        if perf is not None:
            group.perf = np.ascontiguousarray(np.broadcast_to(as_ints(perf), (n,)))
        compute_set.ready.append(group)
        return group

    def add_vertex(
        self,
        compute_set: ComputeSet,
        name: str,
        edges: MappingType[str, Tensor | Sequence[Tensor]] | None = None,
    ) -> VertexRef:
        """One vertex. ``edges``: field to tensor, or to a list of vectors for rank-2 fields."""
        group = compute_set.aliases.get(name)
        if group is None:
            group = compute_set.growing(name, self.get_codelet(name))
        v = group.add()
        if edges:
            fields = group.fields
            for field, value in edges.items():
                if type(value) is not Tensor:
                    self.connect(FieldRef(group, v, field), value)
                    continue
                view, known = value.view, fields.get(field)
                if type(view) is Affine and known is not None and known.rank == 1:
                    dims = view.dims
                    if len(dims) == 1 and len(dims[0]) == 1 and value.dtype is known.dtype:
                        size, stride = dims[0][0]
                        if stride == 1 and len(known.start) == v:
                            known.start.append(view.offset)
                            known.length.append(size)
                            continue
                group.connect(v, field, value)
        return VertexRef(group, v)

    def connect(self, field: FieldRef, value: Any) -> None:
        """Connect a field of a vertex to a tensor, a list of vectors, or a constant."""
        group, v, name = field.group, field.index, field.name
        if field.sub >= 0:
            group.connect_sub(v, name, field.sub, self._edge_tensor(group, name, value))
        elif isinstance(value, Tensor):
            group.connect(v, name, value)
        elif isinstance(value, (list, tuple)) and any(isinstance(x, Tensor) for x in value):
            group.connect_list(v, name, list(value))
        elif isinstance(value, (list, tuple)) and not value:
            group.connect_list(v, name, [])
        else:
            group.connect(v, name, self._edge_tensor(group, name, value))

    def _edge_tensor(self, group: Any, name: str, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        known = group.fields.get(name)
        if known is None:
            group.connect(0, name, value)
        data = np.asarray(value)
        tile = max(0, group.tile[-1])
        return self.add_constant(known.field.dtype, data.shape, data, f"{name}/constant", tile)

    def set_initial_value(self, what: FieldRef | Tensor, value: Any) -> None:
        """First contents of a vertex's state field, or of a variable's elements."""
        if isinstance(what, FieldRef):
            what.group.set_state(what.index, what.name, value)
            return
        self._initial_tensor(what, value)

    def _initial_tensor(self, tensor: Tensor, value: Any) -> None:
        data = np.asarray(value).astype(tensor.dtype.numpy, copy=False)
        if data.size == 1:
            data = np.full(tensor.numel, data.reshape(()))
        if data.size != tensor.numel:
            fail(TensorCreationError, f"{data.size} values for {tensor!r}")
        data = np.ascontiguousarray(data).reshape(-1)
        address = tensor.addresses().reshape(-1)
        for var in tensor.variables():
            if var.constant is not None:
                fail(TensorTypeError, f"{var.name!r} is a constant")
            inside = (address >= var.base) & (address < var.base + var.size)
            if var.initial is None:
                var.initial = np.zeros(var.size, var.dtype.numpy)
                var.initial_mask = np.zeros(var.size, np.bool_)
            at = address[inside] - var.base
            var.initial[at] = data[inside].view(var.dtype.numpy)
            if var.initial_mask is not None:
                var.initial_mask[at] = True
                if bool(var.initial_mask.all()):
                    var.initial_mask = None

    def set_field_size(self, field: FieldRef, size: int) -> None:
        """Number of vectors of a rank-2 field, or elements of a state vector."""
        field.group.set_sizes(field.index, field.name, size)

    def set_perf_estimate(
        self, what: VertexRef | VertexGroup, cycles: npt.ArrayLike, flops: npt.ArrayLike = 0
    ) -> None:
        """Cycles of a vertex instead of the codelet's own figure (labelled so in profiles)."""
        if isinstance(what, VertexRef):
            what.group.set_perf(what.index, int(np.asarray(cycles)), int(np.asarray(flops)))
            return
        what.perf = np.ascontiguousarray(np.broadcast_to(as_ints(cycles), (what.n,)))
        what.flops = np.ascontiguousarray(np.broadcast_to(as_ints(flops), (what.n,)))

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

    # ------------------------------------------------------------------ codelets
    def add_codelets(self, source: Any, flags: str = "", *, file: str = "") -> bool:
        """Add codelets from a ``.py`` file (or a list of files), from source text, or a class."""
        if isinstance(source, type):
            self.codelets.add_class(source)
            return True
        if isinstance(source, (list, tuple)):
            for s in source:
                self.add_codelets(s, flags)
            return True
        text = str(source)
        if "\n" not in text:
            try:
                with open(text, encoding="utf-8") as f:
                    body = f.read()
            except OSError as error:
                raise FileError(
                    f"cannot read codelets {text!r}: {error.strerror}", self.here()
                ) from None
            self.codelets.add_source(body, text)
            return True
        self.codelets.add_source(text, file or "<codelets>")
        return True

    def has_codelet(self, name: str) -> bool:
        """Whether a codelet of that name can be made."""
        try:
            self.codelets.get(name)
        except PoplarPyError:
            return False
        return True


def build_atlas(variables: Sequence[Variable]) -> Atlas:
    """One interval array over variables of ascending base."""
    bounds: list[Ints] = []
    tiles: list[Tiles] = []
    owners: list[Tiles] = []
    locs: list[Ints] = []
    gap = (np.full(1, -1, np.int32), np.zeros(1, I8))
    end = -1
    for v in variables:
        if v.size == 0:
            continue
        if v.base != end:
            bounds.append(as_ints([end]))
            tiles.append(gap[0])
            owners.append(gap[0])
            locs.append(gap[1])
        m = v.mapping
        bounds.append(m.bounds[:-1])
        tiles.append(m.tile)
        owners.append(np.full(len(m.tile), v.id, np.int32))
        locs.append(m.loc)
        end = v.base + v.size
    bounds.append(as_ints([end, 1 << 62]))
    tiles.append(gap[0])
    owners.append(gap[0])
    locs.append(gap[1])
    return Atlas(
        np.concatenate(bounds), np.concatenate(tiles), np.concatenate(owners), np.concatenate(locs)
    )


def variable_ids_of(ids: Ints) -> list[int]:
    """Distinct ids, ascending."""
    return sorted(set(ids.tolist()))
