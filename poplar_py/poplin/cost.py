"""What cuts of a product cost: cycles of the machine, bytes of a tile, time on the host.

A cut is (pixels a block, output blocks a block, parts of the reduced blocks, serial steps). All
functions take arrays over cuts. Cycles are those a run is charged with: the vertices' own cycle
functions (`cycles.py`), bytes received at the exchange's rate, a cycle a message, a sync a phase;
the worst tile, phases added. Figures of the host below are compared with what a machine takes by
benchmarks/host_costs.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplin.cycles import (
    LANE_STEPS,
    UNITS,
    conv_cycles,
    epilogue_cycles,
    lane_cycles,
    mat_mul_cycles,
    reduce_cycles,
)
from poplar_py.poplin.pieces import piece_widths
from poplar_py.poplin.problem import Problem

__all__ = ["Cuts", "Layout", "copy_cycles", "host_time", "layout", "machine_cycles", "tile_bytes"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
CACHE_BYTES = 384 * 1024
"""Partial sums beyond this leave the nearer host caches before they are reduced (measured)."""
PARTIAL = {4: (2.5, 5.0), 2: (6.0, 12.0)}
"""Host cycles of 16 partial sums, few and many, by bytes of an element: those of f32 products are
added where the first of them lies, those of f16 ones are stored and read again (measured)."""
LATENCY = np.array(
    [0, 0.12, 0.25, 0.36, 0.47, 0.57, 0.67, 0.75, 0.83, 0.88, 0.93, 0.95, 0.96, 0.97, 1.0]
)
"""Share of the host's peak that a block with so many sums reaches (measured)."""
WEIGHT_CYCLES = 6.0
"""Host cycles in which 16 weights come from memory (measured; fewer when cached)."""
COPIED = 1.25
"""Host time of a product whose rows do not lie in whole windows and are copied first (measured)."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts of one problem: `px`, `nb`, `splits`, `serial` int64[n]. `by_inputs`: serial steps go
    through the reduced blocks, else through the outputs."""

    px: Ints
    nb: Ints
    splits: Ints
    serial: Ints
    by_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a cut's work lies. A *slot* is what one tile does with the same weights: `share`
    consecutive units (a unit is a piece of a row), whole rows or equal parts of one. `parts`: slots
    an (output group, split); `held`: slots of the fullest tile in one serial step."""

    share: Ints
    parts: Ints
    held: Ints


def layout(p: Problem, cuts: Cuts) -> Layout:
    """As many slots as there are tiles for, and no more."""
    per_row = len(piece_widths(p.width, p.unit))
    outer = np.where(cuts.by_inputs, cuts.splits, p.out_blocks // cuts.nb)
    inner = p.out_blocks // cuts.nb * cuts.splits // outer
    groups = -(-outer // cuts.serial) * inner
    wanted = np.maximum(p.tiles // groups, 1)
    rows = -(-p.rows // wanted)  # rows a slot when each has whole ones
    along = np.maximum(np.minimum(wanted // p.rows, per_row), 1)
    if p.row_weights:
        rows = np.ones_like(wanted)
    few = wanted < p.rows
    share = np.where(few, rows * per_row, -(-per_row // along))
    row_parts = -(-per_row // np.minimum(share, per_row))
    parts = np.where(share >= per_row, -(-p.rows // np.maximum(share // per_row, 1)), 0)
    parts = np.where(share < per_row, p.rows * row_parts, parts)
    return Layout(share, parts, -(-groups * parts // p.tiles))


def _blocks(p: Problem, cuts: Cuts) -> Ints:
    return -(-p.in_blocks // cuts.splits)


def _window(p: Problem, lay: Layout) -> Ints:
    """Input pixels of one input block that a slot reads: its lines with their halo."""
    pieces = piece_widths(p.width, p.unit)
    along = np.minimum(lay.share, len(pieces))
    lines = -(-lay.share // len(pieces))
    width = np.minimum(along * pieces[0], p.width)
    columns = (width - 1) * p.stride + (p.kernel_width - 1) * p.dilation + 1
    return columns * (p.kernel_rows + (lines - 1) * min(p.row_stride, p.kernel_rows))


def _weights(p: Problem, cuts: Cuts) -> Ints:
    """Weights of a slot."""
    chans = 1 if p.depthwise else p.chans
    taps = _blocks(p, cuts) * p.kernel_rows * p.kernel_width * chans
    return taps * cuts.nb * p.weight_lanes


def _outputs(p: Problem, cuts: Cuts, lay: Layout) -> Ints:
    """Elements a slot makes."""
    piece = piece_widths(p.width, p.unit)[0]
    return np.minimum(lay.share * piece, p.rows * p.width) * cuts.nb * 16


def tile_bytes(p: Problem, cuts: Cuts, lay: Layout) -> Ints:
    """Bytes of the fullest tile in a step: what it receives, its weights, what it makes; partial
    sums also of earlier steps, and received to be added, where that is more.

    Partial sums stay until they are added: after each step over outputs, and after the last one
    over the reduced blocks.
    """
    inputs = _window(p, lay) * _blocks(p, cuts) * p.lanes * p.size
    made = lay.held * _outputs(p, cuts, lay)
    step = lay.held * (inputs + _weights(p, cuts) * p.size)
    steps = cuts.serial if cuts.by_inputs else 1
    results = p.rows * p.width * p.out_blocks * 16
    added = results * cuts.splits * 4 // np.where(cuts.by_inputs, 1, cuts.serial)
    sums = steps * made * 4 + np.maximum(step, -(-added // p.tiles))
    return np.where(cuts.splits > 1, sums, step + made * p.size)


def piece_bytes(p: Problem, cuts: Cuts) -> Ints:
    """Bytes of one piece of constant weights."""
    return _weights(p, cuts) * p.size


def machine_cycles(p: Problem, cuts: Cuts, lay: Layout) -> tuple[Ints, Ints, Ints]:
    """(compute, exchange, reduction) of the worst tile, over all serial steps."""
    compute = cuts.serial * lay.held * _slot_cycles(p, cuts, lay)
    exchange = cuts.serial * _exchange(p, cuts, lay)
    return compute, exchange, np.where(cuts.splits > 1, _reduction(p, cuts), 0)


def _slot_cycles(p: Problem, cuts: Cuts, lay: Layout) -> Ints:
    """Vertices of a slot: one with the whole blocks, one with the blocks at the pieces' ends."""
    piece = piece_widths(p.width, p.unit)[0]
    full, rest = piece // cuts.px, piece % cuts.px
    total = np.where(full > 0, _vertex_cycles(p, cuts, cuts.px, np.maximum(lay.share * full, 1)), 0)
    short = _vertex_cycles(p, cuts, np.maximum(rest, 1), lay.share)
    return total + np.where(rest > 0, short, 0)


