"""Vertex groups of the block kernels, from a plan: NumPy arithmetic over all vertices at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
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
    from poplar_py.poplar.groups import ComputeSet
    from poplar_py.poplar.program import Sequence

__all__ = ["Blocks", "Finish", "Group", "base_of"]

TOUCH_ROWS = 2, 1
"""Rows of pixels that a 1 x 1 block, or a wider one, asks for ahead of time."""
NEAR_CACHE = 768 * 1024
"""Bytes of inputs that stay in a core's own caches; larger ones are worth asking for each time,
others when they may come from another core."""
FIRST_USES = 1, 2, 3, 4
"""Numbers of threads whose first output groups are known to a vertex."""
MOST_HINTS = 16
"""Cache lines a vertex asks for per row at most."""
HINT_SUMS = 40
"""Vectors of products a row has for each line it asks for: more hints only take load slots (weights
used once ran 15 % slower with a hint for each line, those of 7 pixels 30 % faster, measured)."""
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


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Target:
    """Where a serial step writes: the result, or f32 partial sums of `count` output blocks from
    block `low` on. The partial sums of a step are done with when it has added them."""

    tensor: Tensor
    partial: bool
    low: int
    count: int


@dataclass
class Group:
    """The vertices of one block width in one serial step: arrays over items in unit order.

    `x0`, `piece` are over the blocks along a row. The items of vertex v are `ptr[v]` up to
    `ptr[v + 1]`: they lie on one tile and share their weights.
    """

    px: int
    x0: Ints
    piece: Ints
    og: Ints = field(default_factory=_none)
    split: Ints = field(default_factory=_none)
    row: Ints = field(default_factory=_none)
    block: Ints = field(default_factory=_none)
    ptr: Ints = field(default_factory=_none)

    def per_vertex(self, count: Ints | int) -> Ints:
        """Offsets of a list of `count` entries an item, by vertex."""
        whole = np.broadcast_to(np.asarray(count, np.int64), self.og.shape)
        return offsets_of(whole)[self.ptr]


class Blocks:
    """One product on its way into the graph: units on tiles, output variables, vertex groups.

    Rows are numbered batch-major (`rows` = batch x `lines`). A unit is (output group, split, row,
    piece); its blocks share a tile. Units of an output group and split that share a tile are a
    slot (`slot` [rows, pieces] numbers them). `step` [output groups, splits]: serial step of each.
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
        self.slot: Ints = _slots(self.rows, len(self.pieces), plan.share)
        outer = np.indices((plan.output_groups, plan.splits))[int(plan.by_inputs)]
        count = plan.splits if plan.by_inputs else plan.output_groups
        self.step: Ints = outer * plan.serial // count
        self.unit_tile: Tiles = self._slot_tiles()[:, :, self.slot]
        bounds = np.arange(plan.splits + 1) * plan.problem.in_blocks // plan.splits
        self.split_bounds: Ints = bounds

    def _slot_tiles(self) -> Tiles:
        """Tile of every slot [output groups, splits, parts]: each serial step uses all tiles."""
        parts = int(self.slot.max(initial=0)) + 1
        tile = np.zeros((*self.step.shape, parts), np.int32)
        for step in range(self.plan.serial):
            mine = self.step == step
            tile[mine] = spread(int(mine.sum()) * parts, self.tiles).reshape((-1, parts))
        return tile

    # ------------------------------------------------------------------ vertices
    def groups(self, step: int = 0) -> list[Group]:
        """The vertex groups of a serial step, one for each block width that occurs."""
        begin = offsets_of(self.pieces)[:-1]
        per = -(-self.pieces // self.plan.px)
        piece, rank = ragged(per)
        x0 = begin[piece] + rank * self.plan.px
        width = np.minimum(self.plan.px, begin[piece] + self.pieces[piece] - x0)
        out: list[Group] = []
        for px in sorted(set(width.tolist()), reverse=True):
            pick = width == px
            out.append(self._group(px, x0[pick], piece[pick], step))
        return out

    def steps(
        self, out: Tensor, finish: Finish
    ) -> Iterator[tuple[ComputeSet, list[Group], Target]]:
        """For every serial step a compute set, its vertex groups, which are to be filled in, and
        where they write. The program gets each, and what adds its partial sums up."""
        targets = self.targets(out)
        for step, target in enumerate(targets):
            name = f"{self.name}/step{step}" if self.plan.serial > 1 else self.name
            cs = self.graph.add_compute_set(name)
            yield cs, self.groups(step), target
            self.prog.add(Execute(cs))
            if target.partial and (step + 1 == len(targets) or targets[step + 1] is not target):
                self.reduce(target, out, finish)

    def _group(self, px: int, x0: Ints, piece: Ints, step: int) -> Group:
        og, split = np.nonzero(self.step == step)
        which, row, block = (v.ravel() for v in np.indices((len(og), self.rows, len(x0))))
        key = which * (int(self.slot.max(initial=0)) + 1) + self.slot[row, piece[block]]
        head = np.flatnonzero(np.diff(key, prepend=-1))
        ptr = np.append(head, len(key)).astype(np.int64)
        return Group(px, x0, piece, og[which], split[which], row, block, ptr)

    def tile_of(self, g: Group) -> Tiles:
        """Tile of every vertex."""
        i = g.ptr[:-1]
        return self.unit_tile[g.og[i], g.split[i], g.row[i], g.piece[g.block[i]]]

    def affinity(self, og: Ints, row: Ints, x: Ints) -> Ints:
        """Column 0 of the order: what host threads share the work by, scaled to 0..4095."""
        if not self.plan.by_rows:
            return og * 4096 // max(self.plan.output_groups, 1)
        if self.lines == 1 and len(self.pieces) > 1:
            return x * 4096 // self.plan.problem.width
        return row * 4096 // self.rows

    def order(self, g: Group) -> Ints:
        """Sort keys of the vertices: weights stay while rows and pixels go by, and the inputs of a
        split while its output groups do."""
        i = g.ptr[:-1]
        og, row, x = g.og[i], g.row[i], g.x0[g.block[i]]
        return np.stack([self.affinity(og, row, x), g.split[i], og, row, x], 1)

    def weight_users(self) -> tuple[Ints, Ints]:
        """First and last tile that uses each (output group, split)'s weights."""
        flat = self.unit_tile.reshape((self.plan.output_groups * self.plan.splits, -1))
        return flat[:, 0].astype(np.int64), flat[:, -1].astype(np.int64)

    # ------------------------------------------------------------------ edges
    def row_edges(self, g: Group, table: RowTable, first: Ints) -> Edges:
        """x: the runs of each item's split; `first` is each output group's first input block."""
        per = table.start.shape[3]
        blocks = table.start.shape[2]
        lo, hi = self.split_bounds[g.split], self.split_bounds[g.split + 1]
        count = (hi - lo) * per
        at = ((g.block * self.rows + g.row) * blocks + first[g.og] + lo) * per
        vertex, rank = ragged(count)
        start = table.start.ravel()[at[vertex] + rank]
        length = table.length[rank % per]
        edges = Edges.from_runs(np.arange(len(start) + 1), start, length, self.dtype)
        return Edges.nested(g.per_vertex(count), edges)

    def stream_edges(self, g: Group, base: int, per_block: int) -> Edges:
        """w: the vertex's part of its group's stream; `per_block` elements an input block."""
        i = g.ptr[:-1]
        lo, hi = self.split_bounds[g.split[i]], self.split_bounds[g.split[i] + 1]
        start = base + (g.og[i] * self.plan.problem.in_blocks + lo) * per_block
        length = (hi - lo) * per_block
        return Edges.from_runs(np.arange(len(start) + 1), start, length, self.dtype)

    def pixel(self, block: Ints, row: Ints, x: Ints, blocks: int) -> Ints:
        """Element offset of a pixel in [N][blocks][lines][width][16]."""
        n, line = np.divmod(row, self.lines)
        width = self.plan.problem.width
        return (((n * blocks + block) * self.lines + line) * width + x) * LANES

    def output_edges(self, g: Group, target: Target) -> Edges:
        """out: NB runs of px pixels an item; partial sums of split s lie s images on."""
        nb = self.plan.nb
        x = g.x0[g.block]
        block = (g.og * nb)[:, None] + np.arange(nb) - target.low
        start = base_of(target.tensor) + self.pixel(block, g.row[:, None], x[:, None], target.count)
        if target.partial:
            start = start + (g.split * self._image(target.count))[:, None]
        dtype = target.tensor.dtype
        return self._lists(start.ravel(), g.px * LANES, g.per_vertex(nb), dtype)

    def _image(self, blocks: int) -> int:
        """Elements of one split's partial sums."""
        return self.rows * blocks * self.plan.problem.width * LANES

    def _lists(self, start: Ints, length: int, ptr: Ints, dtype: DType) -> Edges:
        """Runs of `length` elements; those of vertex v are `ptr[v]` up to `ptr[v + 1]`."""
        runs = Edges.from_runs(
            np.arange(len(start) + 1), start, np.full(len(start), length, np.int64), dtype
        )
        return Edges.nested(ptr, runs)

    def _no_lists(self, n: int) -> Edges:
        return self._lists(_none(), 0, np.zeros(n + 1, np.int64), self.dtype)

    def bias_edges(self, finish: Finish | None, first: Ints, blocks: int) -> Edges:
        """bias: one run of `blocks` blocks from block `first`, or none."""
        n = len(first)
        if finish is None or finish.bias is None:
            return self._no_lists(n)
        lanes = self.plan.bias_lanes
        start = base_of(finish.bias) + first * lanes
        return self._lists(start, blocks * lanes, np.arange(n + 1, dtype=np.int64), self.dtype)

    def residual_edges(
        self, finish: Finish | None, block: Ints, at: tuple[Ints, Ints, int], ptr: Ints
    ) -> Edges:
        """res: for each of `block` [items, nb] a run of the pixels `at` (row, x, width), or none;
        `ptr` as in `_lists`."""
        if finish is None or finish.residual is None:
            return self._no_lists(len(ptr) - 1)
        row, x, width = at
        start = finish.residual[block, row[:, None], x[:, None]]
        return self._lists(start.ravel(), width * LANES, ptr, self.dtype)

    def common_edges(
        self, g: Group, table: RowTable, first: Ints, finish: Finish, target: Target
    ) -> dict[str, Edges]:
        """out, bias, res and x of a group; after a split bias and residual wait for the sum."""
        nb = self.plan.nb
        done = None if target.partial else finish
        block = (g.og * nb)[:, None] + np.arange(nb)
        return {
            "out": self.output_edges(g, target),
            "bias": self.bias_edges(done, g.og[g.ptr[:-1]] * nb, nb),
            "res": self.residual_edges(done, block, (g.row, g.x0[g.block], g.px), g.per_vertex(nb)),
            "x": self.row_edges(g, table, first),
        }

    def first_use(self, g: Group) -> npt.NDArray[np.bool_]:
        """Vertices of the output groups with which a thread begins, where it reads its inputs."""
        og, groups = g.og[g.ptr[:-1]], self.plan.output_groups
        starts = [k * groups // n for n in FIRST_USES for k in range(n)]
        return np.isin(og, [0] if self.plan.by_rows else starts)

    def hints(self, g: Group, per_block: int) -> dict[str, Ints | int]:
        """What each vertex prefetches of the next weights, when a thread runs whole output groups.

        The vertices of one (output group, split) follow one another and share the work: each asks
        for an equal part of the weights of the vertex in its place in the next group.
        """
        p = self.plan.problem
        items = len(g.x0) * self.rows
        share = (len(g.ptr) - 1) * items // max(len(g.og), 1)
        pixels = p.rows * p.width * p.stride**2 * p.in_blocks * p.chans * self.dtype.size
        touch = np.where(
            (pixels > NEAR_CACHE) | self.first_use(g), TOUCH_ROWS[p.kernel_width > 1], 0
        )
        none: dict[str, Ints | int] = {"ahead": 0, "line": 0, "lines": 0, "touch": touch}
        if self.plan.by_rows or self.plan.output_groups * self.plan.splits < 4:
            return none
        least = p.in_blocks // self.plan.splits
        nbytes = -(-p.in_blocks // self.plan.splits) * per_block * self.dtype.size
        rows = max(least * p.kernel_rows, 1)
        sums = p.chans * p.kernel_width * self.plan.px * self.plan.nb
        most = min(MOST_HINTS, max(sums // HINT_SUMS, 1))
        lines = min(-(-nbytes // (64 * items * rows)), most)
        part: Ints = (g.row * len(g.x0) + g.block)[g.ptr[:-1]]
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
        """Tile of every reduced (block, row, piece); each step that adds uses all tiles."""
        rest = (self.rows, len(self.pieces))
        tiles = [
            spread((high - low) * rest[0] * rest[1], self.tiles) for low, high in self._added()
        ]
        return np.concatenate(tiles).reshape((-1, *rest))

    def _added(self) -> list[tuple[int, int]]:
        """Output blocks whose partial sums are added at a time: those of a serial step over
        outputs, else all."""
        plan = self.plan
        if plan.by_inputs or plan.serial == 1:
            return [(0, plan.problem.out_blocks)]
        groups = np.searchsorted(self.step[:, 0], np.arange(plan.serial + 1)) * plan.nb
        return list(pairwise(groups.tolist()))

    def _partials(self, low: int, high: int) -> Tensor:
        """f32 partial sums [splits][batch][high - low][lines][width][16] of output blocks on their
        writers' tiles."""
        p, count = self.plan.problem, high - low
        tile = np.repeat(self.unit_tile, self.plan.nb, 0)[
            low:high
        ]  # [blocks, splits, rows, pieces]
        shape = (count, self.plan.splits, self.batch, self.lines, len(self.pieces))
        ordered = tile.reshape(shape).transpose(1, 2, 0, 3, 4).ravel()
        size = (self.plan.splits, self.batch, count, self.lines, p.width, LANES)
        mapping = piece_mapping(ordered, self.pieces)
        return self.graph.add_variable(f32, size, f"{self.name}/partials", mapping=mapping)

    def targets(self, out: Tensor) -> list[Target]:
        """Where each serial step writes. Steps over outputs have partial sums of their own, those
        over the reduced blocks have all in common."""
        blocks, plan = self.plan.problem.out_blocks, self.plan
        if plan.splits == 1:
            return [Target(out, False, 0, blocks)] * plan.serial
        found = [
            Target(self._partials(low, high), True, low, high - low) for low, high in self._added()
        ]
        return found if len(found) == plan.serial else found * plan.serial

    # ------------------------------------------------------------------ reduction
    def reduce(self, target: Target, out: Tensor, finish: Finish) -> None:
        """A step that sums the partial sums of a target in order and finishes them."""
        cs = self.graph.add_compute_set(f"{self.name}/reduce")
        p, splits = self.plan.problem, self.plan.splits
        begin = offsets_of(self.pieces)[:-1]
        tiles = self.reduce_tile()
        image = self._image(target.count)
        base, source = base_of(out), base_of(target.tensor)
        for width in sorted(set(self.pieces.tolist()), reverse=True):
            pick = np.flatnonzero(self.pieces == width)
            shape = (target.count, self.rows, len(pick))
            nth, row, at = (v.ravel() for v in np.indices(shape))
            x, block = begin[pick][at], target.low + nth
            place = self.pixel(block, row, x, p.out_blocks)
            n = len(place)
            each = np.arange(n + 1, dtype=np.int64)
            full = np.full(n, width * LANES, np.int64)
            first = source + self.pixel(nth, row, x, target.count)
            parts = first[:, None] + np.arange(splits) * image
            edges = {
                "out": Edges.from_runs(np.arange(n + 1), base + place, full, self.dtype),
                "bias": self.bias_edges(finish, block, 1),
                "res": self.residual_edges(finish, block[:, None], (row, x, width), each),
                "part": self._lists(parts.ravel(), width * LANES, each * splits, f32),
            }
            codelet = f"poplin::ReduceBlock<{self.dtype.name},{finish.form.code}>"
            key = np.stack([self.affinity(block // self.plan.nb, row, x), block, row, x], 1)
            state = {"lo": finish.form.lo, "hi": finish.form.hi}
            self.graph.add_vertices(
                cs, codelet, tiles[block, row, pick[at]], edges, state, order=key, name=cs.name
            )
        self.prog.add(Execute(cs))


def _slots(rows: int, pieces: int, share: int) -> Ints:
    """Number of the slot [rows, pieces] when `share` units make one: parts of a row or rows."""
    row, piece = np.indices((rows, pieces))
    if share >= pieces:
        return row // (share // pieces)
    return row * -(-pieces // share) + piece // share
