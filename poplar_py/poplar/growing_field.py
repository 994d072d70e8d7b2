"""One edge field of vertices that are added one at a time."""

from __future__ import annotations

from array import array

import numpy as np

from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.edge_boxes import Records, view_records
from poplar_py.poplar.groups import FieldLike
from poplar_py.poplar.tensor import Tensor

__all__ = ["GrowingField", "append_records", "columns"]

_ROW = 6


class GrowingField:
    """One edge field while vertices arrive.

    ``start`` and ``length`` have an entry per vertex whose edge is one run, in order; length -1
    says that the records are in ``table`` (or that nothing is connected yet).
    """

    __slots__ = ("dtype", "field", "length", "rank", "start", "subs", "table")

    def __init__(self, field: FieldLike) -> None:
        self.field = field
        self.dtype = field.dtype
        self.rank = field.rank
        self.start = array("q")
        self.length = array("q")
        self.table = array("q")  # vertex, sub-edge, start, length, count, stride per record
        self.subs = array("q")  # vertex, number of sub-edges, per connection of a list

    def other(self, v: int) -> array[int]:
        """The table, for a record of vertex ``v`` that is no plain run in order."""
        missing = v + 1 - len(self.length)
        if missing > 0:
            self.start.extend([0] * missing)
            self.length.extend([-1] * missing)
        elif self.length[v] >= 0:
            self.table.extend((v, 0, self.start[v], self.length[v], 1, 0))  # connected twice
            self.length[v] = -1
        return self.table

    def rows(self) -> Ints:
        """All records as rows of vertex, sub-edge, start, length, count, stride."""
        length = np.array(self.length, I8)
        plain = np.flatnonzero(length >= 0)
        rows = np.zeros((len(plain), _ROW), I8)
        rows[:, 0] = plain
        rows[:, 2] = np.array(self.start, I8)[plain]
        rows[:, 3] = length[plain]
        rows[:, 4] = 1
        if not self.table:
            return rows
        return np.concatenate([rows, np.array(self.table, I8).reshape(-1, _ROW)])


def columns(rows: Ints) -> Records:
    """Rows of ``GrowingField.rows`` as the records of edges."""
    start, length, count, stride = (np.ascontiguousarray(rows[:, i]) for i in range(2, _ROW))
    return start, length, count, stride


def append_records(table: array[int], v: int, sub: int, value: Tensor) -> None:
    """The records of sub-edge ``sub`` of vertex ``v`` at the end of a table."""
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
