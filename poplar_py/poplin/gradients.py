"""Gradients of convolutions and products with respect to weights and biases, and their updates.

The gradient of a weight sums, over batch and output positions, what its output got times the input
it read there: a matrix product for every tap of the kernel, all taps in one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import concat
from poplar_py.poplar.program import Copy
from poplar_py.poplin.matmul import mat_mul
from poplar_py.poplin.place import dilate_view, pad_view
from poplar_py.poplin.transforms import Native, kernel_view, native_of
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place
from poplar_py.popops.fill import fill
from poplar_py.popops.reduction import reduce
from poplar_py.poputil.layout import fresh
from poplar_py.types import f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.conv_params import ConvParams
    from poplar_py.types import DType

__all__ = [
    "FullyConnectedParams",
    "add_scaled",
    "calculate_weight_deltas",
    "convolution_bias_update",
    "convolution_weight_update",
    "fully_connected",
    "fully_connected_backward",
    "fully_connected_weight_update",
]


def calculate_weight_deltas(
    graph: Graph,
    z_deltas: Tensor,
    activations: Tensor,
    params: ConvParams,
    prog: Sequence,
    name: str = "weight_deltas",
) -> Tensor:
    """The gradient of the weights [groups, O, I, *kernel] of the convolution `params`.

    z_deltas [N, groups O, *out] is the gradient of its output, activations [N, groups I, *field]
    its input. Raises ShapeError.
    """
    full = params.validate()
    if tuple(z_deltas.shape) != full.output_shape():
        raise ShapeError(f"z_deltas {z_deltas.shape}; the parameters say {full.output_shape()}")
    shape, dtype = full.weights_shape(), full.input_type
    joined = (shape[0] * shape[1], *shape[2:])
    weights = fresh(graph, dtype, joined, name)
    native = native_of(activations, weights, full)
    used = kernel_view(weights, full)
    if native.zero or 0 in (*native.shape, *native.x.shape):
        fill(graph, weights, 0, prog, f"{name}/zero")
        return weights.reshape(shape)
    out = full.output_transform
    z = z_deltas
    for d, size in enumerate(native.shape[2:]):
        z = z.slice(out.padding_lower[d], out.padding_lower[d] + size, d + 2)
    deltas = _tap_products(graph, z, native, tuple(used.shape[2:]), prog, name, dtype)
    if used.numel != weights.numel:
        fill(graph, weights, 0, prog, f"{name}/zero")
    prog.add(Copy(deltas, used))
    return weights.reshape(shape)


def _tap_products(
    graph: Graph,
    z: Tensor,
    native: Native,
    kernel: tuple[int, ...],
    prog: Sequence,
    name: str,
    dtype: DType,
) -> Tensor:
    """Gradients [G O, I, *kernel] of the kernel of the form."""
    form, groups = native.form, native.form.groups
    x = native.x
    for d in range(form.rank):
        x = dilate_view(graph, x, d + 2, form.input_dilations[d])
        x = pad_view(graph, x, d + 2, form.pads_lower[d], form.pads_upper[d])
    n, outputs, *sizes = z.shape
    chans, places = x.shape[1] // groups, prod(sizes)
    windows: list[Tensor] = []
    for tap in np.ndindex(*kernel):
        window = x
        for d, (t, size) in enumerate(zip(tap, sizes, strict=True)):
            begin, stride = t * form.dilations[d], form.strides[d]
            window = window.slice(begin, begin + (size - 1) * stride + 1, d + 2)
            window = window.sub_sample(stride, d + 2)
        split = window.reshape((n, groups, chans, places)).dim_shuffle((1, 0, 3, 2))
        windows.append(split.reshape((1, groups, n * places, chans)))
    left = z.reshape((n, groups, outputs // groups, places)).dim_shuffle((1, 2, 0, 3))
    left = left.reshape((1, groups, outputs // groups, n * places))
    made = mat_mul(graph, left, concat(windows, 0), prog, name, out_dtype=dtype)
    return (
        made.reshape((-1, outputs, chans)).dim_shuffle((1, 2, 0)).reshape((outputs, chans, *kernel))
    )


def add_scaled(
    graph: Graph, t: Tensor, delta: Tensor, scale: float | Tensor, prog: Sequence, name: str
) -> None:
    """t += scale * delta in place; `scale` is a number or a tensor of one element."""
    if isinstance(scale, int | float):
        text = f"add($0,mul(cast($1,{t.dtype.name}),c({float(scale)!r})))"
        map_in_place(graph, text, [t, delta], prog, name)
        return
    factor = scale.reshape((1,) * t.rank)
    text = f"add($0,mul(cast($1,{t.dtype.name}),cast($2,{t.dtype.name})))"
    map_in_place(graph, text, [t, delta, factor], prog, name)


def convolution_weight_update(
    graph: Graph,
    z_deltas: Tensor,
    weights: Tensor,
    activations: Tensor,
    params: ConvParams,
    scale: float | Tensor,
    prog: Sequence,
    name: str = "weight_update",
) -> None:
    """weights += scale * `calculate_weight_deltas`, in place."""
    deltas = calculate_weight_deltas(graph, z_deltas, activations, params, prog, f"{name}/deltas")
    add_scaled(graph, weights, deltas.reshape(weights.shape), scale, prog, name)


def convolution_bias_update(
    graph: Graph,
    z_deltas: Tensor,
    biases: Tensor,
    scale: float | Tensor,
    prog: Sequence,
    name: str = "bias_update",
) -> None:
    """biases [O] += scale * the sum of z_deltas [N, O, *out] over all but O; summed in f32."""
    dims = [d for d in range(z_deltas.rank) if d != 1]
    acc = f32 if z_deltas.dtype.size == 2 else z_deltas.dtype
    total = reduce(graph, z_deltas, dims, "sum", prog, f"{name}/sum", acc)
    add_scaled(graph, biases, total, scale, prog, name)


# ---------------------------------------------------------------------- fully connected
@dataclass(frozen=True)
class FullyConnectedParams:
    """A grouped layer y [G, B, O] = x [G, B, I] w [G, I, O]."""

    num_groups: int
    batch_size: int
    input_size: int
    output_size: int

    def check(self, **tensors: Tensor) -> None:
        """Raises ShapeError when a tensor called x, w or y has another shape."""
        shapes = {
            "x": (self.num_groups, self.batch_size, self.input_size),
            "w": (self.num_groups, self.input_size, self.output_size),
            "y": (self.num_groups, self.batch_size, self.output_size),
        }
        for name, t in tensors.items():
            if tuple(t.shape) != shapes[name]:
                raise ShapeError(f"{name} {tuple(t.shape)}; the layer says {shapes[name]}")


def fully_connected(
    graph: Graph,
    x: Tensor,
    w: Tensor,
    biases: Tensor | None,
    params: FullyConnectedParams,
    prog: Sequence,
    name: str = "fully_connected",
) -> Tensor:
    """x w + biases [G, O]. Raises ShapeError."""
    params.check(x=x, w=w)
    out = mat_mul(graph, x, w, prog, name)
    if biases is None:
        return out
    rows = biases.reshape((params.num_groups, 1, params.output_size))
    return map_expr(graph, "add($0,$1)", [out, rows], prog, f"{name}/bias", out.dtype)


def fully_connected_backward(
    graph: Graph,
    y_deltas: Tensor,
    w: Tensor,
    params: FullyConnectedParams,
    prog: Sequence,
    name: str = "fully_connected_backward",
) -> Tensor:
    """The gradient of x: y_deltas times w transposed. Raises ShapeError."""
    params.check(y=y_deltas, w=w)
    return mat_mul(graph, y_deltas, w.dim_shuffle((0, 2, 1)), prog, name)


def fully_connected_weight_update(
    graph: Graph,
    y_deltas: Tensor,
    w: Tensor,
    x: Tensor,
    scale: float | Tensor,
    params: FullyConnectedParams,
    prog: Sequence,
    name: str = "fully_connected_update",
) -> None:
    """w += scale * x transposed times y_deltas, in place. Raises ShapeError."""
    params.check(y=y_deltas, w=w, x=x)
    deltas = mat_mul(graph, x.dim_shuffle((0, 2, 1)), y_deltas, prog, f"{name}/deltas")
    add_scaled(graph, w, deltas, scale, prog, name)
