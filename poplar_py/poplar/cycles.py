"""Cycle counting inside a program, under Poplar's names."""

from __future__ import annotations

from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import CycleCount, Program, Sequence
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import u32


def cycle_count(graph: Graph, program: Sequence, tile: int, name: str = "") -> Tensor:
    """Count the tile cycles of the steps a sequence has so far: uint32[2], low word first.

    The steps become the body of one counting step; what is added later is not counted.
    """
    out = graph.add_variable(u32, (2,), name or "cycle_count", tile)
    body: list[Program] = list(program.steps)
    program.steps[:] = [CycleCount(Sequence(body), out, tile, name)]
    return out


def cycle_stamp(graph: Graph, program: Sequence, tile: int, name: str = "") -> Tensor:
    """Append a time stamp in tile cycles: uint32[2], low word first."""
    out = graph.add_variable(u32, (2,), name or "cycle_stamp", tile)
    program.add(CycleCount(None, out, tile, name))
    return out
