"""Compute sets: groups of vertices as arrays, and vertices added one at a time.

A vertex is never a Python object that stays: ``add_vertices`` stores arrays, ``add_vertex`` appends
to growing arrays and hands out a light reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from poplar_py.codelets.lower_random import PRNG, first_seeds
from poplar_py.diagnostics import Location
from poplar_py.poplar.arrays import I8, Ints, Tiles
from poplar_py.poplar.constants import as_array, values_of_type
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import (
    GraphConnectionError,
    GraphError,
    InvalidTileMapping,
    TensorCreationError,
    TensorTypeError,
    UnknownField,
)
from poplar_py.poplar.faults import fail
from poplar_py.types import DType, u64

if TYPE_CHECKING:
    from poplar_py.poplar.graph import Graph
    from poplar_py.poplar.pending import PendingGroup


class FieldLike(Protocol):
    """What this level needs to know of a codelet's field."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def rank(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StateVectors:
    """A vector state field: vertex v holds ``values[ptr[v]:ptr[v + 1]]``."""

    ptr: Ints
    values: npt.NDArray[Any]


State = npt.NDArray[Any] | StateVectors


class VertexGroup:
    """``n`` vertices of one codelet in one compute set.

    ``tiles`` int32[n] (-1: not mapped yet), ``edges`` by field, ``state`` by field: an array [n]
    for scalars, StateVectors for vectors; fields never set are absent and hold zeros. ``order``:
    host sort key int64[n] or [n, k], or None. ``seq`` int64[n]: order of addition in the set.
    ``perf`` int64[n] cycles given by the user, -1 where the codelet's own figure holds, or None.
    """

    __slots__ = (
        "codelet",
        "compute_set",
        "edges",
        "flops",
        "id",
        "loc",
        "loc_index",
        "locs",
        "name",
        "order",
        "perf",
        "seq",
        "state",
        "tiles",
    )

    def __init__(
        self,
        compute_set: ComputeSet,
        codelet: Any,
        tiles: Tiles,
        edges: dict[str, Edges],
        state: dict[str, State],
        order: Ints | None,
        name: str,
        loc: Location,
        seq: Ints,
    ) -> None:
        self.compute_set = compute_set
        self.id = -1
        self.codelet = codelet
        self.tiles = tiles
        self.edges = edges
        self.state = {**state, **_first_seeds(codelet, state, tiles, seq)}
        self.order = order
        self.name = name
        self.loc = loc
        self.seq = seq
        self.locs: list[Location] | None = None
        self.loc_index: Tiles | None = None
        self.perf: Ints | None = None
        self.flops: Ints | None = None

    @property
    def n(self) -> int:
        return len(self.tiles)

    def __len__(self) -> int:
        return len(self.tiles)

    def location(self, vertex: int) -> Location:
        """Where vertex number ``vertex`` of the group was added."""
        if self.locs is None or self.loc_index is None:
            return self.loc
        return self.locs[int(self.loc_index[vertex])]

    def describe(self, vertex: int) -> str:
        """A vertex for a message: codelet, compute set, tile, line."""
        loc = self.location(vertex)
        where = f", added at {loc.short}" if loc.known else ""
        return (
            f"vertex {vertex} of {self.codelet.name} in compute set "
            f"{self.compute_set.name!r} on tile {int(self.tiles[vertex])}{where}"
        )

    def __repr__(self) -> str:
        return f"<{self.n} vertices of {self.codelet.name}>"


class ComputeSet:
    """Vertices that run in one superstep; ``groups`` has them as arrays."""

    __slots__ = ("aliases", "graph", "id", "loc", "name", "next", "pending", "ready")

    def __init__(self, graph: Graph, ident: int, name: str, loc: Location) -> None:
        self.graph = graph
        self.id = ident
        self.name = name
        self.loc = loc
        self.ready: list[VertexGroup] = []
        self.pending: dict[str, PendingGroup] = {}
        self.aliases: dict[str, PendingGroup] = {}
        self.next = 0

    @property
    def groups(self) -> list[VertexGroup]:
        """All groups: those added as arrays, then one per codelet added vertex by vertex."""
        out = self.ready + [p.freeze() for p in self.pending.values() if len(p.tile)]
        for i, g in enumerate(out):
            g.id = i
        return out

    @property
    def num_vertices(self) -> int:
        return sum(g.n for g in self.ready) + sum(len(p.tile) for p in self.pending.values())

    def sequence(self, n: int) -> Ints:
        """Order numbers of the next ``n`` vertices."""
        first = self.next
        self.next += n
        return np.arange(first, first + n, dtype=I8)

    def growing(self, name: str, codelet: Any) -> PendingGroup:
        """The growing group of a codelet, from now on also under the name it was asked for."""
        from poplar_py.poplar.pending import PendingGroup

        found = self.pending.get(codelet.name)
        if found is None:
            found = self.pending[codelet.name] = PendingGroup(self, codelet)
        self.aliases[name] = found
        return found

    def take_over(self, other: ComputeSet) -> None:
        """Move all vertices of another compute set of the graph here, after those it has.

        References to vertices that were added one by one to the other set end here.
        """
        for group in other.groups:
            group.compute_set = self
            group.seq = self.sequence(group.n)
            self.ready.append(group)
        other.ready, other.pending, other.aliases = [], {}, {}

    def __repr__(self) -> str:
        return f"<compute set {self.name!r}: {self.num_vertices} vertices>"


