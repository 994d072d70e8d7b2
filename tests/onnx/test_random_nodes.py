"""Random nodes: import and reference interpreter against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from random_nodes import GENERATORS, Dice, RandomNode
from test_control import expected, run

ROUNDING = ("QuantizeLinear", "QLinearConv")


@pytest.mark.parametrize("make", GENERATORS, ids=lambda g: g.__name__)
@pytest.mark.parametrize("count", [12, pytest.param(150, marks=pytest.mark.slow)])
def test_random_nodes(make: Callable[[Dice], RandomNode], count: int) -> None:
    for seed in range(count):
        node = make(Dice(seed))
        model, feeds = node.model()
        want = expected(model, feeds)
        got, _ = run(model, feeds)
        for a, b in zip(got, want, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), node
            if b.dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=str(node))
            else:
                off = int(node.op in ROUNDING)
                assert np.abs(a.astype(int) - b.astype(int)).max(initial=0) <= off, node
