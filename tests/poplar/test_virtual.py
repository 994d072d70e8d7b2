"""Virtual graphs: local tile numbers, shared data."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Graph
from poplar_py.target import Target
from poplar_py.types import f32


def make() -> Graph:
    return Graph(Target.ipu("gc200", ipus=2, tiles_per_ipu=8))


def test_tiles_are_those_of_the_second_ipu() -> None:
    whole = make()
    part = whole.create_virtual_graph(8, 16)
    assert part.num_tiles == part.target.num_tiles == 8
    assert part.target.num_ipus == 1
    one = part.add_variable(f32, (4,), "one", 3)
    line = part.add_variable(f32, (64,), "line", "linear")
    assert set(whole.get_tile_mapping(one).tile.tolist()) == {11}
    assert set(whole.get_tile_mapping(line).tile.tolist()) <= set(range(8, 16))
    assert set(part.get_tile_mapping(one).tile.tolist()) == {3}
    assert len(whole.variables) == 2


def test_elements_outside_have_no_tile_here() -> None:
    whole = make()
    part = whole.create_virtual_graph([1, 9])
    assert part.target.num_ipus == 2
    away = whole.add_variable(f32, (4,), "away", 5)
    found = part.get_tile_mapping(away, require_complete=False)
    assert len(found.tile) == 0


def test_views_and_cells_are_shared() -> None:
    whole = make()
    part = whole.create_virtual_graph(0, 8)
    x = part.add_constant(f32, (2, 3), np.arange(6, dtype=np.float32), "x", 0)
    assert whole.variables[0].constant is not None
    assert x.reshape((6,)).numel == 6


@pytest.mark.parametrize("tiles", [(8, 20), (-1, 3), (4, 4)])
def test_tiles_must_exist(tiles: tuple[int, int]) -> None:
    with pytest.raises(PoplarPyError):
        make().create_virtual_graph(*tiles)


def test_tiles_must_differ() -> None:
    with pytest.raises(PoplarPyError):
        make().create_virtual_graph([1, 1])
