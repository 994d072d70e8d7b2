"""Control flow, streams, remote buffers, host functions, replicas, errors."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests_runtime import new_graph

from poplar_py import poplar
from poplar_py.codegen.program_words import Op
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
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import (
    Abort,
    AbortOnCondition,
    Call,
    Copy,
    CrossReplicaCopy,
    CycleCount,
    ErrorProgram,
    Execute,
    If,
    Loop,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    Switch,
    WriteUndef,
)
from poplar_py.poplar.tensor import Tensor
from poplar_py.runtime.engine import TileEngine
from poplar_py.types import bool_, f32, i32, u32

MODES = [(1, False), (2, False), (2, True), (4, True)]


def engine_of(
    graph: Graph, *programs: Program, mode: tuple[int, bool] = (2, False), **more: Any
) -> TileEngine:
    exe = build_executable(graph, list(programs))
    return TileEngine(exe, threads=mode[0], faithful_exchange=mode[1], **more)


def scale_set(graph: Graph, x: Tensor, by: float) -> Execute:
    cs = graph.add_compute_set("scale")
    n = x.numel
    edges = Edges.flat(x.flatten(), [0, n // 2], [n // 2, n])
    graph.add_vertices(cs, "Scale", [1, 2], {"x": edges}, {"by": by})
    return Execute(cs)


def count_set(graph: Graph, n: Tensor, predicate: Tensor | None = None) -> Execute:
    cs = graph.add_compute_set("count")
    graph.add_vertices(cs, "Count", [3], {"n": Edges.elements(n.flatten(), [0])})
    return Execute(cs, predicate)


@pytest.mark.parametrize("mode", MODES)
def test_loops(mode: tuple[int, bool]) -> None:
    g = new_graph()
    x = g.add_variable(f32, (10,), "x", mapping="linear")
    n = g.add_variable(i32, (1,), "n", mapping=5)
    five = g.add_constant(i32, (1,), 5, "five")
    double = scale_set(g, x, 2.0)
    less = count_set(g, n)
    g.create_host_write("x", x)
    g.create_host_read("x_out", x)
    g.create_host_read("n", n)
    while_true = Sequence(Copy(five, n), RepeatWhileTrue(Sequence(), n[0], Sequence(double, less)))
    while_false = RepeatWhileFalse(less, n[0], Sequence(double))
    nested = Repeat(2, Repeat(3, Sequence(double)))
    with engine_of(g, while_true, nested, Sequence(Copy(five, n), while_false), mode=mode) as e:
        for program, factor in ((0, 32.0), (1, 64.0), (2, 1.0)):
            e.write("x", np.arange(10, dtype=np.float32))
            e.run(program)
            assert np.array_equal(e.read("x_out"), np.arange(10) * np.float32(factor))
        # `less` makes 4, which is nonzero: the body of the while-false loop never runs
        assert e.read("n")[0] == 4


@pytest.mark.parametrize("mode", MODES)
def test_branches(mode: tuple[int, bool]) -> None:
    g = new_graph()
    x = g.add_variable(f32, (4,), "x", mapping="linear")
    k = g.add_variable(i32, (), "k", mapping=2)
    values = {
        v: g.add_constant(f32, (4,), np.full(4, v, np.float32), f"c{v}") for v in (1, 2, 3, 4)
    }
    switch = Switch(k, [(7, Copy(values[1], x)), (-2, Copy(values[2], x))], Copy(values[3], x))
    branch = If(k, Copy(values[1], x), Copy(values[4], x))
    g.create_host_write("k", k)
    g.create_host_read("x", x)
    with engine_of(g, switch, branch, mode=mode) as e:
        for value, by_switch, by_if in ((7, 1, 1), (-2, 2, 1), (0, 3, 4), (5, 3, 1)):
            e.write("k", np.array([value], np.int32))
            e.run(0)
            assert (e.read("x") == by_switch).all()
            e.run(1)
            assert (e.read("x") == by_if).all()


@pytest.mark.parametrize("mode", MODES)
def test_functions_and_predicates(mode: tuple[int, bool]) -> None:
    g = new_graph()
    x = g.add_variable(f32, (8,), "x", mapping="linear")
    n = g.add_variable(i32, (1,), "n", mapping=5)
    go = g.add_variable(bool_, (), "go", mapping=1)
    inner = g.add_function(scale_set(g, x, 3.0), "inner")
    outer = g.add_function(Sequence(Call(inner), Call(inner)), "outer")
    start = Sequence(Copy(g.add_constant(i32, (1,), 3, "three"), n))
    loop = RepeatWhileTrue(count_set(g, n, go), go, Call(outer))
    g.create_host_write("x", x)
    g.create_host_read("x_out", x)
    with engine_of(g, Sequence(start, loop), mode=mode) as e:
        e.write("x", np.ones(8, np.float32))
        e.run()
        assert np.array_equal(e.read("x_out"), np.full(8, 81.0, np.float32))


def test_vertex_state_persists() -> None:
    g = new_graph()
    y = g.add_variable(f32, (3,), "y", mapping="linear")
    cs = g.add_compute_set("keep")
    edges = {"out": Edges.elements(y, [0, 1, 2])}
    g.add_vertices(cs, "Keep", [0, 4, 4], edges, {"total": np.array([0, 10, 20], np.float32)})
    g.create_host_read("y", y)
    with engine_of(g, Execute(cs), mode=(2, True)) as e:
        e.run()
        e.run()
        assert np.array_equal(e.read("y"), np.array([3, 13, 23], np.float32))


@pytest.mark.parametrize("replicas", [1, 3])
def test_streams(replicas: int) -> None:
    g = new_graph()
    x = g.add_variable(f32, (4,), "x", mapping="linear")
    source = g.add_host_to_device_fifo("source", f32, 4)
    sink = g.add_device_to_host_fifo("sink", f32, 4)
    body = Sequence(Copy(source, x), scale_set(g, x, 2.0), Copy(x, sink))
    with engine_of(g, Repeat(3, body), replicas=replicas) as e:
        data = np.arange(replicas * 12, dtype=np.float32).reshape(replicas, 12)
        out = np.zeros_like(data)
        e.connect_stream("source", data)
        e.connect_stream("sink", out)
        e.run()
        assert np.array_equal(out, data * 2)
        seen: list[tuple[int, float]] = []

        def fill(buffer: np.ndarray, replica: int) -> None:
            buffer[:] = replica + 1

        def take(buffer: np.ndarray, replica: int) -> None:
            assert not buffer.flags.writeable
            seen.append((replica, float(buffer[0])))

        e.connect_stream("source", fill)
        e.connect_stream("sink", take)
        e.run()
        assert sorted(seen) == sorted((r, 2.0 * (r + 1)) for r in range(replicas) for _ in range(3))


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


@pytest.mark.parametrize("mode", MODES)
def test_remote_buffers(mode: tuple[int, bool]) -> None:
    g = new_graph()
    x = g.add_variable(f32, (2, 3), "x", mapping="linear")
    rows = g.add_variable(u32, (2,), "rows", mapping=1)
    store = g.add_remote_buffer("store", f32, 3, 5)
    g.create_host_write("rows", rows)
    g.create_host_write("x", x)
    g.create_host_read("x_out", x)
    with engine_of(
        g, Copy(store, x, rows), Copy(x, store, rows), Copy(x[0], store), mode=mode
    ) as e:
        e.remote_buffer("store")[0, :] = np.arange(15)
        e.write("rows", np.array([4, 1], np.uint32))
        e.run(0)
        assert e.read("x_out").tolist() == [12, 13, 14, 3, 4, 5]
        e.write("x", np.array([9, 8, 7, 6, 5, 4], np.float32))
        e.run(1)
        assert e.remote_buffer("store")[0].reshape(5, 3)[[4, 1]].tolist() == [[9, 8, 7], [6, 5, 4]]
        e.run(2)
        assert e.remote_buffer("store")[0, :3].tolist() == [9, 8, 7]
        e.write("rows", np.array([0, 5], np.uint32))
        with pytest.raises(InvalidProgram, match="row 5"):
            e.run(0)


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


def test_cycle_count() -> None:
    g = new_graph()
    x = g.add_variable(f32, (64,), "x", mapping="linear")
    t = g.add_variable(u32, (2,), "t", mapping=0)
    g.create_host_read("t", t)
    body = scale_set(g, x, 2.0)
    with engine_of(g, CycleCount(Repeat(4, body), t, 0)) as e:
        e.run()
        cost = next(s for s in e.executable.steps if s.kind == "execute").total
        low, high = e.read("t").tolist()
        assert high == 0
        assert low >= 4 * cost


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


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_copies_between_replicas(threads: int) -> None:
    g = new_graph()
    x = g.add_variable(f32, (6,), "x", mapping="linear")
    y = g.add_variable(f32, (6,), "y", mapping="linear")
    g.create_host_write("x", x)
    g.create_host_read("y", y)
    turn = Sequence(CrossReplicaCopy(x, y, {0: 1, 1: 2, 2: 0}), Copy(y, x), scale_set(g, x, 2.0))
    with engine_of(g, Repeat(3, turn), mode=(threads, False), replicas=3) as e:
        e.write("x", np.repeat(np.arange(1, 4, dtype=np.float32), 6))
        e.run()
        assert np.array_equal(e.read("y")[:, 0], np.array([4, 8, 12], np.float32))


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


def endless(g: Graph, in_vertex: bool) -> Program:
    x = g.add_variable(f32, (4,), "x", mapping="linear")
    if not in_vertex:
        return Loop(scale_set(g, x, 1.0))
    cs = g.add_compute_set("forever")
    g.add_vertices(cs, "Forever", [1], {"x": Edges.flat(x, [0], [4])})
    return Execute(cs)


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
    assert found.value.plan.total[3] > 624 * 1024  # type: ignore[attr-defined]


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


def test_parts_written_one_by_one_are_one_overwrite() -> None:
    g = new_graph()
    x = g.add_variable(f32, (100,), "x", mapping=1)
    y = g.add_variable(f32, (100,), "y", mapping=1)
    z = g.add_variable(f32, (100,), "z", mapping=1)
    stream = g.add_host_to_device_fifo("in", f32, 50)
    out = g.add_device_to_host_fifo("out", f32, 100)
    fill = Sequence(Copy(stream, x[:50]), Copy(stream, x[50:]))
    prog = Sequence(fill, Copy(x, y), WriteUndef(x), Copy(y, z), Copy(z, out))
    exe = build_executable(g, [prog])
    assert int(exe.memory.data[1]) <= 2 * 448


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


def test_copies_straight_from_a_stream() -> None:
    g = new_graph()
    stream = g.add_host_to_device_fifo("in", f32, 12)
    out = g.add_device_to_host_fifo("out", f32, 12)
    x = g.add_variable(f32, (3, 4), "x", mapping="linear")
    y = g.add_variable(f32, (4, 3), "y", mapping="linear")
    body = Sequence(Copy(stream, x), Copy(x.transpose(), y), scale_set(g, y, 2.0), Copy(y, out))
    exe = build_executable(g, [Repeat(2, body)])
    data = np.arange(24, dtype=np.float32)
    want = data.reshape(2, 3, 4).transpose(0, 2, 1).ravel() * 2
    for faithful in (False, True):
        with TileEngine(exe, threads=2, faithful_exchange=faithful) as e:
            got = np.zeros(24, np.float32)
            e.connect_stream("in", data)
            e.connect_stream("out", got)
            e.run()
            assert np.array_equal(got, want)
    copies = [int((exe.code[:, 0] == Op.CALL).sum()), int((exe.code[:, 7] == 1).sum())]
    assert copies[1] == 1  # one copy is made by the default mode only


def test_nothing_is_fine() -> None:
    """Tensors without elements, compute sets without vertices, edges without elements."""
    g = new_graph()
    none = g.add_variable(f32, (0, 4), "none", mapping="linear")
    other = g.add_variable(f32, (0, 4), "other", mapping="linear")
    x = g.add_variable(f32, (8,), "x", mapping="linear")
    stream = g.add_host_to_device_fifo("in", f32, 0)
    out = g.add_device_to_host_fifo("out", f32, 0)
    empty = g.add_compute_set("empty")
    cs = g.add_compute_set("cs")
    g.add_vertices(cs, "Scale", [1, 6], {"x": Edges.flat(x, [0, 3], [0, 3])}, {"by": 2.0})
    rows = Edges.nested([0, 0], Edges.flat(x, [], []))
    g.add_vertices(cs, "SumRows", [5], {"rows": rows, "out": Edges.flat(x, [4], [8])})
    g.create_host_write("x", x)
    g.create_host_read("x_out", x)
    g.create_host_read("none", none)
    prog = Sequence(
        Copy(stream, none), Copy(none, other), Execute(empty), Execute(cs), Copy(other, out),
        Repeat(3, Sequence()), Repeat(0, Execute(cs)), If(x[0].reinterpret(i32), Sequence()),
    )  # fmt: skip
    for faithful in (False, True):
        with engine_of(g, prog, Sequence(), mode=(2, faithful)) as e:
            e.write("x", np.arange(8, dtype=np.float32))
            e.run(0)
            e.run(1)
            assert e.read("x_out").tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
            assert e.read("none").size == 0


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
