"""Variables, constants, clones and tile mappings of a graph."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import Location
from poplar_py.poplar.arrays import Ints, Tiles, as_ints, cut
from poplar_py.poplar.clone import clone_tensor
from poplar_py.poplar.errors import (
    InvalidTileMapping,
    TensorCreationError,
    TensorTypeError,
)
from poplar_py.poplar.faults import fail
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
from poplar_py.types import DType, dtype_of, u32

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
        Poplar's list of intervals per tile. Raises TensorCreationError, InvalidTileMapping.
        """
        try:
            dims = tuple([operator.index(n) for n in shape])
        except TypeError:
            fail(TensorCreationError, f"a variable of shape {shape!r}", "give whole numbers")
        if not isinstance(cast("object", dtype), DType):
            fail(TensorTypeError, f"{dtype!r} is no element type", "for example poplar.FLOAT")
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
        data = np.asarray(values)
        if data.dtype.kind not in "biufV":
            fail(TensorCreationError, f"a constant of {data.dtype} values", "give numbers")
        kind = dtype if dtype is not None else dtype_of(data)
        data = data.astype(kind.numpy, copy=False)
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

    def add_replication_index_constant(
        self, name: str = "", mapping: MappingSpec = None, *, loc: Location | None = None
    ) -> Tensor:
        """A u32 constant of rank 0: the number of the replica that reads it, from 0."""
        tensor = self.add_constant(u32, (), 0, name or "replication_index", mapping, loc=loc)
        self.variables[-1].replica_index = True
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
        return clone_tensor(self.whole, tensor, name, dtype, method)

    def clone_n(
        self,
        tensor: Tensor,
        n: int,
        name: str = "",
        *,
        dtype: DType | None = None,
        method: str = "preserve_order_unless_aliases",
    ) -> Tensor:
        """``n`` clones stacked along a new first dim, each on a variable of its own."""
        if n < 1:
            fail(TensorCreationError, f"{n} clones")
        clones = [self.clone(tensor, name, dtype=dtype, method=method) for _ in range(n)]
        return concat([c.expand([0]) for c in clones])

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
        if not isinstance(what, VertexGroup):
            fail(InvalidTileMapping, f"{what!r} has no tile mapping")
        tiles = check_tiles(np.broadcast_to(np.asarray(mapping), (what.n,)), self.num_tiles)
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
