"""Run a codelet over NumPy arrays, without a graph: for tests and for trying codelets out.

Arrays lie in one arena with poison between them; rows follow `codelets.rows`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from poplar_py.codegen.emit import emit_kernel
from poplar_py.codegen.jit import Jit
from poplar_py.codelets import Codelet

__all__ = ["KERNEL_TYPE", "Arena", "Result", "build_row", "jit_for", "run_codelet"]

_JITS: dict[str, Jit] = {}
KERNEL_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)


def jit_for(cpu: str = "native") -> Jit:
    if cpu not in _JITS:
        _JITS[cpu] = Jit(cpu)
    return _JITS[cpu]


class Result:
    def __init__(self, code: int, ctx: np.ndarray, edges: dict[str, Any]) -> None:
        self.code, self.ctx, self.edges = code, ctx, edges

    def __getitem__(self, name: str) -> Any:
        return self.edges[name]


def run_codelet(
    codelet: Codelet,
    rows: dict[str, Any] | Sequence[dict[str, Any]],
    *,
    checked: bool = False,
    wide: bool = False,
    cpu: str = "native",
) -> Result:
    """Run one or several vertices, each a map of fields to arrays or state.

    A field of rank 2 is a list of arrays.

    The result holds the arrays of the first vertex afterwards.
    """
    vertices = [rows] if isinstance(rows, dict) else list(rows)
    arena = Arena()
    tables = [build_row(codelet, v, arena, wide) for v in vertices]
    word = np.uint64 if wide else np.uint32
    table = np.concatenate([np.asarray(t, word) for t in tables])
    base = arena.finish()
    ctx = np.zeros(8, np.int64)
    ctx[6] = base.size
    symbol, text = emit_kernel(codelet, checked=checked, wide=wide)
    function = KERNEL_TYPE(jit_for(cpu).load({symbol: text})[symbol])
    code = function(base.ctypes.data, table.ctypes.data, len(vertices), ctx.ctypes.data)
    return Result(code, ctx, arena.read_back(base, vertices[0]))


class Arena:
    """Bump allocation with a gap of poison after every run."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, np.ndarray]] = []
        self.size = 64

    def put(self, array: np.ndarray) -> int:
        at = self.size
        self.parts.append((at, np.ascontiguousarray(array)))
        self.size += -(-array.nbytes // 64) * 64 + 64
        return at

    def finish(self) -> np.ndarray:
        raw = np.full(self.size + 64, 0xA5, np.uint8)
        skip = -raw.ctypes.data % 64
        base = raw[skip : skip + self.size]
        for at, array in self.parts:
            base[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
        return base

    def read_back(self, base: np.ndarray, vertex: dict[str, Any]) -> dict[str, Any]:
        places = iter(self.parts)
        out: dict[str, Any] = {}
        for name, value in vertex.items():
            if isinstance(value, (list, tuple)):
                out[name] = [self._one(base, next(places)) for _ in range(len(_runs(value)))]
            elif isinstance(value, np.ndarray):
                out[name] = self._one(base, next(places))
        return out

    @staticmethod
    def _one(base: np.ndarray, place: tuple[int, np.ndarray]) -> np.ndarray:
        at, array = place
        return base[at : at + array.nbytes].view(array.dtype).reshape(array.shape).copy()


def build_row(codelet: Codelet, values: dict[str, Any], arena: Arena, wide: bool) -> list[int]:
    """The words of one row. Arrays are placed in the order of `values`."""
    places: dict[str, list[int]] = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple, np.ndarray)):
            places[name] = [arena.put(array) for array in _runs(value)]
    layout = codelet.row_layout(wide)
    row = [0] * layout.fixed
    for slot in layout.slots:
        name, f = slot.field.name, slot.field
        value = values[name]
        if slot.kind == "value":
            raw = np.asarray(value, f.dtype.numpy).tobytes().ljust(8, b"\0")
            words: Any = np.frombuffer(raw, np.uint64 if wide else np.uint32)
            row[slot.word : slot.word + slot.words] = [int(w) for w in words[: slot.words]]
        elif slot.kind == "list":
            row[slot.word : slot.word + 2] = [len(row), len(value)]
            for at, array in zip(places[name], _runs(value), strict=True):
                row += [at] if slot.entry_words == 1 else [at, array.size]
        else:
            row[slot.word] = places[name][0]
            if slot.kind == "span":
                row[slot.word + 1] = value.size
    if layout.variable:
        row[0] = len(row)
    return row


def _runs(value: Any) -> list[np.ndarray[Any, Any]]:
    return [value] if isinstance(value, np.ndarray) else list(value)
