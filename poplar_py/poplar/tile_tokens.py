"""Tokens of tile-level ``.pir`` and the readers of its small parts: names, types, arrays."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any, NoReturn

import numpy as np

from poplar_py.diagnostics import Location, ParseError, PoplarPyError
from poplar_py.ir.array_lookup import Lookup
from poplar_py.ir.attributes import Array, dense_elements, parse_type, unquote
from poplar_py.ir.locations import parse_location
from poplar_py.poplar.arrays import I8, Ints, as_ints, concat_ints
from poplar_py.types import DTYPES, DType, TensorType

MAX_ARRAY = 1 << 27
"""Elements an affine form may describe."""
MAX_DEPTH = 256

STRING = r'"(?:[^"\\\n]|\\.)*"'
_DTYPES = "|".join(DTYPES)
_TOKEN = re.compile(
    rf"""[ \t\r\n]+|//[^\n]*
    |(?P<loc>loc\((?:[^"()\n]|{STRING})*\))
    |(?P<dense>dense<[^>\n]*>)
    |(?P<type>(?:{_DTYPES})\[[0-9,]*\])
    |(?P<string>{STRING})
    |(?P<var>%(?:[A-Za-z0-9_.]+|{STRING}))
    |(?P<sym>@(?:[A-Za-z_][A-Za-z0-9_.]*|{STRING}))
    |(?P<arrow>->)
    |(?P<dim>\d+x(?=-?\d|\())
    |(?P<number>-?\d+)
    |(?P<word>[A-Za-z_][A-Za-z0-9_.]*)
    |(?P<punct>[{{}}()\[\]:,+*])""",
    re.VERBOSE,
)


class Tokens:
    """The tokens of a text with a position; every reader raises ParseError at its place."""

    def __init__(self, text: str, file: str, lookup: Lookup, first_line: int = 1) -> None:
        self.text = text
        self.file = file
        self.lookup = lookup
        self.first_line = first_line
        self.kinds: list[str] = []
        self.words: list[str] = []
        self.places: list[int] = []
        self.line_ends = [m.start() for m in re.finditer("\n", text)]
        self.at = 0
        self.depth = 0
        self._scan()

    def _scan(self) -> None:
        at, text = 0, self.text
        match = _TOKEN.match
        while at < len(text):
            found = match(text, at)
            if found is None:
                raise ParseError(f"unexpected character {text[at]!r}", self.place(at))
            kind = found.lastgroup
            if kind is not None:
                self.kinds.append(kind)
                self.words.append(found[0])
                self.places.append(at)
            at = found.end()
        self.kinds.append("end")
        self.words.append("end of text")
        self.places.append(len(text))

    def place(self, at: int) -> Location:
        """Line and column of a character."""
        line = bisect_left(self.line_ends, at)
        start = self.line_ends[line - 1] + 1 if line else 0
        return Location(self.file, line + self.first_line, at - start + 1)

    def here(self) -> Location:
        """Where the next token stands."""
        return self.place(self.places[self.at])

    def located(self, error: PoplarPyError, where: Location) -> PoplarPyError:
        """The error with a place in this text: its own if it has one, else ``where``."""
        if error.loc.file != self.file:
            error.loc, error.source_line = where, None
        return error

    def fail(self, message: str) -> NoReturn:
        raise ParseError(message, self.here())

    # ------------------------------------------------------------------ single tokens
    @property
    def word(self) -> str:
        """The next token's text (the quotes of a string included)."""
        return self.words[self.at]

    @property
    def kind(self) -> str:
        return self.kinds[self.at]

    def next(self) -> str:
        text = self.words[self.at]
        if self.kinds[self.at] != "end":
            self.at += 1
        return text

    def take(self, word: str) -> bool:
        """Step over the next token if it is this word or sign."""
        if self.words[self.at] != word:
            return False
        self.at += 1
        return True

    def want(self, word: str) -> None:
        if not self.take(word):
            self.fail(f"{word!r} is wanted, found {self.word}")

    def of_kind(self, kind: str, what: str) -> str:
        if self.kinds[self.at] != kind:
            self.fail(f"{what} is wanted, found {self.word}")
        return self.next()

    def string(self) -> str:
        return unquote(self.of_kind("string", "a string"))

    def maybe_string(self) -> str:
        return self.string() if self.kind == "string" else ""

    def name(self) -> str:
        """A name after nothing: a word or a string."""
        return self.string() if self.kind == "string" else self.of_kind("word", "a name")

    def integer(self, low: int = -(1 << 62), high: int = 1 << 62) -> int:
        where = self.here()
        text = self.of_kind("number", "a number")
        value = int(text) if len(text) < 21 else high + 1
        if not low <= value <= high:
            raise ParseError(f"{text} is not within {low} to {high}", where)
        return value

    def variable(self) -> str:
        """The text of ``%name``."""
        return self.of_kind("var", "a variable")

    def symbol(self) -> str:
        """The text of ``@name``."""
        return self.of_kind("sym", "a name with @")

    def location(self) -> Location:
        """``loc(...)`` if it comes next."""
        if self.kind != "loc":
            return Location("", 0, 0)
        return parse_location(self.next())

    def tensor_type(self) -> TensorType:
        return parse_type(self.of_kind("type", "a type"))

    def sized_type(self) -> tuple[DType, tuple[int, ...]]:
        found = self.tensor_type()
        return found.dtype, tuple([int(n) for n in found.shape])

    # ------------------------------------------------------------------ arrays
    def ints(self) -> Ints:
        """An integer array; see ``int_text``."""
        out = self._ints()
        if len(out) > MAX_ARRAY:
            self.fail("the array is too large")
        return out

    def _ints(self) -> Ints:
        kind = self.kind
        if kind == "type":
            return as_ints(self.array())
        if self.word == "(":
            return self._joined()
        first = self.integer()
        if self.word != "[" or self.kinds[self.at + 1] != "dim":
            return as_ints([first])
        self.next()
        out = as_ints([first])
        while True:
            digit = self._digit()
            if len(out) * len(digit) > MAX_ARRAY:
                self.fail("the array is too large")
            out = (out[:, None] + digit).ravel()
            if self.take("]"):
                return out
            self.want(",")

    def _digit(self) -> Ints:
        text = self.of_kind("dim", "COUNTxSTEP")[:-1]
        count = int(text) if len(text) < 12 else MAX_ARRAY + 1
        if count > MAX_ARRAY:
            self.fail("the array is too large")
        if self.word != "(":
            return np.arange(count, dtype=I8) * self.integer()
        out = self._joined()
        if len(out) != count:
            self.fail(f"{len(out)} offsets where {count} are announced")
        return out

    def _joined(self) -> Ints:
        self.want("(")
        if self.take(")"):
            return np.zeros(0, I8)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("nested too deeply")
        parts: list[Ints] = []
        total = 0
        while True:
            parts.append(self._ints())
            total += len(parts[-1])
            if total > MAX_ARRAY:
                self.fail("the array is too large")
            if self.take(")"):
                self.depth -= 1
                return concat_ints(parts)
            self.want(",")

    def sized_ints(self, n: int, what: str) -> Ints:
        """An integer array of ``n`` elements."""
        where = self.here()
        out = self.ints()
        if len(out) != n:
            raise ParseError(f"{what}: {len(out)} numbers where {n} are wanted", where)
        return out

    def array(self) -> Array:
        """``TYPE dense<...>``."""
        where = self.here()
        kind = self.tensor_type()
        text = self.of_kind("dense", "dense<...>")[6:-1]
        try:
            if text.startswith("sha256:"):
                return self.lookup(text[7:], kind)
            if kind.nbytes > MAX_ARRAY * 8:
                raise ParseError("the array is too large")
            return dense_elements(text, kind.dtype, kind.static_shape)
        except PoplarPyError as error:
            raise self.located(error, where) from None

    def values(self, n: int, dtype: DType, what: str) -> Array:
        """A vector of a type: an integer array or ``TYPE dense<...>``."""
        where = self.here()
        found: Any = self.array() if self.kind == "type" else self.ints()
        if len(found) != n:
            raise ParseError(f"{what}: {len(found)} values where {n} are wanted", where)
        if dtype.is_integer and found.dtype.kind in "iu":
            return found.astype(dtype.numpy)
        if found.dtype != dtype.numpy:
            raise ParseError(f"{what}: {found.dtype} where {dtype.name} is wanted", where)
        return np.array(found)
