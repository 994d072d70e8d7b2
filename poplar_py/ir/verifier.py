"""Checks of model-level invariants; every broken one is told with the op it is about.

- every op class is registered; operands, attributes and regions hold what the fields declare;
- every operand is defined above its use, in the same graph or in one around it; each op and each
  value stands in one place;
- result types are those that `infer()` gives;
- inputs and outputs of top-level graphs have unique names; attributes can be printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from poplar_py.diagnostics import ErrorList, Location, PoplarPyError, VerifyError
from poplar_py.ir.attributes import attribute_text
from poplar_py.ir.core import REGISTRY, FieldSpec, Graph, Kind, Module, Op, Value
from poplar_py.ir.printer import Names, print_op

__all__ = ["verify", "verify_graph"]


def verify(module: Module) -> None:
    """Raise VerifyError (or several as one) when the module breaks an invariant."""
    errors = ErrorList()
    for name, graph in module.graphs.items():
        if name != graph.name:
            errors.add(VerifyError(f"graph {graph.name!r} is entered as {name!r}"))
        _verify_graph(graph, errors)
    for key, value in module.metadata.items():
        with errors:
            attribute_text((key, value))
    errors.raise_if_any()


def verify_graph(graph: Graph) -> None:
    """As `verify`, for one graph."""
    errors = ErrorList()
    _verify_graph(graph, errors)
    errors.raise_if_any()


@dataclass
class _State:
    graph: Graph
    errors: ErrorList
    visible: set[Value] = field(default_factory=set[Value])
    seen: set[Op] = field(default_factory=set[Op])

    def report(self, op: Op, message: str, about: Value | None = None) -> None:
        self.errors.add(op_error(op, message, self.graph, about))


def op_error(op: Op, message: str, graph: Graph, about: Value | None = None) -> VerifyError:
    """A VerifyError that prints the op and underlines it, or the value it is about."""
    line = print_op(op, graph).split("\n", 1)[0]
    begin, length = line.find(op.opname), len(op.opname)
    if about is not None:
        text = Names(graph)[about]
        at = line.rfind(text)
        begin, length = (at, len(text)) if at >= 0 else (begin, length)
    shown = f"{op.opname}: {message}\n   in  {line}\n       {' ' * begin}{'^' * length}"
    return VerifyError(shown, op.loc)


def _verify_graph(graph: Graph, errors: ErrorList) -> None:
    state = _State(graph, errors)
    _check_names(graph, errors)
    _verify_block(graph, state)


def _check_names(graph: Graph, errors: ErrorList) -> None:
    inputs = [v.name for v in graph.inputs]
    outputs = [graph.output_name(i) for i in range(len(graph.outputs))]
    for kind, names in (("input", inputs), ("output", outputs)):
        for name in dict.fromkeys(names):
            if not name:
                errors.add(VerifyError(f"graph {graph.name!r} has an {kind} without a name"))
            elif names.count(name) > 1:
                errors.add(VerifyError(f"graph {graph.name!r} has two {kind}s called {name!r}"))


def _verify_block(graph: Graph, state: _State) -> None:
    entered: list[Value] = []

    def enter(value: Value, op: Op | None) -> None:
        if value.owner is not op:
            where = op.loc if op is not None else Location("", 0, 0)
            state.errors.add(VerifyError(f"{value} does not belong to what defines it", where))
        if value in state.visible:
            state.errors.add(VerifyError(f"{value} is defined twice"))
        state.visible.add(value)
        entered.append(value)

    for value in graph.inputs:
        enter(value, None)
    for op in graph.ops:
        if op in state.seen:
            state.report(op, "stands in two places")
            continue
        state.seen.add(op)
        _verify_op(op, state)
        for region in op.regions():
            _verify_block(region, state)
        for value in op.results:
            enter(value, op)
    for value in graph.outputs:
        if value not in state.visible:
            state.errors.add(VerifyError(f"output {value} is not defined", value.loc))
    state.visible.difference_update(entered)


def _verify_op(op: Op, state: _State) -> None:
    if REGISTRY.get(op.opname) is not type(op):
        state.report(op, "is not a registered op")
        return
    for spec in (*op.spec.operands, *op.spec.regions):
        if not _holds(spec, getattr(op, spec.name)):
            state.report(op, f"{spec.name} is not a {spec.annotation}")
            return
    undefined = [v for v in op.operands() if v not in state.visible]
    for value in undefined:
        state.report(op, f"operand {value} is not defined above its use", value)
    if op.ipu is not None and op.ipu < 0:
        state.report(op, f"ipu {op.ipu} is negative")
    try:
        attribute_text([v for v in op.attributes().values() if not isinstance(v, np.ndarray)])
        types = op.infer_types()
    except PoplarPyError as error:
        state.errors.add(error)
        return
    found = tuple(v.type for v in op.results)
    if found != types:
        texts = [", ".join(map(str, t)) for t in (found, types)]
        state.report(op, f"results are {texts[0]}, by its operands they are {texts[1]}")


_GROUPS = {Kind.LIST: Value, Kind.GRAPHS: Graph}
_SINGLES = {
    Kind.VALUE: Value,
    Kind.OPTIONAL: Value | None,
    Kind.GRAPH: Graph,
    Kind.OPTIONAL_GRAPH: Graph | None,
}


def _holds(spec: FieldSpec, held: object) -> bool:
    if spec.kind in _GROUPS:
        item = _GROUPS[spec.kind]
        return isinstance(held, tuple) and all(isinstance(v, item) for v in cast("Any", held))
    return isinstance(held, _SINGLES[spec.kind])
