"""Names that programs for PopLibs use, against NumPy and SciPy, over random mappings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from popops_harness import TILES, Array, Program, compare
from scipy import special

from poplar_py import popops
from poplar_py.poplar import Mapping
from poplar_py.popops import arithmetic, variants
from poplar_py.types import DType, f16, f32, i32, u32

FLOAT: dict[str, Any] = {
    "abs": np.abs, "asin": np.arcsin, "cbrt": np.cbrt, "ceil": np.ceil, "cos": np.cos,
    "erf": special.erf, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor,
    "inv": np.reciprocal, "log": np.log, "log1p": np.log1p, "neg": np.negative,
    "nearby_int": np.rint, "relu": lambda x: np.maximum(x, 0), "signum": np.sign, "sin": np.sin,
    "tan": np.tan, "tanh": np.tanh, "sqrt": np.sqrt, "square": np.square,
    "sigmoid": special.expit, "rsqrt": lambda x: 1 / np.sqrt(x), "trunc": np.trunc,
    "gelu_erf": lambda x: x * special.ndtr(x),
    "add": np.add, "atan2": np.arctan2, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "pow": np.power, "rem": np.fmod, "sub": np.subtract,
}  # fmt: skip
INTEGER: dict[str, Any] = {
    "bitwise_not": np.invert, "popcount": np.bitwise_count if hasattr(np, "bitwise_count") else
    np.vectorize(lambda x: bin(x & 0xFFFFFFFF).count("1")),
    "clz": np.vectorize(lambda x: 32 - int(x).bit_length()),
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "bitwise_xnor": lambda a, b: ~(a ^ b), "shift_left": lambda a, b: a << (b & 31),
    "shift_right": lambda a, b: (a.view(np.uint32) >> b.view(np.uint32)).view(np.int32),
    "shift_right_sign_extend": lambda a, b: a >> (b & 31),
}  # fmt: skip
BINARY = {*arithmetic.BINARY, *variants.MORE_BINARY}


def random_input(p: Program, rng: np.random.Generator, array: Array) -> Any:
    """A variable holding the array, in up to nine intervals on random tiles."""
    cuts = np.sort(rng.integers(0, array.size + 1, int(rng.integers(0, 9))))
    bounds = np.concatenate([[0], cuts, [array.size]])
    tile = rng.integers(0, TILES, len(bounds) - 1).astype(np.int32)
    return p.input(array, Mapping(bounds, tile).normal())


def all_forms(kind: str, arrays: list[Array], want: Array, tolerance: float, seed: int) -> None:
    """The new tensor, the one written over, and the one given."""
    rng = np.random.default_rng(seed)
    p = Program()
    a, *rest = (random_input(p, rng, x) for x in arrays)
    first = getattr(popops, kind)(p.graph, a, *rest, p.prog)
    out = p.graph.add_variable(first.dtype, first.shape, "out", mapping="linear")
    getattr(popops, f"{kind}_with_output")(p.graph, a, *rest, out, p.prog)
    getattr(popops, f"{kind}_in_place")(p.graph, a, *rest, p.prog)
    for got in p.run(first, out, a):
        compare(got, want.astype(got.dtype), tolerance)


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("kind", FLOAT)
def test_float(kind: str, dtype: DType) -> None:
    rng = np.random.default_rng(len(kind))
    shape = tuple(rng.integers(1, 9, 2).tolist())
    count = 2 if kind in BINARY else 1
    arrays = [rng.uniform(0.1, 0.9, shape).astype(dtype.numpy) for _ in range(count)]
    want = FLOAT[kind](*(x.astype(np.float64) for x in arrays))
    all_forms(kind, arrays, want, 4e-3 if dtype is f16 else 2e-6, 1)


@pytest.mark.parametrize("kind", INTEGER)
def test_integer(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    low = 0 if kind in ("clz", "popcount") else -(1 << 31)
    arrays = [rng.integers(low, (1 << 31) - 1, (5, 9)).astype(np.int32)]
    if kind in BINARY:
        arrays.append(rng.integers(0, 32, (5, 9)).astype(np.int32))
    all_forms(kind, arrays, np.asarray(INTEGER[kind](*arrays)), 0.0, 2)


@pytest.mark.parametrize("dtype", [f32, f16])
def test_select_and_clamp(dtype: DType) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal((7, 5)).astype(dtype.numpy) for _ in range(2))
    low, high = (np.full((7, 5), v, dtype.numpy) for v in (-0.5, 0.5))
    mask = rng.random((7, 5)) < 0.5
    all_forms("clamp", [x, low, high], np.clip(x, low, high), 0.0, 3)
    all_forms("select", [x, y, mask], np.where(mask, x, y), 0.0, 4)


@pytest.mark.parametrize("dtype", [f32, f16])
def test_variances(dtype: DType) -> None:
    v = np.random.default_rng(1).uniform(0.5, 2, 20).astype(dtype.numpy)
    p = Program()
    t = p.input(v)
    inv = popops.variance_to_inv_std_dev(p.graph, t, 0.25, p.prog)
    back = popops.inv_std_dev_to_variance(p.graph, inv, 0.25, p.prog)
    tolerance = 5e-3 if dtype is f16 else 1e-6
    over = p.input(v)
    popops.variance_to_inv_std_dev_in_place(p.graph, over, 0.25, p.prog)
    popops.inv_std_dev_to_variance_in_place(p.graph, over, 0.25, p.prog)
    got = p.run(inv, back, over)
    compare(got[2], v, tolerance)
    compare(got[0], (1 / np.sqrt(v.astype(np.float64) + 0.25)).astype(dtype.numpy), tolerance)
    compare(got[1], v, tolerance)


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("seed", range(2))
def test_updates_and_reductions(dtype: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, w, m = (int(v) for v in rng.integers(2, 9, 3))
    table = rng.integers(-3, 4, (n, w)).astype(dtype.numpy)
    updates = rng.integers(-2, 3, (m, w)).astype(dtype.numpy)
    index = rng.integers(0, n, m).astype(np.int32)
    p = Program()
    add, top, mul = (random_input(p, rng, table) for _ in range(3))
    i, u = random_input(p, rng, index), random_input(p, rng, updates)
    popops.multi_update_add(p.graph, add, i, u, p.prog, scale=2.0)
    popops.multi_update_max(p.graph, top, i, u, p.prog)
    popops.multi_update_mul(p.graph, mul, i, u, p.prog)
    total = p.input(np.ones(w, dtype.numpy))
    popops.reduce_with_output(p.graph, u, total, [0], "sum", p.prog, "r", scale=0.5, update=True)
    wanted = [table.copy() for _ in range(3)]
    np.add.at(wanted[0], index, 2 * updates)
    np.maximum.at(wanted[1], index, updates)
    for row, value in zip(index.tolist(), updates, strict=True):
        wanted[2][row] *= value
    wanted.append((1 + 0.5 * updates.astype(np.float64).sum(0)).astype(dtype.numpy))
    for got, want in zip(p.run(add, top, mul, total), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("axis", [0, 1])
def test_sorts(dtype: DType, axis: int) -> None:
    rng = np.random.default_rng(axis)
    keys = rng.permuted(np.arange(63).reshape(7, 9), axis=None).astype(dtype.numpy)
    values = rng.integers(-99, 99, (7, 9)).astype(np.int32)
    p = Program()
    k, v, k2, v2, k3 = (random_input(p, rng, x) for x in (keys, values, keys, values, keys))
    moved = popops.sort_key_value(p.graph, k, v, axis, p.prog)
    best = popops.top_k_key_value(p.graph, k, v, 3, axis, True, p.prog)
    popops.sort_key_value_in_place(p.graph, k2, v2, axis, p.prog)
    popops.sort_in_place(p.graph, k3, axis, p.prog)
    order = np.argsort(keys, axis)
    ordered, beside = (np.take_along_axis(x, order, axis) for x in (keys, values))
    last = (slice(None),) * axis + (slice(None, -4, -1),)
    wanted = [beside, ordered[last], beside[last], ordered, beside, ordered]
    for got, want in zip(p.run(moved, *best, k2, v2, k3), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [f32, f16])
def test_rows_and_one_hot(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((6, 11)).astype(dtype.numpy)
    index = rng.integers(0, 11, 6).astype(np.int32)
    p = Program()
    r, i = random_input(p, rng, rows), random_input(p, rng, index)
    picked = popops.select_scalar_from_rows(p.graph, r, i, p.prog)
    changed = random_input(p, rng, rows)
    popops.update_scalar_in_rows(
        p.graph, changed, i, p.input(np.arange(6).astype(dtype.numpy)), p.prog
    )
    encoded = p.graph.add_variable(dtype, (6, 11), "encoded", mapping="linear")
    popops.encode_one_hot(p.graph, i, encoded, p.prog, on=2, off=-1)
    turned = popops.partial_transpose(p.graph, r, p.prog)
    want = rows.copy()
    want[np.arange(6), index] = np.arange(6)
    hot = np.where(np.arange(11) == index[:, None], 2, -1).astype(dtype.numpy)
    wanted = [rows[np.arange(6), index], want, hot, rows.T]
    for got, right in zip(p.run(picked, changed, encoded, turned), wanted, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dtype", [f32, f16])
def test_images_slices_histograms(dtype: DType) -> None:
    rng = np.random.default_rng(4)
    image = rng.integers(0, 256, (4, 5, 3)).astype(np.uint8)
    offsets, scales = (rng.uniform(0.1, 1, 3).astype(dtype.numpy) for _ in range(2))
    p = Program()
    made = popops.normalise_image(
        p.graph, p.input(image), 1 / 256, p.input(offsets), p.input(scales), p.prog
    )
    x = rng.standard_normal((6, 8)).astype(dtype.numpy)
    held = p.place(popops.create_sliceable_tensor(p.graph, dtype, (6, 8), (0,)), x)
    out = p.graph.add_variable(dtype, (2, 8), "slice", mapping="linear")
    start = p.input(np.array([3], np.int32))
    popops.dynamic_slice_with_output(p.graph, out, held, start, 0, 2, p.prog)
    levels = np.array([-1, 0, 0.5], dtype.numpy)
    counts = popops.histogram(p.graph, held, p.input(levels), p.prog)
    whole = p.graph.add_variable(i32, (6, 8), "whole", mapping="linear")
    popops.cast_with_output(p.graph, held, whole, p.prog)
    got = p.run(made, out, counts, whole)
    want = (image / 256 - offsets.astype(np.float64)) * scales.astype(np.float64)
    compare(got[0][..., :3], want.astype(dtype.numpy), 2e-3 if dtype is f16 else 1e-6)
    assert not got[0][..., 3].any()
    np.testing.assert_array_equal(got[1], x[3:5])
    np.testing.assert_array_equal(got[2], np.histogram(x, [-np.inf, *levels, np.inf])[0])
    np.testing.assert_array_equal(got[3], x.astype(np.int32))
    assert counts.dtype is u32
