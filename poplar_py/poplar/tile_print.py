"""Tile-level ``.pir``: a graph and its programs as text, byte-stable under parse and print.

    tile @main target system "gc200" ipus 1 tiles 1472 {
      var %x: f32[784,64] map 0[1468x32] on 0[1468x1] loc("a.py":3:1)
      var %c: f32[4] const f32[4] dense<1.0, 2.0, 3.0, 4.0>
      stream from_host "in": f32[64] mode replicate depth 1
      host_write "x" %x
      compute_set @scale {
        vertices "Scale" 1472 tiles 0[1472x1] {
          x %x at 0[1472x32] len 32[1472x0]
          rows * subs 2[1472x0] vars (0,2) at ... len ... rows ... step ...
          state k f32[1472] dense<splat 2.0>
        } loc("a.py":7:5)
      }
      function 0 "f" { ... }
      program "main" {
        copy "in" -> %x
        execute @scale
        repeat 10 { call 0 }
      }
    }
    codelet "Scale" vertex { ... }

Everything needed to run is there; the codelets follow as codelet IR. Integer arrays are affine
forms (``int_text``). Element addresses are relative to their variable. ``%x`` is a whole variable;
``f32[2,3] %x + 4 (2x8)(3x1)`` is offset and digits per dim; ``cat AXIS (a, b)`` joins views;
``runs [2,3] vars A at A len A`` lists runs.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np

from poplar_py.codelets.codelet_text import print_codelet
from poplar_py.diagnostics import Location, quote_name
from poplar_py.ir.attributes import Array, attribute_text
from poplar_py.ir.printer import inline_resource
from poplar_py.poplar.arrays import Ints
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.groups import ComputeSet, StateVectors, VertexGroup
from poplar_py.poplar.int_text import ints_text, values_text
from poplar_py.poplar.program import Program
from poplar_py.poplar.program_text import program_lines
from poplar_py.poplar.streams import DataStream
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.view_core import View
from poplar_py.poplar.views import Affine, Cat
from poplar_py.target.describe import target_text
from poplar_py.types import is_identifier


def print_tile_module(
    graph: Graph,
    programs: Sequence[Program],
    names: Sequence[str] = (),
    *,
    name: str = "main",
    inline_resources: bool = False,
    locations: bool = True,
    resources: MutableMapping[str, Array] | None = None,
) -> str:
    """The text of a graph with its programs and codelets.

    ``names`` label the programs. Arrays printed by hash are entered into ``resources``, or printed
    at the end with ``inline_resources``.
    """
    found: MutableMapping[str, Array] = {} if resources is None else resources
    printer = TilePrinter(graph, found, locations)
    lines = printer.module(programs, names, name)
    codelets = printer.codelets()
    text = "\n".join(lines) + "\n" + "".join(["\n" + print_codelet(c.ir) for c in codelets])
    if inline_resources:
        text += "".join([f"\n{inline_resource(key, found[key])}\n" for key in sorted(found)])
    return text


def symbol(name: str) -> str:
    """A name as it stands after % or @."""
    return name if is_identifier(name) else quote_name(name)


def unique_names(names: Sequence[str]) -> list[str]:
    """One distinct printed name per object: its own where that is free, else with a number."""
    given, taken = set(names), set[str]()
    out: list[str] = []
    for name in names:
        text, count = name, 1
        while text in taken or (text != name and text in given):
            text, count = f"{name}_{count}", count + 1
        taken.add(text)
        out.append(symbol(text))
    return out


class TilePrinter:
    """Prints one graph; ``found`` receives the arrays named by hash."""

    def __init__(
        self, graph: Graph, found: MutableMapping[str, Array], locations: bool = True
    ) -> None:
        self.graph = graph
        self.found = found
        self.locations = locations
        self.vars = unique_names([v.name for v in graph.variables])
        self.sets = unique_names([c.name for c in graph.compute_sets])
        self._locs: dict[Location, str] = {}
        self._used: dict[str, Any] = {}

    # ------------------------------------------------------------------ pieces
    def loc(self, loc: Location) -> str:
        """`` loc(...)``, or nothing where there is none."""
        if not self.locations or not loc.known:
            return ""
        text = self._locs.get(loc)
        if text is None:
            text = self._locs[loc] = f" loc({loc})"
        return text

    def ints(self, values: Any) -> str:
        return ints_text(values, self.found)

    def named(self, printed: str, name: str) -> str:
        """`` name "..."`` where the printed name is not the object's."""
        return "" if printed == symbol(name) else f" name {quote_name(name)}"

    def tensor(self, tensor: Tensor) -> str:
        """A tensor: the bare name of a whole variable, else type and view."""
        view = tensor.view
        if isinstance(view, Affine) and view.size:
            var = self.graph.variables_of(view)[0]
            whole = Affine.dense(var.base, var.shape)
            if (
                view.offset == var.base
                and view.dims == whole.dims
                and tensor.dtype is var.dtype
                and view.shape == var.shape
            ):
                return f"%{self.vars[var.id]}"
        shape = ",".join([str(n) for n in view.shape])
        return f"{tensor.dtype.name}[{shape}] {self.view(view)}"

    def view(self, view: View) -> str:
        """A view without its type."""
        if isinstance(view, Affine):
            if view.size == 0:
                shape = ",".join([str(n) for n in view.shape])
                return f"empty [{shape}]"
            var = self.graph.variables_of(view)[0]
            dims = "".join(["(" + ",".join([f"{n}x{s}" for n, s in d]) + ")" for d in view.dims])
            return f"%{self.vars[var.id]} + {view.offset - var.base} {dims}".rstrip()
        if isinstance(view, Cat):
            parts = ", ".join([self.view(p) for p in view.parts])
            return f"cat {view.axis} ({parts})"
        start, length = view.runs()
        ids, bases = self.graph.locate_variables(start)
        shape = ",".join([str(n) for n in view.shape])
        return (
            f"runs [{shape}] vars {self.ints(ids)} at {self.ints(start - bases)} "
            f"len {self.ints(length)}"
        )

    # ------------------------------------------------------------------ module
    def module(self, programs: Sequence[Program], names: Sequence[str], name: str) -> list[str]:
        graph = self.graph
        replicas = graph.replication_factor
        head = f"tile @{symbol(name)} {target_text(graph.target)}"
        lines = [head + (f" replicas {replicas}" if replicas != 1 else "") + " {"]
        lines += [self.variable(v) for v in graph.variables]
        lines += [self.stream(s) for s in graph.streams.values()]
        for r in graph.remote_buffers.values():
            lines.append(
                f"  remote_buffer {quote_name(r.handle)}: {r.dtype.name}[{r.repeats},{r.numel}]"
                f"{self.loc(r.loc)}"
            )
        for h in graph.host_functions.values():
            types = [", ".join([f"{t.name}[{n}]" for t, n in x]) for x in (h.inputs, h.outputs)]
            lines.append(
                f"  host_function {quote_name(h.handle)} ({types[0]}) -> ({types[1]})"
                f"{self.loc(h.loc)}"
            )
        for what, table in (("write", graph.host_writes), ("read", graph.host_reads)):
            for handle, t in table.items():
                lines.append(f"  host_{what} {quote_name(handle)} {self.tensor(t)}")
        for cs in graph.compute_sets:
            lines += self.compute_set(cs)
        for f in graph.functions:
            label = f" {quote_name(f.name)}" if f.name else ""
            lines.append(f"  function {f.id}{label} {{")
            lines += program_lines(self, f.program, "    ")
            lines.append("  }" + self.loc(f.loc))
        for i, p in enumerate(programs):
            label = f" {quote_name(names[i])}" if i < len(names) and names[i] else ""
            lines.append(f"  program{label} {{")
            lines += program_lines(self, p, "    ")
            lines.append("  }")
        lines.append("}")
        return lines

    def variable(self, v: Variable) -> str:
        shape = ",".join([str(n) for n in v.shape])
        name = self.vars[v.id]
        text = f"  var %{name}: {v.dtype.name}[{shape}]{self.named(name, v.name)}"
        m = v.mapping
        if len(m.tile) and not (len(m.tile) == 1 and int(m.tile[0]) < 0):
            text += f" map {self.ints(m.bounds[:-1] - v.base)} on {self.ints(m.tile)}"
        if v.always_live:
            text += " always_live"
        if v.constant is not None:
            text += f" const {attribute_text(v.constant, self.found)}"
        if v.replica_index:
            text += " replica_index"
        if v.initial is not None:
            text += f" init {attribute_text(v.initial, self.found)}"
        if v.initial_mask is not None:
            text += f" mask {attribute_text(v.initial_mask, self.found)}"
        return text + self.loc(v.loc)

    def stream(self, s: DataStream) -> str:
        way = "to_host" if s.to_host else "from_host"
        return (
            f"  stream {way} {quote_name(s.handle)}: {s.dtype.name}[{s.numel}] "
            f"mode {s.mode} depth {s.buffering_depth}{self.loc(s.loc)}"
        )

    # ------------------------------------------------------------------ compute sets
    def compute_set(self, cs: ComputeSet) -> list[str]:
        name = self.sets[cs.id]
        lines = [f"  compute_set @{name}{self.named(name, cs.name)} {{"]
        for group in cs.groups:
            lines += self.group(group)
        lines.append("  }" + self.loc(cs.loc))
        return lines

    def group(self, g: VertexGroup) -> list[str]:
        self._used[g.codelet.name] = g.codelet
        head = f"    vertices {quote_name(g.codelet.name)} {g.n}"
        if g.name:
            head += f" name {quote_name(g.name)}"
        lines = [f"{head} tiles {self.ints(g.tiles)} {{"]
        for f in g.codelet.fields:
            if f.kind != "state":
                lines.append(f"      {_field(f.name)} {self.edges(g.edges[f.name])}")
        for name, value in g.state.items():
            lines.append(f"      state {_field(name)} {self.state(value)}")
        lines += self.extras(g)
        lines.append("    }" + self.loc(g.loc))
        return lines

    def edges(self, e: Edges) -> str:
        ids, bases = self.graph.locate_variables(e.start)
        one = len(ids) > 0 and bool((ids == ids[0]).all())
        text = f"%{self.vars[int(ids[0])]}" if one else "*"
        if e.vptr is not None:
            text += f" subs {self.ints(np.diff(e.vptr))}"
        per = np.diff(e.eptr)
        if not bool((per == 1).all()):
            text += f" recs {self.ints(per)}"
        if not one:
            text += f" vars {self.ints(ids)}"
        text += f" at {self.ints(e.start - bases)} len {self.ints(e.length)}"
        if bool((e.count != 1).any()):
            stride = np.where(e.count > 1, e.stride, 0)
            text += f" rows {self.ints(e.count)} step {self.ints(stride)}"
        return text

    def state(self, value: Any) -> str:
        if isinstance(value, StateVectors):
            return (
                f"vectors {self.ints(np.diff(value.ptr))} {values_text(value.values, self.found)}"
            )
        return values_text(value, self.found)

    def extras(self, g: VertexGroup) -> list[str]:
        lines: list[str] = []
        if g.n and not _follows(g.seq):
            lines.append(f"      seq {self.ints(g.seq)}")
        elif g.n and int(g.seq[0]):
            lines.append(f"      seq {int(g.seq[0])}")
        if g.order is not None:
            columns = g.order.reshape(g.n, -1).T
            texts = ", ".join([self.ints(c) for c in columns])
            lines.append(f"      order {g.order.ndim} [{texts}]")
        if g.perf is not None:
            lines.append(f"      perf {self.ints(g.perf)}")
        if g.flops is not None:
            lines.append(f"      flops {self.ints(g.flops)}")
        if g.locs is not None and g.loc_index is not None and self.locations:
            texts = ",".join([self.loc(x) or " none" for x in g.locs])
            lines.append(f"      lines {self.ints(g.loc_index)} [{texts.strip()}]")
        return lines

    def codelets(self) -> list[Any]:
        """Codelets of the groups printed, by name."""
        return [self._used[name] for name in sorted(self._used)]


_CLAUSES = frozenset("rows step state seq order perf flops lines".split())


def _field(name: str) -> str:
    """A field's name, quoted where it would read as the next clause."""
    return quote_name(name) if name in _CLAUSES else symbol(name)


def _follows(seq: Ints) -> bool:
    return bool((np.diff(seq) == 1).all())
