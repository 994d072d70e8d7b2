"""Operations and best possible cycles of convolutions."""

from __future__ import annotations

import pytest

from poplar_py import poplin
from poplar_py.poplar import Graph, Target
from poplar_py.poplin import ConvParams, InputTransform, OutputTransform
from poplar_py.types import DType, bf16, f16, f32, f64, i32

TILES = 16


def params(dtype: DType) -> ConvParams:
    pads = InputTransform(padding_lower=(1, 1), padding_upper=(1, 1))
    stride = OutputTransform(stride=(2, 1))
    return ConvParams(dtype, dtype, 2, (8, 8), (3, 3), 4, 6, 2, pads, InputTransform(), stride)


# rows 0, 2, 4, 6 meet 3 rows of the kernel, but row 0 one less; columns 3 each but the outer two
OPERATIONS = 2 * (2 * 2 * 4 * 6) * (4 * 3 - 1) * (8 * 3 - 2)


def test_gradients_cost_what_the_forward_pass_does() -> None:
    assert poplin.get_fwd_flops(params(f32)) == OPERATIONS
    assert poplin.get_bwd_flops(params(f32)) == OPERATIONS
    assert poplin.get_wu_flops(params(f32)) == OPERATIONS


@pytest.mark.parametrize(
    ("dtype", "rate"), [(f32, 16), (f16, 64), (f64, 1), (bf16, 1), (i32, 1)], ids=str
)
def test_perfect_cycles_by_type(dtype: DType, rate: int) -> None:
    """f16 and f32 by the matrix unit, others one product a cycle."""
    graph = Graph(Target.ipu("gc200", 1, TILES))
    want = -(-OPERATIONS // (2 * rate * TILES))
    assert poplin.get_fwd_perfect_cycle_count(graph, params(dtype)) == want
    assert poplin.get_bwd_perfect_cycle_count(graph, params(dtype)) == want
    assert poplin.get_wu_perfect_cycle_count(graph, params(dtype)) == want
