"""Checks that codelet IR from a text is well formed, so that emission cannot fail.

Every name, type and operand count is checked. Code that passes may still be wrong for its user; it
cannot break the code generator.
"""

from __future__ import annotations

from poplar_py.codelets.arrays import MAX_ARRAY_BYTES, register_arrays
from poplar_py.codelets.check_rules import EXPRESSIONS, arithmetic
from poplar_py.codelets.codelet_ir import (
    BINARY,
    BOOL,
    COMPARE,
    UNARY,
    CodeletIR,
    Expr,
    Field,
    Stmt,
    Ty,
)
from poplar_py.codelets.depth import MAX_DEPTH, deep
from poplar_py.diagnostics import Location, VerifyError
from poplar_py.types import i32, i64, u32

__all__ = ["check_codelet"]

MAX_LANES = 64
_VALUE_BLOCKS = frozenset("if for while loop block".split())


@deep
def check_codelet(ir: CodeletIR, file: str = "") -> None:
    """Raises VerifyError at the first thing that is not well formed."""
    _Checker(ir, file).run()


class _Checker:
    def __init__(self, ir: CodeletIR, file: str) -> None:
        self.ir, self.file, self.line = ir, file, 0
        self.fields = {f.name: f for f in ir.fields}
        self.arrays: dict[str, tuple[Ty, int]] = {}
        self.types: dict[str, Ty] = {}
        self.loop_names: set[str] = set()
        self.row_field: dict[str, Field] = {}

    def fail(self, message: str) -> VerifyError:
        loc = Location(self.file or self.ir.file, self.line, 1)
        return VerifyError(f"codelet {self.ir.name}: {message}", loc)

    def need(self, ok: bool, message: str) -> None:
        if not ok:
            raise self.fail(message)

    def run(self) -> None:
        self.need(len(self.fields) == len(self.ir.fields), "two fields have one name")
        for f in self.ir.fields:
            self._field(f)
        defined: set[str] = set()
        self.need(self.ir.multi == bool(self.ir.worker), "a multi codelet names its worker")
        if self.ir.worker:
            self.types[self.ir.worker] = Ty(u32)
            self.loop_names.add(self.ir.worker)
            defined.add(self.ir.worker)
        self._body(self.ir.body, defined, 0, (), 0)
        kept = register_arrays(self.ir.body)
        sizes = [t.nbytes * n for name, (t, n) in self.arrays.items() if name not in kept]
        self.need(sum(sizes) <= MAX_ARRAY_BYTES, "local arrays are too large")

    def _field(self, f: Field) -> None:
        self.need(f.rank < 2 or f.kind != "state", f"{f.name}: state has no rank 2")
        self.need(not f.inner_one_ptr or f.rank == 2, f"{f.name}: inner_one_ptr wants rank 2")
        self.need(not f.one_ptr or f.rank == 1, f"{f.name}: one_ptr wants rank 1")

    # -- statements

    def _body(
        self, body: list[Stmt], defined: set[str], loops: int, labels: tuple[str, ...], depth: int
    ) -> bool:
        """Check statements; True when the end is not reached. Adds to `defined`."""
        self.need(depth < MAX_DEPTH, "nested too deeply")
        for stmt in body:
            self.line = stmt.line
            for arg in stmt.args:
                self._expr(arg, defined, 0)
            if self._statement(stmt, defined, loops, labels, depth):
                return True
        return False

    def _statement(
        self, s: Stmt, defined: set[str], loops: int, labels: tuple[str, ...], depth: int
    ) -> bool:
        if s.op in _VALUE_BLOCKS:
            return self._nested(s, defined, loops, labels, depth)
        if s.op in ("break", "continue"):
            self.need(loops > 0, f"{s.op} outside a loop")
            return True
        if s.op == "leave":
            self.need(str(s.attr[0]) in labels, f"leave to {s.attr[0]}, which is not around it")
            return True
        if s.op == "return":
            self.need(not s.args or s.args[0].ty == BOOL, "return wants a bool")
            return True
        simple = {
            "assign": self._assign,
            "array": self._array,
            "astore": self._astore,
            "store": self._store,
            "setstate": self._setstate,
            "prefetch": self._prefetch,
            "abort": self._condition,
        }
        self.need(s.op in simple, f"unknown statement {s.op}")
        simple[s.op](s, defined)
        return False

    def _assign(self, s: Stmt, defined: set[str]) -> None:
        name, ty = str(s.attr[0]), s.args[0].ty
        self.need(name not in self.loop_names, f"the loop variable {name} is assigned")
        self.need(name not in self.arrays, f"{name} is an array")
        self.need(self.types.setdefault(name, ty) == ty, f"{name} changes its type")
        if ty.ref:
            f = self.run_field(s.args[0])
            known = self.row_field.setdefault(name, f)
            self.need(known is f, f"{name} stands for rows of two fields")
        defined.add(name)

    def _array(self, s: Stmt, defined: set[str]) -> None:
        name, size = str(s.attr[0]), int(s.attr[1])
        self.need(s.ty is not None and not s.ty.ref and size > 0, "an array holds values")
        assert s.ty is not None
        known = self.arrays.setdefault(name, (s.ty, size))
        self.need(known == (s.ty, size), f"the array {name} is declared twice")
        self.need(name not in self.types, f"{name} is a local")
        self.need(size * s.ty.nbytes <= MAX_ARRAY_BYTES, "a local array is too large")
        defined.add(name)

    def _astore(self, s: Stmt, defined: set[str]) -> None:
        ty = self.array_access(str(s.attr[0]), s.args[0], s.args[1].ty, defined)
        self.need(s.args[1].ty.dtype is ty.dtype, "a stored value has another type")

    def array_access(self, name: str, index: Expr, ty: Ty, defined: set[str]) -> Ty:
        self.need(name in self.arrays and name in defined, f"no array {name} here")
        have, size = self.arrays[name]
        self.need(
            ty == have or (have.lanes == 1 and ty.dtype is have.dtype), f"{name} holds {have}"
        )
        self.index(index)
        if index.op == "const":
            last = int(index.attr[0]) + (ty.lanes if ty != have else 1) - 1
            self.need(int(index.attr[0]) >= 0 and last < size, f"outside the array {name}")
        return have

    def _store(self, s: Stmt, defined: set[str]) -> None:
        self.need(len(s.args) in (3, 4), "store wants a run, an index and a value")
        ref, index, value = s.args[:3]
        f = self.run_field(ref)
        self.need(f.mutable, f"{f.name} is not written by this codelet")
        self.index(index)
        self.need(not value.ty.ref and value.ty.dtype is ref.ty.dtype, "the stored type differs")
        if len(s.args) == 4:
            self.index(s.args[3])
            self.need(value.ty.lanes > 1, "a partial store wants lanes")

    def _setstate(self, s: Stmt, defined: set[str]) -> None:
        f = self.fields.get(str(s.attr[0]))
        ok = f is not None and f.kind == "state" and f.rank == 0 and f.mutable
        self.need(ok, f"no mutable state {s.attr[0]}")
        assert f is not None
        self.need(s.args[0].ty == Ty(f.dtype), f"{f.name} is {f.dtype}")

    def _prefetch(self, s: Stmt, defined: set[str]) -> None:
        self.need(len(s.args) in (2, 3), "prefetch wants a run, an index and perhaps a distance")
        self.run_field(s.args[0])
        self.index(s.args[1])
        if len(s.args) == 3:
            self.need(s.args[0].op == "field", "only a field of a later vertex can be prefetched")
            self.index(s.args[2])

    def _condition(self, s: Stmt, defined: set[str]) -> None:
        self.need(len(s.args) == 1 and s.args[0].ty == BOOL, f"{s.op} wants a bool")

    def _nested(
        self, s: Stmt, defined: set[str], loops: int, labels: tuple[str, ...], depth: int
    ) -> bool:
        if s.op in ("if", "while"):
            self._condition(s, defined)
        if s.op == "if":
            return self._if(s, defined, loops, labels, depth)
        if s.op == "block":
            inner = set(defined)
            ends = self._body(s.body, inner, loops, (*labels, str(s.attr[0])), depth + 1)
            defined |= self._block_defines(s, defined, inner, ends)
            return False
        inner = set(defined)
        name = ""
        if s.op == "for":
            name = self._loop_head(s, defined)
            inner.add(name)
        self._body(s.body, inner, loops + 1, labels, depth + 1)
        self.loop_names.discard(name)
        return s.op == "loop" and not _breaks(s.body)

    def _block_defines(self, s: Stmt, before: set[str], inner: set[str], ends: bool) -> set[str]:
        """Names set on every path out of a block: those set before its first `leave`."""
        found: set[str] | None = None if ends else set(inner)
        for names in _leaves(s.body, str(s.attr[0]), set(before)):
            found = names if found is None else found & names
        return found or set()

    def _loop_head(self, s: Stmt, defined: set[str]) -> str:
        name, step = str(s.attr[0]), int(s.attr[1])
        self.need(s.ty in (Ty(i32), Ty(i64)) and step != 0, "a loop counts in i32 or i64")
        self.need(name not in self.types and name not in self.arrays, f"{name} is used twice")
        for bound in s.args:
            self.index(bound)
        assert s.ty is not None
        self.types[name] = s.ty
        self.loop_names.add(name)
        return name

    def _if(
        self, s: Stmt, defined: set[str], loops: int, labels: tuple[str, ...], depth: int
    ) -> bool:
        yes, no = set(defined), set(defined)
        yes_ends = self._body(s.body, yes, loops, labels, depth + 1)
        no_ends = self._body(s.orelse, no, loops, labels, depth + 1)
        if yes_ends and no_ends:
            return True
        defined |= no if yes_ends else yes if no_ends else yes & no
        return False

    # -- expressions

    def index(self, e: Expr) -> None:
        self.need(e.ty.dtype.is_integer and e.ty.lanes == 1 and not e.ty.ref, "an index is an int")

    def run_field(self, ref: Expr) -> Field:
        self.need(ref.ty.ref, "a run of elements is wanted")
        if ref.op == "local":
            found = self.row_field.get(str(ref.attr[0]))
        else:
            found = self.fields.get(str(ref.attr[0]))
        self.need(found is not None, "a run belongs to a field")
        assert found is not None
        return found

    def _expr(self, e: Expr, defined: set[str], depth: int) -> None:
        self.need(depth < MAX_DEPTH, "an expression is nested too deeply")
        self.need(1 <= e.ty.lanes <= MAX_LANES, "lanes are from 1 to 64")
        for arg in e.args:
            self._expr(arg, defined, depth + 1)
        check = EXPRESSIONS.get(e.op)
        if check is not None:
            check(self, e, defined)
        elif e.op in UNARY or e.op in BINARY or e.op in COMPARE:
            arithmetic(self, e)
        else:
            raise self.fail(f"unknown expression {e.op}")


def _breaks(body: list[Stmt]) -> bool:
    """Whether a loop with this body can be left by `break`."""
    return any(
        s.op == "break" or (s.op in ("if", "block") and (_breaks(s.body) or _breaks(s.orelse)))
        for s in body
    )


def _leaves(body: list[Stmt], label: str, names: set[str]) -> list[set[str]]:
    """Names surely set at each `leave` to `label`."""
    found: list[set[str]] = []
    for s in body:
        if s.op in ("assign", "array"):
            names.add(str(s.attr[0]))
        elif s.op == "leave":
            if s.attr[0] == label:
                found.append(set(names))
            return found
        elif s.op in _VALUE_BLOCKS:
            found += _leaves(s.body, label, set(names))
            found += _leaves(s.orelse, label, set(names))
    return found
