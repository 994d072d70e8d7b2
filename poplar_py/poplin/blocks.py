"""Vertex groups of the block kernels, from a plan: NumPy arithmetic over all vertices at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Edges
from poplar_py.poplar.arrays import offsets_of, ragged
from poplar_py.poplar.program import Execute
from poplar_py.poplin.epilogue import Inline
from poplar_py.poplin.lanes import RowTable, piece_mapping
from poplar_py.poplin.place import TileRange, spread
from poplar_py.poplin.plan import Plan
from poplar_py.poputil.blocked import (
    LANES,
    images_of_lanes,
    mark_padded,
    variable_ids,
    view_of_blocked,
)
from poplar_py.types import DType, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

__all__ = ["Blocks", "Finish", "Group", "base_of"]

TOUCH_ROWS = 3
"""Rows of pixels a 1 x 1 block asks for ahead of time."""
NEAR_CACHE = 768 * 1024
"""Bytes of inputs that stay in a core's own caches; larger ones are worth asking for."""
MAX_HINTS = 24
"""Most cache lines a vertex asks for per row; weights used less than that are not worth it."""
Ints = npt.NDArray[np.int64]
Tiles = npt.NDArray[np.int32]


def base_of(tensor: Tensor) -> int:
    """Global address of the first element of a row-major variable."""
    return int(tensor.runs()[0][0])


@dataclass(frozen=True, slots=True)
class Finish:
    """What happens to a sum: the epilogue's form, `bias` (whole blocks) and the residual's lanes.

    `residual`: addresses [out_blocks, rows, width].
    """

    form: Inline
    bias: Tensor | None = None
    residual: Ints | None = None

    @property
    def plain(self) -> bool:
        return self.form.code == 0 and self.bias is None and self.residual is None


@dataclass
class Group:
    """The vertices of one block width: arrays over vertices in unit order."""

    px: int
    x0: Ints
    piece: Ints
    og: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    split: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    row: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    block: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


