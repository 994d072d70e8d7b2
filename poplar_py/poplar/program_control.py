"""Control flow: loops, decisions, calls."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any, cast

import numpy as np

from poplar_py.poplar.errors import (
    GraphError,
    TensorIndexError,
    TensorTypeError,
)
from poplar_py.poplar.faults import an_instance, fail, listed, whole_number
from poplar_py.poplar.program_core import Program, Sequence, a_program
from poplar_py.poplar.program_data import check_scalar, check_writable
from poplar_py.poplar.program_report import ErrorProgram
from poplar_py.poplar.streams import (
    Function,
    HostFunction,
)
from poplar_py.poplar.tensor import Tensor
from poplar_py.types import DType


class Repeat(Program):
    """The body ``times`` times."""

    __slots__ = ("body", "times")

    def __init__(self, times: int, body: Program, name: str = "") -> None:
        super().__init__(name)
        self.times = whole_number(times, "a number of repeats")
        if not 0 <= self.times < 1 << 63:
            fail(TensorIndexError, f"repeat {times} times")
        self.body = a_program(body, "the body of a loop")

    def children(self) -> list[Program]:
        return [self.body]


class Loop(Program):
    """The body for ever (until the engine is stopped or a program aborts)."""

    __slots__ = ("body",)

    def __init__(self, body: Program, name: str = "") -> None:
        super().__init__(name)
        self.body = a_program(body, "the body of a loop")

    def children(self) -> list[Program]:
        return [self.body]


class _While(Program):
    __slots__ = ("body", "condition", "predicate")

    def __init__(
        self, condition: Program, predicate: Tensor, body: Program, name: str = ""
    ) -> None:
        super().__init__(name)
        check_scalar(predicate, "the predicate", "biu")
        self.condition = a_program(condition, "the condition of a loop")
        self.predicate = predicate
        self.body = a_program(body, "the body of a loop")

    def children(self) -> list[Program]:
        return [self.condition, self.body]


class RepeatWhileTrue(_While):
    """Run ``condition``; while the predicate is nonzero run the body, then the condition again."""

    __slots__ = ()


class RepeatWhileFalse(_While):
    """Run ``condition``; while the predicate is zero run the body, then the condition again."""

    __slots__ = ()


class If(Program):
    """One of two programs by a device scalar (nonzero is true)."""

    __slots__ = ("if_false", "if_true", "predicate")

    def __init__(
        self, predicate: Tensor, if_true: Program, if_false: Program | None = None, name: str = ""
    ) -> None:
        super().__init__(name)
        check_scalar(predicate, "the predicate", "biu")
        self.predicate = predicate
        self.if_true = a_program(if_true, "a branch")
        self.if_false = Sequence() if if_false is None else a_program(if_false, "a branch")

    def children(self) -> list[Program]:
        return [self.if_true, self.if_false]


class Switch(Program):
    """The case whose number equals a device integer, else the default. Cases and default may be
    left out, as in Poplar: ``Switch(control, default)``, ``Switch(control, name)``.

    ``unreachable_default``: the caller promises that some case matches.
    """

    __slots__ = ("cases", "control", "default", "unreachable_default")

    def __init__(
        self,
        control: Tensor,
        cases: Seq[tuple[int, Program]] | Program | str = (),
        default: Program | str | None = None,
        name: str = "",
    ) -> None:
        if isinstance(cases, Program):  # Switch(control, default)
            cases, default, name = (), cases, default if isinstance(default, str) else name
        if isinstance(cases, str):  # Switch(control, name)
            cases, name = (), cases
        if isinstance(default, str):  # Switch(control, cases, name)
            default, name = None, default
        super().__init__(name)
        check_scalar(control, "the control value", "iu")
        self.control = control
        self.cases: list[tuple[int, Program]] = []
        self.default = Sequence() if default is None else a_program(default, "the default")
        self.unreachable_default = False
        remedy = "give (number, program) pairs"
        for case in listed(cases, "the cases of a switch", remedy):
            if not isinstance(case, (tuple, list)) or len(cast("Seq[Any]", case)) != 2:
                fail(TensorTypeError, f"{case!r} is no case of a switch", remedy)
            self.add(*cast("Seq[Any]", case))

    @staticmethod
    def switch_with_bounds_checking(
        control: Tensor, cases: Seq[tuple[int, Program]] = (), name: str = ""
    ) -> Switch:
        """A switch that stops the program when no case matches."""
        stop = ErrorProgram("no case of the switch matches", control)
        return Switch(control, cases, stop, name)

    @staticmethod
    def switch_with_unreachable_default(
        control: Tensor, cases: Seq[tuple[int, Program]] = (), name: str = ""
    ) -> Switch:
        """A switch of which the caller knows that some case matches."""
        out = Switch(control, cases, None, name)
        out.unreachable_default = True
        return out

    def add(self, value: int, program: Program) -> Switch:
        """One more case; returns the switch."""
        value = whole_number(value, "a case of a switch")
        if any(v == value for v, _ in self.cases):
            fail(TensorIndexError, f"the switch has a case {value} already")
        limits = np.iinfo(self.control.dtype.numpy)
        if not limits.min <= value <= limits.max:
            fail(TensorIndexError, f"no {self.control.dtype.name} control value is {value}")
        self.cases.append((value, a_program(program, f"case {value} of a switch")))
        return self

    def children(self) -> list[Program]:
        return [*(p for _, p in self.cases), self.default]


class Call(Program):
    """Run a function of the graph, or a host function on tensors."""

    __slots__ = ("function", "inputs", "outputs")

    def __init__(
        self,
        function: Function | HostFunction,
        inputs: Seq[Tensor] | str = (),
        outputs: Seq[Tensor] = (),
        name: str = "",
    ) -> None:
        if isinstance(inputs, str):  # Call(function, name)
            inputs, name = (), inputs
        super().__init__(name)
        if not isinstance(cast("object", function), (Function, HostFunction)):
            fail(GraphError, f"call of {type(function).__name__}", "give what add_function gave")
        self.function = function
        self.inputs, self.outputs = _tensors(inputs), _tensors(outputs)
        if isinstance(function, Function) and (self.inputs or self.outputs):
            fail(GraphError, f"arguments for {function!r}", "only host functions take tensors")
        if isinstance(function, HostFunction):
            _check_host_call(function, self.inputs, self.outputs)


def _tensors(values: Seq[Tensor]) -> list[Tensor]:
    remedy = "give a list of tensors"
    parts = listed(values, "the arguments of a call", remedy)
    return [an_instance(t, Tensor, "an argument of a call", remedy) for t in parts]


def _check_host_call(function: HostFunction, ins: list[Tensor], outs: list[Tensor]) -> None:
    _check_arguments(function.handle, "input", ins, function.inputs)
    _check_arguments(function.handle, "output", outs, function.outputs)
    for t in outs:
        check_writable(t, "an output of a host function")


def _check_arguments(
    handle: str, what: str, args: list[Tensor], want: list[tuple[DType, int]]
) -> None:
    """Arguments of a host function as they are declared."""
    if len(args) != len(want):
        fail(
            TensorIndexError,
            f"host function {handle!r} has {len(want)} {what}s, {len(args)} given",
        )
    for i, (t, (dtype, size)) in enumerate(zip(args, want, strict=True)):
        if t.dtype is not dtype or t.numel != size:
            fail(
                TensorTypeError,
                f"{what} {i} of host function {handle!r} is {t!r}, declared {dtype.name}[{size}]",
            )


class Block(Program):
    """A program that nothing is moved into or out of; a row of its own in profiles."""

    __slots__ = ("body",)

    def __init__(self, body: Program, name: str = "") -> None:
        super().__init__(name)
        self.body = a_program(body, "the body of a block")

    def children(self) -> list[Program]:
        return [self.body]
