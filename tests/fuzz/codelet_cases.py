"""Random arithmetic in codelets with NumPy's account, at the edges of every type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Engine, Graph, Target, program
from poplar_py.types import DTYPES, DType

Array = npt.NDArray[Any]
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "f32", "f64")

TEXT = """
@vertex
class V(Vertex):
    x: Input[Vector[{a}]]
    y: Input[Vector[{b}]]
    out: Output[Vector[{c}]]

    def compute(self) -> None:
        for i in range(len(self.out)):
            a = self.x[i]
            b = self.y[i]
            self.out[i] = {expr}
"""


def edge_values(rng: np.random.Generator, dtype: DType, n: int) -> Array:
    """Random bit patterns mixed with the extremes of the type."""
    kind = dtype.numpy
    if dtype.is_float:
        special = [0.0, -0.0, 1.5, -2.5, 1e4, -6e4, np.inf, -np.inf, np.nan, 255.5, -129.0, 3e38]
        with np.errstate(over="ignore"):
            pool = np.array(special).astype(kind)
            values = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 12, n)).astype(kind)
    else:
        info = np.iinfo(kind)
        pool = np.array([0, 1, 2, 7, info.min, info.max, info.max - 1], kind)
        values = rng.integers(info.min, info.max, n, dtype=kind, endpoint=True)
    take = rng.random(n) < 0.4
    values[take] = rng.choice(pool, int(take.sum()))
    return values


def saturated(x: Array, dtype: DType) -> Array:
    """Float to integer: towards zero, NaN to 0, what is outside to the nearest end."""
    info = np.iinfo(dtype.numpy)
    out = np.zeros(x.shape, dtype.numpy)
    for i, v in enumerate(x.astype(np.float64).tolist()):
        if v != v:
            continue
        out[i] = info.min if v <= info.min else info.max if v >= info.max else int(v)
    return out


def shifted(x: Array, by: Array, left: bool) -> Array:
    """Ints below 32 bits count as i32; shift counts are taken modulo the width of the type."""
    wide = x.astype(np.int32) if x.dtype.itemsize < 4 else x
    count = by.astype(wide.dtype) & wide.dtype.type(wide.dtype.itemsize * 8 - 1)
    return (wide << count if left else wide >> count).astype(x.dtype)


@dataclass(frozen=True)
class Trial:
    """One expression over x of type `a` and y of type `b`, giving `c`."""

    a: DType
    b: DType
    c: DType
    expr: str
    account: Callable[[Array, Array], Array]


def draw(rng: np.random.Generator) -> Trial:
    """A random trial whose meaning is defined for all values (y never 0 where divided by)."""
    kind = int(rng.integers(5))
    if kind == 0:
        a, c = DTYPES[str(rng.choice(FLOATS))], DTYPES[str(rng.choice(INTS))]
        return Trial(a, a, c, f"{c.name}(a)", lambda x, y: saturated(x, c))
    t = DTYPES[str(rng.choice(INTS))]
    if kind == 1:
        left = bool(rng.integers(2))
        return Trial(t, t, t, f"a {'<<' if left else '>>'} b", lambda x, y: shifted(x, y, left))
    if kind == 2:
        c = DTYPES[str(rng.choice(INTS))]
        return Trial(t, t, c, f"{c.name}(a)", lambda x, y: x.astype(c.numpy))
    if kind == 3:
        name, op = [("+", np.add), ("-", np.subtract), ("*", np.multiply), ("^", np.bitwise_xor)][
            int(rng.integers(4))
        ]
        return Trial(t, t, t, f"{t.name}(a {name} b)", lambda x, y: op(x, y))
    f = DTYPES[str(rng.choice(("f16", "f32")))]
    name, op = [("+", np.add), ("-", np.subtract), ("*", np.multiply), ("/", np.divide)][
        int(rng.integers(4))
    ]
    return Trial(f, f, f, f"a {name} b", lambda x, y: op(x, y))


def run(
    text: str, values: dict[str, Array], out: DType, n: int, timeout: float = 30.0, **options: Any
) -> Array:
    """Runs class V of `text` on one tile with `values` on its edges; returns edge `out`."""
    graph = Graph(Target.ipu("gc200", 1, 4))
    graph.add_codelets(text)
    cs = graph.add_compute_set("fuzz")
    vertex = graph.add_vertex(cs, "V")
    graph.set_tile_mapping(vertex, 1)
    result = graph.add_variable(out, (n,), "out", mapping=2)
    graph.connect(vertex["out"], result)
    graph.create_host_read("out", result)
    for name, array in values.items():
        dtype = next(d for d in DTYPES.values() if d.numpy == array.dtype)
        t = graph.add_variable(dtype, array.shape, name, mapping=1)
        graph.create_host_write(name, t)
        graph.connect(vertex[name], t)
    engine = Engine(graph, program.Execute(cs), **{"threads": 1, **options})
    try:
        for name, array in values.items():
            engine.write_tensor(name, array)
        engine.run(timeout=timeout)
        return engine.read_tensor("out")
    finally:
        engine.close()
