"""Vectors, register arrays and narrow floats of the vertex language, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from forms import compiled

from poplar_py.codegen.run_codelet import run_codelet

F = np.float32


def test_vectors(checked) -> None:
    codelet = compiled(
        """
T = TypeVar("T", f16, f32)
@vertex
class Vectors(Vertex, Generic[T]):
    out: Output[Vector[f32]]
    x: Input[Vector[T]]
    index: Input[Vector[i32]]
    def compute(self):
        n = len(self.x)
        a, b = load16(self.x, 0), load16(self.x, 16, n - 16)
        self.out[0] = sum16(a) + max16(b) * min16(a)
        store16(self.out, 1, select(a < b, a, b))
        store16(self.out, 17, fma(a, b, splat16(1.0)), 5)
        pairs = (0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
        store16(self.out, 22, shuffle(a, b, pairs))
        store16(self.out, 38, gather(self.x, load16(self.index, 0)))
        store16(self.out, 54, f32x16(iota16()) * insert(a, 3, 2.5)[3])
        wide = array(f32, 32)
        store16(wide, 3, a)
        store16(self.out, 70, load16(wide, 1))
        c = load(self.x, 2, 4)
        self.out[86] = sum(c) + c[1]
""",
        "Vectors<half>",
    )
    rng = np.random.default_rng(3)
    x = rng.standard_normal(25).astype(np.float16)
    index = rng.integers(0, 25, 16).astype(np.int32)
    row = {"out": np.zeros(87, F), "x": x, "index": index}
    out = run_codelet(codelet, row, checked=checked)["out"]
    a, b = x[:16].astype(F), np.concatenate([x[16:], np.zeros(7)]).astype(F)
    tree = a.copy()
    while tree.size > 1:
        tree = tree[: tree.size // 2] + tree[tree.size // 2 :]
    np.testing.assert_allclose(out[0], tree[0] + b.max() * a.min(), rtol=1e-6)
    np.testing.assert_array_equal(out[1:17], np.minimum(a, b))
    np.testing.assert_allclose(out[17:22], (a * b + 1)[:5], rtol=1e-6)
    np.testing.assert_array_equal(out[22:38], np.stack([a[:8], b[:8]], 1).ravel())
    np.testing.assert_array_equal(out[38:54], x[index].astype(F))
    np.testing.assert_array_equal(out[54:70], np.arange(16, dtype=F) * F(2.5))
    np.testing.assert_array_equal(out[70:86], np.concatenate([[0, 0], a[:14]]).astype(F))
    np.testing.assert_allclose(out[86], a[2:6].sum() + a[3], rtol=1e-6)


def test_transpose_of_register_arrays(checked) -> None:
    codelet = compiled(
        """
@vertex
class Transpose(Vertex):
    out: Output[Vector[f32]]
    x: Input[Vector[f32]]
    def compute(self):
        acc = array(f32x16, 16)
        for p in unroll(16):
            acc[p] = load16(self.x, p * 16)
        transpose16(acc)
        for p in unroll(16):
            store16(self.out, p * 16, acc[p])
""",
        "Transpose",
    )
    x = np.arange(256, dtype=F)
    out = run_codelet(codelet, {"out": np.zeros(256, F), "x": x}, checked=checked)["out"]
    np.testing.assert_array_equal(out.reshape(16, 16), x.reshape(16, 16).T)


def test_narrow_floats_round_once_per_operation(checked) -> None:
    import ml_dtypes

    codelet = compiled(
        """
T = TypeVar("T", f16, bf16)
@vertex
class Narrow(Vertex, Generic[T]):
    out: Output[Vector[T]]
    a: Input[Vector[T]]
    b: Input[Vector[T]]
    def compute(self):
        for i in range(len(self.a)):
            self.out[i] = self.a[i] * self.b[i] + self.a[i]
""",
        "Narrow<bfloat16>",
    )
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(300).astype(ml_dtypes.bfloat16) for _ in range(2))
    row = {"out": np.zeros_like(a), "a": a, "b": b}
    got = run_codelet(codelet, row, checked=checked)["out"]
    np.testing.assert_array_equal(got.view(np.uint16), (a * b + a).view(np.uint16))


NUMPY = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
PART = """
@vertex
class Part(Vertex):
    x: Input[Vector[{wide}]]
    y: InOut[Vector[{kind}]]
    n: i32
    def compute(self) -> None:
        store(self.y, 3, {kind}x{lanes}(load(self.x, 1, {lanes}, {n})), {n})
"""


@pytest.mark.parametrize("wide", ["i64", "i32", "i16", "i8"])
@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "u8"])
def test_partial_stores_touch_no_other_lane(checked, kind: str, wide: str) -> None:
    """Lanes narrowed or widened from those loaded, as many as the compiler knows, or not."""
    for lanes, n, count in ((4, "1", 1), (4, "2", 2), (8, "1", 1), (8, "7", 7), (8, "self.n", 1)):
        codelet = compiled(PART.format(wide=wide, kind=kind, lanes=lanes, n=n), "Part")
        x, y = np.arange(2, 14).astype(NUMPY[wide]), np.full(16, 99, NUMPY[kind])
        want = y.copy()
        want[3 : 3 + count] = x[1 : 1 + count]
        row = {"x": x, "y": y, "n": np.array(count, np.int32)}
        got = run_codelet(codelet, row, checked=checked)["y"]
        np.testing.assert_array_equal(got, want)
