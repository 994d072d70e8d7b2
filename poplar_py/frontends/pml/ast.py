"""The syntax tree of a `.pml` file. Every node knows where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

from poplar_py.diagnostics import Location

__all__ = [
    "ELLIPSIS",
    "Arguments",
    "Assignment",
    "Block",
    "Call",
    "Chain",
    "Compare",
    "Def",
    "Expression",
    "File",
    "Import",
    "Index",
    "ListOf",
    "Literal",
    "Model",
    "Name",
    "Negate",
    "On",
    "Parameter",
    "Postfix",
    "Range",
    "Repeat",
    "Result",
    "Return",
    "Statement",
    "TypeNode",
    "Weight",
]


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, string, bool or none."""

    loc: Location
    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Name:
    loc: Location
    name: str


@dataclass(frozen=True, slots=True)
class ListOf:
    loc: Location
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Negate:
    loc: Location
    operand: Expression


@dataclass(frozen=True, slots=True)
class Chain:
    """`first op item op item ...`, from left to right, operators of one precedence."""

    loc: Location
    first: Expression
    rest: tuple[tuple[Location, str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Compare:
    loc: Location
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Arguments:
    positional: tuple[Expression, ...] = ()
    named: tuple[tuple[Name, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Range:
    """`begin:end` inside an index; absent ends are the ends of the axis."""

    begin: Expression | None
    end: Expression | None


@dataclass(frozen=True, slots=True)
class Index:
    items: tuple[Expression | Range, ...]


@dataclass(frozen=True, slots=True)
class Postfix:
    """`atom(...)[...]...`, applied from left to right."""

    loc: Location
    atom: Expression
    suffixes: tuple[Call | Index, ...]


Expression = Literal | Name | ListOf | Negate | Chain | Compare | Postfix

ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class TypeNode:
    """`f32[n, 2]` (dims given), `int`, `str`, ... (dims None). A dim may be `...`."""

    loc: Location
    name: str
    dims: tuple[Expression | str, ...] | None


@dataclass(frozen=True, slots=True)
class Parameter:
    loc: Location
    name: str
    type: TypeNode | None
    default: Expression | None


@dataclass(frozen=True, slots=True)
class Result:
    loc: Location
    name: str
    type: TypeNode


@dataclass(frozen=True, slots=True)
class Assignment:
    loc: Location
    targets: tuple[Name, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """`param name: type = initialiser`."""

    loc: Location
    name: str
    type: TypeNode
    value: Expression


@dataclass(frozen=True, slots=True)
class Return:
    loc: Location
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Block:
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class On:
    loc: Location
    ipu: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class Repeat:
    loc: Location
    count: Expression
    counter: str
    body: Block


Statement = Assignment | Weight | Return | On | Repeat


@dataclass(frozen=True, slots=True)
class Import:
    loc: Location
    path: str


@dataclass(frozen=True, slots=True)
class Def:
    """A function; `results` is empty when its types are not declared."""

    loc: Location
    name: str
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: Block


@dataclass(frozen=True, slots=True)
class Model:
    loc: Location
    name: str
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: Block


@dataclass(slots=True)
class File:
    """One parsed file. `defs` gets those of imported files too (see load)."""

    path: str
    imports: list[Import] = field(default_factory=list[Import])
    defs: list[Def] = field(default_factory=list[Def])
    models: list[Model] = field(default_factory=list[Model])
