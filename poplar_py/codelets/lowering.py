"""Shared state of turning one class instance into codelet IR: values, scopes, the output list."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from poplar_py.codelets.codelet_ir import Expr, Field, Stmt, Ty
from poplar_py.codelets.errors import CodeletError, place
from poplar_py.codelets.source import ClassTemplate, EnumType, EnumValue, SourceModule
from poplar_py.diagnostics import Location, PoplarPyError
from poplar_py.types import DType

__all__ = [
    "ArrayRef",
    "Builtin",
    "FieldRef",
    "Frame",
    "Helper",
    "Local",
    "Lowering",
    "SelfRef",
    "Value",
    "compile_time",
    "guard",
    "stored_names",
]

MAX_STATEMENTS = 20_000
MAX_INLINE_DEPTH = 32
MAX_EXPR_DEPTH = 150


@dataclass(frozen=True, slots=True)
class Local:
    """A local variable: its IR name, type, and value where that is a known int or bool."""

    name: str
    ty: Ty
    known: Expr | None = None


@dataclass(frozen=True, slots=True)
class ArrayRef:
    name: str
    ty: Ty
    size: int


@dataclass(frozen=True, slots=True)
class FieldRef:
    field: Field


@dataclass(frozen=True, slots=True)
class SelfRef:
    pass


@dataclass(frozen=True, slots=True)
class Helper:
    node: ast.FunctionDef
    module: SourceModule
    method: bool = False


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of the language by name, for example `fma` or `load16`."""

    name: str


Value = (
    Expr
    | int
    | float
    | bool
    | str
    | DType
    | Ty
    | EnumType
    | EnumValue
    | ArrayRef
    | FieldRef
    | SelfRef
    | Helper
    | Builtin
    | tuple["Value", ...]
    | None
)
Binding = Local | Value


def compile_time(value: object) -> int | float | bool | None:
    """The Python number of a compile-time value, else None."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, Expr) and value.op == "const" and value.ty.lanes == 1:
        number = value.attr[0]
        return None if isinstance(number, str) else number
    return None


@dataclass(slots=True)
class Frame:
    """Names of one function body. `label`/`results`: where `return` of an inlined helper goes."""

    names: dict[str, Binding]
    module: SourceModule
    label: str = ""
    results: list[Local] | None = None
    returns_annotation: ast.expr | None = None
    types: dict[str, Ty] = field(default_factory=lambda: {})
    lost: dict[str, int] = field(default_factory=lambda: {})
    ended_loops: set[str] = field(default_factory=lambda: set())
    ir_names: dict[str, str] = field(default_factory=lambda: {})
    loop_names: set[str] = field(default_factory=lambda: set())
    leaves: int = 0
    returns_tuple: bool = False
    bare_return: bool = False


_stored: WeakKeyDictionary[ast.AST, frozenset[str]] = WeakKeyDictionary()


def stored_names(node: ast.For | ast.While | ast.FunctionDef) -> frozenset[str]:
    """Names bound anywhere inside a loop or function."""
    found = _stored.get(node)
    if found is None:
        found = frozenset(
            n.id
            for root in node.body
            for n in ast.walk(root)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )
        _stored[node] = found
    return found


class Lowering:
    """One instance on its way to IR. `out` is the statement list being filled."""

    def __init__(
        self, template: ClassTemplate, bindings: dict[str, Value], fields: tuple[Field, ...]
    ) -> None:
        self.template = template
        self.bindings = bindings
        self.fields = {f.name: f for f in fields}
        self.assigned_state: set[str] = set()
        self.class_constants: dict[str, ast.expr] = {}
        self.folded_constants: dict[str, int | float | None] = {}
        self.constant_values: dict[tuple[str, str], Value] = {}
        self.out: list[Stmt] = []
        self.frame = Frame({}, template.module)
        self.line = 0
        self.counter = 0
        self.count = 0
        self.inlining: list[str] = []
        self.depth = 0
        self.arrays: dict[str, Location] = {}
        self.loops = 0
        self.row_fields: dict[str, str] = {}
        self.tables: dict[tuple[Ty, tuple[int | float | bool, ...]], ArrayRef] = {}
        self.table_stores: list[Stmt] = []
        self.value_returned = False

    def fail(self, node: ast.AST, message: str, remedy: str = "") -> CodeletError:
        return CodeletError(message, place(self.frame.module.file, node), remedy)

    def emit(self, stmt: Stmt) -> None:
        stmt.line = stmt.line or self.line
        self.count += 1
        if self.count > MAX_STATEMENTS:
            raise CodeletError(
                f"the codelet unrolls to more than {MAX_STATEMENTS} statements",
                self.template.loc,
                "use range instead of unroll",
            )
        self.out.append(stmt)

    def fresh(self, base: str) -> str:
        self.counter += 1
        return f"{base}.{self.counter}"

    def temp(self, value: Expr, base: str = "t") -> Expr:
        """Evaluate `value` now, into a new local."""
        name = self.fresh(base)
        self.emit(Stmt("assign", (value,), (name,)))
        return Expr("local", value.ty, (), (name,))

    def alias(self, ref: Expr, base: str) -> Local:
        """A local that stands for a row (or another alias): its pointer is computed now."""
        name = self.fresh(base)
        source = str(ref.attr[0])
        self.row_fields[name] = self.row_fields.get(source, source)
        self.emit(Stmt("assign", (ref,), (name,)))
        return Local(name, ref.ty)


def guard(low: Lowering, node: ast.AST) -> _Guard:
    """Gives errors raised inside a place: `with guard(low, node): ...`."""
    return _Guard(low, node)


class _Guard:
    def __init__(self, low: Lowering, node: ast.AST) -> None:
        self.low, self.node = low, node

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, PoplarPyError) and not error.loc.known:
            error.loc = place(self.low.frame.module.file, self.node)
        return False
