"""The edge of an imported graph: ONNX inputs and outputs as plain arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.diagnostics import (
    InputError,
    Location,
    PoplarPyError,
    ShapeError,
    UnsupportedOp,
)
from poplar_py.driver.signature import count_name
from poplar_py.frontends.onnx import protos
from poplar_py.frontends.onnx.builder import MAX_NUMEL
from poplar_py.frontends.onnx.importer import Importer
from poplar_py.frontends.onnx.proto import TAGS, element_type
from poplar_py.frontends.onnx.values import ABSENT, Absent, Array, Bounded, Item, Seq, Val
from poplar_py.ir.core import Graph, Module, Op, Trait, Value
from poplar_py.types import Dim, TensorType, dtype_of

__all__ = [
    "InputSpec",
    "add_input",
    "add_output",
    "drop_dead",
    "input_spec",
    "input_tag",
    "is_nested",
    "may_bind",
    "may_bind_type",
    "pack_outputs",
    "stored",
]

_MAX_CONST = 1 << 16
_MAX_FLOAT_CONST = 64


@dataclass(frozen=True)
class InputSpec:
    """A declared input. `kind` is tensor, sequence or optional; `tag` as in `Val`.

    `shape` is None where the model does not say; dims that are free are names (made up as
    `<input>.<axis>` where the model gives none).
    """

    name: str
    kind: str
    type: TensorType
    tag: str = ""
    known_rank: bool = True


def input_spec(info: protos.ValueInfoProto, file: str) -> InputSpec:
    loc = Location(file, 0, 0, info.name, -1, "")
    kind, proto = "tensor", info.type
    if proto.HasField("optional_type"):
        kind, proto = "optional", proto.optional_type.elem_type
    if proto.HasField("sequence_type"):
        kind = "sequence" if kind == "tensor" else kind
        proto = proto.sequence_type.elem_type
    if not proto.HasField("tensor_type"):
        raise UnsupportedOp(f"input {info.name!r} is no tensor", loc)
    dtype, tag = element_type(proto.tensor_type.elem_type, loc)
    known = proto.tensor_type.HasField("shape")
    shape: list[Dim] = []
    for axis, dim in enumerate(proto.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value > 0:
            shape.append(int(dim.dim_value))
        elif dim.HasField("dim_value") and dim.dim_value == 0 and kind == "tensor":
            shape.append(f"{info.name}.{axis}")
        elif dim.dim_param and dim.dim_param != "?":
            shape.append(dim.dim_param)
        else:
            shape.append(f"{info.name}.{axis}")
    for size in shape:
        if isinstance(size, int) and size > MAX_NUMEL:
            raise ShapeError(f"input {info.name!r} has a dim of {size}", loc)
    return InputSpec(info.name, kind, TensorType(dtype, tuple(shape)), tag, known)


def add_input(
    graph: Graph, importer: Importer, spec: InputSpec, bound: Any, consts: Mapping[str, Array]
) -> Item:
    if bound is None:
        return ABSENT
    if isinstance(bound, list):
        entries: list[TensorType] = bound  # pyright: ignore[reportUnknownVariableType]
        named = [(f"{spec.name}[{i}]", t) for i, t in enumerate(entries)]
        items: list[Item] = [
            _tensor_input(graph, importer, name, spec, kind, consts) for name, kind in named
        ]
        return Seq(items)
    return _tensor_input(graph, importer, spec.name, spec, bound, consts)


def _tensor_input(
    graph: Graph,
    importer: Importer,
    name: str,
    spec: InputSpec,
    kind: TensorType,
    consts: Mapping[str, Array],
) -> Val:
    loc = Location(importer.file, 0, 0, f"input {name}")
    if kind.numel > MAX_NUMEL:
        raise ShapeError(f"input {name!r} is {kind}: too large", loc)
    value = graph.add_input(kind, name, loc)
    known = consts.get(name)
    if known is not None:
        if known.dtype != kind.dtype.numpy and known.dtype.kind in "iufb":
            known = known.astype(kind.dtype.numpy)
        if known.shape != kind.shape:
            raise InputError(f"input {name!r} is {kind}, the const is {list(known.shape)}", loc)
    return Val(importer.builder, kind, value, known, False, frozenset([name]), spec.tag, name)


def add_output(
    graph: Graph, importer: Importer, name: str, result: Item
) -> tuple[str, str, int, str]:
    if isinstance(result, Absent):
        return name, "absent", 0, ""
    if isinstance(result, Bounded):
        graph.add_output(importer.builder.use(result.val), name)
        graph.add_output(importer.builder.use(result.count), count_name(name, result.axis))
        return name, f"bounded {result.axis}", 2, result.val.tag
    if isinstance(result, Seq):
        tag = ""
        for i, item in enumerate(result.items):
            if not isinstance(item, Val):
                raise UnsupportedOp(f"output {name!r} is a sequence of no tensors")
            graph.add_output(importer.builder.use(item), f"{name}[{i}]")
            tag = item.tag
        return name, "sequence", len(result.items), tag
    if not isinstance(result, Val):
        loc = Location(importer.file, 0, 0, f"output {name}")
        raise UnsupportedOp(f"output {name!r} holds strings", loc)
    graph.add_output(importer.builder.use(result), name)
    return name, "tensor", 1, result.tag


def input_tag(spec: InputSpec, bound: Any) -> tuple[str, str, int, str]:
    if bound is None:
        return spec.name, "absent", 0, spec.tag
    if isinstance(bound, list):
        return spec.name, "sequence", len(bound), spec.tag  # pyright: ignore[reportUnknownArgumentType]
    return spec.name, "tensor", 1, spec.tag


def drop_dead(graph: Graph) -> None:
    """Remove ops whose results nobody reads (all model ops are free of effects)."""
    live: set[Value] = set(graph.outputs)
    _sweep(graph, live)
    used = {v for op in graph.walk() for v in op.operands()} | set(graph.outputs)
    used |= {v for op in graph.walk() for r in op.regions() for v in r.outputs}
    graph.ops = [op for op in graph.ops if op.opname != "core.constant" or op.results[0] in used]


def _sweep(graph: Graph, live: set[Value]) -> None:
    kept: list[Op] = []
    for op in reversed(graph.ops):
        effect = not op.has(Trait.PURE) and not op.has(Trait.RANDOM) and not op.regions()
        if op.opname != "core.constant" and not effect and not any(r in live for r in op.results):
            continue
        kept.append(op)
        live.update(op.operands())
        for region in op.regions():
            live.update(region.outputs)
            _sweep(region, live)
    graph.ops = kept[::-1]


def stored(feed: Any, spec: InputSpec) -> Array:
    """An array of the input's element type. Raises InputError for another type, and for lists of
    arrays of several shapes."""
    try:
        array = np.asarray(feed)
    except ValueError as error:
        given = type(feed).__name__
        raise InputError(f"input {spec.name!r} is {spec.type}, not a {given}") from error
    tag_type = TAGS.get(spec.tag)
    if tag_type is not None and array.dtype == tag_type:
        integer = spec.tag.startswith(("int", "uint"))
        return array.astype(spec.type.dtype.numpy) if integer else array.view(np.uint8)
    if array.dtype != spec.type.dtype.numpy:
        try:
            found = str(dtype_of(array.dtype))
        except PoplarPyError:
            found = str(array.dtype)
        raise InputError(f"input {spec.name!r} is {spec.type}, not of type {found}")
    return array


def is_nested(shape: Any) -> bool:
    """Whether this is a list of shapes."""
    return bool(shape) and isinstance(shape, list) and isinstance(shape[0], tuple | list)


def may_bind(feed: Array | None) -> bool:
    """Whether a program may be made for the value of an input: few numbers, floats fewer."""
    return feed is not None and may_bind_type(TensorType(dtype_of(feed.dtype), feed.shape))


def may_bind_type(kind: Any) -> bool:
    if not isinstance(kind, TensorType):
        return False
    return kind.numel <= (_MAX_FLOAT_CONST if kind.dtype.is_float else _MAX_CONST)


def pack_outputs(module: Module, arrays: Sequence[Array]) -> list[Any]:
    """Flat outputs of a module as the model declares them.

    Sequences become lists, absent ones None, bounded ones are cut to the size the device counted,
    stored element types become those of ml_dtypes.
    """
    out: list[Any] = []
    flat = iter(arrays)
    for _, kind, count, tag in module.metadata["onnx_outputs"]:
        items = [next(flat) for _ in range(count)]
        if kind.startswith("bounded"):
            axis, size = int(kind.split()[1]), int(items[1].reshape(()))
            items = [items[0][(slice(None),) * axis + (slice(size),)]]
        items = [_restore(item, tag) for item in items]
        out.append(items if kind == "sequence" else items[0] if items else None)
    return out


def _restore(array: Array, tag: str) -> Array:
    if not tag:
        return array
    return array.astype(TAGS[tag]) if tag.startswith(("int", "uint")) else array.view(TAGS[tag])
