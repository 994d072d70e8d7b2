"""Checks and loops on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, overload

from poplar_py.diagnostics import OptionError, TypeMismatch
from poplar_py.poplar import program
from poplar_py.poplar.faults import fail
from poplar_py.poplar.tensor import Tensor
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_with_output
from poplar_py.popops.fill import fill
from poplar_py.popops.reduction import reduce
from poplar_py.types import bool_, i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph

__all__ = ["all_true", "counted_for_loop", "counted_loop", "has_nan", "has_nan_or_inf"]


def all_true(graph: Graph, t: Tensor, prog: program.Sequence, name: str = "all_true") -> Tensor:
    """A bool scalar: whether every element of t (bool) is true."""
    return reduce(graph, t, range(len(t.shape)), "and", prog, name)


def has_nan(graph: Graph, t: Tensor, prog: program.Sequence, name: str = "has_nan") -> Tensor:
    """A bool scalar: whether an element is NaN."""
    found = map_expr(graph, "is_nan($0)", [t], prog, name, bool_)
    return reduce(graph, found, range(len(t.shape)), "or", prog, name)


def has_nan_or_inf(
    graph: Graph, t: Tensor, prog: program.Sequence, name: str = "has_nan_or_inf"
) -> Tensor:
    """A bool scalar: whether an element is NaN or infinite."""
    found = map_expr(graph, "or(is_nan($0),is_inf($0))", [t], prog, name, bool_)
    return reduce(graph, found, range(len(t.shape)), "or", prog, name)


LoopBody = Callable[[Tensor], program.Program]


@overload
def counted_loop(
    graph: Graph, count: int, body: LoopBody, name: str = "counted_loop"
) -> program.Program: ...


@overload
def counted_loop(
    graph: Graph, count: int, body: int, name: int, step_body: LoopBody, last: str = "counted_loop"
) -> program.Program: ...


def counted_loop(
    graph: Graph,
    count: int,
    body: LoopBody | int,
    name: str | int = "counted_loop",
    step_body: LoopBody | None = None,
    last: str = "counted_loop",
) -> program.Program:
    """A program that runs `body(i)` for i = 0 .. count - 1; i is an i32 tensor of one element.

    Poplar's form with bounds is taken too: ``counted_loop(graph, begin, end, step, body, name)``.
    """
    if isinstance(body, int) and isinstance(name, int) and step_body is not None:
        return counted_for_loop(graph, count, body, name, step_body, last)
    if not callable(body):
        fail(TypeMismatch, f"counted_loop: body is {body!r}", "give a function of the counter")
    return counted_for_loop(graph, 0, count, 1, body, str(name))


def counted_for_loop(
    graph: Graph,
    begin: int,
    end: int,
    step: int,
    body: Callable[[Tensor], program.Program],
    name: str = "counted_for_loop",
) -> program.Program:
    """A program that runs `body(i)` for every i of range(begin, end, step). Raises OptionError for
    a step of 0."""
    if step == 0:
        fail(OptionError, "a counted loop with a step of 0", "give another step")
    counter = graph.add_variable(i32, (1,), f"{name}/counter", mapping=0)
    out = program.Sequence()
    fill(graph, counter, begin, out, f"{name}/first")
    inner = program.Sequence(body(counter))
    map_with_output(graph, f"add($0,c({step}))", [counter], counter, inner, f"{name}/next")
    out.add(program.Repeat(len(range(begin, end, step)), inner))
    return out
