"""Graphs as DOT text: compute sets with the variables they read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import quote_name

if TYPE_CHECKING:
    from poplar_py.poplar.edges import Edges
    from poplar_py.poplar.graph import Graph
    from poplar_py.poplar.groups import VertexGroup

__all__ = ["compute_graph", "vertex_graph"]


def _variables(graph: Graph, names: set[int]) -> list[str]:
    lines: list[str] = []
    for i in sorted(names):
        v = graph.variables[i]
        label = quote_name(f"{v.name}: {v.dtype.name}[{v.size}]")
        lines.append(f"  v{i} [shape=ellipse, label={label}];")
    return lines


def _join(kind: str, ids: set[int], node: str) -> list[str]:
    lines = [f"  v{i} -> {node};" for i in sorted(ids) if kind != "out"]
    return lines + [f"  {node} -> v{i};" for i in sorted(ids) if kind != "in"]


def compute_graph(graph: Graph) -> str:
    """One node a compute set; arrows from what its vertices read and to what they write."""
    lines: dict[str, None] = {}
    used: set[int] = set()
    nodes: list[str] = []
    for number, cs in enumerate(graph.compute_sets):
        count = sum(g.n for g in cs.groups)
        label = quote_name(f"{cs.name}: {count} vertices")
        nodes.append(f"  c{number} [shape=box, label={label}];")
        for kind, edges in _fields(cs.groups):
            ids = set(np.unique(graph.locate_variables(edges.start)[0]).tolist())
            used |= ids
            lines.update(dict.fromkeys(_join(kind, ids, f"c{number}")))
    return "\n".join(["digraph compute {", *_variables(graph, used), *nodes, *lines, "}"]) + "\n"


def _fields(groups: Iterable[VertexGroup]) -> Iterator[tuple[str, Edges]]:
    """Kind (in, out, inout) and edges of every field."""
    for group in groups:
        kinds = {f.name: f.kind for f in group.codelet.fields}
        for field, edges in group.edges.items():
            yield kinds[field], edges


def vertex_graph(graph: Graph) -> str:
    """One node a vertex, labelled with codelet and tile; arrows as in `compute_graph`."""
    nodes: list[str] = []
    lines: dict[str, None] = {}
    used: set[int] = set()
    for number, cs in enumerate(graph.compute_sets):
        for g, group in enumerate(cs.groups):
            head = f"n{number}_{g}_"
            for v, tile in enumerate(group.tiles.tolist()):
                label = quote_name(f"{cs.name}: {group.codelet.name} on tile {tile}")
                nodes.append(f"  {head}{v} [shape=box, label={label}];")
            for v, i, kind in _accesses(graph, group):
                used.add(i)
                lines.update(dict.fromkeys(_join(kind, {i}, f"{head}{v}")))
    return "\n".join(["digraph vertices {", *_variables(graph, used), *nodes, *lines, "}"]) + "\n"


def _accesses(graph: Graph, group: VertexGroup) -> Iterator[tuple[int, int, str]]:
    """(vertex, variable, kind of the field) of every run of a group's edges."""
    for kind, edges in _fields([group]):
        edge, start, _ = edges.runs()
        vertex = edges.edge_vertex()[edge]
        ids = graph.locate_variables(start)[0]
        for v, i in zip(vertex.tolist(), ids.tolist(), strict=True):
            yield v, i, kind
