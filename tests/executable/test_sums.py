"""Partial sums added where they lie: the same bits, and only where nobody else looks at them."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poplin
from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.executable.executable import Executable
from poplar_py.executable.sums import LEAST_SHARES
from poplar_py.executable.tables import find_order, split_threads
from poplar_py.poplar import Graph, Target, Tensor, program
from poplar_py.poplin.blocks import Blocks
from poplar_py.runtime.engine import TileEngine
from poplar_py.types import DType, f16, f32

RNG = np.random.default_rng(5)
A = RNG.standard_normal((64, 784)).astype(np.float32)
B = RNG.standard_normal((784, 512)).astype(np.float32)


def product(dtype: DType = f32, parts: list[Tensor] | None = None) -> Executable:
    """A [64, 784] times a constant, its sums in parts; the host reads tensors that stand in
    ``parts`` when the program is whole."""
    graph = Graph(Target.ipu("gc200", 1, 1472))
    prog = program.Sequence()
    a = graph.add_variable(dtype, A.shape, mapping="linear")
    graph.create_host_write("a", a)
    b = B.astype(dtype.numpy)
    y = poplin.mat_mul(graph, a, b, prog, name="product")
    graph.create_host_read("y", y)
    for k, t in enumerate(parts or []):
        graph.create_host_read(f"parts{k}", t)
    return build_executable(graph, [prog], BuildOptions())


def adding(exe: Executable) -> list[str]:
    """Codelets of the tables that the host runs instead of planned ones."""
    return [exe.codelets[int(t.kernel[7:])].name for t in exe.tables if t.stands_for >= 0]


def run(exe: Executable, **options: object) -> bytes:
    with TileEngine(exe, **options) as engine:  # type: ignore[arg-type]
        dtype = engine.executable.regions[0].dtype
        engine.write("a", A.astype(dtype.numpy))
        engine.run(timeout=60)
        return engine.read("y").tobytes()


def test_the_bits_are_those_of_the_plan() -> None:
    exe = product()
    maker, reducer = adding(exe)
    assert maker.startswith("poplin::ConvBlock<float,")
    assert maker.endswith(",0,false>")
    assert reducer == "poplin::ReduceBlock<float,0>"
    planned = run(exe, threads=1, faithful_exchange=True)
    for threads in (1, 2, 3, 7):
        assert run(exe, threads=threads) == planned
    assert run(exe, threads=2, merge_vertices=False) == planned
    found = np.frombuffer(planned, np.float32).reshape(64, 512)
    assert np.abs(found - A @ B).max() < 1e-4 * np.abs(A @ B).max()


def test_vertices_count_once() -> None:
    exe = product()
    planned = [t for t in exe.tables if t.kernel.startswith("vertex:") and t.stands_for < 0]
    assert exe.vertices == sum(t.rows for t in planned)


def test_parts_that_others_read_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Tensor] = []
    plain = Blocks._partials

    def noted(self: Blocks, low: int, high: int) -> Tensor:
        made.append(plain(self, low, high))
        return made[-1]

    monkeypatch.setattr(Blocks, "_partials", noted)
    assert adding(product(parts=made)) == []
    assert len(made) == 1


def test_sums_in_f16_stay() -> None:
    """Their parts are f32, which the adding form of the codelet cannot store."""
    assert adding(product(f16)) == []


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
def test_one_thread_runs_all_parts_of_a_block(threads: int) -> None:
    exe = product()
    (table,) = (t for t in exe.tables if t.together is not None)
    assert table.together is not None
    assert int(table.together[-1]) + 1 >= LEAST_SHARES
    number = np.empty(table.rows, np.int64)
    number[table.order.split] = table.together
    parts = split_threads(table.order, table.cost, threads, table.together)
    assert sorted(np.concatenate(parts).tolist()) == list(range(table.rows))
    owners: list[set[int]] = [set(number[p].tolist()) for p in parts]
    assert sum(len(o) for o in owners) == len({k for o in owners for k in o})
    assert all(owners)


def test_cuts_go_to_the_nearer_end() -> None:
    order, cost = find_order(None, 10), np.ones(10, np.int64)
    for ends, expected in (([4], 4), ([6], 6), ([2, 7], 7), ([2, 9], 2), ([], 10), ([5], 5)):
        together = np.zeros(10, np.int32)
        for end in ends:
            together[end:] += 1
        first, second = split_threads(order, cost, 2, together)
        assert (len(first), len(second)) in ((expected, 10 - expected), (10 - expected, expected))
