"""The reader of a tile block: builds the graph while reading; later parts refer to earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.codelets import Codelet
from poplar_py.diagnostics import (
    DuplicateName,
    Location,
    ParseError,
    PoplarPyError,
    UnknownName,
)
from poplar_py.ir.attributes import Array, unquote
from poplar_py.poplar.arrays import Ints
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.group_parse import read_compute_set
from poplar_py.poplar.groups import ComputeSet
from poplar_py.poplar.mapping import Mapping
from poplar_py.poplar.program import Program, Sequence
from poplar_py.poplar.program_parse import ProgramReader
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.tensor_reader import TensorReader
from poplar_py.poplar.tile_tokens import Tokens
from poplar_py.poplar.variable import Variable
from poplar_py.target.describe import target_from
from poplar_py.types import DType, u32


@dataclass
class TileText:
    """What a text holds: ``names`` label the programs (empty where they have no label)."""

    name: str
    graph: Graph
    programs: list[Program]
    names: list[str]


class Reader(TensorReader):
    """Builds the graph while reading; later parts refer to earlier ones."""

    def __init__(self, tokens: Tokens, library: dict[str, Codelet]) -> None:
        super().__init__(tokens)
        self.library = library
        self.sets: dict[str, ComputeSet] = {}
        self.functions: dict[int, Function] = {}
        self.programs: list[Program] = []
        self.names: list[str] = []

    # ------------------------------------------------------------------ module
    def module(self) -> TileText:
        t = self.t
        t.want("tile")
        name = _plain(t.symbol())
        t.want("target")
        where = t.here()
        system = t.string()
        t.want("ipus")
        ipus = t.integer(1, 1 << 12)
        t.want("tiles")
        tiles = t.integer(1, 1 << 16)
        kind = t.string() if t.take("type") else "IPU"
        machine = t.string() if t.take("machine") else None
        replicas = t.integer(1, 1 << 12) if t.take("replicas") else 1
        self.graph = Graph(target_from(system, ipus, tiles, kind, machine, where), replicas)
        for codelet in self.library.values():
            self.graph.codelets.add_codelet(codelet)
        t.want("{")
        while not t.take("}"):
            self.item()
        if t.kind != "end":
            t.fail("text after the tile block")
        missing = sorted(set(self.functions) - {f.id for f in self.graph.functions})
        if missing:
            raise UnknownName(f"function {missing[0]} is called but not there", t.here())
        return TileText(name, self.graph, self.programs, self.names)

    def item(self) -> None:
        t = self.t
        where = t.here()
        word = t.of_kind("word", "an item of a tile block")
        readers = {
            "var": self.variable,
            "stream": self.stream,
            "remote_buffer": self.remote_buffer,
            "host_function": self.host_function,
            "host_write": lambda: self.handle(self.graph.host_writes),
            "host_read": lambda: self.handle(self.graph.host_reads),
            "compute_set": self.compute_set,
            "function": self.function,
            "program": self.program,
        }
        if word not in readers:
            raise ParseError(f"unknown item {word!r}", where, f"one of {', '.join(readers)}")
        try:
            readers[word]()
        except PoplarPyError as error:
            raise t.located(error, where) from None

    def variable(self) -> None:
        t = self.t
        where = t.here()
        key = t.variable()
        if key in self.vars:
            raise DuplicateName(f"{key} is there twice", where)
        t.want(":")
        dtype, shape = t.sized_type()
        name = t.string() if t.take("name") else _plain(key)
        mapping: tuple[Ints, Ints] | None = None
        if t.take("map"):
            starts = t.ints()
            t.want("on")
            mapping = starts, t.sized_ints(len(starts), "tiles of a mapping")
        live = t.take("always_live")
        values = {w: self._given(w, dtype) for w in ("const", "init", "mask") if t.word == w}
        replica_index = "const" in values and t.take("replica_index")
        if replica_index and (dtype != u32 or shape != ()):
            raise ParseError("a replica's number is u32[]", where)
        for w in ("init", "mask"):
            if t.word == w:
                values[w] = self._given(w, dtype)
        self.graph.add_variable(dtype, shape, name, loc=t.location())
        v = self.graph.variables[-1]
        self.vars[key] = v
        v.always_live = live
        v.replica_index = replica_index
        if mapping is not None:
            self._map(v, *mapping, where)
        for w, array in values.items():
            if array.size != v.size:
                raise ParseError(f"{array.size} values for {v.size} elements", where)
            setattr(v, {"const": "constant", "init": "initial", "mask": "initial_mask"}[w], array)

    def _given(self, word: str, dtype: DType) -> Array:
        self.t.want(word)
        where = self.t.here()
        array = np.asarray(self.t.array()).reshape(-1)
        want = np.dtype(np.bool_) if word == "mask" else dtype.numpy
        if array.dtype != want:
            raise ParseError(f"values of type {array.dtype} for {dtype.name}", where)
        return array

    def _map(self, v: Variable, starts: Ints, tiles: Ints, where: Location) -> None:
        if len(starts) == 0 or int(starts[0]) != 0 or int(starts[-1]) > v.size:
            raise ParseError("a mapping starts at 0 and ends with its variable", where)
        self.graph.place_variable(v, Mapping(np.append(starts, v.size), tiles))

    def stream(self) -> None:
        t = self.t
        way = t.of_kind("word", "to_host or from_host")
        if way not in ("to_host", "from_host"):
            t.fail("to_host or from_host is wanted")
        handle = t.string()
        t.want(":")
        dtype, shape = t.sized_type()
        t.want("mode")
        mode = t.of_kind("word", "replicate or broadcast")
        t.want("depth")
        depth = t.integer(1, 1 << 20)
        table = self.graph.streams
        self._new(table, handle)
        n = int(np.prod(shape, dtype=np.int64))
        table[handle] = DataStream(
            len(table), handle, dtype, n, way == "to_host", t.location(), mode, depth
        )

    def _new(self, table: dict[str, Any], handle: str) -> None:
        if handle in table:
            self.t.fail(f"handle {handle!r} is there twice")

    def remote_buffer(self) -> None:
        t = self.t
        handle = t.string()
        t.want(":")
        dtype, shape = t.sized_type()
        if len(shape) != 2 or min(shape) < 1:
            t.fail("a remote buffer is TYPE[rows,elements]")
        table = self.graph.remote_buffers
        self._new(table, handle)
        table[handle] = RemoteBuffer(len(table), handle, dtype, shape[1], shape[0], t.location())

    def host_function(self) -> None:
        t = self.t
        handle = t.string()
        table = self.graph.host_functions
        self._new(table, handle)
        inputs = self._types()
        t.want("->")
        outputs = self._types()
        table[handle] = HostFunction(len(table), handle, inputs, outputs, t.location())

    def _types(self) -> list[tuple[DType, int]]:
        t = self.t
        t.want("(")
        out: list[tuple[DType, int]] = []
        while not t.take(")"):
            dtype, shape = t.sized_type()
            out.append((dtype, int(np.prod(shape, dtype=np.int64))))
            t.take(",")
        return out

    def handle(self, table: dict[str, Tensor]) -> None:
        name = self.t.string()
        self._new(table, name)
        table[name] = self.tensor()

    def function(self) -> None:
        t = self.t
        where = t.here()
        ident = t.integer(0, 1 << 30)
        if ident != len(self.graph.functions):
            raise ParseError("functions are numbered from 0 in order", where)
        name = t.maybe_string()
        body = ProgramReader(self).block()
        made = self.call_target(ident)
        made.name, made.program, made.loc = name, body, t.location()
        self.graph.functions.append(made)

    def call_target(self, ident: int) -> Function:
        """The function of a number, which may come later in the text."""
        found = self.functions.get(ident)
        if found is None:
            found = Function(ident, "", Sequence(), Location("", 0, 0))
            self.functions[ident] = found
        return found

    def program(self) -> None:
        label = self.t.maybe_string()
        self.programs.append(ProgramReader(self).block())
        self.names.append(label)

    # ------------------------------------------------------------------ compute sets
    def compute_set(self) -> None:
        t = self.t
        where = t.here()
        key = t.symbol()
        if key in self.sets:
            raise DuplicateName(f"{key} is there twice", where)
        name = t.string() if t.take("name") else _plain(key)
        cs = self.graph.add_compute_set(name, loc=Location("", 0, 0))
        self.sets[key] = cs
        read_compute_set(self, cs)
        cs.loc = t.location()

    def set_of(self, key: str, where: Location) -> ComputeSet:
        """The compute set printed as ``@key``."""
        found = self.sets.get(key)
        if found is None:
            raise UnknownName(f"compute set {key} is not there", where)
        return found


def _plain(key: str) -> str:
    """The name in ``%x``, ``@x`` or ``%"a b"``."""
    return unquote(key[1:]) if key[1] == '"' else key[1:]
