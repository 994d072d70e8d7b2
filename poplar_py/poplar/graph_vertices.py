"""Compute sets, vertices and codelets of a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from poplar_py.codelets.errors import BUILTIN, InstanceError
from poplar_py.diagnostics import FileError, Location, PoplarPyError, UnknownName, reason_of
from poplar_py.poplar.arrays import Ints, as_ints
from poplar_py.poplar.constants import as_array, values_of_type
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import (
    GraphConnectionError,
    GraphError,
    TensorCreationError,
    TensorIndexError,
    TensorTypeError,
    UnknownField,
    UnknownVertexType,
)
from poplar_py.poplar.estimates import Estimator, VertexPerfEstimate, estimate_group
from poplar_py.poplar.faults import a_text, an_instance, fail, whole_number
from poplar_py.poplar.field_sizes import field_size
from poplar_py.poplar.graph_core import MAX_ELEMENTS
from poplar_py.poplar.graph_tensors import TensorGraph
from poplar_py.poplar.groups import (
    ComputeSet,
    VertexGroup,
    check_edges,
    check_state,
    check_tiles,
)
from poplar_py.poplar.pending import PendingGroup
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.vertex_ref import FieldRef, VertexRef
from poplar_py.poplar.views import Affine
from poplar_py.types import u16


class VertexGraph(TensorGraph):
    """The part of a graph that adds work."""

    # ------------------------------------------------------------------ vertices
    def add_compute_set(self, name: str = "", *, loc: Location | None = None) -> ComputeSet:
        """A new, empty compute set."""
        ident = len(self.compute_sets)
        place = loc if loc is not None else self.here()
        name = a_text(name, "the name of a compute set")
        cs = ComputeSet(self.whole, ident, name or f"cs{ident}", place)
        self.compute_sets.append(cs)
        return cs

    def get_codelet(self, name: str) -> Any:
        """The codelet of that name; raises UnknownVertexType with the nearest known name."""
        a_text(name, "the name of a codelet", UnknownVertexType)
        try:
            return self.codelets.get(name)
        except UnknownName as error:
            remedy = error.remedy or "add its source with add_codelets"
            fail(UnknownVertexType, f"no codelet {name!r}", remedy)
        except InstanceError as error:
            fail(UnknownVertexType, f"no codelet {name!r}: {error.message}", error.remedy)
        except PoplarPyError as error:
            if not error.loc.file.startswith(BUILTIN):
                raise
            fail(type(error), f"{name}: {error.message}", error.remedy)

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
        self._own_compute_set(compute_set)
        code = codelet if hasattr(codelet, "fields") else self.get_codelet(codelet)
        t = check_tiles(tiles, self.num_tiles)
        n = len(t)
        key = None if order is None else as_ints(order)
        if key is not None and len(key) != n:
            fail(GraphConnectionError, f"an order of {len(key)} rows for {n} vertices")
        group = VertexGroup(
            compute_set,
            code,
            self._physical(t).astype(np.int32, copy=False),
            check_edges(self.whole, code, edges, n),
            check_state(code, {} if state is None else state, n),
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
        if type(compute_set) is not ComputeSet or compute_set.graph is not self:
            self._own_compute_set(compute_set)
        group = compute_set.aliases.get(name) if type(name) is str else None
        if group is None:
            group = compute_set.growing(name, self.get_codelet(name))
        if edges.__class__ is not dict:
            edges = _edge_dict(edges)
        v = group.add()
        if edges:
            fields = group.fields
            for field, value in edges.items():
                if type(value) is not Tensor or value.graph is not self:
                    self.connect(VertexRef(group, v)[field], value)
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
        group, v, name = self._own_field(field)
        if field.sub >= 0:
            group.connect_sub(v, name, field.sub, self._edge_tensor(group, v, name, value))
        elif isinstance(value, Tensor):
            group.connect(v, name, self._edge_tensor(group, v, name, value))
        elif _is_tensor_list(value):
            parts = [self._own(t, f"a part of the list for field {name!r}") for t in value]
            group.connect_list(v, name, parts)
        else:
            group.connect(v, name, self._edge_tensor(group, v, name, value))

    def _edge_tensor(self, group: PendingGroup, v: int, name: str, value: Any) -> Tensor:
        """The tensor itself, or a constant that lies where its vertex does."""
        if isinstance(value, Tensor):
            return self._own(value, f"the tensor for field {name!r}")
        data = as_array(value, f"a constant for field {name!r}")
        tensor = self.add_constant(group.edge_type(name), data.shape, data, f"{name}/constant")
        group.add_constant(v, self.variables[-1])
        return tensor

    def set_initial_value(self, what: FieldRef | Tensor, value: Any) -> None:
        """First contents of a vertex's state field, or of a variable's elements. Raises
        TensorCreationError for values that the type does not hold."""
        if type(what) is FieldRef:
            group = what.group
            if group.compute_set.graph is not self:
                self._own_field(what)
            group.set_state(what.index, what.name, value)
            return
        self._initial_tensor(self._own(what, "what gets an initial value"), value)

    def set_initial_value_half(self, what: FieldRef | Tensor, bits: Any) -> None:
        """First contents of a HALF from the bits of its values, as unsigned 16-bit numbers."""
        data = values_of_type(bits, u16, "the bits of an initial value")
        self.set_initial_value(what, np.ascontiguousarray(data).view(np.float16))

    def _own_field(self, field: FieldRef) -> tuple[PendingGroup, int, str]:
        """Group, vertex and name of a field, whose vertex is this graph's."""
        if type(field) is not FieldRef:
            fail(UnknownField, f"{field!r} is no field", 'give vertex["field"]')
        if not field.group.compute_set.graph.same_graph(self):
            fail(GraphError, f"{field!r} belongs to another graph")
        return field.group, field.index, field.name

    def _own_compute_set(self, compute_set: ComputeSet) -> None:
        remedy = "give what add_compute_set gave"
        an_instance(compute_set, ComputeSet, "the compute set", remedy, GraphError)
        if not compute_set.graph.same_graph(self):
            fail(GraphError, f"{compute_set!r} belongs to another graph")

    def _initial_tensor(self, tensor: Tensor, value: Any) -> None:
        data = values_of_type(value, tensor.dtype, "an initial value")
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
        group, v, name = self._own_field(field)
        n = whole_number(size, "the size of a field")
        if not 0 <= n <= MAX_ELEMENTS:
            fail(TensorIndexError, f"field {name!r} of size {n}")
        group.set_sizes(v, name, n)

    def get_field_size(self, field: FieldRef) -> int:
        """Vectors of a rank-2 field, or elements of any other field, as connected so far."""
        self._own_field(field)
        return field_size(field)

    def set_perf_estimate(
        self,
        what: VertexRef | VertexGroup,
        cycles: npt.ArrayLike | VertexPerfEstimate,
        flops: npt.ArrayLike = 0,
    ) -> None:
        """Cycles of a vertex instead of the codelet's own figure (labelled so in profiles)."""
        if isinstance(cycles, VertexPerfEstimate):
            cycles, flops = cycles.cycles, cycles.flops
        if isinstance(what, VertexRef):
            counts = [_count(x, name) for x, name in ((cycles, "cycles"), (flops, "flops"))]
            what.group.set_perf(what.index, *counts)
            return
        if not isinstance(cast("object", what), VertexGroup):
            fail(GraphError, f"{what!r} has no cycles", "give a vertex, or what add_vertices gave")
        counts = [_counts(x, what.n, name) for x, name in ((cycles, "cycles"), (flops, "flops"))]
        what.perf, what.flops = counts

    def register_perf_estimator(self, name: str, function: Estimator) -> None:
        """Cycles of every vertex of a codelet by ``function(introspector, target)``; a name without
        ``<...>`` stands for all its instances. A vertex's own ``set_perf_estimate`` comes first."""
        if not callable(function):
            fail(GraphError, f"an estimator for {name!r} that is {function!r}", "give a function")
        self.perf_estimators[a_text(name, "the name of a codelet", UnknownVertexType)] = function

    def given_cycles(self, group: VertexGroup) -> Ints | None:
        """Cycles the user gave for a group's vertices, int64[n] with -1 where none; None: none."""
        name = group.codelet.name
        found = self.perf_estimators.get(name)
        function = found or self.perf_estimators.get(name.partition("<")[0])
        if function is None:
            return group.perf
        estimated = estimate_group(group, function, self.target)
        return estimated if group.perf is None else np.where(group.perf >= 0, group.perf, estimated)

    # ------------------------------------------------------------------ codelets
    def add_codelets(self, source: Any, *options: str, file: str = "") -> bool:
        """Add codelets from a ``.py`` file (or a list of files), from source text or an open file,
        or a class. ``options`` are what Poplar passes to its C++ compiler (file type, flags, target
        name): taken and not used. Raises FileError, or CodeletError at the codelet's line."""
        for option in options:
            a_text(option, "an option of add_codelets")
        if isinstance(source, type):
            self.codelets.add_class(source)
            return True
        if isinstance(source, (list, tuple)):
            for part in cast("list[Any]", source):
                self.add_codelets(part)
            return True
        read = getattr(source, "read", None)
        if callable(read):
            source, file = str(read()), str(getattr(source, "name", file))
        elif (isinstance(source, str) and "\n" not in source) or isinstance(source, PathLike):
            source, file = self._codelet_file(os.fspath(cast("str", source)))
        a_text(source, "the source of codelets")
        self.codelets.add_source(source, file or "<codelets>")
        return True

    def _codelet_file(self, path: str) -> tuple[str, str]:
        """Text and path of a file of codelets."""
        try:
            return Path(path).read_text(encoding="utf-8"), path
        except (OSError, ValueError) as error:
            reason = reason_of(error)
            raise FileError(f"cannot read codelets {path!r}: {reason}", self.here()) from None

    def has_codelet(self, name: str) -> bool:
        """Whether a codelet of that name can be made."""
        a_text(name, "the name of a codelet", UnknownVertexType)
        try:
            self.codelets.get(name)
        except PoplarPyError:
            return False
        return True


