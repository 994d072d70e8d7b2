"""`.pml` text to syntax tree (grammar/model.lark)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from poplar_py import grammar
from poplar_py.diagnostics import (
    UNKNOWN,
    Location,
    NestingTooDeep,
    ParseError,
    PoplarPyError,
    register_source,
)
from poplar_py.frontends.pml import ast
from poplar_py.ir.attributes import unquote

__all__ = ["MAX_NESTING", "parse_text"]

MAX_NESTING = 256
MAX_CHARACTERS = 1 << 24


def parse_text(text: str, file: str) -> ast.File:
    """The syntax tree of a `.pml` text. Raises ParseError, NestingTooDeep."""
    register_source(file, text)
    if len(text) > MAX_CHARACTERS:
        raise ParseError("the text is longer than 16 MiB", Location(file, 1, 1))
    reader = _reader()
    reader.file, reader.layout.file = file, file
    try:
        tree: Any = reader.lark.parse(text)  # pyright: ignore[reportUnknownMemberType]
    except UnexpectedInput as error:
        raise _syntax_error(error, text, file, reader.lark) from None
    return tree


def _syntax_error(error: UnexpectedInput, text: str, file: str, parser: Lark) -> PoplarPyError:
    found = grammar.syntax_error(error, text, file, parser)
    line = text.splitlines()[found.loc.line - 1 :][:1]
    rest = line[0][found.loc.col - 1 :] if line else ""
    if found.loc.line and not rest.strip():
        found.message = "the line ends too soon" if line else "the text ends too soon"
    return found


@dataclass(frozen=True, slots=True)
class _Keyword:
    """`name=value` in a call."""

    name: ast.Name
    value: ast.Expression


class _Layout:
    """Between lexer and parser: drops newlines inside ( ) and [ ], and counts nesting.

    A row of unary signs counts as nesting too, one level a sign.
    """

    always_accept = ("_NEWLINE",)
    _OPEN = ("LPAR", "LSQB", "LBRACE", "OPEN_LIST")
    _CLOSE = ("RPAR", "RSQB", "RBRACE")

    def __init__(self) -> None:
        self.file = ""

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        open_kinds: list[str] = []
        signs = 0
        for token in stream:
            kind = token.type
            if kind == "_NEWLINE" and open_kinds and open_kinds[-1] != "LBRACE":
                continue
            if kind in self._OPEN:
                open_kinds.append(kind)
            elif kind in self._CLOSE and open_kinds:
                open_kinds.pop()
            signs = signs + 1 if kind == "ADDITIVE" else 0
            if len(open_kinds) + signs > MAX_NESTING:
                raise NestingTooDeep(
                    f"nesting deeper than {MAX_NESTING}",
                    Location(self.file, token.line or 0, token.column or 0),
                    remedy="give parts of the expression names",
                )
            yield token


class _Reader(Transformer[Token, Any]):
    """Lark callbacks: they run while the text is parsed and make the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.file = ""
        self.layout = _Layout()
        self.lark: Lark = grammar.load("model", self, postlex=self.layout)

    def _at(self, token: Token) -> Location:
        return Location(self.file, token.line or 0, token.column or 0)

    # expressions

    def name(self, c: list[Token]) -> ast.Expression:
        return ast.Name(self._at(c[0]), str(c[0]))

    def number(self, c: list[Token]) -> ast.Expression:
        text, loc = str(c[0]), self._at(c[0])
        if text.isdigit():
            if len(text) > 40:
                raise ParseError("an integer of more than 40 digits", loc)
            return ast.Literal(loc, int(text))
        if math.isinf(float(text)):
            raise ParseError(f"{text} is larger than any number", loc, remedy="write inf")
        return ast.Literal(loc, float(text))

    def string(self, c: list[Token]) -> ast.Expression:
        return ast.Literal(self._at(c[0]), self._string(c[0]))

    def _string(self, token: Token) -> str:
        try:
            return unquote(str(token))
        except PoplarPyError as error:
            error.at(self._at(token))
            raise

    def true(self, _: list[Token]) -> ast.Expression:
        return ast.Literal(UNKNOWN, True)

    def false(self, _: list[Token]) -> ast.Expression:
        return ast.Literal(UNKNOWN, False)

    def none(self, _: list[Token]) -> ast.Expression:
        return ast.Literal(UNKNOWN, None)

    def list(self, c: list[Any]) -> ast.Expression:
        return ast.ListOf(self._at(c[0]), tuple(c[1] or ()))

    def expressions(self, c: list[ast.Expression]) -> Any:
        return c

    def prefix(self, c: list[Any]) -> ast.Expression:
        sign: Token = c[0]
        return ast.Negate(self._at(sign), c[1]) if str(sign) == "-" else c[1]

    def chain(self, c: list[Any]) -> ast.Expression:
        rest = tuple((self._at(o), str(o), e) for o, e in zip(c[1::2], c[2::2], strict=True))
        return ast.Chain(rest[0][0], c[0], rest)

    def comparison(self, c: list[Any]) -> ast.Expression:
        left, operator, right = c
        return ast.Compare(self._at(operator), str(operator), left, right)

    def postfix(self, c: list[Any]) -> ast.Expression:
        atom, *suffixes = c
        return ast.Postfix(atom.loc, atom, tuple(suffixes))

    def call(self, c: list[Any]) -> ast.Call:
        return ast.Call(c[0] or ast.Arguments())

    def arguments(self, c: list[Any]) -> ast.Arguments:
        named = [x for x in c if isinstance(x, _Keyword)]
        positional = [x for x in c if not isinstance(x, _Keyword)]
        if any(isinstance(x, _Keyword) for x in c[: len(positional)]):
            loc = named[0].name.loc
            raise ParseError("an argument without a name follows one with a name", loc)
        return ast.Arguments(tuple(positional), tuple((k.name, k.value) for k in named))

    def keyword(self, c: list[Any]) -> _Keyword:
        return _Keyword(ast.Name(self._at(c[0]), str(c[0])), c[1])

    def index(self, c: list[Any]) -> ast.Index:
        return ast.Index(tuple(c))

    def range(self, c: list[Any]) -> ast.Range:
        return ast.Range(*c)

    # types and declarations

    def type(self, c: list[Any]) -> ast.TypeNode:
        return ast.TypeNode(self._at(c[0]), str(c[0]), c[1])

    def dims(self, c: list[Any]) -> Any:
        return tuple(str(d) if isinstance(d, Token) else d for d in c)

    def parameter(self, c: list[Any]) -> ast.Parameter:
        return ast.Parameter(self._at(c[0]), str(c[0]), c[1], c[2])

    def parameters(self, c: list[Any]) -> Any:
        return tuple(c)

    results = parameters

    def result(self, c: list[Any]) -> ast.Result:
        name, type = c
        return ast.Result(type.loc if name is None else self._at(name), str(name or ""), type)

    # statements

    def block(self, c: list[Any]) -> ast.Block:
        block = ast.Block(tuple(x for x in c if x is not None))
        for before, after in pairwise(block.statements):
            if _returns(before):
                raise ParseError(
                    "this never runs: a statement before it returns",
                    after.loc,
                    remedy="write `return` last, or leave out what follows it",
                )
        return block

    def assignment(self, c: list[Any]) -> ast.Assignment:
        *names, values = c
        targets = tuple(ast.Name(self._at(t), str(t)) for t in names)
        for target in targets:
            if "." in target.name:
                raise ParseError("a name to assign to has no point", target.loc)
        return ast.Assignment(targets[0].loc, targets, tuple(values))

    def weight(self, c: list[Any]) -> ast.Weight:
        return ast.Weight(self._at(c[0]), str(c[0]), c[1], c[2])

    def return_(self, c: list[Any]) -> ast.Return:
        return ast.Return(self._at(c[0]), tuple(c[1]))

    def on(self, c: list[Any]) -> ast.On:
        return ast.On(c[0].loc, c[0], c[1])

    def repeat(self, c: list[Any]) -> ast.Repeat:
        return ast.Repeat(self._at(c[0]), c[1], str(c[2] or ""), c[3])

    def import_(self, c: list[Token]) -> ast.Import:
        return ast.Import(self._at(c[0]), self._string(c[0]))

    def def_(self, c: list[Any]) -> ast.Def:
        return ast.Def(self._at(c[0]), str(c[0]), c[1] or (), c[2] or (), c[3])

    def model(self, c: list[Any]) -> ast.Model:
        return ast.Model(self._at(c[0]), str(c[0]), c[1] or (), c[2], c[3])

    def train(self, c: list[Token]) -> None:
        raise ParseError("`train` is reserved until training lands", self._at(c[0]))

    def start(self, c: list[Any]) -> ast.File:
        file = ast.File(self.file)
        for item in c:
            if isinstance(item, ast.Import):
                file.imports.append(item)
            elif isinstance(item, ast.Def):
                file.defs.append(item)
            elif isinstance(item, ast.Model):
                file.models.append(item)
        return file


def _returns(statement: ast.Statement) -> bool:
    """Whether nothing runs after a statement: `return`, or a placement block that ends with it."""
    if isinstance(statement, ast.On) and statement.body.statements:
        return _returns(statement.body.statements[-1])
    return isinstance(statement, ast.Return)


@lru_cache(maxsize=1)
def _reader() -> _Reader:
    return _Reader()
