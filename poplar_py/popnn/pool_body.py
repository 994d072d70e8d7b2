"""Max pooling whose vertices read their input where it lies.

Producers leave an activation in pieces of a few pixels of a row, each on one tile. When windows
tile a row evenly, the outputs of a piece need that piece and at most one pixel on each side: three
runs that each lie on one tile, so that nothing has to be gathered.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplin.plan import piece_widths
from poplar_py.popnn.pool_work import LANES, PoolParams, input_rows
from poplar_py.poputil.blocked import add_blocked
from poplar_py.poputil.boxes import grid_boxes
from poplar_py.poputil.layout import mapping_of
from poplar_py.poputil.place import interval_mapping, place_near

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["body_pool"]

Ints = npt.NDArray[np.int64]
WIDEST = 28
"""Most pixels of an input piece for one vertex."""


def body_pool(
    graph: Graph,
    blocks: Tensor,
    params: PoolParams,
    shape: tuple[int, ...],
    prog: program.Sequence,
    name: str,
) -> Tensor | None:
    """Max pooling of blocks [N, C/16, *in, 16] to `shape`; None where it does not fit."""
    kernel, stride = params.kernel[-1], params.strides[-1]
    left = params.pads[len(params.kernel) - 1]
    right = kernel - stride - left
    width, out_width = blocks.shape[-2], shape[-1]
    if params.dilations[-1] != 1 or kernel > 3 or left > 1 or not 0 <= right <= 1:
        return None
    piece = _piece(graph, blocks, width)
    if width % stride or out_width != width // stride or piece % stride or piece // stride < 2:
        return None
    spatial = blocks.shape[2:-1]
    count, rows = blocks.shape[0] * blocks.shape[1], prod(spatial[:-1])
    source = blocks.reshape((count, rows, width * LANES))
    lo, _ = grid_boxes((count, prod(shape[2:-1]), width // piece), (1, 1, 1))
    ptr, row = input_rows(spatial[:-1], shape[2:-1], params, lo[:, 1])
    if bool((np.diff(ptr) == 0).any()):
        return None
    first = row[ptr[:-1]]
    at = (lo[:, 0] * rows + first) * (width * LANES) + lo[:, 2] * piece * LANES
    pixels = piece // stride
    # vertices of one piece of the next layer's share a tile, so that it reads the piece in place
    wanted = piece_widths(out_width)[0]
    together = wanted // pixels if wanted % pixels == 0 else 1
    tile = place_near(graph, source.flatten(), at)[np.arange(len(lo)) - lo[:, 2] % together]
    size = np.full(len(lo), pixels * LANES, np.int64)
    base, out = add_blocked(graph, blocks.dtype, shape, name, mapping=interval_mapping(size, tile))
    end = np.cumsum(size)
    step = 1 + left + right
    edges = {
        "out": Edges.flat(base.flatten(), end - size, end),
        "x": Edges.nested(ptr * step, _runs(source, lo, ptr, row, piece, width, left, right)),
    }
    codelet = f"popnn::MaxPoolBody<{blocks.dtype.name},{LANES},{kernel},{stride},{left},{right}>"
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, tile, edges, name=name)
    prog.add(program.Execute(cs))
    return out


def _piece(graph: Graph, blocks: Tensor, width: int) -> int:
    """Pixels of a row that always lie on one tile."""
    bounds = mapping_of(graph, blocks.flatten()).bounds[:-1]
    if bool((bounds % LANES).any()):
        return 1
    piece = gcd(width, int(np.gcd.reduce(bounds // LANES % width)))
    if piece > WIDEST:
        piece = max(d for d in range(1, WIDEST + 1) if piece % d == 0)
    return piece


def _runs(
    source: Tensor, lo: Ints, ptr: Ints, row: Ints, piece: int, width: int, left: int, right: int
) -> Edges:
    """For every vertex and input row: the pixel to the left, the piece, the pixel to the right.

    At the end of a row the piece's own end stands in, which is in the window anyhow.
    """
    vertex = np.repeat(np.arange(len(lo)), np.diff(ptr))
    begin = lo[vertex, 2] * piece
    starts = [begin]
    sizes = [np.full_like(begin, piece)]
    if left:
        starts.insert(0, np.maximum(begin - 1, 0))
        sizes.insert(0, np.ones_like(begin))
    if right:
        starts.append(np.minimum(begin + piece, width - 1))
        sizes.append(np.ones_like(begin))
    step = len(starts)
    pixel, count = np.stack(starts, axis=1).ravel(), np.stack(sizes, axis=1).ravel()
    block, line = np.repeat(lo[vertex, 0], step), np.repeat(row, step)
    corner = np.stack([block, line, pixel * LANES], axis=1)
    one = np.ones_like(pixel)
    return Edges.boxes(source, corner, np.stack([one, one, count * LANES], axis=1))
