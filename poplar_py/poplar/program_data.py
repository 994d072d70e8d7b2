"""Steps that move data and run compute sets."""

from __future__ import annotations

from typing import cast

from poplar_py.poplar.errors import (
    AliasedWrite,
    GraphError,
    TensorIndexError,
    TensorTypeError,
)
from poplar_py.poplar.faults import an_instance, fail, whole_numbers
from poplar_py.poplar.groups import ComputeSet
from poplar_py.poplar.program_core import Program
from poplar_py.poplar.streams import (
    DataStream,
    RemoteBuffer,
)
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import bool_


class Execute(Program):
    """Exchange what a compute set reads, then run its vertices. ``predicate``: a BOOL scalar that
    receives the AND of the vertices' return values. ``Execute(cs, name)`` is taken too."""

    __slots__ = ("compute_set", "predicate")

    def __init__(
        self, compute_set: ComputeSet, predicate: Tensor | str | None = None, name: str = ""
    ) -> None:
        if isinstance(predicate, str):
            predicate, name = None, predicate
        super().__init__(name)
        remedy = "give what add_compute_set gave"
        an_instance(compute_set, ComputeSet, "what is executed", remedy, GraphError)
        if predicate is not None:
            an_instance(predicate, Tensor, "the predicate", "give a BOOL tensor of one element")
            if predicate.numel != 1 or predicate.dtype is not bool_:
                remedy = "give a BOOL tensor of one element"
                fail(TensorTypeError, f"the predicate is {predicate!r}", remedy)
            check_writable(predicate, "the predicate")
        self.compute_set = compute_set
        self.predicate = predicate


Endpoint = Tensor | DataStream | RemoteBuffer


class Copy(Program):
    """Elements from ``src`` to ``dst``: tensors, a stream, or rows of a remote buffer.

    ``offset`` is the row of the remote buffer: an int32/uint32 tensor of one element (or one per
    row of the tensor), or None for row 0; Poplar's dontOutline or optimiseMemory in its place
    changes nothing here, and a text there is the name. ``kind`` is one of tensor, from_stream,
    to_stream, from_remote, to_remote.
    """

    __slots__ = ("dst", "kind", "offset", "src")

    def __init__(
        self,
        src: Endpoint,
        dst: Endpoint,
        offset: Tensor | bool | str | None = None,
        name: str = "",
        dont_outline: bool = False,
        optimise_memory: bool = False,
    ) -> None:
        if isinstance(offset, str):
            offset, name = None, offset
        super().__init__(name)
        if isinstance(offset, bool):
            offset = None
        elif offset is not None:
            an_instance(offset, Tensor, "the row of a copy", "give a tensor, or leave it out")
        self.src = src
        self.dst = dst
        self.offset = offset
        self.kind = _copy_kind(src, dst)
        _check_copy(self)


def _copy_kind(src: Endpoint, dst: Endpoint) -> str:
    if isinstance(src, Tensor) and isinstance(dst, Tensor):
        return "tensor"
    if isinstance(src, DataStream) and isinstance(dst, Tensor):
        return "from_stream"
    if isinstance(src, Tensor) and isinstance(dst, DataStream):
        return "to_stream"
    if isinstance(src, RemoteBuffer) and isinstance(dst, Tensor):
        return "from_remote"
    if isinstance(src, Tensor) and isinstance(dst, RemoteBuffer):
        return "to_remote"
    return fail(TensorTypeError, f"copy from {src!r} to {dst!r}", "one side at least is a tensor")


