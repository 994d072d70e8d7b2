"""Cycle counting inside a program, under Poplar's names."""

from __future__ import annotations

from poplar_py.poplar.enums import SyncType
from poplar_py.poplar.errors import GraphError, InvalidTileMapping
from poplar_py.poplar.faults import a_text, an_instance, whole_number
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import CycleCount, Program, Sequence
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import u32


def cycle_count(
    graph: Graph, program: Sequence, tile: int, name: str | SyncType = "", last: str = ""
) -> Tensor:
    """Count the tile cycles of the steps a sequence has so far: uint32[2], low word first.

    The steps become the body of one counting step; what is added later is not counted. Poplar's
    order is taken too, with a SyncType (every step waits for all tiles here) before the name.
    """
    name = last if isinstance(name, SyncType) else name
    prog, out = _place(graph, program, tile, name, "cycle_count")
    body: list[Program] = list(prog.steps)
    prog.steps[:] = [CycleCount(Sequence(body), out, tile, name)]
    return out


def cycle_stamp(
    graph: Graph, program: Sequence, tile: int, name: str | SyncType = "", last: str = ""
) -> Tensor:
    """Append a time stamp in tile cycles: uint32[2], low word first; see cycle_count."""
    name = last if isinstance(name, SyncType) else name
    prog, out = _place(graph, program, tile, name, "cycle_stamp")
    prog.add(CycleCount(None, out, tile, name))
    return out


def _place(
    graph: Graph, program: Sequence, tile: int, name: str, what: str
) -> tuple[Sequence, Tensor]:
    """The sequence, and a variable on the tile for its figure."""
    an_instance(graph, Graph, "the graph", "give a Graph", GraphError)
    prog = an_instance(program, Sequence, "what is counted", "give a Sequence", GraphError)
    tile = whole_number(tile, "the tile", InvalidTileMapping)
    return prog, graph.add_variable(u32, (2,), a_text(name, "the name") or what, tile)
