"""The compiler and its cache: damaged entries, read-only folders, unknown CPUs, machine code."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from poplar_py.codegen.emit import emit_kernel, kernel_symbol
from poplar_py.codegen.jit import Jit
from poplar_py.codegen.run_codelet import jit_for, run_codelet
from poplar_py.codelets import CodeletLibrary
from poplar_py.codelets import instantiate as instantiate_module
from poplar_py.diagnostics import InternalError, OptionError

SOURCE = """
T = TypeVar("T", f16, f32)
R = IntParam("R")
NB = IntParam("NB")

@vertex
class Block(Vertex, Generic[R, NB]):
    out: Vector[Output[Vector[f32, ONE_PTR]]]
    x: Vector[Input[Vector[f32, ONE_PTR]]]
    w: Vector[Input[Vector[f32, ONE_PTR]]]
    def compute(self):
        acc = array(f32x16, R * NB)
        for j in range(len(self.x)):
            w = self.w[j]
            x = self.x[j]
            for c0 in range(0, 16, 2):
                for u in unroll(2):
                    wv = array(f32x16, NB)
                    for nb in unroll(NB):
                        wv[nb] = load16(w, nb * 256 + (c0 + u) * 16)
                    for p in unroll(R):
                        s = splat16(x[p * 16 + c0 + u])
                        for nb in unroll(NB):
                            acc[nb * R + p] = fma(wv[nb], s, acc[nb * R + p])
        for nb in unroll(NB):
            for p in unroll(R):
                store16(self.out[nb], p * 16, tanh(acc[nb * R + p]))

@vertex
class Axpy(Vertex, Generic[T]):
    y: InOut[Vector[T]]
    x: Input[Vector[T]]
    a: f32
    def compute(self):
        for i in range(len(self.y)):
            self.y[i] += cast(self.a * f32(self.x[i]), T)
"""


@pytest.fixture(scope="module")
def library() -> CodeletLibrary:
    library = CodeletLibrary()
    library.add_source(SOURCE, "jit.py")
    return library


def test_register_blocks_keep_their_sums_in_registers(library) -> None:
    """The inner loop has R x NB fused products and touches no stack."""
    jit = jit_for()
    if "avx512f" not in jit.features.replace("-avx512f", ""):
        pytest.skip("wants 32 vector registers")
    codelet = library.get("Block<12,2>")
    assembly = jit.assembly(emit_kernel(codelet, checked=False)[1])
    loops = re.findall(r"\n(\.LBB\d+_\d+):(.*?)\tj\w+\t\1\n", assembly, re.DOTALL)
    inner = [body for _, body in loops if body.count("vfmadd") >= 48]
    assert min(body.count("vfmadd") for body in inner) == 48
    body = min(inner, key=len)
    assert "rsp" not in body
    assert "rbp" not in body
    assert len(body.strip().split("\n")) <= 48 + 24 + 4 + 20  # products, broadcasts, weights, loop


def test_plain_loops_are_vectorised(library) -> None:
    for name in ("Axpy<float>", "Axpy<half>"):
        assembly = jit_for().assembly(emit_kernel(library.get(name), checked=False)[1])
        assert re.search(r"v(mulps|cvtph2ps)\t.*[yz]mm|fmul\tv", assembly)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_bits_do_not_depend_on_the_cpu(library, cpu) -> None:
    try:
        jit_for(cpu)
    except OptionError:
        pytest.skip(f"no {cpu} here")
    rng = np.random.default_rng(1)
    row = {
        "out": [np.zeros(64, np.float32)] * 2,
        "x": list(rng.standard_normal((3, 64)).astype(np.float32)),
        "w": list((rng.standard_normal((3, 512)) / 7).astype(np.float32)),
    }
    codelet = library.get("Block<4,2>")
    want = run_codelet(codelet, row)["out"]
    for options in ({"cpu": cpu}, {"checked": True}, {"checked": True, "cpu": cpu}):
        got = run_codelet(codelet, row, **options)["out"]
        np.testing.assert_array_equal(got, want)
    for name, dtype in (("Axpy<float>", np.float32), ("Axpy<half>", np.float16)):
        y, x = (rng.standard_normal(53).astype(dtype) for _ in range(2))
        row = {"y": y, "x": x, "a": 0.3}
        want = run_codelet(library.get(name), row)["y"]
        for options in ({"cpu": cpu}, {"checked": True}):
            np.testing.assert_array_equal(run_codelet(library.get(name), row, **options)["y"], want)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.o"))


def test_objects_come_from_the_cache_and_damage_is_repaired(library, tmp_path) -> None:
    codelet = library.get("Axpy<float>")
    symbol = kernel_symbol(codelet, checked=True)

    def load() -> Jit:
        jit = Jit(cache_dir=tmp_path)
        jit.load({symbol: lambda: emit_kernel(codelet, checked=True)[1]})
        return jit

    assert (load().compiled, load().cached) == (1, 1)
    for damage in (b"", b"x" * 1000, entries(tmp_path)[0].read_bytes()[:-1]):
        for path in entries(tmp_path):
            path.write_bytes(damage)
        assert load().compiled == 1
        assert load().cached == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written_is_no_error(library, tmp_path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    jit = Jit(cache_dir=blocked)
    symbol, text = emit_kernel(library.get("Axpy<float>"), checked=False)
    assert jit.load({symbol: text})[symbol] != 0


def test_lowered_codelets_come_from_the_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("POPLAR_PY_CACHE_DIR", str(tmp_path))

    def get():
        library = CodeletLibrary()
        library.add_source(SOURCE, "jit.py")
        return library.get("Block<4,1>")

    first = get()
    monkeypatch.setattr(instantiate_module, "instantiate", None)
    again = get()
    assert again.digest == first.digest
    assert again.fields == first.fields
    assert again.code_bytes == first.code_bytes
    sizes = {"out": np.array([1, 1]), "x": np.array([2, 5]), "w": np.array([2, 5])}
    np.testing.assert_array_equal(again.cycles(sizes, {}), first.cycles(sizes, {}))
    assert emit_kernel(again, checked=True) == emit_kernel(first, checked=True)
    for path in (tmp_path / "codelets").iterdir():
        path.write_bytes(os.urandom(100))
    monkeypatch.undo()
    monkeypatch.setenv("POPLAR_PY_CACHE_DIR", str(tmp_path))
    assert get().digest == first.digest


def test_wrong_text_and_unknown_cpus() -> None:
    with pytest.raises(InternalError):
        jit_for().load({"f": "define i32 @f() {\n ret i64 1\n}\n"})
    with pytest.raises(InternalError):
        jit_for().load({"g": "declare i32 @pp_nowhere()\ndefine i32 @g() {\n"
                             " %a = call i32 @pp_nowhere()\n ret i32 %a\n}\n"})  # fmt: skip
    with pytest.raises(OptionError):
        Jit("pentium9")
