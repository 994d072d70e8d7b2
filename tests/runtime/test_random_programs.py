"""Random programs: equal bits in every mode, for every number of threads, as NumPy says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.runtime.engine import TileEngine

_spec = importlib.util.spec_from_file_location(
    "runtime_graphs", Path(__file__).with_name("graphs.py")
)
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
sys.modules["runtime_graphs"] = graphs
_spec.loader.exec_module(graphs)


@pytest.mark.parametrize("seed", range(40))
def test_random_program(seed: int) -> None:
    p = graphs.RandomProgram(seed)
    exe = build_executable(p.graph, [p.prog], BuildOptions(wide=seed % 5 == 0))
    want = p.expected()
    for faithful in (False, True):
        for threads in (1, 2, 4):
            with TileEngine(exe, threads=threads, faithful_exchange=faithful) as engine:
                for name, value in p.feeds.items():
                    engine.write(name, value)
                for _ in range(2):
                    engine.run(0)
                for k, value in enumerate(want):
                    got = engine.read(f"out{k}")
                    assert np.array_equal(got, value), (faithful, threads, k)
