"""What was created for a product to come: its tiles and its layout, remembered by variable."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poplar import Tensor
from poplar_py.poplin.place import TileRange, tile_range
from poplar_py.poputil.blocked import variable_ids

if TYPE_CHECKING:
    from collections.abc import Hashable

    from poplar_py.poplar import Graph
    from poplar_py.poplar.view_core import View
    from poplar_py.poplin.operands import Operand

__all__ = ["laid_stream", "note_stream", "note_tiles", "planned_tiles", "shared_tiles"]


@dataclass
class _Kept:
    """Of one graph: tile ranges by product and by variable, streams (view, stream) by variable.

    Views, not tensors: those hold their graph, which would never be let go.
    """

    products: dict[Hashable, list[tuple[TileRange, set[str]]]]
    tiles: dict[int, TileRange]
    streams: dict[int, tuple[View, View]]


_kept: weakref.WeakKeyDictionary[Graph, _Kept] = weakref.WeakKeyDictionary()


def _of(graph: Graph) -> _Kept:
    return _kept.setdefault(graph.get_top_level_graph(), _Kept({}, {}, {}))


def _variable(graph: Graph, t: Tensor) -> int:
    """The variable of a tensor's first element."""
    first = t.flatten().slice(0, 1, 0).runs()[0][:1]
    return int(variable_ids(graph.get_top_level_graph(), first)[0])


def shared_tiles(graph: Graph, product: Hashable, operand: str) -> TileRange:
    """The tiles of a product for which `operand` is created: those of its other operand, if that
    was created for an equal product which has no such operand yet."""
    entries = _of(graph).products.setdefault(product, [])
    for tiles, made in entries:
        if operand not in made:
            made.add(operand)
            return tiles
    entries.append((tile_range(graph, None), {operand}))
    return entries[-1][0]


def note_tiles(graph: Graph, t: Tensor, tiles: TileRange) -> None:
    """The product that reads the variable of `t` goes to `tiles`."""
    _of(graph).tiles[_variable(graph, t)] = tiles


def planned_tiles(
    graph: Graph, tiles: TileRange | tuple[int, int] | None, *operands: Operand
) -> TileRange:
    """The tiles of a product: those given, those an operand was created for, or the next ones."""
    known = _kept.get(graph.get_top_level_graph())
    if tiles is not None or known is None:
        return tile_range(graph, tiles)
    variables = [_variable(graph, t) for t in operands if isinstance(t, Tensor) and t.numel]
    found = next((known.tiles[v] for v in variables if v in known.tiles), None)
    return tile_range(graph, None) if found is None else found


def note_stream(graph: Graph, view: Tensor, stream: Tensor) -> None:
    """Weights `view` [O, C, kernel rows, kw] lie in `stream` in the kernels' order."""
    _of(graph).streams[_variable(graph, stream)] = (view.view, stream.view)


def laid_stream(graph: Graph, w: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The stream of `shape` that weights w [O, C, kernel rows, kw] lie in already, or None."""
    known = _kept.get(graph.get_top_level_graph())
    if known is None or not known.streams or not w.numel:
        return None
    found = known.streams.get(_variable(graph, w))
    if found is None or found[1].shape != shape or found[0].shape != w.shape:
        return None
    same = all(np.array_equal(a, b) for a, b in zip(found[0].runs(), w.runs(), strict=True))
    return Tensor(graph, found[1], w.dtype) if same else None
