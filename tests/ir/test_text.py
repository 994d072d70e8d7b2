"""Text form: random graphs come back byte for byte; files, resources, speed."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poplar_py.ops
from poplar_py import ir
from poplar_py.diagnostics import (
    FileError,
    Location,
    NestingTooDeep,
    ParseError,
    PoplarPyError,
    quote_name,
)
from poplar_py.ir.attributes import attribute_text, parse_type, unquote
from poplar_py.ir.locations import parse_location
from poplar_py.ir.printer import collect_resources
from poplar_py.ops import elementwise as ew
from poplar_py.ops.core import Constant, If
from poplar_py.types import DTYPES, TensorType, bool_, f32

assert poplar_py.ops

NAMES = st.text(max_size=8) | st.sampled_from(["x", "x_1", "12", "a/b:0", "%0", "loc(", '"'])
DTYPE = st.sampled_from(list(DTYPES.values()))


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of all element types with any bits (bool: 0 and 1)."""
    dtype = draw(DTYPE)
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    count = int(np.prod(shape))
    if dtype is bool_:
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.integers(0, 256, count * dtype.size, dtype=np.uint8)
    return raw.view(dtype.numpy).reshape(shape)


@st.composite
def modules(draw: st.DrawFn) -> ir.Module:
    """Graphs of unary and binary ops, constants and ifs over f32[n]."""
    kind = TensorType(f32, (draw(st.sampled_from([3, "n", "dim of x"])),))
    graph = ir.Graph("main")
    pool = [graph.add_input(kind, f"in{i}") for i in range(draw(st.integers(1, 3)))]
    flag = graph.add_input(TensorType(bool_, ()), "flag")
    loc = Location(draw(st.sampled_from(["a.pml", 'b "c".onnx'])), 3, 4)
    b = ir.Builder(graph, loc)
    for _ in range(draw(st.integers(0, 8))):
        pick = st.sampled_from(pool)
        choice = draw(st.integers(0, 3))
        if choice == 0:
            pool.append(b.add(ew.Add, draw(pick), draw(pick), name=draw(NAMES)))
        elif choice == 1:
            pool.append(b.add(ew.Exp, draw(pick), ipu=draw(st.integers(0, 3))))
        elif choice == 2:
            b.constant(draw(arrays()), name=draw(NAMES))
        else:
            inner = ir.Graph()
            inner.outputs = [ir.Builder(inner).add(ew.Neg, draw(pick), name=draw(NAMES))]
            other = ir.Graph(outputs=[draw(pick)])
            pool.append(b.add(If, flag, inner, other, name=draw(NAMES)))
    graph.add_output(pool[-1], "result")
    return ir.Module("m", [graph])


@given(modules())
@settings(max_examples=60, deadline=None)
def test_print_parse_print(module: ir.Module) -> None:
    ir.verify(module)
    resources = collect_resources(module)
    text = ir.print_module(module)
    again = ir.parse_module(text, "x.pir", resources)
    ir.verify(again)
    assert ir.print_module(again) == text
    assert ir.print_module(ir.clone_module(module)) == text


@given(arrays())
@settings(max_examples=80, deadline=None)
def test_array_bits_survive(array: np.ndarray) -> None:
    graph = ir.Graph("main", ops=[Constant(array)])
    graph.add_output(graph.ops[0].result, "y")
    text = ir.print_module(ir.Module("m", [graph]), inline_resources=True)
    again = ir.parse_module(text).main.ops[0]
    assert isinstance(again, Constant)
    assert again.value.dtype == array.dtype
    assert again.value.tobytes() == array.tobytes()


@given(st.text(max_size=12), st.integers(0, 99), st.integers(-1, 5), st.text(max_size=5))
def test_locations(name: str, line: int, index: int, output: str) -> None:
    loc = Location("dir/a b.onnx", line, 7 if line else 0, name, index, output)
    assert parse_location(f"loc({loc})") == loc
    assert unquote(quote_name(name)) == name


