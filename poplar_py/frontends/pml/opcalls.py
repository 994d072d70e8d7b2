"""Calls of model ops by name: `softmax(x, axis=1)`, `nn.softmax(x, axis=1)`.

Arguments without a name go to the fields of the op in the order of their declaration.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING
from functools import lru_cache
from typing import Any, cast

import poplar_py.ops
from poplar_py.diagnostics import TypeMismatch
from poplar_py.frontends.pml.values import (
    FreeDim,
    PmlValue,
    as_int,
    as_ints,
    as_shape,
    as_tensor,
    describe,
)
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import REGISTRY, FieldSpec, Kind, Op, Value
from poplar_py.types import DType

__all__ = ["call_op", "callable_ops"]

_NOT_CALLED = {"core.constant", "math.map"}


@lru_cache(maxsize=1)
def callable_ops() -> dict[str, type[Op]]:
    """Op classes by full name and by the part after the family. Ops with regions are left out."""
    assert poplar_py.ops  # the registry is full once this is imported
    found: dict[str, type[Op]] = {}
    short: dict[str, list[type[Op]]] = {}
    for name, cls in sorted(REGISTRY.items()):
        if cls.spec.regions or name in _NOT_CALLED:
            continue
        found[name] = cls
        short.setdefault(name.partition(".")[2], []).append(cls)
    found.update({name: classes[0] for name, classes in short.items() if len(classes) == 1})
    return found


def call_op(
    builder: Builder, cls: type[Op], args: tuple[PmlValue, ...], kwargs: dict[str, PmlValue]
) -> PmlValue:
    """Append the op; its result, or a list of its results. Raises TypeMismatch, ShapeError."""
    order = [f.name for f in dataclasses.fields(cls) if f.name not in ("loc", "ipu")]
    if len(args) > len(order):
        raise TypeMismatch(f"{cls.opname} takes {len(order)} arguments, not {len(args)}")
    given = dict(zip(order, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise TypeMismatch(f"argument {name} of {cls.opname} is given twice")
        if name not in order:
            raise TypeMismatch(
                f"{cls.opname} has no argument {name}", remedy=f"it takes {', '.join(order)}"
            )
        given[name] = value
    dtypes = tuple(t.dtype for t in map(_first_tensor, given.values()) if t is not None)
    fields: dict[str, Any] = {}
    for spec in (*cls.spec.operands, *cls.spec.attributes):
        if spec.name in given:
            fields[spec.name] = _field(spec, given[spec.name], builder, dtypes)
        elif spec.default is MISSING and spec.kind is not Kind.OPTIONAL:
            raise TypeMismatch(
                f"{cls.opname} needs the argument {spec.name}",
                remedy=f"it takes {', '.join(order)}",
            )
        elif spec.default is MISSING:
            fields[spec.name] = None
    made = builder.add_op(cls, **fields)
    return made.results[0] if len(made.results) == 1 else made.results


def _first_tensor(value: PmlValue) -> Value | None:
    if isinstance(value, tuple):
        return next((v for v in cast("tuple[Any, ...]", value) if isinstance(v, Value)), None)
    return value if isinstance(value, Value) else None


def _like(value: PmlValue, dtypes: tuple[DType, ...]) -> DType | None:
    """The element type that a number takes: that of the first tensor argument of its kind."""
    kinds = "b" if isinstance(value, bool) else "iuf" if isinstance(value, int) else "f"
    return next((d for d in dtypes if d.kind in kinds), dtypes[0] if dtypes else None)


def _field(spec: FieldSpec, value: PmlValue, builder: Builder, dtypes: tuple[DType, ...]) -> Any:
    if spec.kind is Kind.VALUE:
        return as_tensor(value, builder, _like(value, dtypes))
    if spec.kind is Kind.OPTIONAL:
        return None if value is None else as_tensor(value, builder, _like(value, dtypes))
    if spec.kind is Kind.LIST:
        if not isinstance(value, tuple):
            raise TypeMismatch(f"{spec.name} must be a list, not {describe(value)}")
        items = cast("tuple[PmlValue, ...]", value)
        return tuple(as_tensor(v, builder, _like(v, dtypes)) for v in items)
    return _attribute(spec, value)


_PLAIN: dict[str, tuple[type, str]] = {
    "bool": (bool, "true or false"),
    "str": (str, "a string"),
    "DType": (DType, "an element type"),
}


def _attribute(spec: FieldSpec, value: PmlValue) -> Any:
    kind = spec.annotation
    if kind == "int":
        return as_int(value, spec.name)
    if kind == "float":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeMismatch(f"{spec.name} must be a number, not {describe(value)}")
        return float(value)
    if kind == "tuple[int, ...]":
        return as_ints(value if isinstance(value, tuple) else (value,), spec.name)
    if kind == "Shape" or isinstance(value, FreeDim):
        return as_shape(value, spec.name)
    wanted, words = _PLAIN.get(kind, (object, "something else"))
    if not isinstance(value, wanted):
        raise TypeMismatch(f"{spec.name} must be {words}, not {describe(value)}")
    return value
