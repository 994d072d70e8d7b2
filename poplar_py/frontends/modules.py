"""Models that are modules: `.pml` texts, `.pir` of the model level, modules built in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from poplar_py.diagnostics import InputError
from poplar_py.driver.signature import Array
from poplar_py.frontends import pml
from poplar_py.frontends.source import LoadedModel, Specialisation, Values
from poplar_py.ir import Graph, Module, Value
from poplar_py.ir.rewrite import clone_module, replace_values
from poplar_py.ops.core import Constant
from poplar_py.passes.infer_shapes import bind_shapes
from poplar_py.types import TensorType

__all__ = ["ModuleModel", "PmlModel", "make_constant"]


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
