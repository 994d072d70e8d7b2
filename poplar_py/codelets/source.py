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

from poplar_py.codelets.errors import CodeletError, InstanceError, place
from poplar_py.codelets.hints import cpp_hint
from poplar_py.codelets.spelling import one_spelling, plain_text
from poplar_py.diagnostics import Location, register_source
from poplar_py.types import DTYPES, DType

__all__ = [
    "ClassTemplate",
    "EnumType",
    "EnumValue",
    "Param",
    "SourceModule",
    "is_enum_class",
    "is_text",
    "parse_instance",
    "parse_source",
    "type_named",
]

_MAX_SOURCE = 4 << 20
_BASES = {"Vertex": "vertex", "MultiVertex": "multi", "SupervisorVertex": "supervisor"}
_DECORATORS = {"vertex": 0, "constraint": 1}  # with how many strings
_ENUMS = frozenset({"Enum", "IntEnum"})
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
class EnumValue:
    """A member of an enum of the source: known at compile time, counts as its int."""

    enum: str
    member: str
    value: int


@dataclass(frozen=True, slots=True)
class EnumType:
    """`class Kind(Enum): ADD = 0`; `full_name` has the namespace."""

    full_name: str
    members: dict[str, EnumValue]

    def find(self, text: str) -> EnumValue | None:
        """A member by `ADD`, `Kind.ADD`, `Kind::ADD` or `ns::Kind::ADD`."""
        path = text.replace(".", "::").split("::")
        owner = self.full_name.split("::")
        if len(path) > 1 and owner[-len(path) + 1 :] != path[:-1]:
            return None
        return self.members.get(path[-1])


@dataclass(frozen=True, slots=True)
class Param:
    """A template parameter: kind is type, int, bool or enum; `choices` limits a type parameter."""

    name: str
    kind: str
    choices: tuple[DType, ...] = ()
    enum: EnumType | None = None


@dataclass(slots=True)
class ClassTemplate:
    """One vertex class before its parameters are bound. `full_name` has the namespace.

    kind: "vertex", "multi" or "supervisor". `constraints`: what `@constraint` said, as text.
    """

    name: str
    full_name: str
    kind: str
    params: tuple[Param, ...]
    node: ast.ClassDef
    module: SourceModule
    methods: dict[str, ast.FunctionDef] = field(default_factory=lambda: {})
    constraints: tuple[ast.Constant, ...] = ()

    @property
    def multi(self) -> bool:
        return self.kind == "multi"

    @property
    def loc(self) -> Location:
        return place(self.module.file, self.node)


@dataclass(slots=True)
class SourceModule:
    """One parsed file. `shared`: where helper functions of its namespace's other files stand."""

    file: str
    namespace: str = ""
    digest: str = ""
    params: dict[str, Param] = field(default_factory=lambda: {})
    constants: dict[str, ast.expr] = field(default_factory=lambda: {})
    functions: dict[str, ast.FunctionDef] = field(default_factory=lambda: {})
    classes: dict[str, ClassTemplate] = field(default_factory=lambda: {})
    enums: dict[str, EnumType] = field(default_factory=lambda: {})
    shared: dict[str, SourceModule] = field(default_factory=lambda: {})

    def fail(self, node: ast.AST, message: str, remedy: str = "") -> CodeletError:
        return CodeletError(message, place(self.file, node), remedy)


