"""Source files of the vertex language: parsed with `ast`, never imported.

`parse_source` gives a `SourceModule` with the class templates, helper functions and constants of
one file; `parse_instance` splits an instance name as Poplar writes it. See the package docstring
for the language.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from poplar_py.codelets.errors import CodeletError, place
from poplar_py.diagnostics import Location, register_source
from poplar_py.types import DTYPES, DType

__all__ = ["ClassTemplate", "Param", "SourceModule", "parse_instance", "parse_source", "type_named"]

_MAX_SOURCE = 4 << 20
_BASES = {"Vertex": False, "MultiVertex": True}
_POPLAR_NAMES = {t.poplar: t for t in DTYPES.values()} | {
    "unsigned": DTYPES["u32"],
    "long long": DTYPES["i64"],
    "unsigned long long": DTYPES["u64"],
    "char": DTYPES["i8"],
}


def type_named(text: str) -> DType | None:
    """An element type by our name or Poplar's (`f32`, `float`, `unsigned int`, ...)."""
    return DTYPES.get(text) or _POPLAR_NAMES.get(text)


@dataclass(frozen=True, slots=True)
class Param:
    """A template parameter: kind is type, int or bool; `choices` limits a type parameter."""

    name: str
    kind: str
    choices: tuple[DType, ...] = ()


@dataclass(slots=True)
class ClassTemplate:
    """One vertex class before its parameters are bound. `full_name` has the namespace."""

    name: str
    full_name: str
    multi: bool
    params: tuple[Param, ...]
    node: ast.ClassDef
    module: SourceModule
    methods: dict[str, ast.FunctionDef] = field(default_factory=lambda: {})

    @property
    def loc(self) -> Location:
        return place(self.module.file, self.node)


@dataclass(slots=True)
class SourceModule:
    """One parsed file."""

    file: str
    namespace: str = ""
    digest: str = ""
    params: dict[str, Param] = field(default_factory=lambda: {})
    constants: dict[str, ast.expr] = field(default_factory=lambda: {})
    functions: dict[str, ast.FunctionDef] = field(default_factory=lambda: {})
    classes: dict[str, ClassTemplate] = field(default_factory=lambda: {})

    def fail(self, node: ast.AST, message: str, remedy: str = "") -> CodeletError:
        return CodeletError(message, place(self.file, node), remedy)


def parse_source(text: str, file: str, namespace: str = "", line_offset: int = 0) -> SourceModule:
    """Parse one source. `namespace` is a default; `line_offset` moves line numbers (inspect)."""
    if len(text) > _MAX_SOURCE:
        raise CodeletError(f"{file}: a source of {len(text)} characters is too long")
    register_source(file, "\n" * line_offset + text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except SyntaxError as error:
        loc = Location(file, (error.lineno or 1) + line_offset, error.offset or 1)
        raise CodeletError(f"syntax: {error.msg}", loc) from None
    except (RecursionError, MemoryError):
        raise CodeletError("the source is nested too deeply", Location(file, 1, 1)) from None
    except ValueError as error:
        raise CodeletError(f"syntax: {error}", Location(file, 1, 1)) from None
    if line_offset:
        ast.increment_lineno(tree, line_offset)
    digest = hashlib.sha256(f"{line_offset}\n{text}".encode()).hexdigest()
    module = SourceModule(file, namespace, digest)
    for node in tree.body:
        _module_statement(module, node)
    return module


def _module_statement(module: SourceModule, node: ast.stmt) -> None:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.FunctionDef):
        module.functions[node.name] = node
        return
    if isinstance(node, ast.ClassDef):
        _class_statement(module, node)
        return
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        _module_assign(module, node)
        return
    raise module.fail(
        node,
        f"{_kind(node)} at module level is not part of the vertex language",
        "a codelet source has imports, constants, parameters, helper functions and vertex classes",
    )


def _kind(node: ast.AST) -> str:
    return type(node).__name__.lower()


def _module_assign(module: SourceModule, node: ast.Assign | ast.AnnAssign) -> None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, ast.Name) or node.value is None:
        raise module.fail(node, "a module-level assignment needs one name and a value")
    name, value = target.id, node.value
    if name == "__all__":
        return
    if name == "NAMESPACE":
        if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
            raise module.fail(value, "NAMESPACE must be a string")
        module.namespace = value.value
        return
    param = _param(module, name, value)
    if param is not None:
        module.params[name] = param
    else:
        module.constants[name] = value


def _param(module: SourceModule, name: str, value: ast.expr) -> Param | None:
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
        return None
    kind = {"TypeVar": "type", "IntParam": "int", "BoolParam": "bool"}.get(value.func.id)
    if kind is None:
        return None
    first = value.args[0] if value.args else None
    if not (isinstance(first, ast.Constant) and first.value == name):
        raise module.fail(value, f"the parameter {name} must be declared with its own name")
    choices: list[DType] = []
    for arg in value.args[1:]:
        dtype = type_named(arg.id) if isinstance(arg, ast.Name) else None
        if dtype is None or kind != "type":
            raise module.fail(arg, f"a choice of {name} must be an element type such as f32")
        choices.append(dtype)
    return Param(name, kind, tuple(choices))


def _class_statement(module: SourceModule, node: ast.ClassDef) -> None:
    multi: bool | None = None
    params: tuple[Param, ...] = ()
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in _BASES:
            multi = _BASES[base.id]
        elif isinstance(base, ast.Subscript) and _is_name(base.value, "Generic"):
            params = tuple(_generic_params(module, base.slice))
        else:
            raise module.fail(base, "a vertex class derives from Vertex or MultiVertex", "")
    if multi is None:
        raise module.fail(
            node, f"class {node.name} is no vertex", "derive it from Vertex or MultiVertex"
        )
    full = f"{module.namespace}::{node.name}" if module.namespace else node.name
    template = ClassTemplate(node.name, full, multi, params, node, module)
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            template.methods[item.name] = item
    if "compute" not in template.methods:
        raise module.fail(node, f"class {node.name} has no compute method")
    if node.name in module.classes:
        raise module.fail(node, f"class {node.name} is defined twice")
    module.classes[node.name] = template


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _generic_params(module: SourceModule, node: ast.expr) -> Iterator[Param]:
    for item in node.elts if isinstance(node, ast.Tuple) else [node]:
        if not isinstance(item, ast.Name) or item.id not in module.params:
            raise module.fail(
                item,
                "Generic[...] wants template parameters",
                'declare them as T = TypeVar("T", f16, f32), N = IntParam("N") or BoolParam("B")',
            )
        yield module.params[item.id]


def parse_instance(name: str) -> tuple[str, tuple[str, ...]]:
    """`ns::Class<float,4>` as ("ns::Class", ("float", "4")). Raises CodeletError."""
    name = name.strip()
    if "<" not in name:
        return name, ()
    head, _, rest = name.partition("<")
    if not rest.endswith(">"):
        raise CodeletError(f"the vertex name {name!r} has no closing >")
    return head.strip(), tuple(part.strip() for part in rest[:-1].split(","))
