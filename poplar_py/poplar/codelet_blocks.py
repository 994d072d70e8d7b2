"""The codelet blocks of a tile-level text."""

from __future__ import annotations

import re
from math import prod

from poplar_py import codelets
from poplar_py.codelets import Codelet
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet
from poplar_py.diagnostics import DuplicateName, Location, PoplarPyError
from poplar_py.ir.attributes import unquote
from poplar_py.poplar.tile_tokens import STRING

MAX_PARAMETERS = 1 << 24
"""Product of a built-in codelet's numbers above which a text is not believed: unrolled loops grow
with them."""


def read_codelets(blocks: list[tuple[str, int]], file: str) -> dict[str, Codelet]:
    """Codelets by name. A built-in one with the same code is taken as such; any other, whatever its
    name, is user code and runs checked."""
    out: dict[str, Codelet] = {}
    for text, line in blocks:
        codelet = _codelet(text, file, line)
        if codelet.name in out:
            raise DuplicateName(f"codelet {codelet.name!r} is there twice", Location(file, line, 1))
        out[codelet.name] = codelet
    return out


def _codelet(text: str, file: str, line: int) -> Codelet:
    """One codelet; the text of a built-in one need not even be read."""
    head = re.match(rf"codelet ({STRING})", text)
    known = _builtin(head[1]) if head else None
    if known is not None and print_codelet(known.ir) == text:
        return known
    ir = parse_codelet(text, file, line - 1)
    if known is not None and known.name == ir.name and known.digest == ir.digest:
        return known
    return Codelet(ir)


def _builtin(quoted: str) -> Codelet | None:
    """The built-in codelet of a quoted name, or None."""
    try:
        name = unquote(quoted)
        numbers = [int(n[:12]) for n in re.findall(r"[<,](\d+)(?=[,>])", name)]
        if prod(max(n, 1) for n in numbers) > MAX_PARAMETERS:
            return None
        return codelets.get(name)
    except PoplarPyError:
        return None
