"""Operands, attributes and regions of an op as text gives them, checked against its declaration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, cast

from lark import Token

from poplar_py.diagnostics import DuplicateName, Location, ParseError, TypeMismatch, UnknownName
from poplar_py.ir.core import FieldSpec, Graph, Kind, Op, Value

Given = tuple[Token, Any]
"""An attribute: its name in the text, its value."""

_WORDS = {
    Kind.VALUE: "one value",
    Kind.OPTIONAL: "one value or none",
    Kind.LIST: "a list of values",
}


def operand_fields(cls: type[Op], given: tuple[Any, ...], where: Location) -> dict[str, Any]:
    """Operands by field: absent ones have their default, `None` or an empty list."""
    specs = cls.spec.operands
    if len(given) > len(specs):
        raise ParseError(f"{cls.opname} takes {len(specs)} operands, not {len(given)}", where)
    fields: dict[str, Any] = {}
    for spec, held in zip(specs, given, strict=False):
        if not _fits(spec, held):
            raise ParseError(f"operand {spec.name} of {cls.opname} is {_WORDS[spec.kind]}", where)
        fields[spec.name] = held
    for spec in specs[len(given) :]:
        if spec.default is not MISSING:
            continue
        if spec.kind is Kind.VALUE:
            raise ParseError(f"{cls.opname} needs the operand {spec.name}", where)
        fields[spec.name] = () if spec.kind is Kind.LIST else None
    return fields


def _fits(spec: FieldSpec, held: Any) -> bool:
    if spec.kind is Kind.LIST:
        return isinstance(held, tuple) and all(isinstance(v, Value) for v in cast("Any", held))
    return isinstance(held, Value) or (held is None and spec.kind is Kind.OPTIONAL)


def attribute_fields(
    cls: type[Op], given: list[Given], where: Location, place: Callable[[Token], Location]
) -> dict[str, Any]:
    """Attributes by name; `place` gives the location of a token."""
    known = {f.name for f in cls.spec.attributes} | {"ipu"}
    fields: dict[str, Any] = {}
    for token, value in given:
        key = str(token)
        if key not in known:
            raise UnknownName(f"{cls.opname} has no attribute {key}", place(token))
        if key in fields:
            raise DuplicateName(f"attribute {key} is given twice", place(token))
        fields[key] = value
    for f in cls.spec.attributes:
        if f.default is MISSING and f.name not in fields:
            raise ParseError(f"{cls.opname} needs the attribute {f.name}", where)
    if not isinstance(fields.get("ipu"), (int, type(None))):
        raise TypeMismatch("ipu must be an integer", where)
    return fields


def region_fields(
    cls: type[Op], given: list[tuple[Token, Graph]], where: Location
) -> dict[str, Any]:
    """Regions by field: a graph, `None`, or a tuple of graphs."""
    fields: dict[str, Any] = {}
    for spec in cls.spec.regions:
        graphs = [g for token, g in given if token == spec.name]
        single = spec.kind is not Kind.GRAPHS
        if (single and len(graphs) > 1) or (spec.kind is Kind.GRAPH and not graphs):
            raise ParseError(f"{cls.opname} takes one region {spec.name}", where)
        fields[spec.name] = (graphs[0] if graphs else None) if single else tuple(graphs)
    names = {spec.name for spec in cls.spec.regions}
    for token, _ in given:
        if token not in names:
            raise UnknownName(f"{cls.opname} has no region {token}", where)
    return fields
