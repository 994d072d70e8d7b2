"""Appends ops to a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py.diagnostics import UNKNOWN, Location
from poplar_py.ir.core import REGISTRY, Graph, Op, OpT, Value
from poplar_py.types import DType


class Builder:
    """Appends ops to a graph with a current location and placement.

    b = Builder(graph, loc)
    y = b.add(Relu, x, name="y")
    """

    def __init__(self, graph: Graph, loc: Location = UNKNOWN, ipu: int | None = None) -> None:
        self.graph = graph
        self.loc = loc
        self.ipu = ipu

    def add_op(self, cls: type[OpT], *args: Any, name: str = "", **kwargs: Any) -> OpT:
        """Make an op (builder's loc and ipu unless given), append it, name its first result."""
        kwargs.setdefault("loc", self.loc)
        kwargs.setdefault("ipu", self.ipu)
        made = cls(*args, **kwargs)
        if name and made.results:
            made.results[0].name = name
        self.graph.ops.append(made)
        return made

    def add(self, cls: type[Op], *args: Any, name: str = "", **kwargs: Any) -> Value:
        """As add_op; gives the only result."""
        return self.add_op(cls, *args, name=name, **kwargs).result

    def constant(self, value: Any, name: str = "", dtype: DType | None = None) -> Value:
        """A `core.constant` of an array, or of a Python number with a dtype."""
        array = np.asarray(value, dtype=None if dtype is None else dtype.numpy)
        return self.add(REGISTRY["core.constant"], array, name=name)
