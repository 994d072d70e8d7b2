"""Gradients of pooling: tap by tap, each output's gradient goes to the input its window reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place
from poplar_py.popops.fill import fill
from poplar_py.poputil.layout import fresh

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.popnn.pool_work import PoolParams

__all__ = ["avg_pool_input_gradient", "max_pool_input_gradient", "sum_pool_input_gradient"]

Span = tuple[int, int, int]
"""Outputs from, to, and the input of the first of them."""


def _taps(params: PoolParams, spatial: Items[int], outs: Items[int]) -> Iterator[list[Span]]:
    """For every tap of the window and each dim the outputs whose tap lies inside the input; taps
    that never do are left out."""
    for tap in np.ndindex(*params.kernel):
        spans: list[Span] = []
        for d, t in enumerate(tap):
            stride, at = params.strides[d], t * params.dilations[d] - params.pads[d]
            low = max(0, -(at // stride))
            high = min(outs[d], (spatial[d] - 1 - at) // stride + 1)
            spans.append((low, high, low * stride + at))
        if all(low < high for low, high, _ in spans):
            yield spans


def _of_outputs(t: Tensor, spans: list[Span]) -> Tensor:
    for d, (low, high, _) in enumerate(spans):
        t = t.slice(low, high, d + 2)
    return t


def _of_inputs(t: Tensor, spans: list[Span], params: PoolParams) -> Tensor:
    """What the tap reads of a tensor [N, C, *in], in the shape of its outputs."""
    for d, (low, high, begin) in enumerate(spans):
        stride = params.strides[d]
        t = t.slice(begin, begin + (high - low - 1) * stride + 1, d + 2).sub_sample(stride, d + 2)
    return t


def _check(x: Tensor, params: PoolParams, **outputs: Tensor) -> tuple[int, ...]:
    shape = (*x.shape[:2], *params.out_sizes(x.shape[2:]))
    for name, t in outputs.items():
        if tuple(t.shape) != shape:
            fail(ShapeError, f"{name} {tuple(t.shape)}; pooling {tuple(x.shape)} gives {shape}")
    return shape


def max_pool_input_gradient(
    graph: Graph,
    x: Tensor,
    pooled: Tensor,
    pooled_gradient: Tensor,
    params: PoolParams,
    prog: Sequence,
    name: str = "max_pool_gradient",
    *,
    use_scaled_gradient: bool = False,
) -> Tensor:
    """The gradient of x [N, C, *in] from that of `pooled`, its largest elements by window.

    Every element that equals the largest of a window gets that window's gradient; with
    `use_scaled_gradient` such elements share it. Raises ShapeError.
    """
    shape = _check(x, params, pooled=pooled, pooled_gradient=pooled_gradient)
    out = fresh(graph, x.dtype, tuple(x.shape), name)
    fill(graph, out, 0, prog, f"{name}/zero")
    taps = list(_taps(params, x.shape[2:], shape[2:]))
    given = pooled_gradient
    if use_scaled_gradient:
        count = fresh(graph, x.dtype, shape, f"{name}/count")
        fill(graph, count, 0, prog, f"{name}/none")
        for spans in taps:
            parts = [_of_outputs(count, spans), _of_inputs(x, spans, params)]
            parts.append(_of_outputs(pooled, spans))
            text = "add($0,select(equal($1,$2),c(1),c(0)))"
            map_in_place(graph, text, parts, prog, f"{name}/count")
        text = "div($0,max($1,c(1)))"
        given = map_expr(graph, text, [pooled_gradient, count], prog, f"{name}/share", x.dtype)
    for spans in taps:
        parts = [_of_inputs(out, spans, params), _of_inputs(x, spans, params)]
        parts += [_of_outputs(pooled, spans), _of_outputs(given, spans)]
        text = "add($0,select(equal($1,$2),$3,c(0)))"
        map_in_place(graph, text, parts, prog, f"{name}/tap")
    return out


def avg_pool_input_gradient(
    graph: Graph,
    x: Tensor,
    pooled_gradient: Tensor,
    params: PoolParams,
    prog: Sequence,
    name: str = "avg_pool_gradient",
    *,
    count_include_pad: bool = False,
) -> Tensor:
    """The gradient of x [N, C, *in] from that of its means by window; x gives the shape alone.

    The divisor is that of `avg_pool`. Raises ShapeError.
    """
    shape = _check(x, params, pooled_gradient=pooled_gradient)
    dtype, outs = x.dtype, shape[2:]
    taps = list(_taps(params, x.shape[2:], outs))
    count = np.zeros(outs, np.float64)
    for spans in taps:
        count[tuple(slice(low, high) for low, high, _ in spans)] += 1
    if count_include_pad:
        count[...] = np.prod(params.kernel)
    share = (1 / np.maximum(count, 1)).astype(dtype.numpy)
    constant = graph.add_constant(dtype, outs, share, f"{name}/share", "linear")
    parts = [pooled_gradient, constant]
    given = map_expr(graph, "mul($0,$1)", parts, prog, f"{name}/scale", dtype)
    return _spread(graph, x, given, taps, params, prog, name)


def sum_pool_input_gradient(
    graph: Graph,
    x: Tensor,
    pooled_gradient: Tensor,
    params: PoolParams,
    prog: Sequence,
    name: str = "sum_pool_gradient",
) -> Tensor:
    """The gradient of x [N, C, *in] from that of its sums by window; x gives the shape alone.

    Raises ShapeError.
    """
    shape = _check(x, params, pooled_gradient=pooled_gradient)
    taps = list(_taps(params, x.shape[2:], shape[2:]))
    return _spread(graph, x, pooled_gradient, taps, params, prog, name)


def _spread(
    graph: Graph,
    x: Tensor,
    given: Tensor,
    taps: list[list[Span]],
    params: PoolParams,
    prog: Sequence,
    name: str,
) -> Tensor:
    """Every output's share added to each input of its window."""
    out = fresh(graph, x.dtype, tuple(x.shape), name)
    fill(graph, out, 0, prog, f"{name}/zero")
    for spans in taps:
        parts = [_of_inputs(out, spans, params), _of_outputs(given, spans)]
        map_in_place(graph, "add($0,$1)", parts, prog, f"{name}/tap")
    return out
