"""Grammar files (`*.lark`) and the one place that loads and runs them.

lark is imported when a text is first parsed: compiling an ONNX model needs none.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poplar_py.diagnostics import Location, ParseError, register_source

if TYPE_CHECKING:
    from lark import Lark
    from lark.exceptions import UnexpectedInput

__all__ = ["load", "syntax_error"]

_PLAIN = {
    "$END": "the end",
    "IDENT": "a name",
    "NAME": "a name",
    "STRING": "a string",
    "NUMBER": "a number",
    "VALUE": "a value (%name)",
    "SYMBOL": "a name (@name)",
    "TYPE": "a tensor type",
    "DTYPE": "an element type",
    "DENSE": "dense<...>",
    "LOCATION": "loc(...)",
    "_NEWLINE": "the end of the line",
    "ADDITIVE": "'+', '-'",
    "MULTIPLICATIVE": "'*', '/', '@'",
    "COMPARE": "a comparison",
    "OPEN_LIST": "'['",
    "WORD": "a name",
    "ALIAS": "a pipeline (@name)",
}


@lru_cache(maxsize=8)
def load(name: str, transformer: Any = None, postlex: Any = None) -> Lark:
    """The LALR parser of `grammar/<name>.lark`, cached.

    `transformer` runs while parsing; `postlex` stands between lexer and parser.
    """
    from lark import Lark

    text = (files(__name__) / f"{name}.lark").read_text(encoding="utf-8")
    folder = str(Path(str(files(__name__))))
    return Lark(
        text,
        parser="lalr",
        transformer=transformer,
        postlex=postlex,
        propagate_positions=False,
        maybe_placeholders=True,
        import_paths=[folder],
    )


def syntax_error(error: UnexpectedInput, text: str, file: str, parser: Lark) -> ParseError:
    """A located ParseError that says what was found and what could have been there."""
    register_source(file, text)
    found, expected = _found(error, text)
    line, col = error.line, error.column
    if not found or line < 1:
        line, col = text.count("\n") + 1, len(text) - text.rfind("\n")
    names = sorted({_describe(name, parser) for name in expected})
    remedy = f"expected {_either(names)}" if 0 < len(names) <= 12 else ""
    message = f"unexpected {found}" if found else "the text ends too soon"
    return ParseError(message, Location(file, line, col), remedy)


def _found(error: Any, text: str) -> tuple[str, set[str]]:
    """What stands at the error ("" at the end of the text) and the terminals that may."""
    known: dict[str, Any] = error.__dict__
    expected: Any = known.get("allowed") or error.accepts or known.get("expected") or ()
    token, at = known.get("token"), known.get("pos_in_stream")
    if token is None:
        return ("" if at is None or at < 0 else repr(text[at])), set(expected)
    return ("" if token.type == "$END" else repr(_shorten(str(token)))), set(expected)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _describe(name: str, parser: Lark) -> str:
    if name in _PLAIN:
        return _PLAIN[name]
    for terminal in parser.terminals:
        if terminal.name == name and terminal.pattern.type == "str":
            return f"'{terminal.pattern.value}'"
    return name.lower().strip("_").replace("_", " ")


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
