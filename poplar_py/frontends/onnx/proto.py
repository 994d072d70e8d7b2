"""Reads ONNX files and tensors carefully: sizes are checked before anything is allocated."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from poplar_py.diagnostics import FileError, Location, NestingTooDeep, ShapeError, TypeMismatch
from poplar_py.frontends.onnx import protos
from poplar_py.frontends.onnx.values import Array
from poplar_py.types import DTYPES, DType

__all__ = ["STORAGE", "TAGS", "ProtoReader", "element_type", "read_model"]

_PLAIN: dict[int, str] = {
    protos.TensorProto.FLOAT: "f32",
    protos.TensorProto.FLOAT16: "f16",
    protos.TensorProto.DOUBLE: "f64",
    protos.TensorProto.BFLOAT16: "bf16",
    protos.TensorProto.INT8: "i8",
    protos.TensorProto.INT16: "i16",
    protos.TensorProto.INT32: "i32",
    protos.TensorProto.INT64: "i64",
    protos.TensorProto.UINT8: "u8",
    protos.TensorProto.UINT16: "u16",
    protos.TensorProto.UINT32: "u32",
    protos.TensorProto.UINT64: "u64",
    protos.TensorProto.BOOL: "bool",
}

_TAGGED: dict[str, tuple[str, str]] = {
    "FLOAT8E4M3FN": ("u8", "float8_e4m3fn"),
    "FLOAT8E4M3FNUZ": ("u8", "float8_e4m3fnuz"),
    "FLOAT8E5M2": ("u8", "float8_e5m2"),
    "FLOAT8E5M2FNUZ": ("u8", "float8_e5m2fnuz"),
    "FLOAT8E8M0": ("u8", "float8_e8m0fnu"),
    "FLOAT4E2M1": ("u8", "float4_e2m1fn"),
    "INT4": ("i8", "int4"),
    "UINT4": ("u8", "uint4"),
    "INT2": ("i8", "int2"),
    "UINT2": ("u8", "uint2"),
}

STORAGE: dict[int, tuple[DType, str]] = {
    **{k: (DTYPES[v], "") for k, v in _PLAIN.items()},
    **{
        int(protos.TensorProto.DataType.Value(k)): (DTYPES[d], tag)
        for k, (d, tag) in _TAGGED.items()
        if k in protos.TensorProto.DataType.keys()  # noqa: SIM118  (a protobuf enum is no mapping)
    },
}
"""ONNX element type -> how it is stored, and a tag (the name in ml_dtypes) if that differs."""

TAGS: dict[str, np.dtype[Any]] = {
    tag: np.dtype(getattr(ml_dtypes, tag)) for _, tag in _TAGGED.values()
}


def element_type(code: int, loc: Location) -> tuple[DType, str]:
    """Storage type and tag of an ONNX element type. Raises TypeMismatch."""
    found = STORAGE.get(code)
    if found is not None:
        return found
    known = protos.TensorProto.DataType.values()
    name = protos.TensorProto.DataType.Name(code).lower() if code in known else str(code)  # type: ignore[arg-type]
    raise TypeMismatch(f"tensors of element type {name} are not supported", loc)


def read_model(path: Path) -> protos.ModelProto:
    """Parse a file. Raises FileError for anything that is no ONNX model."""
    loc = Location(str(path), 0, 0)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read the model: {error.strerror or error}", loc) from None
    return parse_model(data, loc)


def parse_model(data: bytes, loc: Location) -> protos.ModelProto:
    """Parse bytes. Raises FileError."""
    model = protos.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf raises several types, by its implementation
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(
            f"this is no ONNX model: {reason[:120]}",
            loc,
            "the file may be cut off or of another kind",
        ) from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise FileError("this is no ONNX model: it holds no graph", loc)
    return model


_MAX_DEPTH = 48
_GRAPHS = (protos.AttributeProto.GRAPH, protos.AttributeProto.GRAPHS)


def check_texts(model: protos.ModelProto, loc: Location) -> None:
    """Raises FileError for a name that is no UTF-8 (protobuf leaves it as bytes)."""
    texts: list[Any] = [model.graph.name, model.producer_name]
    texts += [o.domain for o in model.opset_import]
    for function in model.functions:
        texts += [function.name, function.domain, *function.input, *function.output]
        _node_texts(function.node, texts, 0, loc)
    _graph_texts(model.graph, texts, 0, loc)
    if any(isinstance(t, bytes) for t in texts):
        raise FileError("this is no ONNX model: a name is no UTF-8", loc)


def _graph_texts(graph: protos.GraphProto, texts: list[Any], depth: int, loc: Location) -> None:
    if depth > _MAX_DEPTH:
        raise NestingTooDeep(f"graphs are nested deeper than {_MAX_DEPTH}", loc)
    for named in (graph.input, graph.output, graph.initializer):
        texts += [item.name for item in named]
    _node_texts(graph.node, texts, depth, loc)


def _node_texts(nodes: Any, texts: list[Any], depth: int, loc: Location) -> None:
    for node in nodes:
        texts += [node.op_type, node.name, node.domain, node.overload, *node.input, *node.output]
        for attribute in node.attribute:
            texts += [attribute.name, attribute.ref_attr_name]
            if attribute.HasField("g"):
                _graph_texts(attribute.g, texts, depth + 1, loc)


def has_external_data(model: protos.ModelProto) -> bool:
    """Whether any tensor of a model, its graphs and functions keeps its bytes in another file."""
    tensors: list[Any] = []
    graphs: list[Any] = [model.graph]
    nodes: list[Any] = [n for f in model.functions for n in f.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            tensors += [*graph.initializer]
            tensors += [t for s in graph.sparse_initializer for t in (s.values, s.indices)]
            nodes += [*graph.node]
            continue
        for attribute in nodes.pop().attribute:
            graphs += [attribute.g, *attribute.graphs] if attribute.type in _GRAPHS else []
            sparse = [attribute.sparse_tensor, *attribute.sparse_tensors]
            tensors += [attribute.t, *attribute.tensors]
            tensors += [t for s in sparse for t in (s.values, s.indices)]
    return any(t.data_location == protos.TensorProto.EXTERNAL for t in tensors)


class ProtoReader:
    """Turns TensorProtos into arrays; external data only from inside `folder`."""

    def __init__(self, folder: Path | None, file: str) -> None:
        self.folder = folder
        self.file = file
        # Read once for all imports of a model; the messages are kept so that ids stay unique.
        self._kept: dict[int, tuple[Any, Array, str]] = {}

    def array(self, proto: protos.TensorProto, loc: Location) -> tuple[Array, str]:
        """Array (as stored) and tag of a tensor. Raises FileError, ShapeError or TypeMismatch."""
        kept = self._kept.get(id(proto))
        if kept is None:
            kept = self._kept[id(proto)] = (proto, *self._read(proto, loc))
        return kept[1], kept[2]

    def _read(self, proto: protos.TensorProto, loc: Location) -> tuple[Array, str]:
        shape = tuple(int(d) for d in proto.dims)
        name = proto.name or "a tensor"
        if any(d < 0 for d in shape) or math.prod(shape) > 1 << 33:
            raise ShapeError(f"{name} has the impossible shape {list(shape)}", loc)
        if proto.HasField("segment"):
            raise FileError(f"{name} is stored in segments, which is not supported", loc)
        dtype, tag = element_type(proto.data_type, loc)
        external = proto.data_location == protos.TensorProto.EXTERNAL
        raw = self._external(proto, loc) if external else proto.raw_data
        if external or proto.HasField("raw_data"):
            return self._raw(raw, dtype, tag, shape, name, loc), tag
        return self._fields(proto, dtype, tag, shape, name, loc), tag

    def _raw(
        self, raw: Any, dtype: DType, tag: str, shape: tuple[int, ...], name: str, loc: Location
    ) -> Array:
        count = math.prod(shape)
        per_byte = _per_byte(tag)
        want = -(-count // per_byte) if per_byte > 1 else count * dtype.size
        if len(raw) != want:
            raise FileError(f"{name} holds {len(raw)} bytes, its shape wants {want}", loc)
        if per_byte > 1:
            return _unpack(np.frombuffer(raw, np.uint8), tag, count).reshape(shape)
        data = np.frombuffer(raw, dtype.numpy.newbyteorder("<"))
        return data.astype(dtype.numpy, copy=False).reshape(shape)

    def _fields(
        self,
        proto: protos.TensorProto,
        dtype: DType,
        tag: str,
        shape: tuple[int, ...],
        name: str,
        loc: Location,
    ) -> Array:
        count = math.prod(shape)
        if dtype.name == "f32":
            data = np.asarray(proto.float_data, np.float32)
        elif dtype.name == "f64":
            data = np.asarray(proto.double_data, np.float64)
        elif dtype.name == "i64":
            data = np.asarray(proto.int64_data, np.int64)
        elif dtype.name in ("u32", "u64"):
            data = np.asarray(proto.uint64_data, np.uint64).astype(dtype.numpy)
        else:
            data = _from_int32(np.asarray(proto.int32_data, np.int64), dtype, tag, count)
        if data.size != count:
            raise FileError(f"{name} holds {data.size} elements, its shape wants {count}", loc)
        return data.reshape(shape)

    def _external(self, proto: protos.TensorProto, loc: Location) -> Any:
        entries = {e.key: e.value for e in proto.external_data}
        name = proto.name or "a tensor"
        if self.folder is None:
            raise FileError(
                f"{name} is stored outside the model", loc, "load the model from its file"
            )
        path = _inside(self.folder, entries.get("location", ""))
        if path is None:
            raise FileError(
                f"{name} is stored in {entries.get('location', '')!r}, outside the model's folder",
                loc,
                "external data has to lie beside the model",
            )
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", "-1"))
            size = os.path.getsize(path)
        except (ValueError, OSError) as error:
            raise FileError(f"external data of {name}: {error}", loc) from None
        length = size - offset if length < 0 else length
        if offset < 0 or length < 0 or offset + length > size:
            raise FileError(
                f"{name} wants bytes {offset} to {offset + length} of {path.name}, "
                f"which has {size}",
                loc,
            )
        if not length:
            return b""
        return np.memmap(path, np.uint8, "r", offset, (length,))


def _inside(folder: Path, location: str) -> Path | None:
    if not location or "\0" in location:
        return None
    path = (folder / location).resolve()
    return path if path.is_relative_to(folder.resolve()) and path.is_file() else None


def _per_byte(tag: str) -> int:
    if tag in ("int4", "uint4", "float4_e2m1fn"):
        return 2
    return 4 if tag in ("int2", "uint2") else 1


def _unpack(packed: Array, tag: str, count: int) -> Array:
    per_byte = _per_byte(tag)
    bits = 8 // per_byte
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = ((packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count]
    if tag in ("int4", "int2"):
        half = 1 << (bits - 1)
        return np.where(fields >= half, fields.astype(np.int8) - 2 * half, fields).astype(np.int8)
    return fields


def _from_int32(data: Array, dtype: DType, tag: str, count: int) -> Array:
    if dtype.name in ("f16", "bf16"):
        return (data & 0xFFFF).astype(np.uint16).view(dtype.numpy)
    if _per_byte(tag) > 1:
        return _unpack((data & 0xFF).astype(np.uint8), tag, count)
    return data.astype(dtype.numpy)
