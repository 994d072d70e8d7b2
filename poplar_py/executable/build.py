"""build_executable: from a graph and its programs to tables, step code and initial data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen.program_words import Op
from poplar_py.executable.code import Code
from poplar_py.executable.emit import Emitter
from poplar_py.executable.executable import Executable, Initial, Region, Stream, find_region
from poplar_py.executable.groups import GroupBuilder
from poplar_py.executable.layout import Layout, span
from poplar_py.executable.sums import find_sums
from poplar_py.passes.context import PassContext
from poplar_py.passes.map_tiles import MapTiles
from poplar_py.passes.plan_memory import LINE
from poplar_py.passes.plan_tiles import TilePlan, plan_tiles
from poplar_py.passes.steps import edge_fields
from poplar_py.passes.tile_module import TileModule, align_up
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import Program
from poplar_py.poplar.variable import Variable

NARROW_BYTES = 1 << 32
"""Arenas below this use 32-bit table words."""


@dataclass
class BuildOptions:
    """``allow_out_of_memory``: build even when a tile is too full. ``faithful_tables``: also make
    the tables of faithful exchange. ``wide``: 64-bit table words (None: when needed). ``names``:
    names of the programs (default: their numbers)."""

    allow_out_of_memory: bool = False
    faithful_tables: bool = True
    wide: bool | None = None
    names: list[str] = field(default_factory=list[str])


def build_executable(
    graph: Graph, programs: list[Program], options: BuildOptions | None = None
) -> Executable:
    """Check and compile. Raises what poplar.verify raises (two writers of an element, edges of the
    wrong type, ...), InvalidTileMapping, OutOfTileMemory."""
    options = options or BuildOptions()
    names = options.names or [str(k) for k in range(len(programs))]
    module = TileModule(graph, list(programs), names)
    MapTiles().run(module, PassContext(target=graph.target))
    module.verify()
    return build_from_module(module, options)


def build_from_module(module: TileModule, options: BuildOptions) -> Executable:
    """Compile a tile module; passes that ran already are not run again."""
    plan = plan_tiles(module, allow_out_of_memory=options.allow_out_of_memory)
    return _Build(module, plan, options).run()


class _Build:
    def __init__(self, module: TileModule, plan: TilePlan, options: BuildOptions) -> None:
        self.module, self.plan, self.options = module, plan, options
        self.graph = module.graph
        self.target = module.graph.target
        self.regions = _regions(module.graph)
        end = int(align_up(np.array([plan.memory.end], I8), 4096)[0])
        self.first_region = end
        wide = options.wide
        if wide is None:
            wide = end + sum(r.nbytes + 2 * LINE for r in self.regions) >= NARROW_BYTES >> 1
        self.wide = wide
        self.layout = _layout(plan, self.target.num_tiles)

    def run(self) -> Executable:
        self.code = Code()
        sums = find_sums(self.plan, self.layout, self.graph.variables)
        groups = GroupBuilder(self.plan, self.layout, self.wide, self.options.faithful_tables, sums)
        out = Emitter(
            self.graph, self.plan, self.layout, self.code, groups, self.regions, self.first_region
        )
        entries: dict[str, int] = {}
        for name, node in zip(self.module.names, self.plan.tree.programs, strict=False):
            entries[name] = self.code.here()
            out.node(node)
            self.code.emit(Op.HALT)
        out.functions()
        writes, reads = self.host_access(out, entries)
        if out.arena_end > NARROW_BYTES and not self.wide:
            module, plan = self.module, self.plan  # staging made it too large for 32-bit words
            return _Build(module, plan, replace(self.options, wide=True)).run()
        return self.assemble(out, groups, entries, (writes, reads))

    def assemble(
        self,
        out: Emitter,
        groups: GroupBuilder,
        entries: dict[str, int],
        access: tuple[dict[str, int], dict[str, int]],
    ) -> Executable:
        """The executable of what was emitted; ``access``: host regions to write and to read."""
        code, switches = self.code.finish()
        place = self.code.places
        return Executable(
            target=self.target,
            codelets=groups.codelets,
            tables=out.tables,
            code=code,
            switches=switches,
            entries={name: place[label] for name, label in entries.items()},
            programs=list(self.module.names),
            counters=self.code.counters,
            depth=out.depth,
            regions=self.regions,
            streams=self.streams(),
            stream_ids=list(self.graph.streams),
            host_calls=out.host_calls,
            messages=out.messages,
            initial=[*initial_data(self.graph.variables, self.plan, self.layout), *groups.initial],
            replica_words=replica_words(self.graph.variables, self.plan, self.layout),
            steps=out.steps,
            memory=self.plan.memory,
            items=self.plan.items,
            host_writes=access[0],
            host_reads=access[1],
            remote_buffers={
                h: find_region(self.regions, "remote", h) for h in self.graph.remote_buffers
            },
            arena_bytes=out.arena_end,
            wide=self.wide,
            remote_rows={h: b.repeats for h, b in self.graph.remote_buffers.items()},
            metadata={"graph": graph_counts(self.graph)},
        )

    def streams(self) -> dict[str, Stream]:
        out: dict[str, Stream] = {}
        for handle, s in self.graph.streams.items():
            kind = "stream_out" if s.to_host else "stream_in"
            region = find_region(self.regions, kind, handle)
            out[handle] = Stream(handle, region, s.to_host, s.mode == "broadcast")
        return out

    def host_access(
        self, out: Emitter, entries: dict[str, int]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Little programs that copy between a host region and a tensor, one per handle."""
        writes: dict[str, int] = {}
        reads: dict[str, int] = {}
        for kind, table, found in (
            ("host_in", self.graph.host_writes, writes),
            ("host_out", self.graph.host_reads, reads),
        ):
            for handle, tensor in table.items():
                region = found[handle] = find_region(self.regions, kind, handle)
                entries[f"{kind}:{handle}"] = self.code.here()
                host = span(self.regions[region].offset, self.regions[region].nbytes)
                tiles = self.layout.tensor(tensor)
                out.copy_rows(*((host, tiles) if kind == "host_in" else (tiles, host)))
                self.code.barrier()
                self.code.emit(Op.HALT)
        return writes, reads


