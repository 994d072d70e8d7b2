"""Errors a user can cause: each has a code, a place, a reason and a remedy.

`str(error)` is the text people see:

    error[shape-error]: nn.matmul: inner sizes differ: 784 and 256
      --> mlp.pml:3:12
       |
     3 |     h = x @ w
       |         ^
       = help: transpose an operand, or give `w` 784 rows

Frontends call `register_source` so that an error found long after parsing can still quote its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

__all__ = [
    "UNKNOWN",
    "DuplicateName",
    "ErrorList",
    "FileError",
    "InputError",
    "InternalError",
    "InvalidProgram",
    "Location",
    "NestingTooDeep",
    "OptionError",
    "OutOfTileMemory",
    "ParseError",
    "PassFailed",
    "PoplarPyError",
    "PoplarPyErrors",
    "RunTimeout",
    "ShapeError",
    "Stopped",
    "TileException",
    "TypeMismatch",
    "UnboundDims",
    "UnknownName",
    "UnsupportedOp",
    "VerifyError",
    "quote_name",
    "reason_of",
    "register_source",
    "source_line",
]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def reason_of(error: BaseException, most: int = 300) -> str:
    """What a library says of a file, at most `most` characters: some quote all of its bytes."""
    text = str(error) or type(error).__name__
    return text if len(text) <= most else f"{text[:most]} ..."


def quote_name(text: str) -> str:
    """`text` between double quotes, with every control character escaped (one line)."""
    parts: list[str] = []
    for ch in text:
        if ch in _ESCAPES:
            parts.append(_ESCAPES[ch])
        elif ch.isprintable():
            parts.append(ch)
        else:
            parts.append(f"\\u{{{ord(ch):x}}}")
    return '"' + "".join(parts) + '"'


@dataclass(frozen=True, slots=True)
class Location:
    """Where something comes from.

    Source text and Python frames: file, line, col (1-based). An ONNX node: file is the model, line
    is 0, and name, index and output say which node. `str` gives what `loc(...)` holds in `.pir`.
    """

    file: str
    line: int
    col: int
    name: str = ""
    index: int = -1
    output: str = ""

    @property
    def known(self) -> bool:
        return bool(self.file or self.name or self.line)

    def __str__(self) -> str:
        text = quote_name(self.file)
        if self.line:
            text += f":{self.line}:{self.col}"
        if self.name or self.index >= 0:
            text += f" node {quote_name(self.name)}"
        if self.index >= 0:
            text += f" #{self.index}"
        if self.output:
            text += f" output {quote_name(self.output)}"
        return text

    @property
    def short(self) -> str:
        """For people: `file:line:col`, or `file, node 'name' (number 3, output 'y')`.

        What is no node of a model is `file, name`.
        """
        if self.line:
            return f"{self.file}:{self.line}:{self.col}"
        if self.index < 0:
            return ", ".join(part for part in (self.file, self.name) if part)
        details = [f"number {self.index}"]
        details += [f"output {self.output!r}"] if self.output else []
        head = f"{self.file}, " if self.file else ""
        return f"{head}node {self.name!r} ({', '.join(details)})"


UNKNOWN = Location("", 0, 0)

_MAX_SOURCES = 256
_MAX_NOTES = 6
_sources: dict[str, list[str]] = {}


def register_source(file: str, text: str) -> None:
    """Remember the lines of `file`, for carets. Keeps the latest 256 files."""
    _sources.pop(file, None)
    _sources[file] = text.splitlines()
    while len(_sources) > _MAX_SOURCES:
        del _sources[next(iter(_sources))]


def source_line(loc: Location) -> str | None:
    """The line `loc` points at, if its file was registered."""
    lines = _sources.get(loc.file)
    if lines is None or not 1 <= loc.line <= len(lines):
        return None
    return lines[loc.line - 1]


class PoplarPyError(Exception):
    """Base of every error that a user's model, file or option can cause."""

    code: str = "error"

    def __init__(
        self,
        message: str,
        loc: Location = UNKNOWN,
        remedy: str = "",
        source_line: str | None = None,
        code: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc
        self.remedy = remedy
        self.source_line = source_line
        self.notes: list[str] = []
        if code:
            self.code = code

    def at(self, loc: Location) -> Self:
        """Give the error a place unless it has one; returns itself."""
        if not self.loc.known:
            self.loc = loc
        return self

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}{self._where()}"

    def _where(self) -> str:
        text = ""
        if self.loc.known:
            text += f"\n  --> {self.loc.short}"
            text += self._caret()
        for note in self.notes[:_MAX_NOTES]:
            text += f"\n   = note: {note}"
        if len(self.notes) > _MAX_NOTES:
            text += f"\n   = note: ... and {len(self.notes) - _MAX_NOTES} more"
        if self.remedy:
            text += f"\n   = help: {self.remedy}"
        return text

    def _caret(self) -> str:
        line = self.source_line if self.source_line is not None else source_line(self.loc)
        if line is None or not self.loc.line:
            return ""
        line, col = _window(line, self.loc.col)
        number = str(self.loc.line)
        pad = " " * (len(number) + 1)
        lead = "".join("\t" if ch == "\t" else " " for ch in line[: max(0, col - 1)])
        return f"\n {pad}|\n {number} | {line}\n {pad}| {lead}^"


