"""Inputs and outputs of a compiled model: names, types, and how replicas share a batch."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ErrorList, InputError, Location, UnboundDims
from poplar_py.types import DTYPES, Dim, TensorType, bf16

__all__ = [
    "Array",
    "Binding",
    "Port",
    "Signature",
    "bind_inputs",
    "bound_types",
    "check_names",
    "count_name",
    "counted_axis",
    "split_axes",
]

Array = npt.NDArray[Any]


def count_name(name: str, axis: int) -> str:
    """The output that holds how many elements another one has along an axis."""
    return f"{name}.count{axis}"


def counted_axis(name: str, types: Mapping[str, TensorType]) -> int | None:
    """The axis along which the outputs of a program say that one of them is counted."""
    found = (axis for axis in range(types[name].rank) if count_name(name, axis) in types)
    return next((a for a in found if types[count_name(name, a)].numel == 1), None)


@dataclass(frozen=True)
class Port:
    """One input or output as one replica sees it.

    `split` is the axis along which replicas share the host's array; None: all get the same array
    (input), or the first replica's array is the result (output). `counted` is the axis of an output
    along which the device counts how many elements there are, in the port `count_name`.
    """

    name: str
    type: TensorType
    split: int | None = None
    counted: int | None = None

    @property
    def count_name(self) -> str:
        """The port with this one's number of elements along `counted`."""
        return count_name(self.name, self.counted or 0)

    def host_shape(self, replicas: int) -> tuple[int, ...]:
        """Shape of the array on the host, all replicas together."""
        shape = list(self.type.static_shape)
        if self.split is not None:
            shape[self.split] *= replicas
        return tuple(shape)

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "dtype": self.type.dtype.name,
            "shape": list(self.type.shape),
            "split": self.split,
            "counted": self.counted,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Port:
        shape = tuple(int(d) for d in data["shape"])
        type = TensorType(DTYPES[data["dtype"]], shape)
        axes = (_axis(data["split"], len(shape)), _axis(data["counted"], len(shape)))
        return Port(str(data["name"]), type, *axes)


