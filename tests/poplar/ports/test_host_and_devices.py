"""Streams, remote buffers, saved programs, several IPUs and replicas, as C++ programs use them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poplar_py import poplar, popops, poputil
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import FLOAT, UNSIGNED_INT
from poplar_py.poplar.program import (
    Call,
    Copy,
    CrossReplicaCopy,
    Execute,
    Repeat,
    Sequence,
    Sync,
)

N = 48


class Feeder(poplar.StreamCallback):
    """Gives block after block; counts what the runtime asks for."""

    def __init__(self, blocks: list[np.ndarray]) -> None:
        self.blocks, self.at, self.completed = blocks, 0, 0

    def fetch(self, buffer: np.ndarray) -> None:
        buffer[:] = self.blocks[self.at % len(self.blocks)]

    def complete(self) -> None:
        self.at += 1
        self.completed += 1


def test_double_buffering_with_callbacks() -> None:
    """Two buffers in turn: one is filled while the other is worked on."""
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 8))
    ping, pong = (graph.add_variable(FLOAT, [N], name, mapping="linear") for name in ("a", "b"))
    options = {"bufferingDepth": "2"}
    mode = poplar.ReplicatedStreamMode.REPLICATE
    into = graph.add_host_to_device_fifo("in", FLOAT, N, mode, options)
    out = graph.add_device_to_host_fifo("out", FLOAT, N)
    halves = []
    for work, load in ((ping, pong), (pong, ping)):
        half = Sequence([Copy(into, load)])
        popops.mul_in_place(graph, work, 2.0, half, "work")
        half.add(Copy(work, out))
        halves.append(half)
    prog = Sequence([Copy(into, ping), Repeat(3, Sequence(halves))])
    blocks = [np.full(N, k + 1, np.float32) for k in range(7)]
    feeder, seen = Feeder(blocks), []
    engine = poplar.Engine(graph, prog)
    engine.connect_stream_to_callback("in", feeder)
    engine.connect_stream_to_callback("out", lambda buffer: seen.append(float(buffer[0])))
    engine.load_and_run(poplar.Device(graph.get_target()))
    assert seen == [2.0 * (k + 1) for k in range(6)]
    assert feeder.completed == 7


def test_rows_of_a_remote_buffer_by_a_counter() -> None:
    """Off-chip rows: the index lives on the device; the host fills and reads rows by number."""
    rows = 5
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 8))
    buffer = graph.add_remote_buffer("weights", FLOAT, N, rows)
    sums = graph.add_remote_buffer("sums", FLOAT, N, rows)
    x, total = (graph.add_variable(FLOAT, [N], name, mapping="linear") for name in ("x", "total"))
    row = graph.add_variable(UNSIGNED_INT, [1], "row", mapping=0)
    prog = Sequence()
    popops.fill(graph, row, 0, prog, "first")
    popops.zero(graph, total, prog, "zero")
    body = Sequence([Copy(buffer, x, row)])
    popops.add_in_place(graph, total, x, body, "accumulate")
    body.add(Copy(total, sums, row))
    popops.add_in_place(graph, row, 1, body, "next")
    prog.add(Repeat(rows, body))
    engine = poplar.Engine(graph, prog)
    data = np.random.default_rng(1).standard_normal((rows, N)).astype(np.float32)
    for k in range(rows):
        engine.copy_to_remote_buffer(data[k], "weights", k)
    engine.run()
    want = np.cumsum(data, 0, dtype=np.float32)
    for k in range(rows):
        got = np.zeros(N, np.float32)
        engine.copy_from_remote_buffer("sums", got, k)
        np.testing.assert_array_equal(got, want[k])


def test_saved_executables_run_twice(tmp_path: Path) -> None:
    """Compile once, save, load in two engines; programs are chosen by number."""
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 8))
    x = graph.add_variable(FLOAT, [N], poplar.DebugContext("x"), mapping="linear")
    graph.set_initial_value(x, np.arange(N, dtype=np.float32))
    grow, back = Sequence(), Sequence()
    popops.add_in_place(graph, x, 1.0, grow, "grow")
    popops.sub_in_place(graph, x, 3.0, back, "back")
    graph.create_host_read("x", x)
    executable = poplar.compile_graph(graph, [grow, back])
    executable.save(tmp_path / "counter.pexe")
    for runs in ([0], [0, 0, 1]):
        engine = poplar.Engine(str(tmp_path / "counter.pexe"))
        for number in runs:
            engine.run(number)
        shift = sum(1.0 if k == 0 else -3.0 for k in runs)
        np.testing.assert_array_equal(engine.read_tensor("x"), np.arange(N) + shift)


def test_host_function_in_a_loop() -> None:
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    x = graph.add_variable(FLOAT, [4], "x", mapping="linear")
    y = graph.add_variable(FLOAT, [4], "y", mapping="linear")
    look = graph.add_host_function("look", [(FLOAT, 4)], [(FLOAT, 4)])
    body = Sequence([Call(look, [x], [y]), Copy(y, x)])
    graph.create_host_read("x", x)
    graph.set_initial_value(x, [1.0, 2.0, 3.0, 4.0])
    engine = poplar.Engine(graph, Repeat(3, body))

    def double(given: np.ndarray, result: np.ndarray) -> None:
        result[:] = 2 * given

    engine.connect_host_function("look", double)
    engine.run()
    np.testing.assert_array_equal(engine.read_tensor("x"), [8.0, 16.0, 24.0, 32.0])


RELAY = """
from poplar_py.codelets.language import *

