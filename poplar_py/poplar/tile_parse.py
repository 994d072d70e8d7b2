"""Reads tile-level ``.pir``: the graph, its programs and its codelets (see ``tile_print``)."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field

from poplar_py.diagnostics import Location, ParseError, register_source
from poplar_py.ir.array_lookup import Lookup, array_lookup
from poplar_py.ir.attributes import Array
from poplar_py.poplar.codelet_blocks import read_codelets
from poplar_py.poplar.tile_reader import Reader, TileText
from poplar_py.poplar.tile_tokens import Tokens

__all__ = ["TileText", "is_tile_text", "parse_tile_module"]


def is_tile_text(text: str) -> bool:
    """Whether a ``.pir`` text is tile level (it begins with a ``tile`` block or codelets)."""
    return re.match(r"(?:\s|//[^\n]*\n)*(?:tile\s+@|codelet\s)", text) is not None


def parse_tile_module(
    text: str,
    file: str = "<pir>",
    resources: MappingType[str, Array] | Lookup | None = None,
) -> TileText:
    """The graph and programs of a text.

    ``resources`` gives the arrays named by hash: a mapping, or a function of hash and type. Raises
    ParseError, UnknownName, ... with the place in the text; nothing is run or imported.
    """
    register_source(file, text)
    sections = _sections(text, file)
    lookup = array_lookup(resources, text)
    if len(sections.tiles) != 1:
        line = sections.tiles[1][1] if sections.tiles else 1
        raise ParseError(
            f"{len(sections.tiles)} tile blocks where one is wanted", Location(file, line, 1)
        )
    library = read_codelets(sections.codelets, file)
    register_source(file, text)
    body, line = sections.tiles[0]
    reader = Reader(Tokens(body, file, lookup, line), library)
    return reader.module()


@dataclass
class _Sections:
    """Texts of the top-level blocks with their first lines."""

    tiles: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    codelets: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


def _sections(text: str, file: str) -> _Sections:
    """Cut the text at its top-level blocks: each begins and ends at a line start."""
    out = _Sections()
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        line = lines[i]
        if not line.strip() or line.startswith(("//", "resource sha256:")):
            i += 1
            continue
        blocks = out.tiles if line.startswith("tile") else out.codelets
        if not line.startswith(("tile ", "codelet ")):
            raise ParseError("a tile or codelet block is wanted", Location(file, i + 1, 1))
        end = i
        while end < len(lines) and lines[end].rstrip() != "}":
            end += 1
        if end == len(lines):
            raise ParseError("the block does not end", Location(file, i + 1, 1))
        blocks.append(("\n".join(lines[i : end + 1]) + "\n", i + 1))
        i = end + 1
    return out
