"""`map`: one expression over tensors that broadcast, as vertices on blocks of the output.

The output keeps the memory order and mapping of the first input of full shape. Each interval of
the output on one tile becomes up to six vertices. A vertex works on a [rows, cols] block, and
every input is one of `full` (its own element for each), `row` (one row for all rows), `col` (one
element for each row) or `scalar`; no broadcast input is ever copied out unless the pattern has
more than two levels with tiny blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.codelets import expr as expressions
from poplar_py.diagnostics import PoplarPyError, ShapeError, TypeMismatch
from poplar_py.poplar import Tensor, program
from poplar_py.poplar.arrays import ragged, unique_sorted
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.poplar.mapping import Mapping, linear
from poplar_py.poplar.program_data import check_writable
from poplar_py.poplar.views import Cat
from poplar_py.popops.operands import Expression, Value, plain
from poplar_py.popops.overlap import apart
from poplar_py.popops.padded import blocked_operands
from poplar_py.poputil.blocked import add_blocked
from poplar_py.poputil.layout import (
    MemoryOrder,
    broadcast_mask,
    broadcast_to,
    clone_layout,
    fresh,
    mapping_of,
    memory_order,
    plain_order,
)
from poplar_py.poputil.shapes import common_shape
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar import ComputeSet, Graph

__all__ = ["map", "map_in_place", "map_with_output", "split_work"]

Ints = npt.NDArray[np.int64]
WORKERS = 6
MIN_VERTEX = 64
"""Fewest elements worth a vertex of their own."""
MIN_BLOCK = 64
"""Smallest [rows, cols] block of a broadcast pattern with more than two levels."""


def map(
    graph: Graph,
    expr: Expression,
    tensors: Sequence[Value],
    prog: program.Sequence,
    name: str = "",
    out_dtype: DType | None = None,
    *,
    compute_set: ComputeSet | None = None,
) -> Tensor:
    """A new tensor holding the expression over the broadcast inputs.

    `expr` is text of the expression language ("relu(add($0,$1))"), $i is `tensors[i]`, or an object
    of `popops.expr`. Numbers among the tensors become constants of the type they meet. Without
    `out_dtype` the result has the type the expression gives. With `compute_set` the vertices go
    there and nothing is appended to `prog`.
    """
    expr, tensors = plain(expr, tensors)
    given = result_dtype(expr, [t.dtype for t in tensors])
    dtype = out_dtype or given
    shape = _shape_of(tensors)
    name = name or "map"
    if prod(shape) == 0:
        return fresh(graph, dtype, shape, name)
    cs = compute_set or graph.add_compute_set(name)
    out = _map_parts(graph, expr, tensors, cs, name, dtype, shape)
    if compute_set is None:
        prog.add(program.Execute(cs))
    return out


def map_with_output(
    graph: Graph,
    expr: Expression,
    tensors: Sequence[Value],
    out: Tensor,
    prog: program.Sequence,
    name: str = "",
) -> None:
    """The expression written to `out`; inputs that overlap it in another order are copied first.

    Raises ShapeError unless the inputs broadcast to the shape of `out`, AliasedWrite where that
    holds an element twice or a constant.
    """
    expr, tensors = plain(expr, tensors)
    result_dtype(expr, [t.dtype for t in tensors])
    if _shape_of([*tensors, out]) != tuple(out.shape):
        shapes = ", ".join(str(list(t.shape)) for t in tensors)
        fail(ShapeError, f"an operation on {shapes} written to {list(out.shape)}")
    if prod(out.shape) == 0:
        return
    check_writable(out, f"the target of {name or 'map'}")
    tensors = apart(graph, tensors, out, prog, name or "map")
    cs = graph.add_compute_set(name or "map")
    order = memory_order(out) or plain_order(tuple(out.shape))
    add_vertices(graph, expr, tensors, out, order, cs, name)
    prog.add(program.Execute(cs))


def map_in_place(
    graph: Graph,
    expr: Expression,
    tensors: Sequence[Value],
    prog: program.Sequence,
    name: str = "",
) -> None:
    """The expression written over `tensors[0]`. Raises TypeMismatch where that is no tensor."""
    if not tensors or not isinstance(tensors[0], Tensor):
        fail(TypeMismatch, "an operation in place, and the first operand is no tensor")
    map_with_output(graph, expr, tensors, tensors[0], prog, name)


def result_dtype(expr: str, dtypes: Sequence[DType]) -> DType:
    """Element type of an expression over inputs of the given types. Raises TypeMismatch and
    ParseError at the user's line."""
    try:
        return expressions.result_dtype(expr, tuple(dtypes))
    except PoplarPyError as error:
        fail(type(error), error.message, error.remedy)