def parse_source(text: str, file: str, namespace: str = "", line_offset: int = 0) -> SourceModule:
    """Parse one source. `namespace` is a default; `line_offset` moves line numbers (inspect)."""
    if len(text) > _MAX_SOURCE:
        raise CodeletError(f"{file}: a source of {len(text)} characters is too long")
    text = plain_text(text)
    register_source(file, "\n" * line_offset + text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = one_spelling(ast.parse(text))
    except SyntaxError as error:
        loc = Location(file, (error.lineno or 1) + line_offset, error.offset or 1)
        raise CodeletError(f"syntax: {error.msg}", loc, cpp_hint(text)) from None
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
    if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_main_guard(node):
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


def _is_main_guard(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, where codelets stand in the file of their program."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and _is_name(node.test.left, "__name__")
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


_PARAM_KINDS = {"TypeVar": "type", "IntParam": "int", "BoolParam": "bool", "EnumParam": "enum"}


def _param(module: SourceModule, name: str, value: ast.expr) -> Param | None:
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
        return None
    kind = _PARAM_KINDS.get(value.func.id)
    if kind is None:
        return None
    first = value.args[0] if value.args else None
    if not (isinstance(first, ast.Constant) and first.value == name):
        raise module.fail(value, f"the parameter {name} must be declared with its own name")
    if kind == "enum":
        return Param(name, kind, (), _enum_of(module, name, value))
    choices: list[DType] = []
    for arg in value.args[1:]:
        dtype = type_named(arg.id) if isinstance(arg, ast.Name) else None
        if dtype is None or kind != "type":
            raise module.fail(arg, f"a choice of {name} must be an element type such as f32")
        choices.append(dtype)
    return Param(name, kind, tuple(choices))


def _enum_of(module: SourceModule, name: str, value: ast.Call) -> EnumType:
    last = value.args[-1]
    if len(value.args) != 2 or not isinstance(last, ast.Name) or last.id not in module.enums:
        remedy = f'class Kind(Enum): ADD = 0, then {name} = EnumParam("{name}", Kind)'
        raise module.fail(value, f"the parameter {name} wants an enum of this file", remedy)
    return module.enums[last.id]


def is_enum_class(node: ast.ClassDef) -> bool:
    """Whether a class derives from Enum or IntEnum."""
    bases = [b.attr if isinstance(b, ast.Attribute) else b for b in node.bases]
    names = [b if isinstance(b, str) else b.id if isinstance(b, ast.Name) else "" for b in bases]
    return any(n in _ENUMS for n in names)


def _enum_statement(module: SourceModule, node: ast.ClassDef) -> None:
    full = f"{module.namespace}::{node.name}" if module.namespace else node.name
    members: dict[str, EnumValue] = {}
    for item in node.body:
        if isinstance(item, ast.Pass) or is_text(item):
            continue
        member = _enum_member(full, item)
        if member is None:
            raise module.fail(item, "an enum holds NAME = int", "write the number out")
        members[member.member] = member
    module.enums[node.name] = EnumType(full, members)


def is_text(item: ast.stmt) -> bool:
    """Whether a statement is a docstring, or any other constant by itself."""
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)


def _enum_member(full: str, item: ast.stmt) -> EnumValue | None:
    if not isinstance(item, ast.Assign) or len(item.targets) != 1:
        return None
    target, value = item.targets[0], item.value
    sign = 1
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        sign, value = -1, value.operand
    if not (isinstance(target, ast.Name) and isinstance(value, ast.Constant)):
        return None
    if type(value.value) is not int or value.value >> 31:
        return None
    return EnumValue(full, target.id, sign * value.value)


def _class_statement(module: SourceModule, node: ast.ClassDef) -> None:
    if is_enum_class(node):
        _enum_statement(module, node)
        return
    kind = ""
    params: tuple[Param, ...] = ()
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in _BASES:
            kind = _BASES[base.id]
        elif isinstance(base, ast.Subscript) and _is_name(base.value, "Generic"):
            params = tuple(_generic_params(module, base.slice))
        else:
            raise module.fail(base, f"a vertex class derives from {', '.join(_BASES)}")
    if not kind:
        remedy = "derive it from Vertex, MultiVertex or SupervisorVertex"
        raise module.fail(node, f"class {node.name} is no vertex", remedy)
    full = f"{module.namespace}::{node.name}" if module.namespace else node.name
    template = ClassTemplate(node.name, full, kind, params, node, module)
    template.constraints = tuple(_constraints(module, node))
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            template.methods[item.name] = item
    if "compute" not in template.methods:
        raise module.fail(node, f"class {node.name} has no compute method")
    if node.name in module.classes:
        raise module.fail(node, f"class {node.name} is defined twice")
    module.classes[node.name] = template


def _constraints(module: SourceModule, node: ast.ClassDef) -> Iterator[ast.Constant]:
    """The strings of `@constraint("elem(*a) != elem(*b)")`; other decorators are refused."""
    for item in node.decorator_list:
        call = item.func if isinstance(item, ast.Call) else item
        name = call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
        args = item.args if isinstance(item, ast.Call) else []
        if len(args) != _DECORATORS.get(str(name), -1):
            names = "@vertex and @constraint(text)"
            raise module.fail(item, f"a vertex class may have {names}")
        for arg in args:
            if not (isinstance(arg, ast.Constant) and isinstance(arg.value, str)):
                raise module.fail(arg, "a constraint is a string such as elem(*a) != elem(*b)")
            yield arg


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
    """`ns::Class<float,4>` as ("ns::Class", ("float", "4")). Raises InstanceError."""
    name = name.strip()
    if "<" not in name:
        return name, ()
    head, _, rest = name.partition("<")
    if not rest.endswith(">"):
        raise InstanceError(f"the vertex name {name!r} has no closing >")
    return head.strip(), tuple(part.strip() for part in rest[:-1].split(","))
