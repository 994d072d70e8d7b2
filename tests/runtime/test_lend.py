"""Inputs that a run reads in the user's array: right values, and only where nothing else may be
meant; files cannot make such a copy leave the array."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.codegen.program_words import Op
from poplar_py.diagnostics import FileError
from poplar_py.executable.build import build_executable
from poplar_py.executable.check import check_executable
from poplar_py.executable.executable import Executable
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import Copy, Sequence
from poplar_py.runtime.engine import TileEngine
from poplar_py.target.target import Target
from poplar_py.types import f32

X = np.arange(48, dtype=np.float32).reshape(6, 8)


def turned(*, direct: bool = False) -> Executable:
    """A stream to %x, then %x transposed to %y; ``direct``: to %y at once."""
    g = Graph(Target.ipu("gc200", 1, 4))
    stream = g.add_host_to_device_fifo("x", f32, X.size)
    y = g.add_variable(f32, (8, 6), mapping="linear")
    prog = Sequence()
    if direct:
        prog.add(Copy(stream, y.dim_shuffle((1, 0))))
    else:
        x = g.add_variable(f32, X.shape, mapping="linear")
        prog.add(Copy(stream, x))
        prog.add(Copy(x.dim_shuffle((1, 0)), y))
    g.create_host_read("y", y)
    return build_executable(g, [prog])


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_come_from_the_array(direct: bool, faithful: bool, threads: int) -> None:
    with TileEngine(turned(direct=direct), threads=threads, faithful_exchange=faithful) as engine:
        engine.write("x", -X)
        array = X.copy()
        assert engine.lend("x", array)
        for round in range(2):
            array += round
            engine.run()
            np.testing.assert_array_equal(engine.read("y").reshape(8, 6), array.T)
        engine.lend("x", None)
        engine.run()
        np.testing.assert_array_equal(engine.read("y").reshape(8, 6), -X.T)


def test_other_arrays_are_not_lent() -> None:
    with TileEngine(turned(), threads=1) as engine:
        engine.write("x", X)
        for other in (
            X.astype(np.float64),
            X[:3],
            np.asfortranarray(X),
            np.repeat(X, 2, 1)[:, ::2],
        ):
            assert not engine.lend("x", other)
        engine.connect_stream("x", X.reshape(-1).copy())
        assert not engine.lend("x", X)
        engine.lend("x", None)  # which leaves the connection alone
        engine.run()
        np.testing.assert_array_equal(engine.read("y").reshape(8, 6), X.T)


def test_replicas_have_arrays_of_their_own() -> None:
    with TileEngine(turned(), threads=1, replicas=2) as engine:
        assert not engine.lend("x", X)


@pytest.mark.parametrize("direct", [False, True])
def test_damaged_calls_are_refused(direct: bool) -> None:
    exe = turned(direct=direct)
    check_executable(exe)
    calls = np.flatnonzero(exe.code[:, 0] == Op.CALL)
    assert (exe.code[calls, 4] >= 1).all()
    assert (exe.code[calls, 4] == 2).any()
    for call in calls.tolist():
        kept = int(exe.code[call, 4])
        wrong = [0, 3, -1] + ([2] if kept == 1 else [])  # its sources lie elsewhere
        for value in wrong:
            exe.code[call, 4] = value
            with pytest.raises(FileError):
                check_executable(exe)
        exe.code[call, 4] = kept
    check_executable(exe)


def test_sources_outside_the_region_are_refused() -> None:
    exe = turned(direct=True)
    (call,) = np.flatnonzero((exe.code[:, 0] == Op.CALL) & (exe.code[:, 4] == 2)).tolist()[:1]
    table = exe.tables[int(exe.code[call, 1])]
    table.words = table.words.copy()
    table.words[0] -= 4
    with pytest.raises(FileError, match="a copy from a stream"):
        check_executable(exe)
