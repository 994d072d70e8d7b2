"""A process that compiles many models does not grow."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import poplar_py as pp

MODEL = """
model net(x: f32[64, 512]) -> y: f32[64, 512] {{
    param w: f32[512, 512] = glorot_uniform(seed={seed})
    y = softmax(relu(x @ w) @ w)
}}
"""


def resident() -> int:
    """MiB of memory the process holds."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) >> 10


def compile_and_run(folder: Path, seed: int) -> weakref.ref[pp.Engine]:
    file = folder / f"net{seed}.pml"
    file.write_text(MODEL.format(seed=seed))
    engine = pp.Engine(pp.load(file), system="ipu", threads=1)
    engine.run({"x": np.ones((64, 512), np.float32)})
    return weakref.ref(engine)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_models_do_not_pile_up(tmp_path: Path) -> None:
    for seed in range(2):
        compile_and_run(tmp_path, seed)
    before = resident()
    left = [compile_and_run(tmp_path, seed) for seed in range(2, 8)]
    gc.collect()
    assert not any(ref() for ref in left)
    assert resident() < before + 40
