"""Plans within a share of tile memory: serial steps, and what steps really receive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import poplar_py as pp
from poplar_py import poplin
from poplar_py.diagnostics import OptionError
from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.passes.plan_exchange import group_fields, plan_compute_set
from poplar_py.passes.tile_module import find_places
from poplar_py.poplar import Graph, Tensor, program
from poplar_py.poplar.views import Affine
from poplar_py.poplin.lanes import blocked_copy
from poplar_py.poplin.place import TileRange, available, reserve
from poplar_py.poplin.plan import piece_widths, plans
from poplar_py.types import f32
from tests.poplin.cases import reference_conv, sample, target
from tests.poplin.flat import Flat

TILES = 16


def product(share: float) -> tuple[Graph, program.Sequence, np.ndarray, np.ndarray, Flat]:
    """A 3 x 3 convolution on 16 tiles whose step may take `share` of a tile."""
    rng = np.random.default_rng(3)
    graph, prog = Graph(target(TILES)), program.Sequence()
    x = sample(rng, f32, (1, 96, 28, 28))
    w = sample(rng, f32, (192, 96, 3, 3))
    params = poplin.ConvForm.of(2, pads=(1,) * 4)
    tensor = graph.add_variable(f32, x.shape, "x", mapping="linear")
    source = blocked_copy(graph, tensor, prog, "in", TileRange(0, TILES), piece_widths(28))
    out = poplin.convolution(
        graph, source, w, None, params, prog, "product", available_memory_proportion=share
    )
    flat = Flat(graph)
    flat.write(tensor, x)
    flat.run(prog)
    return graph, prog, flat.read(out), reference_conv(x, w, None, params), flat


@pytest.mark.parametrize("share", [0.6, 0.15, 0.1])
def test_less_memory_more_steps(share: float) -> None:
    graph, _, got, wanted, _ = product(share)
    plan = plans(graph)["product"]
    assert (plan.serial > 1) == (share < 0.6)
    assert plan.nbytes <= share * graph.target.bytes_per_tile
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
    steps = [cs for cs in graph.compute_sets if cs.name.startswith("product")]
    adding = plan.serial if not plan.by_inputs else 1
    assert len(steps) == plan.serial + (adding if plan.splits > 1 else 0)
    if plan.serial > 1:
        assert f"in {plan.serial} serial steps" in plan.report()
    places = find_places(graph.variables, graph.atlas(), TILES)
    for cs in steps:
        received = plan_compute_set(places, group_fields(cs), TILES).block.max()
        assert received <= plan.nbytes


def test_partial_sums_go_with_their_step() -> None:
    """What the tiles hold is what the plan counts: a step, and what is there before and after."""
    graph, prog, got, _, _ = product(0.1)
    plan = plans(graph)["product"]
    assert plan.serial > 1
    assert plan.splits > 1
    graph.create_host_read("out", _result(graph))
    memory = build_executable(graph, [prog], BuildOptions(names=["main"])).memory
    there = 2 * 4 * 96 * 28 * 28 + 2 * got.nbytes  # inputs and results, each not quite even
    weights = next(v for v in graph.variables if v.name == "product/weights").mapping
    held = 4 * np.bincount(weights.tile, np.diff(weights.bounds), TILES).max()
    assert memory.data.max() <= held + plan.nbytes + there // TILES
    sums = sum(4 * v.size for v in graph.variables if v.name.startswith("product/partials"))
    assert plan.nbytes * TILES < 2 * sums


def _result(graph: Graph) -> Tensor:
    variable = next(v for v in graph.variables if v.name == "product")
    return Tensor(graph, Affine.dense(variable.base, variable.shape), variable.dtype)


def test_without_room_the_bound_gives_way() -> None:
    graph, _, got, wanted, _ = product(1e-4)
    assert plans(graph)["product"].nbytes > 1e-4 * graph.target.bytes_per_tile
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_matrices_in_serial_steps() -> None:
    rng = np.random.default_rng(4)
    graph, prog = Graph(target(TILES)), program.Sequence()
    a, b = sample(rng, f32, (256, 512)), sample(rng, f32, (512, 512))
    x = graph.add_variable(f32, a.shape, "x", mapping="linear")
    out = poplin.mat_mul(graph, x, b, prog, "product", available_memory_proportion=0.1)
    assert plans(graph)["product"].serial > 1
    flat = Flat(graph)
    flat.write(x, a)
    flat.run(prog)
    assert np.abs(flat.read(out) - a @ b).max() <= 1e-5 * np.abs(a @ b).max()
    with pytest.raises(OptionError, match="between 0 and 1"):
        poplin.mat_mul(graph, x, b, prog, available_memory_proportion=1.5)


def test_weights_of_the_graph_leave_less() -> None:
    graph = Graph(target(TILES))
    assert available(graph) == 0.6
    reserve(graph, TILES * graph.target.bytes_per_tile // 2)
    assert available(graph) == pytest.approx(0.3)


def test_large_weights_lie_evenly() -> None:
    """A dense layer whose weights fill a third of the machine: no tile holds a tenth more."""
    graph, prog = Graph(target(TILES)), program.Sequence()
    x = graph.add_variable(f32, (1, 6272), "x", mapping="linear")
    w = np.zeros((6272, 144), np.float32)
    poplin.mat_mul(graph, x, w, prog, "dense")
    held = next(v for v in graph.variables if v.name == "dense/weights").mapping
    per_tile = np.bincount(held.tile, np.diff(held.bounds), TILES)
    assert per_tile.max() <= 1.1 * per_tile.mean()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg19", "densenet121"])
def test_large_models_fit_one_ipu(name: str) -> None:
    path = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    executable = pp.compile(pp.load(str(path)), system="ipu")
    assert executable.ipus == 1
    assert max(step.tiles for step in executable.tile.steps) <= 1472
