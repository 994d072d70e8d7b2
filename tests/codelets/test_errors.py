"""What the vertex language refuses: each with a place and a reason, never a crash."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.codegen.run_codelet import run_codelet
from poplar_py.codelets import CodeletLibrary
from poplar_py.diagnostics import PoplarPyError

HEAD = """T = TypeVar("T", f16, f32)
N = IntParam("N")
@vertex
class V(Vertex, Generic[T, N]):
    y: InOut[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    k: i32
    def compute(self):
"""
FIRST = HEAD.count("\n") + 1

CASES = {
    "x = foo": ("unknown name foo", 5),
    "self.z[0] = 1.0": ("no field z", 1),
    "self.x[0] = self.y[0]": ("is an Input", 1),
    "n = len(self.x)": ("has no length", 5),
    "k = self.k / 2": ("div wants floats", 5),
    "k = 1\n        k = 0.5": ("a float assigned to i32", 5),
    "self.y[0.5] = self.y[0]": ("an index must be an integer", 8),
    "if self.k > 0:\n            q = 1\n        z = q": ("may be unassigned", 5),
    "for i in range(3):\n            i = 2": ("loop variable i cannot be assigned", 5),
    "for i in [1, 2]:\n            break": ("cannot leave an unrolled loop", 1),
    "for i in unroll(self.k):\n            pass": ("must be known at compile time", 17),
    "a = array(f32, 100000)": ("a local array of 400000 bytes", 5),
    "a = array(f32, 4)\n        a[4] = 1.0": ("outside the array of 4", 3),
    "break": ("break outside a loop", 1),
    "x = lambda: 1": ("not in the vertex language", 5),
    "x = [i for i in range(3)]": ("not in the vertex language", 5),
    "import os": ("not in the vertex language", 1),
    "with self.y as f:\n            pass": ("not in the vertex language", 1),
    "try:\n            pass\n        finally:\n            pass": ("not in the vertex language", 1),
    "raise ValueError()": ("not in the vertex language", 1),
    "x = load16(self.k, 0)": ("a field or a row of a field is wanted", 12),
    "x = load16(self.y, 0) + load(self.y, 0, 4)": ("16 and 4 lanes do not mix", 5),
    "if load16(self.y, 0) > 1.0:\n            pass": ("a condition must be a scalar", 4),
    "x = self.y[-1]": ("the index -1 is negative", 12),
    "for v in self.x:\n            pass": ("has no length", 10),
    "x = math.gamma(2.0)": ("no math.gamma", 5),
    "x = fma(1.0, 2.0)": ("3 arguments are wanted", 5),
    "x = min(self.k, b=3)": ("keyword arguments", 5),
    "x = self.y": ("", 0),
    "x = self.y + 1.0": ("is no number here", 5),
    "x = 'text'\n        self.k = x": ("a string is no number", 10),
    "x = 1 << 5000": ("too large", 5),
    "x = 1 // 0": ("compile-time arithmetic", 5),
    "x = 123456789012345678901234567890": ("does not fit in 64 bits", 5),
    "x = self.k.real": ("only attributes of self", 5),
    "x: f32": ("a local needs a first value", 1),
    "BIG = self.k": ("in capitals", 7),
    "helper(self.y)": ("unknown name helper", 1),
    "assert N == 3, 'N must be 3'": ("N must be 3", 1),
    "x = cast(self.k, 3)": ("wants a type", 18),
    "x = bitcast(self.k, f16)": ("sizes must be equal", 5),
    "self.y[0] = load16(self.y, 0)": ("cannot become 1 lanes", 13),
    "return load16(self.y, 0)": ("a condition must be a scalar", 8),
    "for i in unroll(1000):\n            for j in unroll(1000):\n                self.k += 1": (
        "unrolls to more than",
        0,
    ),
}


def source(body: str) -> str:
    return HEAD + "        " + body + "\n"


def compile_source(library: CodeletLibrary, text: str) -> None:
    library.add_source(text, "v.py")
    library.get("V<float,2>")


@pytest.mark.parametrize("body", CASES)
def test_refused(body) -> None:
    message, col = CASES[body]
    library = CodeletLibrary()
    if not message:
        library.add_source(source(body), "v.py")
        library.get("V<float,2>")
        return
    with pytest.raises(PoplarPyError) as caught:
        compile_source(library, source(body))
    assert message in caught.value.message
    assert caught.value.loc.file == "v.py"
    if col:
        assert caught.value.loc.line >= FIRST
        assert caught.value.loc.col == 8 + col
        assert "^" in str(caught.value)


def test_recursion_is_refused() -> None:
    text = "def f(n):\n    return g(n)\ndef g(n):\n    return f(n - 1)\n" + source("x = f(self.k)")
    library = CodeletLibrary()
    library.add_source(text, "v.py")
    with pytest.raises(PoplarPyError, match="calls itself"):
        library.get("V<float,2>")


def test_mixed_returns_are_refused() -> None:
    text = "def f(n):\n    if n > 1:\n        return 1\n    return\n" + source("x = f(self.k)")
    with pytest.raises(PoplarPyError, match="one without a value"):
        compile_source(CodeletLibrary(), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class V(Vertex):\n  x = (\n", "syntax"),
        ("class V:\n    pass\n", "is no vertex"),
        ("class V(Vertex):\n    x: Input[f32]\n", "no compute"),
        ("print(1)\n", "not part of the vertex language"),
        ("class V(Vertex, Generic[Q]):\n    def compute(self): pass\n", "template parameters"),
        ("x = " + "(" * 3000 + "1" + ")" * 3000, "too deeply|too many|syntax"),
        ("x = " + "-" * 100000 + "1", "too deeply|syntax"),
        ("\0", "syntax"),
    ],
)
def test_sources_refused(text, message) -> None:
    with pytest.raises(PoplarPyError, match=message):
        CodeletLibrary().add_source(text, "v.py")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("V<float>", "has 2 parameters, found 1"),
        ("V<double,2>", "T cannot be 'double'"),
        ("V<float,x>", "N must be an int"),
        ("V<float,2", "no closing >"),
        ("W<float>", "there is no codelet 'W'"),
        ("popops::Nothing", "there is no codelet"),
    ],
)
def test_names_refused(name, message) -> None:
    library = CodeletLibrary()
    library.add_source(source("pass"), "v.py")
    with pytest.raises(PoplarPyError, match=message):
        library.get(name)


def test_deep_expressions_end_in_an_error() -> None:
    library = CodeletLibrary()
    text = source("x = " + "+".join(["self.k"] * 3000))
    with pytest.raises(PoplarPyError, match="too deeply"):
        compile_source(library, text)


# ---------------------------------------------------------------- checked runs

RUN = """
@vertex
class R(Vertex):
    y: InOut[Vector[f32]]
    rows: Vector[Input[Vector[i32]]]
    p: Input[Vector[f32, ONE_PTR]]
    k: i32
    d: i32
    def compute(self):
        BODY
"""
RUNS = {
    "self.y[self.k] = 1.0": (1, 0, 8),
    "self.y[0] = self.y[-1 - self.k]": (1, 0, -9),
    "store16(self.y, self.k - 12, splat16(1.0))": (1, 0, -4),
    "store16(self.y, 0, splat16(1.0), self.k + 1)": (1, 0, 0),
    "self.y[0] = f32(self.rows[self.k - 6][0])": (1, 1, 2),
    "row = self.rows[1]\n        self.y[0] = f32(row[self.k])": (1, 1, 8),
    "self.y[0] = self.p[100000 * self.k]": (1, 2, 800000),
    "self.d = self.k // self.d": (2, -1, 8),
    "self.d = self.k % self.d": (2, -1, 8),
    "self.d = (-2147483647 - 1) // (self.d - 1)": (3, -1, -(1 << 31)),
    "a = array(i32, 4)\n        a[self.k] = 3\n        self.d = a[self.k - 8]": (1, -1, 8),
    "abort_if(self.k == 8)": (6, -1, 0),
    "assert self.k < 3": (6, -1, 0),
}


def compile_run(body: str):
    library = CodeletLibrary()
    library.add_source(RUN.replace("BODY", body), "r.py")
    return library.get("R")


@pytest.mark.parametrize("body", RUNS)
def test_checked_code_reports(body) -> None:
    code, number, index = RUNS[body]
    codelet = compile_run(body)
    row = {
        "y": np.zeros(8, np.float32),
        "rows": [np.zeros(2, np.int32), np.zeros(3, np.int32)],
        "p": np.zeros(4, np.float32),
        "k": 8,
        "d": np.zeros(1, np.int32) if "self.d =" in body else 0,
    }
    result = run_codelet(codelet, row, checked=True)
    assert result.ctx[0] == 1
    assert result.ctx[1] == code
    assert result.ctx[2] != 0
    assert (result.ctx[3], result.ctx[4]) == (number, index)
    assert result.ctx[7] == 10 if "\n" not in body else result.ctx[7] >= 10


def test_unchecked_division_never_traps() -> None:
    codelet = compile_run("self.d = self.k // self.d + (-2147483647 - 1) // (self.k - 9)")
    row = {
        "y": np.zeros(8, np.float32),
        "rows": [],
        "p": np.zeros(4, np.float32),
        "k": 8,
        "d": np.zeros(1, np.int32),
    }
    assert run_codelet(codelet, row).ctx[1] == 0


@pytest.mark.parametrize(
    "body",
    [
        "while self.k > 0:\n            self.y[0] += 1.0",
        "for i in range(1000000000):\n            self.y[0] += 1.0",
        "for i in range(100000):\n            for j in range(100000):\n                self.y[0] "
        "+= 1.0",
    ],
)
def test_checked_loops_stop(body) -> None:
    import threading
    import time

    from poplar_py.codegen.emit import emit_kernel
    from poplar_py.codegen.run_codelet import KERNEL_TYPE as kernel_type
    from poplar_py.codegen.run_codelet import Arena, build_row, jit_for

    codelet = compile_run(body)
    arena = Arena()
    values = {
        "y": np.zeros(8, np.float32),
        "rows": [],
        "p": np.zeros(4, np.float32),
        "k": 8,
        "d": 0,
    }
    table = np.array(build_row(codelet, values, arena, False), np.uint32)
    base, ctx = arena.finish(), np.zeros(8, np.int64)
    symbol, text = emit_kernel(codelet, checked=True)
    function = kernel_type(jit_for().load({symbol: text})[symbol])
    args = (base.ctypes.data, table.ctypes.data, 1, ctx.ctypes.data)
    thread = threading.Thread(target=function, args=args)
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
    begin = time.perf_counter()
    ctx[0] = 1
    thread.join(5)
    assert not thread.is_alive()
    assert time.perf_counter() - begin < 1.0
