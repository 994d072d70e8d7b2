"""The user's line: the nearest caller outside this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

import poplar_py
from poplar_py.diagnostics import UNKNOWN, Location

_INSIDE = os.path.dirname(os.path.abspath(poplar_py.__file__)) + os.sep
_PASSES = os.path.join(os.path.dirname(os.path.dirname(_INSIDE)), "passes") + os.sep
_known: dict[str, bool] = {}


def _is_inside(file: str) -> bool:
    found = _known.get(file)
    if found is None:
        path = os.path.abspath(file)
        found = path.startswith((_INSIDE, _PASSES)) or file.startswith("<frozen")
        _known[file] = found
    return found


def user_frame() -> FrameType | None:
    """The innermost frame whose code is not part of the package."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


_fixed: ContextVar[Location | None] = ContextVar("location", default=None)


@contextmanager
def located(loc: Location) -> Generator[None]:
    """Makes `caller` answer ``loc`` inside the block: what is lowered from a model's op belongs to
    the op's line, whoever called the compiler."""
    token = _fixed.set(loc if loc.known else _fixed.get())
    try:
        yield
    finally:
        _fixed.reset(token)


def caller() -> Location:
    """Location of the user's statement; UNKNOWN when the whole stack is ours."""
    fixed = _fixed.get()
    if fixed is not None:
        return fixed
    frame = user_frame()
    if frame is None:
        return UNKNOWN
    return frame_location(frame)


def frame_location(frame: FrameType) -> Location:
    """Location of the statement a frame is executing: line and first column."""
    code, last = frame.f_code, frame.f_lasti
    column = 0
    for i, position in enumerate(code.co_positions()):
        if i == last // 2:
            column = position[2] or 0
            break
    return Location(code.co_filename, frame.f_lineno, column + 1)


def source_text(loc: Location) -> str | None:
    """The source line of a location in a Python file, when it can be read."""
    import linecache

    line = linecache.getline(loc.file, loc.line) if loc.line else ""
    return line.rstrip("\n") or None
