"""Checks of a graph and its programs, vectorised over vertex groups.

Each raises an error of ``poplar.errors`` at the line the user can change, and names vertices by
codelet, compute set, tile and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from poplar_py.diagnostics import UNKNOWN, ErrorList, Location
from poplar_py.poplar.arrays import Bools, Ints, as_ints
from poplar_py.poplar.conflicts import check_conflicts, find_conflict
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import (
    GraphConnectionError,
    GraphError,
    InvalidTileMapping,
    TensorIndexError,
    TensorTypeError,
)
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.groups import ComputeSet, VertexGroup
from poplar_py.poplar.program import (
    AbortOnCondition,
    Call,
    Copy,
    CrossReplicaCopy,
    CycleCount,
    ErrorProgram,
    Execute,
    If,
    PrintTensor,
    Program,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Switch,
)
from poplar_py.poplar.streams import Function
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.variable import Variable
from poplar_py.poplar.where import caller, source_text

__all__ = [
    "VariableColumns",
    "check_calls",
    "check_conflicts",
    "check_edges_inside",
    "check_elements_mapped",
    "check_nesting",
    "check_programs",
    "check_tensors_mapped",
    "check_vertex_tiles",
    "find_conflict",
    "program_tensors",
    "steps",
    "unmapped_variables",
    "used_compute_sets",
    "variable_columns",
    "verify",
    "verify_compute_set",
]


def verify(graph: Graph, programs: Sequence[Program]) -> None:
    """All checks of what the programs use; several errors are collected before raising."""
    check_nesting([*programs, *(f.program for f in graph.functions)])
    check_calls(programs)
    errors = ErrorList()
    columns = variable_columns(graph)
    for cs in used_compute_sets(programs):
        with errors:
            verify_compute_set(graph, cs, columns)
    with errors:
        check_tensors_mapped(graph, programs)
    errors.raise_if_any()


def verify_compute_set(
    graph: Graph, compute_set: ComputeSet, columns: VariableColumns | None = None
) -> None:
    """Edges inside their variables and of their types, all on tiles, no conflicts."""
    _check_own(graph, compute_set)
    for group in compute_set.groups:
        check_vertex_tiles(group, graph.target.num_tiles)
        for name, edges in group.edges.items():
            check_edges_inside(graph, group, name, edges, columns)
    check_elements_mapped(graph, compute_set, None if columns is None else columns.partial)
    check_conflicts(compute_set)


# ------------------------------------------------------------------------- placing
def check_vertex_tiles(group: VertexGroup, num_tiles: int) -> None:
    """Every vertex on a tile of the target."""
    bad = (group.tiles < 0) | (group.tiles >= num_tiles)
    if not bool(bad.any()):
        return
    v = int(np.argmax(bad))
    loc = group.location(v)
    what = "is on no tile" if int(group.tiles[v]) < 0 else f"of {num_tiles} tiles"
    raise InvalidTileMapping(
        f"{group.describe(v)} {what}", loc, "call set_tile_mapping for the vertex", source_text(loc)
    )


def unmapped_variables(graph: Graph) -> Bools:
    """Which variables have elements on no tile: bool per variable."""
    return np.array([v.has_unmapped for v in graph.variables], np.bool_)


def check_elements_mapped(
    graph: Graph, compute_set: ComputeSet, partial: Bools | None = None
) -> None:
    """Every element an edge of the compute set names is on a tile. ``partial`` is
    ``unmapped_variables(graph)``, where the caller has it."""
    if partial is None:
        partial = unmapped_variables(graph)
    if not bool(partial.any()):
        return
    atlas = graph.atlas()
    for group in compute_set.groups:
        for name, edges in group.edges.items():
            ids, _ = graph.locate_variables(edges.start)
            if not bool(partial[ids].any()):
                continue
            edge, start, length = edges.runs()
            run, interval, s, _ = atlas.split(start, length)
            lost = atlas.tile[interval] < 0
            if bool(lost.any()):
                i = int(np.argmax(lost))
                e = int(edge[i] if run is None else edge[run[i]])
                v = int(edges.edge_vertex()[e])
                raise _unmapped(graph, int(s[i]), f"field {name!r} of {group.describe(v)} uses it")


def _variable_at(graph: Graph, address: int) -> tuple[Variable, int]:
    ids, bases = graph.locate_variables(as_ints([address]))
    return graph.variables[int(ids[0])], int(bases[0])


def _unmapped(graph: Graph, address: int, use: str) -> InvalidTileMapping:
    variable, base = _variable_at(graph, address)
    return InvalidTileMapping(
        f"element {address - base} of variable {variable.name!r} is on no tile; {use}",
        variable.loc,
        "call set_tile_mapping, or give add_variable a mapping",
        source_text(variable.loc),
    )


def program_tensors(program: Program) -> list[tuple[str, Tensor]]:
    """Tensors a program step names itself, with what they are to it."""
    if isinstance(program, Copy):
        ends = [("the source of a copy", program.src), ("the destination of a copy", program.dst)]
        out = [(what, t) for what, t in ends if isinstance(t, Tensor)]
        return out if program.offset is None else [*out, ("the row of a copy", program.offset)]
    if isinstance(program, Execute):
        return [("a predicate", program.predicate)] if program.predicate is not None else []
    if isinstance(program, (If, RepeatWhileTrue, RepeatWhileFalse, AbortOnCondition)):
        return [("a predicate", program.predicate)]
    if isinstance(program, Switch):
        return [("a control value", program.control)]
    if isinstance(program, Call):
        return [("an argument of a call", t) for t in (*program.inputs, *program.outputs)]
    if isinstance(program, CrossReplicaCopy):
        return [("the source of a copy", program.src), ("the destination of a copy", program.dst)]
    if isinstance(program, (PrintTensor, CycleCount)):
        return [("a tensor of the program", program.tensor)]
    if isinstance(program, ErrorProgram):
        return [("a tensor of the program", program.tensor)] if program.tensor is not None else []
    return []


def check_tensors_mapped(graph: Graph, programs: Sequence[Program]) -> None:
    """Every element a copy, a predicate, a host handle ... names is on a tile."""
    partial = unmapped_variables(graph)
    if not bool(partial.any()):
        return
    uses = [(p, what, t) for p in steps(programs) for what, t in program_tensors(p)]
    handles = (*graph.host_writes.items(), *graph.host_reads.items())
    atlas = graph.atlas()
    named = [(f"{what} at {p.loc.short} uses it", t) for p, what, t in uses]
    named += [(f"the host handle {handle!r} uses it", t) for handle, t in handles]
    for what, tensor in named:
        if not any(partial[v.id] for v in tensor.variables()):
            continue
        _, interval, s, _ = atlas.split(*tensor.runs())
        lost = atlas.tile[interval] < 0
        if bool(lost.any()):
            raise _unmapped(graph, int(s[int(np.argmax(lost))]), what)


def check_all_mapped(graph: Graph, programs: Sequence[Program]) -> None:
    """Every element the programs, their compute sets and the host handles use is on a tile."""
    partial = unmapped_variables(graph)
    if not bool(partial.any()):
        return
    check_nesting([*programs, *(f.program for f in graph.functions)])
    for compute_set in used_compute_sets(programs):
        check_elements_mapped(graph, compute_set, partial)
    check_tensors_mapped(graph, programs)


# ------------------------------------------------------------------------- types and bounds
@dataclass(frozen=True)
class VariableColumns:
    """Facts about all variables as arrays, for checks that index them."""

    size: Ints
    width: Ints
    constant: Bools
    partial: Bools


def variable_columns(graph: Graph) -> VariableColumns:
    """Size, bytes of an element, whether it is a constant, and whether some element is on no tile,
    of every variable."""
    return VariableColumns(
        as_ints([v.size for v in graph.variables]),
        as_ints([v.dtype.size for v in graph.variables]),
        np.array([v.constant is not None for v in graph.variables], np.bool_),
        unmapped_variables(graph),
    )


def check_edges_inside(
    graph: Graph,
    group: VertexGroup,
    name: str,
    edges: Edges,
    columns: VariableColumns | None = None,
) -> None:
    """Records stay inside one variable, of elements as wide as the field's; none written to is
    a constant. ``columns`` saves work when many fields are checked."""
    if len(edges.start) == 0:
        return
    ids, bases = graph.locate_variables(edges.start)
    columns = variable_columns(graph) if columns is None else columns
    sizes, width = columns.size, columns.width
    field = next(f for f in group.codelet.fields if f.name == name)
    extent = edges.length + (edges.count - 1) * edges.stride
    filled = (edges.length > 0) & (edges.count > 0)
    bad = filled & ((ids < 0) | (edges.start + extent > bases + sizes[ids]) | (edges.stride < 0))
    if bool(bad.any()):
        v = int(edges.record_vertex()[int(np.argmax(bad))])
        loc = group.location(v)
        raise TensorIndexError(
            f"field {name!r} of {group.describe(v)} leaves its variable", loc, "", source_text(loc)
        )
    bad = filled & (width[ids] != field.dtype.size)
    if bool(bad.any()):
        r = int(np.argmax(bad))
        v = int(edges.record_vertex()[r])
        loc, var = group.location(v), graph.variables[int(ids[r])]
        raise TensorTypeError(
            f"field {name!r} of {group.describe(v)} holds {field.dtype.name}, "
            f"variable {var.name!r} {var.dtype.name}",
            loc,
            "",
            source_text(loc),
        )
    if field.kind != "in":
        _check_not_constant(graph, group, name, edges, columns.constant[ids])


def _check_not_constant(
    graph: Graph, group: VertexGroup, name: str, edges: Edges, bad: Bools
) -> None:
    if bool(bad.any()):
        r = int(np.argmax(bad))
        v = int(edges.record_vertex()[r])
        loc = group.location(v)
        raise GraphConnectionError(
            f"field {name!r} of {group.describe(v)} writes the constant "
            f"{_variable_at(graph, int(edges.start[r]))[0].name!r}",
            loc,
            "write to a variable",
            source_text(loc),
        )


# ------------------------------------------------------------------------- programs
def steps(programs: Iterable[Program]) -> Iterator[Program]:
    """Every step of the programs and of the functions they call, each function once."""
    todo = list(programs)[::-1]
    seen: set[int] = set()
    while todo:
        for p in todo.pop().walk():
            yield p
            function = p.function if isinstance(p, Call) else None
            if isinstance(function, Function) and function.id not in seen:
                seen.add(function.id)
                todo.append(function.program)


def used_compute_sets(programs: Iterable[Program]) -> list[ComputeSet]:
    """Compute sets some program executes, each once, in order of first use."""
    found: dict[int, ComputeSet] = {}
    for p in steps(programs):
        if isinstance(p, Execute):
            found.setdefault(p.compute_set.id, p.compute_set)
    return list(found.values())


MAX_NESTING = 200
"""Programs inside one another; what follows goes down them by recursion."""


def check_nesting(programs: Iterable[Program]) -> None:
    """Only programs stand in programs, none contains itself, none is nested too deeply."""
    on_path: set[int] = set()
    todo: list[tuple[Program, bool, Location]] = [(p, False, UNKNOWN) for p in programs]
    while todo:
        p, leave, outer = todo.pop()
        if leave:
            on_path.discard(id(p))
            continue
        _check_step(p, outer)
        if id(p) in on_path:
            raise GraphError("a program contains itself", p.loc, "use Repeat or RepeatWhileTrue")
        if len(on_path) >= MAX_NESTING:
            raise GraphError(f"programs are nested deeper than {MAX_NESTING}", p.loc)
        children = p.children()
        if children:
            on_path.add(id(p))
            todo.append((p, True, outer))
            todo += [(c, False, p.loc) for c in children]


def _check_step(step: object, outer: Location) -> None:
    if not isinstance(step, Program):
        loc = outer if outer.known else caller()
        raise GraphError(f"{type(step).__name__} is no program", loc, "give a program step")
    if isinstance(step, Execute) and not isinstance(cast("object", step.compute_set), ComputeSet):
        raise GraphError("Execute of no compute set", step.loc, "give what add_compute_set gave")


def check_programs(graph: Graph, programs: Sequence[Program]) -> None:
    """Programs are well nested and name only what belongs to the graph."""
    check_nesting([*programs, *(f.program for f in graph.functions)])
    for p in steps(programs):
        if isinstance(p, Execute):
            _check_own(graph.whole, p.compute_set)
        for what, tensor in program_tensors(p):
            if not tensor.graph.same_graph(graph):
                raise GraphError(f"{what} belongs to another graph", p.loc, "", source_text(p.loc))


def _check_own(graph: Graph, compute_set: ComputeSet) -> None:
    if compute_set.graph is not graph and compute_set not in graph.compute_sets:
        raise GraphError(
            f"compute set {compute_set.name!r} belongs to another graph", compute_set.loc
        )


def check_calls(programs: Iterable[Program]) -> None:
    """No function calls itself, directly or through others."""
    state: dict[int, int] = {}

    def visit(function: Function, at: Program) -> None:
        if state.get(function.id) == 1:
            raise GraphError(
                f"function {function.name or function.id!r} calls itself",
                at.loc,
                "use Repeat or RepeatWhileTrue",
            )
        if state.get(function.id) == 2:
            return
        state[function.id] = 1
        calls(function.program)
        state[function.id] = 2

    def calls(program: Program) -> None:
        for p in program.walk():
            if isinstance(p, Call) and isinstance(p.function, Function):
                visit(p.function, p)

    for program in programs:
        calls(program)
