"""Vertices that draw: a value depends on seed, modifier and position in the tensor only.

Neither the tiles of the tensor, nor how it is cut into vertices, nor host threads, nor replicas
change a value: replicas draw the same numbers unless their seed tensors differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Tensor, program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.popops.elementwise import split_work
from poplar_py.poprand.state import advance, generator
from poplar_py.poputil.layout import fresh, mapping_of
from poplar_py.types import DType, u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph

__all__ = ["Like", "Request", "Seed", "draw", "need", "seed_tensor"]

Seed = Tensor | int | None
"""u32[2] on the device, a number, or None for the graph's generator (see `state`)."""
Like = Sequence[int] | Tensor
"""A shape, or a reference tensor whose shape and tiles are taken over."""


@dataclass(frozen=True)
class Request:
    """What to draw: the codelet without its type, its state, the element type, seed, modifier."""

    codelet: str
    state: Mapping[str, object]
    dtype: DType
    seed: Seed
    modifier: int = 0
    name: str = ""
    edges: Mapping[str, Tensor] = field(default_factory=lambda: {})


def seed_tensor(graph: Graph, seed: int, name: str = "seed") -> Tensor:
    """A constant u32[2] seed from a number: its lower and its upper 32 bits."""
    words = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    return graph.add_constant(u32, (2,), np.array(words, np.uint32), name, 0)


def need(ok: bool, message: str) -> None:
    """Raise OptionError unless `ok`."""
    if not ok:
        fail(OptionError, message)


def draw(graph: Graph, like: Like, what: Request, prog: program.Sequence) -> Tensor:
    """A new tensor of random numbers; a compute set is appended to `prog`."""
    name = what.name or what.codelet.lower()
    out = _target(graph, like, what.dtype, name)
    if prod(out.shape) == 0:
        return out
    flat = out.flatten()
    work = split_work(mapping_of(graph, flat), out.numel, out.numel)
    seed = _seed_words(graph, what.seed, name)
    edges = {
        "out": Edges.flat(flat, work.begin, work.end),
        "seed": Edges.whole(seed.flatten(), len(work.tile)),
    }
    for field_name, t in what.edges.items():
        edges[field_name] = Edges.flat(t.flatten(), work.begin, work.end)
    state: dict[str, Any] = {
        "base": (work.begin // 4).astype(np.uint64),
        "skip": (work.begin % 4).astype(np.uint32),
        "modifier": what.modifier & 0xFFFFFFFF,
        **what.state,
    }
    codelet = f"poprand::{what.codelet}<{what.dtype.name}>"
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, codelet, work.tile, edges, state, name=name)
    prog.add(program.Execute(cs))
    if what.seed is None:
        advance(graph, prog, name)
    return out


def _target(graph: Graph, like: Like, dtype: DType, name: str) -> Tensor:
    if not isinstance(like, Tensor):
        return fresh(graph, dtype, tuple(like), name)
    if prod(like.shape) == 0:
        return fresh(graph, dtype, tuple(like.shape), name)
    mapping = mapping_of(graph, like.flatten())
    return graph.add_variable(dtype, tuple(like.shape), name, mapping=mapping)


def _seed_words(graph: Graph, seed: Seed, name: str) -> Tensor:
    if seed is None:
        return generator(graph)
    if isinstance(seed, int):
        return seed_tensor(graph, seed, f"{name}/seed")
    need(seed.dtype is u32 and seed.numel == 2, "a seed is a tensor of two unsigned ints")
    return seed
