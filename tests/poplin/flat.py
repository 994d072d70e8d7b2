"""Runs a graph's programs in one flat memory: every variable at its place, every edge a single run.

Independent of memory planning and of the engine. Edges of several runs are gathered into scratch
before the compute set and scattered after it; groups run in the order of their keys.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from poplar_py.codegen.emit import emit_kernel
from poplar_py.codegen.run_codelet import jit_for
from poplar_py.poplar import Graph, Tensor, program

_SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)
_LINE = 64


class Flat:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.base = np.array([v.base for v in graph.variables], np.int64)
        self.place = np.zeros(len(graph.variables), np.int64)
        self.width = np.array([v.dtype.size for v in graph.variables], np.int64)
        at = _LINE
        for i, v in enumerate(graph.variables):
            self.place[i] = at
            at += -(-v.nbytes // _LINE) * _LINE + _LINE
        self.scratch = at
        raw = np.full(at + (64 << 20) + _LINE, 0xFF, np.uint8)
        skip = -raw.ctypes.data % _LINE
        self.memory = raw[skip:]
        self.in_place = self.gathered = 0
        self.seconds = 0.0
        for i, v in enumerate(graph.variables):
            data = v.constant if v.constant is not None else v.initial
            if data is not None:
                self.memory[self.place[i] : self.place[i] + v.nbytes] = data.view(np.uint8)

    def bytes_of(self, address: np.ndarray) -> np.ndarray:
        """Byte offset of element addresses."""
        var = np.searchsorted(self.base, address, "right") - 1
        return self.place[var] + (address - self.base[var]) * self.width[var]

    def index(self, start: np.ndarray, length: np.ndarray, size: int) -> np.ndarray:
        first = self.bytes_of(start)
        run = np.repeat(np.arange(len(length)), length)
        rank = np.arange(len(run)) - np.repeat(np.cumsum(length) - length, length)
        return (first[run] + rank * size) // size

    def write(self, tensor: Tensor, array: np.ndarray) -> None:
        view = self.memory[: len(self.memory) // 8 * 8].view(tensor.dtype.numpy)
        view[self.index(*tensor.runs(), tensor.dtype.size)] = array.ravel()

    def read(self, tensor: Tensor) -> np.ndarray:
        view = self.memory[: len(self.memory) // 8 * 8].view(tensor.dtype.numpy)
        return view[self.index(*tensor.runs(), tensor.dtype.size)].reshape(tensor.shape)

    def run(self, step: program.Program) -> None:
        if isinstance(step, program.Sequence):
            for s in step.steps:
                self.run(s)
        elif isinstance(step, program.Copy):
            self.write(step.dst, self.read(step.src))
        elif isinstance(step, program.Execute):
            for group in step.compute_set.groups:
                self.run_group(group)
        else:
            raise TypeError(type(step).__name__)

    def edge_places(self, edges: Any, size: int, top: int) -> tuple[np.ndarray, list[Any], int]:
        """Byte address of every edge; gathers those of several runs into scratch."""
        n = edges.num_edges
        edge, start, length = edges.runs()
        out = np.zeros(n, np.int64)
        keep = length > 0
        edge, start, length = edge[keep], start[keep], length[keep]
        if len(edge):
            first = np.ones(len(edge), np.bool_)
            first[1:] = (edge[1:] != edge[:-1]) | (start[1:] != start[:-1] + length[:-1])
            at = np.flatnonzero(first)
            edge, start, length = edge[at], start[at], np.add.reduceat(length, at)
        runs = np.bincount(edge, minlength=n)
        single = runs[edge] == 1
        out[edge[single]] = self.bytes_of(start[single])
        self.in_place += int(single.sum())
        moved: list[Any] = []
        view = self.memory[: len(self.memory) // 8 * 8].view(f"u{size}")
        for e in np.flatnonzero(runs > 1):
            pick = edge == e
            index = self.index(start[pick], length[pick], size)
            top = -(-top // _LINE) * _LINE
            out[e] = top
            view[top // size : top // size + len(index)] = view[index]
            moved.append((top, index))
            top += len(index) * size
            self.gathered += 1
        return out, moved, top

    def table(self, group: Any) -> tuple[np.ndarray, list[Any]]:
        codelet, n = group.codelet, group.n
        layout = codelet.row_layout(False)
        fixed = np.zeros((n, layout.fixed), np.int64)
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        scatter: list[Any] = []
        top = self.scratch
        lengths = np.full(n, layout.fixed, np.int64)
        for slot in layout.slots:
            f = slot.field
            if slot.kind == "value":
                data = np.ascontiguousarray(group.state[f.name]).view(np.uint8)
                words = np.zeros((n, slot.words * 4), np.uint8)
                words[:, : f.dtype.size] = data.reshape(n, -1)
                fixed[:, slot.word : slot.word + slot.words] = words.view(np.uint32)
                continue
            edges = group.edges[f.name]
            place, moved, top = self.edge_places(edges, f.dtype.size, top)
            if f.kind != "in":
                scatter += [(f.dtype.size, m) for m in moved]
            if slot.kind == "list":
                count = np.diff(edges.vptr)
                fixed[:, slot.word], fixed[:, slot.word + 1] = lengths, count
                entries = place[:, None]
                if slot.entry_words == 2:
                    entries = np.stack([place, edges.sizes()], 1)
                lengths = lengths + count * slot.entry_words
                parts.append((np.repeat(np.arange(n), count * slot.entry_words), entries.ravel()))
            else:
                fixed[:, slot.word] = place
                if slot.kind == "span":
                    fixed[:, slot.word + 1] = edges.sizes()
        if layout.variable:
            fixed[:, 0] = lengths
        begin = np.cumsum(lengths) - lengths
        rows = np.zeros(int(lengths.sum()), np.uint32)
        rows[(begin[:, None] + np.arange(layout.fixed)).ravel()] = fixed.ravel()
        at = begin + layout.fixed
        for owner, values in parts:
            count = np.bincount(owner, minlength=n)
            rank = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
            rows[at[owner] + rank] = values
            at = at + count
        if group.order is not None:
            order = np.lexsort(np.asarray(group.order).reshape(n, -1).T[::-1])
            pieces = [rows[begin[v] : begin[v] + lengths[v]] for v in order]
            rows = np.concatenate(pieces) if pieces else rows
        return rows, scatter

    def run_group(self, group: Any) -> None:
        import time

        symbol, text = emit_kernel(group.codelet, checked=False)
        function = _SIGNATURE(jit_for("native").load({symbol: text})[symbol])
        rows, scatter = self.table(group)
        ctx = np.zeros(8, np.int64)
        t = time.perf_counter()
        function(self.memory.ctypes.data, rows.ctypes.data, group.n, ctx.ctypes.data)
        self.seconds += time.perf_counter() - t
        for size, (place, index) in scatter:
            view = self.memory[: len(self.memory) // 8 * 8].view(f"u{size}")
            view[index] = view[place // size : place // size + len(index)]
