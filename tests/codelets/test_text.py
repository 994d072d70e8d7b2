"""The text form: damaged text ends in an error or in code that compiles."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from poplar_py.codegen.emit import emit_kernel
from poplar_py.codegen.run_codelet import jit_for, run_codelet
from poplar_py.codelets import Codelet, CodeletLibrary, map_codelet
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet
from poplar_py.codelets.language import Generic, InOut, Input, TypeVar, Vector, Vertex, f16, f32
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import DTYPES

T = TypeVar("T", f16, f32)
FACTOR = 3.0


def twice(x):
    return x * FACTOR


class Scale(Vertex, Generic[T]):
    y: InOut[Vector[T]]
    x: Input[Vector[T]]

    def compute(self):
        for i in range(len(self.y)):
            if self.x[i] > 0.0:
                self.y[i] += twice(self.x[i])


def test_a_python_class_is_a_source() -> None:
    library = CodeletLibrary()
    assert library.add_class(Scale) == "Scale"
    x = np.array([1, -2, 3], np.float32)
    result = run_codelet(library.get("Scale<float>"), {"y": x.copy(), "x": x}, checked=True)
    assert result["y"].tolist() == [4, -2, 12]
    assert library.get("Scale<float>").ir.file == __file__


def test_a_class_inside_a_function_is_a_source_too() -> None:
    class Inner(Vertex, Generic[T]):
        y: InOut[Vector[T]]

        def compute(self):
            for i in range(len(self.y)):
                self.y[i] = twice(self.y[i])

    library = CodeletLibrary()
    library.add_class(Inner)
    y = np.array([1, 2], np.float16)
    assert run_codelet(library.get("Inner<half>"), {"y": y})["y"].tolist() == [3, 6]


def test_sources_that_cannot_be_had(tmp_path) -> None:
    library = CodeletLibrary()
    with pytest.raises(PoplarPyError, match="not available"):
        library.add_class(int)
    with pytest.raises(PoplarPyError, match="cannot read"):
        library.add_file(tmp_path / "nothing.py")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PoplarPyError, match="no UTF-8"):
        library.add_file(tmp_path / "bytes.py")
    library.add_class(Scale)
    with pytest.raises(PoplarPyError, match="exists already"):
        library.add_class(Scale)


def texts() -> list[str]:
    types = DTYPES["f16"], DTYPES["f32"]
    names = [
        ("select(lt($0,c(0)),mul($1,c(0.1)),exp($0))", types, ("full", "row")),
        ("cast(pow($0,$1),i8)", (DTYPES["f64"],) * 2, ("full", "col")),
        ("fmod($0,$1)", (DTYPES["i64"],) * 2, ("full", "scalar")),
    ]
    library = CodeletLibrary()
    library.add_class(Scale)
    made = [map_codelet(text, dtypes, None, modes) for text, dtypes, modes in names]
    return [print_codelet(c.ir) for c in (*made, library.get("Scale<half>"))]


TOKEN = re.compile(r"\s+|[A-Za-z_][\w.]*|-?\d[\w.+-]*|\"[^\"]*\"|.")
WORDS = (
    "f16 f32 f64 i8 u64 bool f32x16 f16x16 boolx16 i32x3 add mul eq not cast shl exp 1 -1 0 64"
).split()


def damaged(text: str, rng: random.Random) -> str:
    tokens = TOKEN.findall(text)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(tokens))
        kind = rng.random()
        if kind < 0.6:
            words = [k for k, t in enumerate(tokens) if re.match(r"[\w-]", t)]
            tokens[rng.choice(words)] = rng.choice(WORDS)
        elif kind < 0.8:
            del tokens[at]
        else:
            tokens.insert(at, rng.choice(tokens))
    return "".join(tokens)


def test_damaged_text() -> None:
    rng = random.Random(1)
    base = texts()
    compiled, places = 0, []
    for _ in range(600):
        text = damaged(rng.choice(base), rng)
        try:
            ir = parse_codelet(text)
        except PoplarPyError as error:
            places.append(error.loc)
            continue
        assert print_codelet(parse_codelet(print_codelet(ir))) == print_codelet(ir)
        _, llvm = emit_kernel(Codelet(ir), checked=True)
        jit_for().compile(llvm)
        compiled += 1
    assert compiled > 10
    assert all(p.known for p in places)


def test_unknown_layouts_are_refused() -> None:
    text = next(t for t in texts() if " rank 1" in t)
    wrong = text.replace(" rank 1", " rank 1 layout one_1tr", 1)
    with pytest.raises(PoplarPyError, match="'one_1tr' is no layout; layouts are"):
        parse_codelet(wrong)


@pytest.mark.parametrize("text", ["", "codelet", 'codelet "x" vertex {', "\0", "x" * 100000, '"'])
def test_no_text_crashes(text) -> None:
    with pytest.raises(PoplarPyError):
        parse_codelet(text)
    with pytest.raises(PoplarPyError):
        parse_codelet('codelet "x" vertex {} do {' + "loop {" * 5000)
    with pytest.raises(PoplarPyError):
        parse_codelet('codelet "x" vertex {} do { return ' + "not: bool(" * 5000)
