"""A slow oracle for programs: every variable is one array, every vertex is run on copies.

It knows nothing of tiles, exchange or memory plans, so that what it computes depends on the graph
and the codelets only.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np

from poplar_py.codegen.emit import emit_kernel
from poplar_py.codegen.run_codelet import Arena, build_row, jit_for
from poplar_py.poplar import Graph, Tensor, program

KERNEL = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int64, c_void_p)


class Memory:
    """Contents of all variables of a graph; poison where nothing was written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.data = []
        for v in graph.variables:
            if v.constant is not None:
                self.data.append(v.constant.copy())
                continue
            raw = np.full(v.size * v.dtype.size, 0xA5, np.uint8).view(v.dtype.numpy)
            self.data.append(raw)
        self.bases = np.array([v.base for v in graph.variables])
        self.streams: dict[str, np.ndarray] = {}
        self.vertices = 0

    def pieces(self, start: np.ndarray, length: np.ndarray) -> list[tuple[int, int, int]]:
        ids = np.searchsorted(self.bases, start, "right") - 1
        at = start - self.bases[ids]
        return list(zip(ids.tolist(), at.tolist(), length.tolist(), strict=True))

    def load(self, start: np.ndarray, length: np.ndarray, dtype: Any) -> np.ndarray:
        parts = [
            self.data[i][a : a + n].view(dtype.numpy) for i, a, n in self.pieces(start, length)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype.numpy)

    def store(self, start: np.ndarray, length: np.ndarray, values: np.ndarray) -> None:
        at = 0
        for i, a, n in self.pieces(start, length):
            self.data[i][a : a + n] = values[at : at + n].view(self.data[i].dtype)
            at += n

    def read(self, t: Tensor) -> np.ndarray:
        return self.load(*t.runs(), t.dtype).reshape(t.shape)

    def write(self, t: Tensor, values: Any) -> None:
        array = np.ascontiguousarray(np.asarray(values, t.dtype.numpy)).reshape(-1)
        self.store(*t.runs(), array)

    # ------------------------------------------------------------------ programs
    def run(self, prog: program.Program) -> None:
        if isinstance(prog, program.Sequence):
            for step in prog.steps:
                self.run(step)
        elif isinstance(prog, program.Execute):
            self.execute(prog.compute_set)
        elif isinstance(prog, program.Copy):
            self.copy(prog)
        elif isinstance(prog, program.Repeat):
            for _ in range(prog.times):
                self.run(prog.body)
        elif isinstance(prog, program.RepeatWhileTrue):
            self.run(prog.condition)
            while self.read(prog.predicate).reshape(-1)[0]:
                self.run(prog.body)
                self.run(prog.condition)
        elif isinstance(prog, program.If):
            taken = bool(self.read(prog.predicate).reshape(-1)[0])
            self.run(prog.if_true if taken else prog.if_false)
        else:
            raise TypeError(type(prog).__name__)

    def copy(self, prog: program.Copy) -> None:
        if prog.kind == "from_stream":
            self.write(prog.dst, self.streams[prog.src.handle])
        elif prog.kind == "to_stream":
            self.streams[prog.dst.handle] = self.read(prog.src)
        else:
            self.write(prog.dst, self.read(prog.src))

    def execute(self, cs: Any) -> None:
        results = [self.group(g) for g in cs.groups]
        for writes in results:
            for start, length, values in writes:
                self.store(start, length, values)

    def group(self, group: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        codelet = group.codelet
        arena = Arena()
        writes: list[tuple[np.ndarray, np.ndarray, list[int]]] = []
        rows: list[list[int]] = []
        gathered = {
            f.name: self.edges(group.edges[f.name], f) for f in codelet.fields if f.kind != "state"
        }
        n = len(group.tiles)
        self.vertices += n
        for v in range(n):
            values: dict[str, Any] = {}
            for f in codelet.fields:
                if f.kind == "state":
                    held = group.state.get(f.name)
                    values[f.name] = 0 if held is None else held[v]
                    continue
                edges = gathered[f.name](v)
                if f.rank == 2:
                    values[f.name] = [array for _, _, array in edges]
                else:
                    values[f.name] = edges[0][2]
                if f.kind != "in":
                    writes += [(s, k, [v, f.name, j]) for j, (s, k, _) in enumerate(edges)]
            before = len(arena.parts)
            rows.append(build_row(codelet, values, arena, False))
            places = iter(arena.parts[before:])
            where: dict[tuple[str, int], Any] = {}
            for name, value in values.items():
                if isinstance(value, (list, tuple)):
                    for j in range(len(value)):
                        where[name, j] = next(places)
                elif isinstance(value, np.ndarray):
                    where[name, 0] = next(places)
            for k in range(len(writes)):
                s, length, key = writes[k]
                if isinstance(key, list) and key[0] == v:
                    writes[k] = (s, length, where[key[1], key[2]])
        table = np.concatenate([np.asarray(r, np.uint32) for r in rows])
        base = arena.finish()
        ctx = np.zeros(8, np.int64)
        ctx[6] = base.size
        symbol, text = emit_kernel(codelet, checked=True)
        function = KERNEL(jit_for("native").load({symbol: text})[symbol])
        function(base.ctypes.data, table.ctypes.data, n, ctx.ctypes.data)
        if ctx[1]:
            raise RuntimeError(f"{codelet.name}: error {ctx.tolist()}")
        return [(s, length, arena._one(base, place)) for s, length, place in writes]

    def edges(self, edges: Any, f: Any) -> Any:
        """Function from vertex to [(start, length, contents)] of its edges."""
        edge, start, length = edges.runs()
        ptr = np.searchsorted(edge, np.arange(edges.num_edges + 1))

        def of(v: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            lo, hi = (v, v + 1) if edges.vptr is None else (edges.vptr[v], edges.vptr[v + 1])
            out = []
            for e in range(lo, hi):
                s, k = start[ptr[e] : ptr[e + 1]], length[ptr[e] : ptr[e + 1]]
                out.append((s, k, self.load(s, k, f.dtype)))
            return out

        return of


def run(graph: Graph, prog: program.Program, inputs: dict[Tensor, Any]) -> Memory:
    """Memory after running a program on the given contents."""
    memory = Memory(graph)
    for t, values in inputs.items():
        memory.write(t, values)
    memory.run(prog)
    return memory