def _window(line: str, col: int, width: int = 160) -> tuple[str, int]:
    """A part of a very long line that still holds column `col`."""
    if len(line) <= width:
        return line, col
    begin = max(0, min(col - 1 - width // 2, len(line) - width))
    return line[begin : begin + width], col - begin


class ParseError(PoplarPyError):
    """A text (model, IR, pipeline, TOML, codelet) that does not follow its grammar."""

    code = "parse-error"


class NestingTooDeep(ParseError):
    """Brackets, calls or blocks nest deeper than the parser goes."""

    code = "nesting-too-deep"


class UnknownName(PoplarPyError):
    """A name that nothing is known by."""

    code = "unknown-name"


class DuplicateName(PoplarPyError):
    """A name given twice where it must be unique."""

    code = "duplicate-name"


class VerifyError(PoplarPyError):
    """IR that breaks a rule of its level."""

    code = "verify-error"


class ShapeError(PoplarPyError):
    """Shapes, axes or sizes that do not fit."""

    code = "shape-error"


class UnboundDims(ShapeError):
    """Free dims whose sizes are not known where they are needed."""

    code = "unbound-dims"


class TypeMismatch(PoplarPyError):
    """An element type, or a kind of value, other than the one wanted."""

    code = "type-mismatch"


class UnsupportedOp(PoplarPyError):
    """An op, or a form of it, that this compiler does not do."""

    code = "unsupported-op"


class InputError(PoplarPyError):
    """An array given to a run that is missing, unknown, or of the wrong type or shape."""

    code = "input-error"


class FileError(PoplarPyError):
    """A file that cannot be read or written, or whose content is damaged."""

    code = "file-error"


class OptionError(PoplarPyError):
    """An option or argument whose value is not allowed."""

    code = "option-error"


class InvalidProgram(PoplarPyError):
    """A tile-level graph or program breaks a rule (unmapped tensor, two writers, ...)."""

    code = "graph_program_error"


class OutOfTileMemory(PoplarPyError):
    """A tile (or host region) cannot hold what the plan needs. Poplar's name for it is the code."""

    code = "graph_memory_allocation_error"


class TileException(PoplarPyError):
    """A vertex failed while it ran. Poplar's name for it is the code."""

    code = "tile_exception"


class Stopped(PoplarPyError):
    """A run that a signal or `stop` ended."""

    code = "stopped"


class RunTimeout(PoplarPyError):
    """A run that took longer than its time limit."""

    code = "timeout"


class PassFailed(PoplarPyError):
    """A pass broke the module: an error of the compiler, not of the user."""

    code = "pass-failed"


class InternalError(PoplarPyError):
    """A state that must not happen: an error of this project, not of the user."""

    code = "internal-error"


class PoplarPyErrors(PoplarPyError):
    """Several errors found in one go; printed one after the other, then counted."""

    code = "several-errors"

    def __init__(self, errors: Sequence[PoplarPyError]) -> None:
        super().__init__(f"{len(errors)} errors", errors[0].loc)
        self.errors: tuple[PoplarPyError, ...] = tuple(errors)

    def __str__(self) -> str:
        return "\n\n".join(str(e) for e in self.errors) + f"\n\n{len(self.errors)} errors"


class ErrorList:
    """Collects errors so that several can be told before stopping.

        errors = ErrorList()
        for item in items:
            with errors: check(item)
        errors.raise_if_any()

    Stops collecting at `limit` errors by raising what it has.
    """

    LIMIT: ClassVar[int] = 20

    def __init__(self, limit: int = LIMIT) -> None:
        self.errors: list[PoplarPyError] = []
        self.limit = limit

    def add(self, error: PoplarPyError) -> None:
        if isinstance(error, PoplarPyErrors):
            self.errors.extend(error.errors)
        else:
            self.errors.append(error)
        if len(self.errors) >= self.limit:
            self.raise_if_any()

    def raise_if_any(self) -> None:
        if not self.errors:
            return
        if len(self.errors) == 1:
            raise self.errors[0]
        raise PoplarPyErrors(self.errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, PoplarPyError):
            return False
        self.add(error)
        return True

    def __len__(self) -> int:
        return len(self.errors)

    def __iter__(self) -> Iterator[PoplarPyError]:
        return iter(self.errors)
