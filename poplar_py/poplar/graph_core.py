"""What all parts of a graph share: the target, the lists of its objects, addresses, places."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from poplar_py.codelets import CodeletLibrary
from poplar_py.diagnostics import Location
from poplar_py.poplar.arrays import I8, Ints, Tiles, as_ints
from poplar_py.poplar.errors import (
    GraphError,
    InvalidTileMapping,
    TensorCreationError,
    TensorIndexError,
    TensorTypeError,
)
from poplar_py.poplar.faults import fail, whole_number
from poplar_py.poplar.groups import (
    ComputeSet,
)
from poplar_py.poplar.mapping import Atlas, TensorMapping
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor, variable_ids
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.view_core import View
from poplar_py.poplar.where import caller
from poplar_py.target import Target

if TYPE_CHECKING:
    from poplar_py.poplar.graph import Graph


MAX_ELEMENTS = 1 << 40


class GraphCore:
    """Holds the objects of a graph; the subclasses add the operations on them."""

    def __init__(self, target: Any, replication_factor: int = 1) -> None:
        found = target if isinstance(target, Target) else getattr(target, "target", None)
        if not isinstance(found, Target):
            fail(GraphError, f"a graph for {target!r}", "give a Target or a Device")
        factor = whole_number(replication_factor, "the replication factor", TensorCreationError)
        if factor < 1:
            fail(TensorCreationError, f"a replication factor of {factor}")
        self.target: Target = found
        self.replication_factor = factor
        self.variables: list[Variable] = []
        self.compute_sets: list[ComputeSet] = []
        self.functions: list[Function] = []
        self.host_functions: dict[str, HostFunction] = {}
        self.streams: dict[str, DataStream] = {}
        self.remote_buffers: dict[str, RemoteBuffer] = {}
        self.host_writes: dict[str, Tensor] = {}
        self.host_reads: dict[str, Tensor] = {}
        self.codelets = CodeletLibrary()
        self.perf_estimators: dict[str, Any] = {}
        self._tiles = found.num_tiles
        self._bases: list[int] = []
        self._base_array: Ints | None = None
        self._top = 0
        self._loc: Location | None = None
        self._atlas: tuple[tuple[int, int], Atlas] | None = None

    # ------------------------------------------------------------------ places
    @contextmanager
    def location(self, loc: Location) -> Generator[None]:
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

    @property
    def whole(self) -> Graph:
        """This object as the class users see."""
        return cast("Graph", self)

    def same_graph(self, other: GraphCore) -> bool:
        """Whether both are one graph, or virtual graphs of one: these share what it holds."""
        return self.variables is other.variables

    def _own(self, tensor: Any, what: str) -> Tensor:
        """The tensor, which must be one of this graph's. Raises TensorTypeError, GraphError."""
        if not isinstance(tensor, Tensor):
            fail(TensorTypeError, f"{what} is {tensor!r}", "give a tensor of the graph")
        if not tensor.graph.same_graph(self):
            fail(GraphError, f"{what} {tensor!r} belongs to another graph")
        return tensor

    def get_target(self) -> Target:
        return self.target

    @property
    def num_tiles(self) -> int:
        """Tiles this graph (or virtual graph) may use."""
        return self._tiles

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

    def _one_tile(self, tile: Any) -> int:
        number = operator.index(tile) if hasattr(tile, "__index__") else -1
        if not 0 <= number < self.num_tiles:
            fail(InvalidTileMapping, f"tile {tile} of a target with {self.num_tiles} tiles")
        return number

    def _virtual_mapping(self, mapping: TensorMapping) -> TensorMapping:
        """A mapping in this graph's tile numbers (differs in virtual graphs)."""
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

    def same_variable(self, a: int, b: int) -> bool:
        """Whether two addresses belong to one variable."""
        return bisect_right(self._bases, a) == bisect_right(self._bases, b)

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
        found = self._own(tensor, "the tensor").variables()
        if len(found) != 1:
            fail(TensorIndexError, f"{tensor!r} belongs to {len(found)} variables")
        return found[0]


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