def _is_tensor_list(value: Any) -> TypeGuard[Sequence[Tensor]]:
    """Whether a value is a list of tensors (an empty one too), not of numbers."""
    if not isinstance(value, (list, tuple)):
        return False
    items = cast("list[Any]", value)
    return not items or any(isinstance(x, Tensor) for x in items)


def _edge_dict(edges: Any) -> MappingType[str, Any]:
    """Edges by field, also from a list of (field, value) pairs."""
    if edges is None:
        return {}
    try:
        return dict(edges)
    except (TypeError, ValueError):
        remedy = "give a dict from field to tensor"
        fail(GraphConnectionError, f"the edges of a vertex are {edges!r}", remedy)


def _count(value: Any, what: str) -> int:
    count = whole_number(value, what)
    if not 0 <= count < 1 << 62:
        fail(TensorIndexError, f"{what} of a vertex: {count}")
    return count


def _counts(values: Any, n: int, what: str) -> Ints:
    """A count for each of ``n`` vertices, from one number or as many."""
    found = np.asarray(values)
    if found.dtype.kind not in "iu" or found.ndim > 1 or found.size not in (1, n):
        fail(TensorIndexError, f"{what} of {n} vertices: {values!r}", "give one whole number each")
    return np.ascontiguousarray(np.broadcast_to(as_ints(found), (n,)))