def graph_counts(graph: Graph) -> dict[str, int]:
    """How many vertices, edges, variables, elements and compute sets a graph has."""
    groups = [g for cs in graph.compute_sets for g in cs.groups]
    return {
        "vertices": sum(g.n for g in groups),
        "edges": sum(len(e.eptr) - 1 for g in groups for _, e in edge_fields(g)),
        "variables": len(graph.variables),
        "elements": sum(v.size for v in graph.variables),
        "compute_sets": len(graph.compute_sets),
    }


def _regions(graph: Graph) -> list[Region]:
    """Host regions of streams, remote buffers and host access (offsets are given by the
    emitter)."""
    out: list[Region] = []
    for handle, s in graph.streams.items():
        out.append(Region(handle, "stream_out" if s.to_host else "stream_in", s.dtype, s.numel))
    for handle, b in graph.remote_buffers.items():
        out.append(Region(handle, "remote", b.dtype, b.numel * b.repeats))
    for handle, t in graph.host_writes.items():
        out.append(Region(handle, "host_in", t.dtype, t.numel))
    for handle, t in graph.host_reads.items():
        out.append(Region(handle, "host_out", t.dtype, t.numel))
    return out


def _layout(plan: TilePlan, num_tiles: int) -> Layout:
    """Addresses of shares, receive blocks and stored state."""
    items, memory = plan.items, plan.memory
    address = memory.base[items.tile] + memory.at
    shares = len(plan.places.share_var)
    ptr = np.searchsorted(items.item, np.arange(int(items.item[-1]) + 2 if len(items.item) else 1))
    blocks: dict[int, Ints] = {}
    for cs, number in plan.blocks.items():
        row = np.zeros(num_tiles, I8)
        part = slice(ptr[number], ptr[number + 1])
        row[items.tile[part]] = address[part]
        blocks[cs] = row
    states: dict[tuple[int, int], Ints] = {}
    for key, number in plan.states.items():
        row = np.zeros(num_tiles, I8)
        part = slice(ptr[number], ptr[number + 1])
        row[items.tile[part]] = address[part]
        states[key] = row
    return Layout(plan.places, address[:shares], blocks, states)


def replica_words(variables: list[Variable], plan: TilePlan, layout: Layout) -> Ints:
    """Arena offsets of the constants that hold a replica's number, where they are ever live."""
    placed = np.asarray(plan.items.live.any(axis=1))
    marked = [v for v in variables if v.replica_index and bool(placed[v.id])]
    base = np.array([v.base for v in marked], I8)
    at, _ = layout.runs(base, np.ones(len(base), I8))
    return at


def initial_data(variables: list[Variable], plan: TilePlan, layout: Layout) -> list[Initial]:
    """First contents of constants and of variables with initial values, where they are ever
    live."""
    out: list[Initial] = []
    placed = np.asarray(plan.items.live.any(axis=1))
    for v in variables:
        values: NDArray[Any] | None = v.constant if v.constant is not None else v.initial
        if values is None or not bool(placed[v.id]) or v.size == 0:
            continue
        data = np.ascontiguousarray(values, v.dtype.numpy).reshape(-1).view(np.uint8)
        at, nbytes = layout.runs(np.array([v.base], I8), np.array([v.size], I8))
        out.append(Initial(v.name, data, at, nbytes))
    return out