def _check_copy(copy: Copy) -> None:
    src, dst = copy.src, copy.dst
    if src.dtype is not dst.dtype:
        fail(
            TensorTypeError,
            f"copy of {src.dtype.name} to {dst.dtype.name}",
            "use popops.cast to convert",
        )
    if isinstance(src, DataStream) and src.to_host:
        fail(TensorTypeError, f"stream {src.handle!r} goes to the host")
    if isinstance(dst, DataStream) and not dst.to_host:
        fail(TensorTypeError, f"stream {dst.handle!r} comes from the host")
    if isinstance(src, RemoteBuffer) or isinstance(dst, RemoteBuffer):
        _check_remote(copy)
    elif src.numel != dst.numel:
        fail(
            TensorIndexError,
            f"copy of {src.numel} elements to {dst.numel}",
            "the sizes must agree",
        )
    if isinstance(dst, Tensor):
        check_writable(dst, "the destination of a copy")


def _check_remote(copy: Copy) -> None:
    buffer, tensor = (
        (copy.src, copy.dst) if isinstance(copy.src, RemoteBuffer) else (copy.dst, copy.src)
    )
    rows = 1 if copy.offset is None else copy.offset.numel
    if tensor.numel != buffer.numel * rows:
        fail(
            TensorIndexError,
            f"{rows} row(s) of remote buffer have {buffer.numel * rows} elements, "
            f"the tensor has {tensor.numel}",
        )
    if copy.offset is not None and copy.offset.dtype.name not in ("i32", "u32"):
        fail(TensorTypeError, f"the row index is {copy.offset!r}", "give an int or unsigned int")


def check_writable(tensor: Tensor, what: str) -> None:
    """Raise unless every element of the tensor may be written."""
    for v in tensor.variables():
        if v.constant is not None:
            fail(AliasedWrite, f"{what} is the constant {v.name!r}")
    if tensor.contains_aliases():
        fail(
            AliasedWrite,
            f"{what} holds an element more than once",
            "write to a tensor without broadcast or repeated slices",
        )


class WriteUndef(Program):
    """The old contents of the tensor are dead from here on."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor, name: str = "") -> None:
        super().__init__(name)
        self.tensor = an_instance(tensor, Tensor, "the argument", "give a tensor")


class AssumeEqualAcrossReplicas(Program):
    """A promise that a tensor holds the same values on every replica."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor, name: str = "") -> None:
        super().__init__(name)
        self.tensor = an_instance(tensor, Tensor, "the argument", "give a tensor")


class CrossReplicaCopy(Program):
    """``src`` of replica r to ``dst`` of replica ``replica_map[r]``."""

    __slots__ = ("dst", "replica_map", "src")

    def __init__(
        self, src: Tensor, dst: Tensor, replica_map: dict[int, int], name: str = ""
    ) -> None:
        super().__init__(name)
        for t, what in ((src, "source"), (dst, "destination")):
            an_instance(t, Tensor, f"the {what} of a copy", "give a tensor")
        _check_replica_map(replica_map)
        if src.dtype is not dst.dtype or src.numel != dst.numel:
            fail(TensorTypeError, f"copy across replicas of {src!r} to {dst!r}")
        check_writable(dst, "the destination of a copy")
        if len(set(replica_map.values())) != len(replica_map):
            fail(TensorIndexError, "two replicas are copied to one")
        self.src = src
        self.dst = dst
        self.replica_map = dict(replica_map)


def _check_replica_map(replica_map: object) -> None:
    """A dict from replica to replica."""
    remedy = "give a dict from replica to replica"
    if not isinstance(replica_map, dict):
        fail(TensorTypeError, f"the replica map is {replica_map!r}", remedy)
    for pair in cast("dict[object, object]", replica_map).items():
        if min(whole_numbers(pair, "replicas")) < 0:
            fail(TensorIndexError, f"a copy from replica {pair[0]} to {pair[1]}", remedy)


def check_scalar(tensor: Tensor, what: str, kinds: str) -> None:
    """Raise unless the tensor is one element of a kind."""
    if not isinstance(cast("object", tensor), Tensor):
        fail(TensorTypeError, f"{what} is {type(tensor).__name__}", "give a tensor of one element")
    if tensor.numel != 1 or tensor.dtype.kind not in kinds:
        fail(TensorTypeError, f"{what} is {tensor!r}", "give one integer or BOOL element")
