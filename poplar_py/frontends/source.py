"""A model as it came from a file, before anything is known about shapes.

`load_model` reads a path, bytes or an `onnx.ModelProto`; `LoadedModel.specialise` gives the module
for known shapes and compile-time values. ONNX models are imported anew for each specialisation,
since shapes and constants steer the import; text models are copied and bound by `infer-shapes`.
"""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.diagnostics import (
    FileError,
    InputError,
    Location,
    OptionError,
    PoplarPyError,
    UnsupportedOp,
)
from poplar_py.driver.signature import Array
from poplar_py.ir import Graph, Module, Value
from poplar_py.ir.resources import read_text
from poplar_py.ir.rewrite import clone_module, replace_values
from poplar_py.ops.core import Constant
from poplar_py.passes.infer_shapes import bind_shapes
from poplar_py.types import TensorType

if TYPE_CHECKING:
    import onnx

    from poplar_py.frontends import pml
    from poplar_py.frontends.onnx import model as onnx_model

__all__ = [
    "FORMATS",
    "LoadedModel",
    "ModuleModel",
    "OnnxModel",
    "PmlModel",
    "Specialisation",
    "load_model",
]

FORMATS = ("onnx", "pml", "pir")


Values = Mapping[str, Any]
"""Inputs by name: an array, for ONNX also a list of arrays (sequence) or None (absent)."""


@dataclass(frozen=True)
class Specialisation:
    """A module for one set of shapes and compile-time values.

    `dims` and `shapes` are what `infer-shapes` still has to bind. `consts` are the inputs whose
    values the module was made for; they are still inputs, but nothing reads them.
    """

    module: Module
    dims: dict[str, int] = field(default_factory=dict[str, int])
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    consts: dict[str, Array] = field(default_factory=dict[str, Array])


class LoadedModel(ABC):
    """A model that was read but not yet compiled for given shapes."""

    name: str

    @property
    @abstractmethod
    def inputs(self) -> dict[str, TensorType]:
        """Declared inputs; free dims are names."""

    @property
    @abstractmethod
    def outputs(self) -> dict[str, TensorType]:
        """Declared outputs whose type the file tells."""

    @abstractmethod
    def specialise(
        self, dims: Mapping[str, int], shapes: Mapping[str, Any], consts: Values, values: Values
    ) -> Specialisation:
        """The module for these sizes. An input that has to be known at compile time is taken from
        `consts`, else from `values`. Raises UnboundDims or UnsupportedOp listing what is missing.
        """

    def fingerprint(self) -> bytes | None:
        """A digest of everything the model consists of; None when that is not known."""
        return None

    def flatten(self, inputs: Values) -> dict[str, Array]:
        """The inputs as plain arrays by the names of the module's inputs."""
        return {name: np.asarray(value) for name, value in inputs.items()}

    def pack(self, module: Any, outputs: Mapping[str, Array]) -> dict[str, Any]:
        """The module's outputs as the model declares them."""
        del module
        return dict(outputs)


