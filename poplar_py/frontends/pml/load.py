"""Loading `.pml` files: imports, cycles, the choice of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from poplar_py.diagnostics import (
    DuplicateName,
    FileError,
    Location,
    ParseError,
    PoplarPyError,
    UnknownName,
)
from poplar_py.frontends.pml import ast
from poplar_py.frontends.pml.elaborate import declared_types, elaborate
from poplar_py.frontends.pml.weights import inside
from poplar_py.ir.core import Module
from poplar_py.ir.resources import read_text
from poplar_py.types import TensorType

__all__ = ["PmlSource", "load_pml", "parse_pml", "read_pml"]

MAX_FILES = 1000


@dataclass(frozen=True)
class PmlSource:
    """A parsed model that can be built again and again, for other sizes of its free dims."""

    model: ast.Model
    defs: Mapping[str, ast.Def]

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Declared types of the inputs. Raises what building would raise about them."""
        return declared_types(self.model)[0]

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Declared types of the outputs, but for those with dims computed from free ones."""
        return declared_types(self.model)[1]

    def build(self, dims: Mapping[str, int] | None = None) -> Module:
        """The module; `dims` gives sizes for free dims."""
        return elaborate(self.model, self.defs, dims or {})


def load_pml(path: str | Path, *, model: str = "", dims: Mapping[str, int] | None = None) -> Module:
    """The module of a `.pml` file.

    `model` picks one of several models. `dims` gives sizes for free dims; without it they stay free
    and infer-shapes binds them, but a model that computes with them, or whose weights have them,
    needs them here.
    """
    return parse_pml(read_text(path), str(path), model=model, dims=dims)


def parse_pml(
    text: str, file: str = "<pml>", *, model: str = "", dims: Mapping[str, int] | None = None
) -> Module:
    """As load_pml, for a text; imports and weights are looked for in the folder of `file`."""
    return read_pml(text, file, model=model).build(dims)


def read_pml(text: str, file: str = "<pml>", *, model: str = "") -> PmlSource:
    """Parse a text and what it imports, and pick a model; nothing is built yet."""
    session = _Session(Path(file).parent)
    main = session.file(text, file)
    return PmlSource(_choose(main, model), session.defs)


def _choose(file: ast.File, name: str) -> ast.Model:
    if not file.models:
        raise ParseError("there is no model in the file", Location(file.path, 1, 1))
    names = ", ".join(m.name for m in file.models)
    if not name:
        if len(file.models) > 1:
            raise UnknownName(
                f"the file has several models: {names}", file.models[1].loc, "say which one"
            )
        return file.models[0]
    for one in file.models:
        if one.name == name:
            return one
    raise UnknownName(
        f"there is no model {name}", Location(file.path, 1, 1), f"the models are {names}"
    )


@dataclass
class _Session:
    """The files read so far, and the functions in them by name."""

    root: Path
    defs: dict[str, ast.Def] = field(default_factory=dict[str, ast.Def])
    done: set[Path] = field(default_factory=set[Path])
    open: list[Path] = field(default_factory=list[Path])

    def file(self, text: str, path: str) -> ast.File:
        """Parse a text and what it imports; its functions and theirs are entered."""
        from poplar_py.frontends.pml.parse import parse_text  # lark: only where text is read

        tree = parse_text(text, path)
        here = Path(path).resolve()
        self.open.append(here)
        for item in tree.imports:
            self._import(item, Path(path).parent)
        self.open.pop()
        self.done.add(here)
        models: dict[str, ast.Model] = {}
        for definition in tree.defs:
            self._enter(definition)
        for model in tree.models:
            if model.name in models:
                raise DuplicateName(f"there are two models {model.name}", model.loc)
            models[model.name] = model
        return tree

    def _import(self, item: ast.Import, folder: Path) -> None:
        try:
            inside(self.root, str((folder / item.path).relative_to(self.root)))
        except (FileError, ValueError) as error:
            away = f"{item.path!r} lies outside the folder of the model"
            message = error.message if isinstance(error, PoplarPyError) else away
            raise FileError(message, item.loc, "import files of the model's folder") from None
        path = (folder / item.path).resolve()
        if path in self.open:
            chain = " -> ".join(p.name for p in [*self.open[self.open.index(path) :], path])
            raise ParseError(f"files import each other: {chain}", item.loc)
        if path in self.done:
            return
        if len(self.done) + len(self.open) > MAX_FILES:
            raise ParseError(f"more than {MAX_FILES} files", item.loc)
        try:
            text = read_text(path)
        except FileError as error:
            raise error.at(item.loc) from None
        self.file(text, str(folder / item.path))

    def _enter(self, definition: ast.Def) -> None:
        known = self.defs.get(definition.name)
        if known is not None:
            raise DuplicateName(
                f"there are two functions {definition.name}",
                definition.loc,
                remedy=f"the other one is at {known.loc.short}",
            )
        self.defs[definition.name] = definition
