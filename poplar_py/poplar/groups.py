"""Compute sets: groups of vertices as arrays, and vertices added one at a time.

A vertex is never a Python object that stays: ``add_vertices`` stores arrays, ``add_vertex`` appends
to growing arrays and hands out a light reference.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import UNKNOWN, Location
from poplar_py.poplar.arrays import I8, Bools, Ints, Tiles, offsets_of, sort_order
from poplar_py.poplar.edges import Edges, view_records
from poplar_py.poplar.errors import (
    GraphConnectionError,
    InvalidTileMapping,
    TensorCreationError,
    TensorTypeError,
    UnknownField,
)
from poplar_py.poplar.tensor import Tensor, fail
from poplar_py.poplar.views import Affine
from poplar_py.poplar.where import frame_location, source_text, user_frame
from poplar_py.types import DType

if TYPE_CHECKING:
    from types import CodeType

    from poplar_py.poplar.graph import Graph


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


class CodeletLike(Protocol):
    """What this level needs to know of a codelet."""

    @property
    def name(self) -> str: ...
    @property
    def fields(self) -> tuple[Any, ...]: ...
    @property
    def multi(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class StateVectors:
    """A vector state field: vertex v holds ``values[ptr[v]:ptr[v + 1]]``."""

    ptr: Ints
    values: npt.NDArray[Any]


State = npt.NDArray[Any] | StateVectors


class VertexGroup:
    """``n`` vertices of one codelet in one compute set.

    ``tiles`` int32[n] (-1: not mapped yet), ``edges`` by field, ``state`` by field: an array [n]
    for scalars, StateVectors for vectors; fields never set are absent and hold zeros. ``order``: host
    sort key int64[n] or [n, k], or None. ``seq`` int64[n]: order of addition in the compute set.
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
        self.state = state
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

    __slots__ = ("_next", "_pending", "_ready", "graph", "id", "loc", "name")

    def __init__(self, graph: Graph, ident: int, name: str, loc: Location) -> None:
        self.graph = graph
        self.id = ident
        self.name = name
        self.loc = loc
        self._ready: list[VertexGroup] = []
        self._pending: dict[str, PendingGroup] = {}
        self._next = 0

    @property
    def groups(self) -> list[VertexGroup]:
        """All groups: those added as arrays, then one per codelet added vertex by vertex."""
        out = self._ready + [p.freeze() for p in self._pending.values() if len(p.tile)]
        for i, g in enumerate(out):
            g.id = i
        return out

    @property
    def num_vertices(self) -> int:
        return sum(g.n for g in self._ready) + sum(len(p.tile) for p in self._pending.values())

    def append(self, group: VertexGroup) -> None:
        """Take a finished group (``Graph.add_vertices`` calls this)."""
        self._ready.append(group)

    def sequence(self, n: int) -> Ints:
        """Order numbers of the next ``n`` vertices."""
        first = self._next
        self._next += n
        return np.arange(first, first + n, dtype=I8)

    def pending(self, codelet: Any) -> PendingGroup:
        """The growing group of a codelet."""
        found = self._pending.get(codelet.name)
        if found is None:
            found = self._pending[codelet.name] = PendingGroup(self, codelet)
        return found

    def next_number(self) -> int:
        """Order number of one more vertex."""
        self._next += 1
        return self._next - 1

    def __repr__(self) -> str:
        return f"<compute set {self.name!r}: {self.num_vertices} vertices>"


class _GrowingField:
    """One edge field while vertices arrive: five int64 per record, and sub-edge counts (rank 2)."""

    __slots__ = ("field", "subs", "table")

    def __init__(self, field: FieldLike) -> None:
        self.field = field
        self.table = array("q")  # vertex, sub-edge, start, length, count, stride per record
        self.subs = array("q")  # vertex, number of sub-edges, per connection of a list


_ROW = 6


