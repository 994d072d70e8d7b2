"""Random tensors by counter: a value depends on seed, modifier and position only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.popops.elementwise import split_work
from poplar_py.poputil.layout import fresh, mapping_of
from poplar_py.types import DType, f32, u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["bernoulli", "dropout", "normal", "seed_tensor", "truncated_normal", "uniform"]


def seed_tensor(graph: Graph, seed: int, name: str = "seed") -> Tensor:
    """A constant u32[2] seed from a number."""
    words = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    return graph.add_constant(u32, (2,), np.array(words, np.uint32), name, 0)


def uniform(
    graph: Graph,
    seed: Tensor | int,
    shape: Sequence[int],
    low: float,
    high: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Numbers uniform in [low, high); for integer types in [low, high] as PopLibs has them."""
    if not dtype.is_float:
        span = (int(high) - int(low) + 1) & 0xFFFFFFFF
        state = {"low": np.asarray(int(low), dtype.numpy)[()], "span": span}
        return _draw(graph, "UniformInt", seed, modifier, shape, state, prog, name, dtype)
    state = {"low": float(low), "span": float(high) - float(low)}
    return _draw(graph, "Uniform", seed, modifier, shape, state, prog, name, dtype)


def normal(
    graph: Graph,
    seed: Tensor | int,
    shape: Sequence[int],
    mean: float,
    std_dev: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Normally distributed numbers."""
    state = {"mean": float(mean), "scale": float(std_dev), "limit": 0.0}
    return _draw(graph, "Normal", seed, modifier, shape, state, prog, name, dtype)


def truncated_normal(
    graph: Graph,
    seed: Tensor | int,
    shape: Sequence[int],
    mean: float,
    std_dev: float,
    alpha: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Normal numbers within `alpha` standard deviations of the mean."""
    state = {"mean": float(mean), "scale": float(std_dev), "limit": float(alpha)}
    return _draw(graph, "Normal", seed, modifier, shape, state, prog, name, dtype)


def bernoulli(
    graph: Graph,
    seed: Tensor | int,
    shape: Sequence[int],
    prob: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """1 with probability `prob`, else 0."""
    return _draw(
        graph, "Bernoulli", seed, modifier, shape, {"prob": float(prob)}, prog, name, dtype
    )


def dropout(
    graph: Graph,
    seed: Tensor | int,
    x: Tensor,
    keep: float,
    scale: float,
    prog: program.Sequence,
    name: str = "",
    *,
    modifier: int = 0,
) -> Tensor:
    """x * scale with probability `keep`, else 0."""
    state = {"keep": float(keep), "scale": float(scale)}
    return _draw(graph, "Dropout", seed, modifier, x.shape, state, prog, name, x.dtype, x)


def _draw(
    graph: Graph,
    kind: str,
    seed: Tensor | int,
    modifier: int,
    shape: Sequence[int],
    state: Mapping[str, object],
    prog: program.Sequence,
    name: str,
    dtype: DType,
    x: Tensor | None = None,
) -> Tensor:
    name = name or kind.lower()
    out = fresh(graph, dtype, tuple(shape), name)
    if prod(out.shape) == 0:
        return out
    words = seed_tensor(graph, seed, f"{name}/seed") if isinstance(seed, int) else seed
    flat = out.flatten()
    work = split_work(mapping_of(graph, flat), out.numel, out.numel)
    n = len(work.tile)
    block = work.begin // 4
    edges = {
        "out": Edges.flat(flat, work.begin, work.end),
        "seed": Edges.whole(words.flatten(), n),
    }
    if x is not None:
        edges["x"] = Edges.flat(x.flatten(), work.begin, work.end)
    counters = {
        "base": (block & 0xFFFFFFFF).astype(np.uint32),
        "base_high": (block >> 32).astype(np.uint32),
        "modifier": modifier & 0xFFFFFFFF,
    }
    codelet = f"poprand::{kind}<{dtype.name}>"
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, work.tile, edges, {**counters, **state}, name=name)
    prog.add(program.Execute(cs))
    return out
