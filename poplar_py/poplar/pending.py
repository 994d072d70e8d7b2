"""Vertices added one at a time: growing arrays per codelet, frozen into a group when asked for."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from poplar_py.diagnostics import UNKNOWN, Location
from poplar_py.poplar.arrays import I8, Bools, Ints, offsets_of, sort_order
from poplar_py.poplar.constants import values_of_type
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import (
    GraphConnectionError,
    TensorCreationError,
    TensorTypeError,
    UnknownField,
)
from poplar_py.poplar.faults import fail
from poplar_py.poplar.groups import ComputeSet, FieldLike, State, StateVectors, VertexGroup
from poplar_py.poplar.growing_field import GrowingField, append_records, columns
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.views import Affine
from poplar_py.poplar.where import frame_location, source_text, user_frame
from poplar_py.types import DType, limits

if TYPE_CHECKING:
    from types import CodeType


class PendingGroup:
    """Vertices of one codelet added one at a time: growing arrays, frozen when asked for."""

    __slots__ = (
        "codelet",
        "compute_set",
        "constants",
        "fields",
        "floating",
        "frozen",
        "last_code",
        "last_lasti",
        "lines",
        "locs",
        "number",
        "perf",
        "state_at",
        "state_limits",
        "state_value",
        "tile",
    )

    def __init__(self, compute_set: ComputeSet, codelet: Any) -> None:
        self.compute_set = compute_set
        self.codelet = codelet
        self.constants: dict[int, list[Variable]] = {}
        self.tile = array("i")
        self.number = array("q")
        self.lines = array("q")  # first vertex, location: from this vertex on
        self.locs: list[Location] = []
        self.last_code: CodeType | None = None
        self.last_lasti = -1
        self.fields: dict[str, GrowingField] = {}
        self.perf = array("q")  # vertex, cycles, flops
        self.state_at: dict[str, array[int]] = {}
        self.state_value: dict[str, list[Any]] = {}
        self.state_limits: dict[str, tuple[float, float]] = {}  # of ints taken as they are
        self.floating: set[str] = set()  # fields that take any float as it is
        self.frozen: VertexGroup | None = None
        for f in codelet.fields:
            if f.kind == "state":
                self.state_at[f.name] = array("q")
                self.state_value[f.name] = []
                self.state_limits[f.name] = limits(f.dtype) if f.rank == 0 else (1, 0)
                if f.rank == 0 and f.dtype.is_float:
                    self.floating.add(f.name)
            else:
                self.fields[f.name] = GrowingField(f)

    # ------------------------------------------------------------------ building
    def add(self) -> int:
        """One more vertex; returns its number in the group. Called by ``Graph.add_vertex`` only,
        whose caller's line is recorded (lines are kept where they change, not per vertex)."""
        v = len(self.tile)
        self.frozen = None
        self.tile.append(-1)
        cs = self.compute_set
        self.number.append(cs.next)
        cs.next += 1
        frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        if frame.f_lasti != self.last_lasti or frame.f_code is not self.last_code:
            self._new_line(v)
            self.last_code, self.last_lasti = frame.f_code, frame.f_lasti
        return v

    def _new_line(self, v: int) -> None:
        frame = user_frame()
        loc = UNKNOWN if frame is None else frame_location(frame)
        if loc not in self.locs[-8:]:
            self.locs.append(loc)
        self.lines.extend((v, len(self.locs) - 1 - self.locs[::-1].index(loc)))

    def line_index(self) -> Ints:
        """Index into ``locs`` for every vertex."""
        table = np.array(self.lines, I8).reshape(-1, 2)
        at = np.searchsorted(table[:, 0], np.arange(len(self.tile)), "right") - 1
        return table[at, 1]

    def connect(self, v: int, name: str, value: Tensor) -> None:
        """Vertex ``v``'s field is this tensor."""
        growing = self.fields.get(name)
        if growing is None or growing.rank == 2:
            self._connect_any(v, name, value)
            return
        view = value.view
        if value.dtype is not growing.dtype or len(view.shape) != growing.rank:
            self._mismatch(name, value, growing.rank)
        self.frozen = None
        if type(view) is Affine and len(growing.start) == v:
            dims = view.dims
            if not dims:
                growing.start.append(view.offset)
                growing.length.append(1)
                return
            d = dims[0]
            if len(d) == 1 and (d[0][1] == 1 or d[0][0] == 1):
                growing.start.append(view.offset)
                growing.length.append(d[0][0])
                return
        append_records(growing.other(v), v, 0, value)

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
        self.frozen = None

    def connect_sub(self, v: int, name: str, i: int, value: Tensor) -> None:
        """Sub-edge ``i`` of vertex ``v``'s rank-2 field is this vector."""
        growing = self._growing(name)
        if growing.field.rank != 2:
            fail(GraphConnectionError, f"field {name!r} of {self.codelet.name} is no list")
        self._connect_sub(growing, v, i, value)
        self.frozen = None

    def _connect_sub(self, growing: GrowingField, v: int, i: int, value: Tensor) -> None:
        if value.dtype is not growing.field.dtype or value.rank > 1:
            self._mismatch(growing.field.name, value, 1)
        append_records(growing.table, v, i, value)

    def set_sizes(self, v: int, name: str, n: int) -> None:
        """A rank-2 field gets ``n`` sub-edges, connected one by one afterwards."""
        growing = self.fields.get(name)
        if growing is None:
            self.set_state(v, name, np.zeros(n))
            return
        growing.subs.extend((v, n))
        self.frozen = None

    def set_state(self, v: int, name: str, value: Any) -> None:
        """Vertex ``v``'s state field holds this at the start."""
        at = self.state_at.get(name)
        if at is None:
            if name in self.fields:
                fail(
                    GraphConnectionError,
                    f"field {name!r} of {self.codelet.name} is an edge, not state",
                    "connect a tensor, or set the initial value of the tensor",
                )
            self._unknown(name)
        if type(value) is not float or name not in self.floating:
            value = self._state_value(name, value)
        at.append(v)
        self.state_value[name].append(value)
        self.frozen = None

    def _state_value(self, name: str, value: Any) -> Any:
        """A value as what the field holds: a number, or an array of them."""
        low, high = self.state_limits[name]
        if type(value) is int and low <= value <= high:
            return value
        field = next(f for f in self.codelet.fields if f.name == name)
        what = f"state {name!r} of {self.codelet.name}"
        data = values_of_type(value, field.dtype, what)
        if field.rank:
            return data.ravel()
        if data.size != 1:
            fail(TensorCreationError, f"{what}: {data.size} values for one number")
        return data.reshape(())[()]

    def set_tile(self, v: int, tile: int) -> None:
        """Vertex ``v`` runs on this tile; constants connected to it lie there."""
        self.tile[v] = tile
        self.frozen = None
        if self.constants:
            for var in self.constants.get(v, ()):
                var.log(var.base, var.base + var.size, tile)

    def add_constant(self, v: int, variable: Variable) -> None:
        """A constant made for vertex ``v``, to lie on its tile."""
        self.constants.setdefault(v, []).append(variable)
        if self.tile[v] >= 0:
            self.set_tile(v, self.tile[v])

    def edge_type(self, name: str) -> DType:
        """Element type of an edge field."""
        return self._growing(name).dtype

    def set_perf(self, v: int, cycles: int, flops: int) -> None:
        self.perf.extend((v, cycles, flops))
        self.frozen = None

    # ------------------------------------------------------------------ errors
    def _growing(self, name: str) -> GrowingField:
        growing = self.fields.get(name)
        if growing is None:
            self._unknown(name)
        return growing

    def _unknown(self, name: str) -> NoReturn:
        names = ", ".join([*self.fields, *self.state_at])
        if name in self.state_at:
            fail(
                GraphConnectionError,
                f"field {name!r} of {self.codelet.name} is state, not an edge",
                "use set_initial_value",
            )
        fail(UnknownField, f"{self.codelet.name} has no field {name!r}", f"its fields: {names}")

    def _mismatch(self, name: str, value: Any, rank: int) -> NoReturn:
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
        if self.frozen is None:
            self.frozen = self._build()
        return self.frozen

    def _build(self) -> VertexGroup:
        n = len(self.tile)
        edges = {name: self._freeze_edges(g, n) for name, g in self.fields.items()}
        state: dict[str, State] = {}
        for f in self.codelet.fields:
            if f.kind == "state" and len(self.state_at[f.name]):
                at = np.array(self.state_at[f.name], I8)
                state[f.name] = _freeze_state(f, at, self.state_value[f.name], n)
        group = VertexGroup(
            self.compute_set,
            self.codelet,
            np.array(self.tile, np.int32),
            edges,
            state,
            None,
            "",
            self.locs[0],
            np.array(self.number, I8),
        )
        group.locs = list(self.locs)
        group.loc_index = self.line_index().astype(np.int32)
        if self.perf:
            rows = np.array(self.perf, I8).reshape(-1, 3)
            group.perf = np.full(n, -1, I8)
            group.perf[rows[:, 0]] = rows[:, 1]
            group.flops = np.zeros(n, I8)
            group.flops[rows[:, 0]] = rows[:, 2]
        return group

    def _freeze_edges(self, g: GrowingField, n: int) -> Edges:
        rows = g.rows()
        vertex, sub = rows[:, 0], rows[:, 1]
        if g.rank != 2:
            order = sort_order(vertex)
            if order is not None:
                rows, vertex = rows[order], vertex[order]
            per = np.bincount(vertex, minlength=n)
            self._check_connected(g, rows, per)
            return Edges(g.field.rank, None, offsets_of(per), columns(rows), g.field.dtype)
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
        return Edges(2, vptr, offsets_of(per), columns(rows), g.field.dtype)

    def _check_connected(self, g: GrowingField, rows: Ints, per: Ints) -> None:
        if bool((per == 0).any()):
            self._missing(g, int(np.argmin(per)))

    def _check_lists(self, g: GrowingField, subs: Ints) -> None:
        given: Bools = np.zeros(len(subs), np.bool_)
        if g.subs:
            given[np.array(g.subs, I8).reshape(-1, 2)[:, 0]] = True
        lacking = (subs == 0) & ~given
        if bool(lacking.any()):
            self._missing(g, int(np.argmax(lacking)))

    def _missing(self, g: GrowingField, v: int) -> NoReturn:
        loc = self.locs[int(self.line_index()[v])]
        raise GraphConnectionError(
            f"field {g.field.name!r} of vertex {v} of {self.codelet.name} in compute set "
            f"{self.compute_set.name!r} is not connected",
            loc,
            "connect it to a tensor",
            source_text(loc),
        )


def _freeze_state(field: FieldLike, at: Ints, values: list[Any], n: int) -> State:
    if field.rank == 0:
        out = np.zeros(n, field.dtype.numpy)
        out[at] = np.array(values, field.dtype.numpy)
        return out
    last = dict(zip(at.tolist(), values, strict=True))
    none = np.zeros(0, field.dtype.numpy)
    parts = [last.get(v, none) for v in range(n)]
    return StateVectors(offsets_of(np.array([len(p) for p in parts], I8)), np.concatenate(parts))
