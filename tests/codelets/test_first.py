"""A ScaledAdd from source to machine code, over a hand-made table."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.codegen.run_codelet import run_codelet
from poplar_py.codelets import CodeletLibrary

SOURCE = """
T = TypeVar("T", f16, f32)
N = IntParam("N")

@vertex
class ScaledAdd(Vertex, Generic[T]):
    y: InOut[Vector[T]]
    x: Input[Vector[T]]
    scale: f32

    def compute(self) -> bool:
        for i in range(len(self.y)):
            self.y[i] += cast(self.scale * f32(self.x[i]), T)
        return True

@vertex
class MatMul(Vertex, Generic[N]):
    out: Output[Vector[f32, ONE_PTR]]
    x: Input[Vector[f32, ONE_PTR]]
    w: Vector[Input[Vector[f32, ONE_PTR]]]

    def compute(self):
        acc = array(f32x16, N)
        for j in range(len(self.w)):
            w = self.w[j]
            for c in range(16):
                v = load16(w, c * 16)
                for p in unroll(N):
                    acc[p] = fma(v, splat16(self.x[(j * N + p) * 16 + c]), acc[p])
        for p in unroll(N):
            store16(self.out, p * 16, acc[p])
"""


@pytest.fixture(scope="module")
def library() -> CodeletLibrary:
    library = CodeletLibrary()
    library.add_source(SOURCE, "first.py")
    return library


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [("half", np.float16), ("float", np.float32)])
def test_scaled_add(library, name, dtype, checked, wide) -> None:
    codelet = library.get(f"ScaledAdd<{name}>")
    rng = np.random.default_rng(1)
    rows = []
    for n in (37, 0, 16, 1):
        y, x = (rng.standard_normal(n).astype(dtype) for _ in range(2))
        rows.append({"y": y, "x": x, "scale": 0.5})
    result = run_codelet(codelet, rows, checked=checked, wide=wide)
    want = rows[0]["y"] + (np.float32(0.5) * rows[0]["x"].astype(np.float32)).astype(dtype)
    assert result.code == 1
    np.testing.assert_array_equal(result["y"], want.astype(dtype))


@pytest.mark.parametrize("checked", [False, True])
def test_rank_two_fields_and_register_arrays(library, checked) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 2, 16)).astype(np.float32)
    w = rng.standard_normal((3, 16, 16)).astype(np.float32)
    row = {"out": np.zeros(32, np.float32), "x": x, "w": list(w)}
    result = run_codelet(library.get("MatMul<2>"), [row, row], checked=checked)
    want = np.einsum("jpc,jco->po", x, w)
    np.testing.assert_allclose(result["out"].reshape(2, 16), want, rtol=1e-5, atol=1e-5)
