"""Operations and best possible cycles of convolutions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from poplar_py.poplin.problem import MACS
from poplar_py.types import f16, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph
    from poplar_py.poplin.conv_params import ConvParams, InputTransform

__all__ = [
    "get_bwd_flops",
    "get_bwd_perfect_cycle_count",
    "get_fwd_flops",
    "get_fwd_perfect_cycle_count",
    "get_wu_flops",
    "get_wu_perfect_cycle_count",
]


def get_fwd_flops(params: ConvParams) -> int:
    """Operations, two a multiply-add, of the forward pass; products with padding or with the zeros
    of a dilation are not counted."""
    full = params.validate()
    per = full.batch_size * full.num_conv_groups
    per *= full.input_channels_per_conv_group * full.output_channels_per_conv_group
    return 2 * per * prod(_pairs(full, d) for d in range(full.get_num_field_dims()))


def _places(size: int, dim: int, t: InputTransform) -> list[int]:
    """Where the elements of a dim lie after its transform."""
    total = t.size(size, dim)
    at = [t.padding_lower[dim] + i * t.dilation[dim] for i in range(t.truncated(size, dim))]
    return [total - 1 - i for i in at] if t.flip[dim] else at


def _pairs(full: ConvParams, dim: int) -> int:
    """(input element, kernel element) pairs of a dim that meet in some output."""
    out = full.output_transform
    first = out.truncation_lower[dim]
    end = full.get_untransformed_output_size(dim) - out.truncation_upper[dim]
    x = _places(full.input_field_shape[dim], dim, full.input_transform)
    k = _places(full.kernel_shape[dim], dim, full.kernel_transform)
    kept = range(first, end, out.stride[dim])
    return sum(1 for i in x for j in k if i - j in kept)


def get_bwd_flops(params: ConvParams) -> int:
    """Operations of the gradient of the input: the forward products, each once."""
    return get_fwd_flops(params)


def get_wu_flops(params: ConvParams) -> int:
    """Operations of the gradient of the weights: the forward products, each once."""
    return get_fwd_flops(params)


def get_fwd_perfect_cycle_count(graph: Graph, params: ConvParams) -> int:
    """Cycles of the forward pass if every tile's matrix unit were busy all the time.

    The unit takes f16 and f32 (`problem.MACS`). Products of other types are made one by one: they
    count one a cycle and tile.
    """
    rate = MACS[params.input_type.size] if params.input_type in (f16, f32) else 1
    return -(-get_fwd_flops(params) // (2 * rate * graph.num_tiles))


def get_bwd_perfect_cycle_count(graph: Graph, params: ConvParams) -> int:
    """As `get_fwd_perfect_cycle_count` for the gradient of the input."""
    return get_fwd_perfect_cycle_count(graph, params)


def get_wu_perfect_cycle_count(graph: Graph, params: ConvParams) -> int:
    """As `get_fwd_perfect_cycle_count` for the gradient of the weights."""
    return get_fwd_perfect_cycle_count(graph, params)
