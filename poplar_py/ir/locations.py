"""Locations in `.pir` text."""

from __future__ import annotations

import re
from functools import lru_cache

from poplar_py.diagnostics import Location, ParseError
from poplar_py.ir.attributes import unquote

_LOC = re.compile(
    r'loc\((?P<file>"(?:[^"\\]|\\.)*")(?::(?P<line>\d{1,9}):(?P<col>\d{1,9}))?'
    r'(?: node (?P<name>"(?:[^"\\]|\\.)*"))?(?: #(?P<index>\d{1,9}))?'
    r'(?: output (?P<output>"(?:[^"\\]|\\.)*"))?\)'
)


@lru_cache(maxsize=65536)
def parse_location(text: str) -> Location:
    """The Location that was printed as `loc(...)`. Raises ParseError."""
    match = _LOC.fullmatch(text)
    if match is None:
        raise ParseError(f"{text!r} is not a location")
    part = match.groupdict()
    return Location(
        unquote(part["file"]),
        int(part["line"] or 0),
        int(part["col"] or 0),
        unquote(part["name"]) if part["name"] else "",
        int(part["index"]) if part["index"] else -1,
        unquote(part["output"]) if part["output"] else "",
    )
