"""The distributions: uniform, log-uniform, normal, truncated normal, Bernoulli.

`seed` is a u32[2] tensor, a number, or None for the graph's generator; `like` a shape or a
reference tensor. PopLibs' order is taken too: graph, seed, modifier, reference, type, and so on.
f16 and bf16 numbers are drawn in f32 and rounded once. Wrong parameters raise OptionError.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.popops.elementwise import map as map_expr
from poplar_py.poprand.draw import Like, Request, Seed, draw, need
from poplar_py.poputil.poplar_order import poplar_order, random_order
from poplar_py.types import DType, bool_, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor, program

__all__ = ["bernoulli", "log_uniform", "normal", "truncated_normal", "uniform"]


@poplar_order(random_order)
def uniform(
    graph: Graph,
    seed: Seed,
    like: Like,
    low: float,
    high: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Numbers uniform in [low, high), 2^24 of them evenly spaced, before they are rounded.

    For integer types whole numbers in [low, high], as PopLibs has them.
    """
    need(low <= high and math.isfinite(high - low), f"uniform from {low} to {high}")
    need(dtype is not bool_, "uniform of bool: use bernoulli")
    if dtype.is_float:
        state: dict[str, object] = {"low": float(low), "span": float(high) - float(low)}
        return draw(graph, like, Request("Uniform", state, dtype, seed, modifier, name), prog)
    first, last = int(low), int(high)
    info = np.iinfo(dtype.numpy)
    need(info.min <= first <= last <= info.max, f"uniform from {low} to {high} in {dtype.name}")
    span = np.uint64((last - first + 1) % (1 << 64))
    state = {"low": np.asarray(first, dtype.numpy)[()], "span": span}
    return draw(graph, like, Request("UniformInt", state, dtype, seed, modifier, name), prog)


@poplar_order(random_order)
def log_uniform(
    graph: Graph,
    seed: Seed,
    like: Like,
    low: float,
    high: float,
    prog: program.Sequence,
    name: str = "log_uniform",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Numbers in [low, high] (low > 0) whose logarithms are uniform."""
    need(0 < low <= high and math.isfinite(high), f"log_uniform from {low} to {high}")
    a, b = math.log(low), math.log(high)
    drawn = uniform(graph, seed, like, a, b, prog, f"{name}/log", modifier=modifier)
    ends = f"c({float(low)!r}),c({float(high)!r})"
    text = f"cast(clamp(exp($0),{ends}),{dtype.name})"
    return map_expr(graph, text, [drawn], prog, name, dtype)


@poplar_order(random_order)
def normal(
    graph: Graph,
    seed: Seed,
    like: Like,
    mean: float,
    std_dev: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Normally distributed numbers; none lies further than 5.8 standard deviations out."""
    need(std_dev >= 0, f"normal with the standard deviation {std_dev}")
    state = {"mean": float(mean), "scale": float(std_dev), "limit": 0.0}
    return draw(graph, like, Request("Normal", state, dtype, seed, modifier, name), prog)


@poplar_order(random_order)
def truncated_normal(
    graph: Graph,
    seed: Seed,
    like: Like,
    mean: float,
    std_dev: float,
    alpha: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """Normal numbers within `alpha` >= 0.1 standard deviations of the mean."""
    need(std_dev >= 0, f"truncated_normal with the standard deviation {std_dev}")
    need(alpha >= 0.1, f"truncated_normal within {alpha} standard deviations: at least 0.1")
    state = {"mean": float(mean), "scale": float(std_dev), "limit": float(alpha)}
    return draw(graph, like, Request("Normal", state, dtype, seed, modifier, name), prog)


@poplar_order(random_order)
def bernoulli(
    graph: Graph,
    seed: Seed,
    like: Like,
    prob: float,
    prog: program.Sequence,
    name: str = "",
    *,
    dtype: DType = f32,
    modifier: int = 0,
) -> Tensor:
    """1 with probability `prob`, else 0, in any type."""
    need(0 <= prob <= 1, f"bernoulli with the probability {prob}")
    state = {"prob": float(prob)}
    return draw(graph, like, Request("Bernoulli", state, dtype, seed, modifier, name), prog)
