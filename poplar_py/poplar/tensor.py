"""Tensor: a shaped view of variables' elements. No data on the host; every operation is a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO, cast

import numpy as np

from poplar_py.poplar.arrays import I8, Ints, coalesce, unique_sorted
from poplar_py.poplar.errors import GraphError, TensorIndexError, TensorTypeError
from poplar_py.poplar.faults import an_instance, element_type, fail, listed, whole_number
from poplar_py.poplar.mapping import Interval
from poplar_py.poplar.tensor_shapes import TensorShapes
from poplar_py.poplar.view_concat import concat_views
from poplar_py.poplar.view_core import View
from poplar_py.poplar.views import Affine, Cat
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.variable import Variable

__all__ = ["Tensor", "append", "concat", "variable_ids"]


class Tensor(TensorShapes):
    """Elements of variables under a shape. Immutable; cheap to make and to pass around.

    ``dtype`` is the element type, ``shape`` a tuple of ints, ``view`` the stored form (libraries
    use ``runs()`` and ``Edges``, never the view).
    """

    __slots__ = ()

    # ------------------------------------------------------------------ types
    def reinterpret(self, dtype: DType) -> Tensor:
        """The same bits as another type of the same size."""
        dtype = element_type(dtype)
        if dtype.size != self.dtype.size:
            fail(
                TensorTypeError,
                f"reinterpret {self.dtype.name} as {dtype.name}: "
                f"{self.dtype.size} and {dtype.size} bytes",
                "use popops.cast to convert values",
            )
        return Tensor(self.graph, self.view, dtype)

    # ------------------------------------------------------------------ questions
    def runs(self) -> tuple[Ints, Ints]:
        """Starts and lengths, in global element addresses and row-major order."""
        return self.view.runs()

    def is_contiguous(self) -> bool:
        """Whether the elements are one ascending run of one variable."""
        view = self.view
        if isinstance(view, Affine):
            digits = view.digits()
            return 0 in view.shape or not digits or (len(digits) == 1 and digits[0][1] == 1)
        return len(coalesce(*view.runs())[0]) <= 1

    def contains_aliases(self) -> bool:
        """Whether some element occurs twice."""
        return self.view.aliased()

    def variables(self) -> list[Variable]:
        """The variables the elements belong to, by ascending address."""
        return self.graph.variables_of(self.view)

    def contains_constant(self) -> bool:
        """Whether an element belongs to a constant."""
        return any(v.constant is not None for v in self.variables())

    def is_parallel_writeable(self) -> bool:
        """Whether every element may be written: no aliases, no constants."""
        return not self.contains_aliases() and not self.contains_constant()

    def get_contiguous_regions(self) -> list[Interval]:
        """Intervals of the flattened tensor that are contiguous in memory."""
        end = np.cumsum(coalesce(*self.view.runs())[1]).tolist()
        return [Interval(b, e) for b, e in zip([0, *end[:-1]], end, strict=True) if e > b]

    def get_var_regions(self) -> list[tuple[int, Interval]]:
        """(variable id, elements of that variable) of each run, in order."""
        start, length = coalesce(*self.view.runs())
        ids, bases = self.graph.locate_variables(start)
        first = start - bases
        rows = zip(ids.tolist(), first.tolist(), (first + length).tolist(), strict=True)
        return [(v, Interval(b, e)) for v, b, e in rows]

    def intersects_with(self, other: Tensor) -> bool:
        """Whether the two share an element."""
        an_instance(other, Tensor, "the other tensor", "give a tensor")
        start, length = self.view.runs()
        order = np.argsort(start, kind="stable")
        s = start[order]
        reach = np.maximum.accumulate(s + length[order]) if len(s) else s
        s2, n2 = other.view.runs()
        if len(s) == 0 or len(s2) == 0:
            return False
        last = np.searchsorted(s, s2 + n2, "left") - 1  # runs that begin before the other's end
        return bool(((last >= 0) & (reach[np.maximum(last, 0)] > s2)).any())

    def addresses(self) -> Ints:
        """One global element address per element: int64 of this shape. For small tensors."""
        start, length = self.view.runs()
        run = np.repeat(np.arange(len(start)), length)
        first = np.cumsum(length) - length
        flat = start[run] + (np.arange(len(run), dtype=I8) - first[run])
        return flat.reshape(self.view.shape)

    def dump(self, out: TextIO) -> None:
        """Write the regions as text."""
        if not hasattr(out, "write"):
            fail(TensorTypeError, f"regions are written to {out!r}", "give an open text file")
        out.write(f"{self.dtype.name}{list(self.shape)}:\n")
        names = self.graph.variables
        for var, interval in self.get_var_regions():
            out.write(f"  {names[var].name}[{interval.begin}:{interval.end}]\n")

    def pieces(self) -> list[tuple[tuple[int, ...], Tensor]]:
        """The parts a joined tensor is made of: (position of the first element, tensor), or just
        itself. Parts cover the tensor without overlap."""
        return [(at, self._make(v)) for at, v in _pieces(self.view, (0,) * self.rank)]


def _pieces(view: View, at: tuple[int, ...]) -> list[tuple[tuple[int, ...], View]]:
    if not isinstance(view, Cat):
        return [(at, view)]
    out: list[tuple[tuple[int, ...], View]] = []
    a, begin = view.axis, 0
    for p in view.parts:
        out += _pieces(p, (*at[:a], at[a] + begin, *at[a + 1 :]))
        begin += p.shape[a]
    return out


_PARTS = "give tensors"


def concat(
    tensors: Sequence[Tensor] | Tensor, dim: int | Tensor = 0, last: int | None = None
) -> Tensor:
    """Tensors joined along a dim; the other sizes and the types agree. Also Poplar's form for two:
    ``concat(a, b, dim)``."""
    parts = [tensors] if isinstance(tensors, Tensor) else listed(tensors, "the parts", _PARTS)
    if isinstance(dim, Tensor):  # concat(a, b, dim), Poplar's form for two
        return concat([*parts, dim], 0 if last is None else last)
    if not parts:
        fail(TensorIndexError, "concat of no tensors")
    for t in parts:
        an_instance(t, Tensor, "a part of a concat", _PARTS)
    first = cast("Tensor", parts[0])
    d = first._dim(dim)  # pyright: ignore[reportPrivateUsage]
    for t in parts[1:]:
        if not t.graph.same_graph(first.graph):
            fail(GraphError, "concat of tensors of two graphs")
        if t.dtype is not first.dtype:
            fail(TensorTypeError, f"concat of {first.dtype.name} and {t.dtype.name}")
        if t.rank != first.rank or any(
            a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != d
        ):
            fail(
                TensorIndexError,
                f"concat of {list(first.shape)} and {list(t.shape)} along dim {d}",
                "all other dims must agree",
            )
    return Tensor(
        first.graph,
        concat_views([t.view for t in parts], d, first.graph.same_variable),
        first.dtype,
    )


def append(a: Tensor, b: Tensor, dim: int | None = None) -> Tensor:
    """``b``, of a rank one lower, put behind ``a`` as one more row."""
    d = 0 if dim is None else whole_number(dim, "a dim")
    for t in (a, b):
        an_instance(t, Tensor, "a part of an append", _PARTS)
    return concat([a, b.expand([d])], d)


def variable_ids(view: View, bases: Ints) -> list[int]:
    """Ids of the variables under a view, ascending."""
    if isinstance(view, Affine):
        return [int(np.searchsorted(bases, view.offset, "right")) - 1] if view.size else []
    if isinstance(view, Cat):
        found: set[int] = set()
        for p in view.parts:
            found.update(variable_ids(p, bases))
        return sorted(found)
    start, _ = view.runs()
    ids = np.searchsorted(bases, start, "right").astype(I8) - 1
    return unique_sorted(ids).tolist()
