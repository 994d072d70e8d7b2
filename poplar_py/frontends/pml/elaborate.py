"""Runs a `.pml` model while it is built: the syntax tree becomes a graph.

Function calls are expanded, `repeat` is unrolled, weights become constants called
`function.weight` (`function_1.weight` at the second call). A statement that fails is reported and
the names it was to set are poisoned, so that one run tells several independent errors.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from poplar_py.diagnostics import (
    DuplicateName,
    ErrorList,
    Location,
    NestingTooDeep,
    PoplarPyError,
    ShapeError,
    TypeMismatch,
    UnknownName,
)
from poplar_py.frontends.pml import ast, operators
from poplar_py.frontends.pml.builtins import BUILTINS, slice_tensor
from poplar_py.frontends.pml.initialisers import INITIALISERS, Request, constant
from poplar_py.frontends.pml.opcalls import call_op, callable_ops
from poplar_py.frontends.pml.values import (
    BROKEN,
    Broken,
    FreeDim,
    PmlValue,
    as_int,
    as_tensor,
    describe,
    dim_value,
)
from poplar_py.frontends.pml.weights import load_weight
from poplar_py.ir.core import Builder, Graph, Module, Value
from poplar_py.types import DTYPES, DType, TensorType

__all__ = ["MAX_CALLS", "MAX_STEPS", "elaborate"]

MAX_CALLS = 256
MAX_STEPS = 100_000
"""Ops and statements of one model: a limit against `repeat` inside `repeat`."""
_MAX_DEPTH = 4096
_RECURSION_LIMIT = 60_000


def elaborate(model: ast.Model, defs: Mapping[str, ast.Def], dims: Mapping[str, int]) -> Module:
    """The module of a model; `dims` gives sizes for free dims. Raises located errors."""
    with _deep_recursion():
        return _Elaborator(defs).model(model, dims)


@contextmanager
def _deep_recursion() -> Generator[None]:
    """Room for 256 nested calls of 256 nested expressions; pure Python frames use no C stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@dataclass
class _Frame:
    """One running function: its names, and how its weights and values are called."""

    scope: str
    names: dict[str, PmlValue] = field(default_factory=dict[str, PmlValue])
    children: dict[str, int] = field(default_factory=dict[str, int])
    weights: set[str] = field(default_factory=set[str])
    returned: tuple[PmlValue, ...] | None = None
    repeats: int = 0

    def full_name(self, name: str) -> str:
        return f"{self.scope}.{name}" if self.scope else name

    def child_scope(self, name: str) -> str:
        """`name` the first time, then `name_1`, `name_2`, ..."""
        count = self.children.get(name, 0)
        self.children[name] = count + 1
        return self.full_name(f"{name}_{count}" if count else name)


