"""A plan's cycles are those that a run of the compiled product is charged with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poplar_py import poplin
from poplar_py.executable.cycles import compute_step, vertex_cycles
from poplar_py.passes.plan_exchange import group_fields, plan_compute_set
from poplar_py.passes.tile_module import find_places
from poplar_py.poplar import Graph, Tensor, program
from poplar_py.poplin.lanes import blocked_copy
from poplar_py.poplin.place import TileRange
from poplar_py.poplin.plan import Plan, piece_widths, plans
from poplar_py.types import DType, f16, f32
from tests.poplin.cases import target

CASES = 90
TILES = (64, 368, 1472)


def charged(graph: Graph, name: str) -> int:
    """Compute, exchange and sync of the compute sets of product `name`, as a profile shows them."""
    places = find_places(graph.variables, graph.atlas(), graph.target.num_tiles)
    total = 0
    for cs in graph.compute_sets:
        if cs.name != name and not cs.name.startswith((f"{name}/step", f"{name}/reduce")):
            continue
        plan = plan_compute_set(places, group_fields(cs), graph.target.tiles_per_ipu)
        costs = [vertex_cycles(g) for g in cs.groups]
        step = compute_step(graph.target, cs, places, plan, costs)
        total += step.compute + step.exchange + step.sync
    return total


def blocked_input(graph: Graph, dtype: DType, shape: tuple[int, ...], tiles: int) -> Tensor:
    x = graph.add_variable(dtype, shape, "x", mapping="linear")
    pieces = piece_widths(shape[-1])
    return blocked_copy(graph, x, program.Sequence(), "in", TileRange(0, tiles), pieces)


def conv_case(rng: np.random.Generator) -> tuple[Plan, int]:
    tiles, dtype = int(rng.choice(TILES)), (f32, f16)[int(rng.integers(2))]
    graph = Graph(target(tiles))
    kernel, stride = int(rng.choice([1, 1, 3, 3, 5])), int(rng.choice([1, 1, 2]))
    chans, outs = (16 * int(v) for v in rng.integers(1, 17, 2))
    size = int(rng.choice([7, 14, 20, 28, 56]))
    x = blocked_input(graph, dtype, (int(rng.integers(1, 3)), chans, size, size), tiles)
    w = np.ones((outs, chans, kernel, kernel), dtype.numpy)
    params = poplin.ConvForm.of(2, strides=(stride,) * 2, pads=(kernel // 2,) * 4)
    bias = np.ones(outs, dtype.numpy) if rng.integers(2) else None
    poplin.convolution(graph, x, w, bias, params, program.Sequence(), "product")
    return plans(graph)["product"], charged(graph, "product")


def mat_mul_case(rng: np.random.Generator) -> tuple[Plan, int]:
    tiles, dtype = int(rng.choice(TILES)), (f32, f16)[int(rng.integers(2))]
    graph = Graph(target(tiles))
    rows, k, n = (16 * int(v) for v in rng.integers(1, 24, 3))
    batch = int(rng.integers(1, 5))
    shape = (batch, rows, k)
    x = blocked_input(graph, dtype, (batch, k, rows), tiles).dim_shuffle((0, 2, 1))
    b = (
        np.ones((k, n), dtype.numpy)
        if rng.integers(2)
        else blocked_input(graph, dtype, (batch, n, k), tiles).dim_shuffle((0, 2, 1))
    )
    assert x.shape == shape
    poplin.mat_mul(graph, x, b, program.Sequence(), "product")
    return plans(graph)["product"], charged(graph, "product")


def lane_case(rng: np.random.Generator) -> tuple[Plan, int]:
    """Depthwise, few channels, lanes that are images."""
    tiles, kernel = int(rng.choice(TILES)), int(rng.choice([3, 5, 7]))
    graph = Graph(target(tiles))
    size, way = int(rng.choice([14, 28, 56])), int(rng.integers(3))
    chans = 16 * int(rng.integers(1, 9)) if way == 0 else int(rng.integers(1, 5))
    outs = (chans, 16 * int(rng.integers(1, 5)), 8)[way]
    shape = (32 if way == 2 else 1, chans, size, size)
    x = graph.add_variable(f32, shape, "x", mapping="linear")
    x = x if way else blocked_input(graph, f32, shape, tiles)
    w = np.ones((outs, chans if way else 1, kernel, kernel), np.float32)
    params = poplin.ConvForm.of(2, pads=(kernel // 2,) * 4, groups=1 if way else chans)
    poplin.convolution(graph, x, w, None, params, program.Sequence(), "product")
    return plans(graph)["product"], charged(graph, "product")


@pytest.mark.parametrize("make", [conv_case, mat_mul_case, lane_case])
def test_predicted_is_charged(make: Callable[[np.random.Generator], tuple[Plan, int]]) -> None:
    """Over random products: half of them within 2 %, nine of ten within 8 %, all within 30 %."""
    rng = np.random.default_rng(11)
    pairs = [make(rng) for _ in range(CASES // 3)]
    far = np.array([abs(plan.cycles / cycles - 1) for plan, cycles in pairs], np.float64)
    assert np.median(far) <= 0.02
    assert np.quantile(far, 0.9) <= 0.08
    assert far.max() <= 0.3