def _shape_of(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return common_shape(*(tuple(t.shape) for t in tensors))


def _map_parts(
    graph: Graph,
    expr: str,
    tensors: Sequence[Tensor],
    cs: ComputeSet,
    name: str,
    dtype: DType,
    shape: tuple[int, ...],
) -> Tensor:
    """Output like the best input; a joined input gives an output joined the same way."""
    padded = blocked_operands(graph, expr, tensors, shape)
    if padded is not None:
        return _map_blocked(graph, expr, padded, cs, name, dtype, shape)
    ref = _reference(tensors, shape)
    made = None
    if ref is None or ref[1] is not None:
        made = _joined_output(graph, tensors, dtype, shape, name)
    if made is None and ref is not None and ref[1] is not None:
        axis, bounds = ref[1]
        parts: list[Tensor] = []
        for lo, hi in itertools.pairwise(bounds):
            cut = [_slice(t, lo, hi, axis, len(shape), shape[axis]) for t in tensors]
            part = (*shape[:axis], hi - lo, *shape[axis + 1 :])
            parts.append(_map_parts(graph, expr, cut, cs, name, dtype, part))
        from poplar_py.poplar import concat

        return concat(parts, axis)
    if made is None and ref is not None:
        made = clone_layout(graph, ref[0], dtype, name)
    if made is None:
        made = _row_major(graph, tensors, dtype, shape, name), plain_order(shape)
    out, order = made
    add_vertices(graph, expr, tensors, out, order, cs, name)
    return out


def _row_major(
    graph: Graph, tensors: Sequence[Tensor], dtype: DType, shape: tuple[int, ...], name: str
) -> Tensor:
    """A new output spread linearly, in whole rows of the broadcast pattern where that is even."""
    order = plain_order(shape)
    masks = [broadcast_mask(order.apply(broadcast_to(t, shape))) for t in tensors]
    block = _pattern(order.sizes, masks)
    size = prod(shape)
    share = -(-size // graph.num_tiles)
    chunk = -(-share // block.cols) * block.cols
    if block.rows == 1 or chunk > 2 * share or chunk * dtype.size < 128:
        return fresh(graph, dtype, shape, name)
    mapping = linear(size, graph.num_tiles, grain=block.cols, least=chunk)
    return graph.add_variable(dtype, shape, name, mapping=mapping)


def _joined_output(
    graph: Graph,
    tensors: Sequence[Tensor],
    dtype: DType,
    shape: tuple[int, ...],
    name: str,
) -> tuple[Tensor, MemoryOrder] | None:
    """A blocked output for an activation joined from many blocked ones."""
    from poplar_py.poplin.lanes import blocked_like

    for t in tensors:
        out = blocked_like(graph, t, dtype, shape, name)
        order = None if out is None else memory_order(out)
        if out is not None and order is not None:
            return out, order
    return None


def _map_blocked(
    graph: Graph,
    expr: str,
    operands: list[Tensor],
    cs: ComputeSet,
    name: str,
    dtype: DType,
    shape: tuple[int, ...],
) -> Tensor:
    """All lanes of blocked activations, padding too: the output is blocked and padded again."""
    size = max(prod(t.shape) for t in operands)
    ref = next(t for t in operands if prod(t.shape) == size and not t.contains_constant())
    blocks, view = add_blocked(graph, dtype, shape, name, mapping_of(graph, ref.flatten()))
    order = plain_order(tuple(blocks.shape))
    add_vertices(graph, expr, operands, blocks, order, cs, name)
    return view


def _slice(t: Tensor, lo: int, hi: int, axis: int, rank: int, size: int) -> Tensor:
    d = axis - (rank - len(t.shape))
    if d < 0 or t.shape[d] != size:
        return t
    return t.slice(lo, hi, d)


def _reference(
    tensors: Sequence[Tensor], shape: tuple[int, ...]
) -> tuple[Tensor, tuple[int, list[int]] | None] | None:
    """The input whose layout the output takes, and where it is joined (axis, bounds) if it is."""
    full = [t for t in tensors if prod(t.shape) == prod(shape)]
    full = [t.reshape(shape) for t in full]
    constant = [t.contains_constant() for t in full]
    for wanted in (False, True):
        for t, c in zip(full, constant, strict=True):
            if c is wanted and memory_order(t) is not None:
                return t, None
    for t in full:
        view = t.view
        if not isinstance(view, Cat) or len(view.parts) > 4:
            continue
        if min(prod(p.shape) for p in view.parts) < 16:
            continue
        sizes = [p.shape[view.axis] for p in view.parts]
        return t, (view.axis, [0, *np.cumsum(sizes).tolist()])
    return None


@dataclass(frozen=True)
class Pieces:
    """Vertices by element range of the output in memory order."""

    begin: Ints
    end: Ints
    tile: npt.NDArray[np.int32]


def split_work(mapping: Mapping, cols: int, block: int, least: int = MIN_VERTEX) -> Pieces:
    """Cut [0, size) into vertices: at tile changes, at multiples of `block`, at rows of `cols`.

    A vertex holds whole rows of `cols` elements, or part of one row. Intervals of one tile are cut
    into up to six vertices of at least `least` elements.
    """
    bounds = mapping.bounds
    size = int(bounds[-1])
    cuts = [bounds]
    if block < size:
        cuts.append(np.arange(0, size, block, dtype=np.int64))
    if cols < block and bool((bounds % cols).any()):
        cuts += [bounds // cols * cols, np.minimum(-(-bounds // cols) * cols, size)]
    if len(cuts) > 1:
        bounds = unique_sorted(np.concatenate(cuts))
    begin, end = bounds[:-1], bounds[1:]
    tile = mapping.tile_at(begin)
    return _split_workers(begin, end, tile, cols, least)


def _split_workers(
    begin: Ints, end: Ints, tile: npt.NDArray[np.int32], cols: int, least: int
) -> Pieces:
    """Share pieces among the workers of their tile, at rows or at multiples of 16 elements."""
    length = end - begin
    load = np.bincount(tile, length, int(tile.max()) + 1)
    share = np.maximum(np.ceil(load[tile] / WORKERS).astype(np.int64), least)
    grain = np.where((length > cols) & (cols > 0), cols, 16)
    share = -(-share // grain) * grain
    count = -(-length // share)
    if int(count.max()) == 1:
        return Pieces(begin, end, tile)
    owner, rank = ragged(count)
    b = begin[owner] + rank * share[owner]
    e = np.minimum(b + share[owner], end[owner])
    return Pieces(b, e, tile[owner])


@dataclass(frozen=True)
class _Block:
    """The merged pattern: [grid, rows, cols] with a mode per input."""

    grid: int
    rows: int
    cols: int
    modes: tuple[str, ...]


def _pattern(sizes: tuple[int, ...], masks: list[tuple[bool, ...]]) -> _Block:
    groups = _merge(sizes, masks)
    if len(groups) > 2 and groups[-1][0] * groups[-2][0] < MIN_BLOCK:
        masks = [m if all(m) else (False,) * len(m) for m in masks]
        groups = _merge(sizes, masks)
    while len(groups) < 2:
        groups.insert(0, (1, (False,) * len(masks)))
    rows, row_mask = groups[-2]
    cols, col_mask = groups[-1]
    grid = prod(n for n, _ in groups[:-2])
    modes: list[str] = []
    for r, c in zip(row_mask, col_mask, strict=True):
        if rows == 1:
            modes.append("scalar" if c else "full")
        else:
            modes.append(("scalar" if c else "row") if r else ("col" if c else "full"))
    return _Block(grid, rows, cols, tuple(modes))


def _merge(
    sizes: tuple[int, ...], masks: list[tuple[bool, ...]]
) -> list[tuple[int, tuple[bool, ...]]]:
    """Neighbouring digits in which every input behaves alike become one."""
    groups: list[tuple[int, tuple[bool, ...]]] = []
    for d, n in enumerate(sizes):
        key = tuple(m[d] for m in masks)
        if groups and groups[-1][1] == key:
            groups[-1] = (groups[-1][0] * n, key)
        else:
            groups.append((n, key))
    return groups


def add_vertices(
    graph: Graph,
    expr: str,
    tensors: Sequence[Tensor],
    out: Tensor,
    order: MemoryOrder,
    cs: ComputeSet,
    name: str,
) -> None:
    """Vertices that write `out`, walking it in `order`."""
    shape = tuple(out.shape)
    views = [order.apply(broadcast_to(t, shape)) for t in tensors]
    masks = [broadcast_mask(v) for v in views]
    block = _pattern(order.sizes, masks)
    flat = order.apply(out).flatten()
    mapping = mapping_of(graph, flat)
    simple = block.rows == 1
    size = block.grid * block.rows * block.cols
    cols = size if simple and block.grid == 1 else block.cols
    work = split_work(mapping, cols, block.rows * block.cols)
    length = work.end - work.begin
    rows = np.maximum(length // block.cols, 1)
    width = length // rows
    edges = {"out": Edges.flat(flat, work.begin, work.end)}
    for i, (view, mode) in enumerate(zip(views, block.modes, strict=True)):
        edges[f"in{i}"] = _edges(view, mode, block, work.begin, rows, width)
    codelet = expressions.map_codelet(expr, tuple(t.dtype for t in tensors), out.dtype, block.modes)
    state = {"rows": rows.astype(np.uint32), "cols": width.astype(np.uint32)}
    graph.add_vertices(cs, codelet, work.tile, edges, state, name=name)


def _edges(view: Tensor, mode: str, block: _Block, begin: Ints, rows: Ints, width: Ints) -> Edges:
    """What each vertex reads of one input."""
    if mode == "full":
        return Edges.flat(view.flatten(), begin, begin + rows * width)
    box = view.reshape((block.grid, block.rows, block.cols))
    outer = begin // (block.rows * block.cols)
    if mode == "row":
        at = outer * block.cols + begin % block.cols
        return Edges.flat(box.slice(0, 1, 1).flatten(), at, at + width)
    if mode == "col":
        at = begin // block.cols
        return Edges.flat(box.slice(0, 1, 2).flatten(), at, at + rows)
    one = box.slice(0, 1, 1).slice(0, 1, 2).flatten()
    return Edges.flat(one, outer, outer + 1)
