"""What a plan depends on: the machine and the sizes of one product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poplar_py.poplar import Target

__all__ = ["MACS", "Machine", "Problem"]

MACS = {4: 16, 2: 64}
"""Products a tile of GC200 sums per cycle at most, by element size: its 16 convolution units load
16 x 16 halves for 4 cycles of a position, 8 x 16 floats for 8 (poplibs, poplin
PerformanceEstimation)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Figures of a target that plans depend on (target/chips.py names their sources).

    `exchange`: bytes a tile receives a cycle; `sync`, `fragment`: cycles of a phase and a message;
    `tile_bytes`: memory of a tile.
    """

    exchange: int = 4
    sync: int = 118
    fragment: int = 1
    tile_bytes: int = 624 * 1024

    @staticmethod
    def of(target: Target) -> Machine:
        """The figures of a target's chip."""
        chip = target.chip
        return Machine(
            target.exchange_bytes_per_cycle,
            int(chip.sync_internal.value),
            int(chip.fragment_cycles.value),
            target.bytes_per_tile,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything a plan depends on; sizes in elements, blocks of 16 channels.

    `rows` counts batch x outer spatial dims; `in_blocks` is what one output block sums over;
    `chans` channels an input block (1 for planar rows); `depthwise` blocks do not mix channels.
    `images`: lanes are images, output and input blocks are channels. `row_weights`: every row has
    weights of its own (products of two batches of matrices).
    `unit` is the row length pieces must divide, `nb_limit` what NB must divide (0: out_blocks).
    `read_piece` is the width of the contiguous pieces the input lies in (0: any).
    `act`: number of the activation (codelets/builtin/poplin_epilogue.py). `row_stride`: input lines
    from output line to output line. `extras`: how many of bias and residual are added; `residual`:
    whether the latter is. `memory`: the share of a tile's memory that what a step receives and
    makes may take.
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
    row_weights: bool = False
    row_stride: int = 1
    extras: int = 0
    act: int = 0
    residual: bool = False
    memory: float = 0.6
    machine: Machine = Machine()

    @property
    def kind(self) -> str:
        """What it is, in a word."""
        if self.images:
            return "images"
        if self.depthwise:
            return "depthwise"
        return "planar" if self.chans == 1 else "block"

    @property
    def lanes(self) -> int:
        """Elements of a pixel of an input row."""
        return 16 if self.depthwise or self.images else self.chans

    @property
    def weight_lanes(self) -> int:
        """Weights of one tap, channel and output block."""
        return 1 if self.images else 16
