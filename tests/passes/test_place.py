"""The chain partition against all cuts, and what the pass writes on ops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py.diagnostics import OptionError, OutOfTileMemory
from poplar_py.ir import Builder, Graph, Module
from poplar_py.ops.nn import MatMul, Relu
from poplar_py.passes import PassContext
from poplar_py.passes.place import Place, chain_partition
from poplar_py.target import Target
from poplar_py.types import TensorType, f32

COSTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=8)


def best_by_trying(costs: list[tuple[int, int]], stages: int, cap: int) -> float | None:
    """The smallest bottleneck over all cuts into at most `stages` runs."""
    n, best = len(costs), None
    for used in range(1, min(stages, n) + 1):
        for cuts in itertools.combinations(range(1, n), used - 1):
            edges = [0, *cuts, n]
            runs = [costs[a:b] for a, b in itertools.pairwise(edges)]
            if any(sum(b for _, b in run) > cap for run in runs):
                continue
            worst = max(sum(c for c, _ in run) for run in runs)
            best = worst if best is None else min(best, worst)
    return best


@settings(max_examples=60, deadline=None)
@given(costs=COSTS, stages=st.integers(1, 4), cap=st.integers(5, 30))
def test_partition_is_optimal(costs: list[tuple[int, int]], stages: int, cap: int) -> None:
    cycles, nbytes = [float(c) for c, _ in costs], [b for _, b in costs]
    found = chain_partition(cycles, nbytes, stages, cap)
    expected = best_by_trying(costs, stages, cap)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert max(stage.cycles for stage in found) == pytest.approx(expected)
    assert [s.begin for s in found[1:]] == [s.end for s in found[:-1]]
    assert found[0].begin == 0
    assert found[-1].end == len(costs)
    assert all(stage.nbytes <= cap for stage in found)


def chain(width: int = 64, layers: int = 4) -> Module:
    graph = Graph("main")
    x = graph.add_input(TensorType(f32, (8, width)), "x")
    build = Builder(graph)
    for k in range(layers):
        w = build.constant(np.zeros((width, width), np.float32), f"w{k}")
        x = build.add(Relu, build.add(MatMul, x, w))
    graph.add_output(x, "y")
    return Module("chain", [graph])


def places(module: Module) -> list[int | None]:
    return [op.ipu for op in module.main.ops]


def test_one_ipu_places_nothing() -> None:
    module = chain()
    assert not Place().run(module, PassContext(target=Target.of("ipu")))
    assert set(places(module)) == {None}


def test_spread_uses_all_ipus_in_order() -> None:
    module = chain()
    assert Place().run(module, PassContext(target=Target.of("m2000", tiles_per_ipu=16)))
    found = [op.ipu for op in module.main.ops if op.opname != "core.constant"]
    assert found == sorted(found, key=lambda ipu: -1 if ipu is None else ipu)
    assert set(found) == {0, 1, 2, 3}
    assert all(ipu is not None for ipu in places(module))


def test_annotated_ops_keep_their_place() -> None:
    module = chain(layers=2)
    products = [op for op in module.main.ops if isinstance(op, MatMul)]
    products[0].ipu, products[1].ipu = 1, 0
    assert Place().run(module, PassContext(target=Target.of("m2000")))
    assert [op.ipu for op in products] == [1, 0]
    relus = [op.ipu for op in module.main.ops if isinstance(op, Relu)]
    assert relus == [1, 0]


def test_place_outside_the_machine() -> None:
    module = chain(layers=1)
    module.main.ops[1].ipu = 5
    with pytest.raises(OptionError, match="ipu 5"):
        Place().run(module, PassContext(target=Target.of("m2000")))


def test_weights_that_fit_nowhere() -> None:
    with pytest.raises(OutOfTileMemory, match="do not fit"):
        Place().run(chain(1024), PassContext(target=Target.of("m2000", tiles_per_ipu=2)))
