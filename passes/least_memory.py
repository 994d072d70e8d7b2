"""What the tensors of a model need at least, before anything is placed: lowering and planning a
program far too large would take long to find out.

Certain are single values, the inputs (all are there before the first op), and the results of
products beside the inputs they read: what fuses with a product keeps its shape and element type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.diagnostics import Location, OutOfTileMemory

if TYPE_CHECKING:
    from poplar_py.ir import Graph, Module, Op, Value
    from poplar_py.target import Target

__all__ = ["check_sizes", "origin"]

_PRODUCTS = ("nn.matmul", "nn.conv")
_VIEWS = ("tensor.reshape", "tensor.transpose")
_MOST = 5
_REMEDY = "use smaller shapes, or a larger machine with --placement spread"


def origin(value: Value) -> Location:
    """Where an input is declared, else its name."""
    return value.loc if value.loc.known else Location("", 0, 0, f"input {value.name}")


def check_sizes(module: Module, target: Target) -> None:
    """Raises OutOfTileMemory for values that all tiles together cannot hold at one time."""
    room = target.num_tiles * target.bytes_per_tile
    for op in module.walk():
        for value in op.results:
            _check(f"{op.opname}:", [value], op.loc, room)
    graph = module.main
    last = _last_uses(graph)
    used = [v for v in graph.inputs if v in last]
    for value in graph.inputs:
        _check(f"the input {value.name}:", [value], origin(value), room)
    if used:
        _check("the inputs together:", used, origin(max(used, key=_bytes)), room)
    first = _first_uses(graph)
    for op in graph.ops:
        if op.opname in _PRODUCTS and op.results[0] in first:
            emitted = first[op.results[0]]
            own = {_root(v) for v in op.operands()}
            alive = [v for v in used if v in own or last[v] >= emitted]
            _check(f"{op.opname} and inputs:", [op.results[0], *alive], op.loc, room)


def _check(what: str, values: list[Value], loc: Location, room: int) -> None:
    """Raises OutOfTileMemory for values, all there at one time, that do not fit into `room`."""
    total = sum(map(_bytes, values))
    if total <= room:
        return
    text = f"{what} {values[0].type} has {total:,} bytes, all tiles {room:,}"
    if len(values) > 1:
        largest = sorted(values, key=_bytes, reverse=True)[:_MOST]
        names = ", ".join(f"{v.name or 'the result'} {v.type} ({v.loc.short})" for v in largest)
        text = f"{what} {total:,} bytes at one time, all tiles have {room:,}. Largest: {names}"
    raise OutOfTileMemory(text, loc, _REMEDY)


def _bytes(value: Value) -> int:
    return value.type.nbytes


def _root(value: Value) -> Value:
    """What a view looks at."""
    while value.owner is not None and value.owner.opname in _VIEWS:
        value = value.owner.operands()[0]
    return value


def _positions(graph: Graph) -> list[tuple[int, Op]]:
    """All ops, those of regions too, with the number of the op of the main graph they belong to."""
    found: list[tuple[int, Op]] = []
    at = -1
    top = set(map(id, graph.ops))
    for op in graph.walk():
        at += id(op) in top
        found.append((at, op))
    return found


def _last_uses(graph: Graph) -> dict[Value, int]:
    """Number of the last op that reads each value; outputs are read after all ops."""
    last = {v: at for at, op in _positions(graph) for v in op.operands()}
    return last | dict.fromkeys(graph.outputs, len(graph.ops))


def _first_uses(graph: Graph) -> dict[Value, int]:
    first = dict.fromkeys(graph.outputs, len(graph.ops))
    for at, op in reversed(_positions(graph)):
        first.update(dict.fromkeys(op.operands(), at))
    return first
