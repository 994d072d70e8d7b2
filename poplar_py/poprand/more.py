"""Names of poprand made of `uniform` and `bernoulli`: log-uniform, shaped dropout, the seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from poplar_py.poplar import program
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.poprand.random import bernoulli, uniform
from poplar_py.types import DType, f32, u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["log_uniform", "set_seed", "shaped_dropout"]


def log_uniform(
    graph: Graph,
    seed: Tensor | int,
    shape: Sequence[int],
    low: float,
    high: float,
    prog: program.Sequence,
    name: str = "log_uniform",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Numbers in [low, high] (low > 0) whose logarithms are uniform."""
    a, b = math.log(low), math.log(high)
    drawn = uniform(graph, seed, shape, a, b, prog, f"{name}/log", modifier=modifier)
    ends = f"c({float(low)!r}),c({float(high)!r})"
    text = f"cast(clamp(exp($0),{ends}),{dtype.name})"
    return map_expr(graph, text, [drawn], prog, name, dtype)


def shaped_dropout(
    graph: Graph,
    seed: Tensor | int,
    x: Tensor,
    shape: Sequence[int],
    keep: float,
    scale: float,
    prog: program.Sequence,
    name: str = "shaped_dropout",
    *,
    modifier: int = 0,
) -> Tensor:
    """x * scale * mask: the 0-or-1 mask of `shape` is broadcast over x."""
    mask = bernoulli(
        graph, seed, shape, keep, prog, f"{name}/mask", dtype=x.dtype, modifier=modifier
    )
    return map_expr(graph, f"mul($0,mul($1,c({float(scale)!r})))", [x, mask], prog, name)


def set_seed(
    graph: Graph,
    seed: Tensor,
    master: Tensor,
    modifier: int,
    prog: program.Sequence,
    name: str = "set_seed",
) -> None:
    """Make `seed` (u32[2], given to the draws) the pair of words of a master seed (u32[2]).

    PopLibs sets registers of every worker here; with numbers by counter the seed tensor is the
    whole state. A modifier other than 0 makes another pair of words.
    """
    spread = graph.add_constant(
        u32, (2,), [modifier * 0x9E3779B9 & 0xFFFFFFFF, modifier & 0xFFFFFFFF], name, 0
    )
    mixed = map_expr(graph, "bitwise_xor($0,$1)", [master, spread], prog, name)
    prog.add(program.Copy(mixed, seed))
