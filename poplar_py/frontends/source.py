"""A model as it came from a file, before anything is known about shapes.

`load_model` reads a path, bytes or an `onnx.ModelProto`; `LoadedModel.specialise` gives the module
for known shapes and compile-time values. ONNX models are imported anew for each specialisation,
since shapes and constants steer the import; text models are copied and bound by `infer-shapes`.

A start that finds its executable in the cache needs none of the frontends: they are imported where
they are used, and an ONNX file of which an executable lies in the cache is not decoded before
somebody asks for its contents.
"""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.diagnostics import (
    FileError,
    Location,
    OptionError,
    PoplarPyError,
    UnsupportedOp,
)
from poplar_py.driver.cache import compiled_before
from poplar_py.driver.signature import Array, as_array
from poplar_py.files import read_bytes
from poplar_py.types import TensorType

if TYPE_CHECKING:
    import onnx

    from poplar_py.frontends.onnx import model as onnx_model
    from poplar_py.ir import Module
    from poplar_py.target import Target

__all__ = ["FORMATS", "LoadedModel", "OnnxModel", "Specialisation", "load_model"]

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
    def target(self) -> Target | None:
        """The machine that the model was made for; None where it is still free."""
        return None

    @property
    @abstractmethod
    def inputs(self) -> dict[str, TensorType]:
        """Declared inputs; free dims are names."""

    @property
    @abstractmethod
    def outputs(self) -> dict[str, TensorType]:
        """Declared outputs whose type the file tells."""

    def dim_names(self) -> tuple[str, ...]:
        """Free dims that may be given a size."""
        types = (*self.inputs.values(), *self.outputs.values())
        return tuple(dict.fromkeys(d for type in types for d in type.free_dims))

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
        return {name: as_array(value, name) for name, value in inputs.items()}

    def pack(self, module: Any, outputs: Mapping[str, Array]) -> dict[str, Any]:
        """The module's outputs as the model declares them."""
        del module
        return dict(outputs)


class OnnxModel(LoadedModel):
    """An ONNX model; its nodes are imported by `specialise`."""

    def __init__(self, origin: Path | bytes | onnx.ModelProto) -> None:
        """Raises what decoding raises, unless the same file was compiled before: then it is sound
        and is decoded on first use."""
        self._origin = origin
        self._data: bytes | None = None
        self._fingerprint: bytes | None = None
        if isinstance(origin, Path):
            self._data = read_bytes(origin)
            self._fingerprint = _digest(str(origin), self._data)
        if self._fingerprint is None or not compiled_before(self._fingerprint):
            self._decode()
        self.name = origin.stem if isinstance(origin, Path) else self.model.name

    @cached_property
    def model(self) -> onnx_model.OnnxModel:
        """The decoded model. Importing onnx and the import rules takes a quarter of a second."""
        from poplar_py.frontends.onnx import model as onnx_model

        data, self._data = self._data, None
        origin: Any = self._origin
        return onnx_model.open_onnx(origin, data)

    def _decode(self) -> None:
        if self.model.has_external_data():
            self._fingerprint = None
        elif self._fingerprint is None:
            proto = self.model.proto
            self._fingerprint = _digest(
                self.model.file, proto.SerializeToString(deterministic=True)
            )

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
        return self._fingerprint

    def specialise(
        self, dims: Mapping[str, int], shapes: Mapping[str, Any], consts: Values, values: Values
    ) -> Specialisation:
        from poplar_py.ir import Module

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
        # Outputs that the device counts were cut by the engine: their counts are not among them.
        everything = np.array(np.iinfo(np.int64).max)
        flat = [outputs.get(name, everything) for name in names]
        packed = onnx_model.pack_outputs(module, flat)
        return dict(zip(self.model.outputs, packed, strict=True))


def _digest(file: str, data: bytes) -> bytes:
    """Of a model's bytes and of the name that its locations carry."""
    digest = hashlib.sha256(file.encode() + b"|")
    digest.update(data)
    return digest.digest()


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
    if isinstance(origin, bytes):
        return _from_bytes(origin, _known_format(format, "the bytes"), "<bytes>", dims or {})
    if isinstance(origin, (str, Path)):
        return _from_path(origin, format, dims or {})
    return _from_object(origin)


def _from_object(origin: onnx.ModelProto | Module) -> LoadedModel:
    from poplar_py.frontends.modules import ModuleModel
    from poplar_py.ir import Module

    if isinstance(origin, Module):
        return ModuleModel(origin)
    if not hasattr(origin, "SerializeToString"):
        raise OptionError(
            f"{type(origin).__name__} is no model",
            remedy="give a path, bytes, an onnx.ModelProto or an ir.Module",
        )
    return OnnxModel(origin)


def _from_pml(text: str, file: str, dims: Mapping[str, int]) -> LoadedModel:
    from poplar_py.frontends import pml
    from poplar_py.frontends.modules import PmlModel  # built on this module

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
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise FileError(
            f"{path} is no model: its name {ending}",
            Location(str(path), 0, 0),
            remedy="name it .onnx, .pml or .pir, or give --format",
        )
    if kind == "onnx":
        return OnnxModel(path)
    if kind == "pir":
        from poplar_py.frontends.optimise import read_pir

        return _from_pir(path.stem, lambda: read_pir(str(path)))
    from poplar_py.ir.resources import read_text

    return _from_pml(read_text(path), str(path), dims)


def _from_pir(name: str, read: Callable[[], Any]) -> LoadedModel:
    """A module of either level; `read` gives a new one each time."""
    from poplar_py.frontends.modules import ModuleModel
    from poplar_py.ir import Module

    module = read()
    if isinstance(module, Module):
        return ModuleModel(module)
    from poplar_py.frontends.tiles import TileModel  # built on this module

    return TileModel(name, module, read)


def _from_bytes(data: bytes, format: str, name: str, dims: Mapping[str, int]) -> LoadedModel:
    if format == "onnx":
        return OnnxModel(data)
    if format == "pir":
        from poplar_py.frontends.optimise import parse_pir

        return _from_pir(name, lambda: parse_pir(data, name, Path("resources")))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 text: {error}", Location(name, 0, 0)) from error
    return _from_pml(text, name, dims)
