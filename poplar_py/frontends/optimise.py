"""`poplar-py opt`: passes on a module that was read from `.pir` text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import poplar_py.ops
from poplar_py import files, ir
from poplar_py.diagnostics import FileError, Location
from poplar_py.driver.compile import run_passes
from poplar_py.driver.options import CompileOptions
from poplar_py.driver.signature import Array
from poplar_py.ir.resources import read_resource, save_resources
from poplar_py.passes import module_text, parse_pipeline
from poplar_py.passes.tile_module import TileModule
from poplar_py.poplar.tile_parse import is_tile_text, parse_tile_module
from poplar_py.types import TensorType

__all__ = ["Optimised", "optimise", "parse_pir", "read_pir"]

assert poplar_py.ops  # the parser finds ops by name


@dataclass(frozen=True)
class Optimised:
    """What the passes left: a module of either level."""

    module: Any

    def text(self, inline_resources: bool = False) -> str:
        """The `.pir` text."""
        return module_text(self.module, inline_resources=inline_resources)

    def save(self, path: str | Path, inline_resources: bool = False) -> None:
        """Writes the text, and its large arrays into `resources/` beside it unless inline."""
        found: dict[str, Array] = {}
        text = module_text(self.module, inline_resources=inline_resources, resources=found)
        if found and not inline_resources:
            save_resources(Path(path).parent / "resources", found)
        files.write_text(path, text)


def optimise(module: Any, options: CompileOptions) -> Optimised:
    """Verifies a module of either level and runs the pipeline of the options, if only the empty
    one."""
    passes = parse_pipeline(options.pipeline)
    return Optimised(run_passes(module, passes, options, options.machine()))


def read_pir(path: str) -> Any:
    """The module of a `.pir` file of either level; arrays come from `resources/` beside it."""
    data = sys.stdin.buffer.read() if path == "-" else files.read_bytes(path)
    folder = Path() if path == "-" else Path(path).parent
    return parse_pir(data, "<stdin>" if path == "-" else path, folder / "resources")


def parse_pir(data: bytes, name: str, folder: Path) -> Any:
    """The module of a `.pir` text of either level, read from `name`; arrays lie in `folder`.

    Raises FileError or ParseError with the place of the fault.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 text: {error}", Location(name, 0, 0)) from error

    def lookup(key: str, type: TensorType) -> Array:
        return read_resource(folder, key, type)

    if is_tile_text(text):
        parsed = parse_tile_module(text, name, lookup)
        return TileModule(parsed.graph, parsed.programs, parsed.names)
    return ir.parse_module(text, name, resources=lookup)
