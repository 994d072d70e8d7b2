"""Calls: of functions of the file, which are expanded, of builtins, and of model ops."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import cast

from poplar_py.diagnostics import (
    DuplicateName,
    Location,
    NestingTooDeep,
    PoplarPyError,
    ShapeError,
    TypeMismatch,
    UnknownName,
)
from poplar_py.frontends.pml import ast
from poplar_py.frontends.pml.builtins import BUILTINS
from poplar_py.frontends.pml.evaluate import Evaluator
from poplar_py.frontends.pml.initialisers import INITIALISERS
from poplar_py.frontends.pml.opcalls import call_op, callable_ops
from poplar_py.frontends.pml.scope import Frame, called_at, checked_call, located, similar
from poplar_py.frontends.pml.values import (
    BROKEN,
    Broken,
    FreeDim,
    PmlValue,
    as_tensor,
    describe,
    dim_value,
)
from poplar_py.ir.core import Value
from poplar_py.types import DTYPES, DType

__all__ = ["MAX_CALLS", "Caller"]

MAX_CALLS = 256

PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int, FreeDim),
    "float": (float,),
    "bool": (bool,),
    "str": (str,),
    "list": (tuple,),
    "dtype": (DType,),
}


class Caller(Evaluator):
    """Evaluates calls; `calls` is the chain of functions being expanded."""

    def __init__(self, defs: Mapping[str, ast.Def]) -> None:
        super().__init__(defs)
        self.calls: list[tuple[str, Location]] = []

    @abstractmethod
    def block(self, block: ast.Block, frame: Frame) -> None:
        """Run the statements of a block."""

    def arguments(
        self, arguments: ast.Arguments, frame: Frame
    ) -> tuple[tuple[PmlValue, ...], dict[str, PmlValue]]:
        args = tuple(self.expression(e, frame) for e in arguments.positional)
        kwargs: dict[str, PmlValue] = {}
        for name, e in arguments.named:
            if name.name in kwargs:
                raise DuplicateName(f"argument {name.name} is given twice", name.loc)
            kwargs[name.name] = self.expression(e, frame)
        return args, kwargs

    def call(self, name: ast.Name, arguments: ast.Arguments, frame: Frame) -> PmlValue:
        if name.name in frame.names and frame.names[name.name] is not BROKEN:
            raise TypeMismatch(f"{describe(frame.names[name.name])} cannot be called", name.loc)
        args, kwargs = self.arguments(arguments, frame)
        called = self.defs.get(name.name)
        if called is not None:
            return self._call_def(called, name, args, kwargs, frame)
        self.builder.loc = name.loc
        with located(name.loc):
            function = BUILTINS.get(name.name)
            if function is not None:
                return checked_call(function, (self.builder, *args), kwargs, name.name)
            cls = callable_ops().get(name.name)
            if cls is not None:
                return call_op(self.builder, cls, args, kwargs)
            if name.name in INITIALISERS or name.name == "load":
                raise TypeMismatch(
                    f"{name.name} is for weights", remedy=f"param w: f32[...] = {name.name}(...)"
                )
            known = {**BUILTINS, **callable_ops(), **self.defs}
            raise UnknownName(
                f"there is no function {name.name}", name.loc, similar(name.name, known)
            )

    def _call_def(
        self,
        called: ast.Def,
        name: ast.Name,
        args: tuple[PmlValue, ...],
        kwargs: dict[str, PmlValue],
        frame: Frame,
    ) -> PmlValue:
        if any(called.name == other for other, _ in self.calls):
            chain = " -> ".join((*(other for other, _ in self.calls), called.name))
            raise NestingTooDeep(f"{called.name} calls itself: {chain}", name.loc)
        if len(self.calls) >= MAX_CALLS:
            raise NestingTooDeep(f"calls nest deeper than {MAX_CALLS}", name.loc)
        inner = Frame(frame.child_scope(called.name))
        self.calls.append((called.name, name.loc))
        try:
            self._bind(called, name.loc, args, kwargs, inner)
            self.block(called.body, inner)
            return self._results(called, inner)
        except PoplarPyError as error:
            if error.loc != name.loc:
                error.notes.append(called_at(called.name, name.loc))
            raise
        finally:
            self.calls.pop()

    def _bind(
        self,
        called: ast.Def,
        loc: Location,
        args: tuple[PmlValue, ...],
        kwargs: dict[str, PmlValue],
        inner: Frame,
    ) -> None:
        """Match arguments to parameters: plain ones first, then tensors, which bind dims."""
        names = [p.name for p in called.parameters]
        if len(args) > len(names):
            raise TypeMismatch(f"{called.name} takes {len(names)} arguments, not {len(args)}", loc)
        given = dict(zip(names, args, strict=False))
        for key, value in kwargs.items():
            if key not in names or key in given:
                why = "is given twice" if key in given else "is not one of its parameters"
                raise TypeMismatch(f"{called.name}: argument {key} {why}", loc)
            given[key] = value
        for p in called.parameters:
            if p.name not in given and p.default is None:
                raise TypeMismatch(f"{called.name} needs the argument {p.name}", loc)
        for p in called.parameters:
            if p.name not in given and p.default is not None:
                given[p.name] = self.expression(p.default, inner)
        tensors = [p for p in called.parameters if p.type is not None and p.type.dims is not None]
        for p in called.parameters:
            if p not in tensors:
                self._bind_plain(called, p, given[p.name], loc, inner)
        for p in tensors:
            self._bind_tensor(called, p, given[p.name], loc, inner)

    def _bind_plain(
        self, called: ast.Def, p: ast.Parameter, value: PmlValue, loc: Location, inner: Frame
    ) -> None:
        if p.type is not None:
            check = PLAIN_TYPES.get(p.type.name)
            if check is None:
                raise UnknownName(
                    f"there is no type {p.type.name}",
                    p.type.loc,
                    remedy=f"use {', '.join(PLAIN_TYPES)}, or a tensor type f32[...]",
                )
            if p.type.name == "float" and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if not isinstance(value, check) or (isinstance(value, bool) and bool not in check):
                raise TypeMismatch(
                    f"{called.name}: argument {p.name} must be {p.type.name}, not "
                    f"{describe(value)}",
                    loc,
                )
        inner.names[p.name] = value

    def _bind_tensor(
        self, called: ast.Def, p: ast.Parameter, value: PmlValue, loc: Location, inner: Frame
    ) -> None:
        node = cast("ast.TypeNode", p.type)
        dtype = DTYPES.get(node.name) or inner.names.get(node.name)
        like = dtype if isinstance(dtype, DType) else None
        with located(loc):
            tensor = as_tensor(value, self.builder, like)
        if like is None:
            inner.names[node.name] = tensor.dtype
        elif tensor.dtype is not like:
            raise TypeMismatch(
                f"{called.name}: argument {p.name} is {tensor.type}, declared with element type "
                f"{like}",
                loc,
            )
        self._bind_dims(called, p, tensor, loc, inner)
        inner.names[p.name] = tensor

    def _bind_dims(
        self, called: ast.Def, p: ast.Parameter, tensor: Value, loc: Location, inner: Frame
    ) -> None:
        declared = cast("ast.TypeNode", p.type).dims or ()
        shape = tensor.shape
        dots = [i for i, d in enumerate(declared) if isinstance(d, str)]
        if len(dots) > 1:
            raise TypeMismatch("a type has at most one `...`", p.loc)
        fits = len(shape) >= len(declared) - 1 if dots else len(shape) == len(declared)
        if not fits:
            raise ShapeError(
                f"{called.name}: argument {p.name} is {tensor.type}, declared with "
                f"{len(declared)} dims",
                loc,
            )
        if dots:
            at, end = dots[0], len(shape) - (len(declared) - 1 - dots[0])
            known = inner.names.setdefault(ast.ELLIPSIS, shape[at:end])
            if known != shape[at:end]:
                raise ShapeError(f"{called.name}: `...` of {p.name} differs: {tensor.type}", loc)
            pairs = [*zip(declared[:at], shape[:at], strict=True)]
            pairs += zip(declared[at + 1 :], shape[end:], strict=True)
        else:
            pairs = [*zip(declared, shape, strict=True)]
        for node, dim in pairs:
            if isinstance(node, ast.Name) and node.name not in inner.names:
                inner.names[node.name] = dim_value(dim)
        for node, dim in pairs:
            wanted = self.dim(cast("ast.Expression", node), inner)
            if wanted != dim:
                raise ShapeError(
                    f"{called.name}: argument {p.name} is {tensor.type}, dim {dim} should be "
                    f"{wanted}",
                    loc,
                )

    def _results(self, called: ast.Def, inner: Frame) -> PmlValue:
        values = inner.returned
        if values is None and called.results and all(r.name for r in called.results):
            values = tuple(self.named_output(r, inner) for r in called.results)
        if values is None:
            raise TypeMismatch(f"{called.name} returns nothing", called.loc)
        if any(v is BROKEN for v in values):
            raise Broken
        if called.results and len(values) != len(called.results):
            raise TypeMismatch(
                f"{called.name} declares {len(called.results)} results and returns {len(values)}",
                called.loc,
            )
        for result, value in zip(called.results, values, strict=False):
            if result.type.dims is None:
                continue
            if not isinstance(value, Value):
                raise TypeMismatch(f"a result is {describe(value)}, not a tensor", result.loc)
            self.check_result(result, value, inner)
        return values[0] if len(values) == 1 else values

    def named_output(self, result: ast.Result, frame: Frame) -> PmlValue:
        if not result.name:
            raise TypeMismatch(
                "a result without a name needs a `return`",
                result.loc,
                remedy="name it: y: f32[...]",
            )
        if result.name not in frame.names:
            raise UnknownName(f"the result {result.name} is never set", result.loc)
        return frame.names[result.name]
