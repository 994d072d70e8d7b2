"""An ONNX model before and after its shapes are bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from poplar_py.diagnostics import (
    FileError,
    InputError,
    Location,
    PoplarPyError,
    ShapeError,
    UnboundDims,
    UnsupportedOp,
    VerifyError,
)
from poplar_py.frontends.onnx import protos
from poplar_py.frontends.onnx import rules as _rules
from poplar_py.frontends.onnx.builder import MAX_NUMEL
from poplar_py.frontends.onnx.importer import Importer, Scope
from poplar_py.frontends.onnx.proto import (
    TAGS,
    ProtoReader,
    check_texts,
    element_type,
    parse_model,
    read_model,
)
from poplar_py.frontends.onnx.values import (
    ABSENT,
    Absent,
    Any_,
    Array,
    Bounded,
    NeedsStatic,
    Seq,
    Val,
)
from poplar_py.ir.core import Graph, Module, Op, Trait, Value
from poplar_py.types import Dim, TensorType, dtype_of

__all__ = ["InputSpec", "OnnxModel", "Specialised", "load_onnx", "open_onnx"]

assert _rules.__all__ is not None  # the rules register themselves

Feed = Any  # an array, a list of arrays (sequence) or None (absent optional)

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


@dataclass
class Specialised:
    """A module for one set of inputs: `consts` are the inputs whose values it was compiled for."""

    module: Module
    consts: tuple[str, ...]
    feeds: dict[str, Array] = field(default_factory=dict[str, Array])


@dataclass
class OnnxModel:
    """A parsed model. `specialise` makes modules of it, with all shapes static.

    Inputs that determine shapes, axes or counts have to be known: `specialise` takes them as
    `consts`; `specialise_for` finds out which they are.
    """

    proto: protos.ModelProto
    file: str
    folder: Path | None
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    name: str = "main"

    def free_dims(self) -> tuple[str, ...]:
        """Free dims of the inputs, in order of first appearance."""
        names = (d for spec in self.inputs for d in spec.type.free_dims)
        return tuple(dict.fromkeys(names))

    def specialise(
        self,
        *,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Any] | None = None,
        consts: Mapping[str, Any] | None = None,
    ) -> Module:
        """The module for given free dims, input shapes and values of shape-determining inputs.

        A sequence's shape is a list of shapes, an absent optional's is None. Raises UnboundDims
        listing what stays free, InputError naming inputs that have to be given as consts.
        """
        values = {k: np.asarray(v) for k, v in (consts or {}).items()}
        types = self._bind(dict(dims or {}), dict(shapes or {}), values)
        try:
            return self._import(types, values)
        except NeedsStatic as need:
            raise self._missing_const(need) from None

    def specialise_for(self, inputs: Mapping[str, Feed]) -> Specialised:
        """The module for the shapes of given inputs, and for the values that determine shapes."""
        feeds, shapes = self._flatten(inputs)
        consts: dict[str, Array] = {}
        types = self._bind({}, shapes, {})
        while True:
            try:
                module = self._import(types, consts)
                return Specialised(module, tuple(consts), feeds)
            except NeedsStatic as need:
                new = {d for d in need.deps if d not in consts and _may_bind(feeds.get(d))}
                if not new or not need.deps <= set(consts) | new:
                    raise self._missing_const(need) from None
                consts.update({d: feeds[d] for d in sorted(new)})

    def shape_inputs(
        self,
        *,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Any] | None = None,
        consts: Mapping[str, Any] | None = None,
    ) -> tuple[str, ...]:
        """The next inputs that have to be consts beyond the given ones; () when none is missing."""
        values = {k: np.asarray(v) for k, v in (consts or {}).items()}
        types = self._bind(dict(dims or {}), dict(shapes or {}), values)
        try:
            self._import(types, values)
        except NeedsStatic as need:
            new = sorted(need.deps - set(values))
            if any(not _may_bind_type(types.get(name)) for name in new):
                raise self._missing_const(need) from None
            return tuple(new)
        return ()

    def _missing_const(self, need: NeedsStatic) -> PoplarPyError:
        names = ", ".join(sorted(need.deps)) or "nothing that can be given"
        return UnsupportedOp(
            f"{need.message}, but it depends on {names}",
            need.loc,
            f"give the value at compile time, if it may be fixed: --const {names}=..."
            if need.deps
            else "",
        )

    # binding

    def flatten(self, inputs: Mapping[str, Feed]) -> dict[str, Array]:
        """The given inputs as stored arrays, those of a sequence as `name[0]`, `name[1]`, ...

        Raises InputError for missing and unknown inputs and wrong element types.
        """
        return self._flatten(inputs)[0]

    def _flatten(self, inputs: Mapping[str, Feed]) -> tuple[dict[str, Array], dict[str, Any]]:
        feeds: dict[str, Array] = {}
        shapes: dict[str, Any] = {}
        for spec in self.inputs:
            if spec.name not in inputs and spec.kind != "optional":
                known = ", ".join(s.name for s in self.inputs)
                raise InputError(
                    f"input {spec.name!r} is missing",
                    Location(self.file, 0, 0),
                    f"the model takes {known}",
                )
            feed = inputs.get(spec.name)
            if feed is None:
                shapes[spec.name] = None
            elif isinstance(feed, list | tuple):
                items = [_stored(x, spec) for x in feed]  # pyright: ignore[reportUnknownVariableType]
                shapes[spec.name] = [x.shape for x in items]
                feeds.update({f"{spec.name}[{i}]": x for i, x in enumerate(items)})
            else:
                feeds[spec.name] = _stored(feed, spec)
                shapes[spec.name] = feeds[spec.name].shape
        for name in inputs:
            if all(name != s.name for s in self.inputs):
                known = ", ".join(s.name for s in self.inputs)
                raise InputError(
                    f"the model has no input {name!r}",
                    Location(self.file, 0, 0),
                    f"it takes {known}",
                )
        return feeds, shapes

    def _bind(
        self, dims: dict[str, int], shapes: dict[str, Any], consts: Mapping[str, Array]
    ) -> dict[str, Any]:
        """Input name -> TensorType, list of them (sequence), or None (absent)."""
        names = {s.name for s in self.inputs}
        for name in (*shapes, *consts):
            if name not in names and name.split("[")[0] not in names:
                raise InputError(
                    f"the model has no input {name!r}",
                    Location(self.file, 0, 0),
                    f"it takes {', '.join(sorted(names))}",
                )
        bound = dict(dims)
        types: dict[str, Any] = {}
        for spec in self.inputs:
            if spec.name not in shapes and spec.name in consts:
                shapes[spec.name] = consts[spec.name].shape
            if spec.name in shapes:
                types[spec.name] = self._bind_shape(spec, shapes[spec.name], bound)
        free: list[str] = []
        for spec in self.inputs:
            if spec.name in types:
                continue
            if spec.kind != "tensor" or not spec.known_rank:
                free.append(spec.name)
                continue
            shape = tuple(bound.get(d, d) if isinstance(d, str) else d for d in spec.type.shape)
            free.extend(d for d in shape if isinstance(d, str))
            types[spec.name] = spec.type.with_shape(shape)
        if free:
            listed = ", ".join(dict.fromkeys(free))
            raise UnboundDims(
                f"these dims are not bound: {listed}",
                Location(self.file, 0, 0),
                "give --dim NAME=N, --shape INPUT=1x3x48x320, or inputs of the right shapes",
            )
        return types

    def _bind_shape(self, spec: InputSpec, shape: Any, bound: dict[str, int]) -> Any:
        if shape is None:
            return None
        if spec.kind == "sequence" or _is_nested(shape):
            rows: list[Any] = list(shape)
            return [spec.type.with_shape(tuple(int(d) for d in row)) for row in rows]
        sizes = tuple(int(d) for d in shape)
        loc = Location(self.file, 0, 0)
        if min((*sizes, 0)) < 0:
            raise ShapeError(f"input {spec.name!r} cannot have the shape {list(sizes)}", loc)
        if not spec.known_rank:
            return spec.type.with_shape(sizes)
        if len(sizes) != spec.type.rank:
            raise InputError(f"input {spec.name!r} is {spec.type}, not {list(sizes)}", loc)
        for want, got in zip(spec.type.shape, sizes, strict=True):
            known = bound.setdefault(want, got) if isinstance(want, str) else want
            if known != got:
                raise InputError(
                    f"input {spec.name!r} is {spec.type}, not {list(sizes)}",
                    loc,
                    f"{want} is {known} elsewhere" if isinstance(want, str) else "",
                )
        return spec.type.with_shape(sizes)

    # import

    def _import(self, types: Mapping[str, Any], consts: Mapping[str, Array]) -> Module:
        reader = ProtoReader(self.folder, self.file)
        importer = Importer(self.proto, reader)
        scope = Scope(importer)
        graph = Graph("main")
        scope.add_initializers(self.proto.graph)
        for spec in self.inputs:
            scope.names[spec.name] = _add_input(graph, importer, spec, types[spec.name], consts)
        scope.run(self.proto.graph.node, self.outputs)
        results = scope.outputs(self.outputs, "output")
        tags: list[tuple[str, str, int, str]] = []
        for name, result in zip(self.outputs, results, strict=True):
            tags.append(_add_output(graph, importer, name, result))
        graph.ops = [*importer.builder.constants, *importer.builder.block]
        _drop_dead(graph)
        metadata: dict[str, Any] = {
            "producer": self.proto.producer_name,
            "opset": importer.opsets.get("", 0),
            "consts": tuple(consts),
            "onnx_inputs": tuple(_input_tag(s, types[s.name]) for s in self.inputs),
            "onnx_outputs": tuple(tags),
        }
        return Module(self.name, [graph], metadata=metadata)


def open_onnx(source: str | Path | protos.ModelProto | bytes) -> OnnxModel:
    """Parse and check a model. Raises FileError, InputError, ... located at the file."""
    folder: Path | None = None
    if isinstance(source, str | Path):
        path = Path(source)
        proto, file, folder = read_model(path), str(source), path.parent
    elif isinstance(source, bytes):
        file = "<onnx>"
        proto = parse_model(source, Location(file, 0, 0))
    else:
        proto, file = source, "<onnx>"
    loc = Location(file, 0, 0)
    if not proto.HasField("graph"):
        raise FileError("this is no ONNX model: it holds no graph", loc)
    check_texts(proto, loc)
    _check_opsets(proto, loc)
    initial = {i.name for i in proto.graph.initializer}
    initial |= {s.values.name for s in proto.graph.sparse_initializer}
    inputs = [_input_spec(i, file) for i in proto.graph.input if i.name not in initial]
    outputs = tuple(o.name for o in proto.graph.output)
    for what, names in (("input", [i.name for i in inputs]), ("output", outputs)):
        if len(set(names)) != len(names):
            twice = next(n for n in names if list(names).count(n) > 1)
            raise VerifyError(f"the {what} {twice!r} is declared twice", loc)
    name = proto.graph.name or "main"
    return OnnxModel(proto, file, folder, tuple(inputs), outputs, name)


def load_onnx(
    source: str | Path | protos.ModelProto | bytes,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Any] | None = None,
    consts: Mapping[str, Any] | None = None,
) -> Module:
    """`open_onnx(source).specialise(...)`: a module with static shapes."""
    return open_onnx(source).specialise(dims=dims, shapes=shapes, consts=consts)


def _check_opsets(proto: protos.ModelProto, loc: Location) -> None:
    newest = protos.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if opset.domain in ("", "ai.onnx") and not 1 <= opset.version <= newest:
            raise UnsupportedOp(
                f"the model wants opset {opset.version}; 7 to {newest} are known", loc
            )
    if not proto.opset_import:
        raise FileError("the model imports no opset", loc)


def _input_spec(info: protos.ValueInfoProto, file: str) -> InputSpec:
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


def _add_input(
    graph: Graph, importer: Importer, spec: InputSpec, bound: Any, consts: Mapping[str, Array]
) -> Any_:
    if bound is None:
        return ABSENT
    if isinstance(bound, list):
        entries: list[TensorType] = bound  # pyright: ignore[reportUnknownVariableType]
        named = [(f"{spec.name}[{i}]", t) for i, t in enumerate(entries)]
        items: list[Any_] = [
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
    loc = Location(importer.file, 0, 0, name, -1, "")
    if kind.numel > MAX_NUMEL:
        raise ShapeError(f"input {name!r} is {kind}: too large", loc)
    value = graph.add_input(kind, name)
    known = consts.get(name)
    if known is not None:
        if known.dtype != kind.dtype.numpy and known.dtype.kind in "iufb":
            known = known.astype(kind.dtype.numpy)
        if known.shape != kind.shape:
            raise InputError(f"input {name!r} is {kind}, the const is {list(known.shape)}", loc)
    return Val(importer.builder, kind, value, known, False, frozenset([name]), spec.tag, name)


def _add_output(
    graph: Graph, importer: Importer, name: str, result: Any_
) -> tuple[str, str, int, str]:
    if isinstance(result, Absent):
        return name, "absent", 0, ""
    if isinstance(result, Bounded):
        graph.add_output(importer.builder.use(result.val), name)
        graph.add_output(importer.builder.use(result.count), f"{name}.count")
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
        loc = Location(importer.file, 0, 0, name, -1, "")
        raise UnsupportedOp(f"output {name!r} holds strings", loc)
    graph.add_output(importer.builder.use(result), name)
    return name, "tensor", 1, result.tag


def _input_tag(spec: InputSpec, bound: Any) -> tuple[str, str, int, str]:
    if bound is None:
        return spec.name, "absent", 0, spec.tag
    if isinstance(bound, list):
        return spec.name, "sequence", len(bound), spec.tag  # pyright: ignore[reportUnknownArgumentType]
    return spec.name, "tensor", 1, spec.tag


def _drop_dead(graph: Graph) -> None:
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


def _stored(feed: Any, spec: InputSpec) -> Array:
    array = np.asarray(feed)
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


def _is_nested(shape: Any) -> bool:
    """Whether this is a list of shapes."""
    return bool(shape) and isinstance(shape, list) and isinstance(shape[0], tuple | list)


def _may_bind(feed: Array | None) -> bool:
    """Whether a program may be made for the value of an input: few numbers, floats fewer."""
    return feed is not None and _may_bind_type(TensorType(dtype_of(feed.dtype), feed.shape))


def _may_bind_type(kind: Any) -> bool:
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
