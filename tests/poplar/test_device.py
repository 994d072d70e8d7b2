"""Devices, IPUModel, options and estimates."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import (
    FLOAT,
    Device,
    DeviceManager,
    Edges,
    Graph,
    IPUModel,
    OptionFlags,
    Target,
    VertexPerfEstimate,
    cycle_count,
    cycle_stamp,
    program,
)
from poplar_py.poplar.options import ENGINE_OPTIONS, engine_options, flag, runtime_options
from poplar_py.poplar.tile_parse import parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module

SOURCE = """
@vertex
class Dot(Vertex):
    a: Input[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    out: Output[f32]
    scale: f32
    def compute(self) -> bool:
        self.out = self.a[0] * self.scale
        return True
"""


def test_device_manager() -> None:
    manager = DeviceManager("m2000")
    assert manager.get_num_devices() == 4 + 2 + 1
    assert [d.get_target().num_ipus for d in manager.get_devices(num_ipus=2)] == [2, 2]
    device = manager.acquire_available_device(4)
    assert device.attach()
    assert device.is_attached()
    device.detach()
    assert device.get_target().num_tiles == 4 * 1472
    assert device.create_virtual_device(10).target.num_tiles == 40
    assert manager.get_devices("CPU")[0].target.num_tiles == 1
    assert Graph(device).num_tiles == 4 * 1472
    for call in (lambda: manager.get_device(7), lambda: manager.acquire_available_device(3)):
        with pytest.raises(PoplarPyError):
            call()
    assert Device.create_cpu_device().target.num_workers == 1


def test_ipu_model() -> None:
    model = IPUModel(num_ipus=2, tiles_per_ipu=4, relative_sync_delay="NO_DELAY")
    model.memory_bytes_per_tile = 1 << 20
    target = model.create_device().get_target()
    assert (target.num_tiles, target.bytes_per_tile) == (8, 1 << 20)
    assert target.get_min_ipu_sync_delay() == 0
    assert target.get_target_type() == "IPU_MODEL"
    text = print_tile_module(Graph(target), [])
    assert parse_tile_module(text).graph.target == target
    assert IPUModel("ipu1").create_device().target.num_tiles == 1216
    for bad in (
        IPUModel("ipu9"),
        IPUModel(relative_sync_delay="SOON"),
        IPUModel(num_worker_contexts=0),
        IPUModel(num_ipus=0),
    ):
        with pytest.raises(PoplarPyError):
            bad.create_device()


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = OptionFlags({"debug.instrument": True}).set("autoReport.directory", "out")
    assert dict(flags) == {"debug.instrument": "true", "autoReport.directory": "out"}
    assert flags.at("debug.instrument") == "true"
    assert flags.find("x") is None
    full = engine_options(flags)
    assert flag(full, "debug.instrument")
    assert set(full) == set(ENGINE_OPTIONS)
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.instrument": "false"}')
    assert not flag(engine_options(flags), "debug.instrument")
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "{")
    with pytest.raises(PoplarPyError, match="POPLAR_ENGINE_OPTIONS"):
        engine_options()
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "")
    with pytest.raises(PoplarPyError, match=r"did you mean 'debug\.instrument'") as info:
        engine_options({"debug.instrumnt": "true"})
    assert info.value.loc.file == __file__
    with pytest.raises(PoplarPyError, match="hostSyncTimeout"):
        runtime_options({"target.hostSyncTimeot": "3"})
    with pytest.raises(PoplarPyError, match="true or false"):
        flag({"a": "yes"}, "a")
    with pytest.raises(PoplarPyError, match="not set"):
        flags.at("x")


def test_estimators_are_asked_once_per_shape() -> None:
    g = Graph(Target.ipu("gc200", 1, 8))
    g.add_codelets(SOURCE)
    x = g.add_variable(FLOAT, (100,), "x", 0)
    o = g.add_variable(FLOAT, (100,), "o", 0)
    cs = g.add_compute_set()
    n = 30
    at = np.arange(n)
    vptr = np.concatenate([[0], np.cumsum(at % 3)])
    k = int(vptr[-1])
    group = g.add_vertices(
        cs,
        "Dot",
        at % 8,
        {
            "a": Edges.flat(x, at, at + 1 + at % 2),
            "rows": Edges.nested(vptr, Edges.flat(x, np.zeros(k, int), np.arange(k) % 4)),
            "out": Edges.elements(o, at),
        },
        {"scale": (at % 2).astype(np.float32)},
    )
    assert g.given_cycles(group) is None
    asked: list[int] = []

    def estimate(v, target):  # type: ignore[no-untyped-def]
        asked.append(1)
        rows = v.get_field_info("rows")
        total = sum(rows.get_size_at_index(i) for i in range(rows.size()))
        assert total == sum(rows.size(i) for i in range(rows.size()))
        scale = int(v.get_field_info("scale").get_initial_value())
        return VertexPerfEstimate(10 * v.get_field_info("a").size() + total + 1000 * scale)

    g.register_perf_estimator("Dot", estimate)
    got = g.given_cycles(group)
    lengths = np.arange(k) % 4
    rows = [int(lengths[vptr[v] : vptr[v + 1]].sum()) for v in range(n)]
    want = 10 * (1 + at % 2) + np.array(rows) + 1000 * (at % 2)
    assert got is not None
    assert got.tolist() == want.tolist()
    assert len(asked) < n
    g.set_perf_estimate(group, np.where(at == 3, 7, -1))
    got = g.given_cycles(group)
    assert got is not None
    assert got[3] == 7
    assert got[4] == want[4]


def test_virtual_graph_of_the_first_tiles_of_every_ipu() -> None:
    g = Graph(Target.of("m2000", 2, 8))
    part = g.create_virtual_graph(3)
    x = part.add_variable(FLOAT, (6,), "x")
    for i in range(6):
        part.set_tile_mapping(x[i], i)
    assert g.get_tile_mapping(x).tile.tolist() == [0, 1, 2, 8, 9, 10]
    assert part.get_top_level_graph() is g
    with pytest.raises(PoplarPyError):
        g.create_virtual_graph(9)


def test_clones_and_constants_of_edges() -> None:
    g = Graph(Target.ipu("gc200", 1, 8))
    g.add_codelets(SOURCE)
    x = g.add_variable(FLOAT, (4, 6), "x", "linear")
    many = g.clone_n(x.transpose(), 3)
    assert many.shape == (3, 6, 4)
    assert len(g.variables) == 4
    cs = g.add_compute_set()
    v = g.add_vertex(cs, "Dot", {"rows": list(x), "out": x[0][0]})
    g.connect(v["a"], [1.5, 2.5])
    g.set_tile_mapping(v, 5)
    constant = g.variables[-1]
    assert constant.mapping.tile.tolist() == [5]
    assert constant.constant is not None
    assert constant.constant.tolist() == [1.5, 2.5]


def test_cycle_counters() -> None:
    g = Graph(Target.ipu("gc200", 1, 8))
    prog = program.Sequence(program.Sync())
    count = cycle_count(g, prog, 3)
    stamp = cycle_stamp(g, prog, 2)
    assert [type(s).__name__ for s in prog.steps] == ["CycleCount", "CycleCount"]
    assert count.shape == stamp.shape == (2,)
