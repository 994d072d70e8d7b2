"""Small graphs for runtime tests, and a NumPy account of what they should do."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from poplar_py.executable.build import build_executable
from poplar_py.poplar.arrays import ragged
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.mapping import Mapping
from poplar_py.poplar.program import Copy, Execute, Loop, Program, Sequence
from poplar_py.poplar.tensor import Tensor
from poplar_py.runtime.engine import TileEngine
from poplar_py.target.target import Target
from poplar_py.types import f32

CODELETS = """
@vertex
class Add(Vertex):
    a: Input[Vector[f32]]
    b: Input[Vector[f32]]
    out: Output[Vector[f32]]

    def compute(self) -> bool:
        for i in range(len(self.out)):
            self.out[i] = self.a[i] + self.b[i]
        return True


@vertex
class Scale(Vertex):
    x: InOut[Vector[f32]]
    by: f32

    def compute(self) -> bool:
        for i in range(len(self.x)):
            self.x[i] = self.x[i] * self.by
        return True


@vertex
class SumRows(Vertex):
    rows: Vector[Input[Vector[f32]]]
    out: Output[Vector[f32]]

    def compute(self) -> bool:
        for j in range(len(self.out)):
            self.out[j] = 0.0
        for i in range(len(self.rows)):
            for j in range(len(self.out)):
                self.out[j] = self.out[j] + self.rows[i][j]
        return True


@vertex
class Count(Vertex):
    n: InOut[i32]

    def compute(self) -> bool:
        self.n = self.n - 1
        return self.n > 0


@vertex
class Keep(Vertex):
    out: Output[f32]
    total: f32

    def compute(self) -> bool:
        self.total = self.total + 1.5
        self.out = self.total
        return True


@vertex
class Poke(Vertex):
    x: InOut[Vector[f32]]
    k: i32

    def compute(self) -> bool:
        self.x[self.k] = 1.0
        return True


@vertex
class Forever(Vertex):
    x: InOut[Vector[f32]]

    def compute(self) -> bool:
        while self.x[0] < 1.0e30:
            self.x[0] = 0.0
        return True
