"""Runs a `.pml` model while it is built: the syntax tree becomes a graph.

Function calls are expanded, `repeat` is unrolled, weights become constants called
`function.weight` (`function_1.weight` at the second call). A statement that fails is reported and
the names it was to set are poisoned, so that one run tells several independent errors.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from poplar_py.diagnostics import (
    DuplicateName,
    ErrorList,
    Location,
    PoplarPyError,
    ShapeError,
    TypeMismatch,
)
from poplar_py.frontends.pml import ast
from poplar_py.frontends.pml.calls import Caller
from poplar_py.frontends.pml.initialisers import INITIALISERS, Request, constant
from poplar_py.frontends.pml.scope import Frame, TooLarge, called_at, checked_call, located
from poplar_py.frontends.pml.values import (
    BROKEN,
    Broken,
    FreeDim,
    PmlValue,
    as_int,
    describe,
)
from poplar_py.frontends.pml.weights import load_weight
from poplar_py.ir.core import Module, Value
from poplar_py.types import DTYPES, TensorType

__all__ = ["MAX_STEPS", "declared_types", "elaborate"]

MAX_STEPS = 100_000
"""Ops and statements of one model: a limit against `repeat` inside `repeat`."""

_RECURSION_LIMIT = 60_000


def elaborate(model: ast.Model, defs: Mapping[str, ast.Def], dims: Mapping[str, int]) -> Module:
    """The module of a model; `dims` gives sizes for free dims. Raises located errors."""
    with _deep_recursion():
        return _Elaborator(defs).model(model, dims)


def declared_types(model: ast.Model) -> tuple[dict[str, TensorType], dict[str, TensorType]]:
    """Types of inputs and outputs as the head of a model declares them, with free dims.

    Outputs whose dims are computed from free ones are left out. Raises located errors.
    """
    return _Elaborator({}).declared(model)


@contextmanager
def _deep_recursion() -> Generator[None]:
    """Room for 256 nested calls of 256 nested expressions; pure Python frames use no C stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class _Elaborator(Caller):
    def __init__(self, defs: Mapping[str, ast.Def]) -> None:
        super().__init__(defs)
        self.steps = 0
        self.errors = ErrorList()
        self.told: set[tuple[Location, str]] = set()
        self.dim_sizes: Mapping[str, int] = {}

    # --- models

    def model(self, model: ast.Model, dims: Mapping[str, int]) -> Module:
        self.dim_sizes = dims
        frame = Frame("")
        for parameter in model.parameters:
            with self._reporting():
                self._input(parameter, frame)
        self.block(model.body, frame)
        self.errors.raise_if_any()
        with self._reporting():
            self._model_outputs(model, frame)
        self.errors.raise_if_any()
        return Module(model.name, [self.graph])

    def declared(self, model: ast.Model) -> tuple[dict[str, TensorType], dict[str, TensorType]]:
        frame = Frame("")
        for parameter in model.parameters:
            with self._reporting():
                self._input(parameter, frame)
        self.errors.raise_if_any()
        outputs: dict[str, TensorType] = {}
        for index, result in enumerate(model.results):
            with suppress(PoplarPyError):
                outputs[result.name or f"output{index}"] = self.tensor_type(result.type, frame)
        return {v.name: v.type for v in self.graph.inputs}, outputs

    def _input(self, parameter: ast.Parameter, frame: Frame) -> None:
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
        type = self.tensor_type(node, frame)
        frame.names[parameter.name] = self.graph.add_input(type, parameter.name, parameter.loc)

    def _model_outputs(self, model: ast.Model, frame: Frame) -> None:
        results = model.results
        values = frame.returned
        if values is None:
            values = tuple(self.named_output(r, frame) for r in results)
        if len(values) != len(results):
            raise TypeMismatch(
                f"model {model.name} declares {len(results)} results and returns {len(values)}",
                model.loc,
            )
        for index, (result, value) in enumerate(zip(results, values, strict=True)):
            if not isinstance(value, Value):
                raise TypeMismatch(f"result {index} is {describe(value)}, not a tensor", result.loc)
            self.check_result(result, value, frame)
            self.graph.add_output(value, result.name or f"output{index}")
        names = self.graph.output_names
        if len(set(names)) != len(names):
            raise DuplicateName(f"two results of model {model.name} have one name", model.loc)

    # --- statements

    @contextmanager
    def _reporting(self) -> Generator[None]:
        """Errors are kept (each once) and end the statement, not the run."""
        try:
            yield
        except Broken:
            pass
        except TooLarge:
            raise
        except PoplarPyError as error:
            if (error.loc, error.message) not in self.told:
                self.told.add((error.loc, error.message))
                error.notes += [called_at(*call) for call in reversed(self.calls)]
                self.errors.add(error)

    def block(self, block: ast.Block, frame: Frame) -> None:
        for statement in block.statements:
            if frame.returned is not None:
                return
            self._statement(statement, frame)

    def _statement(self, statement: ast.Statement, frame: Frame) -> None:
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
            raise TooLarge(f"the model has more than {MAX_STEPS} ops and steps", statement.loc)
        if self.calls and len(self.errors) > count:
            raise Broken  # the caller's result is of no use

    def _run(self, statement: ast.Statement, frame: Frame) -> None:
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

    def _assignment(self, statement: ast.Assignment, frame: Frame) -> None:
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

    def _set(self, frame: Frame, name: str, value: PmlValue) -> None:
        if isinstance(value, Value) and not value.name:
            value.name = frame.full_name(name)
        frame.names[name] = value

    def _weight(self, statement: ast.Weight, frame: Frame) -> None:
        type = self.tensor_type(statement.type, frame)
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

    def _initial(self, node: ast.Expression, request: Request, frame: Frame) -> Any:
        """The array of an initialiser: a name, a call, `load(...)`, a number or a list."""
        if isinstance(node, ast.Name) and node.name in INITIALISERS:
            return checked_call(INITIALISERS[node.name], (request,), {}, node.name)
        called = _called_name(node)
        if called is not None:
            args, kwargs = self.arguments(_only_call(node), frame)
            if called in INITIALISERS:
                return checked_call(INITIALISERS[called], (request, *args), kwargs, called)
            if called == "load":
                folder = Path(node.loc.file).parent
                return checked_call(_load, (folder, request, *args), kwargs, called)
        return constant(request, self.expression(node, frame))

    def _on(self, statement: ast.On, frame: Frame) -> None:
        with located(statement.loc):
            ipu = as_int(self.expression(statement.ipu, frame), "the number of an IPU")
            if not 0 <= ipu < 1 << 16:
                raise ShapeError(f"there is no IPU {ipu}")
        before, self.builder.ipu = self.builder.ipu, ipu
        try:
            self.block(statement.body, frame)
        finally:
            self.builder.ipu = before

    def _repeat(self, statement: ast.Repeat, frame: Frame) -> None:
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
                self.block(statement.body, frame)
                if len(self.errors) > told:
                    break
        finally:
            frame.repeats -= 1


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


def _load(folder: Path, request: Request, file: PmlValue, key: PmlValue = "") -> Any:
    if not isinstance(file, str) or not isinstance(key, str):
        raise TypeMismatch('load takes a file name and a key: load("w.npz", "w1")')
    return load_weight(folder, file, key, request.type)
