"""Walks ONNX graphs: names to values, nodes to rules, functions inlined, regions nested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from poplar_py.diagnostics import (
    DuplicateName,
    InputError,
    Location,
    NestingTooDeep,
    PoplarPyError,
    ShapeError,
    UnknownName,
    UnsupportedOp,
)
from poplar_py.frontends.onnx import protos
from poplar_py.frontends.onnx.bounded import lift
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import IMPORT, Node, Result
from poplar_py.frontends.onnx.proto import ProtoReader
from poplar_py.frontends.onnx.schemas import Attributes, function_of, with_defaults
from poplar_py.frontends.onnx.values import ABSENT, Absent, Bounded, Item, Seq, Strings, Val

__all__ = ["Importer", "Scope"]

_MAX_DEPTH = 48
_MAX_NODES = 100_000
_BLOCKED = "com.microsoft.nchwc"
"""Ops over layouts of one processor, which onnxruntime writes at its last level only."""

FunctionKey = tuple[str, str, str]


class Importer:
    """State of one import: the builder, the opsets, the model's own functions."""

    def __init__(self, model: protos.ModelProto, reader: ProtoReader) -> None:
        self.builder = Builder()
        self.reader = reader
        self.file = reader.file
        self.opsets = {_domain(o.domain): int(o.version) for o in model.opset_import}
        self.functions: dict[FunctionKey, protos.FunctionProto] = {
            (_domain(f.domain), f.name, f.overload): f for f in model.functions
        }
        self.budget = _MAX_NODES
        # Keyed by identity; the messages are kept so that identities stay unique.
        self.tensors: dict[int, tuple[protos.TensorProto, Val | Strings]] = {}
        self.captures: dict[int, tuple[protos.GraphProto, set[str]]] = {}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


