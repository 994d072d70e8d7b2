"""Variables, constants, clones and tile mappings of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import Location
from poplar_py.poplar.arrays import Ints, Tiles, as_ints, cut
from poplar_py.poplar.clone import clone_tensor, clones_by_tile
from poplar_py.poplar.constants import as_array, values_of_type
from poplar_py.poplar.enums import TensorCloneDuplicationMethod, VariableMappingMethod
from poplar_py.poplar.errors import (
    InvalidTileMapping,
    StreamConnectionError,
    TensorCreationError,
    TensorIndexError,
    TensorTypeError,
)
from poplar_py.poplar.faults import a_text, element_type, fail, listed, whole_number, whole_numbers
from poplar_py.poplar.groups import (
    VertexGroup,
    check_tiles,
)
from poplar_py.poplar.layout import (
    find_unbroadcast_tensor,
    memory_order,
    reorder_to_simplify,
    sorted_contiguous_regions,
)
from poplar_py.poplar.mapping import Interval, Mapping, TensorMapping, linear
from poplar_py.poplar.tensor import Tensor, concat
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.vertex_ref import VertexRef
from poplar_py.poplar.views import Affine
from poplar_py.types import DType, dtype_of, f16, u16, u32

if TYPE_CHECKING:
    pass
from poplar_py.poplar.graph_core import MAX_ELEMENTS, GraphCore

MappingSpec = str | int | Mapping | TensorMapping | Sequence[Sequence[tuple[int, int]]] | None


class TensorGraph(GraphCore):
    """The part of a graph that makes tensors and places them."""

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
        Poplar's list of intervals per tile. Poplar's order of arguments is taken too: the mapping
        method, then the name. Raises TensorCreationError, InvalidTileMapping.
        """
        if isinstance(name, VariableMappingMethod):
            name, mapping = mapping if isinstance(mapping, str) else "", name
        dims = whole_numbers(shape, "the sizes of a variable", TensorCreationError)
        dtype, name = element_type(dtype), a_text(name, "the name of a variable")
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
        tensor = Tensor(self.whole, Affine.dense(var.base, dims), dtype)
        if mapping is not None:
            self._first_mapping(var, tensor, mapping)
        return tensor

    def _first_mapping(self, var: Variable, tensor: Tensor, mapping: MappingSpec) -> None:
        if isinstance(mapping, str):
            if mapping == VariableMappingMethod.NONE:
                return
            if mapping != VariableMappingMethod.LINEAR:
                fail(InvalidTileMapping, f"unknown mapping {mapping!r}", "it is 'linear'")
            grain = max(1, 8 // var.dtype.size)
            self.place_variable(var, linear(var.size, self.num_tiles, grain))
        elif isinstance(mapping, Mapping):
            self.place_variable(var, mapping)
        else:
            self.set_tile_mapping(tensor, cast("Any", mapping))

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
        """A read-only variable. One value fills the shape; otherwise as many as elements.

        Raises TensorCreationError for values that the type does not hold.
        """
        data = as_array(values, "a constant")
        kind = element_type(dtype) if dtype is not None else dtype_of(data)
        data = values_of_type(data, kind, "a constant")
        tensor = self.add_variable(kind, shape, name, mapping, loc=loc)
        var = self.variables[-1]
        if data.size == 1:
            data = np.full(var.size, data.reshape(()), kind.numpy)
        if data.size != var.size:
            fail(
                TensorCreationError,
                f"{data.size} values for a constant of shape {list(var.shape)}",
                "give one value, or one per element",
            )
        var.constant = np.ascontiguousarray(data).reshape(var.size)
        return tensor

    def add_constant_half(
        self,
        dtype: DType,
        shape: Sequence[int],
        values: npt.ArrayLike,
        name: str = "",
        mapping: MappingSpec = None,
    ) -> Tensor:
        """A HALF constant from the bits of its values, as unsigned 16-bit numbers."""
        if element_type(dtype) is not f16:
            fail(TensorTypeError, f"half values for a constant of type {dtype.name}")
        bits = values_of_type(values, u16, "the bits of a constant")
        return self.add_constant(f16, shape, bits.view(np.float16), name, mapping)

    def add_external_variable(
        self, dtype: DType, shape: Sequence[int], handle: str, name: str = ""
    ) -> Tensor:
        """A variable whose storage lasts as long as the engine and belongs to the host as much as
        to the program: ``Engine.write_tensor(handle, ...)`` and ``read_tensor(handle)`` reach it.

        It lies in linear order over the tiles until it is mapped otherwise. Raises
        StreamConnectionError for a handle that exists.
        """
        a_text(handle, "a handle", StreamConnectionError)
        if handle in self.host_writes or handle in self.host_reads:
            fail(StreamConnectionError, f"handle {handle!r} exists already")
        tensor = self.add_variable(dtype, shape, name or handle, "linear")
        self.variables[-1].always_live = True
        self.host_writes[handle] = self.host_reads[handle] = tensor
        return tensor

    def add_replication_index_constant(
        self, name: str = "", mapping: MappingSpec = None, *, loc: Location | None = None
    ) -> Tensor:
        """A u32 constant of rank 0: the number of the replica that reads it, from 0."""
        tensor = self.add_constant(u32, (), 0, name or "replication_index", mapping, loc=loc)
        self.variables[-1].replica_index = True
        return tensor

    @overload
    def clone(
        self, tensor: Tensor, name: str = "", method: str = "", *, dtype: DType | None = None
    ) -> Tensor: ...

    @overload
    def clone(self, tensor: DType, name: Tensor, method: str = "", last: str = "") -> Tensor: ...

    def clone(
        self,
        tensor: Tensor | DType,
        name: str | Tensor = "",
        method: str = "",
        last: str = "",
        *,
        dtype: DType | None = None,
    ) -> Tensor:
        """A new tensor of the same shape, memory order and tile mapping (clone.clone_tensor).

        ``method`` is a TensorCloneMethod, preserve_order_unless_aliases unless given. Poplar's
        order is taken too: ``clone(dtype, tensor, name, method)``.
        """
        if isinstance(tensor, DType):
            tensor, name, method, dtype = cast("Tensor", name), method, last, tensor
        self._own(tensor, "the tensor to clone")
        kind = tensor.dtype if dtype is None else element_type(dtype)
        return clone_tensor(self.whole, tensor, a_text(name, "the name of a clone"), kind, method)

    def clone_n(
        self,
        tensor: Tensor,
        n: int,
        name: str = "",
        method: str = "",
        duplication: str = TensorCloneDuplicationMethod.DUPLICATE_BY_OUTER_DIMENSION,
        *,
        dtype: DType | None = None,
    ) -> Tensor:
        """``n`` clones stacked along a new first dim.

        ``duplication``: each on a variable of its own (duplicate_by_outer_dimension), or all on one
        where the copies of what lies together on a tile follow one another
        (duplicate_by_tile_contiguous_region; row-major order within a tile, whatever ``method``).
        """
        n = whole_number(n, "a number of clones", TensorCreationError)
        if n < 1:
            fail(TensorCreationError, f"{n} clones")
        ways = TensorCloneDuplicationMethod
        if a_text(duplication, "a duplication method") not in list(ways):
            fail(TensorCreationError, f"unknown duplication {duplication!r}", ", ".join(ways))
        if duplication == ways.DUPLICATE_BY_TILE_CONTIGUOUS_REGION:
            self._own(tensor, "the tensor to clone")
            kind = tensor.dtype if dtype is None else element_type(dtype)
            return clones_by_tile(self.whole, tensor, n, name, kind)
        clones = [self.clone(tensor, name, method, dtype=dtype) for _ in range(n)]
        return concat([c.expand([0]) for c in clones])

    def memory_order(self, tensor: Tensor) -> Tensor:
        """The tensor's distinct elements as a vector in ascending address order."""
        return memory_order(self._own(tensor, "the tensor"))

    def reorder_to_simplify(
        self, reference: Tensor, others: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """All tensors flattened and reordered alike, ``reference`` in memory order."""
        self._own(reference, "the reference")
        rest = listed(others, "the tensors to reorder", "give a list of tensors")
        for t in rest:
            if self._own(t, "a tensor to reorder").numel != reference.numel:
                fail(TensorIndexError, f"{t!r} is reordered as {reference!r}, of another size")
        return reorder_to_simplify(reference, rest)

    def get_sorted_contiguous_regions(
        self, tensor: Tensor, regions: Sequence[tuple[int, int]], remove_aliased: bool = False
    ) -> list[list[Interval]]:
        """Intervals of the flattened tensor sorted by address, grouped where contiguous."""
        self._own(tensor, "the tensor")
        remedy = "give (begin, end) intervals"
        pairs = [
            whole_numbers(r, "the bounds of a region")
            for r in listed(regions, "regions", remedy, TensorIndexError)
        ]
        if any(len(r) != 2 or not 0 <= r[0] <= r[1] <= tensor.numel for r in pairs):
            fail(TensorIndexError, f"regions {pairs} of {tensor.numel} elements", remedy)
        return sorted_contiguous_regions(tensor, [(b, e) for b, e in pairs], remove_aliased)

    def find_unbroadcast_tensor(self, tensor: Tensor) -> Tensor:
        """The tensor without its regular repeats."""
        return find_unbroadcast_tensor(self._own(tensor, "the tensor"))

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
            self._own(what, "the tensor to map")
            if isinstance(mapping, (int, np.integer)):
                self._map_whole(what, int(mapping))
            else:
                self._map_parts(what, mapping)
            return
        if not isinstance(what, VertexGroup):
            fail(InvalidTileMapping, f"{what!r} has no tile mapping")
        tiles = check_tiles(cast("Any", mapping), self.num_tiles)
        if len(tiles) not in (1, what.n):
            fail(InvalidTileMapping, f"{len(tiles)} tiles for {what.n} vertices")
        tiles = np.broadcast_to(tiles, (what.n,))
        what.tiles = self._physical(tiles).astype(np.int32)

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
                mapping = self._interval_lists(mapping)
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

    def _interval_lists(self, mapping: Any) -> TensorMapping:
        """Poplar's form of a mapping, which users write by hand."""
        try:
            lists = [[(begin, end) for begin, end in intervals] for intervals in mapping]
            found = TensorMapping.from_lists(lists, self.num_tiles)
        except (TypeError, ValueError):
            remedy = "give a tile, or a list of (begin, end) intervals per tile"
            fail(InvalidTileMapping, f"{mapping!r} is no tile mapping", remedy)
        if len(lists) > self.num_tiles:
            fail(InvalidTileMapping, f"{len(lists)} lists of intervals for {self.num_tiles} tiles")
        return found

    def _log_runs(self, start: Ints, end: Ints, tile: npt.ArrayLike) -> None:
        if len(start) == 0:
            return
        ids = as_ints(np.searchsorted(self._base_index(), start, "right") - 1)
        if int(ids[0]) == int(ids[-1]) and bool((ids == ids[0]).all()):
            self.variables[int(ids[0])].log_many(start, end, tile)
            return
        tiles = np.broadcast_to(as_ints(tile), start.shape)
        touched: list[int] = sorted(set(ids.tolist()))
        for i in touched:
            pick = ids == i
            self.variables[i].log_many(start[pick], end[pick], tiles[pick])

    def get_tile_mapping(
        self, tensor: Tensor, require_complete: bool = True, allow_external: bool = False
    ) -> TensorMapping:
        """Tile of every element, as intervals of the flattened tensor.

        Raises InvalidTileMapping when an element is unmapped and ``require_complete``.
        """
        start, length = self._own(tensor, "the tensor").view.runs()
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
