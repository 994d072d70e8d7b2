"""Steps that speak to the host: print, sync, errors, cycle counts."""

from __future__ import annotations

from poplar_py.poplar.enums import SyncType
from poplar_py.poplar.errors import TensorCreationError, TensorIndexError, TensorTypeError
from poplar_py.poplar.faults import a_text, an_instance, fail, whole_number, whole_numbers
from poplar_py.poplar.program_core import Program, a_program
from poplar_py.poplar.program_data import check_scalar, check_writable
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import u32

FLOAT_FORMATS = ("auto", "fixed", "scientific", "none")


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
        counts = (threshold, edge_items, max_line_width, precision)
        if min(whole_numbers(counts, "the numbers of a format")) < 0:
            fail(TensorIndexError, f"a format with the numbers {counts}", "give them from 0 on")
        for text in (float_format, separator, open_bracket, close_bracket):
            a_text(text, "a text of a format")
        if float_format not in FLOAT_FORMATS:
            remedy = f"one of {', '.join(FLOAT_FORMATS)}"
            fail(TensorTypeError, f"unknown float format {float_format!r}", remedy)
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
        tensor: Tensor | PrintTensorFmt | str | None = None,
        fmt: PrintTensorFmt | str | None = None,
        name: str = "",
    ) -> None:
        if isinstance(title, Tensor):  # without a title all else moves one place on
            given = (tensor, fmt, name)
            title, tensor = "", title
        else:
            given = (fmt, name)
        self.fmt: PrintTensorFmt | None = None
        for x in given:
            if isinstance(x, str):
                name = x or name
            elif x is not None:
                what = "the format of a PrintTensor"
                self.fmt = an_instance(x, PrintTensorFmt, what, "give a PrintTensorFmt")
        super().__init__(name)
        self.title = a_text(title, "the title of a PrintTensor")
        self.tensor = an_instance(tensor, Tensor, "what is printed", "give a tensor")


class Sync(Program):
    """A barrier: internal (tiles of an IPU), external (with the host) or global (all IPUs)."""

    __slots__ = ("kind",)

    def __init__(self, kind: str = SyncType.INTERNAL, name: str = "") -> None:
        super().__init__(name)
        kind = a_text(kind, "the kind of a sync").lower()
        if kind not in list(SyncType):
            fail(TensorCreationError, f"unknown sync {kind!r}", f"one of {', '.join(SyncType)}")
        self.kind = str(kind)


class ErrorProgram(Program):
    """Stop with a message and the contents of a tensor."""

    __slots__ = ("message", "tensor")

    def __init__(self, message: str, tensor: Tensor | None = None, name: str = "") -> None:
        super().__init__(name)
        self.message = a_text(message, "the message of an ErrorProgram")
        if tensor is not None:
            an_instance(tensor, Tensor, "the tensor of an ErrorProgram", "give a tensor")
        self.tensor = tensor


class Abort(Program):
    """Stop with a message."""

    __slots__ = ("message",)

    def __init__(self, message: str = "", name: str = "") -> None:
        super().__init__(name)
        self.message = a_text(message, "the message of an Abort")


class AbortOnCondition(Program):
    """Stop with a message where a device scalar is nonzero."""

    __slots__ = ("message", "predicate")

    def __init__(self, predicate: Tensor, message: str = "", name: str = "") -> None:
        super().__init__(name)
        check_scalar(predicate, "the predicate", "biu")
        self.predicate = predicate
        self.message = a_text(message, "the message of an AbortOnCondition")


class CycleCount(Program):
    """Store the tile cycles of the body, or (no body) a time stamp: two uint32, low word first."""

    __slots__ = ("body", "tensor", "tile")

    def __init__(self, body: Program | None, tensor: Tensor, tile: int, name: str = "") -> None:
        super().__init__(name)
        self.body = None if body is None else a_program(body, "what is counted")
        self.tensor = an_instance(tensor, Tensor, "the place of a cycle count", "give a tensor")
        if tensor.dtype is not u32 or tensor.numel != 2:
            remedy = "give two unsigned ints"
            fail(TensorTypeError, f"the place of a cycle count is {tensor!r}", remedy)
        check_writable(tensor, "the place of a cycle count")
        self.tile = whole_number(tile, "the tile of a cycle count")

    def children(self) -> list[Program]:
        return [] if self.body is None else [self.body]
