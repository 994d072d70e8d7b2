"""References to a vertex that was added by itself, and to its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