"""


MODES = [(1, False), (2, False), (2, True), (4, True)]
"""Threads, faithful exchange."""


def new_graph(tiles: int = 8, ipus: int = 1) -> Graph:
    """A graph with the codelets above."""
    graph = Graph(Target.ipu("gc200", ipus, tiles))
    graph.add_codelets(CODELETS)
    return graph


def random_mapping(rng: np.random.Generator, size: int, tiles: int) -> Mapping:
    """Up to 12 intervals on random tiles."""
    cuts = np.sort(rng.integers(0, size + 1, int(rng.integers(0, 12))))
    bounds = np.concatenate([[0], cuts, [size]])
    return Mapping(bounds, rng.integers(0, tiles, len(bounds) - 1).astype(np.int32)).normal()


@dataclass
class Account:
    """Values of all variables by global element address."""

    graph: Graph
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    def grow(self) -> None:
        end = max(v.base + v.size for v in self.graph.variables)
        fresh = np.zeros(end, np.float32)
        fresh[: len(self.values)] = self.values
        self.values = fresh

    def edge(self, edges: Edges, e: int) -> np.ndarray:
        """Addresses of one edge's elements."""
        records = range(int(edges.eptr[e]), int(edges.eptr[e + 1]))
        parts = [
            np.arange(edges.length[r]) + edges.start[r] + k * edges.stride[r]
            for r in records
            for k in range(int(edges.count[r]))
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def copy(self, src: Tensor, dst: Tensor) -> None:
        self.values[dst.addresses().ravel()] = self.values[src.addresses().ravel()].copy()


class RandomProgram:
    """A random straight-line program of copies and vertices over a few matrices."""

    def __init__(self, seed: int, steps: int = 8, tiles: int = 8) -> None:
        self.rng = np.random.default_rng(seed)
        self.tiles = tiles
        self.graph = new_graph(tiles)
        self.prog = Sequence()
        self.tensors: list[Tensor] = []
        self.account = Account(self.graph)
        self.feeds: dict[str, np.ndarray] = {}
        for k in range(2):
            self.feed(f"in{k}")
        for k in range(steps):
            [self.add, self.scale, self.copy, self.sum_rows, self.view_copy][
                int(self.rng.integers(0, 5))
            ](f"s{k}")
        for k, t in enumerate(self.tensors):
            stream = self.graph.add_device_to_host_fifo(f"out{k}", f32, t.numel)
            self.prog.add(Copy(t, stream))

    def tensor(self, name: str, shape: tuple[int, int]) -> Tensor:
        size = shape[0] * shape[1]
        mapping = random_mapping(self.rng, size, self.tiles)
        t = self.graph.add_variable(f32, shape, name, mapping=mapping)
        self.account.grow()
        return t

    def feed(self, name: str) -> None:
        shape = (int(self.rng.integers(2, 9)), int(self.rng.integers(2, 9)))
        t = self.tensor(name, shape)
        stream = self.graph.add_host_to_device_fifo(name, f32, t.numel)
        self.prog.add(Copy(stream, t))
        self.feeds[name] = self.rng.standard_normal(t.numel).astype(np.float32)
        self.account.values[t.addresses().ravel()] = self.feeds[name]
        self.tensors.append(t)

    def pick(self) -> Tensor:
        """A tensor or a view of one."""
        t = self.tensors[int(self.rng.integers(0, len(self.tensors)))]
        kind = int(self.rng.integers(0, 4))
        if kind == 1:
            t = t.transpose()
        if kind == 2 and t.shape[0] > 2:
            t = t[1 : t.shape[0]]
        if kind == 3 and t.shape[1] > 2:
            t = t[:, 1 : t.shape[1] : 1]
        return t

    def boxes(self, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """A partition of a matrix into boxes."""
        rows = self.cuts(shape[0])
        cols = self.cuts(shape[1])
        lo, size = [], []
        for a, b in pairwise(rows):
            for c, d in pairwise(cols):
                lo.append((a, c))
                size.append((b - a, d - c))
        return np.array(lo), np.array(size)

    def cuts(self, n: int) -> list[int]:
        inner = self.rng.integers(1, n + 1, int(self.rng.integers(0, 3))).tolist()
        return sorted({0, n, *inner})

    def place(self, n: int) -> np.ndarray:
        return self.rng.integers(0, self.tiles, n).astype(np.int32)

    def add(self, name: str) -> None:
        a = self.pick()
        b = self.pick()
        shape = tuple(min(p, q) for p, q in zip(a.shape, b.shape, strict=True))
        a, b = (t[0 : shape[0], 0 : shape[1]] for t in (a, b))
        out = self.tensor(name, shape)  # type: ignore[arg-type]
        lo, size = self.boxes(shape)  # type: ignore[arg-type]
        edges = {k: Edges.boxes(t, lo, size) for k, t in (("a", a), ("b", b), ("out", out))}
        cs = self.graph.add_compute_set(name)
        order = self.rng.integers(0, 4, (len(lo), 2)) if self.rng.random() < 0.5 else None
        self.graph.add_vertices(cs, "Add", self.place(len(lo)), edges, order=order)
        self.prog.add(Execute(cs))
        v = self.account
        total = v.values[a.addresses().ravel()] + v.values[b.addresses().ravel()]
        v.values[out.addresses().ravel()] = total
        self.tensors.append(out)

    def scale(self, name: str) -> None:
        t = self.pick()
        lo, size = self.boxes(t.shape)  # type: ignore[arg-type]
        edges = Edges.boxes(t, lo, size)
        cs = self.graph.add_compute_set(name)
        by = self.rng.standard_normal(len(lo)).astype(np.float32)
        self.graph.add_vertices(cs, "Scale", self.place(len(lo)), {"x": edges}, {"by": by})
        self.prog.add(Execute(cs))
        for e in range(len(lo)):
            self.account.values[self.account.edge(edges, e)] *= by[e]

    def copy(self, name: str) -> None:
        src = self.pick()
        dst = self.tensor(name, src.shape)  # type: ignore[arg-type]
        self.prog.add(Copy(src, dst))
        self.account.copy(src, dst)
        self.tensors.append(dst)

    def view_copy(self, name: str) -> None:
        """Inside one variable: source and target may overlap."""
        t = self.tensors[int(self.rng.integers(0, len(self.tensors)))]
        n = t.numel // 2
        flat = t.flatten()
        a, b = (int(self.rng.integers(0, t.numel - n + 1)) for _ in range(2))
        src, dst = flat[a : a + n], flat[b : b + n]
        self.prog.add(Copy(src, dst))
        self.account.copy(src, dst)

    def sum_rows(self, name: str) -> None:
        t = self.pick()
        rows, cols = t.shape
        out = self.tensor(name, (2, cols))
        lo = np.stack([np.arange(rows), np.zeros(rows, int)], 1)
        inner = Edges.boxes(t, lo, np.tile([1, cols], (rows, 1)))
        split = int(self.rng.integers(0, rows + 1))
        edges: dict[str, Any] = {
            "rows": Edges.nested([0, split, rows], inner),
            "out": Edges.boxes(out, [[0, 0], [1, 0]], [[1, cols], [1, cols]]),
        }
        cs = self.graph.add_compute_set(name)
        self.graph.add_vertices(cs, "SumRows", self.place(2), edges)
        self.prog.add(Execute(cs))
        value = self.account.values[t.addresses()].reshape(rows, cols)
        total = np.zeros((2, cols), np.float32)
        for i in range(rows):
            total[0 if i < split else 1] += value[i]
        self.account.values[out.addresses().ravel()] = total.ravel()
        self.tensors.append(out)

    def expected(self) -> list[np.ndarray]:
        return [self.account.values[t.addresses().ravel()] for t in self.tensors]


__all__ = ["Account", "RandomProgram", "new_graph", "ragged", "random_mapping"]


def engine_of(
    graph: Graph, *programs: Program, mode: tuple[int, bool] = (2, False), **more: Any
) -> TileEngine:
    """An engine of programs; ``mode``: threads, faithful exchange."""
    exe = build_executable(graph, list(programs))
    return TileEngine(exe, threads=mode[0], faithful_exchange=mode[1], **more)


def scale_set(graph: Graph, x: Tensor, by: float) -> Execute:
    """x *= by, in two vertices."""
    cs = graph.add_compute_set("scale")
    n = x.numel
    edges = Edges.flat(x.flatten(), [0, n // 2], [n // 2, n])
    graph.add_vertices(cs, "Scale", [1, 2], {"x": edges}, {"by": by})
    return Execute(cs)


def count_set(graph: Graph, n: Tensor, predicate: Tensor | None = None) -> Execute:
    """n -= 1; the predicate gets whether it is above zero."""
    cs = graph.add_compute_set("count")
    graph.add_vertices(cs, "Count", [3], {"n": Edges.elements(n.flatten(), [0])})
    return Execute(cs, predicate)


def endless(g: Graph, in_vertex: bool) -> Program:
    """A program without an end: a loop, or one vertex."""
    x = g.add_variable(f32, (4,), "x", mapping="linear")
    if not in_vertex:
        return Loop(scale_set(g, x, 1.0))
    cs = g.add_compute_set("forever")
    g.add_vertices(cs, "Forever", [1], {"x": Edges.flat(x, [0], [4])})
    return Execute(cs)
