"""Tensors whose partitions are contiguous."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poputil
from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import Graph, Target
from poplar_py.types import f16, f32


@pytest.mark.parametrize("seed", range(4))
def test_partitions_are_contiguous(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph(Target.ipu("gc200", 1, 4))
    shape = [int(rng.integers(1, 9)) for _ in range(int(rng.integers(1, 4)))]
    parts = [int(rng.integers(1, n + 1)) for n in shape]
    t = poputil.create_partitionable_tensor(graph, f16 if seed % 2 else f32, shape, parts)
    assert list(t.shape) == shape
    address = t.addresses().reshape(shape)
    assert np.unique(address).size == address.size  # every element once
    steps = [-(-n // p) for n, p in zip(shape, parts, strict=True)]
    for corner in np.ndindex(*(-(-n // s) for n, s in zip(shape, steps, strict=True))):
        box = tuple(slice(c * s, (c + 1) * s) for c, s in zip(corner, steps, strict=True))
        held = address[box].ravel()
        np.testing.assert_array_equal(held, held[0] + np.arange(held.size))


def test_a_number_for_every_dim() -> None:
    graph = Graph(Target.ipu("gc200", 1, 4))
    for parts in ([2], [0, 1], [1, 2, 3]):
        with pytest.raises(ShapeError):
            poputil.create_partitionable_tensor(graph, f32, [4, 4], parts)
    empty = poputil.create_partitionable_tensor(graph, f32, [0, 4], [2, 2])
    assert empty.shape == (0, 4)
