"""The base of all program steps, and Sequence."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, cast

from poplar_py.diagnostics import Location
from poplar_py.poplar.errors import (
    GraphError,
)
from poplar_py.poplar.faults import fail
from poplar_py.poplar.where import caller

if TYPE_CHECKING:
    pass


class Program:
    """One step. ``loc`` is the user's line, ``name`` a label for profiles."""

    __slots__ = ("loc", "name")

    def __init__(self, name: str = "", loc: Location | None = None) -> None:
        self.name = name
        self.loc = caller() if loc is None else loc

    def children(self) -> list[Program]:
        """Programs inside this one, in order."""
        return []

    def walk(self) -> Iterator[Program]:
        """This program and all inside it, outer first; functions are not entered."""
        todo: list[Program] = [self]
        while todo:
            p = todo.pop()
            yield p
            todo += reversed(p.children())


class Sequence(Program):
    """Steps one after another. ``add`` appends; a Sequence holds references, not copies."""

    __slots__ = ("steps",)

    def __init__(self, *steps: Program | Seq[Program], name: str = "") -> None:
        super().__init__(name)
        self.steps: list[Program] = []
        for s in steps:
            self.steps += list(s) if isinstance(s, (list, tuple)) else [cast("Program", s)]

    def add(self, step: Program) -> None:
        """Append a step."""
        if step is self:
            fail(GraphError, "a sequence cannot contain itself")
        self.steps.append(step)

    def children(self) -> list[Program]:
        return self.steps

    def __len__(self) -> int:
        return len(self.steps)
