"""TensorUseTracker: every element on a tile that uses it."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Graph, Target, Tensor
from poplar_py.poputil import TensorUseTracker
from poplar_py.types import f16, f32


def tiles_of(graph: Graph, tensor: Tensor) -> np.ndarray:
    """Tile of every element in row-major order, -1 where there is none."""
    out = np.full(tensor.numel, -1)
    for tile, regions in enumerate(graph.get_tile_mapping(tensor, require_complete=False)):
        for region in regions:
            out[region.begin : region.end] = tile
    return out


@pytest.mark.parametrize("seed", range(6))
def test_elements_lie_with_a_user(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=8))
    x = graph.add_variable(f32 if seed % 2 else f16, (12, 17), "x")
    users = np.zeros((8, 12 * 17), np.bool_)
    numbers = np.arange(12 * 17).reshape(12, 17)
    first, second = TensorUseTracker(8), TensorUseTracker(8)
    for i in range(10):
        (a, b), (c, d) = (sorted(rng.integers(0, n + 1, 2).tolist()) for n in (12, 17))
        tile = int(rng.integers(8))
        box = x.slice(a, b, 0).slice(c, d, 1)
        (first if i % 2 else second).add(tile, box.transpose() if i % 3 else box)
        users[tile, numbers[a:b, c:d].ravel()] = True
    first.merge(second)
    first.map_tensors_by_use(graph)
    tile = tiles_of(graph, x)
    used = users.any(0)
    assert np.array_equal(tile >= 0, used)
    assert users[tile[used], np.flatnonzero(used)].all()


def test_shared_elements_are_split_in_grains() -> None:
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=8))
    x = graph.add_variable(f32, (64,), "x")
    tracker = TensorUseTracker(8)
    assert tracker.empty
    for tile in (1, 3, 5, 7):
        tracker.add(tile, x.slice(0, 40, 0))
    tracker.map_tensors_by_use(graph, grain_size=8, min_elements_per_tile=10)
    tile = tiles_of(graph, x)
    assert [len(set(tile[i : i + 8].tolist())) for i in range(0, 40, 8)] == [1] * 5
    assert np.bincount(tile[:40]).max() == 16
    assert (tile[40:] == -1).all()
    tracker.map_tensors_by_use(graph, extend_partial_usage=True)
    assert np.array_equal(np.bincount(tiles_of(graph, x), minlength=8)[[1, 3, 5, 7]] >= 10, [1] * 4)


def test_in_a_virtual_graph() -> None:
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=8))
    part = graph.create_virtual_graph(4, 8)
    x = part.add_variable(f32, (8,), "x")
    tracker = TensorUseTracker(4)
    tracker.add(2, x)
    tracker.map_tensors_by_use(part)
    assert (tiles_of(graph, x) == 6).all()


def test_bad_arguments() -> None:
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=8))
    tracker = TensorUseTracker(8)
    with pytest.raises(OptionError, match="tile 8 of 8"):
        tracker.add(8, graph.add_variable(f32, (8,), "x"))
    with pytest.raises(OptionError, match="1 or more"):
        tracker.map_tensors_by_use(graph, grain_size=0)