class ModuleModel(LoadedModel):
    """A model that is a module already: `.pml`, `.pir`, or built in Python."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.name = module.name

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {value.name: value.type for value in self.module.main.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        graph = self.module.main
        return {graph.output_name(i): value.type for i, value in enumerate(graph.outputs)}

    def specialise(
        self, dims: Mapping[str, int], shapes: Mapping[str, Any], consts: Values, values: Values
    ) -> Specialisation:
        del values
        module = clone_module(self.module)
        held = {name: make_constant(module, name, np.asarray(v)) for name, v in consts.items()}
        return Specialisation(module, dict(dims), dict(shapes), held)


class PmlModel(LoadedModel):
    """A `.pml` model; it is built by `specialise`, so that it may compute with its dims."""

    def __init__(self, source: pml.PmlSource, dims: Mapping[str, int]) -> None:
        self.source = source
        self.name = source.name
        self.dims = dict(dims)
        self._inputs = source.inputs

    @property
    def inputs(self) -> dict[str, TensorType]:
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, TensorType]:
        return self.source.outputs

    def specialise(
        self, dims: Mapping[str, int], shapes: Mapping[str, Any], consts: Values, values: Values
    ) -> Specialisation:
        del values
        graph = Graph(inputs=[Value(t, name) for name, t in self._inputs.items()])
        bound = bind_shapes(graph, shapes, dims)  # of one replica; those of the load are of all
        module = self.source.build({**self.dims, **bound})
        held = {name: make_constant(module, name, np.asarray(v)) for name, v in consts.items()}
        return Specialisation(module, consts=held)


def make_constant(module: Module, name: str, array: Array) -> Array:
    """Lets everything that reads input `name` of the main graph read this value instead.

    Returns the value in the input's type. Raises InputError for an unknown input or another rank.
    """
    graph = module.main
    value = next((v for v in graph.inputs if v.name == name), None)
    if value is None:
        known = ", ".join(v.name for v in graph.inputs)
        raise InputError(f"unknown input {name!r}", remedy=f"inputs are: {known}")
    if array.ndim != value.rank:
        raise InputError(f"the value of input {name!r} has {array.ndim} axes, not {value.rank}")
    constant = Constant(array.astype(value.dtype.numpy))
    replace_values(graph, {value: constant.result})
    graph.ops.insert(0, constant)
    return constant.value


class OnnxModel(LoadedModel):
    """An ONNX model; its nodes are imported by `specialise`."""

    def __init__(self, model: onnx_model.OnnxModel) -> None:
        self.model = model
        self.name = model.name if model.folder is None else Path(model.file).stem

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {spec.name: spec.type for spec in self.model.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        from poplar_py.frontends.onnx.boundary import input_spec

        found: dict[str, TensorType] = {}
        for info in self.model.proto.graph.output:
            with suppress(PoplarPyError):  # no tensor, or a strange one: the import tells
                spec = input_spec(info, self.model.file)
                if spec.kind == "tensor" and spec.known_rank:
                    found[info.name] = spec.type
        return found

    def fingerprint(self) -> bytes | None:
        proto = self.model.proto
        if any(t.external_data for t in proto.graph.initializer):
            return None
        data: bytes = proto.SerializeToString(deterministic=True)
        return hashlib.sha256(self.model.file.encode() + b"|" + data).digest()

    def specialise(
        self, dims: Mapping[str, int], shapes: Mapping[str, Any], consts: Values, values: Values
    ) -> Specialisation:
        fixed: dict[str, Any] = dict(consts)
        while True:
            needed = self._missing(dims, shapes, fixed, values)
            if isinstance(needed, Module):
                held = {name: np.asarray(value) for name, value in fixed.items()}
                return Specialisation(needed, consts=held)
            fixed.update({name: values[name] for name in needed})

    def _missing(
        self, dims: Mapping[str, int], shapes: Mapping[str, Any], consts: Values, values: Values
    ) -> Module | list[str]:
        """The module, or names of inputs it needs the values of. Raises when they are unknown."""
        try:
            return self.model.specialise(dims=dims, shapes=shapes, consts=consts)
        except UnsupportedOp:
            names = self.model.shape_inputs(dims=dims, shapes=shapes, consts=consts)
            if not names or any(name not in values for name in names):
                raise
            return list(names)

    def flatten(self, inputs: Values) -> dict[str, Array]:
        return self.model.flatten(inputs)

    def pack(self, module: Any, outputs: Mapping[str, Array]) -> dict[str, Any]:
        from poplar_py.frontends.onnx import model as onnx_model

        names = [module.main.output_name(i) for i in range(len(module.main.outputs))]
        packed = onnx_model.pack_outputs(module, [outputs[name] for name in names])
        return dict(zip(self.model.outputs, packed, strict=True))


def load_model(
    origin: str | Path | bytes | onnx.ModelProto | Module,
    format: str | None = None,
    dims: Mapping[str, int] | None = None,
) -> LoadedModel:
    """Reads a model: a path, `-` for standard input, bytes, an `onnx.ModelProto` or a module.

    `format` is onnx, pml or pir; it is taken from the file's name unless given, and needed for
    bytes and standard input. `dims` are sizes a `.pml` text computes with. Raises FileError or
    ParseError with the place of the fault.
    """
    if isinstance(origin, Module):
        return ModuleModel(origin)
    if isinstance(origin, bytes):
        return _from_bytes(origin, _known_format(format, "the bytes"), "<bytes>", dims or {})
    if isinstance(origin, (str, Path)):
        return _from_path(origin, format, dims or {})
    return _from_onnx(origin)


def _from_onnx(origin: Any) -> LoadedModel:
    """Only now are onnx and the import rules loaded: each frontend costs a tenth of a second."""
    from poplar_py.frontends.onnx import model as onnx_model

    return OnnxModel(onnx_model.open_onnx(origin))


def _from_pml(text: str, file: str, dims: Mapping[str, int]) -> LoadedModel:
    from poplar_py.frontends import pml

    return PmlModel(pml.read_pml(text, file), dims)


def _known_format(format: str | None, what: str) -> str:
    if format is None:
        raise OptionError(f"the format of {what} is not known", remedy="give --format onnx|pml|pir")
    if format not in FORMATS:
        raise OptionError(f"{what} cannot be read as {format}", remedy="use onnx, pml or pir")
    return format


def _from_path(origin: str | Path, format: str | None, dims: Mapping[str, int]) -> LoadedModel:
    if origin == "-":
        data = sys.stdin.buffer.read()
        return _from_bytes(data, _known_format(format, "standard input"), "<stdin>", dims)
    path = Path(origin)
    kind = format or path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise FileError(
            f"{path} is no model: its name ends in {path.suffix or 'no suffix'!r}",
            Location(str(path), 0, 0),
            remedy="name it .onnx, .pml or .pir, or give --format",
        )
    if kind == "onnx":
        return _from_onnx(path)
    if kind == "pir":
        from poplar_py.frontends.optimise import read_pir

        return _from_pir(path.stem, lambda: read_pir(str(path)))
    return _from_pml(read_text(path), str(path), dims)


def _from_pir(name: str, read: Callable[[], Any]) -> LoadedModel:
    """A module of either level; `read` gives a new one each time."""
    module = read()
    if isinstance(module, Module):
        return ModuleModel(module)
    from poplar_py.frontends.tiles import TileModel  # built on this module

    return TileModel(name, module, read)


def _from_bytes(data: bytes, format: str, name: str, dims: Mapping[str, int]) -> LoadedModel:
    if format == "onnx":
        return _from_onnx(data)
    if format == "pir":
        from poplar_py.frontends.optimise import parse_pir

        return _from_pir(name, lambda: parse_pir(data, name, Path("resources")))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 text: {error}", Location(name, 0, 0)) from error
    return _from_pml(text, name, dims)