class Scope:
    """Names visible at one place: those of a graph, then those of the graphs around it."""

    def __init__(
        self,
        importer: Importer,
        outer: Scope | None = None,
        opsets: Mapping[str, int] | None = None,
        attributes: Attributes | None = None,
        depth: int = 0,
        loc: Location | None = None,
    ) -> None:
        self.importer = importer
        self.builder = importer.builder
        self.outer = outer
        self.opsets = opsets if opsets is not None else importer.opsets
        self.attributes: Attributes = attributes if attributes is not None else {}
        self.depth = depth
        self.loc = loc
        self.names: dict[str, Item] = {}
        if depth > _MAX_DEPTH:
            raise NestingTooDeep(
                f"graphs and functions are nested deeper than {_MAX_DEPTH}", importer.builder.loc
            )

    def child(self) -> Scope:
        """A scope for a subgraph, which sees the names of this one."""
        return Scope(self.importer, self, self.opsets, self.attributes, self.depth + 1, self.loc)

    def lookup(self, name: str) -> Item | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def define(self, name: str, value: Item, loc: Location) -> None:
        if name in self.names:
            raise DuplicateName(f"the name {name!r} is given twice", loc)
        self.names[name] = value

    def known_tensor(self, proto: protos.TensorProto, loc: Location) -> Val | Strings:
        """A protos.TensorProto as a known value."""
        if proto.data_type == protos.TensorProto.STRING:
            texts = [s.decode("utf-8", "replace") for s in proto.string_data]
            return Strings(np.asarray(texts, dtype=object).reshape(tuple(proto.dims)))
        array, tag = self.importer.reader.array(proto, loc)
        val = self.builder.const(array, name=proto.name)
        val.tag = tag
        return val

    # graphs

    def add_initializers(self, graph: protos.GraphProto) -> None:
        file = self.importer.file
        for proto in graph.initializer:
            loc = Location(file, 0, 0, proto.name, -1, "")
            # the proto is kept beside its value: an id is unique only while its object lives
            cached = self.importer.tensors.get(id(proto))
            known = self.known_tensor(proto, loc) if cached is None else cached[1]
            self.importer.tensors[id(proto)] = proto, known
            self.define(proto.name, known, loc)
        for sparse in graph.sparse_initializer:
            loc = Location(file, 0, 0, sparse.values.name, -1, "")
            self.define(sparse.values.name, self.dense(sparse, loc), loc)

    def dense(self, sparse: protos.SparseTensorProto, loc: Location) -> Val:
        values, tag = self.importer.reader.array(sparse.values, loc)
        indices, _ = self.importer.reader.array(sparse.indices, loc)
        shape = tuple(int(d) for d in sparse.dims)
        size = int(np.prod(shape, dtype=object)) if shape else 1
        if tag or any(d < 0 for d in shape) or size > 1 << 28:
            raise InputError(f"sparse tensor of shape {list(shape)} is not supported", loc)
        dense = np.zeros(size, values.dtype)
        if indices.ndim == 2:
            indices = indices @ np.asarray(
                [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
            )
        if indices.size and (indices.min() < 0 or indices.max() >= size):
            raise InputError("a sparse tensor has an index out of range", loc)
        dense[indices] = values
        return self.builder.const(dense.reshape(shape), name=sparse.values.name)

    def run(self, nodes: Sequence[protos.NodeProto], outputs: Iterable[str]) -> None:
        """Import the nodes that `outputs` need, in order of definition."""
        for index in _order(nodes, set(outputs), self):
            self._run_node(nodes[index], index)

    def outputs(self, names: Iterable[str], what: str) -> list[Item]:
        out: list[Item] = []
        for name in names:
            found = self.lookup(name)
            if found is None:
                raise UnknownName(
                    f"{what} {name!r} is computed by no node", Location(self.importer.file, 0, 0)
                )
            out.append(found)
        return out

    def import_subgraph(self, graph: protos.GraphProto, args: Sequence[Item]) -> list[Item]:
        """Outputs of a body graph for given inputs, imported into the current block."""
        inner = self.child()
        loc = self.builder.loc
        if len(args) > len(graph.input):
            raise InputError(f"a body takes {len(graph.input)} inputs, not {len(args)}", loc)
        inner.add_initializers(graph)
        for info, arg in zip(graph.input, args, strict=False):
            inner.names[info.name] = arg
        names = [o.name for o in graph.output]
        inner.run(graph.node, names)
        self.builder.loc = loc
        return inner.outputs(names, "output")

    # nodes

    def _run_node(self, proto: protos.NodeProto, index: int) -> None:
        importer = self.importer
        importer.budget -= 1
        output = proto.output[0] if proto.output else ""
        loc = self.loc or Location(importer.file, 0, 0, proto.name, index, output)
        self.builder.loc = loc
        if importer.budget < 0:
            raise UnsupportedOp(f"more than {_MAX_NODES} nodes after unrolling", loc)
        try:
            results = self._dispatch(proto, loc)
        except PoplarPyError as error:
            if proto.op_type not in error.message:
                error.message = f"{proto.op_type}: {error.message}"
            raise error.at(loc) from None
        except MemoryError:
            raise ShapeError("a tensor is too large for this machine", loc) from None
        except RecursionError:
            raise NestingTooDeep("graphs are nested too deeply", loc) from None
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            raise InputError(
                f"{proto.op_type}: malformed node: {error}", loc, "check the node's operands"
            ) from error
        for name, value in zip(proto.output, results, strict=False):
            if not name:
                continue
            self.define(name, value, loc)
            if isinstance(value, Val) and value.value is not None and not value.value.name:
                value.value.name = name
        self.builder.loc = loc

    def _dispatch(self, proto: protos.NodeProto, loc: Location) -> Sequence[Item]:
        domain = _domain(proto.domain)
        inputs = [self._operand(name, loc) if name else None for name in proto.input]
        function = self.importer.functions.get((domain, proto.op_type, proto.overload))
        attributes = self._attributes(proto, loc)
        if function is not None:
            return self._inline(function, inputs, attributes, loc, proto.output)
        if domain not in self.opsets:
            if domain in ("", "com.microsoft"):
                raise InputError(f"the model imports no opset of the domain {domain!r}", loc)
            raise UnsupportedOp(f"no op {domain}.{proto.op_type} is known", loc)
        node = Node(
            proto.op_type,
            domain,
            self.opsets[domain],
            proto.name,
            loc,
            inputs,
            list(proto.output),
            attributes,
            self,
        )
        rule = IMPORT.get((domain, proto.op_type))
        if rule is not None:
            if any(isinstance(item, Bounded) for item in inputs):
                return lift(self.builder, node)
            return _listed(rule(self.builder, node))
        body = function_of(proto, node)
        attributes = with_defaults(node, attributes)
        if body is None:
            title = f"{domain}.{proto.op_type}" if domain else proto.op_type
            remedy = "save it with ORT_ENABLE_EXTENDED at most" if domain == _BLOCKED else ""
            raise UnsupportedOp(f"{title} (opset {node.version}) is not supported", loc, remedy)
        return self._inline(body, inputs, attributes, loc, proto.output)

    def _operand(self, name: str, loc: Location) -> Item:
        found = self.lookup(name)
        if found is None:
            raise UnknownName(f"input {name!r} is computed by no node before", loc)
        return found

    def _attributes(
        self, proto: protos.NodeProto, loc: Location
    ) -> dict[str, protos.AttributeProto]:
        out: dict[str, protos.AttributeProto] = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                given = self.attributes.get(attribute.ref_attr_name)
                if given is not None:
                    out[attribute.name] = given
                continue
            if attribute.name in out:
                raise DuplicateName(f"attribute {attribute.name!r} is given twice", loc)
            out[attribute.name] = attribute
        return out

    # functions

    def _inline(
        self,
        function: protos.FunctionProto,
        inputs: Sequence[Item | None],
        attributes: Attributes,
        loc: Location,
        outputs: Sequence[str],
    ) -> list[Item]:
        defaults = {a.name: a for a in function.attribute_proto}
        opsets = {_domain(o.domain): int(o.version) for o in function.opset_import}
        opsets = {**self.opsets, **opsets}
        inner = Scope(self.importer, None, opsets, {**defaults, **attributes}, self.depth + 1, loc)
        if len(inputs) > len(function.input):
            raise InputError(f"the function takes {len(function.input)} inputs", loc)
        for i, name in enumerate(function.input):
            given = inputs[i] if i < len(inputs) else None
            inner.names[name] = ABSENT if given is None else given
        wanted = [f for f, name in zip(function.output, outputs, strict=False) if name]
        inner.run(function.node, wanted)
        found = dict(zip(wanted, inner.outputs(wanted, "function output"), strict=True))
        return [found.get(name, ABSENT) for name in function.output]


def _listed(result: Result) -> Sequence[Item]:
    return [result] if isinstance(result, Val | Seq | Strings | Absent | Bounded) else result


def _order(nodes: Sequence[protos.NodeProto], wanted: set[str], scope: Scope) -> list[int]:
    """Nodes the wanted names need, definitions before uses. Raises InputError on a cycle."""
    producer = _producers(nodes, scope)
    reads = [_reads(node, scope.importer) for node in nodes]
    done: dict[int, bool] = {}  # False: its operands are on the way
    order: list[int] = []
    stack = [(r, False) for r in sorted({producer[n] for n in wanted if n in producer})[::-1]]
    while stack:
        i, leave = stack.pop()
        if leave:
            done[i] = True
            order.append(i)
        if i in done:
            continue
        done[i] = False
        stack.append((i, True))
        needed = [(producer[name], name) for name in reads[i] if name in producer]
        for j, name in needed:
            if done.get(j) is False:
                loc = Location(scope.importer.file, 0, 0, nodes[j].name, j, name)
                raise InputError(f"the graph has a cycle through {name!r}", loc, "remove the cycle")
        stack.extend((j, False) for j, _ in needed if j not in done)
    in_order = all(producer.get(name, -1) < i for i in order for name in reads[i])
    return sorted(order) if in_order else order


def _producers(nodes: Sequence[protos.NodeProto], scope: Scope) -> dict[str, int]:
    """Number of the node that computes each name."""
    found: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.output:
            if name and found.setdefault(name, i) != i:
                loc = Location(scope.importer.file, 0, 0, node.name, i, name)
                raise DuplicateName(f"the name {name!r} is computed twice", loc)
    return found


def _reads(node: protos.NodeProto, importer: Importer) -> list[str]:
    """Names a node reads, those of its subgraphs included."""
    names = [n for n in node.input if n]
    for attribute in node.attribute:
        if attribute.type == protos.AttributeProto.GRAPH:
            names.extend(_captured(attribute.g, importer, 0))
    return names


def _captured(graph: protos.GraphProto, importer: Importer, depth: int) -> set[str]:
    """Names a subgraph takes from around it."""
    kept = importer.captures.get(id(graph))
    if kept is not None:
        return kept[1]
    if depth > _MAX_DEPTH:
        raise NestingTooDeep(f"graphs are nested deeper than {_MAX_DEPTH}")
    used: set[str] = {o.name for o in graph.output}
    own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    for node in graph.node:
        used.update(n for n in node.input if n)
        own.update(node.output)
        for attribute in node.attribute:
            if attribute.type == protos.AttributeProto.GRAPH:
                used |= _captured(attribute.g, importer, depth + 1)
    found = used - own
    importer.captures[id(graph)] = (graph, found)
    return found
