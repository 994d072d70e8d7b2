"""`addCodelets` of PopLibs' libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poplar_py.poplar import Graph

__all__ = ["add_codelets"]


def add_codelets(graph: Graph) -> None:
    """Nothing to do: every graph knows the built-in codelets. For programs written for Poplar,
    which add those of each library they use."""
    del graph
