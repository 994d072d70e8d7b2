"""popnn: pooling and its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from poplar_py import poplin, popnn
from poplar_py.poplar import Tensor
from poplar_py.popnn import PoolParams
from poplar_py.types import f16, i32
from tests.libraries.lab import Array, Case, Lab
from tests.libraries.poplin_cases import wide
from tests.libraries.popops_index_cases import whole

__all__ = ["CASES"]


# ---------------------------------------------------------------------- windows
def _pool(lab: Lab) -> tuple[PoolParams, tuple[int, ...]]:
    """Parameters and an input's shape, of which every window holds an element."""
    while True:
        rank = lab.pick(1, 3)
        kernel, strides, dilations = (
            tuple(lab.pick(1, high) for _ in range(rank)) for high in (4, 3, 2)
        )
        pads = tuple(lab.pick(0, (k - 1) * d) for k, d in zip(kernel, dilations, strict=True)) * 2
        spatial = tuple(lab.pick(1, (0, 30, 10, 6)[rank]) for _ in range(rank))
        if lab.pick(0, 5) == 0:
            kernel, pads, dilations = spatial, (0,) * (2 * rank), (1,) * rank
        params = PoolParams(kernel, strides, pads, dilations)
        reach = [(k - 1) * d + 1 - 2 * p for k, d, p in zip(kernel, dilations, pads, strict=False)]
        if any(n < r for n, r in zip(spatial, reach, strict=True)):
            continue
        if (_counts(params, spatial) == 0).any():
            continue
        channels = (1, 3, 16, 17, 32)[lab.pick(0, 4)]
        return params, (lab.pick(1, 3), channels, *spatial)


