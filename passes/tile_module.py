"""What the tile passes work on: a graph, its programs, and the side tables the passes fill."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poplar_py.diagnostics import ErrorList
from poplar_py.poplar.arrays import I8, Ints, first_of_each, sort_order
from poplar_py.poplar.mapping import Atlas
from poplar_py.poplar.program import Program
from poplar_py.poplar.tile_print import print_tile_module
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.verify import (
    VariableColumns,
    check_calls,
    check_conflicts,
    check_edges_inside,
    check_elements_mapped,
    check_nesting,
    check_tensors_mapped,
    check_vertex_tiles,
    used_compute_sets,
    variable_columns,
)

if TYPE_CHECKING:
    from poplar_py.poplar.graph import Graph
    from poplar_py.poplar.groups import ComputeSet


@dataclass
class TileModule:
    """A graph and its programs, in the order of their numbers; passes store their results here.

    ``results`` holds one entry per pass name: ``plan-exchange`` an ExchangePlan, ``liveness`` a
    Liveness, ``plan-memory`` a PlacedMemory.
    """

    graph: Graph
    programs: list[Program]
    names: list[str] = field(default_factory=list[str])
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    checked: tuple[int, ...] = ()
    checked_mapping: tuple[int, ...] = ()

    def print_ir(
        self,
        inline_resources: bool = False,
        resources: MutableMapping[str, NDArray[Any]] | None = None,
    ) -> str:
        """The ``.pir`` text; arrays named by hash go to ``resources``, or into the text."""
        return print_tile_module(
            self.graph,
            self.programs,
            self.names,
            inline_resources=inline_resources,
            resources=resources,
        )

    def verify(self) -> None:
        """Check the graph and its programs; tile mappings only once map-tiles ran.

        What has not changed since it was checked is not checked again: after lowering only mappings
        change, after map-tiles only side tables are made. Raises what poplar.verify raises.
        """
        graph = self.graph
        groups = sum([len(cs.groups) for cs in graph.compute_sets])
        content = len(graph.variables), len(graph.compute_sets), groups
        if content != self.checked:
            self._verify_content()
            self.checked = content
        mapped = *content, sum([v.version for v in graph.variables])
        if "map-tiles" in self.results and mapped != self.checked_mapping:
            self._verify_mapping()
            self.checked_mapping = mapped

    def _verify_content(self) -> None:
        """Nesting, calls, edges and conflicts."""
        check_nesting([*self.programs, *(f.program for f in self.graph.functions)])
        check_calls(self.programs)
        errors = ErrorList()
        columns = variable_columns(self.graph)
        for cs in used_compute_sets(self.programs):
            with errors:
                self._verify_edges(cs, columns)
                check_conflicts(cs)
        errors.raise_if_any()

    def _verify_edges(self, cs: ComputeSet, columns: VariableColumns) -> None:
        for group in cs.groups:
            for name, edges in group.edges.items():
                check_edges_inside(self.graph, group, name, edges, columns)

    def _verify_mapping(self) -> None:
        """Every vertex and every element in use on a tile."""
        errors = ErrorList()
        for cs in used_compute_sets(self.programs):
            with errors:
                for group in cs.groups:
                    check_vertex_tiles(group, self.graph.target.num_tiles)
                check_elements_mapped(self.graph, cs)
        with errors:
            check_tensors_mapped(self.graph, self.programs)
        errors.raise_if_any()


@dataclass(frozen=True)
class Places:
    """Where elements live, before offsets are known: the atlas with widths and shares.

    A *share* is what one tile holds of one variable. ``width`` int64[m] bytes of an element and
    ``share`` int64[m] (-1: unmapped or a gap) go with the atlas's intervals; ``share_var``,
    ``share_tile``, ``share_bytes`` describe the shares, ascending by (variable, tile).
    """

    atlas: Atlas
    num_tiles: int
    width: Ints
    share: Ints
    share_var: Ints
    share_tile: Ints
    share_bytes: Ints


def find_places(variables: list[Variable], atlas: Atlas, num_tiles: int) -> Places:
    """Shares of all variables; O(intervals log intervals)."""
    sizes = np.array([v.dtype.size for v in variables] or [0], I8)
    var = atlas.var.astype(I8)
    width = np.where(var >= 0, sizes[np.maximum(var, 0)], 0)
    mapped = np.flatnonzero((var >= 0) & (atlas.tile >= 0))
    length = np.diff(atlas.bounds)
    key = var[mapped] * num_tiles + atlas.tile[mapped]
    order = sort_order(key)
    ordered = key if order is None else key[order]
    first = first_of_each(ordered)
    rank = np.zeros(len(ordered), I8)
    rank[first] = 1
    rank = np.cumsum(rank) - 1
    share = np.full(len(var), -1, I8)
    share[mapped if order is None else mapped[order]] = rank
    at = mapped if order is None else mapped[order]
    nbytes = np.add.reduceat(length[at] * width[at], first) if len(first) else np.zeros(0, I8)
    return Places(
        atlas,
        num_tiles,
        width,
        share,
        ordered[first] // num_tiles,
        ordered[first] % num_tiles,
        nbytes,
    )


def tile_align(nbytes: Ints) -> Ints:
    """Alignment in bytes of storage of ``nbytes``: the next power of two, from 8 to 64."""
    out = np.full(len(nbytes), 8, I8)
    for a in (16, 32, 64):
        out[nbytes > a // 2] = a
    return out


def align_up(value: Ints, to: Ints | int) -> Ints:
    """Next multiples."""
    return -(-value // to) * to
