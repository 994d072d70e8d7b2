"""Codelets by name: instances, their facts, and libraries of sources."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
import threading
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.codelets.codelet_ir import LAYOUT_BYTES, CodeletIR, Field, walk_stmts
from poplar_py.codelets.cycle_tables import TABLES, TILE_NAMES
from poplar_py.codelets.cycles import IssueModel
from poplar_py.codelets.diskcache import cache_folder, read_entry, source_version, write_entry
from poplar_py.codelets.errors import BUILTIN, CodeletError
from poplar_py.codelets.pack import Packed, pack, unpack
from poplar_py.codelets.rows import RowLayout, row_layout
from poplar_py.diagnostics import DuplicateName, FileError, UnknownName
from poplar_py.files import read_bytes

if TYPE_CHECKING:
    from poplar_py.codelets.source import ClassTemplate, SourceModule

__all__ = ["Codelet", "CodeletLibrary", "get", "register_maker"]

Array = np.ndarray[Any, Any]
_MAKERS: dict[str, Callable[[str], Codelet]] = {}
_MAKER_HOMES = {"expr::Map": "poplar_py.codelets.expr"}
"""Modules that register makers; imported when such a name is asked for."""


def _front(module: str) -> Any:
    """A module of the front end, which a program of cached codelets never needs."""
    return import_module(f"poplar_py.codelets.{module}")


def register_maker(prefix: str, make: Callable[[str], Codelet]) -> None:
    """Names `prefix<...>` are built by `make(name)` instead of from a source."""
    _MAKERS[prefix] = make


class Codelet:
    """One codelet instance: fields, IR and what follows from them. Compare by `digest`.

    `builtin` codelets run unchecked code by default, user codelets checked code.
    """

    def __init__(self, ir: CodeletIR | Packed, builtin: bool = False) -> None:
        self._source = ir
        self.builtin = builtin
        self.name: str = ir.name
        self.fields: tuple[Field, ...] = ir.fields
        self.multi: bool = ir.multi
        self.supervisor: bool = ir.supervisor

    @cached_property
    def ir(self) -> CodeletIR:
        return self._source.ir() if isinstance(self._source, Packed) else self._source

    @property
    def digest(self) -> str:
        return self._source.digest

    def field(self, name: str) -> Field:
        found = next((f for f in self.fields if f.name == name), None)
        if found is None:
            names = ", ".join(f.name for f in self.fields)
            raise UnknownName(f"{self.name} has no field {name!r}", remedy=f"fields: {names}")
        return found

    @cached_property
    def model(self) -> IssueModel:
        """The issue model behind `cycles` and `code_bytes`."""
        source = self._source
        return source.model() if isinstance(source, Packed) else IssueModel(source)

    @property
    def code_bytes(self) -> int:
        """Bytes of machine code on a tile, shared by all its vertices there."""
        return self.model.code_bytes

    @cached_property
    def looks_ahead(self) -> bool:
        """Whether it has hints that name the vertex some rows on in its table."""
        return any(s.op == "prefetch" and len(s.args) == 3 for s in walk_stmts(self.ir.body))

    @property
    def whole_tile(self) -> bool:
        """Whether `cycles` are tile cycles (all workers at once), not those of one worker."""
        alone = self.multi or self.supervisor
        return alone or self.name.partition("<")[0] in TILE_NAMES

    @property
    def state_bytes(self) -> int:
        """Bytes of one vertex's state: pointers, sizes and scalars, in declaration order, aligned.

        The lists of rank-2 fields come on top: see `state_bytes_of`.
        """
        return _state_bytes(self.fields)

    def state_bytes_of(self, sizes: dict[str, Array]) -> Array:
        """`state_bytes` plus the pointer lists of rank-2 fields, per vertex."""
        total: Any = self.state_bytes
        for f in self.fields:
            if f.rank == 2:
                total = total + np.asarray(sizes[f.name]) * _pointer_bytes(f.inner_layout, f.align)
        return np.asarray(total, np.int64)

    def cycles(self, sizes: dict[str, Array], state: dict[str, Array]) -> Array:
        """Cycles per vertex, int64[n]: worker cycles, or tile cycles where `whole_tile` holds.

        sizes[f]: elements of a rank-1 field, sub-edges of a rank-2 field, whose total of elements
        is sizes[f + "[]"]; state: the values of state scalars. A published or registered figure of
        `cycle_tables` goes before the issue model.
        """
        table = TABLES.get(self.name.partition("<")[0])
        if table is not None:
            return np.asarray(table(self, sizes, state), np.int64)
        return self.model.cycles(sizes, state)

    def row_layout(self, wide: bool = False) -> RowLayout:
        return row_layout(self.fields, wide)

    def __repr__(self) -> str:
        return f"<Codelet {self.name}>"


def _pointer_bytes(layout: str, align: int) -> int:
    """COMPACT_PTR is SCALED_PTR128 where the alignment allows it, else ONE_PTR."""
    scaled = layout == "compact_ptr" and align >= 16
    return LAYOUT_BYTES["scaled_ptr128" if scaled else layout]


def _state_bytes(fields: tuple[Field, ...]) -> int:
    total, worst = 0, 4
    for f in fields:
        if f.kind == "state" and f.rank == 0:
            size = align = f.dtype.size
        else:
            size = 4 if f.rank == 0 else _pointer_bytes(f.layout, f.align)
            align = min(size, 4)
        total = -(-total // align) * align + size
        worst = max(worst, align)
    return -(-total // worst) * worst


def _cached(source: str, name: str, builtin: bool, make: Callable[[], CodeletIR]) -> Codelet:
    """A codelet from the cache of lowered ones, else made and put there.

    `source` is all the text it comes from; `name` is how it was asked for.
    """
    parts = (source_version("poplar_py.codelets"), sys.version, source, name)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = cache_folder() / "codelets" / f"{key}.bin"
    data = read_entry(path)
    if data is not None:
        return Codelet(unpack(data), builtin)
    codelet = Codelet(make(), builtin)
    write_entry(path, pack(codelet.ir, codelet.model))
    return codelet


class CodeletLibrary:
    """Codelets a graph may use: the built-ins and the sources given to it.

    `get` caches instances by canonical name, so that equal names give the same object.
    """

    def __init__(self) -> None:
        self._modules: list[SourceModule] = []
        self._templates: dict[str, ClassTemplate] = {}
        self._instances: dict[str, Codelet] = {}

    def add_source(self, text: str, file: str = "<codelets>") -> tuple[str, ...]:
        """Add a source text; returns the full names of its classes."""
        return self._add(_front("source").parse_source(text, file))

    def add_file(self, path: str | Path) -> tuple[str, ...]:
        """Add a source file. Raises FileError when it cannot be read."""
        return self.add_source(_text(path), str(path))

    def add_class(self, cls: type) -> str:
        """Add a class defined in Python, with the module-level names of its file.

        Returns its full name. The file is read, not run.
        """
        try:
            file = inspect.getsourcefile(cls) or ""
            lines, start = inspect.getsourcelines(cls)
        except (OSError, TypeError):
            file, lines, start = "", [], 0
        if not lines:
            raise CodeletError(
                f"the source of {cls.__name__} is not available", remedy="use add_source"
            )
        text = _text(file) if Path(file).is_file() else ""
        module = _front("source").parse_source(_codelet_part(text, "".join(lines), start), file)
        module.classes = {cls.__name__: module.classes[cls.__name__]}
        return self._add(module)[0]

    def _add(self, module: SourceModule) -> tuple[str, ...]:
        for template in module.classes.values():
            if template.full_name in self._templates:
                raise DuplicateName(f"codelet {template.full_name} exists already", template.loc)
        for template in module.classes.values():
            self._templates[template.full_name] = template
        self._modules.append(module)
        return tuple(t.full_name for t in module.classes.values())

    def add_codelet(self, codelet: Codelet) -> None:
        """Add an instance made elsewhere (an expression codelet, a parsed dump)."""
        self._instances[codelet.name] = codelet

    @property
    def templates(self) -> dict[str, ClassTemplate]:
        return dict(self._templates)

    def get(self, name: str) -> Codelet:
        """The codelet of a name such as `popops::ScaledAdd<half>`. Raises UnknownName."""
        if name in self._instances:
            return self._instances[name]
        template = self._templates.get(name.partition("<")[0].strip())
        if template is None:
            codelet = self._built_in(name)
        else:
            codelet = self._instance(template, _front("source").parse_instance(name)[1])
        self._instances[name] = codelet
        return codelet

    def _built_in(self, name: str) -> Codelet:
        try:
            return _builtins().get(name)
        except UnknownName as error:
            near = _front("hints").near_names(name.partition("<")[0].strip(), self._templates)
            if near:
                error.remedy = f"names like it: {', '.join(near)}"
            raise

    def _instance(self, template: ClassTemplate, args: tuple[str, ...]) -> Codelet:
        bindings = _front("instantiate").bind_parameters(template, args)
        name = _front("instantiate").instance_name(template, bindings)
        if name not in self._instances:
            source = f"{template.module.file}\0{template.module.digest}"
            self._instances[name] = _cached(
                source, name, False, lambda: _front("instantiate").instantiate(template, bindings)
            )
        return self._instances[name]


def _text(path: str | Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is no UTF-8 text: {error.reason}") from None


def _codelet_part(text: str, class_text: str, start: int) -> str:
    """A Python file reduced to what a codelet source may hold, lines kept in place.

    The class stands at line `start`, at the margin even if it is defined inside a function.
    """
    lines = text.splitlines()
    for node in ast.parse(text).body:
        holds_class = node.lineno <= start <= (node.end_lineno or node.lineno)
        if holds_class or not _belongs(node):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            last = node.end_lineno or node.lineno
            lines[first - 1 : last] = [""] * (last - first + 1)
    own = textwrap.dedent(class_text).splitlines()
    lines += [""] * (start - 1 + len(own) - len(lines))
    lines[start - 1 : start - 1 + len(own)] = own
    return "\n".join(lines)


def _belongs(node: ast.stmt) -> bool:
    """Constants, functions and enums; vertex classes come on their own."""
    if isinstance(node, ast.ClassDef):
        return _front("source").is_enum_class(node)
    if isinstance(node, ast.Assign):
        return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and node.value is not None
    return isinstance(node, (ast.FunctionDef, ast.Import, ast.ImportFrom))


class _Builtins:
    """Codelets of codelets/builtin/*.py: `ns::Class` stands in a file `ns.py` or `ns_*.py`.

    Functions of a file without classes may be called in all files of the namespace.

    A namespace is parsed when an instance is asked that no cache has.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # graphs may be built in several threads
        self.templates: dict[str, ClassTemplate] = {}
        self.instances: dict[str, Codelet] = {}
        self.sources: dict[str, dict[str, str]] = {}
        self.parsed: set[str] = set()

    def texts(self, prefix: str) -> dict[str, str]:
        """The source texts of a namespace by file name."""
        if prefix not in self.sources:
            found: dict[str, str] = {}
            for entry in resources.files("poplar_py.codelets.builtin").iterdir():
                stem = entry.name.removesuffix(".py")
                if stem != entry.name and (stem == prefix or stem.startswith(prefix + "_")):
                    found[entry.name] = entry.read_text(encoding="utf-8")
            self.sources[prefix] = dict(sorted(found.items()))
        return self.sources[prefix]

    def parse(self, prefix: str) -> None:
        """Parse a namespace."""
        if prefix in self.parsed:
            return
        self.parsed.add(prefix)
        parse = _front("source").parse_source
        modules = [parse(text, BUILTIN + file) for file, text in self.texts(prefix).items()]
        shared = {name: m for m in modules if not m.classes for name in m.functions}
        for module in modules:
            module.shared = shared
        for template in (t for m in modules for t in m.classes.values()):
            if template.full_name in self.templates:
                raise DuplicateName(f"codelet {template.full_name}", template.loc)
            self.templates[template.full_name] = template

    def get(self, name: str) -> Codelet:
        with self.lock:
            found = self.instances.get(name)
            return self._make(name) if found is None else found

    def _make(self, name: str) -> Codelet:
        head = name.partition("<")[0]
        if head in _MAKER_HOMES:
            import_module(_MAKER_HOMES[head])
        made = _MAKERS[head](name) if head in _MAKERS else self._from_source(name)
        found = self.instances.setdefault(made.name, made)
        self.instances[name] = found
        return found

    def _from_source(self, name: str) -> Codelet:
        prefix = name.partition("<")[0].split("::")[0].strip()
        texts = repr(self.texts(prefix)) if "::" in name else ""
        return _cached(texts, name, True, lambda: self._instance(prefix, name))

    def _instance(self, prefix: str, name: str) -> CodeletIR:
        head, args = _front("source").parse_instance(name)
        if "::" in head:
            self.parse(prefix)
        template = self.templates.get(head)
        if template is None:
            raise UnknownName(
                f"there is no codelet {head!r}",
                remedy="add its source with add_codelets, or check the namespace",
            )
        return _front("instantiate").instantiate(
            template, _front("instantiate").bind_parameters(template, args)
        )


@cache
def _builtins() -> _Builtins:
    return _Builtins()


def get(name: str) -> Codelet:
    """A built-in codelet, for example `get("popops::ScaledAdd<float>")`."""
    return _builtins().get(name)
