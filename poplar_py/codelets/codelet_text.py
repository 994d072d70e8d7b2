"""Text form of codelet IR: printing is byte-stable, and parsing gives the same IR back.

    codelet "popops::ScaledAdd<float>" vertex {
      inout y: f32 rank 1
      in x: f32 rank 1
      state scale: f32
    } do {
      for %i.1: i32 = 0: i32 to len(&f32 @y) step 1 !11 {
        store(&f32 @y, %i.1: i32, add: f32(...)) !12
      }
      return true: bool
    }

An expression is `op: type[attrs](args)`; constants `1: i32`, locals `%name: type`, fields
`&type @name`. `!n` is the source line. Strings are quoted as in `.pir`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NoReturn

from poplar_py.codelets.codelet_ir import BINARY, COMPARE, UNARY, CodeletIR, Expr, Field, Stmt, Ty
from poplar_py.codelets.depth import MAX_DEPTH, deep
from poplar_py.diagnostics import Location, ParseError, quote_name, register_source
from poplar_py.types import DTYPES

__all__ = ["parse_codelet", "print_codelet", "print_expr"]

_PLAIN = re.compile(r"[A-Za-z_][\w.]*\Z")


def _name(text: str) -> str:
    return text if _PLAIN.match(text) else quote_name(text)


@deep
def print_codelet(ir: CodeletIR, lines: bool = True) -> str:
    """The text of one codelet, ending in a newline. `lines=False` leaves source lines out."""
    kind = "multi" if ir.multi else "vertex"
    worker = f" worker %{_name(ir.worker)}" if ir.worker else ""
    source = f" source {quote_name(ir.file)}:{ir.source_line}" if lines and ir.file else ""
    out = [f"codelet {quote_name(ir.name)} {kind}{worker}{source} {{"]
    out += [f"  {_field(f)}" for f in ir.fields]
    out.append("} do {")
    _body(ir.body, "  ", lines, out)
    out.append("}")
    return "\n".join(out) + "\n"


def _field(f: Field) -> str:
    text = f"{f.kind} {_name(f.name)}: {f.dtype.name}"
    text += f" rank {f.rank}" if f.rank else ""
    text += " one_ptr" if f.one_ptr else ""
    text += " inner_one_ptr" if f.inner_one_ptr else ""
    text += f" align {f.align}" if f.align else ""
    text += " mutable" if f.mutable and f.kind == "state" else ""
    text += f" layout {f.layout}" if f.layout != "span" else ""
    return text + (f" inner_layout {f.inner_layout}" if f.inner_layout != "span" else "")


def _body(body: list[Stmt], indent: str, lines: bool, out: list[str]) -> None:
    for stmt in body:
        tail = f" !{stmt.line}" if lines and stmt.line else ""
        head = f"{indent}{_head(stmt)}{tail}"
        if stmt.op not in _BLOCKS:
            out.append(head)
            continue
        out.append(head + " {")
        _body(stmt.body, indent + "  ", lines, out)
        if stmt.orelse:
            out.append(f"{indent}}} else {{")
            _body(stmt.orelse, indent + "  ", lines, out)
        out.append(indent + "}")


_BLOCKS = frozenset({"if", "for", "while", "loop", "block"})
_CALLS = frozenset({"store", "prefetch"})


def _head(s: Stmt) -> str:
    args = [print_expr(a) for a in s.args]
    match s.op:
        case "assign":
            return f"%{_name(str(s.attr[0]))} = {args[0]}"
        case "array":
            return f"array %{_name(str(s.attr[0]))}: {s.ty} x {s.attr[1]}"
        case "astore":
            return f"%{_name(str(s.attr[0]))}[{args[0]}] = {args[1]}"
        case "setstate":
            return f"@{_name(str(s.attr[0]))} = {args[0]}"
        case "for":
            head = f"for %{_name(str(s.attr[0]))}: {s.ty} = {args[0]}"
            return f"{head} to {args[1]} step {s.attr[1]}"
        case "if" | "while" | "abort" | "return":
            return " ".join([s.op, *args])
        case "block" | "leave":
            return f"{s.op} %{_name(str(s.attr[0]))}"
        case _:
            return f"{s.op}({', '.join(args)})" if s.op in _CALLS else s.op


def print_expr(e: Expr) -> str:
    """The text of one expression."""
    match e.op:
        case "const":
            return f"{_number(e.attr[0])}: {e.ty}"
        case "local":
            return f"%{_name(str(e.attr[0]))}: {e.ty}"
        case "field":
            return f"{e.ty} @{_name(str(e.attr[0]))}"
        case _:
            attrs = ", ".join(f"@{_name(a)}" if isinstance(a, str) else _number(a) for a in e.attr)
            head = f"{e.op}: {e.ty}" + (f"[{attrs}]" if e.attr else "")
            return f"{head}({', '.join(print_expr(a) for a in e.args)})"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


# ---------------------------------------------------------------- parsing

_TOKEN = re.compile(
    r"""\s+ | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?))"""
    r"""| (?P<word>[A-Za-z_][\w.]*) | (?P<string>"(?:[^"\\]|\\.)*") |
    (?P<punct>[-{}()\[\]:,=@%&*!])""",
    re.VERBOSE,
)
_MAX_DEPTH = MAX_DEPTH


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

    def dtype(self, text: str):  # type: ignore[no-untyped-def]
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
    from poplar_py.codelets.codelet_check import check_codelet

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
    multi = p.take("multi")
    if not multi:
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
    return CodeletIR(name, multi, tuple(fields), body, worker, source, line)


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
    layout = p.name() if p.take("layout") else "span"
    inner_layout = p.name() if p.take("inner_layout") else "span"
    if not 0 <= rank <= 2:
        p.error(f"rank {rank} does not exist")
    return Field(name, kind, dtype, rank, one, inner, align, mutable, layout, inner_layout)


def _parse_block(p: _Parser) -> list[Stmt]:
    p.want("{")
    p.depth += 1
    if p.depth > _MAX_DEPTH:
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
    if p.depth > _MAX_DEPTH:
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
