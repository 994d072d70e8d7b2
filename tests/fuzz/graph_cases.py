"""Random graphs over a few variables, with NumPy's account of every step; and ways to break one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Engine, Graph, Mapping, Target, Tensor, concat, program
from poplar_py.types import DType, bool_, f16, f32, i32, u8

Array = npt.NDArray[Any]
TILES = 8
SIZE = 96
CODELETS = """
T = TypeVar("T", f16, f32, i32, u8)

@vertex
class AddTo(Vertex, Generic[T]):
    a: Input[Vector[T]]
    b: Input[Vector[T]]
    out: Output[Vector[T]]

    def compute(self) -> None:
        for i in range(len(self.out)):
            self.out[i] = self.a[i] + self.b[i]


@vertex
class Bump(Vertex, Generic[T]):
    x: InOut[Vector[T]]
    by: T

    def compute(self) -> None:
        for i in range(len(self.x)):
            self.x[i] = self.x[i] + self.by


@vertex
class Rows(Vertex, Generic[T]):
    rows: Vector[Input[Vector[T]]]
    out: Output[T]

    def compute(self) -> None:
        best = self.rows[0][0]
        for r in range(len(self.rows)):
            for i in range(len(self.rows[r])):
                best = max(best, self.rows[r][i])
        self.out = best


@vertex
class At(Vertex):
    x: Input[Vector[i32]]
    out: Output[i32]
    k: i32

    def compute(self) -> None:
        self.out = self.x[self.k]
