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
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program import Copy
from poplar_py.poplin.lanes import blocked_copy
from poplar_py.poplin.matmul import mat_mul
from poplar_py.poplin.place import block_mapping, dilate_view, spread, tile_range
from poplar_py.poplin.transforms import Native, kernel_view, native_of
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place
from poplar_py.popops.fill import fill
from poplar_py.popops.reduction import reduce
from poplar_py.poputil.blocked import LANES, add_blocked, blocked_base, blocks_of
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
        fail(ShapeError, f"z_deltas {z_deltas.shape}; the parameters say {full.output_shape()}")
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
    """Gradients [G O, I, *kernel] of the kernel of the form.

    Rows of positions are padded to whole blocks of 16 with zeros, so that the windows of all taps
    are read from one copy of the input.
    """
    form, groups = native.form, native.form.groups
    n, outputs, *sizes = z.shape
    wide = blocks_of(sizes[-1]) * LANES
    x = _channel_lanes(graph, native, kernel, (*sizes[:-1], wide), prog, name)
    chans, places = x.shape[1], prod(sizes[:-1]) * wide
    windows: list[Tensor] = []
    for tap in np.ndindex(*kernel):
        window = x
        for d, (t, size) in enumerate(zip(tap, (*sizes[:-1], wide), strict=True)):
            begin, stride = t * form.dilations[d], form.strides[d]
            window = window.slice(begin, begin + (size - 1) * stride + 1, d + 2)
            window = window.sub_sample(stride, d + 2)
        split = window.reshape((n, groups, chans, places)).dim_shuffle((1, 0, 3, 2))
        windows.append(split.reshape((1, groups, n * places, chans)))
    left = _position_lanes(graph, z, groups, prog, name)
    made = mat_mul(graph, left, concat(windows, 0), prog, name, out_dtype=dtype)
    taps = made.reshape((-1, outputs, chans)).dim_shuffle((1, 2, 0))
    return taps.reshape((outputs, chans, *kernel))


def _channel_lanes(
    graph: Graph,
    native: Native,
    kernel: tuple[int, ...],
    sizes: tuple[int, ...],
    prog: Sequence,
    name: str,
) -> Tensor:
    """The input [N G, I, *field] in blocks of 16 channels, dilated, with zeros around it as far as
    the taps of `sizes` outputs reach."""
    form = native.form
    n, channels, *field = native.x.shape
    x = native.x.reshape((n * form.groups, channels // form.groups, *field))
    begin: list[int] = []
    full: list[int] = []
    for d, (taps, size) in enumerate(zip(kernel, sizes, strict=True)):
        x = dilate_view(graph, x, d + 2, form.input_dilations[d])
        low = form.pads_lower[d]
        total = (size - 1) * form.strides[d] + (taps - 1) * form.dilations[d] + 1
        held = min(x.shape[d + 2], total - low)
        x = x.slice(max(0, -low), held, d + 2)
        begin.append(max(0, low))
        full.append(total)
    tiles = tile_range(graph, None)
    lanes = blocked_copy(graph, x, prog, f"{name}/lanes", tiles)
    shape = (*x.shape[:2], *full)
    lines = x.shape[0] * blocks_of(x.shape[1]) * prod(full[:-1])
    mapping = block_mapping(spread(lines, tiles), full[-1] * LANES)
    base, view = add_blocked(graph, x.dtype, shape, f"{name}/input", mapping)
    fill(graph, base, 0, prog, f"{name}/zero")
    source = blocked_base(graph, lanes)
    assert source is not None
    for d, low in enumerate(begin):
        base = base.slice(low, low + x.shape[d + 2], d + 2)
    prog.add(Copy(source, base))
    return view


def _position_lanes(graph: Graph, z: Tensor, groups: int, prog: Sequence, name: str) -> Tensor:
    """z [N, G O, *out] as [1, G, O, N positions], 16 positions of a padded row side by side."""
    n, outputs, *sizes = z.shape
    blocks, each, lines = blocks_of(sizes[-1]), outputs // groups, prod(sizes[:-1])
    count = groups * n * lines * blocks
    mapping = block_mapping(spread(count, tile_range(graph, None)), each * LANES)
    shape = (groups, n, lines, blocks, each, LANES)
    base = graph.add_variable(z.dtype, shape, f"{name}/deltas", mapping=mapping)
    if sizes[-1] % LANES:
        fill(graph, base, 0, prog, f"{name}/zero")
    view = base.dim_shuffle((0, 4, 1, 2, 3, 5))
    rows = view.reshape((groups, each, n, lines, blocks * LANES)).slice(0, sizes[-1], 4)
    source = z.reshape((n, groups, each, lines, sizes[-1])).dim_shuffle((1, 2, 0, 3, 4))
    # in the order of the blocks: positions side by side move together
    order = (0, 2, 3, 1, 4)
    prog.add(Copy(source.dim_shuffle(order), rows.dim_shuffle(order)))
    return view.reshape((1, groups, each, n * lines * blocks * LANES))


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
                fail(ShapeError, f"{name} {tuple(t.shape)}; the layer says {shapes[name]}")


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
