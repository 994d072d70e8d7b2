"""Cycles of the block kernels as PopLibs' conv vertices take them on the matrix unit (AMP).

Our block kernels name what is summed; a machine does it with all six workers and its accumulating
matrix product unit. The figures are PopLibs' own estimates (poplibs, poplin PerformanceEstimation:
`conv nx1`, `conv 1x1` and `ReduceAdd` vertices), in tile cycles: such a vertex occupies its tile.

The functions `conv_cycles`, `mat_mul_cycles`, `lane_cycles` and `reduce_cycles` take arrays of
sizes; the planner weighs its cuts with the same functions that a run is charged with.

Per type: one pass of the unit sums IN channels for a position in CORE cycles, so float keeps
8 x 16 / 8 = 16 products a cycle and half with float sums 16 x 8 / 4 = 32 (two passes for 16
outputs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.cycle_tables import tile_cycles_of

__all__ = [
    "LANE_STEPS",
    "UNITS",
    "conv_cycles",
    "epilogue_cycles",
    "lane_cycles",
    "mat_mul_cycles",
    "reduce_cycles",
]

Array = np.ndarray[Any, Any]
WORKERS = 6


@dataclass(frozen=True)
class Unit:
    """The matrix unit for one input type.

    channels: input channels a pass; passes: for 16 outputs; load: cycles to load 16 x `channels`
    weights at 8 bytes a cycle; core: cycles a position; nx1, one: worker cycles for 0, 1, 2 and 3
    positions of the nx1 and the 1x1 vertex; vector: elements of a 64-bit register.
    """

    channels: int
    passes: int
    load: int
    core: int
    nx1: tuple[int, int, int, int]
    one: tuple[int, int, int, int]
    vector: int


UNITS = {
    "float": Unit(8, 1, 64, 8, (17, 33, 44, 45), (24, 47, 46, 46), 2),
    "half": Unit(16, 2, 32, 4, (17, 29, 33, 34), (22, 33, 42, 38), 4),
}
"""poplibs PerformanceEstimation: worker functions f(n) (nx1) and W(n) (1x1), weight loads."""
ACTIVATION = {0: 0, 1: 1, 2: 30, 3: 10, 4: 11, 5: 11, 6: 6, 7: 10, 8: 3, 9: 6, 10: 10}
"""Worker cycles an activation takes per vector (poplibs popnn NonLinearity estimators; hardswish as
swish, clip and leaky relu from max, min and select)."""


LANE_STEPS = {"depthwise": {"float": 16, "half": 12}, "images": {"float": 8, "half": 8}}
"""Worker cycles for 16 lanes of one tap at one position. Depthwise: float multiplies and adds
pairs, two instructions each; half as PopLibs' VMAC vertex, 3 a vector of four. Images: one
f32v2axpy a pair, the weight is its scalar."""


def _worker(table: tuple[int, int, int, int], core: int, positions: Array) -> Array:
    short = np.array(table)[np.minimum(positions, 3)]
    return short + core * np.maximum(positions - 3, 0)


def _segments(positions: Array, px: Array, items: Array) -> Array:
    """Rows that a worker's share of `items` rows of `px` positions touches at most."""
    return np.minimum(items, (positions + px - 2) // px + 1)


def _field(unit: Unit, positions: Array, px: Array, items: Array) -> Array:
    """Worker cycles of a share of the field in the nx1 vertex."""
    parts = np.where(positions > 0, _segments(positions, px, items), 1)
    whole = parts * (unit.nx1[3] - 3 * unit.core) + unit.core * positions
    each = np.where(parts == 1, _worker(unit.nx1, unit.core, positions), whole)
    return np.asarray(17 + parts * (3 - 9) + each)


def conv_cycles(
    kind: str, kw: int, px: Any, nb: Any, chans: int, rows: Any, items: Any, *, one: bool = False
) -> Array:
    """Tile cycles of a vertex: `items` rows of PX positions, NB x 16 outputs, `rows` kernel rows x
    input blocks of KW columns and `chans` channels. `one`: as the 1x1 vertex.

    Fewer channels than a pass takes: kernel columns and channels become one group of channels
    ("expand dims"), for a copy at 8 bytes a cycle.
    """
    u = UNITS[kind]
    px, nb, rows, items = (np.asarray(v, np.int64) for v in (px, nb, rows, items))
    positions = px * items
    zero = nb * WORKERS * (-(-positions * 16 // (WORKERS * u.vector)) + 14 - 9)
    if one and chans >= u.channels:
        return _one_cycles(u, rows * -(-chans // u.channels), positions, nb)
    groups, columns, transform = -(-chans // u.channels), kw, np.int64(0)
    if chans < u.channels:
        transform = rows * positions * kw * chans * (8 // u.vector) // 8
        rows, groups, columns = -(-rows * kw * chans // u.channels), 1, 1
    busy = _field(u, -(-positions // WORKERS), px, items)
    idle = _field(u, positions // WORKERS, px, items)
    position = np.maximum(WORKERS * busy, WORKERS * idle + 9) * u.passes
    inner = columns * (12 + u.passes * (u.load + 15 + 3) + position)
    body = rows * groups * (14 + nb * (14 + inner))
    fixed = 109 + 54 + WORKERS * 9 + 17 * nb + 6 * (nb - 1) + 1 + 1 + 16
    return np.asarray(body + fixed + zero + transform)


def _one_cycles(u: Unit, groups: Array, positions: Array, nb: Array) -> Array:
    """The 1x1 vertex over `groups` channel groups."""
    busy = _worker(u.one, u.core, -(-positions // WORKERS))
    least = positions // WORKERS
    idle = np.where(least > 0, _worker(u.one, u.core, least), 0)
    inner = np.maximum(WORKERS * busy, WORKERS * idle + 14)
    first = 11 + nb * (19 + u.passes * (7 + u.load + inner))
    later = 16 + nb * (19 + u.passes * (6 + u.load + inner))
    return np.asarray(50 + 12 + 1 + first + np.maximum(groups - 1, 0) * later)


def mat_mul_cycles(kind: str, positions: Any, nb: Any, blocks: Any) -> Array:
    """Tile cycles of the 1x1 vertex: rows, NB x 16 outputs, blocks of 16 summed elements."""
    u = UNITS[kind]
    groups = np.asarray(blocks, np.int64) * (16 // u.channels)
    return _one_cycles(u, groups, np.asarray(positions, np.int64), np.asarray(nb, np.int64))


def lane_cycles(step: int, taps: Any, positions: Any) -> Array:
    """Tile cycles of a vertex without the matrix unit: the workers share `positions` vectors of 16
    lanes, each summed over `taps`, `step` worker cycles a tap. The frame is that of PopLibs' VMAC
    vertex: 58 + 6 x 9 for the vertex, 14 a tap, and 22 a worker to begin a field."""
    share = -(-np.asarray(positions, np.int64) // WORKERS)
    return np.asarray(58 + WORKERS * 9 + np.asarray(taps) * (14 + WORKERS * (22 + share * step)))


def reduce_cycles(parts: Any, outs: Any) -> Array:
    """Tile cycles of the multi-input ReduceAdd vertex: 4 float sums a loop, 2 loads each."""
    loops = -(-np.asarray(outs, np.int64) // (4 * WORKERS))
    return np.asarray(WORKERS * (32 + loops * (3 * np.asarray(parts, np.int64) + 8)))


def epilogue_cycles(vector: int, ep: int, elements: Any, extra: Any) -> Array:
    """Bias, residual (`extra`: how many of them) and activation: a vector a worker and cycle each,
    plus the activation."""
    vectors = -(-np.asarray(elements, np.int64) // (WORKERS * vector))
    return np.asarray(WORKERS * vectors * (extra * 2 + ACTIVATION.get(ep % 16, 12)))


# ---------------------------------------------------------------------- what codelets are charged
def _args(codelet: Codelet) -> list[str]:
    return codelet.name.partition("<")[2].rstrip(">").split(",")


def _finish(kind: str, sizes: dict[str, Array], ep: int, elements: Array) -> Array:
    extra = np.minimum(sizes["bias"], 1) + np.minimum(sizes["res"], 1)
    return epilogue_cycles(UNITS[kind].vector, ep, elements, extra)


def _runs_a_row(left: str, right: str) -> int:
    return 1 + (left != "0") + (right != "0")


@tile_cycles_of("poplin::ConvBlock")
def conv_block_cycles(codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]) -> Array:
    """The conv nx1 vertex, for kernels of one column with stride 1 the 1x1 vertex."""
    kind, *rest = _args(codelet)
    kw, stride, _, px, nb, chans = (int(v) for v in rest[:6])
    items = sizes["out"] // nb
    rows = sizes["x"] // (_runs_a_row(rest[7], rest[8]) * items)
    body = conv_cycles(kind, kw, px, nb, chans, rows, items, one=kw == stride == 1)
    return np.asarray(body + _finish(kind, sizes, int(rest[9]), px * sizes["out"] * 16))


@tile_cycles_of("poplin::MatMulBlock")
def mat_mul_block_cycles(
    codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]
) -> Array:
    """The conv 1x1 vertex: PX rows an item, NB x 16 outputs, blocks of 16 summed elements."""
    kind, *rest = _args(codelet)
    px, nb, _, ep = (int(v) for v in rest[:4])
    items = sizes["out"] // nb
    body = mat_mul_cycles(kind, px * items, nb, sizes["x"] // items)
    return np.asarray(body + _finish(kind, sizes, ep, px * sizes["out"] * 16))


@tile_cycles_of("poplin::DepthwiseBlock", "poplin::LaneConv")
def lane_block_cycles(codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]) -> Array:
    """Lanes that do not mix: channels of a depthwise convolution, or images."""
    kind, *rest = _args(codelet)
    kw, px = int(rest[0]), int(rest[3])
    images = codelet.name.startswith("poplin::LaneConv")
    nb = int(rest[4]) if images else 1
    left, right, ep = rest[4 + images : 7 + images]
    items = sizes["out"] // nb
    taps = sizes["x"] // (_runs_a_row(left, right) * items) * kw
    step = LANE_STEPS["images" if images else "depthwise"][kind]
    body = lane_cycles(step, taps, px * sizes["out"])
    return np.asarray(body + _finish(kind, sizes, int(ep), px * sizes["out"] * 16))


@tile_cycles_of("poplin::LaneBlock", "poplin::TransposeBlock")
def transpose_cycles(codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]) -> Array:
    """PopLibs' transpose vertex: the workers share blocks of 16 x 16, in squares of 2 floats or 4
    halves (3 and 4 cycles a square). Elements that lie apart are loaded one by one."""
    kind = _args(codelet)[0]
    squares = {"float": 64 * 3, "half": 16 * 4}[kind]
    apart: Any = 0
    blocks = sizes["x"]
    if codelet.name.startswith("poplin::LaneBlock"):
        blocks = -(-(sizes["out"] // 16) // 16)
        apart = np.where(np.asarray(state["step"]) > 1, 256, 0)
    share = -(-blocks // WORKERS)
    return np.asarray(7 + WORKERS * (27 + share * (15 + 20 + squares + apart)))


@tile_cycles_of("poplin::ReduceBlock")
def reduce_block_cycles(
    codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]
) -> Array:
    """The multi-input ReduceAdd vertex, then the epilogue."""
    kind, ep = _args(codelet)
    del kind  # partial sums are float whatever the result is
    return np.asarray(
        reduce_cycles(sizes["part"], sizes["out"]) + _finish("float", sizes, int(ep), sizes["out"])
    )
