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
`&type @name`. `!n` is the source line. Strings are quoted as in `.pir`. Parsing: `codelet_parse`.
"""

from __future__ import annotations

import math
import re

from poplar_py.codelets.codelet_ir import CodeletIR, Expr, Field, Stmt
from poplar_py.codelets.codelet_parse import parse_codelet
from poplar_py.codelets.depth import deep
from poplar_py.diagnostics import quote_name

__all__ = ["parse_codelet", "print_codelet", "print_expr"]

_PLAIN = re.compile(r"[A-Za-z_][\w.]*\Z")


def _name(text: str) -> str:
    return text if _PLAIN.match(text) else quote_name(text)


@deep
def print_codelet(ir: CodeletIR, lines: bool = True) -> str:
    """The text of one codelet, ending in a newline. `lines=False` leaves source lines out."""
    kind = "multi" if ir.multi else "supervisor" if ir.supervisor else "vertex"
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
