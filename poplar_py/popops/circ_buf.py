"""CircBuf: the last tensors of a sequence, in a ring on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import OptionError, ShapeError, TypeMismatch
from poplar_py.poplar import program
from poplar_py.poplar.faults import fail
from poplar_py.popops.dynamic import dynamic_slice, dynamic_update
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.extra import create_sliceable_tensor
from poplar_py.types import i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = ["CircBuf"]


class CircBuf:
    """The last `size` tensors of one type and shape; zeros until as many were added.

    State on the device: a tensor [size, *shape], whose rows lie on one tile each column, and the
    index of the newest row. It persists from run to run. Raises OptionError for a size under 1.
    """

    def __init__(
        self, graph: Graph, dtype: DType, size: int, shape: Sequence[int], name: str = "circ_buf"
    ) -> None:
        if size < 1:
            fail(OptionError, f"a circular buffer of {size} entries", remedy="give 1 or more")
        self._graph, self._name, self._size = graph, name, size
        self._shape = tuple(shape)
        self._buffer = create_sliceable_tensor(graph, dtype, (size, *shape), [0], f"{name}/buffer")
        graph.set_initial_value(self._buffer, np.zeros((size, *shape), dtype.numpy))
        self._index = graph.add_variable(i32, (1,), f"{name}/index", mapping="linear")
        graph.set_initial_value(self._index, 0)

    def size(self) -> int:
        """Entries the buffer holds."""
        return self._size

    def get_index(self) -> Tensor:
        """i32 [1]: the row of the newest entry."""
        return self._index

    def prev(self, i: int, prog: program.Sequence, name: str = "") -> Tensor:
        """The entry added `i` entries before the newest, [*shape]; 0 is the newest.

        Raises OptionError unless 0 <= i < size.
        """
        if not 0 <= i < self._size:
            fail(
                OptionError,
                f"entry {i} of a circular buffer of {self._size}",
                remedy="entries count from 0",
            )
        name = name or f"{self._name}/prev"
        start = self._moved(self._size - i, prog, name)
        return dynamic_slice(self._graph, self._buffer, start, 0, 1, prog, name).squeeze([0])

    def add(self, tensor: Tensor, prog: program.Sequence, name: str = "") -> None:
        """Move the index on and keep `tensor` there, in the place of the oldest entry.

        Raises ShapeError and TypeMismatch for a tensor of another form.
        """
        if tensor.shape != self._shape:
            fail(ShapeError, f"{list(tensor.shape)} for entries of shape {list(self._shape)}")
        if tensor.dtype != self._buffer.dtype:
            fail(TypeMismatch, f"{tensor.dtype.name} for entries of {self._buffer.dtype.name}")
        name = name or f"{self._name}/add"
        prog.add(program.Copy(self._moved(1, prog, name), self._index))
        row = tensor.reshape((1, *self._shape))
        dynamic_update(self._graph, self._buffer, row, self._index, 0, prog, name, in_place=True)

    def _moved(self, by: int, prog: program.Sequence, name: str) -> Tensor:
        """The index `by` entries on, around the ring."""
        text = f"mod(add($0,c({by})),c({self._size}))"
        return map_expr(self._graph, text, [self._index], prog, f"{name}/index", i32)
