"""The model level: values, ops, graphs, modules, and the `@op` declaration.

An op is one short class:

    @op("nn.relu", PURE)
    class Relu(Op):
        "y = max(x, 0)."
        x: Value

        def infer(self) -> TensorType:
            return self.x.type

Fields annotated `Value`, `Value | None` or `tuple[Value, ...]` are operands; `Graph`,
`Graph | None` or `tuple[Graph, ...]` are regions; all others are attributes. `Relu(x, loc=loc)`
makes the results from `infer()`. Printer, parser, builder and verifier need nothing more.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from poplar_py.diagnostics import UNKNOWN, Location, PoplarPyError, UnknownName
from poplar_py.types import DType, TensorType

__all__ = [
    "COMMUTATIVE",
    "ELEMENTWISE",
    "LAYOUT",
    "PURE",
    "RANDOM",
    "REGISTRY",
    "Attribute",
    "FieldSpec",
    "Graph",
    "Kind",
    "Module",
    "Op",
    "OpSpec",
    "Trait",
    "Value",
    "op",
]


class Trait(enum.Enum):
    """What passes may assume about an op."""

    PURE = "pure"  # no effect but its results; equal operands give equal results
    COMMUTATIVE = "commutative"  # its first two operands may be swapped
    ELEMENTWISE = "elementwise"  # result element i depends on operand elements i (broadcast)
    LAYOUT = "layout"  # moves no value: a view of its operand can stand for the result
    RANDOM = "random"  # draws numbers: never folded, never merged


PURE = Trait.PURE
COMMUTATIVE = Trait.COMMUTATIVE
ELEMENTWISE = Trait.ELEMENTWISE
LAYOUT = Trait.LAYOUT
RANDOM = Trait.RANDOM


class Kind(enum.Enum):
    """What a field of an op holds."""

    VALUE = "Value"
    OPTIONAL = "Value | None"
    LIST = "tuple[Value, ...]"
    GRAPH = "Graph"
    OPTIONAL_GRAPH = "Graph | None"
    GRAPHS = "tuple[Graph, ...]"
    ATTRIBUTE = "attribute"


_KINDS = {kind.value.replace(" ", ""): kind for kind in Kind if kind is not Kind.ATTRIBUTE}
_REGIONS = (Kind.GRAPH, Kind.OPTIONAL_GRAPH, Kind.GRAPHS)


class Value:
    """A tensor computed by an op or given to a graph. Compared by identity.

    `name` is for people and for the text form; "" prints as a number. `origin` is where an input is
    declared; what an op computes is where the op is.
    """

    __slots__ = ("index", "name", "origin", "owner", "type")

    def __init__(
        self,
        type: TensorType,
        name: str = "",
        owner: Op | None = None,
        index: int = 0,
        origin: Location = UNKNOWN,
    ) -> None:
        self.type = type
        self.name = name
        self.owner = owner
        self.index = index
        self.origin = origin

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int | str, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    @property
    def loc(self) -> Location:
        return self.origin if self.owner is None else self.owner.loc

    def __repr__(self) -> str:
        return f"%{self.name or id(self)}: {self.type}"


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One declared field of an op. `default` is `dataclasses.MISSING` where it has none."""

    name: str
    kind: Kind
    annotation: str
    default: Any = MISSING


@dataclass(frozen=True)
class OpSpec:
    """What the decorator found out about an op class."""

    name: str
    traits: frozenset[Trait]
    operands: tuple[FieldSpec, ...]
    regions: tuple[FieldSpec, ...]
    attributes: tuple[FieldSpec, ...]


REGISTRY: dict[str, type[Op]] = {}

Attribute = Any  # int, float, bool, str, DType, TensorType, ndarray, None, or tuples of these


T = TypeVar("T")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def _declare(cls: type[T]) -> type[T]:
    return dataclass(eq=False, repr=False)(cls)


_NO_SPEC = OpSpec("", frozenset(), (), (), ())


@_declare
class Op:
    """Base of all ops. `loc` is where it comes from, `ipu` where `on ipu N` placed it."""

    spec: ClassVar[OpSpec] = _NO_SPEC
    opname: ClassVar[str] = ""

    loc: Location = field(default=UNKNOWN, kw_only=True)
    ipu: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        types = self.infer_types()
        self.results: tuple[Value, ...] = tuple(Value(t, "", self, i) for i, t in enumerate(types))

    def infer(self) -> TensorType | tuple[TensorType, ...]:
        """Result types from operands and attributes. Raises ShapeError or TypeMismatch."""
        raise TypeError(f"{type(self).__name__} declares no infer()")

    def infer_types(self) -> tuple[TensorType, ...]:
        """`infer()` as a tuple; an error gets this op's name and location."""
        try:
            types = self.infer()
        except PoplarPyError as error:
            if not error.loc.known:
                error.message = f"{self.opname}: {error.message}"
            error.at(self.loc)
            raise
        return (types,) if isinstance(types, TensorType) else tuple(types)

    def reinfer(self) -> bool:
        """Infer again after operands changed; whether a result type changed."""
        types = self.infer_types()
        changed = False
        for value, new in zip(self.results, types, strict=True):
            changed = changed or value.type != new
            value.type = new
        return changed

    @property
    def result(self) -> Value:
        """The only result."""
        if len(self.results) != 1:
            raise ValueError(f"{self.opname} has {len(self.results)} results")
        return self.results[0]

    def operands(self) -> tuple[Value, ...]:
        """All operand values in field order; absent optional ones are left out."""
        out: list[Value] = []
        for f in self.spec.operands:
            held = getattr(self, f.name)
            if isinstance(held, Value):
                out.append(held)
            elif held is not None:
                out.extend(held)
        return tuple(out)

    def map_operands(self, fn: Callable[[Value], Value]) -> None:
        """Replace every operand by `fn(operand)`, in place."""
        for f in self.spec.operands:
            held = getattr(self, f.name)
            if isinstance(held, Value):
                setattr(self, f.name, fn(held))
            elif held is not None:
                setattr(self, f.name, tuple(fn(v) for v in held))

    def regions(self) -> tuple[Graph, ...]:
        """All region graphs in field order."""
        out: list[Graph] = []
        for f in self.spec.regions:
            held = getattr(self, f.name)
            if isinstance(held, Graph):
                out.append(held)
            elif held is not None:
                out.extend(held)
        return tuple(out)

    def attributes(self) -> dict[str, Attribute]:
        """All attributes by name, defaults included."""
        return {f.name: getattr(self, f.name) for f in self.spec.attributes}

    def has(self, trait: Trait) -> bool:
        return trait in self.spec.traits

    def __repr__(self) -> str:
        results = ", ".join(map(repr, self.results))
        return f"{results} = {self.opname}({', '.join(map(repr, self.operands()))})"