@dataclass(frozen=True)
class Signature:
    """What `run` takes and gives."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    replicas: int = 1

    def check(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays with the declared element type, in port order.

        Raises InputError, all faults at once: missing or unknown names, wrong shapes, values that
        do not fit the element type. Integers and bools are not taken for floats and back.
        """
        errors = ErrorList()
        known = {port.name for port in self.inputs}
        for name in arrays:
            if name not in known:
                errors.add(_unknown("input", name, sorted(known)))
        out: dict[str, Array] = {}
        for port in self.inputs:
            with errors:
                out[port.name] = self._checked(port, arrays)
        errors.raise_if_any()
        return out

    def _checked(self, port: Port, arrays: Mapping[str, Array]) -> Array:
        if port.name not in arrays:
            raise InputError(
                f"input {port.name!r} is missing",
                Location("", 0, 0, name=port.name),
                remedy=f"give an array of type {port.type}; on the command line "
                f"--input {port.name}=FILE.npy, or --random-inputs SEED for all that is not given",
            )
        array = as_array(arrays[port.name], port.name)
        expected = self.inputs_shape(port)
        if array.shape != expected:
            raise InputError(
                f"input {port.name!r} has shape {_text(array.shape)}, not {_text(expected)}",
                remedy=_replica_remedy(port, self.replicas),
            )
        return as_dtype(array, port)

    def inputs_shape(self, port: Port) -> tuple[int, ...]:
        return port.host_shape(self.replicas)

    def shard(self, port: Port, array: Array, replica: int) -> Array:
        """The part of an input that one replica gets."""
        if port.split is None or self.replicas == 1:
            return array
        size = port.type.static_shape[port.split]
        index = [slice(None)] * array.ndim
        index[port.split] = slice(replica * size, (replica + 1) * size)
        return np.ascontiguousarray(array[tuple(index)])

    def stack(self, port: Port, array: Array) -> Array:
        """An input as [replicas, ...] parts; as it is when all replicas get the same."""
        if port.split is None or self.replicas == 1:
            return array
        return np.stack([self.shard(port, array, r) for r in range(self.replicas)])

    @property
    def results(self) -> list[Port]:
        """The outputs that a run gives: all but the counts of others."""
        counts = {port.count_name for port in self.outputs if port.counted is not None}
        return [port for port in self.outputs if port.name not in counts]

    def join(self, port: Port, parts: Sequence[Array]) -> Array:
        """The host's output from the replicas' parts."""
        if port.split is None or len(parts) == 1:
            return parts[0]
        return np.concatenate(parts, axis=port.split)

    def to_json(self) -> dict[str, object]:
        return {
            "inputs": [port.to_json() for port in self.inputs],
            "outputs": [port.to_json() for port in self.outputs],
            "replicas": self.replicas,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Signature:
        return Signature(
            tuple(Port.from_json(p) for p in data["inputs"]),
            tuple(Port.from_json(p) for p in data["outputs"]),
            int(data["replicas"]),
        )


def _axis(value: Any, rank: int) -> int | None:
    if value is not None and not 0 <= int(value) < rank:
        raise ValueError(f"axis {value} of {rank}")
    return None if value is None else int(value)


def as_array(value: Any, name: str) -> Array:
    """An input as an array. Raises InputError for lists that are none and for masked arrays."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"input {name!r} is a masked array", remedy="give .filled(value)")
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"input {name!r} is no array: {error}") from None


def as_dtype(array: Array, port: Port) -> Array:
    """The array in the port's element type where that loses nothing but float precision."""
    wanted = port.type.dtype.numpy
    if array.dtype == wanted:
        return array
    known = array.dtype.kind == "f" or array.dtype == bf16.numpy
    both_float = port.type.dtype.is_float and known
    both_integer = port.type.dtype.is_integer and array.dtype.kind in "iu"
    if not (both_float or both_integer):
        raise InputError(
            f"input {port.name!r} has element type {array.dtype}, not {port.type.dtype}",
            remedy=f"convert it with .astype({wanted.name!r})",
        )
    converted = array.astype(wanted)
    if both_integer and not np.array_equal(converted, array):
        raise InputError(f"input {port.name!r} has values that do not fit {port.type.dtype}")
    return converted


def _unknown(what: str, name: str, known: Sequence[str]) -> InputError:
    """The error for a name that is not known: what exists, and the name that was perhaps meant."""
    near = difflib.get_close_matches(name, known, 1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return InputError(
        f"unknown {what} {name!r}", remedy=f"{meant}{what}s are: {', '.join(known) or 'none'}"
    )


def check_names(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raises InputError, all at once, for given names (of dims, inputs) that are not known."""
    errors = ErrorList()
    for name in given:
        if name not in known:
            errors.add(_unknown(what, name, known))
    errors.raise_if_any()


def _text(shape: Sequence[object]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _replica_remedy(port: Port, replicas: int) -> str:
    if replicas == 1:
        return f"give an array of type {port.type}"
    if port.split is None:
        return f"all {replicas} replicas share one array of type {port.type}"
    return f"{replicas} replicas split axis {port.split}, each takes {port.type}"


@dataclass(frozen=True)
class Binding:
    """Full types of all inputs for one replica, and the axis each is split along."""

    types: dict[str, TensorType]
    splits: dict[str, int | None]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: type.static_shape for name, type in self.types.items()}


def split_axes(declared: Mapping[str, TensorType], replicas: int) -> dict[str, int | None]:
    """The axis of each input that replicas split: where the batch dim stands.

    The batch dims are the free dims that come first in an input. Without any, the leading axis of
    every input of rank one or more is split.
    """
    if replicas == 1:
        return dict.fromkeys(declared)
    batch = {t.shape[0] for t in declared.values() if t.rank and isinstance(t.shape[0], str)}
    return {name: batch_axis(type, batch) for name, type in declared.items()}


def batch_axis(type: TensorType, batch: Collection[Dim]) -> int | None:
    """Where one of the batch dims stands in a type; axis 0 when there are no batch dims."""
    if not batch:
        return 0 if type.rank else None
    return next((axis for axis, dim in enumerate(type.shape) if dim in batch), None)


def bound_types(
    declared: Mapping[str, TensorType],
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, TensorType]:
    """Host types of all inputs after `--dim` and `--shape`.

    Raises InputError for a shape that contradicts the declared one, UnboundDims listing all free
    dims that are left.
    """
    dims = dict(dims)
    for name, shape in shapes.items():
        if name not in declared:
            raise _unknown("input", name, list(declared))
        _match(name, declared[name], tuple(shape), dims)
    out: dict[str, TensorType] = {}
    for name, type in declared.items():
        shape = shapes.get(
            name, tuple(dims.get(d, d) if isinstance(d, str) else d for d in type.shape)
        )
        out[name] = type.with_shape(tuple(shape))
    free = {d: name for name, type in out.items() for d in type.free_dims}
    if free:
        listed = ", ".join(f"{d} (of {name!r})" for d, name in free.items())
        first = next(iter(free))
        raise UnboundDims(
            f"free dims without a size: {listed}",
            remedy=f"give the inputs, or sizes: --dim {first}=N or --shape INPUT=AxBxC",
        )
    return out


def _match(name: str, type: TensorType, shape: tuple[int, ...], dims: dict[str, int]) -> None:
    """Checks a given shape against the declared one and learns free dims from it."""
    if len(shape) != type.rank:
        raise InputError(
            f"input {name!r} has {len(shape)} axes, the model declares {type}",
            remedy=f"give an array of type {type}",
        )
    for size, dim in zip(shape, type.shape, strict=True):
        known = dims.setdefault(dim, size) if isinstance(dim, str) else dim
        if known == size:
            continue
        if isinstance(dim, str):
            raise InputError(
                f"input {name!r} has shape {_text(shape)}: dim {dim} is {known} elsewhere"
            )
        raise InputError(
            f"input {name!r} has shape {_text(shape)}, the model declares {type}",
            remedy=f"give an array of type {type}",
        )


def bind_inputs(
    declared: Mapping[str, TensorType],
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    replicas: int = 1,
) -> Binding:
    """Per-replica types of all inputs from host shapes. A static leading axis may be given either
    as declared (all replicas share the array) or `replicas` times as long.

    Raises InputError when a batch cannot be split evenly.
    """
    splits = split_axes(declared, replicas)
    scaled = {
        name: _scaled(declared[name], splits[name], tuple(shape), replicas)
        for name, shape in shapes.items()
        if name in declared
    }
    for name, (_, shared) in scaled.items():
        splits[name] = None if shared else splits[name]
    unknown = {name: shape for name, shape in shapes.items() if name not in declared}
    host = bound_types(declared, dims, {n: s for n, (s, _) in scaled.items()} | unknown)
    types = {n: _share(n, t, splits[n], replicas, declared[n]) for n, t in host.items()}
    return Binding(types, splits)


def _scaled(
    type: TensorType, axis: int | None, shape: tuple[int, ...], replicas: int
) -> tuple[tuple[int, ...], bool]:
    """(shape in the declared scale, whether all replicas share the array)."""
    if axis is None or len(shape) != type.rank:
        return shape, False
    dim = type.shape[axis]
    if isinstance(dim, str):
        return shape, False
    if shape[axis] == dim * replicas:
        return (*shape[:axis], dim, *shape[axis + 1 :]), False
    return shape, shape[axis] == dim


def _share(
    name: str, host: TensorType, axis: int | None, replicas: int, declared: TensorType
) -> TensorType:
    """The part of an input's type that one replica gets."""
    if axis is None or replicas == 1 or isinstance(declared.shape[axis], int):
        return host
    size = host.static_shape[axis]
    if size % replicas:
        raise InputError(
            f"input {name!r}: a batch of {size} cannot be split over {replicas} replicas",
            remedy=f"use a batch of {size + replicas - size % replicas}, padded at its end",
        )
    shape = (*host.shape[:axis], size // replicas, *host.shape[axis + 1 :])
    return replace(host, shape=shape)
