"""Handles a program refers to: host streams, remote buffers, functions, host functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.diagnostics import Location
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.program import Program


class DataStream:
    """A FIFO between host and device of ``numel`` elements per copy.

    ``mode`` is replicate (each replica its own data) or broadcast.
    """

    __slots__ = ("buffering_depth", "dtype", "handle", "id", "loc", "mode", "numel", "to_host")

    def __init__(
        self,
        ident: int,
        handle: str,
        dtype: DType,
        numel: int,
        to_host: bool,
        loc: Location,
        mode: str = "replicate",
        buffering_depth: int = 1,
    ) -> None:
        self.id = ident
        self.handle = handle
        self.dtype = dtype
        self.numel = numel
        self.to_host = to_host
        self.loc = loc
        self.mode = mode
        self.buffering_depth = buffering_depth

    def __repr__(self) -> str:
        way = "to" if self.to_host else "from"
        return f"<stream {self.handle!r} {way} host: {self.dtype.name}[{self.numel}]>"


class RemoteBuffer:
    """``repeats`` rows of ``numel`` elements in memory beside the IPUs."""

    __slots__ = ("dtype", "handle", "id", "loc", "numel", "repeats")

    def __init__(
        self, ident: int, handle: str, dtype: DType, numel: int, repeats: int, loc: Location
    ) -> None:
        self.id = ident
        self.handle = handle
        self.dtype = dtype
        self.numel = numel
        self.repeats = repeats
        self.loc = loc

    def __repr__(self) -> str:
        return f"<remote buffer {self.handle!r}: {self.repeats} x {self.dtype.name}[{self.numel}]>"


class Function:
    """A program that several Calls share."""

    __slots__ = ("id", "loc", "name", "program")

    def __init__(self, ident: int, name: str, program: Program, loc: Location) -> None:
        self.id = ident
        self.name = name
        self.program = program
        self.loc = loc

    def __repr__(self) -> str:
        return f"<function {self.name or self.id}>"


class HostFunction:
    """A Python function the device calls; ``inputs`` and ``outputs`` are (type, elements)."""

    __slots__ = ("handle", "id", "inputs", "loc", "outputs")

    def __init__(
        self,
        ident: int,
        handle: str,
        inputs: list[tuple[DType, int]],
        outputs: list[tuple[DType, int]],
        loc: Location,
    ) -> None:
        self.id = ident
        self.handle = handle
        self.inputs = inputs
        self.outputs = outputs
        self.loc = loc

    def __repr__(self) -> str:
        return f"<host function {self.handle!r}>"
