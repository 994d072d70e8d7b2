"""The model level: types, SSA core, text form, verifier."""

from __future__ import annotations

from poplar_py.ir.core import (
    COMMUTATIVE,
    ELEMENTWISE,
    LAYOUT,
    PURE,
    RANDOM,
    REGISTRY,
    Builder,
    Graph,
    Kind,
    Module,
    Op,
    Trait,
    Value,
    op,
)

__all__ = [
    "COMMUTATIVE",
    "ELEMENTWISE",
    "LAYOUT",
    "PURE",
    "RANDOM",
    "REGISTRY",
    "Builder",
    "Graph",
    "Kind",
    "Module",
    "Op",
    "Trait",
    "Value",
    "op",
]
