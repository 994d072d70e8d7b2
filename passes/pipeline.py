"""Pipelines: named ones as data, the reasons for their order, and their text.

infer-shapes,simplify,fuse{max-ops=8}      @default      ""
"""

from __future__ import annotations

import re
from typing import Any

from poplar_py.diagnostics import Location, OptionError, ParseError, register_source
from poplar_py.passes.registry import Pass, make_pass

__all__ = ["ORDER", "PIPELINES", "parse_pipeline", "pipeline_text"]

_TILES = ("map-tiles", "check-memory", "plan-exchange", "liveness", "plan-memory")
_BACK_END = ("place", "lower", *_TILES)

PIPELINES: dict[str, tuple[str, ...]] = {
    "@default": ("infer-shapes", "simplify", "fuse", *_BACK_END),
    "@inference": ("infer-shapes", "simplify", "fuse", *_BACK_END),
    "@none": ("infer-shapes", *_BACK_END),
}
"""`@none` is what an executable cannot do without. `@train` is reserved for training."""

RESERVED = {"@train": "training is not there yet: use @inference"}

ORDER: tuple[tuple[str, str, str], ...] = (
    ("infer-shapes", "simplify", "folding needs shapes that are known"),
    ("simplify", "fuse", "chains are longest once copies and dead ops are gone"),
    ("infer-shapes", "place", "placing counts bytes"),
    ("simplify", "place", "dead and folded ops must not count"),
    ("fuse", "place", "a fused chain lives on one IPU"),
    ("infer-shapes", "lower", "lowering needs static shapes"),
    ("place", "lower", "lowering puts tensors on the tiles of the chosen IPUs"),
    ("lower", "map-tiles", "there are no variables before lowering"),
    ("map-tiles", "check-memory", "how full a tile is depends on where things are"),
    ("map-tiles", "plan-exchange", "what moves depends on where things are"),
    ("check-memory", "plan-exchange", "the exchange of what never fits takes long to plan"),
    ("plan-exchange", "liveness", "receive buffers live too"),
    ("liveness", "plan-memory", "memory is shared by what is not alive together"),
)
"""(earlier, later, why): both present means in this order."""


def check_order(names: tuple[str, ...], what: str) -> None:
    """Raise OptionError when a sequence of passes breaks ORDER.

    A pass that runs several times counts with its first run as the later one and any as the
    earlier one.
    """
    for earlier, later, why in ORDER:
        if earlier not in names or later not in names:
            continue
        if names.index(earlier) > names.index(later):
            raise OptionError(f"{what}: {earlier} must run before {later}: {why}")


for _name, _passes in PIPELINES.items():
    check_order(_passes, _name)


def parse_pipeline(text: str) -> list[Pass]:
    """The passes of a pipeline text. Raises ParseError or OptionError."""
    items = _parse(text)
    passes: list[Pass] = []
    for name, options in items:
        if not name.startswith("@"):
            passes.append(make_pass(name, options))
            continue
        if name in RESERVED:
            raise OptionError(f"{name} is reserved", remedy=RESERVED[name])
        if name not in PIPELINES:
            known = ", ".join(PIPELINES)
            raise OptionError(f"there is no pipeline {name}", remedy=f"the pipelines are {known}")
        passes += [make_pass(p) for p in PIPELINES[name]]
    check_order(tuple(p.name for p in passes), repr(text))
    _check_after(passes)
    return passes


def _check_after(passes: list[Pass]) -> None:
    for i, one in enumerate(passes):
        earlier = {p.name for p in passes[:i]}
        later = {p.name for p in passes[i:]}
        for needed in one.after:
            if needed in later and needed not in earlier:
                raise OptionError(f"{needed} must run before {one.name}")


def pipeline_text(passes: list[Pass]) -> str:
    """The text that parses to the same passes."""
    return ",".join(map(str, passes))


_PLAIN = re.compile(r"@?[a-z][a-z0-9-]*(?:,@?[a-z][a-z0-9-]*)*")


def _parse(text: str) -> list[tuple[str, dict[str, str]]]:
    """Names and options; the grammar is loaded only for texts with options or blanks."""
    if not text or _PLAIN.fullmatch(text):
        return [(name, {}) for name in text.split(",") if name]
    from lark.exceptions import UnexpectedInput

    from poplar_py import grammar

    parser = grammar.load("pipeline")
    file = "<passes>"
    register_source(file, text)
    try:
        tree: Any = parser.parse(text)  # pyright: ignore[reportUnknownMemberType]
    except UnexpectedInput as error:
        raise grammar.syntax_error(error, text, file, parser) from None
    items: list[tuple[str, dict[str, str]]] = []
    for item in tree.children:
        if item is not None:
            options = None if item.data == "alias" else item.children[1]
            items.append((str(item.children[0]), _options(options, file)))
    return items


def _options(tree: Any, file: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in () if tree is None else tree.children:
        if option is None:
            continue
        key, value = option.children
        if str(key) in found:
            where = Location(file, key.line, key.column)
            raise ParseError(f"option {key} is given twice", where)
        found[str(key)] = str(value)[1:-1] if value.type == "STRING" else str(value)
    return found
