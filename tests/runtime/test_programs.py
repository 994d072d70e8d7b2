"""Control flow, functions, streams, remote buffers, replicas."""

from __future__ import annotations

import numpy as np
import pytest
from tests_runtime import MODES, count_set, engine_of, new_graph, scale_set

from poplar_py.codegen.program_words import Op
from poplar_py.diagnostics import (
    InvalidProgram,
)
from poplar_py.executable.build import build_executable
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.program import (
    Call,
    Copy,
    CrossReplicaCopy,
    CycleCount,
    Execute,
    If,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    Switch,
    WriteUndef,
)
from poplar_py.runtime.engine import TileEngine
from poplar_py.types import bool_, f32, i32, u32


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