"""
TYPES: tuple[DType, ...] = (f32, f16, i32, u8)


def random_mapping(rng: np.random.Generator, size: int) -> Mapping:
    """Up to 9 intervals on random tiles."""
    cuts = np.sort(rng.integers(0, size + 1, int(rng.integers(0, 9))))
    bounds = np.concatenate([[0], cuts, [size]])
    return Mapping(bounds, rng.integers(0, TILES, len(bounds) - 1).astype(np.int32)).normal()


def random_values(rng: np.random.Generator, dtype: DType, size: int) -> Array:
    """Values whose sums of a few dozen are exact, except that u8 wraps."""
    low, high = (0, 200) if dtype is u8 else (-9, 10)
    return rng.integers(low, high, size).astype(dtype.numpy)


@dataclass
class Case:
    """A graph of four variables of one type, what they hold, and the program so far."""

    seed: int
    rng: np.random.Generator = field(init=False)
    graph: Graph = field(init=False)
    prog: program.Sequence = field(init=False)
    tensors: list[Tensor] = field(init=False)
    values: list[Array] = field(init=False)
    todo: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = rng = np.random.default_rng(self.seed)
        self.graph = g = Graph(Target.ipu("gc200", 1, TILES))
        g.add_codelets(CODELETS)
        self.prog = program.Sequence()
        self.dtype = TYPES[int(rng.integers(len(TYPES)))]
        self.tensors, self.values, self.todo = [], [], []
        for i in range(4):
            mapping = random_mapping(rng, SIZE)
            t = g.add_variable(self.dtype, (SIZE,), f"v{i}", mapping=mapping)
            g.create_host_write(f"v{i}", t)
            g.create_host_read(f"r{i}", t)
            self.tensors.append(t)
            self.values.append(random_values(rng, self.dtype, SIZE))

    def pick(self, bound: int) -> int:
        return int(self.rng.integers(bound))

    def view(self, i: int, size: int) -> tuple[Tensor, Array]:
        """A random view of variable i of `size` distinct elements, and their positions."""
        t, at = self.tensors[i], np.arange(SIZE)
        kind = self.pick(4)
        if kind == 1:
            t, at = t.reverse(0), at[::-1]
        elif kind == 2:
            t = t.reshape((8, 12)).dim_shuffle((1, 0)).flatten()
            at = at.reshape(8, 12).T.ravel()
        elif kind == 3:
            t, at = concat([t.slice(48, 96), t.slice(0, 48)]), np.roll(at, 48)
        start = self.pick(SIZE - size + 1)
        return t.slice(start, start + size), at[start : start + size]

    # ------------------------------------------------------------------ steps
    def step(self, prog: program.Sequence, todo: list[Any], depth: int = 0) -> None:
        """Append one random step to a program and its account to `todo`."""
        kinds = [self.copy, self.vertices, self.vertices, self.bump, self.rows]
        if depth < 2:
            kinds += [self.repeat, self.branch]
        kinds[self.pick(len(kinds))](prog, todo, depth)

    def copy(self, prog: program.Sequence, todo: list[Any], depth: int) -> None:
        a, b = self.rng.permutation(4)[:2]
        size = 1 + self.pick(SIZE)
        (src, p), (dst, q) = self.view(a, size), self.view(b, size)
        prog.add(program.Copy(src, dst))

        def account(values: list[Array]) -> None:
            values[b][q] = values[a][p]

        todo.append(account)

    def vertices(self, prog: program.Sequence, todo: list[Any], depth: int) -> None:
        """Sums of two views into a third variable, by vertices on random tiles."""
        a, b = self.rng.integers(0, 4, 2).tolist()
        c = int(self.rng.choice([i for i in range(4) if i not in (a, b)]))
        size = 1 + self.pick(SIZE)
        (x, p), (y, q), (z, r) = self.view(a, size), self.view(b, size), self.view(c, size)
        cuts = np.unique(np.r_[0, self.rng.integers(0, size + 1, 3), size])
        cs = self.graph.add_compute_set("add")
        for lo, hi in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            edges = {"a": x.slice(lo, hi), "b": y.slice(lo, hi), "out": z.slice(lo, hi)}
            vertex = self.graph.add_vertex(cs, f"AddTo<{self.dtype.name}>", edges)
            self.graph.set_tile_mapping(vertex, self.pick(TILES))
        prog.add(program.Execute(cs))

        def account(values: list[Array]) -> None:
            values[c][r] = values[a][p] + values[b][q]

        todo.append(account)

    def bump(self, prog: program.Sequence, todo: list[Any], depth: int) -> None:
        a, by = self.pick(4), self.pick(4)
        x, p = self.view(a, 1 + self.pick(SIZE))
        cs = self.graph.add_compute_set("bump")
        vertex = self.graph.add_vertex(cs, f"Bump<{self.dtype.name}>", {"x": x})
        self.graph.set_initial_value(vertex["by"], by)
        self.graph.set_tile_mapping(vertex, self.pick(TILES))
        prog.add(program.Execute(cs))

        def account(values: list[Array]) -> None:
            values[a][p] = values[a][p] + values[a].dtype.type(by)

        todo.append(account)

    def rows(self, prog: program.Sequence, todo: list[Any], depth: int) -> None:
        """The largest of jagged rows into one element of another variable."""
        a, b = self.rng.permutation(4)[:2]
        parts = [self.view(a, 1 + self.pick(20)) for _ in range(1 + self.pick(4))]
        at = self.pick(SIZE)
        cs = self.graph.add_compute_set("rows")
        vertex = self.graph.add_vertex(cs, f"Rows<{self.dtype.name}>")
        self.graph.connect(vertex["rows"], [t for t, _ in parts])
        self.graph.connect(vertex["out"], self.tensors[b][at])
        self.graph.set_tile_mapping(vertex, self.pick(TILES))
        prog.add(program.Execute(cs))

        def account(values: list[Array]) -> None:
            values[b][at] = max(values[a][p].max() for _, p in parts)

        todo.append(account)

    def repeat(self, prog: program.Sequence, todo: list[Any], depth: int) -> None:
        body, inner, times = program.Sequence(), [], self.pick(4)
        for _ in range(1 + self.pick(2)):
            self.step(body, inner, depth + 1)
        prog.add(program.Repeat(times, body))

        def account(values: list[Array]) -> None:
            for _ in range(times):
                for f in inner:
                    f(values)

        todo.append(account)

    def branch(self, prog: program.Sequence, todo: list[Any], depth: int) -> None:
        flag = bool(self.pick(2))
        pred = self.graph.add_constant(bool_, (), flag, "flag", self.pick(TILES))
        sides: list[tuple[program.Sequence, list[Any]]] = []
        for _ in range(2):
            body, inner = program.Sequence(), []
            self.step(body, inner, depth + 1)
            sides.append((body, inner))
        prog.add(program.If(pred, sides[0][0], sides[1][0]))
        taken = sides[0 if flag else 1][1]

        def account(values: list[Array]) -> None:
            for f in taken:
                f(values)

        todo.append(account)

    # ------------------------------------------------------------------ running
    def build(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self.prog, self.todo)

    def expected(self) -> list[Array]:
        values = [v.copy() for v in self.values]
        with np.errstate(over="ignore"):
            for f in self.todo:
                f(values)
        return values

    def run(self, **options: Any) -> list[Array]:
        engine = Engine(self.graph, self.prog, **options)
        try:
            engine.load()
            for i, v in enumerate(self.values):
                engine.write_tensor(f"v{i}", v)
            engine.run(timeout=60)
            return [engine.read_tensor(f"r{i}") for i in range(4)]
        finally:
            engine.close()


# ---------------------------------------------------------------------- illegal graphs
def _vertex(c: Case, name: str = "", tile: int = 0) -> Any:
    cs = c.graph.add_compute_set("bad")
    vertex = c.graph.add_vertex(cs, name or f"AddTo<{c.dtype.name}>")
    c.graph.set_tile_mapping(vertex, tile)
    c.prog.add(program.Execute(cs))
    return vertex


def unmapped_variable(c: Case) -> None:
    t = c.graph.add_variable(c.dtype, (SIZE,), "nowhere")
    c.prog.add(program.Copy(c.tensors[0], t))


def unconnected_edge(c: Case) -> None:
    vertex = _vertex(c)
    c.graph.connect(vertex["a"], c.tensors[0])


def unknown_codelet(c: Case) -> None:
    _vertex(c, f"Ad{c.pick(10)}<{c.dtype.name}>")


def unknown_field(c: Case) -> None:
    c.graph.connect(_vertex(c)[f"f{c.pick(10)}"], c.tensors[0])


def wrong_rank(c: Case) -> None:
    c.graph.connect(_vertex(c)["a"], c.tensors[0].reshape((8, 12)))


def wrong_type(c: Case) -> None:
    other = f32 if c.dtype is not f32 else i32
    c.graph.connect(_vertex(c)["a"], c.graph.add_variable(other, (SIZE,), "o", mapping=0))


def wrong_type_copy(c: Case) -> None:
    other = f32 if c.dtype is not f32 else i32
    t = c.graph.add_variable(other, (SIZE,), "o", mapping=0)
    c.prog.add(program.Copy(c.tensors[0], t))


def wrong_size_copy(c: Case) -> None:
    c.prog.add(program.Copy(c.tensors[0], c.tensors[1].slice(0, 1 + c.pick(SIZE - 1))))


def tile_out_of_range(c: Case) -> None:
    c.graph.set_tile_mapping(c.tensors[0], int(c.rng.choice([-1, TILES, 1 << 20])))


def vertex_out_of_range(c: Case) -> None:
    _vertex(c, tile=TILES + c.pick(100))


def two_writers(c: Case) -> None:
    cs = c.graph.add_compute_set("bad")
    for lo in (0, c.pick(10)):
        x = c.tensors[0].slice(lo, lo + 10)
        c.graph.set_tile_mapping(c.graph.add_vertex(cs, f"Bump<{c.dtype.name}>", {"x": x}), 0)
    c.prog.add(program.Execute(cs))


def reader_of_written(c: Case) -> None:
    cs = c.graph.add_compute_set("bad")
    g, x = c.graph, c.tensors[0].slice(0, 10)
    g.set_tile_mapping(g.add_vertex(cs, f"Bump<{c.dtype.name}>", {"x": x}), 0)
    edges = {"a": x, "b": c.tensors[1].slice(0, 10), "out": c.tensors[2].slice(0, 10)}
    g.set_tile_mapping(g.add_vertex(cs, f"AddTo<{c.dtype.name}>", edges), 1)
    c.prog.add(program.Execute(cs))


def aliased_write(c: Case) -> None:
    twice = c.tensors[0].slice(0, 1).broadcast(4, 0)
    c.prog.add(program.Copy(c.tensors[1].slice(0, 4), twice))


def constant_written(c: Case) -> None:
    t = c.graph.add_constant(c.dtype, (4,), 1, "c", 0)
    c.prog.add(program.Copy(c.tensors[1].slice(0, 4), t))


def index_out_of_range(c: Case) -> None:
    c.tensors[0].slice(c.pick(SIZE), SIZE + 1 + c.pick(9))


def bad_reshape(c: Case) -> None:
    c.tensors[0].reshape((7, 1 + c.pick(9)))


def bad_shuffle(c: Case) -> None:
    c.tensors[0].reshape((8, 12)).dim_shuffle((0, 0))


def negative_shape(c: Case) -> None:
    c.graph.add_variable(c.dtype, (-1 - c.pick(9), 3), "neg", mapping=0)


def stream_twice(c: Case) -> None:
    for _ in range(2):
        c.graph.add_host_to_device_fifo("s", c.dtype, 4)


def stream_size(c: Case) -> None:
    stream = c.graph.add_host_to_device_fifo("s", c.dtype, 5 + c.pick(9))
    c.prog.add(program.Copy(stream, c.tensors[0].slice(0, 4)))


def itself(c: Case) -> None:
    c.prog.add(program.Repeat(2, c.prog))


def too_big(c: Case) -> None:
    t = c.graph.add_variable(c.dtype, (1 << 21,), "big", mapping=c.pick(TILES))
    c.graph.create_host_read("big", t)


def wrong_index(c: Case) -> None:
    x = c.graph.add_variable(i32, (16,), "x", mapping=0)
    out = c.graph.add_variable(i32, (), "o", mapping=1)
    c.prog.add(program.WriteUndef(x))
    vertex = _vertex(c, "At")
    c.graph.connect(vertex["x"], x)
    c.graph.connect(vertex["out"], out)
    c.graph.set_initial_value(vertex["k"], int(c.rng.choice([-1, 16, 1 << 30, -(1 << 31)])))


BREAKS = [
    unmapped_variable,
    unconnected_edge,
    unknown_codelet,
    unknown_field,
    wrong_rank,
    wrong_type,
    wrong_type_copy,
    wrong_size_copy,
    tile_out_of_range,
    vertex_out_of_range,
    two_writers,
    reader_of_written,
    aliased_write,
    constant_written,
    index_out_of_range,
    bad_reshape,
    bad_shuffle,
    negative_shape,
    stream_twice,
    stream_size,
    itself,
    too_big,
    wrong_index,
]
