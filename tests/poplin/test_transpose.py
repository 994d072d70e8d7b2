"""Transposed convolutions: what the gradient of the forward one gives, scattered in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poplin
from poplar_py.poplar import Graph, program
from poplar_py.types import f32, f64
from tests.poplin.cases import apply, outcome, sample, target
from tests.poplin.flat import Flat

of = poplin.ConvForm.of


def scatter(
    x: np.ndarray, w: np.ndarray, params: poplin.ConvForm, extend: tuple[int, ...]
) -> np.ndarray:
    """Every input pixel adds its patch of the result, in float64."""
    rank, groups = params.rank, params.groups
    size = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(
            x.shape[2:], params.strides, w.shape[2:], params.dilations, strict=True
        )
    ]
    full = [n + e for n, e in zip(size, extend, strict=True)]
    per = w.shape[1]
    out = np.zeros((x.shape[0], per * groups, *full))
    per_in = x.shape[1] // groups
    for g in range(groups):
        part = x[:, g * per_in : (g + 1) * per_in].astype(np.float64)
        taps = w[g * per_in : (g + 1) * per_in].astype(np.float64)
        for tap in np.ndindex(*w.shape[2:]):
            window = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(
                    tap, params.dilations, x.shape[2:], params.strides, strict=True
                )
            )
            value = np.einsum("nc...,co->no...", part, taps[(..., *tap)])
            out[(slice(None), slice(g * per, (g + 1) * per), *window)] += value
    cut = tuple(
        slice(low, n - high)
        for low, high, n in zip(params.pads_lower, params.pads_upper, full, strict=True)
    )
    return out[(slice(None), slice(None), *cut)] if rank else out


CASES = {
    "patches": ((1, 16, 7, 9), (16, 32, 2, 2), of(2, strides=(2, 2)), (0, 0)),
    "uneven patches": ((2, 24, 5, 6), (24, 20, 3, 2), of(2, strides=(3, 2)), (0, 0)),
    "one output": ((1, 24, 6, 6), (24, 1, 2, 2), of(2, strides=(2, 2)), (0, 0)),
    "overlap": ((1, 3, 7, 9), (3, 5, 3, 3), of(2, strides=(2, 2), pads=(1,) * 4), (1, 1)),
    "groups": ((2, 6, 5), (6, 4, 3), of(1, strides=(3,), pads=(1, 0), groups=2), (0,)),
    "3-D": (
        (1, 4, 3, 4, 5),
        (4, 6, 2, 3, 2),
        of(3, strides=(2, 1, 2), pads=(0, 1, 0) * 2),
        (0,) * 3,
    ),
}


@pytest.mark.parametrize("epilogue", ["", "relu(add($0,$1))"])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_against_scattering(case: str, dtype: object, epilogue: str) -> None:
    x_shape, w_shape, params, extend = CASES[case]
    kind = f32 if dtype is f32 or epilogue else f64
    rng = np.random.default_rng(2)
    graph, prog = Graph(target(64)), program.Sequence()
    x, w = sample(rng, kind, x_shape), sample(rng, kind, w_shape)
    bias = sample(rng, kind, (w_shape[1] * params.groups,))
    wanted = scatter(x, w, params, extend) + bias.reshape((1, -1) + (1,) * params.rank)
    tensor = graph.add_variable(kind, x_shape, "x", mapping="linear")
    written = [(tensor, x)]
    extra = None
    if epilogue:
        residual = sample(rng, kind, wanted.shape)
        other = graph.add_variable(kind, residual.shape, "r", mapping="linear")
        written.append((other, residual))
        wanted = apply(epilogue, wanted, residual)
        extra = poplin.Epilogue(epilogue, (other,))
    out = poplin.conv_transpose(
        graph, tensor, w, bias, params, prog, "up", output_padding=extend, epilogue=extra
    )
    flat = Flat(graph)
    for t, data in written:
        flat.write(t, data)
    done = outcome(graph, prog, flat, out, wanted)
    assert done.got.shape == wanted.shape
    assert done.error <= 1e-5