def _taps(params: PoolParams, spatial: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """For every tap of the window the outputs it has an input for, and these inputs."""
    outs = params.out_sizes(spatial)
    for tap in np.ndindex(*params.kernel):
        of_out: list[Array] = []
        of_in: list[Array] = []
        for d, t in enumerate(tap):
            at = np.arange(outs[d]) * params.strides[d] - params.pads[d] + t * params.dilations[d]
            inside = (at >= 0) & (at < spatial[d])
            of_out.append(np.flatnonzero(inside))
            of_in.append(at[inside])
        yield (..., *np.ix_(*of_out)), (..., *np.ix_(*of_in))


def _counts(params: PoolParams, spatial: tuple[int, ...]) -> Array:
    out = np.zeros(params.out_sizes(spatial))
    for of_out, _ in _taps(params, spatial):
        out[of_out] += 1
    return out


def _max_of(params: PoolParams, x: Array) -> tuple[Array, Array]:
    """Largest elements, and the first of their positions in the window's order."""
    spatial = x.shape[2:]
    top = np.full((*x.shape[:2], *params.out_sizes(spatial)), -np.inf)
    place = np.zeros(top.shape, np.int64)
    position = np.broadcast_to(np.arange(np.prod(spatial)).reshape(spatial), x.shape)
    for of_out, of_in in _taps(params, spatial):
        better = x[of_in] > top[of_out]
        place[of_out] = np.where(better, position[of_in], place[of_out])
        top[of_out] = np.maximum(top[of_out], x[of_in])
    return top, place


def _sums_of(params: PoolParams, x: Array) -> Array:
    out = np.zeros((*x.shape[:2], *params.out_sizes(x.shape[2:])))
    for of_out, of_in in _taps(params, x.shape[2:]):
        out[of_out] += x[of_in]
    return out


def _input(lab: Lab, x: Array) -> Tensor:
    """Anywhere, or in blocks of 16 channels as convolutions make them."""
    if lab.chance():
        return lab.put(x)
    params = poplin.ConvParams(
        lab.dtype, lab.dtype, x.shape[0], x.shape[2:], (1,) * (x.ndim - 2), x.shape[1], 16
    )
    return lab.put(x, poplin.create_input(lab.graph, params))


def _max_pool(lab: Lab) -> None:
    for indices in (False, False, True):
        params, shape = _pool(lab)
        x = lab.values(shape, -9, -1)
        out, where = popnn.max_pool(lab.graph, _input(lab, x), params, lab.prog, indices=indices)
        top, place = _max_of(params, wide(x))
        lab.expect(out, top, exact=True)
        assert (where is not None) == indices
        if where is not None:
            assert where.dtype is i32
            lab.expect(where, place)


def _divisor(params: PoolParams, spatial: tuple[int, ...], padded: bool) -> Any:
    return np.prod(params.kernel) if padded else _counts(params, spatial)


def _avg_pool(lab: Lab) -> None:
    for padded in (False, True, False):
        params, shape = _pool(lab)
        x = lab.values(shape)
        out = popnn.avg_pool(lab.graph, _input(lab, x), params, lab.prog, count_include_pad=padded)
        lab.expect(out, _sums_of(params, wide(x)) / _divisor(params, shape[2:], padded))
    _avg_pool_with_extra(lab)


def _avg_pool_with_extra(lab: Lab) -> None:
    """The last windows reach beyond what counts: one more element of padding at every end."""
    x = lab.values((2, 3, 7, 6))
    params = PoolParams((2, 3), (2, 2), (0, 1, 1, 2), (1, 1))
    out = popnn.avg_pool(
        lab.graph, lab.put(x), params, lab.prog, count_include_pad=True, extra=(1, 1)
    )
    rows = np.array([2, 2, 2, 1])  # the last row of windows holds one row that is counted
    columns = np.array([3, 3, 3, 2])[: params.out_sizes((7, 6))[1]]
    lab.expect(out, _sums_of(params, wide(x)) / (rows[:, None] * columns))


def _sum_pool(lab: Lab) -> None:
    for _ in range(2):
        params, shape = _pool(lab)
        x = whole(lab, shape)
        out = popnn.sum_pool(lab.graph, _input(lab, x), params, lab.prog)
        lab.expect(out, _sums_of(params, wide(x)), exact=True)


def _max_pool_gradient(lab: Lab) -> None:
    for scaled in (False, True):
        params, shape = _pool(lab)
        x = np.round(lab.values(shape, -3, 3)).astype(lab.dtype.numpy)  # with equals
        top, _ = _max_of(params, wide(x))
        g = lab.values(top.shape)
        given = [lab.put(t) for t in (x, top.astype(x.dtype), g)]
        out = popnn.max_pool_input_gradient(
            lab.graph, *given, params, lab.prog, use_scaled_gradient=scaled
        )
        taps = list(_taps(params, shape[2:]))
        winners = np.zeros(top.shape)
        for of_out, of_in in taps:
            winners[of_out] += x[of_in] == top[of_out]
        share, want = g / winners if scaled else wide(g), np.zeros(shape)
        for of_out, of_in in taps:
            want[of_in] += np.where(x[of_in] == top[of_out], share[of_out], 0)
        lab.expect(out, want, tolerance=1e-2 if lab.dtype is f16 else None)


def _avg_pool_gradient(lab: Lab) -> None:
    for padded in (False, True):
        params, shape = _pool(lab)
        g = lab.values((*shape[:2], *params.out_sizes(shape[2:])))
        out = popnn.avg_pool_input_gradient(
            lab.graph, lab.put(lab.values(shape)), lab.put(g), params, lab.prog,
            count_include_pad=padded,
        )  # fmt: skip
        share, want = wide(g) / _divisor(params, shape[2:], padded), np.zeros(shape)
        for of_out, of_in in _taps(params, shape[2:]):
            want[of_in] += share[of_out]
        lab.expect(out, want, tolerance=1e-2 if lab.dtype is f16 else None)


def _sum_pool_gradient(lab: Lab) -> None:
    params, shape = _pool(lab)
    g = whole(lab, (*shape[:2], *params.out_sizes(shape[2:])))
    given = lab.put(lab.values(shape)), lab.put(g)
    out = popnn.sum_pool_input_gradient(lab.graph, *given, params, lab.prog)
    want = np.zeros(shape)
    for of_out, of_in in _taps(params, shape[2:]):
        want[of_in] += g[of_out]
    lab.expect(out, want, exact=True)


CASES: dict[str, Case] = {
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "sum_pool": _sum_pool,
    "sum_pool_input_gradient": _sum_pool_gradient,
    "max_pool_input_gradient": _max_pool_gradient,
    "avg_pool_input_gradient": _avg_pool_gradient,
}