class Blocks:
    """One product on its way into the graph: units on tiles, output variables, vertex groups.

    Rows are numbered batch-major (`rows` = batch x `lines`). A unit is (output group, split, row,
    piece); its blocks share a tile.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        batch: int,
        dtype: DType,
        prog: Sequence,
        name: str,
        tiles: TileRange,
    ) -> None:
        self.graph, self.plan, self.batch, self.dtype = graph, plan, batch, dtype
        self.prog, self.name, self.tiles = prog, name, tiles
        self.rows = plan.problem.rows
        self.lines = self.rows // batch
        self.pieces = np.array(plan.pieces, np.int64)
        units = plan.output_groups * plan.splits * self.rows * len(self.pieces)
        shape = (plan.output_groups, plan.splits, self.rows, len(self.pieces))
        self.unit_tile: Tiles = spread(units, tiles).reshape(shape)
        bounds = np.arange(plan.splits + 1) * plan.problem.in_blocks // plan.splits
        self.split_bounds: Ints = bounds

    # ------------------------------------------------------------------ vertices
    def groups(self) -> list[Group]:
        """The vertex groups, one for each block width that occurs."""
        begin = offsets_of(self.pieces)[:-1]
        per = -(-self.pieces // self.plan.px)
        piece, rank = ragged(per)
        x0 = begin[piece] + rank * self.plan.px
        width = np.minimum(self.plan.px, begin[piece] + self.pieces[piece] - x0)
        out: list[Group] = []
        for px in sorted(set(width.tolist()), reverse=True):
            pick = width == px
            group = Group(px, x0[pick], piece[pick])
            shape = (self.plan.output_groups, self.plan.splits, self.rows, int(pick.sum()))
            at = [v.ravel() for v in np.indices(shape)]
            group.og, group.split, group.row, group.block = at
            out.append(group)
        return out

    def tile_of(self, g: Group) -> Tiles:
        """Tile of every vertex."""
        return self.unit_tile[g.og, g.split, g.row, g.piece[g.block]]

    def affinity(self, og: Ints, row: Ints, x: Ints) -> Ints:
        """Column 0 of the order: what host threads share the work by, scaled to 0..4095."""
        if not self.plan.by_rows:
            return og * 4096 // max(self.plan.output_groups, 1)
        if self.lines == 1 and len(self.pieces) > 1:
            return x * 4096 // self.plan.problem.width
        return row * 4096 // self.rows

    def order(self, g: Group) -> Ints:
        """Sort keys: weights stay while rows and pixels go by."""
        x = g.x0[g.block]
        return np.stack([self.affinity(g.og, g.row, x), g.og, g.split, g.row, x], 1)

    def weight_users(self) -> tuple[Ints, Ints]:
        """First and last tile that uses each (output group, split)'s weights."""
        flat = self.unit_tile.reshape((self.plan.output_groups * self.plan.splits, -1))
        return flat[:, 0].astype(np.int64), flat[:, -1].astype(np.int64)

    # ------------------------------------------------------------------ edges
    def row_edges(self, g: Group, table: RowTable, first: Ints) -> Edges:
        """x: the runs of the vertex's split; `first` is each output group's first input block."""
        per = table.start.shape[3]
        blocks = table.start.shape[2]
        lo, hi = self.split_bounds[g.split], self.split_bounds[g.split + 1]
        count = (hi - lo) * per
        at = ((g.block * self.rows + g.row) * blocks + first[g.og] + lo) * per
        vertex, rank = ragged(count)
        start = table.start.ravel()[at[vertex] + rank]
        length = table.length[rank % per]
        edges = Edges.from_runs(np.arange(len(start) + 1), start, length, self.dtype)
        return Edges.nested(offsets_of(count), edges)

    def stream_edges(self, g: Group, base: int, per_block: int) -> Edges:
        """w: the vertex's part of its group's stream; `per_block` elements an input block."""
        lo, hi = self.split_bounds[g.split], self.split_bounds[g.split + 1]
        start = base + (g.og * self.plan.problem.in_blocks + lo) * per_block
        length = (hi - lo) * per_block
        return Edges.from_runs(np.arange(len(start) + 1), start, length, self.dtype)

    def pixel(self, block: Ints, row: Ints, x: Ints) -> Ints:
        """Element offset of a pixel in [N][blocks][lines][width][16]."""
        n, line = np.divmod(row, self.lines)
        p = self.plan.problem
        return (((n * p.out_blocks + block) * self.lines + line) * p.width + x) * LANES

    def output_edges(self, g: Group, base: int, dtype: DType, partial: bool) -> Edges:
        """out: NB runs of px pixels; partial sums of split s lie s images on."""
        nb, p = self.plan.nb, self.plan.problem
        x = g.x0[g.block]
        block = (g.og * nb)[:, None] + np.arange(nb)
        start = base + self.pixel(block, g.row[:, None], x[:, None])
        if partial:
            start = start + (g.split * (self.rows * p.out_blocks * p.width * LANES))[:, None]
        return self._lists(start.ravel(), g.px * LANES, len(x), nb, dtype)

    def _lists(self, start: Ints, length: int, n: int, per: int, dtype: DType) -> Edges:
        runs = Edges.from_runs(
            np.arange(len(start) + 1), start, np.full(len(start), length, np.int64), dtype
        )
        return Edges.nested(np.arange(n + 1, dtype=np.int64) * per, runs)

    def bias_edges(self, finish: Finish | None, first: Ints, blocks: int) -> Edges:
        """bias: one run of `blocks` blocks from block `first`, or none."""
        n = len(first)
        if finish is None or finish.bias is None:
            return self._lists(np.zeros(0, np.int64), 0, n, 0, self.dtype)
        lanes = self.plan.bias_lanes
        start = base_of(finish.bias) + first * lanes
        return self._lists(start, blocks * lanes, n, 1, self.dtype)

    def residual_edges(
        self, finish: Finish | None, block: Ints, row: Ints, x: Ints, width: int
    ) -> Edges:
        """res: a run of `width` pixels for each of `block` [n, nb], or none."""
        n, nb = block.shape
        if finish is None or finish.residual is None:
            return self._lists(np.zeros(0, np.int64), 0, n, 0, self.dtype)
        start = finish.residual[block, row[:, None], x[:, None]]
        return self._lists(start.ravel(), width * LANES, n, nb, self.dtype)

    def common_edges(
        self, g: Group, table: RowTable, first: Ints, finish: Finish, target: Tensor
    ) -> dict[str, Edges]:
        """out, bias, res and x of a group; after a split bias and residual wait for the sum."""
        nb, partial = self.plan.nb, self.plan.splits > 1
        done = None if partial else finish
        block = (g.og * nb)[:, None] + np.arange(nb)
        kept = f32 if partial else self.dtype
        return {
            "out": self.output_edges(g, base_of(target), kept, partial),
            "bias": self.bias_edges(done, g.og * nb, nb),
            "res": self.residual_edges(done, block, g.row, g.x0[g.block], g.px),
            "x": self.row_edges(g, table, first),
        }

    def hints(self, g: Group, per_block: int) -> dict[str, Ints | int]:
        """What each vertex prefetches of the next weights, when a thread runs whole output groups.

        The vertices of one (output group, split) follow one another and share the work: each asks
        for an equal part of the weights of the vertex in its place in the next group.
        """
        p = self.plan.problem
        share = len(g.x0) * self.rows
        pixels = p.rows * p.width * p.stride**2 * p.in_blocks * p.chans * self.dtype.size
        touch = TOUCH_ROWS if pixels > NEAR_CACHE and p.kernel_width == 1 else 0
        none: dict[str, Ints | int] = {"ahead": 0, "line": 0, "lines": 0, "touch": touch}
        if self.plan.by_rows or self.plan.output_groups * self.plan.splits < 4:
            return none
        least = p.in_blocks // self.plan.splits
        nbytes = -(-p.in_blocks // self.plan.splits) * per_block * self.dtype.size
        rows = max(least * p.kernel_rows, 1)
        lines = -(-nbytes // (64 * share * rows))
        if lines > MAX_HINTS:
            return none
        part: Ints = g.row * len(g.x0) + g.block
        first: Ints = part * (lines * rows)
        return none | {"ahead": share, "line": first, "lines": lines}

    # ------------------------------------------------------------------ variables
    def output(self, channels: int, spatial: tuple[int, ...], name: str) -> tuple[Tensor, Tensor]:
        """The result's blocks and view, its pieces on the tiles that write them."""
        blocks = self.plan.problem.out_blocks
        if self.plan.splits == 1:
            tile = np.repeat(self.unit_tile[:, 0], self.plan.nb, 0)
        else:
            tile = self.reduce_tile()
        # [blocks, rows, pieces] -> [batch, blocks, lines, pieces]
        shape = (blocks, self.batch, self.lines, len(self.pieces))
        ordered = tile.reshape(shape).transpose(1, 0, 2, 3).ravel()
        mapping = piece_mapping(ordered, self.pieces)
        full = (self.batch, blocks, *spatial, LANES)
        base = self.graph.add_variable(self.dtype, full, name, mapping=mapping)
        mark_padded(self.graph, int(variable_ids(self.graph, base.runs()[0][:1])[0]))
        if self.plan.problem.images:
            image = base.reshape((self.batch * blocks, 1, *spatial, LANES))
            return base, images_of_lanes(view_of_blocked(image, LANES), self.batch * LANES)
        return base, view_of_blocked(base, channels)

    def reduce_tile(self) -> Tiles:
        """Tile of every reduced (block, row, piece)."""
        shape = (self.plan.problem.out_blocks, self.rows, len(self.pieces))
        return spread(int(np.prod(shape)), self.tiles).reshape(shape)

    def partials(self, name: str) -> Tensor:
        """f32 partial sums [splits][batch][blocks][lines][width][16] on their writers' tiles."""
        p = self.plan.problem
        tile = np.repeat(self.unit_tile, self.plan.nb, 0)  # [blocks, splits, rows, pieces]
        shape = (p.out_blocks, self.plan.splits, self.batch, self.lines, len(self.pieces))
        ordered = tile.reshape(shape).transpose(1, 2, 0, 3, 4).ravel()
        size = (self.plan.splits, self.batch, p.out_blocks, self.lines, p.width, LANES)
        return self.graph.add_variable(f32, size, name, mapping=piece_mapping(ordered, self.pieces))

    # ------------------------------------------------------------------ reduction
    def reduce(self, partials: Tensor, out: Tensor, finish: Finish) -> None:
        """A step that sums the partials in order and finishes them."""
        cs = self.graph.add_compute_set(f"{self.name}/reduce")
        p, splits = self.plan.problem, self.plan.splits
        begin = offsets_of(self.pieces)[:-1]
        tiles = self.reduce_tile()
        image = self.rows * p.out_blocks * p.width * LANES
        base, source = base_of(out), base_of(partials)
        for width in sorted(set(self.pieces.tolist()), reverse=True):
            pick = np.flatnonzero(self.pieces == width)
            shape = (p.out_blocks, self.rows, len(pick))
            block, row, at = (v.ravel() for v in np.indices(shape))
            x = begin[pick][at]
            place = self.pixel(block, row, x)
            n = len(place)
            full = np.full(n, width * LANES, np.int64)
            parts = (source + place)[:, None] + np.arange(splits) * image
            edges = {
                "out": Edges.from_runs(np.arange(n + 1), base + place, full, self.dtype),
                "bias": self.bias_edges(finish, block, 1),
                "res": self.residual_edges(finish, block[:, None], row, x, width),
                "part": self._lists(parts.ravel(), width * LANES, n, splits, f32),
            }
            codelet = f"poplin::ReduceBlock<{self.dtype.name},{finish.form.code}>"
            key = np.stack([self.affinity(block // self.plan.nb, row, x), block, row, x], 1)
            state = {"lo": finish.form.lo, "hi": finish.form.hi}
            self.graph.add_vertices(
                cs, codelet, tiles[block, row, pick[at]], edges, state, order=key, name=cs.name
            )
        self.prog.add(Execute(cs))