class PendingGroup:
    """Vertices of one codelet added one at a time: growing arrays, frozen when asked for."""

    __slots__ = (
        "_frozen",
        "_loc_key",
        "_state_at",
        "_state_value",
        "codelet",
        "compute_set",
        "fields",
        "line",
        "locs",
        "number",
        "perf",
        "tile",
    )

    def __init__(self, compute_set: ComputeSet, codelet: Any) -> None:
        self.compute_set = compute_set
        self.codelet = codelet
        self.tile = array("i")
        self.number = array("q")
        self.line = array("i")
        self.locs: list[tuple[CodeType | None, Location]] = []
        self._loc_key: dict[int, int] = {}
        self.fields: dict[str, _GrowingField] = {}
        self.perf = array("q")  # vertex, cycles, flops
        self._state_at: dict[str, array[int]] = {}
        self._state_value: dict[str, list[Any]] = {}
        self._frozen: VertexGroup | None = None
        for f in codelet.fields:
            if f.kind == "state":
                self._state_at[f.name] = array("q")
                self._state_value[f.name] = []
            else:
                self.fields[f.name] = _GrowingField(f)

    # ------------------------------------------------------------------ building
    def add(self) -> int:
        """One more vertex; returns its number in the group."""
        v = len(self.tile)
        self._frozen = None
        self.tile.append(-1)
        self.number.append(self.compute_set.next_number())
        frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        key = (id(frame.f_code) << 16) ^ frame.f_lasti
        at = self._loc_key.get(key)
        self.line.append(self._new_line(key) if at is None else at)
        return v

    def _new_line(self, key: int) -> int:
        frame = user_frame()
        loc = UNKNOWN if frame is None else frame_location(frame)
        code = sys._getframe(3).f_code  # pyright: ignore[reportPrivateUsage]
        at = len(self.locs)
        self.locs.append((code, loc))  # keeps the code object, so that its id stays its own
        if frame is None or frame.f_code is code:
            self._loc_key[key] = at
        return at

    def connect(self, v: int, name: str, value: Tensor) -> None:
        """Vertex ``v``'s field is this tensor."""
        growing = self.fields.get(name)
        if growing is None or growing.field.rank == 2:
            self._connect_any(v, name, value)
            return
        field = growing.field
        view = value.view
        if value.dtype is not field.dtype or len(view.shape) != field.rank:
            self._mismatch(name, value, field.rank)
        self._frozen = None
        if type(view) is Affine:
            dims = view.dims
            if not dims:
                growing.table.extend((v, 0, view.offset, 1, 1, 0))
                return
            d = dims[0]
            if len(d) == 1 and (d[0][1] == 1 or d[0][0] == 1):
                growing.table.extend((v, 0, view.offset, d[0][0], 1, 0))
                return
        _append_records(growing.table, v, 0, value)

    def _connect_any(self, v: int, name: str, value: Any) -> None:
        growing = self.fields.get(name)
        if growing is None:
            self._unknown(name)
        if isinstance(value, Tensor):
            if value.rank != 2:
                self._mismatch(name, value, 2)
            value = list(value)
        self.connect_list(v, name, value)

    def connect_list(self, v: int, name: str, parts: list[Tensor]) -> None:
        """Vertex ``v``'s rank-2 field is this list of vectors."""
        growing = self._growing(name)
        if growing.field.rank != 2:
            fail(
                GraphConnectionError,
                f"field {name!r} of {self.codelet.name} has rank {growing.field.rank}; "
                "a list of tensors was given",
                "give one tensor",
            )
        for i, t in enumerate(parts):
            self._connect_sub(growing, v, i, t)
        growing.subs.extend((v, len(parts)))
        self._frozen = None

    def connect_sub(self, v: int, name: str, i: int, value: Tensor) -> None:
        """Sub-edge ``i`` of vertex ``v``'s rank-2 field is this vector."""
        growing = self._growing(name)
        if growing.field.rank != 2:
            fail(GraphConnectionError, f"field {name!r} of {self.codelet.name} is no list")
        self._connect_sub(growing, v, i, value)
        self._frozen = None

    def _connect_sub(self, growing: _GrowingField, v: int, i: int, value: Tensor) -> None:
        if value.dtype is not growing.field.dtype or value.rank > 1:
            self._mismatch(growing.field.name, value, 1)
        _append_records(growing.table, v, i, value)

    def set_sizes(self, v: int, name: str, n: int) -> None:
        """A rank-2 field gets ``n`` sub-edges, connected one by one afterwards."""
        growing = self.fields.get(name)
        if growing is None:
            self.set_state(v, name, np.zeros(n))
            return
        growing.subs.extend((v, n))
        self._frozen = None

    def set_state(self, v: int, name: str, value: Any) -> None:
        """Vertex ``v``'s state field holds this at the start."""
        at = self._state_at.get(name)
        if at is None:
            if name in self.fields:
                fail(
                    GraphConnectionError,
                    f"field {name!r} of {self.codelet.name} is an edge, not state",
                    "connect a tensor, or set the initial value of the tensor",
                )
            self._unknown(name)
        at.append(v)
        self._state_value[name].append(value)
        self._frozen = None

    def set_tile(self, v: int, tile: int) -> None:
        self.tile[v] = tile
        self._frozen = None

    def set_perf(self, v: int, cycles: int, flops: int) -> None:
        self.perf.extend((v, cycles, flops))
        self._frozen = None

    # ------------------------------------------------------------------ errors
    def _growing(self, name: str) -> _GrowingField:
        growing = self.fields.get(name)
        if growing is None:
            self._unknown(name)
        return growing

    def _unknown(self, name: str) -> Any:
        names = ", ".join([*self.fields, *self._state_at])
        if name in self._state_at:
            fail(
                GraphConnectionError,
                f"field {name!r} of {self.codelet.name} is state, not an edge",
                "use set_initial_value",
            )
        fail(UnknownField, f"{self.codelet.name} has no field {name!r}", f"its fields: {names}")

    def _mismatch(self, name: str, value: Any, rank: int) -> None:
        field = self.fields[name].field
        if not isinstance(value, Tensor):
            fail(GraphConnectionError, f"field {name!r} was given {type(value).__name__}")
        if value.dtype is not field.dtype:
            fail(
                TensorTypeError,
                f"field {name!r} of {self.codelet.name} holds {field.dtype.name}, "
                f"the tensor {value.dtype.name}",
                "cast or reinterpret the tensor, or instantiate the codelet for its type",
            )
        remedy = "flatten the tensor" if rank == 1 else "index a single element"
        fail(
            GraphConnectionError,
            f"field {name!r} of {self.codelet.name} has rank {rank}, the tensor {value.rank}",
            remedy,
        )

    # ------------------------------------------------------------------ freezing
    def freeze(self) -> VertexGroup:
        """The vertices so far as a group (kept until something changes)."""
        if self._frozen is None:
            self._frozen = self._build()
        return self._frozen

    def _build(self) -> VertexGroup:
        n = len(self.tile)
        edges = {name: self._freeze_edges(g, n) for name, g in self.fields.items()}
        state: dict[str, State] = {}
        for f in self.codelet.fields:
            if f.kind == "state" and len(self._state_at[f.name]):
                at = np.array(self._state_at[f.name], I8)
                state[f.name] = _freeze_state(f, at, self._state_value[f.name], n)
        locs = [loc for _, loc in self.locs]
        group = VertexGroup(
            self.compute_set,
            self.codelet,
            np.array(self.tile, np.int32),
            edges,
            state,
            None,
            "",
            locs[0],
            np.array(self.number, I8),
        )
        group.locs = locs
        group.loc_index = np.array(self.line, np.int32)
        if self.perf:
            rows = np.array(self.perf, I8).reshape(-1, 3)
            group.perf = np.full(n, -1, I8)
            group.perf[rows[:, 0]] = rows[:, 1]
            group.flops = np.zeros(n, I8)
            group.flops[rows[:, 0]] = rows[:, 2]
        return group

    def _freeze_edges(self, g: _GrowingField, n: int) -> Edges:
        rows = np.array(g.table, I8).reshape(-1, _ROW)
        vertex, sub = rows[:, 0], rows[:, 1]
        if g.field.rank != 2:
            order = sort_order(vertex)
            if order is not None:
                rows, vertex = rows[order], vertex[order]
            per = np.bincount(vertex, minlength=n)
            self._check_connected(g, rows, per)
            return Edges(g.field.rank, None, offsets_of(per), _columns(rows), g.field.dtype)
        subs = np.zeros(n, I8)
        if g.subs:
            pairs = np.array(g.subs, I8).reshape(-1, 2)
            np.maximum.at(subs, pairs[:, 0], pairs[:, 1])
        if len(rows):
            np.maximum.at(subs, vertex, sub + 1)
        self._check_lists(g, subs)
        vptr = offsets_of(subs)
        edge = vptr[vertex] + sub
        order = sort_order(edge)
        if order is not None:
            rows, edge = rows[order], edge[order]
        per = np.bincount(edge, minlength=int(vptr[-1]))
        return Edges(2, vptr, offsets_of(per), _columns(rows), g.field.dtype)

    def _check_connected(self, g: _GrowingField, rows: Ints, per: Ints) -> None:
        if bool((per == 0).any()):
            self._missing(g, int(np.argmin(per)))

    def _check_lists(self, g: _GrowingField, subs: Ints) -> None:
        given: Bools = np.zeros(len(subs), np.bool_)
        if g.subs:
            given[np.array(g.subs, I8).reshape(-1, 2)[:, 0]] = True
        lacking = (subs == 0) & ~given
        if bool(lacking.any()):
            self._missing(g, int(np.argmax(lacking)))

    def _missing(self, g: _GrowingField, v: int) -> None:
        loc = self.locs[self.line[v]][1]
        raise GraphConnectionError(
            f"field {g.field.name!r} of vertex {v} of {self.codelet.name} in compute set "
            f"{self.compute_set.name!r} is not connected",
            loc,
            "connect it to a tensor",
            source_text(loc),
        )


