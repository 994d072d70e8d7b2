"""The planner: how a product is cut into vertices.

A product is `groups of output blocks x reduced blocks x rows x pieces of a row`. A piece of a row
is the unit of placement (about 14 pixels, the same for every layer of a given width, so that the
next layer reads it in place); a vertex computes PX pixels x NB blocks of 16 outputs, several times
over with the same weights, over one part of the reduced blocks.

Of the cuts whose step fits the share of a tile's memory that is given, the one with the least
cycles x (host time)^4 is taken (`cost.py`): machine and host like different cuts. When none fits,
the product is done in serial steps that use the memory one after the other, and at last the bound
is doubled, then dropped, as PopLibs' planner does.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplin.cost import (
    Cuts,
    Layout,
    copy_cycles,
    host_time,
    layout,
    machine_cycles,
    piece_bytes,
    tile_bytes,
)
from poplar_py.poplin.pieces import piece_widths
from poplar_py.poplin.problem import MACS, Machine, Problem

if TYPE_CHECKING:
    from poplar_py.poplar import Graph

__all__ = [
    "MACS",
    "Machine",
    "Plan",
    "Problem",
    "make_plan",
    "piece_widths",
    "plan_report",
    "plans",
    "remember",
]

MAX_SUMS = 26
"""Sums of a register block."""
MANY = 32
"""Parts of the reduced blocks up to which every number is tried; above, divisors only."""
EVEN = 1.1
"""The fullest tile's share of large weights over the mean, at most."""
PIECE_LIMIT = 96 * 1024
"""Bytes of weights one vertex may hold: pieces of constants must spread evenly over tiles."""
HOST_POWER = 4
"""A plan of 1 % more host time must save 4 % of the cycles."""
HOST_LIMIT = 1.25
"""Host time of the slowest plan considered over that of the fastest."""
SERIAL = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Serial steps tried, in this order."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A cut: see the module. Cycles are those of the worst tile over all serial steps; `share` is
    the pieces a tile makes with the same weights, `nbytes` what it holds in a step."""

    problem: Problem
    px: int
    nb: int
    splits: int
    pieces: tuple[int, ...]
    compute: int
    exchange: int
    reduction: int
    host: float
    share: int = 1
    serial: int = 1
    by_inputs: bool = False
    nbytes: int = 0

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
        return self.problem.weight_lanes

    @property
    def output_groups(self) -> int:
        return self.problem.out_blocks // self.nb

    @property
    def slots(self) -> int:
        """Units of work a tile does with the same weights, over all serial steps."""
        return self.output_groups * self.splits * self.parts

    @property
    def parts(self) -> int:
        """Slots of one output group and part of the reduced blocks."""
        rows, along = self.problem.rows, len(self.pieces)
        if self.share < along:
            return rows * -(-along // self.share)
        return -(-rows // (self.share // along))

    @property
    def vertices(self) -> int:
        """Vertices: one for each block width in a slot."""
        widths = {w for piece in set(self.pieces) for w in (min(self.px, piece), piece % self.px)}
        return self.slots * len(widths - {0})

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.reduction

    def report(self) -> str:
        """The plan in words: splits, block, vertices, bytes and cycles."""
        p = self.problem
        thread = "rows" if self.by_rows else "outputs"
        tiles = min(p.tiles, -(-self.slots // self.serial))
        way = "reduced blocks" if self.by_inputs else "outputs"
        serial = f" in {self.serial} serial steps over {way}" if self.serial > 1 else ""
        return (
            f"{p.kind}: outputs / {self.output_groups} x reduced / {self.splits} x rows {p.rows} x "
            f"pieces {len(self.pieces)} of {self.pieces[0]}; block {self.px} pixels x "
            f"{16 * self.nb} outputs; {self.vertices} vertices on {tiles} of {p.tiles} tiles"
            f"{serial}; {self.nbytes} bytes a tile; "
            f"threads by {thread}; cycles {self.cycles} = compute {self.compute} + "
            f"exchange {self.exchange} + reduction {self.reduction}"
        )


def _divisors(n: int, limit: int) -> list[int]:
    return [d for d in range(1, min(n, limit) + 1) if n % d == 0]


def _candidates(p: Problem) -> tuple[npt.NDArray[np.int64], ...]:
    """(px, nb, splits) of every cut the kernels can do."""
    main = piece_widths(p.width, p.unit)[0]
    widths = [d for d in reversed(_divisors(main, MAX_SUMS)) if d >= min(4, main)]
    blocks = [1] if p.depthwise else _divisors(p.nb_limit or p.out_blocks, 14)
    most = 1 if p.depthwise or p.images else p.in_blocks
    least = 2 if most > 1 else 1
    splits = [s for s in range(1, max(most // least, 1) + 1) if s <= MANY or most % s == 0]
    pairs = [(px, nb) for px in widths for nb in blocks if px * nb <= MAX_SUMS]
    px, nb = np.repeat(np.array(pairs, np.int64), len(splits), 0).T
    return px, nb, np.tile(np.array(splits, np.int64), len(pairs))


def _families(p: Problem) -> Iterator[Cuts]:
    """All cuts, by the number of serial steps."""
    px, nb, splits = _candidates(p)
    for serial in SERIAL:
        for by_inputs in (False, True) if serial > 1 else (False,):
            fits = (splits if by_inputs else p.out_blocks // nb) >= serial
            if fits.any():
                steps = np.full(int(fits.sum()), serial, np.int64)
                yield Cuts(px[fits], nb[fits], splits[fits], steps, by_inputs)


def _even(p: Problem, cuts: Cuts) -> npt.NDArray[np.bool_]:
    """Whether weights that fill a good part of the tiles lie evenly on them."""
    groups = p.out_blocks // cuts.nb * cuts.splits
    fullest = -(-groups // p.tiles) * piece_bytes(p, cuts)
    mean = groups * piece_bytes(p, cuts) / p.tiles
    return (fullest <= PIECE_LIMIT) | (fullest <= mean * EVEN)


def _best(
    p: Problem, cuts: Cuts, lay: Layout, good: npt.NDArray[np.bool_]
) -> tuple[int, int, int, int, float]:
    """(index, compute, exchange, reduction, host) of the best of the good cuts."""
    host = host_time(p, cuts)
    compute, exchange, reduction = machine_cycles(p, cuts, lay)
    cycles = compute + exchange + reduction + copy_cycles(p, cuts)
    near = good & (host <= host[good].min() * HOST_LIMIT)
    cost = np.where(near, np.log(host) * HOST_POWER + np.log(cycles), np.inf)
    best = int(np.lexsort((host, cost))[0])
    return best, int(compute[best]), int(exchange[best]), int(reduction[best]), float(host[best])


def _plan_within(p: Problem, bound: float) -> Plan | None:
    """The best plan whose steps take at most `bound` bytes of a tile."""
    for cuts in _families(p):
        lay = layout(p, cuts)
        nbytes = tile_bytes(p, cuts, lay)
        good = (nbytes <= bound) & (piece_bytes(p, cuts) <= max(PIECE_LIMIT, bound))
        if not good.any():
            continue
        for wish in (piece_bytes(p, cuts) <= PIECE_LIMIT, _even(p, cuts)):
            good = good & wish if (good & wish).any() else good
        i, compute, exchange, reduction, host = _best(p, cuts, lay, good)
        return Plan(
            p,
            int(cuts.px[i]),
            int(cuts.nb[i]),
            int(cuts.splits[i]),
            piece_widths(p.width, p.unit),
            compute,
            exchange,
            reduction,
            host,
            int(lay.share[i]),
            int(cuts.serial[i]),
            cuts.by_inputs,
            int(nbytes[i]),
        )
    return None


@lru_cache(maxsize=4096)
def make_plan(problem: Problem) -> Plan:
    """The best plan of a problem; the same for equal problems, always."""
    bound = problem.machine.tile_bytes * problem.memory
    while bound <= 2 * problem.machine.tile_bytes:
        found = _plan_within(problem, bound)
        if found is not None:
            return found
        bound *= 2
        if bound == 0:
            break
    found = _plan_within(problem, float("inf"))
    assert found is not None
    return found


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
