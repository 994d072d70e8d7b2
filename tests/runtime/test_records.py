"""Copy records and copy kernels against plain loops."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
from tests_runtime import new_graph

from poplar_py.codegen.program_copy import copy_kernels
from poplar_py.executable import records
from poplar_py.executable.build import build_executable
from poplar_py.executable.layout import copy_records
from poplar_py.executable.schedule import shared_jit
from poplar_py.poplar.program import Sequence
from poplar_py.runtime.engine import TileEngine

Pieces = tuple[np.ndarray, np.ndarray, np.ndarray]


def random_pieces(rng: np.random.Generator) -> Pieces:
    """Progressions of pieces whose targets never overlap."""
    src: list[int] = []
    dst: list[int] = []
    size: list[int] = []
    at = 0
    for _ in range(int(rng.integers(1, 12))):
        n, first = int(rng.integers(1, 6)), int(rng.integers(0, 200))
        step, b = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        gap = int(rng.integers(b, 9))
        for i in range(n):
            src.append(first + step * i)
            dst.append(at)
            size.append(b)
            at += gap
    return np.array(src), np.array(dst), np.array(size)


def moved(pieces: Pieces, memory: np.ndarray) -> np.ndarray:
    out = np.zeros(4000, np.int64)
    for s, d, n in zip(*pieces, strict=True):
        out[d : d + n] = memory[s : s + n]
    return out


@pytest.mark.parametrize("seed", range(150))
def test_folding_splitting_and_ordering(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    memory = rng.integers(1, 255, 400)
    src, dst, size = random_pieces(rng)
    want = moved((src, dst, size), memory)
    folded = records.fold(src, dst, size)
    assert np.array_equal(moved(records.expand(folded), memory), want)
    monkeypatch.setattr(records, "_SPLIT_BYTES", 7)
    assert np.array_equal(moved(records.expand(records.split_long(folded)), memory), want)
    monkeypatch.setattr("poplar_py.executable.layout.MANY", 1)
    assert np.array_equal(
        moved(records.expand(copy_records((src, size), (dst, size))), memory), want
    )
    total = int(size.sum())
    cuts = np.unique(np.concatenate([[0], rng.integers(0, total + 1, 5), [total]]))
    other = rng.permutation(len(cuts) - 1) * 500
    s, d, n = records.match(src, size, other, np.diff(cuts))
    assert int(n.sum()) == total
    flat = np.concatenate([memory[a : a + b] for a, b in zip(src, size, strict=True)])
    image = np.zeros(500 * len(cuts), np.int64)
    for a, b, c in zip(s, d, n, strict=True):
        image[b : b + c] = memory[a : a + c]
    parts = [image[a : a + b] for a, b in zip(other, np.diff(cuts), strict=True)]
    assert np.array_equal(np.concatenate(parts), flat)


@pytest.mark.parametrize("wide", [False, True])
def test_copy_kernels(wide: bool) -> None:
    rng = np.random.default_rng(0)
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )
    for name, kernel in copy_kernels(wide=wide).items():
        function = kind(shared_jit().load({kernel.symbol: kernel.text})[kernel.symbol])
        memory = rng.integers(0, 256, 1 << 16).astype(np.uint8)
        source = rng.integers(0, 256, 1 << 12).astype(np.uint8)
        want = memory.copy()
        rows = []
        for k in range(6):
            count, step = int(rng.integers(1, 9)), int(rng.integers(-100, 100))
            n = int(name) if name.isdigit() else int(rng.integers(1, 60))
            src, dst = int(rng.integers(2000, 3000)), 10000 + 4000 * k
            if name == "fill":
                rows.append([dst, n, 255])
                want[dst : dst + n] = 255
                continue
            if name == "run":
                rows.append([src, dst, n])
                count = 1
            elif name == "rows":
                rows.append([src, dst, n, count, step, 64])
            else:
                rows.append([src, dst, count, step, 64])
            for i in range(count):
                a, b = src + i * step, dst + i * 64
                want[b : b + n] = source[a : a + n]
        table = np.array(rows, np.int64).astype(np.uint64 if wide else np.uint32)
        places = memory.ctypes.data, table.ctypes.data
        assert function(*places, len(rows), source.ctypes.data) == 1
        assert np.array_equal(memory, want), name


def test_an_engine_goes_when_nobody_holds_it() -> None:
    exe = build_executable(new_graph(), [Sequence()])
    engine = TileEngine(exe, threads=2)
    engine.run()
    gone = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert gone() is None
    finally:
        gc.enable()
