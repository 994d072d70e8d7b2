"""References to a vertex that was added by itself, and to its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.poplar.errors import TensorIndexError, UnknownField
from poplar_py.poplar.faults import a_text, fail, whole_number

if TYPE_CHECKING:
    from poplar_py.poplar.pending import PendingGroup

__all__ = ["FieldRef", "VertexRef"]


class VertexRef:
    """One vertex that ``add_vertex`` added; ``v["field"]`` refers to a field of it."""

    __slots__ = ("group", "index")

    def __init__(self, group: PendingGroup, index: int) -> None:
        self.group = group
        self.index = index

    def __getitem__(self, name: str) -> FieldRef:
        return FieldRef(self.group, self.index, name if type(name) is str else _name(name))

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
        at = whole_number(i, f"an index of field {self.name!r}")
        if at < 0:
            fail(TensorIndexError, f"index {at} of field {self.name!r}", "count from 0")
        return FieldRef(self.group, self.index, self.name, at)

    def __repr__(self) -> str:
        at = "" if self.sub < 0 else f"[{self.sub}]"
        return f"<field {self.name!r}{at} of vertex {self.index} of {self.group.codelet.name}>"


def _name(name: object) -> str:
    return a_text(name, "the name of a field", UnknownField)
