"""A small program that is built, compiled and run in one go."""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py.poplar import Engine, Graph, Target, Tensor, program
from poplar_py.types import DType
from tests.poplin.mappings import scatter_mapping

__all__ = ["Setting", "put", "whole"]

Array = np.ndarray[Any, np.dtype[Any]]


class Setting:
    """A graph with its program and what its variables hold."""

    def __init__(self) -> None:
        self.graph = Graph(Target.ipu("gc200", 1, 16))
        self.prog = program.Sequence()
        self.given: list[tuple[str, Array]] = []

    def put(self, t: Tensor, array: Array) -> Tensor:
        name = f"in{len(self.given)}"
        self.graph.create_host_write(name, t)
        self.given.append((name, array))
        return t

    def input(self, array: Array, dtype: DType) -> Tensor:
        return self.put(self.graph.add_variable(dtype, array.shape, mapping="linear"), array)

    def run(self, *outputs: Tensor) -> list[Array]:
        for i, t in enumerate(outputs):
            self.graph.create_host_read(f"out{i}", t)
        engine = Engine(self.graph, self.prog, threads=1)
        for name, array in self.given:
            engine.write_tensor(name, array)
        engine.run(timeout=60)
        got = [engine.read_tensor(f"out{i}").reshape(t.shape) for i, t in enumerate(outputs)]
        engine.close()
        return got


def put(s: Setting, rng: np.random.Generator | None, array: Array, dtype: DType) -> Tensor:
    """A variable that holds the array, on random tiles or, without a generator, linearly."""
    if rng is None:
        return s.input(array, dtype)
    mapping = scatter_mapping(rng, array.size, 16)
    return s.put(s.graph.add_variable(dtype, array.shape, mapping=mapping), array)


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Small whole numbers, of which sums are exact."""
    return rng.integers(-3, 4, shape).astype(dtype.numpy)
