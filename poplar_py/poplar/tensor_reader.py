"""Reads the tensors of a tile-level text: variables and views of them."""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import (
    Location,
    ParseError,
    UnknownName,
)
from poplar_py.poplar.arrays import Ints
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.tile_tokens import MAX_DEPTH, Tokens
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.view_core import Dim, Runs, View
from poplar_py.poplar.views import Affine, Cat


class TensorReader:
    """Tokens, and the variables that were read so far."""

    def __init__(self, tokens: Tokens) -> None:
        self.t = tokens
        self.vars: dict[str, Variable] = {}
        self.graph: Graph = None  # type: ignore[assignment]

    def var_of(self) -> Variable:
        """The variable of the next token."""
        where = self.t.here()
        found = self.vars.get(self.t.variable())
        if found is None:
            raise UnknownName(f"variable {self.t.words[self.t.at - 1]} is not there", where)
        return found

    def tensor(self) -> Tensor:
        """A whole variable, or type and view."""
        t = self.t
        if t.kind == "var":
            v = self.var_of()
            return Tensor(self.graph, Affine.dense(v.base, v.shape), v.dtype)
        where = t.here()
        dtype, shape = t.sized_type()
        view = self.view()
        if view.shape != shape:
            raise ParseError(f"a view of shape {list(view.shape)} as {list(shape)}", where)
        for v in self.graph.variables_of(view):
            if v.dtype.size != dtype.size:
                raise ParseError(f"elements of {v.name!r} read as {dtype.name}", where)
        return Tensor(self.graph, view, dtype)

    def view(self) -> View:
        t = self.t
        where = t.here()
        if t.kind == "var":
            return self._affine(where)
        if t.take("empty"):
            shape = self._shape()
            if 0 not in shape:
                raise ParseError("an empty view has a dim of size 0", where)
            return Affine(0, tuple([((n, 1),) for n in shape]), shape)
        if t.take("runs"):
            return self._runs(where)
        t.want("cat")
        axis = t.integer(0, 64)
        t.want("(")
        t.depth += 1
        if t.depth > MAX_DEPTH:
            t.fail("nested too deeply")
        parts = [self.view()]
        while t.take(","):
            parts.append(self.view())
        t.want(")")
        t.depth -= 1
        first = parts[0].shape
        for p in parts:
            same = len(p.shape) == len(first) > axis
            if not same or p.shape[:axis] + p.shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
                raise ParseError("the parts of a joined view do not fit", where)
        return Cat(axis, parts)

    def _shape(self) -> tuple[int, ...]:
        t = self.t
        t.want("[")
        out: list[int] = []
        while not t.take("]"):
            out.append(t.integer(0, 1 << 40))
            t.take(",")
        return tuple(out)

    def _affine(self, where: Location) -> View:
        t = self.t
        v = self.var_of()
        t.want("+")
        offset = t.integer()
        dims: list[Dim] = []
        while t.take("("):
            dims.append(self._digits())
        reach = [(n - 1) * step for dim in dims for n, step in dim]
        low = offset + sum(min(0, r) for r in reach)
        high = offset + sum(max(0, r) for r in reach)
        if low < 0 or high >= v.size or any(n < 1 for d in dims for n, _ in d):
            raise ParseError(f"the view leaves variable {v.name!r}", where)
        return Affine(v.base + offset, tuple(dims))

    def _digits(self) -> Dim:
        """The digits of one dim behind its parenthesis: ``8x64, 16x1)``."""
        t = self.t
        digits: list[tuple[int, int]] = []
        while True:
            count = t.of_kind("dim", "COUNTxSTEP")[:-1]
            digits.append((int(count[:12]), t.integer()))
            if t.take(")"):
                return tuple(digits)
            t.want(",")

    def _runs(self, where: Location) -> View:
        t = self.t
        shape = self._shape()
        t.want("vars")
        ids = t.ints()
        t.want("at")
        start = t.sized_ints(len(ids), "starts")
        t.want("len")
        length = t.sized_ints(len(ids), "lengths")
        if int(length.sum()) != int(np.prod(shape, dtype=np.int64)):
            raise ParseError("the runs do not fill the shape", where)
        return Runs(shape, self.addresses(ids, start, length, where), length)

    def addresses(self, ids: Ints, start: Ints, extent: Ints, where: Location) -> Ints:
        """Global addresses of ranges within variables; ParseError where one leaves its variable."""
        count = len(self.graph.variables)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < count:
            raise UnknownName(f"variable number {int(ids.max())} is not there", where)
        bases = np.array([v.base for v in self.graph.variables], np.int64)
        sizes = np.array([v.size for v in self.graph.variables], np.int64)
        if bool(((start < 0) | (extent < 0) | (start + extent > sizes[ids])).any()):
            raise ParseError("elements outside their variable", where)
        return bases[ids] + start
