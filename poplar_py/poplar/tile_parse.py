"""Reads tile-level ``.pir``: the graph, its programs and its codelets (see ``tile_print``)."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from poplar_py import codelets
from poplar_py.codelets import Codelet
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet
from poplar_py.diagnostics import (
    DuplicateName,
    Location,
    ParseError,
    PoplarPyError,
    UnknownName,
    register_source,
)
from poplar_py.ir.attributes import Array, unquote
from poplar_py.ir.parser import Lookup, array_lookup
from poplar_py.poplar.arrays import Ints
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.group_parse import read_compute_set
from poplar_py.poplar.groups import ComputeSet
from poplar_py.poplar.mapping import Mapping
from poplar_py.poplar.program import Program, Sequence
from poplar_py.poplar.program_parse import ProgramReader
from poplar_py.poplar.streams import DataStream, Function, HostFunction, RemoteBuffer
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.tile_tokens import MAX_DEPTH, STRING, Tokens
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.view_core import Dim, Runs, View
from poplar_py.poplar.views import Affine, Cat
from poplar_py.target.describe import target_from
from poplar_py.types import DType, u32


@dataclass
class TileText:
    """What a text holds: ``names`` label the programs (empty where they have no label)."""

    name: str
    graph: Graph
    programs: list[Program]
    names: list[str]


def is_tile_text(text: str) -> bool:
    """Whether a ``.pir`` text is tile level (it begins with a ``tile`` block or codelets)."""
    return re.match(r"(?:\s|//[^\n]*\n)*(?:tile\s+@|codelet\s)", text) is not None


def parse_tile_module(
    text: str,
    file: str = "<pir>",
    resources: MappingType[str, Array] | Lookup | None = None,
) -> TileText:
    """The graph and programs of a text.

    ``resources`` gives the arrays named by hash: a mapping, or a function of hash and type. Raises
    ParseError, UnknownName, ... with the place in the text; nothing is run or imported.
    """
    register_source(file, text)
    sections = _sections(text, file)
    lookup = array_lookup(resources, text)
    if len(sections.tiles) != 1:
        line = sections.tiles[1][1] if sections.tiles else 1
        raise ParseError(
            f"{len(sections.tiles)} tile blocks where one is wanted", Location(file, line, 1)
        )
    library = _codelets(sections.codelets, file)
    register_source(file, text)
    body, line = sections.tiles[0]
    reader = Reader(Tokens(body, file, lookup, line), library)
    return reader.module()


@dataclass
class _Sections:
    """Texts of the top-level blocks with their first lines."""

    tiles: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    codelets: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


def _sections(text: str, file: str) -> _Sections:
    """Cut the text at its top-level blocks: each begins and ends at a line start."""
    out = _Sections()
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        line = lines[i]
        if not line.strip() or line.startswith(("//", "resource sha256:")):
            i += 1
            continue
        blocks = out.tiles if line.startswith("tile") else out.codelets
        if not line.startswith(("tile ", "codelet ")):
            raise ParseError("a tile or codelet block is wanted", Location(file, i + 1, 1))
        end = i
        while end < len(lines) and lines[end].rstrip() != "}":
            end += 1
        if end == len(lines):
            raise ParseError("the block does not end", Location(file, i + 1, 1))
        blocks.append(("\n".join(lines[i : end + 1]) + "\n", i + 1))
        i = end + 1
    return out


def _codelets(blocks: list[tuple[str, int]], file: str) -> dict[str, Codelet]:
    """Codelets by name. A built-in one with the same code is taken as such; any other, whatever its
    name, is user code and runs checked."""
    out: dict[str, Codelet] = {}
    for text, line in blocks:
        codelet = _codelet(text, file, line)
        if codelet.name in out:
            raise DuplicateName(f"codelet {codelet.name!r} is there twice", Location(file, line, 1))
        out[codelet.name] = codelet
    return out


def _codelet(text: str, file: str, line: int) -> Codelet:
    """One codelet; the text of a built-in one need not even be read."""
    head = re.match(rf"codelet ({STRING})", text)
    known = _builtin(head[1]) if head else None
    if known is not None and print_codelet(known.ir) == text:
        return known
    ir = parse_codelet(text, file, line - 1)
    if known is not None and known.name == ir.name and known.digest == ir.digest:
        return known
    return Codelet(ir)


MAX_PARAMETERS = 1 << 24
"""Product of a built-in codelet's numbers above which a text is not believed: unrolled loops grow
with them."""


def _builtin(quoted: str) -> Codelet | None:
    """The built-in codelet of a quoted name, or None."""
    try:
        name = unquote(quoted)
        numbers = [int(n[:12]) for n in re.findall(r"[<,](\d+)(?=[,>])", name)]
        if prod(max(n, 1) for n in numbers) > MAX_PARAMETERS:
            return None
        return codelets.get(name)
    except PoplarPyError:
        return None


class Reader:
    """Builds the graph while reading; later parts refer to earlier ones."""

    def __init__(self, tokens: Tokens, library: dict[str, Codelet]) -> None:
        self.t = tokens
        self.library = library
        self.vars: dict[str, Variable] = {}
        self.sets: dict[str, ComputeSet] = {}
        self.functions: dict[int, Function] = {}
        self.graph: Graph = None  # type: ignore[assignment]
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

    # ------------------------------------------------------------------ tensors
    def var_of(self) -> Variable:
        """The variable of the next token."""
        where = self.t.here()
        found = self.vars.get(self.t.variable())
        if found is None:
            raise UnknownName(f"variable {self.t.words[self.t.at - 1]} is not there", where)
        return found

    def tensor(self) -> Tensor:
        """A whole variable, or type and view."""
        t = self.t
        if t.kind == "var":
            v = self.var_of()
            return Tensor(self.graph, Affine.dense(v.base, v.shape), v.dtype)
        where = t.here()
        dtype, shape = t.sized_type()
        view = self.view()
        if view.shape != shape:
            raise ParseError(f"a view of shape {list(view.shape)} as {list(shape)}", where)
        for v in self.graph.variables_of(view):
            if v.dtype.size != dtype.size:
                raise ParseError(f"elements of {v.name!r} read as {dtype.name}", where)
        return Tensor(self.graph, view, dtype)

    def view(self) -> View:
        t = self.t
        where = t.here()
        if t.kind == "var":
            return self._affine(where)
        if t.take("empty"):
            shape = self._shape()
            if 0 not in shape:
                raise ParseError("an empty view has a dim of size 0", where)
            return Affine(0, tuple([((n, 1),) for n in shape]), shape)
        if t.take("runs"):
            return self._runs(where)
        t.want("cat")
        axis = t.integer(0, 64)
        t.want("(")
        t.depth += 1
        if t.depth > MAX_DEPTH:
            t.fail("nested too deeply")
        parts = [self.view()]
        while t.take(","):
            parts.append(self.view())
        t.want(")")
        t.depth -= 1
        first = parts[0].shape
        for p in parts:
            same = len(p.shape) == len(first) > axis
            if not same or p.shape[:axis] + p.shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
                raise ParseError("the parts of a joined view do not fit", where)
        return Cat(axis, parts)

    def _shape(self) -> tuple[int, ...]:
        t = self.t
        t.want("[")
        out: list[int] = []
        while not t.take("]"):
            out.append(t.integer(0, 1 << 40))
            t.take(",")
        return tuple(out)

    def _affine(self, where: Location) -> View:
        t = self.t
        v = self.var_of()
        t.want("+")
        offset = t.integer()
        dims: list[Dim] = []
        low = high = offset
        while t.take("("):
            digits: list[tuple[int, int]] = []
            while True:
                count = t.of_kind("dim", "COUNTxSTEP")[:-1]
                size, step = int(count[:12]), t.integer()
                digits.append((size, step))
                low += min(0, (size - 1) * step)
                high += max(0, (size - 1) * step)
                if t.take(")"):
                    break
                t.want(",")
            dims.append(tuple(digits))
        if low < 0 or high >= v.size or any(n < 1 for d in dims for n, _ in d):
            raise ParseError(f"the view leaves variable {v.name!r}", where)
        return Affine(v.base + offset, tuple(dims))

    def _runs(self, where: Location) -> View:
        t = self.t
        shape = self._shape()
        t.want("vars")
        ids = t.ints()
        t.want("at")
        start = t.sized_ints(len(ids), "starts")
        t.want("len")
        length = t.sized_ints(len(ids), "lengths")
        if int(length.sum()) != int(np.prod(shape, dtype=np.int64)):
            raise ParseError("the runs do not fill the shape", where)
        return Runs(shape, self.addresses(ids, start, length, where), length)

    def addresses(self, ids: Ints, start: Ints, extent: Ints, where: Location) -> Ints:
        """Global addresses of ranges within variables; ParseError where one leaves its variable."""
        count = len(self.graph.variables)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < count:
            raise UnknownName(f"variable number {int(ids.max())} is not there", where)
        bases = np.array([v.base for v in self.graph.variables], np.int64)
        sizes = np.array([v.size for v in self.graph.variables], np.int64)
        if bool(((start < 0) | (extent < 0) | (start + extent > sizes[ids])).any()):
            raise ParseError("elements outside their variable", where)
        return bases[ids] + start


def _plain(key: str) -> str:
    """The name in ``%x``, ``@x`` or ``%"a b"``."""
    return unquote(key[1:]) if key[1] == '"' else key[1:]
