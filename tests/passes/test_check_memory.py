"""Programs far too large are refused before their exchange is planned; what fits never is."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

import poplar_py as pp
from poplar_py.diagnostics import OutOfTileMemory
from poplar_py.driver.options import CompileOptions
from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.frontends.build import Sizes, compile_model
from poplar_py.frontends.pml import parse_pml
from poplar_py.passes import PassManager
from poplar_py.passes.least_memory import check_sizes
from poplar_py.passes.pipeline import parse_pipeline
from poplar_py.passes.tile_module import TileModule
from poplar_py.poplar import Graph
from poplar_py.poplar.program import Copy, Sequence
from poplar_py.target import Target
from poplar_py.types import f32

ROOM = 624 * 1024


def chain(sizes: list[int], alive: bool) -> tuple[Graph, Sequence]:
    """Variables of some bytes on tile 2, each copied to the next; `alive`: the first is read again
    at the end."""
    graph, prog = Graph(Target.ipu("gc200", 1, 4)), Sequence()
    held = [graph.add_variable(f32, (n // 4,), f"v{k}", 2) for k, n in enumerate(sizes)]
    prog.add(Copy(graph.add_host_to_device_fifo("in", f32, held[0].numel), held[0]))
    for a, b in pairwise(held):
        n = min(a.numel, b.numel)
        prog.add(Copy(a[:n], b[:n]))
    if alive:
        prog.add(Copy(held[0][:8], held[-1][:8]))
    prog.add(Copy(held[-1], graph.add_device_to_host_fifo("out", f32, held[-1].numel)))
    return graph, prog


def test_what_is_alive_together_must_fit() -> None:
    with pytest.raises(OutOfTileMemory, match="variables alone that are alive") as found:
        build_executable(*_built([ROOM // 2, ROOM // 3, ROOM // 4], alive=True))
    text = str(found.value)
    assert "tile 2 (IPU 0)" in text
    assert text.index("v0 319,488 B") < text.index("v1 212,992 B") < text.index("v2 159,744 B")
    assert "test_check_memory.py" in text


def test_what_follows_one_another_fits() -> None:
    """All three together are larger than the tile, any two are not."""
    graph, (prog,) = _built([ROOM // 2, ROOM // 3, ROOM // 4], alive=False)
    exe = build_executable(graph, [prog])
    assert exe.memory.total.max() <= ROOM


def test_out_of_memory_may_be_allowed() -> None:
    graph, (prog,) = _built([ROOM, ROOM], alive=True)
    exe = build_executable(graph, [prog], BuildOptions(allow_out_of_memory=True))
    assert exe.memory.total.max() > ROOM


def _built(sizes: list[int], *, alive: bool) -> tuple[Graph, list[Sequence]]:
    graph, prog = chain(sizes, alive)
    return graph, [prog]


def test_pipelines_by_hand_may_leave_it_out() -> None:
    graph, (prog,) = _built([ROOM, ROOM], alive=True)
    module = TileModule(graph, [prog], ["main"])
    allowed = "map-tiles,plan-exchange,liveness,plan-memory{allow-out-of-memory=true}"
    PassManager().run(module, parse_pipeline(allowed))
    assert module.results["plan-memory"].plan.total.max() > ROOM


LAYERS = """
model m(x: f32[n, 64]) -> y: f32[n, 64] {
    param w: f32[64, 64] = glorot_uniform()
    y = relu(x @ w)
}
"""


def test_models_far_too_large_fail_soon() -> None:
    """The input and the product fit alone, not together: nothing is lowered."""
    model = pp.load(LAYERS.encode(), "pml")
    options = CompileOptions(ipus=1, tiles_per_ipu=1024)
    begin = time.process_time()
    with pytest.raises(OutOfTileMemory, match="at one time") as found:
        compile_model(model, options, Sizes.of(dims={"n": 3 << 19}))
    assert time.process_time() - begin < 2.0
    text = str(found.value)
    assert "x f32[1572864,64]" in text
    assert "the result f32[1572864,64]" in text
    assert found.value.loc.line == 4


def test_a_product_whose_operand_is_a_view() -> None:
    module = parse_pml(LAYERS.replace("x @ w", "reshape(x, [n, 64]) @ w"), "m.pml", dims={"n": 900})
    nbytes = 2 * 900 * 64 * 4
    check_sizes(module, _machine(nbytes))
    with pytest.raises(OutOfTileMemory):
        check_sizes(module, _machine(nbytes - 4))


def test_inputs_that_are_not_read_do_not_count() -> None:
    text = "model m(x: f32[100], z: f32[100], u: f32[100]) -> y: f32[100] { y = x + z }"
    module = parse_pml(text, "m.pml")
    check_sizes(module, _machine(800))
    with pytest.raises(OutOfTileMemory, match="the inputs together: 800 bytes"):
        check_sizes(module, _machine(796))


class _Room:
    """As much of a target as the check reads."""

    num_tiles = 1

    def __init__(self, nbytes: int) -> None:
        self.bytes_per_tile = nbytes


def _machine(nbytes: int) -> Target:
    return _Room(nbytes)  # type: ignore[return-value]
