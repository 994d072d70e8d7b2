"""Compute sets, vertices and codelets of a graph."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import FileError, Location, PoplarPyError, UnknownName
from poplar_py.poplar.arrays import Ints, as_ints
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import (
    GraphConnectionError,
    GraphError,
    TensorCreationError,
    TensorTypeError,
    UnknownVertexType,
)
from poplar_py.poplar.faults import fail
from poplar_py.poplar.field_sizes import field_size
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

if TYPE_CHECKING:
    pass
from poplar_py.poplar.estimates import Estimator, estimate_group
from poplar_py.poplar.graph_tensors import TensorGraph


class VertexGraph(TensorGraph):
    """The part of a graph that adds work."""

    # ------------------------------------------------------------------ vertices
    def add_compute_set(self, name: str = "", *, loc: Location | None = None) -> ComputeSet:
        """A new, empty compute set."""
        ident = len(self.compute_sets)
        place = loc if loc is not None else self.here()
        cs = ComputeSet(self.whole, ident, name or f"cs{ident}", place)
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
            group.connect_sub(v, name, field.sub, self._edge_tensor(group, v, name, value))
        elif isinstance(value, Tensor):
            if not value.graph.same_graph(self.whole):
                fail(GraphError, f"the tensor for field {name!r} belongs to another graph")
            group.connect(v, name, value)
        elif _is_tensor_list(value):
            group.connect_list(v, name, list(value))
        else:
            group.connect(v, name, self._edge_tensor(group, v, name, value))

    def _edge_tensor(self, group: PendingGroup, v: int, name: str, value: Any) -> Tensor:
        """The tensor itself, or a constant that lies where its vertex does."""
        if isinstance(value, Tensor):
            return value
        data = np.asarray(value)
        tensor = self.add_constant(group.edge_type(name), data.shape, data, f"{name}/constant")
        group.add_constant(v, self.variables[-1])
        return tensor

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

    def get_field_size(self, field: FieldRef) -> int:
        """Vectors of a rank-2 field, or elements of any other field, as connected so far."""
        return field_size(field)

    def set_perf_estimate(
        self, what: VertexRef | VertexGroup, cycles: npt.ArrayLike, flops: npt.ArrayLike = 0
    ) -> None:
        """Cycles of a vertex instead of the codelet's own figure (labelled so in profiles)."""
        if isinstance(what, VertexRef):
            what.group.set_perf(what.index, int(np.asarray(cycles)), int(np.asarray(flops)))
            return
        what.perf = np.ascontiguousarray(np.broadcast_to(as_ints(cycles), (what.n,)))
        what.flops = np.ascontiguousarray(np.broadcast_to(as_ints(flops), (what.n,)))

    def register_perf_estimator(self, name: str, function: Estimator) -> None:
        """Cycles of every vertex of a codelet by ``function(introspector, target)``; a name without
        ``<...>`` stands for all its instances. A vertex's own ``set_perf_estimate`` comes first."""
        self.perf_estimators[name] = function

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
    def add_codelets(self, source: Any, flags: str = "", *, file: str = "") -> bool:
        """Add codelets from a ``.py`` file (or a list of files), from source text, or a class."""
        if isinstance(source, type):
            self.codelets.add_class(source)
            return True
        if isinstance(source, (list, tuple)):
            for part in cast("list[Any]", source):
                self.add_codelets(part, flags)
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


def _is_tensor_list(value: Any) -> TypeGuard[Sequence[Tensor]]:
    """Whether a value is a list of tensors (an empty one too), not of numbers."""
    if not isinstance(value, (list, tuple)):
        return False
    items = cast("list[Any]", value)
    return not items or any(isinstance(x, Tensor) for x in items)
