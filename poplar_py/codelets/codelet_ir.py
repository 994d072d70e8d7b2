"""Codelet IR: what one vertex does, as a small typed tree with structured control flow.

Expressions are `Expr(op, ty, args, attr)`, statements `Stmt(op, args, attr, body, orelse, line)`.
Values are scalars or short vectors (`Ty`), or references to a run of elements (`Ty.ref`). Locals
are mutable names; every local has one type. f16 and bf16 take no part in arithmetic: they are cast
to f32 and back. Unstructured flow is `leave` out of a named `block`, `break` and `continue`.

Expression ops
    const[value]  local[name]  iota  splat(x)
    field[f]: ref   row[f](j): ref   state[f]   len(ref)   nrows[f]
    load(ref, i[, n])   gather(ref, ivec)   aload[array](i)
    cast(x)  bitcast(x)  extract[k](v)  insert[k](v, s)  shuffle[lanes...](a, b)
    reduce_add reduce_mul reduce_min reduce_max (v)
    every name in UNARY, BINARY, COMPARE; fma(a, b, c)  select(c, a, b)
    andalso(a, b)  orelse(a, b)  choose(c, a, b): scalars, only what is needed is evaluated
Statement ops
    assign[name](e)  array[name, n] (type in `ty`)  astore[name](i, e)  store(ref, i, e[, n])
    setstate[f](e)  if(c)  for[name, step](a, b)  while(c)  loop  block[label]  leave[label]
    break  continue  return(e?)  prefetch(ref, i)  abort(c)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from poplar_py.types import DType, bool_, i32

__all__ = [
    "BINARY",
    "BOOL",
    "COMPARE",
    "I32",
    "LAYOUT_BYTES",
    "TRAPPING",
    "UNARY",
    "CodeletIR",
    "Expr",
    "Field",
    "Stmt",
    "Ty",
    "walk_expr",
    "walk_stmts",
]

Attr = str | int | float | bool

UNARY = frozenset(
    "neg not inv abs sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan "
    "sinh "
    "cosh tanh asinh acosh atanh erf sigmoid floor ceil round trunc isnan isinf popcount "
    "clz".split()
)
BINARY = frozenset(
    "add sub mul div floordiv mod quot rem fmod pow atan2 min max fmin fmax copysign and or xor "
    "shl "
    "shr".split()
)
COMPARE = frozenset("eq ne lt le gt ge".split())
TRAPPING = frozenset("load gather aload floordiv mod quot rem row".split())


@dataclass(frozen=True, slots=True)
class Ty:
    """An element type with a lane count (1: scalar), or a reference to elements of that type."""

    dtype: DType
    lanes: int = 1
    ref: bool = False
    sized: bool = True

    def __str__(self) -> str:
        if self.ref:
            return ("&" if self.sized else "*") + self.dtype.name
        return self.dtype.name if self.lanes == 1 else f"{self.dtype.name}x{self.lanes}"

    def with_dtype(self, dtype: DType) -> Ty:
        return Ty(dtype, self.lanes)

    @property
    def nbytes(self) -> int:
        return self.dtype.size * self.lanes


BOOL = Ty(bool_)
I32 = Ty(i32)


@dataclass(frozen=True, slots=True)
class Expr:
    """One expression node. `attr` holds names and compile-time numbers."""

    op: str
    ty: Ty
    args: tuple[Expr, ...] = ()
    attr: tuple[Attr, ...] = ()


@dataclass(slots=True)
class Stmt:
    """One statement; `line` is the source line (0: none). `ty` is used by `array` only."""

    op: str
    args: tuple[Expr, ...] = ()
    attr: tuple[Attr, ...] = ()
    body: list[Stmt] = field(default_factory=lambda: [])
    orelse: list[Stmt] = field(default_factory=lambda: [])
    line: int = 0
    ty: Ty | None = None


# Bytes of state by layout (Poplar's user guide). A VectorList keeps a base pointer with its row
# count and a pointer to packed rows of 4 bytes: offset 20 bits, length 12 (PopLibs' codelets).
LAYOUT_BYTES = {
    "deltan": 8,
    "deltanelements": 8,
    "compact_deltan": 8,
    "delta_row": 4,
    "span": 8,
    "short_span": 4,
    "one_ptr": 4,
    "scaled_ptr32": 2,
    "scaled_ptr64": 2,
    "scaled_ptr128": 2,
    "compact_ptr": 4,
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a vertex.

    kind: in, out, inout or state. rank: 0 a single element, 1 a run, 2 a list of runs. `one_ptr`:
    no size of the (outer) run in the row; `inner_one_ptr`: no size per sub-run. `align`: least
    alignment in bytes. `mutable`: an edge that is written, or state assigned in compute. `layout`:
    Poplar's name of the layout, which decides the state bytes. The rows of a VectorList have
    `inner_layout` "delta_row".
    """

    name: str
    kind: Literal["in", "out", "inout", "state"]
    dtype: DType
    rank: int
    one_ptr: bool = False
    inner_one_ptr: bool = False
    align: int = 0
    mutable: bool = False
    layout: str = "span"
    inner_layout: str = "span"

    @property
    def literal(self) -> bool:
        """A scalar of state that stands in the table row itself."""
        return self.kind == "state" and self.rank == 0 and not self.mutable


@dataclass(eq=False)
class CodeletIR:
    """One instantiated codelet: fields and body. `worker`: the worker-id local of a MultiVertex.

    `supervisor`: the supervisor of the tile runs it, alone.
    """

    name: str
    multi: bool
    fields: tuple[Field, ...]
    body: list[Stmt]
    worker: str = ""
    file: str = ""
    source_line: int = 0
    supervisor: bool = False

    @cached_property
    def digest(self) -> str:
        """sha256 of the text form, hex: the same for equal code, whatever file it came from."""
        from poplar_py.codelets.codelet_text import print_codelet

        text = print_codelet(self, lines=False)
        return hashlib.sha256(text.encode()).hexdigest()


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """Every node of an expression, children first."""
    for arg in expr.args:
        yield from walk_expr(arg)
    yield expr


def walk_stmts(body: list[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer before inner, in text order."""
    for stmt in body:
        yield stmt
        if stmt.body:
            yield from walk_stmts(stmt.body)
        if stmt.orelse:
            yield from walk_stmts(stmt.orelse)


def assigned_names(body: list[Stmt]) -> set[str]:
    """Locals that statements assign, loop variables included."""
    return {str(s.attr[0]) for s in walk_stmts(body) if s.op in ("assign", "for")}
