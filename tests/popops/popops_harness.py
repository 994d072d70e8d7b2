"""Builds a small program, runs it on the native engine, and on the oracle for the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from popops_oracle import run as run_oracle

from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.poplar import Graph, Target, Tensor, program
from poplar_py.runtime.engine import TileEngine
from poplar_py.types import DType, dtype_of

Array = npt.NDArray[Any]
TILES = 24


class Program:
    """A graph under construction with named inputs."""

    def __init__(self, tiles: int = TILES) -> None:
        self.graph = Graph(Target.ipu("gc200", ipus=1, tiles_per_ipu=tiles))
        self.prog = program.Sequence()
        self.inputs: dict[str, tuple[Tensor, Array]] = {}

    def input(self, array: Array, mapping: Any = "linear") -> Tensor:
        """A variable that holds the array."""
        name = f"in{len(self.inputs)}"
        t = self.graph.add_variable(dtype_of(array), array.shape, name, mapping=mapping)
        return self.place(t, array)

    def place(self, t: Tensor, array: Array) -> Tensor:
        """Any writable tensor that holds the array."""
        self.inputs[f"in{len(self.inputs)}"] = (t, np.ascontiguousarray(array))
        return t

    def run(self, *outputs: Tensor, oracle: bool = False) -> list[Array]:
        """The outputs' values; with `oracle` both ways, which must agree bit by bit."""
        self.inputs = {n: pair for n, pair in self.inputs.items() if pair[0].numel}
        for name, (t, _) in self.inputs.items():
            self.graph.create_host_write(name, t)
        for i, t in enumerate(outputs):
            if t.numel:
                self.graph.create_host_read(f"out{i}", t)
        exe = build_executable(self.graph, [self.prog], BuildOptions(names=["main"]))
        with TileEngine(exe, threads=1) as engine:
            for name, (_, array) in self.inputs.items():
                engine.write(name, array.ravel())
            engine.run("main")
            found = [
                engine.read(f"out{i}").reshape(t.shape)
                if t.numel
                else np.zeros(t.shape, t.dtype.numpy)
                for i, t in enumerate(outputs)
            ]
        if oracle:
            given = dict(self.inputs.values())
            memory = run_oracle(self.graph, self.prog, given)
            for t, a in zip(outputs, found, strict=True):
                np.testing.assert_array_equal(memory.read(t).view(np.uint8), a.view(np.uint8))
        return found

    @property
    def vertices(self) -> int:
        return sum(g.n for cs in self.graph.compute_sets for g in cs.groups)


def check(
    build: Callable[..., Tensor | tuple[Tensor, ...]],
    reference: Callable[..., Any],
    *arrays: Array,
    tolerance: float = 0.0,
    oracle: bool = False,
    tiles: int = TILES,
) -> Program:
    """Compares `build(p, *tensors)` with `reference(*arrays)`, relative to the largest."""
    p = Program(tiles)
    tensors = [p.input(a) for a in arrays]
    made = build(p, *tensors)
    outputs = made if isinstance(made, tuple) else (made,)
    wanted = reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(p.run(*outputs, oracle=oracle), wanted, strict=True):
        compare(got, np.asarray(want), tolerance)
    return p


def compare(got: Array, want: Array, tolerance: float) -> None:
    assert got.shape == want.shape
    if tolerance == 0.0 or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


def normal(*shape: int, dtype: DType | None = None, seed: int = 0) -> Array:
    """Standard normal numbers, whole ones from -9 to 9 for integer types."""
    rng = np.random.default_rng(seed + sum(shape))
    if dtype is not None and dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype is not None and not dtype.is_float:
        low = 0 if dtype.kind == "u" else -9
        return rng.integers(low, 10, shape).astype(dtype.numpy)
    array = rng.standard_normal(shape)
    return array.astype(np.float32 if dtype is None else dtype.numpy)
