"""Several convolutions at once, each on a share of the tiles, their steps side by side."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import OptionError
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program import Execute, Sequence
from poplar_py.poplin.convolution import convolution
from poplar_py.poplin.create import create_input, create_weights
from poplar_py.poplin.flops import get_fwd_flops
from poplar_py.poplin.place import TileRange

if TYPE_CHECKING:
    from poplar_py.poplar import ComputeSet, Graph, Tensor
    from poplar_py.poplin.conv_params import ConvParams
    from poplar_py.poplin.operands import Operand

__all__ = [
    "ConvolutionArgs",
    "multi_convolution",
    "multi_create_input",
    "multi_create_weights",
]


@dataclass(frozen=True)
class ConvolutionArgs:
    """One of several convolutions."""

    x: Tensor
    w: Operand
    params: ConvParams


def _shares(graph: Graph, params: Items[ConvParams]) -> list[TileRange]:
    """Tiles for each convolution by its operations, one at least. Raises OptionError."""
    count, tiles = len(params), graph.num_tiles
    if count > tiles:
        fail(OptionError, f"{count} convolutions side by side on {tiles} tiles")
    work = np.array([max(get_fwd_flops(p), 1) for p in params], np.float64)
    ends = np.floor(np.cumsum(work) / work.sum() * (tiles - count) + 0.5).astype(np.int64)
    ends += np.arange(1, count + 1)
    first = np.append(0, ends[:-1])
    return [TileRange(int(a), int(b - a)) for a, b in zip(first, ends, strict=True)]


def _member(graph: Graph, params: Items[ConvParams], index: int) -> tuple[ConvParams, TileRange]:
    """One of the convolutions and its tiles."""
    if not 0 <= index < len(params):
        fail(OptionError, f"convolution {index} of {len(params)}", "count from 0")
    return params[index], _shares(graph, params)[index]


def multi_create_input(
    graph: Graph, params: Items[ConvParams], index: int, name: str = "input"
) -> Tensor:
    """As `create_input` for convolution `index` of those that will run at once.

    Raises OptionError.
    """
    one, tiles = _member(graph, params, index)
    return create_input(graph, one, name, tiles=tiles)


def multi_create_weights(
    graph: Graph, params: Items[ConvParams], index: int, name: str = "weights"
) -> Tensor:
    """As `create_weights` for convolution `index` of those that will run at once.

    Raises OptionError.
    """
    one, tiles = _member(graph, params, index)
    return create_weights(graph, one, name, tiles=tiles)


def multi_convolution(
    graph: Graph,
    args: Items[ConvolutionArgs],
    prog: Sequence,
    name: str = "multi_conv",
    *,
    transpose_and_flip_weights: bool = False,
) -> list[Tensor]:
    """The results of all convolutions, computed in the same supersteps on disjoint tiles.

    No convolution may read what another one makes. Raises OptionError when there are more of them
    than tiles.
    """
    if not args:
        return []
    shares = _shares(graph, [a.params for a in args])
    parts = [Sequence() for _ in args]
    made = [
        convolution(
            graph,
            a.x,
            a.w,
            None,
            a.params,
            part,
            f"{name}/{i}",
            tiles=tiles,
            transpose_and_flip_weights=transpose_and_flip_weights,
        )
        for i, (a, part, tiles) in enumerate(zip(args, parts, shares, strict=True))
    ]
    _side_by_side(graph, parts, prog, name)
    return made


def _side_by_side(graph: Graph, parts: list[Sequence], prog: Sequence, name: str) -> None:
    """The steps of all parts, last ones together: copies first, compute sets as one."""
    longest = max(len(part.steps) for part in parts)
    for phase in range(longest):
        at = [(part.steps, len(part.steps) - longest + phase) for part in parts]
        steps = [s[i] for s, i in at if i >= 0]
        sets = [s.compute_set for s in steps if isinstance(s, Execute)]
        for step in (s for s in steps if not isinstance(s, Execute)):
            prog.add(step)
        if sets:
            prog.add(Execute(_joined(graph, sets, f"{name}/{phase}")))


def _joined(graph: Graph, sets: list[ComputeSet], name: str) -> ComputeSet:
    """One compute set with the vertices of all, which lose theirs."""
    if len(sets) == 1:
        return sets[0]
    whole = graph.add_compute_set(name)
    for each in sets:
        whole.take_over(each)
    return whole
