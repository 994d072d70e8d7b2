"""The error of the vertex language, and places in its sources."""

from __future__ import annotations

import ast

from poplar_py.diagnostics import Location, PoplarPyError

__all__ = ["BUILTIN", "CodeletError", "InstanceError", "place"]

BUILTIN = "builtin/"
"""Begins the file names of the codelets that come with the package."""


class CodeletError(PoplarPyError):
    """A codelet source that is wrong, or uses what the vertex language does not have."""

    code = "codelet-error"


class InstanceError(CodeletError):
    """A name of an instance whose parameters do not fit its class."""


def place(file: str, node: ast.AST) -> Location:
    """The place of a syntax node: file, line and column, 1-based."""
    return Location(file, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
