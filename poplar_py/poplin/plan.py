"""The planner: how a product is cut into vertices.

A product is `groups of output blocks x reduced blocks x rows x pieces of a row`. A piece of a row
is the unit of placement (about 14 pixels, the same for every layer of a given width, so that the
next layer reads it in place); a vertex computes PX pixels of it for NB blocks of 16 outputs over
one part of the reduced blocks. The search weighs machine cycles (compute, exchange, reduction:
worst tile, phases added, as PopLibs' planner does) against the time of the register blocks on the
host.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poplar_py.poplar import Graph

__all__ = [
    "Plan",
    "Problem",
    "make_plan",
    "piece_widths",
    "plan_report",
    "plans",
    "remember",
]

EXCHANGE_BYTES = 4
"""Bytes a tile receives per cycle (poplar_poplibs 5.2)."""
MACS = {4: 16, 2: 64}
"""Products a tile sums per cycle by element size: float 16 units, half (poplar_poplibs 4.4)."""
MAX_SUMS = 26
VERTEX_OVERHEAD = 180
ROW_OVERHEAD = 48
SYNC = 150
CACHE_BYTES = 384 * 1024
"""Partial sums beyond this leave the nearer host caches before they are reduced (measured)."""
PIECE_LIMIT = 96 * 1024
"""Bytes of weights one vertex may hold."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything a plan depends on; sizes in elements, blocks of 16 channels.

    `rows` counts batch x outer spatial dims; `in_blocks` is what one output block sums over;
    `chans` channels an input block (1 for planar rows); `depthwise` blocks do not mix channels.
    `images`: lanes are images, output and input blocks are channels.
    `unit` is the row length pieces must divide, `nb_limit` what NB must divide (0: out_blocks).
    `read_piece` is the width of the contiguous pieces the input lies in (0: any).
    """

    size: int
    rows: int
    width: int
    out_blocks: int
    in_blocks: int
    kernel_rows: int
    kernel_width: int
    stride: int
    dilation: int
    chans: int
    tiles: int
    read_piece: int = 0
    depthwise: bool = False
    unit: int = 0
    nb_limit: int = 0
    images: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A cut: see the module. Cycles are estimates for the worst tile."""

    problem: Problem
    px: int
    nb: int
    splits: int
    pieces: tuple[int, ...]
    compute: int
    exchange: int
    reduction: int
    host: float

    @property
    def by_rows(self) -> bool:
        """Host threads share the work by rows (else by outputs): activations outweigh weights."""
        p = self.problem
        if p.rows * len(self.pieces) < 2:
            return False
        weights = p.out_blocks * p.in_blocks * p.kernel_rows * p.kernel_width * 16 * p.chans
        inputs = p.rows * p.width * p.stride * p.stride * p.in_blocks * p.chans
        return inputs + p.rows * p.width * 16 * p.out_blocks >= weights

    @property
    def bias_lanes(self) -> int:
        """Biases of one output block."""
        return 1 if self.problem.images else 16

    @property
    def output_groups(self) -> int:
        return self.problem.out_blocks // self.nb

    @property
    def blocks_per_row(self) -> int:
        """Vertices along one row."""
        return sum(-(-w // self.px) for w in self.pieces)

    @property
    def vertices(self) -> int:
        return self.output_groups * self.splits * self.problem.rows * self.blocks_per_row

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.reduction

    def report(self) -> str:
        """The plan in words: splits, block, vertices and estimated cycles."""
        p = self.problem
        kind = (
            "images"
            if p.images
            else "depthwise"
            if p.depthwise
            else "planar"
            if p.chans == 1
            else "block"
        )
        thread = "rows" if self.by_rows else "outputs"
        tiles = min(p.tiles, self.vertices)
        return (
            f"{kind}: outputs / {self.output_groups} x reduced / {self.splits} x rows {p.rows} x "
            f"pieces {len(self.pieces)} of {self.pieces[0]}; block {self.px} pixels x "
            f"{16 * self.nb} outputs; {self.vertices} vertices on {tiles} of {p.tiles} tiles; "
            f"threads by {thread}; cycles {self.cycles} = compute {self.compute} + "
            f"exchange {self.exchange} + reduction {self.reduction}"
        )


def _odd(n: int) -> int:
    while n % 2 == 0:
        n //= 2
    return n


@lru_cache(maxsize=4096)
def piece_widths(width: int, unit: int = 0) -> tuple[int, ...]:
    """The pieces a row of `width` is cut into: a function of the width alone, so that layers agree.

    Equal pieces of about 16 (up to 30) that survive a stride of 2, else
    nearly equal ones. `unit`: pieces must divide it (rows of a batch of matrices).
    """
    unit = unit if unit >= 8 else width
    one = _piece(unit)
    count, rest = divmod(unit, one)
    pieces = (one,) * count + ((rest,) if rest else ())
    return pieces * (width // unit)


def _piece(width: int) -> int:
    if width <= 16:
        return width
    odd = _odd(width)
    best = max((d for d in range(1, 27) if odd % d == 0 and (d <= 16 or odd == d)), default=1)
    if best > 16:
        return best
    if best < 3 and odd > 1:
        return -(-width // -(-width // 16))
    while best * 2 <= 16 and width % (best * 2) == 0:
        best *= 2
    if best % 2 and 7 <= best <= 15 and width % (best * 2) == 0:
        best *= 2  # halves of an even piece serve a stride of 2
    return best if best >= 7 else -(-width // -(-width // 16))


def _divisors(n: int, limit: int) -> list[int]:
    return [d for d in range(1, min(n, limit) + 1) if n % d == 0]


def _latency(sums: int) -> float:
    """Share of the peak a block with few sums reaches (measured: 7 0.75, 8 0.83, 10 0.94)."""
    table = {1: 0.12, 2: 0.25, 3: 0.36, 4: 0.47, 5: 0.57, 6: 0.67, 7: 0.75, 8: 0.83, 9: 0.88}
    table |= {10: 0.93, 11: 0.95, 12: 0.96, 13: 0.97}
    return table.get(sums, 1.0)


def _efficiency(p: Problem, px: int, nb: int) -> float:
    """Share of the host's FMA peak of a register block."""
    sums, kw = px * nb, p.kernel_width
    if p.depthwise:
        return 0.5 * _latency(sums)
    if sums + 2 > 31 or (sums + nb * kw + 1 > 32 and kw > 1 and sums > 20):
        return 0.5
    if p.images and nb * kw > 10:
        return 0.5
    window = (px - 1) * min(p.stride, kw) + kw
    loads = (window + nb * kw) / (px * nb * kw)
    return _latency(sums) * min(1.0, 0.88 / loads)


def _candidates(p: Problem) -> Iterator[tuple[int, int, int]]:
    pieces = piece_widths(p.width, p.unit)
    main = pieces[0]
    widths = [d for d in reversed(_divisors(main, MAX_SUMS)) if d >= min(4, main)]
    blocks = [1] if p.depthwise else _divisors(p.nb_limit or p.out_blocks, 14)
    most = 1 if p.depthwise or p.images else p.in_blocks
    least = 2 if most > 1 else 1
    splits = [s for s in range(1, max(most // least, 1) + 1) if s <= 16 or most % s == 0]
    for px in widths:
        for nb in blocks:
            if px * nb <= MAX_SUMS:
                yield from ((px, nb, s) for s in splits)


def _machine_cycles(
    p: Problem, px: int, nb: int, splits: int, vertices: int
) -> tuple[int, int, int]:
    """(compute, exchange, reduction) of the worst tile."""
    blocks = -(-p.in_blocks // splits)
    rows = blocks * p.kernel_rows
    taps = rows * p.kernel_width * p.chans
    macs = px * nb * 16 * taps
    rate = 4 if p.depthwise else MACS[p.size]
    each = -(-vertices // p.tiles)
    compute = each * (macs // rate + VERTEX_OVERHEAD + ROW_OVERHEAD * rows)
    window = (px - 1) * p.stride + (p.kernel_width - 1) * p.dilation + 1
    lanes = 16 if p.depthwise or p.images else p.chans
    inputs = each * rows * window * lanes * p.size
    weights = taps * nb * (1 if p.images else 16) * p.size
    exchange = (inputs + weights) // EXCHANGE_BYTES + SYNC
    reduction = 0
    if splits > 1:
        units = p.out_blocks * p.rows * p.width
        share = -(-units // p.tiles) if units > p.tiles * 14 else min(14, p.width)
        moved = share * 16 * 4 * splits // EXCHANGE_BYTES
        reduction = moved + share * 16 * splits // 4 + 230 + SYNC
    return compute, exchange, reduction


def _host_time(p: Problem, px: int, nb: int, splits: int, vertices: int) -> float:
    """Cycles of one host core."""
    lanes = 16 if p.images or p.depthwise else 16 * p.chans
    total = p.out_blocks * p.rows * p.width * p.in_blocks * p.kernel_rows * p.kernel_width
    fmas = total * lanes / 16
    work = fmas / (2 * _efficiency(p, px, nb))
    outputs = p.out_blocks * p.rows * p.width
    each = 6.0 if outputs * splits * 64 < CACHE_BYTES else 12.0
    partial = outputs * (each * splits + 8) if splits > 1 else 0.0
    return work + vertices * (40 + 2 * px * nb) + partial


def _score(p: Problem, px: int, nb: int, splits: int) -> tuple[float, Plan]:
    pieces = piece_widths(p.width, p.unit)
    along = sum(-(-w // px) for w in pieces)
    vertices = p.out_blocks // nb * splits * p.rows * along
    compute, exchange, reduction = _machine_cycles(p, px, nb, splits, vertices)
    host = _host_time(p, px, nb, splits, vertices)
    plan = Plan(p, px, nb, splits, pieces, compute, exchange, reduction, host)
    cost = plan.cycles * host**4
    if p.read_piece and p.read_piece % (px * p.stride):
        cost *= 1.6
    held = -(-p.in_blocks // splits) * p.kernel_rows * p.kernel_width * p.chans * nb * 16 * p.size
    if held > PIECE_LIMIT and not p.depthwise:
        cost *= (held / PIECE_LIMIT) ** 2
    return cost, plan


_plans: weakref.WeakKeyDictionary[Graph, dict[str, Plan]] = weakref.WeakKeyDictionary()


def remember(graph: Graph, name: str, plan: Plan) -> None:
    """Keep a plan under a name for `plans` and `plan_report`."""
    kept = _plans.setdefault(graph, {})
    label, number = name, 1
    while label in kept:
        number += 1
        label = f"{name} ({number})"
    kept[label] = plan


def plans(graph: Graph) -> dict[str, Plan]:
    """The plans of the block products of a graph by name, in the order they were added."""
    return dict(_plans.get(graph, {}))


def plan_report(graph: Graph) -> str:
    """One line a product: its name and `Plan.report`."""
    return "\n".join(f"{name}: {plan.report()}" for name, plan in plans(graph).items())


@lru_cache(maxsize=4096)
def make_plan(problem: Problem) -> Plan:
    """The best plan of a problem; the same for equal problems, always."""
    best: tuple[float, Plan] | None = None
    for px, nb, splits in _candidates(problem):
        scored = _score(problem, px, nb, splits)
        if best is None or scored[0] < best[0]:
            best = scored
    assert best is not None
    return best[1]
