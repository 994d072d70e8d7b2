"""poputil: mappings, broadcasts, copies."""

from __future__ import annotations

import numpy as np
import pytest
from popops_harness import Program, compare, normal

from poplar_py import poputil
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Graph, Target, program
from poplar_py.types import f16, f32


@pytest.mark.parametrize("size", [1, 31, 1000, 4097])
@pytest.mark.parametrize("ascending", [True, False])
def test_linear_mappings_are_even(size: int, ascending: bool) -> None:
    graph = Graph(Target.ipu("gc200", ipus=1, tiles_per_ipu=16))
    t = graph.add_variable(f32, (size,), "t")
    poputil.map_tensor_linearly_with_offset(graph, t, 3, 8, 4, ascending=ascending)
    found = graph.get_tile_mapping(t)
    assert poputil.get_tile_imbalance(found, 8, 4) == 0
    assert found.tile[0] == (3 if ascending else 12)
    assert (found.begin % 4 == 0).all()


def test_default_linear_mapping_keeps_128_bytes_a_tile() -> None:
    graph = Graph(Target.ipu("gc200", ipus=1, tiles_per_ipu=64))
    for dtype, least in ((f32, 32), (f16, 64)):
        t = graph.add_variable(dtype, (320,), "t")
        poputil.map_tensor_linearly(graph, t)
        assert graph.get_tile_mapping(t).elements_per_tile().max() == least


def test_workers_share_regions() -> None:
    graph = Graph(Target.ipu("gc200", ipus=1, tiles_per_ipu=2))
    shares = poputil.split_regions_between_workers(graph, [(0, 50), (100, 153)], 4)
    assert len(shares) <= 6
    covered = [i for share in shares for part in share for i in range(part.begin, part.end)]
    assert covered == [*range(50), *range(100, 153)]
    sizes = [sum(part.size for part in share) for share in shares]
    assert all(n % 4 == 0 for n in sizes[:-1])


def test_broadcasting_helpers() -> None:
    p = Program()
    a, b = p.input(normal(4, 1)), p.input(normal(3))
    one, two = poputil.expand_to_match_ranks(a, b)
    assert (one.shape, two.shape) == ((4, 1), (1, 3))
    assert [t.shape for t in poputil.broadcast_to_match(a, b)] == [(4, 3), (4, 3)]
    with pytest.raises(PoplarPyError):
        poputil.broadcast_to_match(a, p.input(normal(5, 2)))


def test_broadcast_operand_lies_where_it_is_used() -> None:
    graph = Graph(Target.ipu("gc200", ipus=1, tiles_per_ipu=8))
    full = graph.add_variable(f32, (4, 6), "full")
    for row in range(4):
        graph.set_tile_mapping(full.index(row), row + 2)
    bias = poputil.create_broadcast_operand(graph, full, f32, 0)
    assert graph.get_tile_mapping(bias).tile.tolist() == [2, 3, 4, 5]


def test_duplicate_and_copy_to_ipu() -> None:
    p = Program()
    array = normal(5, 40)
    x = p.input(np.ascontiguousarray(array.T)).transpose()
    out = poputil.duplicate(p.graph, x, p.prog)
    assert out.runs()[0].size == x.runs()[0].size
    compare(p.run(out)[0], array, 0.0)
    graph, prog = Graph(Target.ipu("gc200", ipus=2, tiles_per_ipu=8)), program.Sequence()
    t = graph.add_variable(f32, (64,), "t", mapping=3)
    there = poputil.copy_to_ipu(graph, t, prog, 1)
    assert graph.get_tile_mapping(there).tile.tolist() == [11]
