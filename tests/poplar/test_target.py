"""Machines, links and the cycle model against published figures and simple references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poplar_py.diagnostics import PoplarPyError
from poplar_py.target import CHIPS, SYSTEMS, CycleModel, Target, load_system, tile_cycles
from poplar_py.target.topology import link_graph, routes


def test_every_figure_has_a_source() -> None:
    for chip in CHIPS.values():
        assert chip.figures()
        assert all(f.source for f in chip.figures().values())
    for system in SYSTEMS.values():
        assert all(f.source for f in system.figures().values())


def test_published_sizes() -> None:
    assert [Target.of(s).num_tiles for s in ("ipu", "m2000", "pod16")] == [1472, 5888, 23552]
    assert Target.ipu("gc2").num_tiles == 1216
    t = Target.ipu("gc200")
    assert t.get_bytes_per_tile() == 638_976
    assert t.num_tiles * 64 * 2 * t.clock == pytest.approx(249.7e12, rel=1e-3)
    assert t.num_tiles * 4 * t.clock == pytest.approx(7.8e12, rel=1e-2)


def test_errors_name_the_nearest() -> None:
    with pytest.raises(PoplarPyError, match="gc200"):
        Target.ipu("gc20")
    with pytest.raises(PoplarPyError, match="m2000"):
        Target.of("m200")
    with pytest.raises(PoplarPyError):
        Target.ipu("gc200", ipus=0)


def test_links_of_systems() -> None:
    m2000 = routes(SYSTEMS["m2000"], 4)
    assert m2000.hops.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]
    assert routes(SYSTEMS["pod64"], 64).hops.max() == 17
    assert len(link_graph(SYSTEMS["pod64"], 64).edges) == 32 + 64
    assert routes(SYSTEMS["pod64"], 128).hops.max() < 40


def test_link_rates_match_measurements() -> None:
    model = CycleModel(Target.of("m2000"))
    traffic = np.zeros((4, 4))
    traffic[0, 1] = 55e9 / 100  # citadel: 55 GB/s between the IPUs of a pair
    assert model.link_cycles(traffic) / model.target.clock == pytest.approx(0.01, rel=0.02)
    traffic[:] = 0
    traffic[0, 2] = 26.5e9 / 100  # command line tools: 26.5 GB/s a direction
    assert model.link_cycles(traffic) / model.target.clock == pytest.approx(0.01, rel=0.03)


def test_exchange_costs() -> None:
    model = CycleModel(Target.ipu("gc200", 1, 8))
    zero = np.zeros(8, np.int64)
    into, out = zero.copy(), zero.copy()
    into[3], out[0] = 572, 196
    cost = model.exchange(into, out)
    assert (cost.data, cost.fragments, cost.links, cost.sync) == (143, 0, 0, 118)
    assert model.exchange(into, out, fragments=np.full(8, 5)).fragments == 5
    assert model.exchange(into, out, shared_in=into).data == 72
    assert model.exchange(into + 3, out).total == 144 + 118


def test_host_rate_of_the_tutorial() -> None:
    model = CycleModel(Target.ipu("gc200"))
    assert model.host_cycles(40e6) / model.target.clock == pytest.approx(0.005, rel=0.01)
    assert model.remote_cycles(0) == 0
    assert model.remote_cycles(20e6) > 1e-3 * model.target.clock


def lanes_reference(tile: np.ndarray, cycles: np.ndarray, tiles: int) -> list[int]:
    lanes = [[0] * 6 for _ in range(tiles)]
    for t, c in zip(tile.tolist(), cycles.tolist(), strict=True):
        k = lanes[t].index(min(lanes[t]))
        lanes[t][k] += c
    return [6 * max(x) for x in lanes]


@pytest.mark.parametrize("seed", range(20))
def test_lanes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, tiles = int(rng.integers(0, 200)), int(rng.integers(1, 12))
    tile = rng.integers(0, tiles, n)
    cycles = rng.integers(0, int(rng.choice([2, 50])), n)
    assert tile_cycles(tile, cycles, tiles).tolist() == lanes_reference(tile, cycles, tiles)
    multi = rng.random(n) < 0.3
    want = np.array(lanes_reference(tile[~multi], cycles[~multi], tiles))
    want += np.bincount(tile[multi], cycles[multi], tiles).astype(int)
    assert tile_cycles(tile, cycles, tiles, multi=multi).tolist() == want.tolist()


def test_machine_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(
        'base = "m2000"\nnum_ipus = 3\ntopology = "custom"\nlinks = [[0, 1, 4], [1, 2, 2]]\n'
        'host_rate_in = { value = 12e9, source = "measured" }\n[chip]\ntiles = 1000\n'
    )
    system = load_system(path)
    assert (system.name, system.chip.tiles.value) == ("lab", 1000)
    assert system.host_rate_in.source == "measured"
    assert Target.of(str(path)).num_tiles == 3000
    assert routes(system, 3).hops[0, 2] == 2
    for bad, what in (
        ("num_ipu = 4", "num_ipus"),
        ("base = 3", "unknown system"),
        ("x = ", "TOML"),
        ("[chip]\nclock = -1", "clock"),
        ('topology = "ring"', "topology"),
        ("links = [[1, 2]]", "link"),
        ("num_ipus = 0", "at least"),
    ):
        path.write_text(bad)
        with pytest.raises(PoplarPyError, match=what):
            load_system(path)
    with pytest.raises(PoplarPyError, match="cannot read"):
        load_system(tmp_path / "none.toml")
