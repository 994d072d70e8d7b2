"""Matrix products against float64 NumPy: types, broadcasting, operands in every layout."""

from __future__ import annotations

import pytest

from poplar_py.types import DType, bf16, f16, f32, f64, i8, i32, i64, u8
from tests.poplin.cases import run_mat_mul

TOLERANCE = {"f32": 1e-5, "f64": 1e-13, "f16": 4e-3, "bf16": 1e-2}


@pytest.mark.parametrize("dtype", [f32, f16, f64, bf16, i32, i64, u8], ids=str)
def test_every_type(dtype: DType) -> None:
    done = run_mat_mul((dtype, dtype), (5, 37), (37, 21))
    assert done.error <= TOLERANCE.get(dtype.name, 0.0)


def test_mixed_bytes() -> None:
    done = run_mat_mul((u8, i8), (5, 37), (37, 21))
    assert done.error == 0.0
    assert done.got.dtype.name == "int32"


SHAPES = [
    ((64, 200), (200, 64)),
    ((3, 20, 40), (40, 33)),
    ((1, 512), (512, 1000)),
    ((7, 1, 64), (64, 48)),
    ((197, 64), (64, 64)),
    ((16, 2), (2, 16)),
    ((1, 1), (1, 1)),
    ((2, 3, 20, 40), (3, 40, 33)),
    ((20, 40), (3, 40, 33)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("constant", ["b", "", "a"])
def test_shapes(a: tuple[int, ...], b: tuple[int, ...], constant: str) -> None:
    done = run_mat_mul((f32, f32), a, b, constant=constant)
    assert done.error <= 1e-5
    assert done.got.shape == done.wanted.shape


@pytest.mark.parametrize("k", [48, 37])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_computed_operand_in_blocks(layout: str, k: int) -> None:
    done = run_mat_mul((f32, f32), (3, 20, k), (3, k, 32), constant="", layout=layout)
    assert done.error <= 1e-5
    assert any("Transpose" in c for c in done.codelets) == (layout == "columns")


@pytest.mark.parametrize("constant", ["b", ""])
def test_epilogue(constant: str) -> None:
    done = run_mat_mul(
        (f32, f32), (3, 20, 40), (3, 40, 33), constant=constant, epilogue="relu(add($0,$1))"
    )
    assert done.error <= 1e-5


def test_generic_with_batch() -> None:
    done = run_mat_mul((i32, i32), (2, 3, 5, 37), (3, 37, 70), constant="")
    assert done.error == 0.0
