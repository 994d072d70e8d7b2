"""Random programs: equal bits in every mode, for every number of threads, as NumPy says."""

from __future__ import annotations

import numpy as np
import pytest
from tests_runtime import RandomProgram

from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.runtime.engine import TileEngine


@pytest.mark.parametrize("seed", range(40))
def test_random_program(seed: int) -> None:
    p = RandomProgram(seed)
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


@pytest.mark.parametrize("seed", range(6))
def test_random_program_reads_only_what_was_written(seed: int) -> None:
    p = RandomProgram(seed)
    exe = build_executable(p.graph, [p.prog])
    with TileEngine(exe, threads=2, check_uninitialised=True) as engine:
        for name, value in p.feeds.items():
            engine.write(name, value)
        engine.run(0)
        for k, value in enumerate(p.expected()):
            assert np.array_equal(engine.read(f"out{k}"), value)


@pytest.mark.parametrize("seed", range(5))
def test_random_program_on_an_old_cpu(seed: int) -> None:
    p = RandomProgram(seed)
    exe = build_executable(p.graph, [p.prog])
    with TileEngine(exe, threads=1, cpu="x86-64-v2") as engine:
        for name, value in p.feeds.items():
            engine.write(name, value)
        engine.run(0)
        for k, value in enumerate(p.expected()):
            assert np.array_equal(engine.read(f"out{k}"), value)