# ---------------------------------------------------------------------- whole groups
def check_tiles(tiles: npt.ArrayLike, num_tiles: int) -> Tiles:
    """Tiles of new vertices as int32; raises InvalidTileMapping when one is out of range."""
    given = np.asarray(tiles)
    if given.size and given.dtype.kind not in "iu":
        fail(InvalidTileMapping, f"tiles {tiles!r}", "give whole numbers")
    t = given.astype(I8).ravel()
    if len(t) and (int(t.min()) < 0 or int(t.max()) >= num_tiles):
        bad = int(t.min()) if int(t.min()) < 0 else int(t.max())
        fail(InvalidTileMapping, f"tile {bad} of a target with {num_tiles} tiles")
    return t.astype(np.int32)


def _first_seeds(
    codelet: Any, state: dict[str, State], tiles: Tiles, seq: Ints
) -> dict[str, State]:
    """Generators of random numbers that nobody seeded: a start for each vertex."""
    found = (f for f in codelet.fields if f.name == PRNG and f.dtype is u64 and f.mutable)
    wanted = PRNG not in state and any(found)
    return {PRNG: first_seeds(tiles, seq)} if wanted else {}


def check_edges(graph: Graph, codelet: Any, edges: dict[str, Edges], n: int) -> dict[str, Edges]:
    """Every edge field connected, once a vertex, with its rank and type, in this graph."""
    _check_named(edges, Edges, "the edges of vertices", "give a dict from field to Edges")
    fields = {f.name: f for f in codelet.fields if f.kind != "state"}
    for name in edges:
        if name not in fields:
            names = ", ".join(f.name for f in codelet.fields)
            fail(UnknownField, f"{codelet.name} has no edge {name!r}", f"its fields: {names}")
    out: dict[str, Edges] = {}
    for name, f in fields.items():
        e = edges.get(name)
        if e is None:
            fail(GraphConnectionError, f"edge {name!r} of {codelet.name} is not connected")
        if e.graph is not None and not e.graph.same_graph(graph):
            fail(GraphError, f"the tensor for field {name!r} belongs to another graph")
        if e.num_vertices != n:
            fail(
                GraphConnectionError,
                f"edge {name!r} of {codelet.name} has {e.num_vertices} vertices, not {n}",
            )
        if (e.rank == 2) != (f.rank == 2):
            fail(
                GraphConnectionError,
                f"edge {name!r} of {codelet.name} has rank {f.rank}, rank {e.rank} was given",
                "use Edges.nested for a field that is a list of vectors",
            )
        if e.dtype is not None and e.dtype is not f.dtype:
            fail(
                TensorTypeError,
                f"edge {name!r} of {codelet.name} holds {f.dtype.name}, the tensor {e.dtype.name}",
            )
        if f.rank == 0 and e.rank != 0 and not bool((e.sizes() == 1).all()):
            fail(GraphConnectionError, f"edge {name!r} of {codelet.name} is one element")
        out[name] = (
            e if e.rank == f.rank else Edges(f.rank, e.vptr, e.eptr, e.records(), e.dtype, e.graph)
        )
    return out


def _check_named(values: object, kind: type[object], what: str, remedy: str) -> None:
    """A dict whose keys are texts and whose values are of a class."""
    if not isinstance(values, dict):
        fail(GraphConnectionError, f"{what} are {values!r}", remedy)
    for name, value in cast("dict[object, object]", values).items():
        if not isinstance(name, str) or not isinstance(value, kind):
            fail(GraphConnectionError, f"{what} hold {name!r}: {value!r}", remedy)


def check_state(codelet: Any, state: dict[str, Any], n: int) -> dict[str, State]:
    """State by field: scalars as arrays [n], vectors as StateVectors.

    A vector field takes [k] (the same for all), [n, k], or ``(ptr, values)``.
    """
    _check_named(state, object, "the state of vertices", "give a dict from field to values")
    fields = {f.name: f for f in codelet.fields if f.kind == "state"}
    out: dict[str, State] = {}
    for name, value in state.items():
        f = fields.get(name)
        if f is None:
            names = ", ".join(x.name for x in codelet.fields)
            fail(UnknownField, f"{codelet.name} has no state {name!r}", f"its fields: {names}")
        out[name] = _state_array(codelet.name, f, value, n)
    return out


def _state_array(owner: str, f: FieldLike, value: Any, n: int) -> State:
    if isinstance(value, StateVectors):
        return value
    what = f"state {f.name!r} of {owner}"
    if f.rank == 0:
        a = values_of_type(value, f.dtype, what)
        if a.ndim == 0 or a.shape == (1,):
            return np.full(n, a.reshape(()), f.dtype.numpy)
        if a.shape != (n,):
            fail(TensorCreationError, f"{what} has shape {a.shape}, not ({n},)")
        return a
    if isinstance(value, tuple):
        return _vectors(what, f, cast("tuple[Any, ...]", value), n)
    a = values_of_type(value, f.dtype, what)
    if a.ndim < 2:
        a = np.tile(a.reshape(1, -1), (n, 1))
    if len(a) != n:
        fail(TensorCreationError, f"{what} has {len(a)} rows, not {n}")
    ptr = np.arange(n + 1, dtype=I8) * a.shape[1]
    return StateVectors(ptr, np.ascontiguousarray(a).ravel())


def _vectors(what: str, f: FieldLike, value: tuple[Any, ...], n: int) -> StateVectors:
    """State of different lengths: (ptr[n + 1], values)."""
    if len(value) != 2:
        fail(TensorCreationError, f"{what} as a tuple of {len(value)}", "give (ptr, values)")
    ptr = as_array(value[0], f"the bounds of {what}").ravel().astype(I8)
    data = values_of_type(value[1], f.dtype, what).ravel()
    if len(ptr) != n + 1 or ptr[0] != 0 or ptr[-1] != len(data) or bool((np.diff(ptr) < 0).any()):
        fail(TensorCreationError, f"{what} with bounds {ptr.tolist()[:8]} of {len(data)} values")
    return StateVectors(ptr, data)
