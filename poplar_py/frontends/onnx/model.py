"""An ONNX model before and after its shapes are bound."""

from __future__ import annotations

from collections.abc import Mapping
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
from poplar_py.frontends.onnx.boundary import (
    InputSpec,
    add_input,
    add_output,
    drop_dead,
    input_spec,
    input_tag,
    is_nested,
    may_bind,
    may_bind_type,
    pack_outputs,
    stored,
)
from poplar_py.frontends.onnx.importer import Importer, Scope
from poplar_py.frontends.onnx.proto import (
    ProtoReader,
    check_texts,
    has_external_data,
    parse_model,
    read_model,
)
from poplar_py.frontends.onnx.values import (
    Array,
    NeedsStatic,
)
from poplar_py.ir.core import Graph, Module

__all__ = [
    "InputSpec",
    "OnnxModel",
    "Specialised",
    "load_onnx",
    "open_onnx",
    "pack_outputs",
]

assert _rules.__all__ is not None  # the rules register themselves

Feed = Any  # an array, a list of arrays (sequence) or None (absent optional)


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
    _reader: ProtoReader | None = None

    def has_external_data(self) -> bool:
        """Whether a tensor's bytes lie outside the file, wherever in the model it stands."""
        return has_external_data(self.proto)

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
                new = {d for d in need.deps if d not in consts and may_bind(feeds.get(d))}
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
            if any(not may_bind_type(types.get(name)) for name in new):
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
            elif isinstance(feed, list | tuple) and spec.kind != "tensor":
                items = [stored(x, spec) for x in feed]  # pyright: ignore[reportUnknownVariableType]
                shapes[spec.name] = [x.shape for x in items]
                feeds.update({f"{spec.name}[{i}]": x for i, x in enumerate(items)})
            else:
                feeds[spec.name] = stored(feed, spec)
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
        if spec.kind == "sequence" or is_nested(shape):
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
        if self._reader is None:
            self._reader = ProtoReader(self.folder, self.file)
        importer = Importer(self.proto, self._reader)
        scope = Scope(importer)
        graph = Graph("main")
        scope.add_initializers(self.proto.graph)
        for spec in self.inputs:
            scope.names[spec.name] = add_input(graph, importer, spec, types[spec.name], consts)
        scope.run(self.proto.graph.node, self.outputs)
        results = scope.outputs(self.outputs, "output")
        tags: list[tuple[str, str, int, str]] = []
        for name, result in zip(self.outputs, results, strict=True):
            tags.append(add_output(graph, importer, name, result))
        graph.ops = [*importer.builder.constants, *importer.builder.block]
        drop_dead(graph)
        metadata: dict[str, Any] = {
            "producer": self.proto.producer_name,
            "opset": importer.opsets.get("", 0),
            "consts": tuple(consts),
            "onnx_inputs": tuple(input_tag(s, types[s.name]) for s in self.inputs),
            "onnx_outputs": tuple(tags),
        }
        return Module(self.name, [graph], metadata=metadata)


def open_onnx(
    source: str | Path | protos.ModelProto | bytes, data: bytes | None = None
) -> OnnxModel:
    """Parse and check a model. Raises FileError, InputError, ... located at the file.

    `data` are the bytes of the file `source` when they have been read already.
    """
    folder: Path | None = None
    if isinstance(source, str | Path):
        path = Path(source)
        file, folder = str(source), path.parent
        proto = read_model(path) if data is None else parse_model(data, Location(file, 0, 0))
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
    inputs = [input_spec(i, file) for i in proto.graph.input if i.name not in initial]
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