def _columns(rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    start, length, count, stride = (np.ascontiguousarray(rows[:, i]) for i in range(2, _ROW))
    return start, length, count, stride


def _append_records(table: array[int], v: int, sub: int, value: Tensor) -> None:
    start, length, count, stride = view_records(value.view)
    if len(start) == 1:
        table.extend((v, sub, int(start[0]), int(length[0]), int(count[0]), int(stride[0])))
        return
    if len(start) == 0:
        table.extend((v, sub, 0, 0, 1, 0))
        return
    rows = np.empty((len(start), _ROW), I8)
    rows[:, 0], rows[:, 1] = v, sub
    rows[:, 2], rows[:, 3], rows[:, 4], rows[:, 5] = start, length, count, stride
    table.frombytes(rows.tobytes())


def _freeze_state(field: FieldLike, at: Ints, values: list[Any], n: int) -> State:
    if field.rank == 0:
        out = np.zeros(n, field.dtype.numpy)
        out[at] = np.asarray(values).reshape(len(values))
        return out
    last = dict(zip(at.tolist(), values, strict=True))
    parts = [np.asarray(last.get(v, ()), field.dtype.numpy).ravel() for v in range(n)]
    return StateVectors(offsets_of(np.array([len(p) for p in parts], I8)), np.concatenate(parts))


class VertexRef:
    """One vertex that ``add_vertex`` added; ``v["field"]`` refers to a field of it."""

    __slots__ = ("group", "index")

    def __init__(self, group: PendingGroup, index: int) -> None:
        self.group = group
        self.index = index

    def __getitem__(self, name: str) -> FieldRef:
        return FieldRef(self.group, self.index, name)

    def __repr__(self) -> str:
        return f"<vertex {self.index} of {self.group.codelet.name}>"


class FieldRef:
    """A field of a vertex; ``ref[i]`` is one vector of a rank-2 field."""

    __slots__ = ("group", "index", "name", "sub")

    def __init__(self, group: PendingGroup, index: int, name: str, sub: int = -1) -> None:
        self.group = group
        self.index = index
        self.name = name
        self.sub = sub

    def __getitem__(self, i: int) -> FieldRef:
        return FieldRef(self.group, self.index, self.name, i)


# ---------------------------------------------------------------------- whole groups
def check_tiles(tiles: npt.ArrayLike, num_tiles: int) -> Tiles:
    """Tiles of new vertices as int32; raises InvalidTileMapping when one is out of range."""
    t = np.asarray(tiles, np.int32).ravel()
    if len(t) and (int(t.min()) < 0 or int(t.max()) >= num_tiles):
        bad = int(t.min()) if int(t.min()) < 0 else int(t.max())
        fail(InvalidTileMapping, f"tile {bad} of a target with {num_tiles} tiles")
    return t


def check_edges(codelet: Any, edges: dict[str, Edges], n: int) -> dict[str, Edges]:
    """Every edge field connected, once a vertex, with its rank and type."""
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
            e
            if e.rank == f.rank
            else Edges(f.rank, e.vptr, e.eptr, (e.start, e.length, e.count, e.stride), e.dtype)
        )
    return out


def check_state(codelet: Any, state: dict[str, Any], n: int) -> dict[str, State]:
    """State by field: scalars as arrays [n], vectors as StateVectors.

    A vector field takes [k] (the same for all), [n, k], or ``(ptr, values)``.
    """
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
    if f.rank == 0:
        a = np.asarray(value).astype(f.dtype.numpy, copy=False)
        if a.ndim == 0 or a.shape == (1,):
            return np.full(n, a.reshape(()), f.dtype.numpy)
        if a.shape != (n,):
            fail(
                TensorCreationError, f"state {f.name!r} of {owner} has shape {a.shape}, not ({n},)"
            )
        return a
    if isinstance(value, tuple):
        return StateVectors(np.asarray(value[0], I8), np.asarray(value[1], f.dtype.numpy).ravel())
    a = np.asarray(value, f.dtype.numpy)
    if a.ndim < 2:
        a = np.tile(a.reshape(1, -1), (n, 1))
    if len(a) != n:
        fail(TensorCreationError, f"state {f.name!r} of {owner} has {len(a)} rows, not {n}")
    ptr = np.arange(n + 1, dtype=I8) * a.shape[1]
    return StateVectors(ptr, np.ascontiguousarray(a).ravel())
