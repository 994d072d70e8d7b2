"""Small tools for passes: uses, replacement, copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from poplar_py.ir.core import Graph, Kind, Module, Op, Value

__all__ = [
    "captures",
    "clone_graph",
    "clone_module",
    "clone_op",
    "graphs_of",
    "replace_values",
    "use_counts",
    "users",
]


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """The graph and all regions inside it, outer ones first."""
    yield graph
    for op in graph.ops:
        for region in op.regions():
            yield from graphs_of(region)


def users(graph: Graph) -> dict[Value, list[Op]]:
    """The ops (also those in regions) that take each value, once per operand, in text order.

    Graph outputs are no ops: see `use_counts`.
    """
    found: dict[Value, list[Op]] = {}
    for op in graph.walk():
        for value in op.operands():
            found.setdefault(value, []).append(op)
    return found


def use_counts(graph: Graph) -> dict[Value, int]:
    """How often each value is used by ops and as an output of the graph or of a region."""
    counts: Counter[Value] = Counter()
    for part in graphs_of(graph):
        counts.update(value for op in part.ops for value in op.operands())
        counts.update(part.outputs)
    return counts


def replace_values(graph: Graph, new: Mapping[Value, Value]) -> None:
    """Put `new[v]` for every use of `v` in the graph and its regions. Follows chains."""
    if not new:
        return

    def final(value: Value) -> Value:
        while value in new:
            value = new[value]
        return value

    for part in graphs_of(graph):
        for op in part.ops:
            op.map_operands(final)
        part.outputs = [final(v) for v in part.outputs]


def captures(region: Graph) -> tuple[Value, ...]:
    """Values of graphs around a region that it uses, in order of first use."""
    inside: set[Value] = set()
    outside: dict[Value, None] = {}

    def visit(graph: Graph) -> None:
        inside.update(graph.inputs)
        for op in graph.ops:
            outside.update((v, None) for v in op.operands() if v not in inside)
            for part in op.regions():
                visit(part)
            inside.update(op.results)
        outside.update((v, None) for v in graph.outputs if v not in inside)

    visit(region)
    return tuple(outside)


def clone_op(op: Op, values: dict[Value, Value]) -> Op:
    """A copy whose operands are mapped by `values`; enters the new results there."""
    fields: dict[str, Any] = {f.name: getattr(op, f.name) for f in op.spec.attributes}
    for f in op.spec.operands:
        held = getattr(op, f.name)
        if isinstance(held, Value):
            fields[f.name] = values.get(held, held)
        elif held is not None:
            fields[f.name] = tuple(values.get(v, v) for v in held)
        else:
            fields[f.name] = None
    for f in op.spec.regions:
        held = getattr(op, f.name)
        if f.kind is Kind.GRAPHS:
            fields[f.name] = tuple(clone_graph(g, values) for g in held)
        else:
            fields[f.name] = None if held is None else clone_graph(held, values)
    copy = type(op)(**fields, loc=op.loc, ipu=op.ipu)
    for old, new in zip(op.results, copy.results, strict=True):
        new.name = old.name
        values[old] = new
    return copy


def clone_graph(graph: Graph, values: dict[Value, Value] | None = None) -> Graph:
    """A deep copy; arrays in attributes are shared. `values` maps values of graphs around it."""
    known = {} if values is None else values
    copy = Graph(graph.name, output_names=graph.output_names)
    for old in graph.inputs:
        known[old] = copy.add_input(old.type, old.name, old.origin)
    copy.ops = [clone_op(op, known) for op in graph.ops]
    copy.outputs = [known.get(v, v) for v in graph.outputs]
    return copy


def clone_module(module: Module) -> Module:
    """A deep copy that shares arrays."""
    graphs = [clone_graph(g) for g in module.graphs.values()]
    return Module(module.name, graphs, module.resources, module.metadata)
