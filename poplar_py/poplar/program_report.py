"""Steps that speak to the host: print, sync, errors, cycle counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.poplar.errors import (
    TensorCreationError,
    TensorTypeError,
)
from poplar_py.poplar.faults import fail
from poplar_py.poplar.tensor import Tensor

if TYPE_CHECKING:
    pass

from poplar_py.poplar.program_core import Program
from poplar_py.poplar.program_data import check_scalar


class PrintTensorFmt:
    """How PrintTensor writes: summary threshold, edge items, line width, digits, brackets."""

    __slots__ = (
        "close_bracket",
        "edge_items",
        "float_format",
        "max_line_width",
        "open_bracket",
        "precision",
        "separator",
        "threshold",
    )

    def __init__(
        self,
        threshold: int = 1000,
        edge_items: int = 3,
        max_line_width: int = 75,
        precision: int = 4,
        float_format: str = "auto",
        separator: str = ",",
        open_bracket: str = "[",
        close_bracket: str = "]",
    ) -> None:
        self.threshold = threshold
        self.edge_items = edge_items
        self.max_line_width = max_line_width
        self.precision = precision
        self.float_format = float_format
        self.separator = separator
        self.open_bracket = open_bracket
        self.close_bracket = close_bracket


class PrintTensor(Program):
    """Print a tensor on the host when reached: ``PrintTensor([title,] tensor[, fmt])``."""

    __slots__ = ("fmt", "tensor", "title")

    def __init__(
        self,
        title: str | Tensor,
        tensor: Tensor | PrintTensorFmt | None = None,
        fmt: PrintTensorFmt | None = None,
        name: str = "",
    ) -> None:
        super().__init__(name)
        if isinstance(title, Tensor):
            self.title, self.tensor = "", title
            self.fmt = tensor if isinstance(tensor, PrintTensorFmt) else fmt
            return
        if not isinstance(tensor, Tensor):
            fail(TensorTypeError, "PrintTensor needs a tensor")
        self.title, self.tensor, self.fmt = title, tensor, fmt


SYNC_TYPES = ("internal", "external", "global")


class Sync(Program):
    """A barrier: internal (tiles of an IPU), external (with the host) or global (all IPUs)."""

    __slots__ = ("kind",)

    def __init__(self, kind: str = "internal", name: str = "") -> None:
        super().__init__(name)
        if kind.lower() not in SYNC_TYPES:
            fail(TensorCreationError, f"unknown sync {kind!r}", f"one of {', '.join(SYNC_TYPES)}")
        self.kind = kind.lower()


class ErrorProgram(Program):
    """Stop with a message and the contents of a tensor."""

    __slots__ = ("message", "tensor")

    def __init__(self, message: str, tensor: Tensor | None = None, name: str = "") -> None:
        super().__init__(name)
        self.message = message
        self.tensor = tensor


class Abort(Program):
    """Stop with a message."""

    __slots__ = ("message",)

    def __init__(self, message: str = "", name: str = "") -> None:
        super().__init__(name)
        self.message = message


class AbortOnCondition(Program):
    """Stop with a message where a device scalar is nonzero."""

    __slots__ = ("message", "predicate")

    def __init__(self, predicate: Tensor, message: str = "", name: str = "") -> None:
        super().__init__(name)
        check_scalar(predicate, "the predicate", "biu")
        self.predicate = predicate
        self.message = message


class CycleCount(Program):
    """Store the tile cycles of the body, or (no body) a time stamp: two uint32, low word first."""

    __slots__ = ("body", "tensor", "tile")

    def __init__(self, body: Program | None, tensor: Tensor, tile: int, name: str = "") -> None:
        super().__init__(name)
        self.body = body
        self.tensor = tensor
        self.tile = tile

    def children(self) -> list[Program]:
        return [] if self.body is None else [self.body]
