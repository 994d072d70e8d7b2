"""Model-level `.pir` text. Printing, parsing and printing again gives the same bytes.

    module @mlp

    graph @main(%x: f32[64,784]) -> (logits: f32[64,10]) {
      %w: f32[784,10] = core.constant() {value = f32[784,10] dense<sha256:...>}
      %0: f32[64,10] = nn.matmul(%x, %w) loc("mlp.pml":3:12)
      return %0
    }

Attributes equal to their default are left out; absent optional operands print as `none` (or not at
all at the end), operand lists as `[%a, %b]`, regions as `name(%inputs) { ... }` after the
attributes. Values keep their names where these are unique; values without a name get numbers.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from poplar_py.diagnostics import quote_name
from poplar_py.ir.attributes import Array, attribute_text
from poplar_py.ir.core import Attribute, FieldSpec, Graph, Kind, Module, Op, Value
from poplar_py.types import TensorType, dtype_of, is_identifier

__all__ = [
    "Names",
    "collect_resources",
    "inline_resource",
    "print_graph",
    "print_module",
    "print_op",
]


def print_module(
    module: Module,
    *,
    inline_resources: bool = False,
    locations: bool = True,
    resources: MutableMapping[str, Array] | None = None,
) -> str:
    """The text of a module. Arrays printed by hash are entered into `resources`."""
    found: MutableMapping[str, Array] = {} if resources is None else resources
    head = f"module {_symbol(module.name)}"
    if module.metadata:
        head += " " + _attributes(sorted(module.metadata.items()), found)
    parts = [head]
    for graph in module.graphs.values():
        parts.append(_Printer(found, locations).graph(graph))
    if inline_resources and found:
        parts.append("\n".join(inline_resource(key, found[key]) for key in sorted(found)))
    return "\n\n".join(parts) + "\n"


def print_graph(graph: Graph, *, locations: bool = True) -> str:
    """The text of one graph (no module header)."""
    return _Printer({}, locations).graph(graph) + "\n"


def print_op(op: Op, graph: Graph | None = None, *, locations: bool = False) -> str:
    """The text of one op, with the names it has inside `graph`."""
    printer = _Printer({}, locations)
    printer.names = Names(graph) if graph is not None else Names.of_op(op)
    return "\n".join(printer.op(op, ""))


def collect_resources(module: Module) -> dict[str, Array]:
    """Every array that the text of the module refers to by hash."""
    found: dict[str, Array] = {}
    print_module(module, resources=found)
    return found


def _symbol(name: str) -> str:
    return "@" + (name if is_identifier(name) else quote_name(name))


def _attributes(items: list[tuple[str, Attribute]], found: MutableMapping[str, Array]) -> str:
    return "{" + ", ".join(f"{k} = {attribute_text(v, found)}" for k, v in items) + "}"


def inline_resource(key: str, array: Array) -> str:
    """The line that holds an array in a one-file dump."""
    head = TensorType(dtype_of(array), tuple(array.shape))
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return f'resource sha256:{key} {head} "{data}"'


class Names:
    """The printed name of every value of a graph and its regions; unique, in a fixed order."""

    def __init__(self, graph: Graph) -> None:
        self._assign(list(_values(graph)))

    @staticmethod
    def of_op(op: Op) -> Names:
        """Names for an op outside a graph: its operands, then its results."""
        names = Names(Graph())
        names._assign(list(dict.fromkeys((*op.operands(), *op.results))))
        return names

    def _assign(self, values: list[Value]) -> None:
        self._texts: dict[Value, str] = {}
        given = {v.name for v in values}
        taken: set[str] = set()
        number = 0
        for value in values:
            name = value.name
            if not name:
                self._texts[value] = f"%{number}"
                number += 1
                continue
            if name in taken:
                name = _fresh(name, given | taken)
            taken.add(name)
            self._texts[value] = "%" + (name if is_identifier(name) else quote_name(name))

    def __getitem__(self, value: Value) -> str:
        """`%name`; `%<undefined>` for a value that no op of the graph defines."""
        return self._texts.get(value) or f'%"<undefined {value.name}>"'


def _fresh(name: str, taken: set[str]) -> str:
    count = 1
    while f"{name}_{count}" in taken:
        count += 1
    return f"{name}_{count}"


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for op in graph.ops:
        for region in op.regions():
            yield from _values(region)
        yield from op.results


class _Printer:
    def __init__(self, found: MutableMapping[str, Array], locations: bool) -> None:
        self.found = found
        self.locations = locations
        self.names = Names(Graph())

    def graph(self, graph: Graph) -> str:
        self.names = Names(graph)
        outputs = ", ".join(
            f"{_output_text(graph.output_name(i))}: {v.type}" for i, v in enumerate(graph.outputs)
        )
        lines = [f"graph {_symbol(graph.name)}({self.parameters(graph)}) -> ({outputs}) {{"]
        lines += self.body(graph, "  ")
        lines.append("}")
        return "\n".join(lines)

    def parameters(self, graph: Graph) -> str:
        return ", ".join(f"{self.names[v]}: {v.type}" for v in graph.inputs)

    def body(self, graph: Graph, indent: str) -> list[str]:
        lines: list[str] = []
        for op in graph.ops:
            lines += self.op(op, indent)
        outputs = ", ".join(self.names[v] for v in graph.outputs)
        lines.append(f"{indent}return {outputs}".rstrip())
        return lines

    def op(self, op: Op, indent: str) -> list[str]:
        names = self.names
        results = ", ".join([f"{names[v]}: {v.type}" for v in op.results])
        line = f"{indent}{results} = " if results else indent
        line += f"{op.opname}({self.operands(op)})"
        attributes = self.attributes(op)
        if attributes:
            line += " " + _attributes(attributes, self.found)
        lines = [line]
        for spec in op.spec.regions:
            for region in _regions(getattr(op, spec.name)):
                lines[-1] += f" {spec.name}({self.parameters(region)}) {{"
                lines += self.body(region, indent + "  ")
                lines.append(indent + "}")
        if self.locations and op.loc.known:
            lines[-1] += f" loc({op.loc})"
        return lines

    def operands(self, op: Op) -> str:
        specs = op.spec.operands
        texts = [self.operand(getattr(op, f.name)) for f in specs]
        while texts and texts[-1] == _left_out(specs[len(texts) - 1]):
            texts.pop()
        return ", ".join(texts)

    def operand(self, held: Value | tuple[Value, ...] | None) -> str:
        if held is None:
            return "none"
        if isinstance(held, Value):
            return self.names[held]
        return "[" + ", ".join(self.names[v] for v in held) + "]"

    def attributes(self, op: Op) -> list[tuple[str, Attribute]]:
        out = [
            (f.name, value)
            for f in op.spec.attributes
            if not _is_default(f, value := getattr(op, f.name))
        ]
        return out if op.ipu is None else [*out, ("ipu", op.ipu)]


def _left_out(spec: FieldSpec) -> str | None:
    """The text of an operand at the end of the list that needs no printing."""
    if spec.kind is Kind.OPTIONAL and spec.default is None:
        return "none"
    return "[]" if spec.kind is Kind.LIST and spec.default == () else None


def _regions(held: Any) -> tuple[Graph, ...]:
    if held is None:
        return ()
    return (held,) if isinstance(held, Graph) else tuple(held)


def _is_default(spec: FieldSpec, value: Attribute) -> bool:
    """Same text, so that 0.0 and -0.0, 1 and True and 1.0 stay apart."""
    if isinstance(value, np.ndarray):
        return False
    default = spec.default
    if value is default:
        return True
    if type(value) is not type(default):
        return False
    return attribute_text(value) == attribute_text(default)


def _output_text(name: str) -> str:
    return name if is_identifier(name) else quote_name(name)
