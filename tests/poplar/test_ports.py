"""Small programs in the forms that C++ programs use, line by line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poplar_py import poplar, popops, poputil
from poplar_py.poplar import program

SOURCE = """
@vertex
class Weighted(Vertex):
    rows: Vector[Input[Vector[f32]]]
    out: Output[Vector[f32]]
    factor: f32

    def compute(self) -> bool:
        for i in range(len(self.out)):
            self.out[i] = 0.0
            for r in range(len(self.rows)):
                self.out[i] = self.out[i] + self.factor * self.rows[r][i]
        return True
"""


def test_vector_fields_by_sub_index() -> None:
    device = poplar.IPUModel(tiles_per_ipu=4).create_device()
    graph = poplar.Graph(device)
    graph.add_codelets(SOURCE)
    x = graph.add_variable(poplar.FLOAT, [3, 8], "x")
    y = graph.add_variable(poplar.FLOAT, [8], "y")
    poputil.map_tensor_linearly(graph, x, 8, 4)
    poputil.map_tensor_linearly(graph, y)
    cs = graph.add_compute_set("weighted")
    v = graph.add_vertex(cs, "Weighted")
    graph.set_field_size(v["rows"], 3)
    for i in range(3):
        graph.connect(v["rows"][i], x[i])
    graph.connect(v["out"], y)
    graph.set_initial_value(v["factor"], 2.0)
    graph.set_tile_mapping(v, 3)
    graph.set_perf_estimate(v, 20)
    graph.create_host_write("x", x)
    graph.create_host_read("y", y)
    engine = poplar.Engine(graph, program.Sequence([program.Execute(cs)]))
    engine.load(device)
    values = np.arange(24, dtype=np.float32).reshape(3, 8)
    engine.write_tensor("x", values)
    engine.run(0)
    np.testing.assert_array_equal(engine.read_tensor("y"), 2 * values.sum(0))


def test_nested_programs_options_and_load_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    manager = poplar.DeviceManager.create_device_manager()
    device = manager.get_devices("IPU", 1)[0]
    assert device.attach()
    graph = poplar.Graph(device.create_virtual_device(4))
    x = graph.add_variable(poplar.INT, [4, 4], "x", mapping="linear")
    one = graph.add_constant(poplar.INT, [], 1, "one")
    graph.set_tile_mapping(one, 0)
    step = program.Sequence()
    popops.add_in_place(graph, x, one, step, "step")
    inner = program.Sequence([step, program.Repeat(2, program.Sequence([step, step]))])
    title = program.PrintTensor("corner", x.slice([0, 0], [1, 2]))
    options = poplar.OptionFlags({"debug.instrument": "true"})
    options.read_json(json.dumps({"target.deterministicWorkers": "true"}))
    graph.create_host_read("x", x)
    engine = poplar.Engine(graph, [program.Sequence([inner, title])], options)
    engine.load_and_run()
    np.testing.assert_array_equal(engine.read_tensor("x"), np.full(16, 5))
    engine.print_profile_summary()
    shown = capsys.readouterr()
    assert "corner" in shown.out + shown.err
    device.detach()
    assert not device.is_attached()


def test_two_engines_keep_their_own_buffers() -> None:
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    x = graph.add_variable(poplar.FLOAT, [6], "x", mapping="linear")
    rows = graph.add_remote_buffer("rows", poplar.FLOAT, 6, 2)
    at = graph.add_constant(poplar.UNSIGNED_INT, [1], 1, "at", 0)
    to_host = graph.add_device_to_host_fifo("out", poplar.FLOAT, 6)
    body = program.Sequence([program.Copy(rows, x, at)])
    popops.mul_in_place(graph, x, x, body)
    body.add(program.Copy(x, to_host))
    engines = [poplar.Engine(graph, body) for _ in range(2)]
    taken = [np.zeros(6, np.float32) for _ in range(2)]
    for k, (engine, out) in enumerate(zip(engines, taken, strict=True)):
        engine.copy_to_remote_buffer(np.full(6, k + 2, np.float32), "rows", 1)
        engine.connect_stream("out", out)
    for engine in engines:
        engine.run()
    assert [float(out[0]) for out in taken] == [4.0, 9.0]
    row = np.zeros(6, np.float32)
    engines[0].copy_from_remote_buffer("rows", row, 1)
    assert row.tolist() == [2.0] * 6
