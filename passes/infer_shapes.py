"""infer-shapes: bind free dims and infer every type again.

    graph @main(%x: f32[batch,784]) ...            with --dim batch=64
      %0: f32[batch,10] = nn.matmul(%x, %w)
  becomes
    graph @main(%x: f32[64,784]) ...
      %0: f32[64,10] = nn.matmul(%x, %w)

Sizes come from `PassContext.dims` (by dim name) and `.shapes` (by input name). Free dims in tuple
attributes (`shape = ["batch", 10]`) are bound too. A free dim that stays is an error that lists
every one with the inputs it is found in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from poplar_py.diagnostics import (
    ErrorList,
    InputError,
    PoplarPyError,
    ShapeError,
    UnboundDims,
)
from poplar_py.ir.core import Graph, Module, Op, Value
from poplar_py.ir.rewrite import graphs_of
from poplar_py.passes.context import PassContext
from poplar_py.passes.registry import Pass, register
from poplar_py.types import TensorType

__all__ = ["InferShapes", "bind_dims", "bind_shapes"]


@register
@dataclass(frozen=True)
class InferShapes(Pass):
    """Bind free dims and infer every type again; `partial` lets dims stay free."""

    name: ClassVar[str] = "infer-shapes"
    partial: bool = False

    def run(self, module: Module, ctx: PassContext) -> bool:
        dims = bind_shapes(module.main, ctx.shapes, ctx.dims)
        changed = bind_dims(module, dims)
        if not self.partial:
            check_bound(module)
        return changed


def _bind_shape(value: Value, name: str, shape: tuple[int, ...], found: dict[str, int]) -> None:
    """Checks one input's shape and notes the sizes it gives free dims."""
    if len(shape) != value.rank:
        raise InputError(f"input {name} is {value.type}; the shape {_x(shape)} has another rank")
    for dim, size in zip(value.shape, shape, strict=True):
        known = found.setdefault(dim, size) if isinstance(dim, str) else dim
        if known != size:
            raise InputError(
                f"input {name} is {value.type}; the shape {_x(shape)} makes "
                f"{dim if isinstance(dim, str) else 'a dim'} {size}, but it is {known}"
            )


def bind_shapes(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int]
) -> dict[str, int]:
    """Sizes of free dims from given dims and input shapes.

    Raises InputError for an unknown input, a wrong rank or size, or two sizes for one dim.
    """
    found = dict(dims)
    inputs = {v.name: v for v in graph.inputs}
    for name, shape in shapes.items():
        value = inputs.get(name)
        if value is None:
            names = ", ".join(inputs) or "none"
            raise InputError(f"there is no input {name!r}", remedy=f"the inputs are {names}")
        _bind_shape(value, name, shape, found)
    for name, size in found.items():
        if size < 0:
            raise InputError(f"the size {size} of dim {name} is negative")
    return found


def _x(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"


def bind_dims(module: Module, dims: Mapping[str, int]) -> bool:
    """Put sizes for free dims in inputs and attributes, then infer all types, in text order."""
    changed = False
    errors = ErrorList()
    for graph in module.graphs.values():
        for value in [v for part in graphs_of(graph) for v in part.inputs]:
            changed |= _bind_type(value, dims)
        changed |= _infer_graph(graph, dims, errors)
    errors.raise_if_any()
    return changed


def _bind_type(value: Value, dims: Mapping[str, int]) -> bool:
    if value.type.is_static:
        return False
    shape = tuple(dims.get(d, d) if isinstance(d, str) else d for d in value.shape)
    changed = shape != value.shape
    value.type = value.type.with_shape(shape)
    return changed


def _infer_graph(graph: Graph, dims: Mapping[str, int], errors: ErrorList) -> bool:
    changed = False
    for op in graph.ops:
        for region in op.regions():
            changed |= _infer_graph(region, dims, errors)
        changed |= _bind_attributes(op, dims)
        try:
            changed |= op.reinfer()
        except PoplarPyError as error:
            errors.add(error)
            break  # what follows would only repeat the error
    return changed


def _bind_attributes(op: Op, dims: Mapping[str, int]) -> bool:
    """Free dims in attributes that are declared as shapes or types."""
    changed = False
    for spec in op.spec.attributes:
        held = getattr(op, spec.name)
        new = _bound(held, dims, spec.annotation)
        if new is not held:
            setattr(op, spec.name, new)
            changed = True
    return changed


def _bound(held: Any, dims: Mapping[str, int], annotation: str) -> Any:
    if isinstance(held, TensorType) and not held.is_static:
        return held.with_shape(_bound(held.shape, dims, "Shape"))
    if not isinstance(held, tuple) or annotation == "tuple[str, ...]":
        return cast("Any", held)
    items = cast("tuple[Any, ...]", held)
    if not any(isinstance(d, str) and d in dims for d in items):
        return items
    return tuple(dims.get(d, d) if isinstance(d, str) else d for d in items)


def check_bound(module: Module) -> None:
    """Raise UnboundDims listing the free dims of the inputs, or ShapeError for one further on."""
    where: dict[str, list[str]] = {}
    for value in module.main.inputs:
        for dim in value.type.free_dims:
            where.setdefault(dim, []).append(value.name)
    if where:
        listed = "; ".join(f"{dim} (input {', '.join(names)})" for dim, names in where.items())
        flags = " ".join(f"--dim {dim}=N" for dim in where)
        raise UnboundDims(
            f"dims without a size: {listed}",
            remedy=f"give them: {flags}, or --shape INPUT=1x2x3, or run with inputs",
        )
    for made in module.main.walk():
        free = next((v for v in made.results if not v.type.is_static), None)
        if free is not None:
            raise ShapeError(
                f"{made.opname} gives {free.type}, whose shape depends on data", made.loc
            )