@vertex
class Scale(Vertex):
    in_: Input[Vector[float]]
    out: Output[Vector[float]]
    factor: float

    def compute(self) -> bool:
        for i, v in enumerate(self.in_):
            self.out[i] = self.factor * v
        return True
"""


def test_stages_on_virtual_graphs_of_two_ipus() -> None:
    """Each half on its own IPU; the copy between them is global exchange."""
    target = poplar.Target.ipu("gc200", ipus=2, tiles_per_ipu=4)
    graph = poplar.Graph(target)
    graph.add_codelets(RELAY)
    first = graph.create_virtual_graph(0, target.get_tiles_per_ipu())
    second = graph.create_virtual_graph(target.get_tiles_per_ipu(), target.get_num_tiles())
    prog = Sequence()
    tensors = []
    for k, part in enumerate((first, second)):
        a = part.add_variable(FLOAT, [N], f"stage{k}/in")
        b = part.add_variable(FLOAT, [N], f"stage{k}/out")
        for t in (a, b):
            poputil.map_tensor_linearly(part, t, 12, 12)
        cs = part.add_compute_set(f"stage{k}")
        for tile in range(part.get_target().get_tiles_per_ipu()):
            piece = slice(tile * 12, (tile + 1) * 12)
            v = part.add_vertex(cs, "Scale", {"in": a[piece], "out": b[piece]})
            part.set_initial_value(v["factor"], 2.0 + k)
            part.set_tile_mapping(v, tile)
        if tensors:
            prog.add(Copy(tensors[-1][1], a))
        prog.add(Execute(cs))
        tensors.append((a, b))
    graph.create_host_write("in", tensors[0][0])
    graph.create_host_read("out", tensors[1][1])
    engine = poplar.Engine(graph, prog)
    engine.write_tensor("in", np.arange(N, dtype=np.float32))
    engine.run()
    np.testing.assert_array_equal(engine.read_tensor("out"), 6.0 * np.arange(N))
    text = io.StringIO()
    engine.print_profile_summary(text, {"showExecutionSteps": "true"})
    assert "Number of IPUs:                            2" in text.getvalue()
    assert "stage1" in text.getvalue()


def test_all_reduce_over_replicas_by_hand() -> None:
    """A ring of CrossReplicaCopy: after all but one step every replica holds the sum."""
    replicas = 4
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4), replicas)
    assert graph.get_replication_factor() == replicas
    own, moving, incoming = (
        graph.add_variable(FLOAT, [N], name, mapping="linear")
        for name in ("own", "moving", "incoming")
    )
    ring = {r: (r + 1) % replicas for r in range(replicas)}
    prog = Sequence([Copy(own, moving)])
    hop = Sequence([CrossReplicaCopy(moving, incoming, ring), Copy(incoming, moving)])
    popops.add_in_place(graph, own, moving, hop, "sum")
    prog.add(Repeat(replicas - 1, hop))
    prog.add(Sync(poplar.SyncType.GLOBAL))
    graph.create_host_write("own", own)
    graph.create_host_read("own", own)
    engine = poplar.Engine(graph, prog)
    data = np.random.default_rng(3).integers(-9, 9, (replicas, N)).astype(np.float32)
    engine.write_tensor("own", data)
    engine.run()
    got = engine.read_tensor("own")
    assert got.shape == (replicas, N)
    np.testing.assert_array_equal(got, np.tile(data.sum(0), (replicas, 1)))


def test_cycle_counts_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is timed on the device; the estimates given for its vertices count."""
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({"debug.instrument": "true"}))
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    graph.add_codelets(RELAY)
    x, y = (graph.add_variable(FLOAT, [N], name, mapping=2) for name in "xy")
    counts: list[Any] = []
    prog = Sequence()
    for cycles in (100, 700):
        cs = graph.add_compute_set(f"estimate {cycles}")
        v = graph.add_vertex(cs, "Scale", {"in": x, "out": y})
        graph.set_initial_value(v["factor"], 1.0)
        graph.set_perf_estimate(v, cycles)
        graph.set_tile_mapping(v, 2)
        part = Sequence([Execute(cs)])
        counts.append(
            poplar.cycle_count(graph, part, 0, poplar.SyncType.INTERNAL, f"timed {cycles}")
        )
        prog.add(part)
    for k, count in enumerate(counts):
        graph.create_host_read(f"count{k}", count)
    graph.set_initial_value(x, 1.0)
    engine = poplar.Engine(graph, prog, poplar.OptionFlags({"target.deterministicWorkers": "true"}))
    assert engine.get_engine_options().at("debug.instrument") == "true"
    engine.run()
    low, high = (int(engine.read_tensor(f"count{k}").view(np.uint64)[0]) for k in range(2))
    assert high - low == 600 * 6
    assert engine.get_time_stamp() > low + high