OpT = TypeVar("OpT", bound=Op)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def op(name: str, *traits: Trait) -> Callable[[type[OpT]], type[OpT]]:
    """Declare an op class under `name` ("family.verb") and enter it in REGISTRY."""

    def declare(cls: type[OpT]) -> type[OpT]:
        if name in REGISTRY:
            raise ValueError(f"op {name} is declared twice")
        made = _declare(cls)
        made.opname = name
        made.spec = _spec_of(made, name, frozenset(traits))
        REGISTRY[name] = made
        return made

    return declare


def _spec_of(cls: type[Op], name: str, traits: frozenset[Trait]) -> OpSpec:
    specs: list[FieldSpec] = []
    for f in fields(cls):
        if f.name in ("loc", "ipu"):
            continue
        text = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type))
        kind = _KINDS.get(text.replace(" ", "").strip("\"'"), Kind.ATTRIBUTE)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        specs.append(FieldSpec(f.name, kind, text, default))
    operands = tuple(s for s in specs if s.kind in (Kind.VALUE, Kind.OPTIONAL, Kind.LIST))
    regions = tuple(s for s in specs if s.kind in _REGIONS)
    attributes = tuple(s for s in specs if s.kind is Kind.ATTRIBUTE)
    return OpSpec(name, traits, operands, regions, attributes)


class Graph:
    """Inputs, ops in an order where definitions come before uses, and outputs.

    Also the form of regions (bodies of `core.if`, `core.loop`), which may use values of the graphs
    around them. `output_names` names the outputs of a model; where it is shorter than `outputs`,
    an output is called as its value.
    """

    def __init__(
        self,
        name: str = "",
        inputs: Sequence[Value] = (),
        ops: Sequence[Op] = (),
        outputs: Sequence[Value] = (),
        output_names: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.inputs: list[Value] = list(inputs)
        self.ops: list[Op] = list(ops)
        self.outputs: list[Value] = list(outputs)
        self.output_names: list[str] = list(output_names)

    def add_input(self, type: TensorType, name: str = "", origin: Location = UNKNOWN) -> Value:
        value = Value(type, name, None, len(self.inputs), origin)
        self.inputs.append(value)
        return value

    def append(self, op: OpT) -> OpT:
        self.ops.append(op)
        return op

    def add_output(self, value: Value, name: str = "") -> None:
        self.output_names = [self.output_name(i) for i in range(len(self.outputs))]
        self.outputs.append(value)
        self.output_names.append(name or value.name)

    def output_name(self, index: int) -> str:
        """The name of an output: its own, else its value's, else `output<index>`."""
        if index < len(self.output_names) and self.output_names[index]:
            return self.output_names[index]
        return self.outputs[index].name or f"output{index}"

    def walk(self) -> Iterator[Op]:
        """All ops, those in regions right after the op that holds the region."""
        for node in self.ops:
            yield node
            for region in node.regions() if node.spec.regions else ():
                yield from region.walk()

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.inputs)} inputs, {len(self.ops)} ops)"


class Module:
    """A model: its graphs (the one to run is `main`), array resources and metadata.

    `resources` maps a content hash (see ir.resources) to an array that text refers to. `metadata`
    holds attributes of the whole model (producer, opset, ...), printed in the header.
    """

    level: ClassVar[str] = "model"

    def __init__(
        self,
        name: str = "main",
        graphs: Sequence[Graph] = (),
        resources: dict[str, np.ndarray] | None = None,
        metadata: dict[str, Attribute] | None = None,
    ) -> None:
        self.name = name
        self.graphs: dict[str, Graph] = {g.name: g for g in graphs}
        self.resources: dict[str, np.ndarray] = dict(resources or {})
        self.metadata: dict[str, Attribute] = dict(metadata or {})

    @property
    def main(self) -> Graph:
        """The graph called `main`, else the only graph."""
        if "main" in self.graphs:
            return self.graphs["main"]
        if len(self.graphs) == 1:
            return next(iter(self.graphs.values()))
        raise UnknownName(f"module {self.name} has no graph called main")

    def add_graph(self, graph: Graph) -> Graph:
        self.graphs[graph.name] = graph
        return graph

    @property
    def free_dims(self) -> tuple[str, ...]:
        """Free dims of the inputs of `main`, in order of first appearance."""
        dims = (d for v in self.main.inputs for d in v.type.free_dims)
        return tuple(dict.fromkeys(dims))

    def walk(self) -> Iterator[Op]:
        for graph in self.graphs.values():
            yield from graph.walk()