def _vertex_cycles(p: Problem, cuts: Cuts, px: Any, items: Ints) -> Ints:
    kind = "float" if p.size == 4 else "half"
    blocks = _blocks(p, cuts)
    rows = blocks * p.kernel_rows
    done = np.where(cuts.splits == 1, p.extras, 0)
    vector = UNITS[kind].vector
    elements = px * items * cuts.nb * 16
    finish = np.where(cuts.splits == 1, epilogue_cycles(vector, p.act, elements, done), 0)
    if p.depthwise or p.images:
        step = LANE_STEPS["images" if p.images else "depthwise"][kind]
        body = lane_cycles(step, rows * p.kernel_width, px * items * cuts.nb)
    elif p.row_weights:
        body = mat_mul_cycles(kind, px * items, cuts.nb, blocks)
    else:
        one = p.kernel_width == 1 and p.stride == 1
        body = conv_cycles(kind, p.kernel_width, px, cuts.nb, p.chans, rows, items, one=one)
    return body + finish


def _exchange(p: Problem, cuts: Cuts, lay: Layout) -> Ints:
    """One serial step: a slot's input rows, its weights when others use them too, its residual."""
    m = p.machine
    blocks = _blocks(p, cuts)
    pixels = _window(p, lay) * blocks
    moved = pixels * p.lanes + np.where(lay.parts > 1, _weights(p, cuts), 0)
    if p.residual:
        moved = moved + np.where(cuts.splits == 1, _outputs(p, cuts, lay), 0)
    messages = pixels // max(p.read_piece, 1) if p.read_piece else blocks * p.kernel_rows
    return lay.held * (moved * p.size // m.exchange + messages * m.fragment) + 2 * m.sync


def _copied(p: Problem, cuts: Cuts) -> npt.NDArray[np.bool_]:
    """Whether the windows of blocks do not lie in the pieces the input comes in."""
    if not p.read_piece:
        return np.zeros(len(cuts.px), np.bool_)
    return p.read_piece % (cuts.px * p.stride) != 0


def copy_cycles(p: Problem, cuts: Cuts) -> Ints:
    """The step before that rearranges the input to whole rows (long ones in pieces of 64 pixels or
    more) over all tiles, for cuts that need it."""
    rows = p.in_blocks * p.rows * p.row_stride
    pixels = p.width * p.stride
    cut = max(min(p.tiles // rows, pixels // 64), 1)
    piece = -(-pixels // cut) * p.lanes * p.size
    cycles = -(-rows * cut // p.tiles) * piece // p.machine.exchange + 2 * p.machine.sync
    return np.where(_copied(p, cuts), cycles, 0)


def _reduction(p: Problem, cuts: Cuts) -> Ints:
    """The steps that sum the parts: pieces of rows of one output block, over all tiles."""
    m = p.machine
    pieces = piece_widths(p.width, p.unit)
    steps = 1 if cuts.by_inputs else cuts.serial
    each = steps * -(-p.out_blocks * p.rows * len(pieces) // (p.tiles * steps))
    outs = pieces[0] * 16
    moved = outs * (4 * cuts.splits + (p.size if p.residual else 0))
    work = reduce_cycles(cuts.splits, outs) + epilogue_cycles(2, p.act, outs, p.extras)
    return each * (moved // m.exchange + cuts.splits * m.fragment + work) + 2 * m.sync * steps


# ---------------------------------------------------------------------- the host
def _efficiency(p: Problem, cuts: Cuts) -> Floats:
    """Share of the host's FMA peak of a register block (32 vectors, two loads a cycle)."""
    px, nb, kw = cuts.px, cuts.nb, p.kernel_width
    sums = px * nb
    latency = LATENCY[np.minimum(sums, len(LATENCY) - 1)]
    if p.depthwise:
        return 0.5 * latency
    window = (px - 1) * min(p.stride, kw) + kw
    loads = (window + nb * kw) / (px * nb * kw)
    full = (sums + 2 > 31) | ((sums + nb * kw + 1 > 32) & (kw > 1) & (sums > 20))
    if p.images:
        full |= nb * kw > 10
    return np.where(full, 0.5, latency * np.minimum(1.0, 0.88 / loads))


def host_time(p: Problem, cuts: Cuts) -> Floats:
    """Cycles of one host core: its sums, at least the stream of the weights from memory, then what
    a block and a partial sum cost."""
    lanes = 16 if p.images or p.depthwise else 16 * p.chans
    outputs = p.out_blocks * p.rows * p.width
    fmas = outputs * p.in_blocks * p.kernel_rows * p.kernel_width * lanes / 16
    along = np.zeros_like(cuts.px)
    for width in piece_widths(p.width, p.unit):
        along += -(-width // cuts.px)
    blocks = p.out_blocks // cuts.nb * cuts.splits * p.rows * along
    few, many = PARTIAL[p.size]
    each = np.where(outputs * cuts.splits * 64 < CACHE_BYTES, few, many)
    partial = np.where(cuts.splits > 1, outputs * (each * cuts.splits + 8), 0.0)
    stream = WEIGHT_CYCLES * p.out_blocks * p.in_blocks * p.kernel_rows * p.kernel_width * p.chans
    work = np.maximum(fmas / (2 * _efficiency(p, cuts)), stream)
    time = work + blocks * (40 + 2 * cuts.px * cuts.nb) + partial
    return np.where(_copied(p, cuts), time * COPIED, time)
