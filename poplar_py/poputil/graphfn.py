"""Functions of a graph: work built once and called with tensors of the same shape (graphfn)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar import program
from poplar_py.poplar.errors import TensorTypeError
from poplar_py.poplar.faults import fail

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["Argument", "TensorFunction", "VoidFunction", "created", "inout", "input", "output"]


@dataclass(frozen=True)
class Argument:
    """One argument: ``kind`` input, output, inout or created, and a tensor it is like."""

    kind: str
    like: Tensor | None = None
    name: str = ""


def input(like: Tensor, name: str = "") -> Argument:
    """Copied in before the call."""
    return Argument("input", like, name)


def output(like: Tensor, name: str = "") -> Argument:
    """Copied out after the call."""
    return Argument("output", like, name)


def inout(like: Tensor, name: str = "") -> Argument:
    """Copied in before and out after the call."""
    return Argument("inout", like, name)


def created(name: str = "") -> Argument:
    """Made by the body, which puts it into its list of arguments; copied out after the call."""
    return Argument("created", None, name)


Body = Callable[[list["Tensor"], program.Sequence], None]
Slots = list["Tensor | None"]


class VoidFunction:
    """``body(args, prog)`` adds its work to `prog` once; every call copies arguments and runs it.

    The arguments `created` are the last ones: the body appends them to `args` in that order.
    Raises OptionError when it makes another number of them.
    """

    def __init__(
        self, graph: Graph, signature: Sequence[Argument], body: Body, name: str = "function"
    ) -> None:
        self.graph, self.signature, self.name = graph, tuple(signature), name
        self.params: list[Tensor] = [
            graph.clone(a.like, a.name or f"{name}/{i}")
            for i, a in enumerate(signature)
            if a.like is not None
        ]
        if any(a.like is not None for a in self.signature[len(self.params) :]):
            fail(OptionError, "created arguments come last", remedy="move them to the end")
        work = program.Sequence()
        body(self.params, work)
        if len(self.params) != len(self.signature):
            fail(
                OptionError,
                f"the body of {name!r} left {len(self.params)} arguments of {len(self.signature)}",
                remedy="append one tensor for every created argument",
            )
        self.function = graph.add_function(work, name)

    def __call__(self, args: Slots, prog: program.Sequence) -> None:
        """Run with these tensors; places of created arguments hold None and are filled in.

        Raises ShapeError for shapes, TensorTypeError for types other than the signature's.
        """
        if len(args) != len(self.signature):
            fail(ShapeError, f"{self.name!r} takes {len(self.signature)} tensors, not {len(args)}")
        given: list[Tensor] = []
        for arg, param in zip(args, self.params, strict=True):
            given.append(self.graph.clone(param) if arg is None else _same(arg, param))
        rows = list(zip(self.signature, given, self.params, strict=True))
        for sig, arg, param in rows:
            if sig.kind in ("input", "inout"):
                prog.add(program.Copy(arg, param))
        prog.add(program.Call(self.function))
        for sig, arg, param in rows:
            if sig.kind != "input":
                prog.add(program.Copy(param, arg))
        args[:] = given


def _same(arg: Tensor, param: Tensor) -> Tensor:
    if arg.shape != param.shape:
        fail(ShapeError, f"an argument of shape {list(arg.shape)} for {list(param.shape)}")
    if arg.dtype is not param.dtype:
        fail(TensorTypeError, f"an argument of {arg.dtype.name} for {param.dtype.name}")
    return arg


class TensorFunction:
    """As VoidFunction for a body that returns one tensor; a call returns a copy of it."""

    def __init__(
        self,
        graph: Graph,
        signature: Sequence[Argument],
        body: Callable[[list[Tensor], program.Sequence], Tensor],
        name: str = "function",
    ) -> None:
        def appending(args: list[Tensor], prog: program.Sequence) -> None:
            args.append(body(args, prog))

        self._function = VoidFunction(graph, [*signature, created()], appending, name)

    def __call__(self, args: Sequence[Tensor], prog: program.Sequence) -> Tensor:
        """Run with these tensors; the result is a tensor of its own."""
        slots: Slots = [*args, None]
        self._function(slots, prog)
        found = slots[-1]
        assert found is not None  # a created argument is always filled in
        return found
