"""Edges of a vertex group: which elements each vertex's field is, as arrays of 2-D records.

A record is ``count`` rows of ``length`` elements, row k at ``start + k * stride`` (global element
addresses, ``stride >= 0``). An edge is the rows of its records in order. ``eptr[e]:eptr[e+1]`` are
the records of edge e; a group's rank-2 field has ``vptr[v]:vptr[v+1]`` edges for vertex v, other
fields one edge a vertex.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.arrays import (
    I8,
    Ints,
    as_ints,
    concat_ints,
    cut,
    offsets_of,
    ragged,
)
from poplar_py.poplar.edge_boxes import (
    Records,
    box_records,
    element_addresses,
    join_records,
    take_edges,
    view_records,
)
from poplar_py.poplar.errors import GraphError, TensorIndexError
from poplar_py.poplar.faults import an_instance, element_type, fail, int_array, listed, whole_number
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.views import Affine
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.graph import Graph


class Edges:
    """See the module. ``dtype`` is the element type of the tensor they were taken from, ``graph``
    its graph; None where they were made of bare addresses."""

    __slots__ = ("count", "dtype", "eptr", "graph", "length", "rank", "start", "stride", "vptr")

    def __init__(
        self,
        rank: int,
        vptr: Ints | None,
        eptr: Ints,
        records: Records,
        dtype: DType | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.rank = rank
        self.vptr = vptr
        self.eptr = eptr
        self.start, self.length, self.count, self.stride = records
        self.dtype = dtype
        self.graph = graph

    # ------------------------------------------------------------------ constructors
    @staticmethod
    def whole(tensor: Tensor, n: int, rank: int = 1) -> Edges:
        """Every one of ``n`` vertices gets the whole tensor, flattened."""
        found = view_records(_tensor(tensor).view)
        n = whole_number(n, "a number of vertices")
        if n < 0:
            fail(TensorIndexError, f"edges of {n} vertices")
        once = Edges(rank, None, as_ints([0, len(found[0])]), found, tensor.dtype, tensor.graph)
        return once if n == 1 else once.take(np.zeros(n, I8))

    @staticmethod
    def boxes(tensor: Tensor, lo: npt.ArrayLike, size: npt.ArrayLike) -> Edges:
        """Vertex v gets the box ``lo[v, d]``, ``size[v, d]`` of the tensor, in row-major order.

        Raises TensorIndexError when a box leaves the tensor.
        """
        a, b = int_array(lo, "the begins of boxes"), int_array(size, "the sizes of boxes")
        shape = np.array(_tensor(tensor).shape, I8)
        if a.ndim != 2 or a.shape != b.shape or a.shape[1] != len(shape):
            fail(
                TensorIndexError,
                f"boxes of shapes {a.shape} and {b.shape} on a tensor of rank {len(shape)}",
                "give lo and size as [vertices, rank] arrays",
            )
        if len(a) and bool(((a < 0) | (b < 0) | (a + b > shape)).any()):
            v = int(np.argmax(((a < 0) | (b < 0) | (a + b > shape)).any(axis=1)))
            fail(
                TensorIndexError,
                f"box {v}, from {a[v].tolist()} of size {b[v].tolist()}, leaves the tensor of "
                f"shape {list(tensor.shape)}",
            )
        eptr, records = box_records(tensor.view, a, b)
        return Edges(1, None, eptr, records, tensor.dtype, tensor.graph)

    @staticmethod
    def elements(tensor: Tensor, index: npt.ArrayLike, rank: int = 0) -> Edges:
        """Vertex v gets element ``index[v]`` of the flattened tensor."""
        idx = int_array(index, "the elements of edges").ravel()
        n = len(idx)
        if n and (int(idx.min()) < 0 or int(idx.max()) >= _tensor(tensor).numel):
            what = f"elements {int(idx.min())} to {int(idx.max())}"
            fail(TensorIndexError, f"{what} of a tensor of {tensor.numel}")
        one = np.ones(n, I8)
        records = (element_addresses(tensor.view, idx), one, one, np.zeros(n, I8))
        return Edges(rank, None, np.arange(n + 1, dtype=I8), records, tensor.dtype, tensor.graph)

    @staticmethod
    def flat(tensor: Tensor, begin: npt.ArrayLike, end: npt.ArrayLike) -> Edges:
        """Vertex v gets elements ``begin[v]`` to ``end[v]`` of the flattened tensor."""
        b, e = (int_array(x, "the bounds of edges").ravel() for x in (begin, end))
        if len(b) != len(e):
            fail(TensorIndexError, f"{len(b)} begins and {len(e)} ends of edges")
        size = _tensor(tensor).numel
        if len(b) and (int(b.min()) < 0 or int(e.max()) > size or bool((e < b).any())):
            what = f"ranges within {int(b.min())} to {int(e.max())}"
            fail(TensorIndexError, f"{what} of a tensor of {size} elements")
        n = len(b)
        view = tensor.view
        if isinstance(view, Affine) and tensor.is_contiguous():
            records = (as_ints(b + view.offset), e - b, np.ones(n, I8), np.zeros(n, I8))
            return Edges(1, None, np.arange(n + 1, dtype=I8), records, tensor.dtype, tensor.graph)
        s, length, window = cut(*view.runs(), b, e)
        eptr = np.searchsorted(window, np.arange(n + 1)).astype(I8)
        records = (s, length, np.ones(len(s), I8), np.zeros(len(s), I8))
        return Edges(1, None, eptr, records, tensor.dtype, tensor.graph)

    @staticmethod
    def views(tensors: Sequence[Tensor], rank: int = 1) -> Edges:
        """Vertex v gets ``tensors[v]``, flattened."""
        tensors = [_tensor(t) for t in listed(tensors, "the tensors of edges", _TENSORS)]
        parts = [view_records(t.view) for t in tensors]
        counts = as_ints([len(p[0]) for p in parts])
        records = join_records(parts)
        first = tensors[0] if tensors else None
        for t in tensors:
            if first is not None and not t.graph.same_graph(first.graph):
                fail(GraphError, "edges to tensors of two graphs")
        dtype, graph = (None, None) if first is None else (first.dtype, first.graph)
        return Edges(rank, None, offsets_of(counts), records, dtype, graph)

    @staticmethod
    def nested(vptr: npt.ArrayLike, edges: Edges) -> Edges:
        """A rank-2 field: vertex v gets the edges ``vptr[v]`` to ``vptr[v + 1]``."""
        inner = an_instance(edges, Edges, "the edges of lists", "give Edges")
        ptr = _pointer(vptr, inner.num_edges)
        return Edges(2, ptr, inner.eptr, inner.records(), inner.dtype, inner.graph)

    @staticmethod
    def from_runs(
        eptr: npt.ArrayLike,
        start: npt.ArrayLike,
        length: npt.ArrayLike,
        dtype: DType | None = None,
        rank: int = 1,
    ) -> Edges:
        """Edges of plain runs in global element addresses."""
        s, n = (int_array(x, "the runs of edges").ravel() for x in (start, length))
        if len(s) != len(n):
            fail(TensorIndexError, f"{len(s)} starts and {len(n)} lengths of edges")
        records = (s, n, np.ones(len(s), I8), np.zeros(len(s), I8))
        return Edges(rank, None, _pointer(eptr, len(s)), records, _type_or_none(dtype))

    @staticmethod
    def from_records(
        eptr: npt.ArrayLike,
        start: npt.ArrayLike,
        length: npt.ArrayLike,
        count: npt.ArrayLike,
        stride: npt.ArrayLike,
        dtype: DType | None = None,
    ) -> Edges:
        """Edges of 2-D records in global element addresses; scalars are repeated."""
        what = "the records of edges"
        s, *rest = (int_array(x, what).ravel() for x in (start, length, count, stride))
        if any(len(x) not in (1, len(s)) for x in rest):
            fail(TensorIndexError, f"{len(s)} starts of records, {[len(x) for x in rest]} more")
        full = [np.ascontiguousarray(np.broadcast_to(x, s.shape)) for x in rest]
        records = (s, full[0], full[1], full[2])
        return Edges(1, None, _pointer(eptr, len(s)), records, _type_or_none(dtype))

    @staticmethod
    def stack(parts: Sequence[Edges]) -> Edges:
        """The vertices of several Edges of one rank, one after another."""
        parts = [
            an_instance(p, Edges, "a part", "give Edges")
            for p in listed(parts, "the parts of edges", "give a list of Edges")
        ]
        if not parts or any((p.rank == 2) != (parts[0].rank == 2) for p in parts):
            fail(TensorIndexError, f"edges of ranks {[p.rank for p in parts]} as one")
        first = parts[0]
        eptr = offsets_of(concat_ints([np.diff(p.eptr) for p in parts]))
        vptr = None
        if first.rank == 2:
            vptr = offsets_of(concat_ints([np.diff(_vptr(p)) for p in parts]))
        records = join_records([p.records() for p in parts])
        return Edges(first.rank, vptr, eptr, records, first.dtype, first.graph)

    def take(self, index: npt.ArrayLike) -> Edges:
        """The edges of the listed vertices, in that order."""
        idx = int_array(index, "the vertices of edges").ravel()
        if len(idx) and (int(idx.min()) < 0 or int(idx.max()) >= self.num_vertices):
            what = f"vertices {int(idx.min())} to {int(idx.max())}"
            fail(TensorIndexError, f"{what} of edges of {self.num_vertices}")
        vptr = None
        if self.vptr is not None:
            per = np.diff(self.vptr)[idx]
            v, rank = ragged(per)
            vptr, idx = offsets_of(per), self.vptr[idx][v] + rank
        eptr, records = take_edges(self.eptr, self.records(), idx)
        return Edges(self.rank, vptr, eptr, records, self.dtype, self.graph)

    # ------------------------------------------------------------------ queries
    def records(self) -> Records:
        """The records of all edges: start, length, count, stride."""
        return self.start, self.length, self.count, self.stride

    @property
    def num_edges(self) -> int:
        """Edges (sub-edges for rank 2)."""
        return len(self.eptr) - 1

    @property
    def num_vertices(self) -> int:
        """Vertices these edges serve."""
        return len(self.eptr if self.vptr is None else self.vptr) - 1

    @property
    def num_records(self) -> int:
        return len(self.start)

    def record_edge(self) -> Ints:
        """Edge of every record."""
        return np.repeat(np.arange(self.num_edges, dtype=I8), np.diff(self.eptr))

    def record_vertex(self) -> Ints:
        """Vertex of every record."""
        edge = self.record_edge()
        if self.vptr is None:
            return edge
        return self.edge_vertex()[edge]

    def edge_vertex(self) -> Ints:
        """Vertex of every edge."""
        if self.vptr is None:
            return np.arange(self.num_edges, dtype=I8)
        return np.repeat(np.arange(len(self.vptr) - 1, dtype=I8), np.diff(self.vptr))

    def sizes(self) -> Ints:
        """Elements of every edge: int64[num_edges]."""
        total = self.length * self.count
        if len(total) == self.num_edges and bool((np.diff(self.eptr) == 1).all()):
            return total
        c = np.zeros(len(total) + 1, I8)
        np.cumsum(total, out=c[1:])
        return c[self.eptr[1:]] - c[self.eptr[:-1]]

    def runs(self) -> tuple[Ints, Ints, Ints]:
        """Plain runs in order: (edge, start, length)."""
        edge = self.record_edge()
        if bool((self.count == 1).all()):
            return edge, self.start, self.length
        r, k = ragged(self.count)
        return edge[r], self.start[r] + k * self.stride[r], self.length[r]

    @property
    def nbytes(self) -> int:
        """Bytes these arrays take on the host."""
        arrays = [self.eptr, self.start, self.length, self.count, self.stride]
        return sum(a.nbytes for a in arrays) + (0 if self.vptr is None else self.vptr.nbytes)

    def __repr__(self) -> str:
        return f"<edges rank {self.rank}: {self.num_vertices} vertices, {self.num_records} records>"


_TENSORS = "give tensors"


def _tensor(tensor: Tensor) -> Tensor:
    return an_instance(tensor, Tensor, "what edges are taken from", _TENSORS)


def _type_or_none(dtype: DType | None) -> DType | None:
    return None if dtype is None else element_type(dtype)


def _pointer(ptr: npt.ArrayLike, items: int) -> Ints:
    """Bounds of each owner's items: from 0, never descending, to the number of items."""
    p = int_array(ptr, "the bounds of edges").ravel()
    if len(p) == 0 or p[0] != 0 or p[-1] != items or bool((p[1:] < p[:-1]).any()):
        shown = ", ".join(str(x) for x in p[:4].tolist())
        fail(TensorIndexError, f"bounds {shown} ... for {items} items", f"from 0 to {items}")
    return p


def _vptr(edges: Edges) -> Ints:
    return edges.eptr if edges.vptr is None else edges.vptr
