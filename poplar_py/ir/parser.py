"""Reads model-level `.pir` text (grammar/ir.lark) back into a module.

Ops are made while the text is parsed, so operands must be defined above their use. Op classes come
from REGISTRY: `poplar_py.ops` must have been imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from poplar_py import grammar
from poplar_py.diagnostics import (
    UNKNOWN,
    DuplicateName,
    Location,
    NestingTooDeep,
    ParseError,
    PoplarPyError,
    TypeMismatch,
    UnknownName,
    register_source,
)
from poplar_py.ir.array_lookup import Lookup, array_lookup
from poplar_py.ir.attributes import Array, dense_elements, number_value, parse_type, unquote
from poplar_py.ir.core import REGISTRY, Graph, Module, Op, Value
from poplar_py.ir.locations import parse_location
from poplar_py.ir.op_fields import Given, attribute_fields, operand_fields, region_fields
from poplar_py.types import DTYPES, TensorType

__all__ = ["parse_module"]

MAX_NESTING = 256


def parse_module(
    text: str,
    file: str = "<pir>",
    resources: Mapping[str, Array] | Lookup | None = None,
) -> Module:
    """The module that `text` describes.

    `resources` gives arrays by hash: a mapping, or a function of hash and type. Raises ParseError,
    UnknownName, TypeMismatch, ... with the place in `text`.
    """
    register_source(file, text)
    reader = _reader()
    session = _Session(file, array_lookup(resources, text))
    reader.begin(session)
    try:
        reader.lark.parse(text)  # pyright: ignore[reportUnknownMemberType]
    except UnexpectedInput as error:
        raise grammar.syntax_error(error, text, file, reader.lark) from None
    finally:
        reader.end()
    module = session.module
    if module is None:
        raise ParseError("no module in the text", Location(file, 1, 1))
    return module


def _name(token: str) -> str:
    """The name in `%x`, `@x` or `%"a b"`."""
    return unquote(token[1:]) if token[1] == '"' else token[1:]


class _Session:
    """What one parse run has built so far."""

    def __init__(self, file: str, lookup: Lookup) -> None:
        self.file = file
        self.lookup = lookup
        self.values: dict[str, Value] = {}
        self.defined: list[str] = []
        self.module: Module | None = None

    def loc(self, token: Token) -> Location:
        return Location(self.file, token.line or 0, token.column or 0)

    def define(self, token: Token, value: Value) -> None:
        """Enter a value under its printed name; numbers leave the value without a name."""
        text = str(token)
        if text in self.values:
            raise DuplicateName(f"{text} is defined twice", self.loc(token))
        self.values[text] = value
        self.defined.append(text)
        value.name = "" if text[1:].isdigit() else _name(text)

    def leave(self, count: int) -> None:
        """Forget all names but the first `count`: the end of a region."""
        for text in self.defined[count:]:
            del self.values[text]
        del self.defined[count:]

    def use(self, token: Token) -> Value:
        found = self.values.get(str(token))
        if found is None:
            raise UnknownName(f"{token} is not defined above", self.loc(token))
        return found


class _Depth:
    """Between lexer and parser: an error where brackets nest deeper than 256."""

    always_accept = ()

    def __init__(self) -> None:
        self.file = ""

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth = 0
        for token in stream:
            if token.type in ("LSQB", "LBRACE", "LPAR"):
                depth += 1
            elif token.type in ("RSQB", "RBRACE", "RPAR"):
                depth -= 1
            if depth > MAX_NESTING:
                where = Location(self.file, token.line or 0, token.column or 0)
                raise NestingTooDeep(f"nesting deeper than {MAX_NESTING}", where)
            yield token


class _Reader(Transformer[Token, Any]):
    """Lark callbacks. They run bottom-up in text order; the session holds the state."""

    def __init__(self) -> None:
        super().__init__()
        self.s: _Session = _Session("", array_lookup(None, ""))
        self.depth = _Depth()
        self.lark: Lark = grammar.load("ir", self, postlex=self.depth)

    def begin(self, session: _Session) -> None:
        self.s = session
        self.depth.file = session.file

    def end(self) -> None:
        self.s = _Session("", array_lookup(None, ""))

    # literals

    def string(self, c: list[Token]) -> str:
        return self._at(c[0], unquote)

    def number(self, c: list[Token]) -> int | float:
        return self._at(c[0], number_value)

    def true(self, _: list[Token]) -> bool:
        return True

    def false(self, _: list[Token]) -> bool:
        return False

    def none(self, _: list[Token]) -> None:
        return None

    def dtype(self, c: list[Token]) -> Any:
        return DTYPES[str(c[0])]

    def type(self, c: list[Token]) -> TensorType:
        return self._at(c[0], parse_type)

    def tuple(self, c: list[Any]) -> Any:
        return () if c == [None] else tuple(c)

    def dense(self, c: list[Token]) -> Array:
        type, body = self._at(c[0], parse_type), str(c[1])[6:-1]
        if not type.is_static:
            raise ParseError("an array has no free dims", self.s.loc(c[0]))
        if not body.startswith("sha256:"):
            return self._at(c[1], lambda _: dense_elements(body, type.dtype, type.static_shape))
        array = self._at(c[1], lambda _: self.s.lookup(body[7:], type))
        if array.dtype != type.dtype.numpy or array.shape != type.static_shape:
            raise TypeMismatch(f"the array {body} is not a {type}", self.s.loc(c[0]))
        return array

    def attribute(self, c: list[Any]) -> Given:
        return (c[0], c[1])

    def attributes(self, c: list[Any]) -> list[Given]:
        return [item for item in c if item is not None]

    def _at(self, token: Token, read: Callable[[str], Any]) -> Any:
        """`read(token)` with the place of the token in errors."""
        try:
            return read(str(token))
        except PoplarPyError as error:
            error.at(self.s.loc(token))
            raise

    # values and graphs

    def use(self, c: list[Token]) -> Value:
        return self.s.use(c[0])

    def operand_list(self, c: list[Any]) -> tuple[Value, ...]:
        return () if c[0] is None else c[0]

    def operands(self, c: list[Any]) -> Any:
        return tuple(c)

    def values(self, c: list[Token]) -> list[Value]:
        return [self.s.use(t) for t in c]

    def parameter(self, c: list[Token]) -> tuple[Token, TensorType]:
        return (c[0], self._at(c[1], parse_type))

    output = parameter

    def parameters(self, c: list[Any]) -> list[Any]:
        return c

    results = parameters
    outputs = parameters

    def _inputs(self, parameters: list[tuple[Token, TensorType]] | None) -> list[Value]:
        values: list[Value] = []
        for token, type in parameters or ():
            value = Value(type, "", None, len(values), self.s.loc(token))
            self.s.define(token, value)
            values.append(value)
        return values

    def block(self, c: list[Any]) -> tuple[list[Op], list[Value]]:
        return c[:-1], c[-1] or []

    def region_head(self, c: list[Any]) -> tuple[Token, list[Value], int]:
        count = len(self.s.defined)
        return c[0], self._inputs(c[1]), count

    def region(self, c: list[Any]) -> tuple[Token, Graph]:
        (token, inputs, count), (ops, outputs) = c
        self.s.leave(count)
        return token, Graph("", inputs, ops, outputs)

    def graph_head(self, c: list[Any]) -> tuple[Token, list[Value], list[Any]]:
        self.s.leave(0)
        return c[0], self._inputs(c[1]), c[2] or []

    def graph(self, c: list[Any]) -> tuple[Token, Graph]:
        (token, inputs, heads), (ops, outputs) = c
        if len(heads) != len(outputs):
            raise ParseError(
                f"{len(outputs)} values returned, {len(heads)} declared", self.s.loc(token)
            )
        for (name, type), value in zip(heads, outputs, strict=True):
            if value.type != type:
                raise TypeMismatch(
                    f"output {name} is a {value.type}, declared as {type}", self.s.loc(name)
                )
        names = [unquote(t) if t.startswith('"') else str(t) for t, _ in heads]
        return token, Graph(_name(token), inputs, ops, outputs, names)

    def resource(self, _: list[Any]) -> None:
        return None

    def module(self, c: list[Any]) -> None:
        module = Module(_name(c[0]), metadata={str(k): v for k, v in c[1] or ()})
        for item in c[2:]:
            if item is None:
                continue
            token, graph = item
            if graph.name in module.graphs:
                raise DuplicateName(f"graph {token} is defined twice", self.s.loc(token))
            module.add_graph(graph)
        self.s.module = module

    # operations

    def operation(self, c: list[Any]) -> Op:
        results, name, operands, attributes, *rest = c
        location = rest.pop()
        where = self.s.loc(name)
        cls = REGISTRY.get(str(name))
        if cls is None:
            raise UnknownName(f"there is no op {name}", where, "see `poplar-py ops`")
        loc = UNKNOWN if location is None else self._at(location, parse_location)
        fields = operand_fields(cls, operands or (), where)
        fields |= attribute_fields(cls, attributes or [], where, self.s.loc)
        fields |= region_fields(cls, rest, where)
        try:
            made = cls(**fields, loc=loc)
        except PoplarPyError as error:
            error.loc = where
            raise
        self._define_results(made, results or [], where)
        return made

    def _define_results(
        self, made: Op, results: list[tuple[Token, TensorType]], where: Location
    ) -> None:
        if len(results) != len(made.results):
            raise ParseError(
                f"{made.opname} has {len(made.results)} results, {len(results)} are named", where
            )
        for (token, type), value in zip(results, made.results, strict=True):
            if value.type != type:
                raise TypeMismatch(
                    f"{made.opname} gives {value.type}, the text says {type}", self.s.loc(token)
                )
            self.s.define(token, value)


@lru_cache(maxsize=1)
def _reader() -> _Reader:
    return _Reader()
