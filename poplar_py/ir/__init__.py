"""The model level: types, SSA core, text form, verifier."""

from __future__ import annotations

from poplar_py.ir.builder import Builder
from poplar_py.ir.core import (
    COMMUTATIVE,
    ELEMENTWISE,
    LAYOUT,
    PURE,
    RANDOM,
    REGISTRY,
    Graph,
    Kind,
    Module,
    Op,
    Trait,
    Value,
    op,
)
from poplar_py.ir.printer import collect_resources, print_graph, print_module, print_op
from poplar_py.ir.resources import load_pir, parse_module, save_pir
from poplar_py.ir.rewrite import clone_graph, clone_module, replace_values, use_counts, users
from poplar_py.ir.verifier import verify, verify_graph

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
    "clone_graph",
    "clone_module",
    "collect_resources",
    "load_pir",
    "op",
    "parse_module",
    "print_graph",
    "print_module",
    "print_op",
    "replace_values",
    "save_pir",
    "use_counts",
    "users",
    "verify",
    "verify_graph",
]
