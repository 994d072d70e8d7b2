"""A model as it came from a file, before anything is known about shapes.

`load_model` reads a path, bytes or an `onnx.ModelProto`; `LoadedModel.specialise` gives the module
for known shapes and compile-time values. ONNX models are imported anew for each specialisation,
since shapes and constants steer the import; text models are copied and bound by `infer-shapes`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poplar_py import files
from poplar_py.diagnostics import FileError, InputError, Location, OptionError
from poplar_py.driver.signature import Array
from poplar_py.ir import Module, Value
from poplar_py.types import TensorType

if TYPE_CHECKING:
    import onnx

__all__ = ["FORMATS", "LoadedModel", "ModuleModel", "OnnxModel", "Specialisation", "load_model"]

FORMATS = ("onnx", "pml", "pir")


@dataclass(frozen=True)
class Specialisation:
    """A module for one set of shapes and compile-time values.

    `dims` and `shapes` are what `infer-shapes` still has to bind. `declared` are the inputs as the
    model declares them, without those that became constants.
    """

    module: Module
    dims: dict[str, int]
    shapes: dict[str, tuple[int, ...]]


class LoadedModel(ABC):
    """A model that was read but not yet compiled for given shapes."""

    name: str

    @property
    @abstractmethod
    def inputs(self) -> dict[str, TensorType]:
        """Declared inputs; free dims are names."""

    @property
    @abstractmethod
    def outputs(self) -> dict[str, TensorType | None]:
        """Declared outputs; None where the file does not tell the type."""

    @abstractmethod
    def specialise(
        self,
        dims: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        consts: Mapping[str, Array],
    ) -> Specialisation:
        """The module for these sizes and values of inputs."""


class ModuleModel(LoadedModel):
    """A model that is a module already: `.pml`, `.pir`, or built in Python."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.name = module.name

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {value.name: value.type for value in self.module.main.inputs}

    @property
    def outputs(self) -> dict[str, TensorType | None]:
        graph = self.module.main
        return {graph.output_name(i): value.type for i, value in enumerate(graph.outputs)}

    def specialise(
        self,
        dims: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        consts: Mapping[str, Array],
    ) -> Specialisation:
        from poplar_py.ir.rewrite import clone_module

        module = clone_module(self.module)
        for name, array in consts.items():
            make_constant(module, name, array)
        kept = {n: tuple(s) for n, s in shapes.items() if n not in consts}
        return Specialisation(module, dict(dims), kept)


def make_constant(module: Module, name: str, array: Array) -> None:
    """Turns input `name` of the main graph into a constant of that value.

    Raises InputError for an unknown input or a value of another shape or kind.
    """
    from poplar_py.ir.rewrite import replace_values
    from poplar_py.ops.core import Constant

    graph = module.main
    value = next((v for v in graph.inputs if v.name == name), None)
    if value is None:
        known = ", ".join(v.name for v in graph.inputs)
        raise InputError(f"unknown input {name!r}", remedy=f"inputs are: {known}")
    if len(array.shape) != value.rank:
        raise InputError(f"--const {name}: the value has {array.ndim} axes, not {value.rank}")
    constant = Constant(array.astype(value.dtype.numpy))
    constant.result.name = name
    graph.inputs.remove(value)
    for index, other in enumerate(graph.inputs):
        other.index = index
    graph.ops.insert(0, constant)
    mapping: dict[Value, Value] = {value: constant.result}
    replace_values(graph, mapping)


class OnnxModel(LoadedModel):
    """An ONNX model; its nodes are imported by `specialise`."""

    def __init__(self, proto: onnx.ModelProto, path: Path | None) -> None:
        from poplar_py.frontends.onnx import declared_inputs, declared_outputs

        self.proto = proto
        self.path = path
        self.name = path.stem if path is not None else proto.graph.name or "model"
        self._inputs: dict[str, TensorType] = declared_inputs(proto)
        self._outputs: dict[str, TensorType | None] = declared_outputs(proto)

    @property
    def inputs(self) -> dict[str, TensorType]:
        return self._inputs

    @property
    def outputs(self) -> dict[str, TensorType | None]:
        return self._outputs

    def specialise(
        self,
        dims: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        consts: Mapping[str, Array],
    ) -> Specialisation:
        from poplar_py.frontends.onnx import load_onnx

        origin: Any = self.proto if self.path is None else self.path
        module = load_onnx(origin, dims=dict(dims), shapes=dict(shapes), consts=dict(consts))
        return Specialisation(module, {}, {})


def load_model(
    origin: str | Path | bytes | onnx.ModelProto | Module, format: str | None = None
) -> LoadedModel:
    """Reads a model: a path, `-` for standard input, bytes, an `onnx.ModelProto` or a module.

    `format` is onnx, pml or pir; it is taken from the file's name unless given, and needed for
    bytes and standard input. Raises FileError or ParseError with the place of the fault.
    """
    if isinstance(origin, Module):
        return ModuleModel(origin)
    if isinstance(origin, bytes):
        return _from_bytes(origin, _known_format(format, "the bytes"), "<bytes>")
    if isinstance(origin, (str, Path)):
        return _from_path(origin, format)
    return OnnxModel(origin, None)


def _known_format(format: str | None, what: str) -> str:
    if format is None:
        raise OptionError(f"the format of {what} is not known", remedy="give --format onnx|pml|pir")
    if format not in FORMATS:
        raise OptionError(f"{what} cannot be read as {format}", remedy="use onnx, pml or pir")
    return format


def _from_path(origin: str | Path, format: str | None) -> LoadedModel:
    if origin == "-":
        return _from_bytes(
            sys.stdin.buffer.read(), _known_format(format, "standard input"), "<stdin>"
        )
    path = Path(origin)
    kind = format or path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise FileError(
            f"{path} is no model: its name ends in {path.suffix or 'no suffix'!r}",
            Location(str(path), 0, 0),
            remedy="name it .onnx, .pml or .pir, or give --format",
        )
    if kind == "onnx":
        return OnnxModel(parse_onnx(files.read_bytes(path), str(path)), path)
    if kind == "pir":
        from poplar_py.ir.resources import load_pir

        return ModuleModel(load_pir(path))
    from poplar_py.frontends.pml import load_pml

    return ModuleModel(load_pml(path))


def _from_bytes(data: bytes, format: str, name: str) -> LoadedModel:
    if format == "onnx":
        return OnnxModel(parse_onnx(data, name), None)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 text: {error}", Location(name, 0, 0)) from error
    if format == "pir":
        from poplar_py import ir

        return ModuleModel(ir.parse_module(text, name))
    from poplar_py.frontends.pml import parse_pml

    return ModuleModel(parse_pml(text, name))


def parse_onnx(data: bytes, name: str) -> onnx.ModelProto:
    """Decodes a protobuf. Raises FileError when it is truncated or no ONNX model."""
    from poplar_py.frontends.onnx import parse_proto

    return parse_proto(data, name)
