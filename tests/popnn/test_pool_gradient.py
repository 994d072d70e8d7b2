"""Gradients of pooling against scattering in NumPy, window by window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py import popnn
from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import Tensor
from poplar_py.types import DType, f32
from tests.poplin.setting import Setting, whole
from tests.popnn.test_mappings import FLOATS, both, close, pools

Array = np.ndarray[Any, np.dtype[Any]]


def scattered(x: Array, g: Array, params: popnn.PoolParams, kind: str) -> Array:
    """kind: max, scaled, mean, padded (the mean over the whole window)."""
    out = np.zeros(x.shape)
    for place in np.ndindex(*g.shape):
        n, c, *at = place
        window: list[tuple[int, ...]] = []
        for tap in np.ndindex(*params.kernel):
            spot = tuple(
                a * s + t * d - p
                for a, s, t, d, p in zip(
                    at, params.strides, tap, params.dilations, params.pads, strict=False
                )
            )
            if all(0 <= i < size for i, size in zip(spot, x.shape[2:], strict=True)):
                window.append((n, c, *spot))
        if not window:
            continue
        values = np.array([x[i] for i in window])
        used = [i for i, v in zip(window, values, strict=True) if v == values.max()]
        divisor = {"max": 1, "scaled": len(used), "mean": len(window)}
        used = used if kind in ("max", "scaled") else window
        for i in used:
            out[i] += g[place] / divisor.get(kind, np.prod(params.kernel))
    return out


@settings(max_examples=5, deadline=None)
@given(FLOATS, pools(), st.integers(0, 9))
def test_gradients(dtype: DType, case: tuple[tuple[int, ...], popnn.PoolParams], seed: int) -> None:
    shape, params = case
    shape = (shape[0], min(shape[1], 3), *shape[2:])
    rng = np.random.default_rng(seed)
    outs = (*shape[:2], *params.out_sizes(shape[2:]))
    x, g = rng.integers(0, 4, shape).astype(dtype.numpy), whole(rng, outs, dtype)

    def build(s: Setting, xt: Tensor, gt: Tensor) -> tuple[Tensor, ...]:
        graph, prog = s.graph, s.prog
        top, _ = popnn.max_pool(graph, xt, params, prog)
        largest = [
            popnn.max_pool_input_gradient(
                graph, xt, top, gt, params, prog, use_scaled_gradient=scaled
            )
            for scaled in (False, True)
        ]
        means = [
            popnn.avg_pool_input_gradient(graph, xt, gt, params, prog, count_include_pad=all_taps)
            for all_taps in (False, True)
        ]
        return (*largest, *means)

    got = both(build, dtype, seed, x, g)
    for found, kind in zip(got, ("max", "scaled", "mean", "padded"), strict=True):
        want = scattered(x, g.astype(np.float64), params, kind)
        close(found, want, dtype, 4)


def test_shapes_must_fit() -> None:
    s = Setting()
    params = popnn.PoolParams((2,), (2,), (0, 0), (1,))
    x = s.graph.add_variable(f32, (1, 1, 6), mapping=0)
    with pytest.raises(ShapeError, match="pooled_gradient"):
        popnn.avg_pool_input_gradient(s.graph, x, x, params, s.prog)
