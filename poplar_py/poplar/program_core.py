"""The base of all program steps, and Sequence."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import cast

from poplar_py.diagnostics import Location
from poplar_py.poplar.errors import GraphError
from poplar_py.poplar.faults import a_text, fail
from poplar_py.poplar.where import caller


class Program:
    """One step. ``loc`` is the user's line, ``name`` a label for profiles."""

    __slots__ = ("loc", "name")

    def __init__(self, name: str = "", loc: Location | None = None) -> None:
        self.name = name if type(name) is str else a_text(name, "the name of a program")
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


def a_program(step: object, what: str) -> Program:
    """The step, which must be a program. Raises GraphError."""
    if not isinstance(step, Program):
        fail(GraphError, f"{what} is {step!r}: that is no program", "give a program step")
    return step


class Sequence(Program):
    """Steps one after another. ``add`` appends; a Sequence holds references, not copies.

    ``Sequence(a, b)``, ``Sequence([a, b])``; a text at the end is its name, as in Poplar.
    """

    __slots__ = ("steps",)

    def __init__(self, *steps: Program | Seq[Program] | str, name: str = "") -> None:
        if steps and isinstance(steps[-1], str):
            steps, name = steps[:-1], steps[-1]
        super().__init__(name)
        self.steps: list[Program] = []
        for s in steps:
            parts = cast("Seq[object]", s) if isinstance(s, (list, tuple)) else (s,)
            self.steps += [a_program(p, "a step of a sequence") for p in parts]

    def add(self, step: Program) -> None:
        """Append a step."""
        if step is self:
            fail(GraphError, "a sequence cannot contain itself")
        self.steps.append(a_program(step, "a step of a sequence"))

    def children(self) -> list[Program]:
        return self.steps

    def __len__(self) -> int:
        return len(self.steps)