def test_reports_of_errors_name_the_porters_line() -> None:
    """The commonest slips of a port end at the user's line with Poplar's error."""
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    graph.add_codelets(RELAY)
    x = graph.add_variable(FLOAT, [N], "x")
    cs = graph.add_compute_set("slips")
    v = graph.add_vertex(cs, "Scale", {"in": x, "out": x})
    slips = {
        "UnknownField": lambda: graph.connect(v["inn"], x),
        "UnknownVertexType": lambda: graph.add_vertex(cs, "Scale<float>"),
        "InvalidTileMapping": lambda: graph.set_tile_mapping(v, 4),
        "TensorIndexError": lambda: x.slice(0, N + 1),
        "TensorTypeError": lambda: graph.connect(v["in"], x.reinterpret(UNSIGNED_INT)),
        "GraphConnectionError": lambda: graph.connect(v["in"], x.reshape([2, N // 2])),
    }
    for name, slip in slips.items():
        with pytest.raises(PoplarPyError) as caught:
            slip()
        assert type(caught.value).__name__ == name
        assert "test_host_and_devices.py" in str(caught.value)
    graph.set_tile_mapping(v, 1)
    with pytest.raises(PoplarPyError, match="'x'") as caught:
        poplar.Engine(graph, Execute(cs))
    assert type(caught.value).__name__ == "InvalidTileMapping"