class _Elaborator:
    def __init__(self, defs: Mapping[str, ast.Def]) -> None:
        self.defs = defs
        self.steps = 0
        self.graph = Graph("main")
        self.builder = Builder(self.graph)
        self.errors = ErrorList()
        self.told: set[tuple[Location, str]] = set()
        self.calls: list[tuple[str, Location]] = []
        self.depth = 0
        self.dim_sizes: Mapping[str, int] = {}

    # --- models

    def model(self, model: ast.Model, dims: Mapping[str, int]) -> Module:
        self.dim_sizes = dims
        frame = _Frame("")
        for parameter in model.parameters:
            with self._reporting():
                self._input(parameter, frame)
        self._block(model.body, frame)
        self.errors.raise_if_any()
        with self._reporting():
            self._model_outputs(model, frame)
        self.errors.raise_if_any()
        return Module(model.name, [self.graph])

    def _input(self, parameter: ast.Parameter, frame: _Frame) -> None:
        node = parameter.type
        if node is None or node.dims is None or node.name not in DTYPES:
            raise TypeMismatch(
                f"input {parameter.name} of a model needs a tensor type",
                parameter.loc,
                remedy=f"write {parameter.name}: f32[batch, 16]",
            )
        if parameter.default is not None:
            raise TypeMismatch("an input of a model has no default", parameter.loc)
        if parameter.name in frame.names:
            raise DuplicateName(f"there are two inputs {parameter.name}", parameter.loc)
        for dim in node.dims:
            if isinstance(dim, ast.Name) and dim.name not in frame.names:
                size = self.dim_sizes.get(dim.name)
                frame.names[dim.name] = FreeDim(dim.name) if size is None else size
        type = self._type(node, frame)
        frame.names[parameter.name] = self.graph.add_input(type, parameter.name)

    def _model_outputs(self, model: ast.Model, frame: _Frame) -> None:
        results = model.results
        values = frame.returned
        if values is None:
            values = tuple(self._named_output(r, frame) for r in results)
        if len(values) != len(results):
            raise TypeMismatch(
                f"model {model.name} declares {len(results)} results and returns {len(values)}",
                model.loc,
            )
        for index, (result, value) in enumerate(zip(results, values, strict=True)):
            if not isinstance(value, Value):
                raise TypeMismatch(f"result {index} is {describe(value)}, not a tensor", result.loc)
            self._check_result(result, value, frame)
            self.graph.add_output(value, result.name or f"output{index}")
        names = self.graph.output_names
        if len(set(names)) != len(names):
            raise DuplicateName(f"two results of model {model.name} have one name", model.loc)

    def _named_output(self, result: ast.Result, frame: _Frame) -> PmlValue:
        if not result.name:
            raise TypeMismatch(
                "a result without a name needs a `return`",
                result.loc,
                remedy="name it: y: f32[...]",
            )
        if result.name not in frame.names:
            raise UnknownName(f"the result {result.name} is never set", result.loc)
        return frame.names[result.name]

    # --- types

    def _type(self, node: ast.TypeNode, frame: _Frame) -> TensorType:
        """A tensor type whose dims are all known names."""
        dtype = self._dtype(node, frame)
        dims: list[int | str] = []
        for dim in node.dims or ():
            if isinstance(dim, str):
                rest = frame.names.get(ast.ELLIPSIS)
                if rest is None:
                    raise TypeMismatch("`...` stands for nothing here", node.loc)
                dims.extend(rest)
                continue
            dims.append(self._dim(dim, frame))
        return TensorType(dtype, tuple(dims))

    def _dim(self, node: ast.Expression, frame: _Frame) -> int | str:
        value = self.expression(node, frame)
        if isinstance(value, FreeDim):
            return value.name
        with located(node.loc):
            size = as_int(value, "a dim")
            if size < 0:
                raise ShapeError(f"a dim of {size}")
        return size

    def _dtype(self, node: ast.TypeNode, frame: _Frame) -> DType:
        found = DTYPES.get(node.name) or frame.names.get(node.name)
        if not isinstance(found, DType):
            raise UnknownName(
                f"there is no element type {node.name}",
                node.loc,
                remedy=f"the element types are {', '.join(DTYPES)}",
            )
        return found

    def _check_result(self, result: ast.Result, value: Value, frame: _Frame) -> None:
        wanted = self._type(result.type, frame)
        if value.type == wanted:
            return
        name = f"{result.name} " if result.name else ""
        raise ShapeError(f"the result {name}is {value.type}, declared as {wanted}", result.type.loc)

    # --- statements

    @contextmanager
    def _reporting(self) -> Generator[None]:
        """Errors are kept (each once) and end the statement, not the run."""
        try:
            yield
        except Broken:
            pass
        except _TooLarge:
            raise
        except PoplarPyError as error:
            if (error.loc, error.message) not in self.told:
                self.told.add((error.loc, error.message))
                error.notes += [_called_at(*call) for call in reversed(self.calls)]
                self.errors.add(error)

    def _block(self, block: ast.Block, frame: _Frame) -> None:
        for statement in block.statements:
            if frame.returned is not None:
                return
            self._statement(statement, frame)

    def _statement(self, statement: ast.Statement, frame: _Frame) -> None:
        poisoned = _targets(statement)
        count = len(self.errors)
        ok = False
        with self._reporting():
            self._run(statement, frame)
            ok = True
        if not ok:
            frame.names.update(dict.fromkeys(poisoned, BROKEN))
            if isinstance(statement, ast.Return):
                frame.returned = (BROKEN,)
        self.steps += 1
        if self.steps + len(self.graph.ops) > MAX_STEPS:
            raise _TooLarge(f"the model has more than {MAX_STEPS} ops and steps", statement.loc)
        if self.calls and len(self.errors) > count:
            raise Broken  # the caller's result is of no use

    def _run(self, statement: ast.Statement, frame: _Frame) -> None:
        if isinstance(statement, ast.Assignment):
            self._assignment(statement, frame)
        elif isinstance(statement, ast.Weight):
            self._weight(statement, frame)
        elif isinstance(statement, ast.Return):
            if frame.repeats:
                raise TypeMismatch("`return` inside `repeat`", statement.loc)
            frame.returned = tuple(self.expression(e, frame) for e in statement.values)
            if len(frame.returned) == 1 and isinstance(frame.returned[0], tuple):
                frame.returned = cast("tuple[PmlValue, ...]", frame.returned[0])
        elif isinstance(statement, ast.On):
            self._on(statement, frame)
        else:
            self._repeat(statement, frame)

    def _assignment(self, statement: ast.Assignment, frame: _Frame) -> None:
        values = tuple(self.expression(e, frame) for e in statement.values)
        targets = statement.targets
        if len(values) == 1 and len(targets) > 1 and isinstance(values[0], tuple):
            values = cast("tuple[PmlValue, ...]", values[0])
        if len(values) != len(targets):
            raise TypeMismatch(
                f"{len(targets)} names for {len(values)} values", statement.targets[0].loc
            )
        for target, value in zip(targets, values, strict=True):
            self._set(frame, target.name, value)

    def _set(self, frame: _Frame, name: str, value: PmlValue) -> None:
        if isinstance(value, Value) and not value.name:
            value.name = frame.full_name(name)
        frame.names[name] = value

    def _weight(self, statement: ast.Weight, frame: _Frame) -> None:
        type = self._type(statement.type, frame)
        if not type.is_static:
            raise ShapeError(
                f"the weight {statement.name} of type {type} has free dims",
                statement.loc,
                remedy="the dims of weights must be known: bind them with --dim",
            )
        name = statement.name
        if frame.repeats:
            name = frame.child_scope(name).removeprefix(frame.scope + "." if frame.scope else "")
        elif name in frame.weights:
            raise DuplicateName(f"there are two weights {name}", statement.loc)
        frame.weights.add(name)
        request = Request(frame.full_name(name), type)
        self.builder.loc = statement.loc
        with located(statement.value.loc):
            array = self._initial(statement.value, request, frame)
        frame.names[statement.name] = self.builder.constant(array, frame.full_name(name))

    def _initial(self, node: ast.Expression, request: Request, frame: _Frame) -> Any:
        """The array of an initialiser: a name, a call, `load(...)`, a number or a list."""
        if isinstance(node, ast.Name) and node.name in INITIALISERS:
            return _called(INITIALISERS[node.name], (request,), {}, node.name)
        called = _called_name(node)
        if called is not None:
            args, kwargs = self._arguments(_only_call(node), frame)
            if called in INITIALISERS:
                return _called(INITIALISERS[called], (request, *args), kwargs, called)
            if called == "load":
                folder = Path(node.loc.file).parent
                return _called(_load, (folder, request, *args), kwargs, called)
        return constant(request, self.expression(node, frame))

    def _on(self, statement: ast.On, frame: _Frame) -> None:
        with located(statement.loc):
            ipu = as_int(self.expression(statement.ipu, frame), "the number of an IPU")
            if not 0 <= ipu < 1 << 16:
                raise ShapeError(f"there is no IPU {ipu}")
        before, self.builder.ipu = self.builder.ipu, ipu
        try:
            self._block(statement.body, frame)
        finally:
            self.builder.ipu = before

    def _repeat(self, statement: ast.Repeat, frame: _Frame) -> None:
        with located(statement.loc):
            count = as_int(self.expression(statement.count, frame), "the number of repetitions")
            if not 0 <= count <= MAX_STEPS:
                raise ShapeError(f"{count} repetitions", remedy=f"use 0 to {MAX_STEPS}")
        frame.repeats += 1
        try:
            for index in range(count):
                if statement.counter:
                    frame.names[statement.counter] = index
                told = len(self.errors)
                self._block(statement.body, frame)
                if len(self.errors) > told:
                    break
        finally:
            frame.repeats -= 1

    # --- expressions

    def expression(self, node: ast.Expression, frame: _Frame) -> PmlValue:
        """The value of an expression. Raises located errors, or Broken."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise NestingTooDeep("calls and expressions nest too deeply", node.loc)
        try:
            return self._dispatch(node, frame)
        finally:
            self.depth -= 1

    def _dispatch(self, node: ast.Expression, frame: _Frame) -> PmlValue:
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

    def _lookup(self, node: ast.Name, frame: _Frame) -> PmlValue:
        if node.name in frame.names:
            value = frame.names[node.name]
            if value is BROKEN:
                raise Broken
            return value
        if node.name in DTYPES:
            return DTYPES[node.name]
        if node.name in self.defs or node.name in BUILTINS or node.name in callable_ops():
            raise TypeMismatch(f"{node.name} is a function: call it", node.loc)
        raise UnknownName(
            f"there is no value {node.name}", node.loc, _similar(node.name, frame.names)
        )

    def _chain(self, node: ast.Chain, frame: _Frame) -> PmlValue:
        left = self.expression(node.first, frame)
        for loc, operator, item in node.rest:
            right = self.expression(item, frame)
            self.builder.loc = loc
            with located(loc):
                left = operators.binary(self.builder, operator, left, right)
        return left

    def _postfix(self, node: ast.Postfix, frame: _Frame) -> PmlValue:
        first, *rest = node.suffixes
        if isinstance(node.atom, ast.Name) and isinstance(first, ast.Call):
            value = self._call(node.atom, first.arguments, frame)
        else:
            rest = [first, *rest]
            value = self.expression(node.atom, frame)
        for suffix in rest:
            if isinstance(suffix, ast.Call):
                raise TypeMismatch(f"{describe(value)} cannot be called", node.loc)
            value = self._index(node.loc, value, suffix, frame)
        return value

    def _index(self, loc: Location, value: PmlValue, index: ast.Index, frame: _Frame) -> PmlValue:
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

    def _index_item(self, item: ast.Expression | ast.Range, frame: _Frame) -> PmlValue:
        if not isinstance(item, ast.Range):
            return self.expression(item, frame)
        begin = None if item.begin is None else self.expression(item.begin, frame)
        end = None if item.end is None else self.expression(item.end, frame)
        return (begin, end)

    # --- calls

    def _arguments(
        self, arguments: ast.Arguments, frame: _Frame
    ) -> tuple[tuple[PmlValue, ...], dict[str, PmlValue]]:
        args = tuple(self.expression(e, frame) for e in arguments.positional)
        kwargs: dict[str, PmlValue] = {}
        for name, e in arguments.named:
            if name.name in kwargs:
                raise DuplicateName(f"argument {name.name} is given twice", name.loc)
            kwargs[name.name] = self.expression(e, frame)
        return args, kwargs

    def _call(self, name: ast.Name, arguments: ast.Arguments, frame: _Frame) -> PmlValue:
        if name.name in frame.names and frame.names[name.name] is not BROKEN:
            raise TypeMismatch(f"{describe(frame.names[name.name])} cannot be called", name.loc)
        args, kwargs = self._arguments(arguments, frame)
        called = self.defs.get(name.name)
        if called is not None:
            return self._call_def(called, name, args, kwargs, frame)
        self.builder.loc = name.loc
        with located(name.loc):
            function = BUILTINS.get(name.name)
            if function is not None:
                return _called(function, (self.builder, *args), kwargs, name.name)
            cls = callable_ops().get(name.name)
            if cls is not None:
                return call_op(self.builder, cls, args, kwargs)
            if name.name in INITIALISERS or name.name == "load":
                raise TypeMismatch(
                    f"{name.name} is for weights", remedy=f"param w: f32[...] = {name.name}(...)"
                )
            known = {**BUILTINS, **callable_ops(), **self.defs}
            raise UnknownName(
                f"there is no function {name.name}", name.loc, _similar(name.name, known)
            )

    def _call_def(
        self,
        called: ast.Def,
        name: ast.Name,
        args: tuple[PmlValue, ...],
        kwargs: dict[str, PmlValue],
        frame: _Frame,
    ) -> PmlValue:
        if any(called.name == other for other, _ in self.calls):
            chain = " -> ".join((*(other for other, _ in self.calls), called.name))
            raise NestingTooDeep(f"{called.name} calls itself: {chain}", name.loc)
        if len(self.calls) >= MAX_CALLS:
            raise NestingTooDeep(f"calls nest deeper than {MAX_CALLS}", name.loc)
        inner = _Frame(frame.child_scope(called.name))
        self.calls.append((called.name, name.loc))
        try:
            self._bind(called, name.loc, args, kwargs, inner)
            self._block(called.body, inner)
            return self._results(called, name.loc, inner)
        except PoplarPyError as error:
            if error.loc != name.loc:
                error.notes.append(_called_at(called.name, name.loc))
            raise
        finally:
            self.calls.pop()

    def _bind(
        self,
        called: ast.Def,
        loc: Location,
        args: tuple[PmlValue, ...],
        kwargs: dict[str, PmlValue],
        inner: _Frame,
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
        self, called: ast.Def, p: ast.Parameter, value: PmlValue, loc: Location, inner: _Frame
    ) -> None:
        if p.type is not None:
            check = _PLAIN_TYPES.get(p.type.name)
            if check is None:
                raise UnknownName(
                    f"there is no type {p.type.name}",
                    p.type.loc,
                    remedy=f"use {', '.join(_PLAIN_TYPES)}, or a tensor type f32[...]",
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
        self, called: ast.Def, p: ast.Parameter, value: PmlValue, loc: Location, inner: _Frame
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
        self, called: ast.Def, p: ast.Parameter, tensor: Value, loc: Location, inner: _Frame
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
            wanted = self._dim(cast("ast.Expression", node), inner)
            if wanted != dim:
                raise ShapeError(
                    f"{called.name}: argument {p.name} is {tensor.type}, dim {dim} should be "
                    f"{wanted}",
                    loc,
                )

    def _results(self, called: ast.Def, loc: Location, inner: _Frame) -> PmlValue:
        values = inner.returned
        if values is None and called.results and all(r.name for r in called.results):
            values = tuple(self._named_output(r, inner) for r in called.results)
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
            self._check_result(result, value, inner)
        return values[0] if len(values) == 1 else values


class _TooLarge(ShapeError):
    """Ends the run at once."""


def _called_at(name: str, loc: Location) -> str:
    return f"in {name}, called at {loc.short}"


_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int, FreeDim),
    "float": (float,),
    "bool": (bool,),
    "str": (str,),
    "list": (tuple,),
    "dtype": (DType,),
}


@contextmanager
def located(loc: Location) -> Generator[None]:
    """Errors without a place get `loc`."""
    try:
        yield
    except PoplarPyError as error:
        error.at(loc)
        raise


def _targets(statement: ast.Statement) -> list[str]:
    """Names that a statement sets, those in its block included."""
    if isinstance(statement, ast.Assignment):
        return [t.name for t in statement.targets]
    if isinstance(statement, ast.Weight):
        return [statement.name]
    if isinstance(statement, (ast.On, ast.Repeat)):
        return [n for s in statement.body.statements for n in _targets(s)]
    return []


def _called_name(node: ast.Expression) -> str | None:
    if isinstance(node, ast.Postfix) and isinstance(node.atom, ast.Name):
        single = len(node.suffixes) == 1 and isinstance(node.suffixes[0], ast.Call)
        return node.atom.name if single else None
    return None


def _only_call(node: ast.Expression) -> ast.Arguments:
    suffix = cast("ast.Postfix", node).suffixes[0]
    return cast("ast.Call", suffix).arguments


def _called(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Any:
    """Call with arguments a user wrote: those that do not fit are a TypeMismatch."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        names = ", ".join(list(inspect.signature(function).parameters)[1:])
        raise TypeMismatch(f"{name}: {error}", remedy=f"it takes ({names})") from None
    return function(*bound.args, **bound.kwargs)


def _load(folder: Path, request: Request, file: PmlValue, key: PmlValue = "") -> Any:
    if not isinstance(file, str) or not isinstance(key, str):
        raise TypeMismatch('load takes a file name and a key: load("w.npz", "w1")')
    return load_weight(folder, file, key, request.type)


def _similar(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else ""
