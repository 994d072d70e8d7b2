"""What passes share during one compilation: options, the machine, side tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar, cast, runtime_checkable

from poplar_py.diagnostics import InternalError

__all__ = ["PassContext", "TileLevel"]

T = TypeVar("T")


@runtime_checkable
class TileLevel(Protocol):
    """What the manager needs of a tile-level module.

    `print_ir` enters arrays that its text names by hash into `resources`, or prints them inline.
    """

    def print_ir(
        self, inline_resources: bool = False, resources: dict[str, Any] | None = None
    ) -> str: ...
    def verify(self) -> None: ...


def _silent(_step: str) -> None:
    """Progress that nobody watches."""


@dataclass
class PassContext:
    """Options of one compilation, and what passes leave for later ones.

    dims, shapes: sizes of free dims, shapes of inputs by name (infer-shapes).
    target: the machine of one replica; placement: auto | one | spread (place, lower, map-tiles).
    before, after: names of passes around which the IR is printed to `out`; diff prints what each
    pass changed; dump_dir gets one numbered file a pass; stop_after ends the pipeline early.
    """

    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    target: Any = None
    placement: str = "auto"
    replicas: int = 1
    options: Any = None

    verify: bool = True
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_all: bool = False
    diff: bool = False
    dump_dir: Path | None = None
    inline_resources: bool = False
    time_passes: bool = False
    stop_after: str = ""
    reproducer_dir: Path | None = None
    out: TextIO = field(default_factory=lambda: sys.stderr)
    progress: Callable[[str], None] = _silent

    tables: dict[type[Any], Any] = field(default_factory=dict[type[Any], Any])
    timings: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    current: str = ""
    replacement: Any = None

    def replace(self, module: Any) -> None:
        """Called by a pass that makes a new module, perhaps of another level."""
        self.replacement = module

    def put(self, table: Any) -> None:
        """Leave a side table; there is one of each class."""
        self.tables[cast("type[Any]", type(table))] = table

    def find(self, cls: type[T]) -> T | None:
        """The side table of a class, if a pass has left one."""
        return self.tables.get(cls)

    def get(self, cls: type[T]) -> T:
        """The side table of a class. Raises InternalError when no pass has left one."""
        found = self.find(cls)
        if found is None:
            raise InternalError(
                f"pass {self.current} needs the table {cls.__name__}, which no pass has made",
                remedy="run the pass that makes it before",
            )
        return found
