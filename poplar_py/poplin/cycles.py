"""Cycles of the block kernels as PopLibs' conv vertices take them on the matrix unit (AMP).

Our block kernels name what is summed; a machine does it with all six workers and its accumulating
matrix product unit. The figures are PopLibs' own estimates (poplibs, poplin PerformanceEstimation:
`conv nx1`, `conv 1x1` and `ReduceAdd` vertices), in tile cycles: such a vertex occupies its tile.

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

__all__ = ["conv_block_cycles", "mat_mul_block_cycles", "reduce_block_cycles"]

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


def _args(codelet: Codelet) -> list[str]:
    return codelet.name.partition("<")[2].rstrip(">").split(",")


def _worker(table: tuple[int, int, int, int], core: int, positions: int) -> int:
    if positions < 3:
        return table[positions]
    return table[3] + core * (positions - 3)


def _shares(pixels: int) -> tuple[int, int]:
    """Positions of the busiest and of the idlest worker."""
    return -(-pixels // WORKERS), pixels // WORKERS


def _epilogue(codelet: Codelet, sizes: dict[str, Array], ep: int, elements: Array, v: int) -> Array:
    """Bias, residual and activation: one vector a worker and cycle each, plus the activation."""
    vectors = -(-elements // (WORKERS * v))
    extra = np.minimum(sizes["bias"], 1) + np.minimum(sizes["res"], 1)
    return np.asarray(WORKERS * vectors * (extra * 2 + ACTIVATION.get(ep % 16, 12)))


@tile_cycles_of("poplin::ConvBlock")
def conv_block_cycles(codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]) -> Array:
    """The conv nx1 vertex: rows of PX positions, KW columns, CB channels, NB x 16 outputs."""
    args = _args(codelet)
    kw, px, nb, cb = int(args[1]), int(args[4]), int(args[5]), int(args[6])
    left, right, ep = int(args[8]), int(args[9]), int(args[10])
    u = UNITS[args[0]]
    rows = sizes["x"] // (1 + (left > 0) + (right > 0))
    groups, columns = -(-cb // u.channels), kw
    transform: Any = 0
    if cb < u.channels:  # kernel columns and channels become one group of channels ("expand dims")
        transform = rows * px * kw * cb * (8 // u.vector) // 8
        rows, groups, columns = -(-rows * kw * cb // u.channels), 1, 1
    most, least = _shares(px)
    item = 3 - 9 + 17
    busy = item + _worker(u.nx1, u.core, most)
    idle = item + _worker(u.nx1, u.core, least)
    position = max(WORKERS * busy, WORKERS * idle + 9) * u.passes
    inner = columns * (12 + u.passes * (u.load + 15 + 3) + position)
    body = rows * groups * (14 + nb * (14 + inner))
    zero = nb * WORKERS * (-(-px * 16 // (WORKERS * u.vector)) + 14 - 9)
    fixed = 109 + 54 + WORKERS * 9 + 17 * nb + 6 * (nb - 1) + 1 + 1 + 16
    elements = np.full(len(rows), px * nb * 16)
    return np.asarray(
        body + fixed + zero + transform + _epilogue(codelet, sizes, ep, elements, u.vector)
    )


@tile_cycles_of("poplin::MatMulBlock")
def mat_mul_block_cycles(
    codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]
) -> Array:
    """The conv 1x1 vertex: PX rows, NB x 16 outputs, blocks of 16 summed elements."""
    args = _args(codelet)
    px, nb, ep = int(args[1]), int(args[2]), int(args[4])
    u = UNITS[args[0]]
    groups = sizes["x"] * (16 // u.channels)
    most, least = _shares(px)
    busy, idle = _worker(u.one, u.core, most), _worker(u.one, u.core, least)
    inner = max(WORKERS * busy, WORKERS * (idle if least else 0) + 14)
    first = 11 + nb * (19 + u.passes * (7 + u.load + inner))
    later = 16 + nb * (19 + u.passes * (6 + u.load + inner))
    body = 50 + 12 + 1 + first + np.maximum(groups - 1, 0) * later
    elements = np.full(len(groups), px * nb * 16)
    return np.asarray(body + _epilogue(codelet, sizes, ep, elements, u.vector))


@tile_cycles_of("poplin::ReduceBlock")
def reduce_block_cycles(
    codelet: Codelet, sizes: dict[str, Array], state: dict[str, Array]
) -> Array:
    """The multi-input ReduceAdd vertex (4 float sums a loop, 2 loads each), then the epilogue."""
    ep, parts, outs = int(_args(codelet)[1]), sizes["part"], sizes["out"]
    loops = -(-outs // (4 * WORKERS))
    body = WORKERS * (32 + loops * (3 * parts + 8))
    return np.asarray(body + _epilogue(codelet, sizes, ep, outs, 2))