def test_types() -> None:
    for text in ("f32[]", "i64[1,n,3]", 'bool["a b",2]', 'f16["]"]'):
        assert str(parse_type(text)) == text
    for text in ("f32", "f32[", "f31[2]", "f32[-1]", "f32[2,]x"):
        with pytest.raises(ParseError):
            parse_type(text)


def test_numbers_keep_their_kind() -> None:
    assert [attribute_text(v) for v in (1, 1.0, True, -0.0, 1e300, None)] == [
        "1", "1.0", "true", "-0.0", "1e+300", "none",
    ]  # fmt: skip


def test_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graph = ir.Graph("main")
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int8):
        graph.ops.append(Constant(rng.integers(-9, 9, (5, 7)).astype(dtype)))
        graph.add_output(graph.ops[-1].result, np.dtype(dtype).name)
    module = ir.Module("m", [graph])
    path = tmp_path / "m.pir"
    ir.save_pir(module, path)
    assert len(list((tmp_path / "resources").iterdir())) == 3
    assert ir.print_module(ir.load_pir(path)) == ir.print_module(module)
    ir.save_pir(module, tmp_path / "one.pir", inline_resources=True)
    assert "base64" not in (tmp_path / "one.pir").read_text()
    assert ir.print_module(ir.load_pir(tmp_path / "one.pir")) == ir.print_module(module)


def test_damaged_resources(tmp_path: Path) -> None:
    graph = ir.Graph("main", ops=[Constant(np.arange(40, dtype=np.float32))])
    graph.add_output(graph.ops[0].result, "y")
    ir.save_pir(ir.Module("m", [graph]), tmp_path / "m.pir")
    (file,) = (tmp_path / "resources").iterdir()
    for damage in (b"", b"nonsense", file.read_bytes()[:-4], file.read_bytes()[:-4] + b"oops"):
        file.write_bytes(damage)
        with pytest.raises(FileError):
            ir.load_pir(tmp_path / "m.pir")
    file.unlink()
    with pytest.raises(FileError, match="cannot read"):
        ir.load_pir(tmp_path / "m.pir")


def test_huge_array_is_not_stored(tmp_path: Path) -> None:
    wide = np.broadcast_to(np.float32(2), (1 << 20, 1 << 20))
    graph = ir.Graph("main", ops=[Constant(wide)])
    graph.add_output(graph.ops[0].result, "y")
    text = ir.print_module(ir.Module("m", [graph]))
    assert "dense<splat 2.0>" in text
    assert ir.print_module(ir.parse_module(text)) == text


def test_speed() -> None:
    graph = ir.Graph("main")
    value = graph.add_input(TensorType(f32, (8, 8)), "x")
    b = ir.Builder(graph, Location("model.onnx", 0, 0, "node", 1, "y"))
    for _ in range(500):
        value = b.add(ew.Add, b.add(ew.Exp, value), value)
    graph.add_output(value, "y")
    module = ir.Module("m", [graph])
    ir.parse_module("module @m")
    begin = time.perf_counter()
    again = ir.parse_module(ir.print_module(module))
    ir.verify(again)
    assert time.perf_counter() - begin < 2.0
    assert len(again.main.ops) == 1000


def garbage() -> st.SearchStrategy[str]:
    words = ["module", "@m", "graph", "(", ")", "%x", ":", "f32[2]", "{", "}", "return", "->", "="]
    words += ["math.exp", "dense<1>", "loc(", "sha256:", '"', "\n", "1e9", "[", "none", "é"]
    return st.lists(st.sampled_from(words), max_size=30).map(" ".join)


@given(garbage() | st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_garbage_is_an_error(text: str) -> None:
    with contextlib.suppress(PoplarPyError):
        ir.parse_module(text)


@pytest.mark.parametrize(
    "text",
    [
        "module @m {a = " + "[" * 10_000,
        "module @m\ngraph @main(%c: bool[]) -> (c: bool[]) {\n"
        + "%x: bool[] = core.if(%c) then_branch() {\n" * 10_000,
    ],
)
def test_deep_nesting(text: str) -> None:
    with pytest.raises(NestingTooDeep):
        ir.parse_module(text)
