"""What every part of a tensor rests on: its graph, its view, its element type, its size."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Self

from poplar_py.poplar.errors import TensorIndexError, TensorTypeError
from poplar_py.poplar.faults import fail, whole_number
from poplar_py.poplar.view_core import View
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.graph import Graph

__all__ = ["TensorCore"]


class TensorCore:
    """Holds a view; the subclasses add the operations on it."""

    __slots__ = ("dtype", "graph", "view")

    def __init__(self, graph: Graph, view: View, dtype: DType) -> None:
        self.graph = graph
        self.view = view
        self.dtype = dtype

    # ------------------------------------------------------------------ size and type
    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    @property
    def rank(self) -> int:
        return len(self.view.shape)

    @property
    def numel(self) -> int:
        return prod(self.view.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements the view lists (repeats counted)."""
        return self.numel * self.dtype.size

    def element_type(self) -> DType:
        return self.dtype

    def dim(self, index: int) -> int:
        """Size of one dim."""
        return self.view.shape[self._dim(index)]

    def dim_size(self, index: int) -> int:
        return self.dim(index)

    def num_elements(self) -> int:
        return self.numel

    def valid(self) -> bool:
        """A tensor that exists is valid; kept for programs written for Poplar."""
        return True

    def has_metadata(self) -> bool:
        """Whether the type carries scaling metadata (quarter): never here."""
        return False

    def __len__(self) -> int:
        if not self.view.shape:
            fail(TensorIndexError, "a tensor of rank 0 has no length")
        return self.view.shape[0]

    def __repr__(self) -> str:
        return f"<tensor {self.dtype.name}{list(self.view.shape)}>"

    def __bool__(self) -> bool:
        fail(
            TensorTypeError,
            "a tensor has no truth value while the graph is built",
            "use program.If for a decision on the device",
        )

    # ------------------------------------------------------------------ helpers
    def _dim(self, dim: int) -> int:
        rank = len(self.view.shape)
        if type(dim) is not int:
            dim = whole_number(dim, "a dim")
        if not -rank <= dim < rank:
            fail(TensorIndexError, f"dim {dim} of a tensor of rank {rank}")
        return dim if dim >= 0 else dim + rank

    def _make(self, view: View) -> Self:
        return self.__class__(self.graph, view, self.dtype)
