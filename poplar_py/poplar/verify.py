"""Checks of a graph and its programs, vectorised over vertex groups.

Each raises an error of ``poplar.errors`` at the line the user can change, and names vertices by
codelet, compute set, tile and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from poplar_py.diagnostics import ErrorList
from poplar_py.poplar.arrays import Bools, Ints, as_ints, concat_ints, ragged, sort_order
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import (
    GraphConnectionError,
    GraphError,
    InvalidTileMapping,
    TensorIndexError,
    TensorTypeError,
    WriteConflict,
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
from poplar_py.poplar.where import source_text


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
    if compute_set.graph is not graph and compute_set not in graph.compute_sets:
        raise GraphError(
            f"compute set {compute_set.name!r} belongs to another graph", compute_set.loc
        )
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


# ------------------------------------------------------------------------- conflicts
@dataclass
class _Records:
    """Records of several fields: bounds of each, and who they belong to (a vertex number in the
    whole compute set)."""

    start: Ints
    length: Ints
    count: Ints
    stride: Ints
    vertex: Ints

    @property
    def end(self) -> Ints:
        return self.start + self.length + (self.count - 1) * self.stride

    def take(self, index: Ints | Bools) -> _Records:
        return _Records(
            self.start[index],
            self.length[index],
            self.count[index],
            self.stride[index],
            self.vertex[index],
        )

    def rows(self) -> _Records:
        """One record per row."""
        if bool((self.count == 1).all()):
            return self
        r, k = ragged(self.count)
        one = np.ones(len(r), np.int64)
        start = self.start[r] + k * self.stride[r]
        return _Records(start, self.length[r], one, np.zeros_like(one), self.vertex[r])

    def sorted(self) -> _Records:
        order = sort_order(self.start)
        return self if order is None else self.take(order)


def _collect(groups: Sequence[VertexGroup], kinds: tuple[str, ...]) -> _Records:
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    first = 0
    for g in groups:
        for f in g.codelet.fields:
            if f.kind in kinds:
                e = g.edges[f.name]
                parts.append((e.start, e.length, e.count, e.stride, e.record_vertex() + first))
        first += g.n
    columns = [concat_ints([p[i] for p in parts]) for i in range(5)]
    found = _Records(*columns)
    filled = (found.length > 0) & (found.count > 0)
    return found if bool(filled.all()) else found.take(filled)


def check_conflicts(compute_set: ComputeSet) -> None:
    """No element written by two vertices, or written by one and read by another."""
    pair = find_conflict(compute_set.groups)
    if pair is None:
        return
    a, b, address, both = pair
    groups = compute_set.groups
    (ga, va), (gb, vb) = _owner(groups, a), _owner(groups, b)
    graph = compute_set.graph
    variable, base = _variable_at(graph, address)
    element = f"element {address - base} of variable {variable.name!r}"
    first, second = ga.describe(va), gb.describe(vb)
    loc = gb.location(vb)
    raise WriteConflict(
        f"{element} is written by {first} and by {second}"
        if both
        else f"{element} is written by {first} and read by {second}",
        loc,
        "split the work over two compute sets, or give each vertex its own elements",
        source_text(loc),
    )


def _owner(groups: Sequence[VertexGroup], vertex: int) -> tuple[VertexGroup, int]:
    for g in groups:
        if vertex < g.n:
            return g, vertex
        vertex -= g.n
    raise IndexError(vertex)


Conflict = tuple[int, int, int, bool]
"""Two vertices (numbers in the compute set), an element address, and whether both write it."""


def find_conflict(groups: Sequence[VertexGroup]) -> Conflict | None:
    """The first conflict found, or None. A vertex may overlap itself."""
    writes = _collect(groups, ("out", "inout")).sorted()
    if len(writes.start) == 0:
        return None
    found = _double_write(writes)
    if found is not None:
        return found
    reads = _collect(groups, ("in",))
    return _read_of_write(writes, reads)


def _touching(r: _Records) -> Bools:
    """Of sorted records, those whose bounding ranges meet another's."""
    n = len(r.start)
    reach = np.maximum.accumulate(r.end)
    hit = np.zeros(n, np.bool_)
    if n < 2:
        return hit
    meets = r.start[1:] < reach[:-1]
    hit[1:] = meets
    cluster = np.cumsum(~np.concatenate([[False], meets]))
    hit |= np.bincount(cluster, hit, int(cluster[-1]) + 1)[cluster] > 0
    return hit


def _double_write(writes: _Records) -> Conflict | None:
    hit = _touching(writes)
    if not bool(hit.any()):
        return None
    rows = writes.take(hit).rows().sorted()
    overlap = rows.start[1:] < np.maximum.accumulate(rows.start + rows.length)[:-1]
    if not bool(overlap.any()):
        return None
    return _first_pair(rows, rows, both=True)


def _read_of_write(writes: _Records, reads: _Records) -> Conflict | None:
    """Reads whose bounding range meets a write of another vertex, then row by row."""
    if len(reads.start) == 0:
        return None
    reach = np.maximum.accumulate(writes.end)
    a = np.searchsorted(reach, reads.start, "right")
    b = np.searchsorted(writes.start, reads.end, "left")
    many = b - a
    own = (many == 1) & (writes.vertex[np.minimum(a, len(writes.vertex) - 1)] == reads.vertex)
    candidates = (many > 0) & ~own
    if not bool(candidates.any()):
        return None
    return _first_pair(writes.rows().sorted(), reads.take(candidates).rows(), both=False)


_CHUNK = 1 << 20


def _first_pair(a: _Records, b: _Records, both: bool) -> Conflict | None:
    """A row of ``a`` (sorted) and a row of ``b`` of different vertices that share an element."""
    a_end, b_end = a.start + a.length, b.start + b.length
    reach = np.maximum.accumulate(a_end)
    first = np.searchsorted(reach, b.start, "right")
    last = np.searchsorted(a.start, b_end, "left")
    many = np.maximum(last - first, 0)
    total = np.cumsum(many)
    begin = 0
    while begin < len(many):  # bounded memory, however many rows meet
        done = int(total[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(total, done + _CHUNK, "right")), begin + 1)
        j, rank = ragged(many[begin:end])
        j = j + begin
        i = first[j] + rank
        clash = (a.vertex[i] != b.vertex[j]) & (a_end[i] > b.start[j]) & (a.start[i] < b_end[j])
        if bool(clash.any()):
            k = int(np.argmax(clash))
            x, y = int(i[k]), int(j[k])
            address = max(int(a.start[x]), int(b.start[y]))
            return int(a.vertex[x]), int(b.vertex[y]), address, both
        begin = end
    return None


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


def check_nesting(programs: Iterable[Program]) -> None:
    """No program contains itself."""
    on_path: set[int] = set()
    todo: list[tuple[Program, bool]] = [(p, False) for p in programs]
    while todo:
        p, leave = todo.pop()
        if leave:
            on_path.discard(id(p))
            continue
        if id(p) in on_path:
            raise GraphError("a program contains itself", p.loc, "use Repeat or RepeatWhileTrue")
        children = p.children()
        if children:
            on_path.add(id(p))
            todo.append((p, True))
            todo += [(c, False) for c in children]


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
