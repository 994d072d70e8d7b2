"""Where a reduction stage is cut: at home, each tile what it holds, or evenly over the tiles.

Boxes at home follow the mapping: its bounds, rounded to whole rows or to whole groups of rows, cut
the data into blocks, and the workers of a tile share its blocks out by rows and columns. Boxes of a
grid follow sizes only. `choose` takes the cheapest, with everything that must come after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.arrays import ragged, unique_sorted
from poplar_py.poplar.mapping import Mapping
from poplar_py.popops.reduction_cost import HOST, RUN, WORKERS, Costs, Grid, Job, Source

__all__ = ["Boxes", "Data", "choose", "parts_of"]

Ints = npt.NDArray[np.int64]
MOST_BLOCKS = 16
"""Blocks a tile, on average, beyond which data counts as scattered."""
MOST_PAIRS = 1 << 15
"""(box, row) pairs that are looked at to keep boxes off the tiles of their own data."""
SHIFTS = 8
SHARES = (
    (6, 1),
    (5, 1),
    (4, 1),
    (3, 1),
    (2, 1),
    (1, 1),
    (3, 2),
    (2, 2),
    (1, 2),
    (2, 3),
    (1, 3),
    (1, 6),
)
"""Pieces of a tile's rows and of its columns."""


@dataclass(frozen=True)
class Boxes:
    """V vertices: `groups` x `n` rows from `row`; columns `col` to `col + cols`, which stand in
    edges of `width` columns from `left`; int64[V] each, by row and column. `tile` int64[V]."""

    row: Ints
    groups: Ints
    n: Ints
    col: Ints
    cols: Ints
    left: Ints
    width: Ints
    tile: Ints


@dataclass(frozen=True)
class Data:
    """Rows [rows, inner] in their order: the mapping from 0, group o being the rows ptr[o] to
    ptr[o + 1]; the tiles that may work on them, from the one in place `start` on; the mean length
    of runs in memory."""

    mapping: Mapping
    ptr: Ints
    pool: Ints
    run: float
    start: int = 0

    @property
    def even(self) -> bool:
        """Whether all groups have as many rows."""
        size = np.diff(self.ptr)
        return bool((size == size[0]).all())

    def group(self, row: Ints) -> Ints:
        """The group of each row."""
        return np.searchsorted(self.ptr, row, "right") - 1

    @property
    def bounds(self) -> Ints:
        return self.mapping.bounds

    @property
    def tile(self) -> Ints:
        return self.mapping.tile.astype(np.int64)


@dataclass(frozen=True)
class _Blocks:
    """Blocks of whole rows [begin, end), or of columns [left, left + width) of whole groups, with
    their tiles; `cost` of bringing them there."""

    begin: Ints
    end: Ints
    left: Ints
    width: Ints
    tile: Ints
    cost: int


def choose(costs: Costs, job: Job, data: Data) -> Boxes:
    """The boxes of the next stage."""
    best, found = costs.grid(job, _source(job, data))
    boxes: Boxes | None = None
    for blocks, whole in _home_blocks(costs, job, data):
        for least, rows, cols in _shares(costs, job, blocks, whole):
            if least >= best:
                break
            made = _shared(job, blocks, whole, rows, cols)
            if made is None:
                continue
            price = blocks.cost + _price(costs, job, data, made)
            if price < best:
                best, boxes = price, made
    return _grid_boxes(job, data, found) if boxes is None else boxes


