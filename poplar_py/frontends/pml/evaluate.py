"""Expressions and types of `.pml` models."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import cast

from poplar_py.diagnostics import (
    Location,
    NestingTooDeep,
    ShapeError,
    TypeMismatch,
    UnknownName,
)
from poplar_py.frontends.pml import ast, operators
from poplar_py.frontends.pml.builtin_layout import slice_tensor
from poplar_py.frontends.pml.builtins import BUILTINS
from poplar_py.frontends.pml.opcalls import callable_ops
from poplar_py.frontends.pml.scope import Frame, located, similar
from poplar_py.frontends.pml.values import (
    BROKEN,
    Broken,
    FreeDim,
    PmlValue,
    as_int,
    describe,
)
from poplar_py.ir.builder import Builder
from poplar_py.ir.core import Graph, Value
from poplar_py.types import DTYPES, DType, TensorType

__all__ = ["Evaluator"]

_MAX_DEPTH = 4096

_NUMBERS = {"inf": math.inf, "nan": math.nan}
"""Names of numbers that have no digits; a model may give the names another meaning."""


class Evaluator(ABC):
    """Computes expressions; tensors are made by ops appended to `graph`."""

    def __init__(self, defs: Mapping[str, ast.Def]) -> None:
        self.defs = defs
        self.graph = Graph("main")
        self.builder = Builder(self.graph)
        self.depth = 0

    @abstractmethod
    def call(self, name: ast.Name, arguments: ast.Arguments, frame: Frame) -> PmlValue:
        """The value of a call."""

    def expression(self, node: ast.Expression, frame: Frame) -> PmlValue:
        """The value of an expression. Raises located errors, or Broken."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise NestingTooDeep("calls and expressions nest too deeply", node.loc)
        try:
            return self._dispatch(node, frame)
        finally:
            self.depth -= 1

    def _dispatch(self, node: ast.Expression, frame: Frame) -> PmlValue:
        if isinstance(node, ast.Literal):
            return node.value
        if isinstance(node, ast.Name):
            return self._lookup(node, frame)
        if isinstance(node, ast.Chain):
            return self._chain(node, frame)
        if isinstance(node, ast.Postfix):
            return self._postfix(node, frame)
        if isinstance(node, ast.ListOf):
            return tuple(self.expression(e, frame) for e in node.items)
        if isinstance(node, ast.Negate):
            operand = self.expression(node.operand, frame)
            return self._at(node.loc, lambda: operators.negate(self.builder, operand))
        left, right = self.expression(node.left, frame), self.expression(node.right, frame)
        operator = node.operator
        return self._at(node.loc, lambda: operators.binary(self.builder, operator, left, right))

    def _at(self, loc: Location, make: Callable[[], PmlValue]) -> PmlValue:
        """`make()` with ops and errors at `loc`."""
        self.builder.loc = loc
        with located(loc):
            return make()

    def _lookup(self, node: ast.Name, frame: Frame) -> PmlValue:
        if node.name in frame.names:
            value = frame.names[node.name]
            if value is BROKEN:
                raise Broken
            return value
        if node.name in DTYPES:
            return DTYPES[node.name]
        if node.name in _NUMBERS:
            return _NUMBERS[node.name]
        if node.name in self.defs or node.name in BUILTINS or node.name in callable_ops():
            raise TypeMismatch(f"{node.name} is a function: call it", node.loc)
        raise UnknownName(
            f"there is no value {node.name}", node.loc, similar(node.name, frame.names)
        )

    def _chain(self, node: ast.Chain, frame: Frame) -> PmlValue:
        left = self.expression(node.first, frame)
        for loc, operator, item in node.rest:
            right = self.expression(item, frame)
            self.builder.loc = loc
            with located(loc):
                left = operators.binary(self.builder, operator, left, right)
        return left

    def _postfix(self, node: ast.Postfix, frame: Frame) -> PmlValue:
        first, *rest = node.suffixes
        if isinstance(node.atom, ast.Name) and isinstance(first, ast.Call):
            value = self.call(node.atom, first.arguments, frame)
        else:
            rest = [first, *rest]
            value = self.expression(node.atom, frame)
        for suffix in rest:
            if isinstance(suffix, ast.Call):
                raise TypeMismatch(f"{describe(value)} cannot be called", node.loc)
            value = self._index(node.loc, value, suffix, frame)
        return value

    def _index(self, loc: Location, value: PmlValue, index: ast.Index, frame: Frame) -> PmlValue:
        items = tuple(self._index_item(i, frame) for i in index.items)
        if isinstance(value, Value):
            return self._at(loc, lambda: slice_tensor(self.builder, value, items))
        with located(loc):
            if not isinstance(value, tuple):
                raise TypeMismatch(f"{describe(value)} cannot be indexed")
            held = cast("tuple[PmlValue, ...]", value)
            if len(items) != 1:
                raise TypeMismatch("a list takes one index")
            if isinstance(items[0], tuple):
                begin, end = cast("tuple[PmlValue, PmlValue]", items[0])
                first = None if begin is None else as_int(begin, "an index")
                return held[first : None if end is None else as_int(end, "an index")]
            at = as_int(items[0], "an index")
            if not -len(held) <= at < len(held):
                raise ShapeError(f"index {at} of a list of {len(held)}")
            return held[at]

    def _index_item(self, item: ast.Expression | ast.Range, frame: Frame) -> PmlValue:
        if not isinstance(item, ast.Range):
            return self.expression(item, frame)
        begin = None if item.begin is None else self.expression(item.begin, frame)
        end = None if item.end is None else self.expression(item.end, frame)
        return (begin, end)

    # --- types

    def tensor_type(self, node: ast.TypeNode, frame: Frame) -> TensorType:
        """A tensor type whose dims are all known names."""
        dtype = self._dtype(node, frame)
        dims: list[int | str] = []
        for dim in node.dims or ():
            if not isinstance(dim, str):
                dims.append(self.dim(dim, frame))
            elif ast.ELLIPSIS in frame.names:
                dims.extend(frame.names[ast.ELLIPSIS])
            else:
                raise TypeMismatch("`...` stands for nothing here", node.loc)
        return TensorType(dtype, tuple(dims))

    def dim(self, node: ast.Expression, frame: Frame) -> int | str:
        value = self.expression(node, frame)
        if isinstance(value, FreeDim):
            return value.name
        with located(node.loc):
            size = as_int(value, "a dim")
            if size < 0:
                raise ShapeError(f"a dim of {size}")
        return size

    def _dtype(self, node: ast.TypeNode, frame: Frame) -> DType:
        found = DTYPES.get(node.name) or frame.names.get(node.name)
        if not isinstance(found, DType):
            raise UnknownName(
                f"there is no element type {node.name}",
                node.loc,
                remedy=f"the element types are {', '.join(DTYPES)}",
            )
        return found

    def check_result(self, result: ast.Result, value: Value, frame: Frame) -> None:
        wanted = self.tensor_type(result.type, frame)
        if value.type == wanted:
            return
        name = f"{result.name} " if result.name else ""
        raise ShapeError(f"the result {name}is {value.type}, declared as {wanted}", result.type.loc)
