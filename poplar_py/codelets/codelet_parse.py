"""Codelet IR from its text form (see `codelet_text`), with errors at the place in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from poplar_py.codelets.codelet_check import check_codelet
from poplar_py.codelets.codelet_ir import (
    BINARY,
    COMPARE,
    LAYOUT_BYTES,
    UNARY,
    CodeletIR,
    Expr,
    Field,
    Stmt,
    Ty,
)
from poplar_py.codelets.depth import MAX_DEPTH, deep
from poplar_py.diagnostics import Location, ParseError, register_source
from poplar_py.types import DTYPES, DType

__all__ = ["parse_codelet"]

_BLOCKS = frozenset({"if", "for", "while", "loop", "block"})
_CALLS = frozenset({"store", "prefetch"})
_TOKEN = re.compile(
    r"""\s+ | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?))"""
    r"""| (?P<word>[A-Za-z_][\w.]*) | (?P<string>"(?:[^"\\]|\\.)*") |
    (?P<punct>[-{}()\[\]:,=@%&*!])""",
    re.VERBOSE,
)


class _Parser:
    def __init__(self, text: str, file: str, offset: int) -> None:
        self.text, self.file, self.offset = text, file, offset
        self.tokens = list(self._scan())
        self.pos = 0
        self.depth = 0

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                self.error("a character that has no place here", at)
            if match.lastgroup is not None:
                yield match.lastgroup, match[0], at
            at = match.end()
        yield "end", "", at

    def error(self, message: str, at: int | None = None) -> NoReturn:
        where = self.tokens[self.pos][2] if at is None else at
        line = self.text.count("\n", 0, where) + 1
        col = where - (self.text.rfind("\n", 0, where) + 1) + 1
        raise ParseError(f"codelet text: {message}", Location(self.file, line + self.offset, col))

    @property
    def token(self) -> str:
        return self.tokens[self.pos][1]

    def next(self) -> str:
        text = self.tokens[self.pos][1]
        self.pos = min(self.pos + 1, len(self.tokens) - 1)
        return text

    def take(self, text: str) -> bool:
        if self.token != text or self.tokens[self.pos][0] == "string":
            return False
        self.next()
        return True

    def want(self, text: str) -> None:
        if not self.take(text):
            self.error(f"{text!r} is wanted, found {self.token!r}")

    def name(self) -> str:
        kind, text, _ = self.tokens[self.pos]
        if kind == "string":
            self.next()
            return unquote(text)
        if kind != "word":
            self.error(f"a name is wanted, found {text!r}")
        return self.next()

    def integer(self) -> int:
        kind, text, _ = self.tokens[self.pos]
        if kind != "number" or not re.fullmatch(r"-?\d{1,25}", text):
            self.error(f"an integer is wanted, found {text!r}")
        return int(self.next())

    def ty(self) -> Ty:
        if self.take("&") or self.take("*"):
            sized = self.tokens[self.pos - 1][1] == "&"
            return Ty(self.dtype(self.next()), 1, True, sized)
        text = self.next()
        head, _, lanes = text.partition("x")
        if lanes and lanes.isdigit() and 2 <= int(lanes) <= 64:
            return Ty(self.dtype(head), int(lanes))
        return Ty(self.dtype(text))

    def dtype(self, text: str) -> DType:
        if text not in DTYPES:
            self.pos -= 1
            self.error(f"{text!r} is no element type")
        return DTYPES[text]


_ESCAPE = re.compile(r"\\(u\{([0-9a-f]+)\}|.)")


def unquote(text: str) -> str:
    """The inverse of `quote_name`."""
    plain = {"n": "\n", "t": "\t", "r": "\r"}
    return _ESCAPE.sub(lambda m: chr(int(m[2], 16)) if m[2] else plain.get(m[1], m[1]), text[1:-1])


@deep
def parse_codelet(text: str, file: str = "<codelet>", offset: int = 0) -> CodeletIR:
    """Parse one codelet. Raises ParseError; `offset` lines come before the text in `file`.

    The result is checked for the shape of the IR (see `codelet_check`).
    """
    register_source(file, "\n" * offset + text)
    p = _Parser(text, file, offset)
    ir = _codelet(p)
    if p.tokens[p.pos][0] != "end":
        p.error(f"text after the codelet: {p.token!r}")
    check_codelet(ir, file)
    return ir


def _codelet(p: _Parser) -> CodeletIR:
    p.want("codelet")
    name = p.name()
    multi, supervisor = p.take("multi"), p.take("supervisor")
    if not multi and not supervisor:
        p.want("vertex")
    worker = ""
    if p.take("worker"):
        p.want("%")
        worker = p.name()
    source, line = "", 0
    if p.take("source"):
        source = p.name()
        p.want(":")
        line = p.integer()
    p.want("{")
    fields: list[Field] = []
    while not p.take("}"):
        fields.append(_parse_field(p))
    p.want("do")
    body = _parse_block(p)
    return CodeletIR(name, multi, tuple(fields), body, worker, source, line, supervisor)


def _parse_field(p: _Parser) -> Field:
    kind = p.next()
    if kind not in ("in", "out", "inout", "state"):
        p.error(f"{kind!r} is no kind of field")
    name = p.name()
    p.want(":")
    dtype = p.dtype(p.next())
    rank = p.integer() if p.take("rank") else 0
    one, inner = p.take("one_ptr"), p.take("inner_one_ptr")
    align = p.integer() if p.take("align") else 0
    mutable = p.take("mutable") or kind in ("out", "inout")
    layout = _parse_layout(p, "layout")
    inner_layout = _parse_layout(p, "inner_layout")
    if not 0 <= rank <= 2:
        p.error(f"rank {rank} does not exist")
    return Field(name, kind, dtype, rank, one, inner, align, mutable, layout, inner_layout)


def _parse_layout(p: _Parser, word: str) -> str:
    layout = p.name() if p.take(word) else "span"
    if layout not in LAYOUT_BYTES:
        p.error(f"{layout!r} is no layout; layouts are {', '.join(LAYOUT_BYTES)}")
    return layout


def _parse_block(p: _Parser) -> list[Stmt]:
    p.want("{")
    p.depth += 1
    if p.depth > MAX_DEPTH:
        p.error("nested too deeply")
    body: list[Stmt] = []
    while not p.take("}"):
        body.append(_parse_stmt(p))
    p.depth -= 1
    return body


def _parse_stmt(p: _Parser) -> Stmt:
    stmt = _parse_head(p)
    if p.take("!"):
        stmt.line = p.integer()
    if stmt.op in _BLOCKS:
        stmt.body = _parse_block(p)
        if stmt.op == "if" and p.take("else"):
            stmt.orelse = _parse_block(p)
    return stmt


def _parse_head(p: _Parser) -> Stmt:
    if p.take("%"):
        name = p.name()
        if p.take("["):
            index = _parse_expr(p)
            p.want("]")
            p.want("=")
            return Stmt("astore", (index, _parse_expr(p)), (name,))
        p.want("=")
        return Stmt("assign", (_parse_expr(p),), (name,))
    if p.take("@"):
        name = p.name()
        p.want("=")
        return Stmt("setstate", (_parse_expr(p),), (name,))
    op = p.next()
    if op in ("break", "continue", "loop"):
        return Stmt(op)
    if op in ("if", "while", "abort"):
        return Stmt(op, (_parse_expr(p),))
    if op == "return":
        return Stmt(op, () if p.token in ("!", "}", "") else _return_value(p))
    if op in ("block", "leave"):
        p.want("%")
        return Stmt(op, (), (p.name(),))
    if op in _CALLS:
        return Stmt(op, _parse_args(p))
    if op == "array":
        return _parse_array(p)
    if op == "for":
        return _parse_for(p)
    return p.error(f"{op!r} is no statement")


def _return_value(p: _Parser) -> tuple[Expr, ...]:
    return (_parse_expr(p),)


def _parse_array(p: _Parser) -> Stmt:
    p.want("%")
    name = p.name()
    p.want(":")
    ty = p.ty()
    p.want("x")
    return Stmt("array", (), (name, p.integer()), ty=ty)


def _parse_for(p: _Parser) -> Stmt:
    p.want("%")
    name = p.name()
    p.want(":")
    ty = p.ty()
    p.want("=")
    start = _parse_expr(p)
    p.want("to")
    stop = _parse_expr(p)
    p.want("step")
    return Stmt("for", (start, stop), (name, p.integer()), ty=ty)


def _parse_args(p: _Parser) -> tuple[Expr, ...]:
    p.want("(")
    args: list[Expr] = []
    while not p.take(")"):
        if args:
            p.want(",")
        args.append(_parse_expr(p))
    return tuple(args)


_EXPR_OPS = (
    UNARY
    | BINARY
    | COMPARE
    | frozenset(
        "iota splat row state len nrows load gather aload cast bitcast extract insert "
        "shuffle "
        "reduce_add reduce_mul reduce_min reduce_max fma select andalso orelse choose".split()
    )
)


def _parse_expr(p: _Parser) -> Expr:
    p.depth += 1
    if p.depth > MAX_DEPTH:
        p.error("nested too deeply")
    try:
        return _parse_expr_inner(p)
    finally:
        p.depth -= 1


def _parse_expr_inner(p: _Parser) -> Expr:
    if p.take("%"):
        name = p.name()
        p.want(":")
        return Expr("local", p.ty(), (), (name,))
    if p.token in ("&", "*"):
        ty = p.ty()
        p.want("@")
        return Expr("field", ty, (), (p.name(),))
    kind = p.tokens[p.pos][0]
    if kind == "number" or p.token in ("true", "false", "nan", "inf"):
        value = _parse_number(p)
        p.want(":")
        return Expr("const", p.ty(), (), (value,))
    op = p.next()
    if op not in _EXPR_OPS:
        p.error(f"{op!r} is no expression")
    p.want(":")
    ty = p.ty()
    attrs: list[str | int | float | bool] = []
    if p.take("["):
        while not p.take("]"):
            if attrs:
                p.want(",")
            attrs.append(p.name() if p.take("@") else _parse_number(p))
    return Expr(op, ty, _parse_args(p), tuple(attrs))


def _parse_number(p: _Parser) -> int | float | bool:
    text = p.next()
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) and len(text) < 25 else float(text)
    except ValueError:
        p.error(f"{text!r} is no number")
