"""The two regions of tile memory: code in the first only, data in both."""

from __future__ import annotations

import pytest

from poplar_py.diagnostics import OutOfTileMemory
from poplar_py.executable.build import build_executable
from poplar_py.passes.memory_fit import region_use
from poplar_py.passes.plan_memory import MemoryPlan
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import Execute, Sequence
from poplar_py.poputil.place import spread_tiles
from poplar_py.target.target import Target
from poplar_py.types import f32

KIB = 1024
LONG = """
@vertex
class Long{k}(Vertex):
    x: InOut[Vector[f32]]

    def compute(self) -> None:
        for i in unroll({n}):
            self.x[{k} + i] = self.x[{k} + i] * 3.0
"""


def long_code(kinds: int, statements: int, tiles: tuple[int, ...]) -> tuple[Graph, Sequence]:
    """A graph with ``kinds`` codelets of straight code, in turn on the given tiles."""
    graph, prog = Graph(Target.ipu("gc200", 1, 8)), Sequence()
    for k in range(kinds):
        graph.add_codelets(LONG.format(k=k, n=statements))
        tile = tiles[k % len(tiles)]
        x = graph.add_variable(f32, (statements + k,), f"x{k}", mapping=tile)
        cs = graph.add_compute_set(f"step {k}")
        vertex = graph.add_vertex(cs, f"Long{k}", {"x": x})
        graph.set_tile_mapping(vertex, tile)
        prog.add(Execute(cs))
    return graph, prog


def test_code_must_fit_the_executable_region() -> None:
    graph, prog = long_code(3, 7000, (5,))
    with pytest.raises(OutOfTileMemory) as found:
        build_executable(graph, [prog])
    plan = getattr(found.value, "plan")  # noqa: B009
    assert isinstance(plan, MemoryPlan)
    text = str(found.value)
    assert plan.code[5] > 208 * KIB
    assert plan.total[5] < 624 * KIB, "memory as a whole is enough"
    assert "tile 5" in text
    assert "executable region of 212,992 bytes" in text
    assert "Long2" in text, "the largest codelets are named"
    assert "kinds of vertices" in text


def test_the_same_code_on_three_tiles() -> None:
    graph, prog = long_code(3, 7000, (5, 6, 7))
    exe = build_executable(graph, [prog])
    assert 0 < exe.memory.code.max() < 208 * KIB


def test_data_lies_in_both_regions() -> None:
    graph, prog = long_code(1, 100, (2,))
    big = graph.add_variable(f32, (140_000,), "big", mapping=2)
    graph.create_host_write("big", big)
    graph.create_host_read("big", big)
    exe = build_executable(graph, [prog])
    executable, interleaved = region_use(exe.memory, graph.target)
    assert exe.memory.total[2] > 560_000 > 416 * KIB, "more than either region alone"
    assert executable[2] == 208 * KIB
    assert interleaved[2] == exe.memory.total[2] - 208 * KIB
    assert (executable + interleaved == exe.memory.total).all()
    assert (executable[:2] == exe.memory.total[:2]).all()


def test_small_steps_begin_on_other_tiles() -> None:
    first: list[list[int]] = []
    for _ in range(2):
        graph = Graph(Target.ipu("gc200", 2, 64))
        first.append([])
        for k in range(12):
            graph.add_compute_set(f"step {k}")
            tiles = spread_tiles(graph, 8)
            assert (tiles[1:] == tiles[:-1] + 1).all()
            assert tiles[-1] < 64, "one IPU holds a small step"
            first[-1].append(int(tiles[0]))
    assert first[0] == first[1], "the same graph has the same tiles"
    assert len(set(first[0])) > 8
    assert spread_tiles(graph, 300).max() == 127
