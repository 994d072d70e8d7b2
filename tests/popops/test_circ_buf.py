"""The ring of the last tensors against a list."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.diagnostics import OptionError, ShapeError, TypeMismatch
from poplar_py.poplar import Engine, Graph, Target
from poplar_py.poplar.program import Copy, Sequence
from poplar_py.popops import CircBuf
from poplar_py.types import DType, f16, f32, i32


@pytest.mark.parametrize("dtype", [f32, f16, i32])
@pytest.mark.parametrize(("size", "shape"), [(1, (3,)), (3, ()), (4, (2, 5)), (7, (33,))])
def test_like_a_list(dtype: DType, size: int, shape: tuple[int, ...]) -> None:
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=4))
    ring = CircBuf(graph, dtype, size, shape)
    new = graph.add_variable(dtype, shape, "new", "linear")
    add, look = Sequence(), Sequence()
    graph.create_host_write("new", new)
    ring.add(new, add)
    for i in range(size):
        graph.create_host_read(f"old{i}", ring.prev(i, look))
    graph.create_host_read("index", ring.get_index())
    engine = Engine(graph, [add, look])
    engine.load()
    rng = np.random.default_rng(size)
    held = [np.zeros(shape, dtype.numpy)] * size
    for step in range(2 * size + 1):
        entry = rng.integers(-50, 50, shape).astype(dtype.numpy)
        held = [np.asarray(entry), *held[:-1]]
        engine.write_tensor("new", np.asarray(entry).reshape(-1))
        engine.run(0)
        engine.run(1)
        assert engine.read_tensor("index").item() == (step + 1) % size
        for i, expected in enumerate(held):
            assert np.array_equal(engine.read_tensor(f"old{i}"), expected.reshape(-1))


def test_bad_entries_are_refused() -> None:
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=4))
    ring = CircBuf(graph, f32, 3, (2,))
    prog = Sequence()
    with pytest.raises(OptionError, match="entry 3 of a circular buffer of 3"):
        ring.prev(3, prog)
    with pytest.raises(ShapeError):
        ring.add(graph.add_variable(f32, (3,), "x", 0), prog)
    with pytest.raises(TypeMismatch):
        ring.add(graph.add_variable(f16, (2,), "y", 0), prog)
    with pytest.raises(OptionError, match="give 1 or more"):
        CircBuf(graph, f32, 0, (2,))
    assert ring.size() == 3
    prog.add(Copy(ring.get_index(), graph.add_variable(i32, (1,), "z", 0)))