def _source(job: Job, data: Data) -> Source:
    elements = np.diff(data.bounds)
    most = int(np.bincount(data.tile, elements).max())
    mean = min(data.run, max(1.0, float(elements.mean())))
    run = max(1, int(mean) // job.inner)
    return Source(run, max(1, min(job.inner, int(mean))), most)


# ---------------------------------------------------------------------- at home
def _home_blocks(costs: Costs, job: Job, data: Data) -> list[tuple[_Blocks, bool]]:
    """Blocks of rows, of whole groups (True), and of columns."""
    found: list[tuple[_Blocks, bool]] = []
    limit = MOST_BLOCKS * costs.tiles
    if len(data.tile) > limit:
        return found
    if job.n > 1 and job.outer < limit:
        found.append((_row_blocks(costs, job, data, 1), False))
    if data.even:
        found.append((_row_blocks(costs, job, data, job.n), True))
    columns = _column_blocks(job, data)
    if columns is not None:
        found.append((columns, False))
    return [(blocks, whole) for blocks, whole in found if len(blocks.begin) <= limit]


def _row_blocks(costs: Costs, job: Job, data: Data, unit: int) -> _Blocks:
    wide = job.inner * unit
    cuts = (data.bounds + wide // 2) // wide * unit
    if unit == 1:
        cuts = np.concatenate([cuts, data.ptr])
    cuts = unique_sorted(np.concatenate([cuts, data.ptr[[0, -1]]]))
    begin, end = cuts[:-1], cuts[1:]
    tile = data.mapping.tile_at((begin + end) * job.inner // 2).astype(np.int64)
    zero = np.zeros(len(begin), np.int64)
    cost = _moving(costs, job, data, begin * job.inner, end * job.inner, tile)
    return _Blocks(begin, end, zero, zero + job.inner, tile, cost)


def _moving(costs: Costs, job: Job, data: Data, begin: Ints, end: Ints, tile: Ints) -> int:
    """Cycles to bring blocks of elements together on their tiles."""
    cuts = unique_sorted(np.concatenate([begin, end[-1:], data.bounds]))
    low, size = cuts[:-1], np.diff(cuts)
    block = np.searchsorted(begin, low, "right") - 1
    source, target = data.mapping.tile_at(low).astype(np.int64), tile[block]
    size = size * job.source.size
    far = source != target
    torn = np.zeros(len(begin), np.bool_)
    torn[block[far]] = True
    if data.run < int((end - begin).max()):
        torn[:] = True
    local = np.bincount(target, np.where(torn[block] & ~far, size, 0)).max()
    cost = costs.call + int(local) // costs.copy_rate if local else 0
    if not far.any():
        return cost
    pieces = np.maximum(1, size[far] // max(1, int(data.run * job.source.size)))
    each = size[far] // costs.rate + pieces * costs.fragment
    moved = max(np.bincount(t[far], each).max() for t in (source, target))
    return cost + int(moved) + costs.exchange_sync


def _column_blocks(job: Job, data: Data) -> _Blocks | None:
    """Columns that lie on one tile in every row of a group; None where they do not."""
    if job.inner == 1 or data.run < job.inner:
        return None
    first = data.bounds[(data.bounds > 0) & (data.bounds < job.inner)]
    left = np.concatenate([np.zeros(1, np.int64), first])
    width = np.diff(np.append(left, job.inner))
    group = np.repeat(np.arange(job.outer, dtype=np.int64), len(left))
    left, width = np.tile(left, job.outer), np.tile(width, job.outer)
    begin, end = data.ptr[group], data.ptr[group + 1]
    tiles = [
        data.mapping.tile_at(row * job.inner + left + part)
        for row in (begin, (begin * 2 + end) // 3, (begin + end) // 2, end - 1)
        for part in (0, width - 1)
    ]
    if not all(np.array_equal(t, tiles[0]) for t in tiles):
        return None
    return _Blocks(begin, end, left, width, tiles[0].astype(np.int64), 0)


def _shares(costs: Costs, job: Job, b: _Blocks, whole: bool) -> list[tuple[float, int, int]]:
    """Pieces of rows and columns a tile, with what they cost at least; the cheapest first."""
    rows, cols = np.array(SHARES, np.int64).T
    load = int(np.bincount(b.tile, (b.end - b.begin) // (job.n if whole else 1)).max())
    share = -(-load // rows)
    width = -(-int(b.width.max()) // cols)
    ways = (share, job.n, width) if whole else (1, share, width)
    least = b.cost + costs.sync + WORKERS * costs.vertex(job.codelet(whole), *ways)
    return sorted(zip(least.tolist(), rows.tolist(), cols.tolist(), strict=True))


def _shared(job: Job, b: _Blocks, whole: bool, rows: int, cols: int) -> Boxes | None:
    """Blocks cut for the workers of their tiles: into `rows` x `cols` pieces a tile."""
    lanes, widest = job.lanes, int(b.width.max())
    if cols > 1 and -(-widest // lanes) < cols:
        return None
    unit = job.n if whole else 1
    continuous = not whole and job.inner == 1
    size = (b.end - b.begin) // unit
    load = np.bincount(b.tile, size).astype(np.int64)
    share = np.maximum(1, -(-load // rows))[b.tile]
    if whole and cols > 1:
        share = np.ones_like(share)
    elif continuous:
        share = -(-share // RUN) * RUN
    if rows > 1 and int((share == size).all()):
        return None
    pieces = -(-size // share)
    step = -(-size // pieces)
    if continuous:
        step = np.minimum(-(-step // RUN) * RUN, size)
        pieces = -(-size // step)
    which, k = ragged(pieces)
    begin = b.begin[which] + k * step[which] * unit
    end = np.minimum(begin + step[which] * unit, b.end[which])
    vectors = -(-b.width // lanes)
    thin = -(-vectors // cols) * lanes
    slices = -(-b.width // thin)
    box, c = ragged(slices[which])
    which = which[box]
    col = c * thin[which]
    own = np.minimum(thin[which], b.width[which] - col)
    begin, end = begin[box], end[box]
    groups = (end - begin) // unit if whole else np.ones_like(begin)
    left = b.left[which]
    made = Boxes(
        begin, groups, (end - begin) // groups, left + col, own, left, b.width[which], b.tile[which]
    )
    return _in_order(made) if int(b.left.max()) else made


def _in_order(b: Boxes) -> Boxes:
    order = np.lexsort((b.col, b.row))
    return Boxes(*(getattr(b, f)[order] for f in Boxes.__dataclass_fields__))


def parts_of(data: Data, b: Boxes) -> Ints:
    """Partial results that the boxes leave of every group."""
    if int(b.groups.max()) > 1:
        return np.ones(len(data.ptr) - 1, np.int64)
    return np.bincount(data.group(b.row[b.col == 0]), minlength=len(data.ptr) - 1).astype(np.int64)


def _price(costs: Costs, job: Job, data: Data, b: Boxes) -> float:
    """Compute and sync of a stage, and what comes after it; infinite where nothing is reduced."""
    parts = int(parts_of(data, b).max())
    if parts == job.n and parts > 1:
        return np.inf
    compute = costs.longest(costs.vertex(job.codelet(parts == 1), b.groups, b.n, b.cols), b.tile)
    compute += len(b.row) // HOST
    if parts == 1:
        return costs.sync + compute
    first = b.col == 0
    run = _together(data.group(b.row[first]), b.tile[first])
    return costs.sync + compute + costs.later(job.after(parts), run)


def _together(group: Ints, tile: Ints) -> int:
    """Partial results of a group that follow one another on one tile, in the mean."""
    changes = int(((group[1:] != group[:-1]) | (tile[1:] != tile[:-1])).sum()) + 1
    return max(1, len(tile) // changes)


# ---------------------------------------------------------------------- anywhere
def _grid_boxes(job: Job, data: Data, grid: Grid) -> Boxes:
    many = grid.groups if data.even else 1
    if many > 1:
        row = np.arange(0, job.outer, many, dtype=np.int64) * job.n
        end = np.minimum(row + many * job.n, job.outer * job.n)
        groups = (end - row) // job.n
    else:
        size = np.diff(data.ptr)
        group, part = ragged(-(-size // grid.rows))
        row = data.ptr[group] + part * grid.rows
        end = np.minimum(row + grid.rows, data.ptr[group + 1])
        groups = np.ones_like(row)
    left = np.arange(0, job.inner, grid.cols, dtype=np.int64)
    col = np.tile(left, len(row))
    cols = np.minimum(grid.cols, job.inner - col)
    row, end, groups = (np.repeat(a, len(left)) for a in (row, end, groups))
    tile = _spread(data, job, row, end - row, col)
    return Boxes(row, groups, (end - row) // groups, col, cols, col, cols, tile)


def _spread(data: Data, job: Job, row: Ints, rows: Ints, col: Ints) -> Ints:
    """Tiles for boxes in order, evenly, and off the tiles that hold what they read: a tile that
    receives a part of an edge has to copy its own part too."""
    count, pool = len(row), len(data.pool)
    index = np.arange(count, dtype=np.int64)
    skip = max(1, int(rows.sum()) // MOST_PAIRS)
    box, k = ragged(-(-rows // skip))
    source = data.mapping.tile_at((row[box] + k * skip) * job.inner + col[box])
    best, found = len(source) + 1, index
    for place in (index, index * pool // count) if count < pool else (index * pool // count,):
        for shift in range(SHIFTS):
            tile = data.pool[(place + data.start + shift * pool // SHIFTS) % pool]
            own = int((tile[box] == source).sum())
            if own < best:
                best, found = own, tile
            if own == 0:
                return found
    return found
