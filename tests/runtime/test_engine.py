"""The engine: host functions, callbacks, stopping, files, memory, errors."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests_runtime import endless, engine_of, new_graph, scale_set

from poplar_py import poplar
from poplar_py.diagnostics import (
    InputError,
    InvalidProgram,
    OutOfTileMemory,
    RunTimeout,
    Stopped,
    TileException,
)
from poplar_py.executable.build import build_executable
from poplar_py.executable.pexe import load_executable, save_executable
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.errors import WriteConflict
from poplar_py.poplar.program import (
    Abort,
    AbortOnCondition,
    Call,
    Copy,
    ErrorProgram,
    Execute,
    PrintTensor,
    Repeat,
    Sequence,
)
from poplar_py.runtime.engine import TileEngine
from poplar_py.types import bool_, f32


def test_error_in_a_callback_is_raised_by_run() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4,), "x", mapping="linear")
    stream = g.add_host_to_device_fifo("source", f32, 4)
    with engine_of(g, Copy(stream, x)) as e:

        def fail(_buffer: np.ndarray) -> None:
            raise KeyError("mine")

        e.connect_stream("source", fail)
        with pytest.raises(KeyError, match="mine"):
            e.run()
        e.connect_stream("source", None)
        e.run()


def test_host_functions_and_printing(capsys: pytest.CaptureFixture[str]) -> None:
    g = new_graph()
    x = g.add_variable(f32, (3,), "x", mapping="linear")
    y = g.add_variable(f32, (1,), "y", mapping=4)
    total = g.add_host_function("total", [(f32, 3)], [(f32, 1)])
    g.create_host_write("x", x)
    g.create_host_read("y", y)
    prog = Sequence(Call(total, [x], [y]), PrintTensor("y", y))
    with engine_of(g, prog) as e:
        e.write("x", np.array([1, 2, 4], np.float32))
        with pytest.raises(InputError, match="not connected"):
            e.run()

        def add_up(values: np.ndarray, out: np.ndarray) -> None:
            out[0] = values.sum()

        e.connect_host_function("total", add_up)
        e.run()
        assert e.read("y")[0] == 7
    assert "y: [7.]" in capsys.readouterr().err


def test_errors_from_programs() -> None:
    g = new_graph()
    x = g.add_variable(f32, (2,), "x", mapping="linear")
    flag = g.add_variable(bool_, (), "flag", mapping=3)
    g.create_host_write("x", x)
    g.create_host_write("flag", flag)
    programs = (ErrorProgram("went wrong", x), AbortOnCondition(flag, "flag is set"), Abort("no"))
    with engine_of(g, *programs) as e:
        e.write("x", np.array([1, 2], np.float32))
        with pytest.raises(InvalidProgram, match=r"went wrong: \[1., 2.\]"):
            e.run(0)
        e.write("flag", np.array([False]))
        e.run(1)
        e.write("flag", np.array([True]))
        with pytest.raises(InvalidProgram, match="flag is set"):
            e.run(1)
        with pytest.raises(InvalidProgram, match="no"):
            e.run(2)


def test_tile_exception_names_the_vertex() -> None:
    g = new_graph()
    x = g.add_variable(f32, (20,), "x", mapping="linear")
    cs = g.add_compute_set("poke")
    g.add_vertices(cs, "Poke", [1, 6], {"x": Edges.flat(x, [0, 10], [10, 20])}, {"k": [9, 10]})
    with engine_of(g, Execute(cs)) as e, pytest.raises(TileException) as found:
        e.run()
    text = str(found.value)
    for part in ("Poke", "vertex 1", "tile 6", "'poke'", "index 10", "'x'", "10 element"):
        assert part in text


@pytest.mark.parametrize("in_vertex", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_timeout_and_stop(in_vertex: bool, threads: int) -> None:
    g = new_graph()
    with engine_of(g, endless(g, in_vertex), mode=(threads, False)) as e:
        begin = time.monotonic()
        with pytest.raises(RunTimeout):
            e.run(timeout=0.05)
        assert time.monotonic() - begin < 1.0
        timer = threading.Timer(0.05, e.stop)
        timer.start()
        with pytest.raises(Stopped):
            e.run()
        timer.join()


def test_out_of_memory_names_tile_and_variables() -> None:
    g = new_graph()
    big = g.add_variable(f32, (150_000,), "big", mapping=3)
    other = g.add_variable(f32, (20_000,), "other", mapping=3)
    prog = Sequence(Copy(big[:20_000], other), scale_set(g, big, 2.0), scale_set(g, other, 2.0))
    with pytest.raises(OutOfTileMemory, match="tile 3") as found:
        build_executable(g, [prog])
    assert "big" in str(found.value)
    assert found.value.least[3] > 624 * 1024  # type: ignore[attr-defined]


def test_dead_variables_share_memory() -> None:
    g = new_graph()
    stream = g.add_host_to_device_fifo("in", f32, 1000)
    out = g.add_device_to_host_fifo("out", f32, 1000)
    x = g.add_variable(f32, (1000,), "x0", mapping=2)
    prog = Sequence(Copy(stream, x))
    for k in range(20):
        y = g.add_variable(f32, (1000,), f"x{k + 1}", mapping=2)
        prog.add(Copy(x, y))
        x = y
    prog.add(Copy(x, out))
    exe = build_executable(g, [prog])
    assert int(exe.memory.data[2]) == 8032  # 4,000 bytes, and 4,000 more in the next line
    assert exe.memory.data[2] >= exe.memory.bound[2]
    with TileEngine(exe, threads=2, faithful_exchange=True) as e:
        e.write("in", np.arange(1000, dtype=np.float32))
        e.run()
        assert np.array_equal(e.read("out"), np.arange(1000))


def test_pexe_round_trip(tmp_path: Path) -> None:
    g = new_graph()
    x = g.add_variable(f32, (8,), "x", mapping="linear")
    scale = g.add_constant(f32, (8,), np.arange(8, dtype=np.float32), "scale")
    prog = Sequence(Copy(scale, x), scale_set(g, x, 3.0), PrintTensor("x", x))
    g.create_host_read("x", x)
    exe = build_executable(g, [prog])
    save_executable(exe, tmp_path / "a.pexe")
    loaded = load_executable(tmp_path / "a.pexe")
    assert loaded.code.tolist() == exe.code.tolist()
    for faithful in (False, True):
        with TileEngine(loaded, threads=2, faithful_exchange=faithful) as e:
            e.run()
            assert np.array_equal(e.read("x"), np.arange(8, dtype=np.float32) * 3)


def test_poplar_engine() -> None:
    g = new_graph()
    x = g.add_variable(f32, (8,), "x", mapping="linear")
    g.create_host_write("x", x)
    g.create_host_read("x", x)
    engine = poplar.Engine(g, [scale_set(g, x, 3.0)], threads=1)
    engine.load()
    engine.write_tensor("x", np.ones(8, np.float32))
    engine.run(0)
    assert (engine.read_tensor("x") == 3).all()
    assert engine.cycles().compute > 0
    with pytest.raises(InputError):
        engine.run(1)
    engine.close()


def test_reads_of_what_nobody_wrote() -> None:
    g = new_graph()
    x = g.add_variable(f32, (8,), "x", mapping="linear")
    y = g.add_variable(f32, (8,), "y", mapping="linear")
    stream = g.add_host_to_device_fifo("in", f32, 4)
    good = Sequence(Copy(stream, x[:4]), Copy(stream, x[4:]), Copy(x, y), scale_set(g, y, 2.0))
    bad = Sequence(Copy(stream, x[:4]), Copy(x, y), scale_set(g, y, 2.0))
    exe = build_executable(g, [good, bad])
    for program in (good, bad):
        only = build_executable(g, [program])
        with TileEngine(only, threads=2, check_uninitialised=True) as e:
            if program is good:
                e.run(0)
                continue
            with pytest.raises(
                InvalidProgram, match=r"vertex 1 .* element 0 of field 'x'"
            ) as found:
                e.run(0)
            assert "(y" in str(found.value) or "receive buffer" in str(found.value)
    with TileEngine(exe, threads=1, check_uninitialised=True) as e:
        e.run(0)


def test_engine_in_a_fork_and_after_close() -> None:
    g = new_graph()
    x = g.add_variable(f32, (8,), "x", mapping="linear")
    g.create_host_write("x", x)
    g.create_host_read("x_out", x)
    e = engine_of(g, scale_set(g, x, 2.0))
    e.write("x", np.ones(8, np.float32))
    child = os.fork()
    if child == 0:  # no test machinery may run here
        e.run()
        os._exit(0 if (e.read("x_out") == 2).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (e.read("x_out") == 1).all()
    e.close()
    with pytest.raises(InputError, match="closed"):
        e.run()


def test_a_callback_cannot_run_the_engine() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4,), "x", mapping="linear")
    stream = g.add_host_to_device_fifo("source", f32, 4)
    with engine_of(g, Copy(stream, x), mode=(1, False)) as e:
        e.connect_stream("source", lambda _buffer: e.run())
        with pytest.raises(InputError, match="another run"):
            e.run()


def test_measure_gives_seconds_per_step() -> None:
    g = new_graph()
    x = g.add_variable(f32, (64,), "x", mapping="linear")
    with engine_of(g, Repeat(50, scale_set(g, x, 1.0))) as e:
        seconds = e.measure(repeats=3)
        assert len(seconds) == len(e.executable.steps)
        assert 0 < seconds.sum() < 10


def test_more_memory_than_the_host_can_map() -> None:
    g = new_graph()
    buffer = g.add_remote_buffer("huge", f32, 1 << 40, 1 << 10)
    x = g.add_variable(f32, (4,), "x", mapping=0)
    with pytest.raises(OutOfTileMemory, match="host cannot map"):
        engine_of(g, scale_set(g, x, 2.0))
    assert buffer.repeats == 1 << 10


def test_two_writers_are_refused() -> None:
    g = new_graph()
    x = g.add_variable(f32, (8,), "x", mapping="linear")
    cs = g.add_compute_set("cs")
    g.add_vertices(cs, "Scale", [0, 1], {"x": Edges.flat(x, [0, 3], [4, 8])}, {"by": 2.0})
    with pytest.raises(WriteConflict):
        build_executable(g, [Execute(cs)])
