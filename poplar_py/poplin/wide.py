"""Long kernels over few channels (filter banks on audio) as short kernels over 16 times as many.

With k = 16 a + l, the product of a kernel of 16 A taps is

    y[o] = sum over l, a of w[16 a + l] x[S o + 16 a + l]

so lane l becomes a channel x'[l][j] = x[T j + l], and the kernel has A taps. T = 16 when the stride
S is a multiple of 16: x' then holds every element once, already in blocks of 16. Otherwise T is S
(where S divides 16) or 1, and elements repeat.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import concat
from poplar_py.poplin.place import pad_view

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplin.params import ConvForm

__all__ = ["fold_wide_kernel"]

LANES = 16
LONG = 32
"""Kernels of more taps than this are folded."""
FEW = 4
"""Channels: with more, the lanes of blocks are full anyhow."""


def fold_wide_kernel(
    graph: Graph, x: Tensor, w: Any, params: ConvForm
) -> tuple[Tensor, npt.NDArray[Any], ConvForm] | None:
    """x, w and parameters of an equal convolution with a short kernel; None when it would not help.

    Only whole multiples of 16 taps are folded: padding taps with zeros would let infinities beside
    the window into the sum.
    """
    if not isinstance(w, np.ndarray) or params.groups != 1 or x.shape[1] > FEW:
        return None
    weights = cast("npt.NDArray[Any]", w)
    taps, stride = weights.shape[-1], params.strides[-1]
    if taps <= LONG or taps % LANES or params.dilations[-1] != 1 or params.input_dilations[-1] != 1:
        return None
    step = LANES if stride % LANES == 0 else stride if LANES % stride == 0 else 1
    new_stride, dilation = (stride // step, LANES // step)
    x = pad_view(graph, x, x.rank - 1, params.pads_lower[-1], params.pads_upper[-1])
    outputs = (x.shape[-1] - taps) // stride + 1
    columns = (outputs - 1) * new_stride + (taps // LANES - 1) * dilation + 1
    folded = _lanes(x, step, columns)
    changed = replace(
        params,
        strides=(*params.strides[:-1], new_stride),
        pads_lower=(*params.pads_lower[:-1], 0),
        pads_upper=(*params.pads_upper[:-1], 0),
        dilations=(*params.dilations[:-1], dilation),
    )
    return folded, _taps(weights), changed


def _lanes(x: Tensor, step: int, columns: int) -> Tensor:
    """x [N, C, ..., W] as [N, 16 C, ..., columns]: channel l C + c holds x[..., step j + l]."""
    last = x.rank - 1
    if step == LANES:
        cut = x.slice(0, LANES * columns, last).reshape((*x.shape[:-1], columns, LANES))
        apart = cut.dim_roll(cut.rank - 1, 1)
        return apart.reshape((x.shape[0], LANES * x.shape[1], *x.shape[2:-1], columns))
    reach = step * (columns - 1) + 1
    return concat([x.slice(k, k + reach, last).sub_sample(step, last) for k in range(LANES)], 1)


def _taps(w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """w [O, C, ..., 16 A] as [O, 16 C, ..., A] in the same order of channels."""
    outputs, channels, *middle, taps = w.shape
    split = w.reshape((outputs, channels, *middle, taps // LANES, LANES))
    moved = np.moveaxis(split, -1, 1)
    return np.ascontiguousarray(moved.reshape((outputs, LANES * channels, *middle, taps // LANES)))
