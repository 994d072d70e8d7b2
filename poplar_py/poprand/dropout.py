"""Dropout of single elements and of whole slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from poplar_py.popops.elementwise import map as map_expr
from poplar_py.poprand.draw import Request, Seed, draw, need
from poplar_py.poprand.random import bernoulli
from poplar_py.poputil.poplar_order import dropout_order, poplar_order

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor, program

__all__ = ["dropout", "shaped_dropout"]


@poplar_order(dropout_order)
def dropout(
    graph: Graph,
    seed: Seed,
    x: Tensor,
    keep: float,
    scale: float,
    prog: program.Sequence,
    name: str = "",
    *,
    reference: Tensor | None = None,
    modifier: int = 0,
) -> Tensor:
    """x * scale with probability `keep`, else 0, on the tiles of `reference` or of x.

    The same seed and modifier drop the same elements again: the backward pass calls it with the
    gradient. Raises OptionError.
    """
    need(0 <= keep <= 1, f"dropout keeping with the probability {keep}")
    need(x.dtype.is_float, f"dropout of {x.dtype.name}")
    like = x if reference is None else reference
    need(tuple(like.shape) == tuple(x.shape), f"a reference of {like.shape} for {x.shape}")
    state = {"keep": float(keep), "scale": float(scale)}
    what = Request("Dropout", state, x.dtype, seed, modifier, name, {"x": x})
    return draw(graph, like, what, prog)


def shaped_dropout(
    graph: Graph,
    seed: Seed,
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
