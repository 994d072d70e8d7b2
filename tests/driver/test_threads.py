"""Several threads: every run gets its own values, and compilations do not disturb one another."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import poplar_py as pp

TEXT = b"""model m(x: f32[b, 6]) -> y: f32[b, 6] {
    y = x * 3.0 + 1.0
}
"""


def test_threads_with_different_inputs_get_their_own_outputs() -> None:
    engine = pp.Engine(pp.compile(pp.load(TEXT, "pml"), dims={"b": 4}, tiles_per_ipu=2))
    arrays = [np.full((4, 6), i, np.float32) for i in range(4)]

    def runs(x: np.ndarray) -> bool:
        return all(np.array_equal(engine.run({"x": x})["y"], x * 3 + 1) for _ in range(25))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(runs, arrays))


def test_threads_that_compile_for_different_shapes() -> None:
    engine = pp.Engine(pp.load(TEXT, "pml"), tiles_per_ipu=2)
    arrays = [np.full((1 + i % 4, 6), i, np.float32) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(lambda x: engine.run({"x": x})["y"], arrays))
    assert all(np.array_equal(y, x * 3 + 1) for x, y in zip(arrays, outs, strict=True))


def test_threads_share_one_compiler_from_the_start() -> None:
    """In a new process, where nothing has made the compiler or parsed a codelet yet."""
    code = f"""
import sys, threading
import numpy as np
import poplar_py as pp

sys.setswitchinterval(1e-5)
wrong = []

def work(i):
    x = np.full((i + 1, 6), 2, np.float32)
    y = pp.Engine(pp.load({TEXT!r}, "pml"), tiles_per_ipu=2 + i).run({{"x": x}})["y"]
    if not np.array_equal(y, x * 3 + 1):
        wrong.append(i)

threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print("wrong", wrong)
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "wrong []\n"
