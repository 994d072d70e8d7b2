"""Damaged `.pml` text ends in an error of the project, never in a traceback."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from poplar_py.diagnostics import PoplarPyError
from poplar_py.frontends.pml import parse_pml

CASES = Path(__file__).resolve().parents[1] / "filetests" / "pml" / "language.pml"
MODELS = [part.split("\n", 1)[1].split("\n// expect")[0] for part in
          CASES.read_text(encoding="utf-8").split("// ----- ")[1:]]  # fmt: skip
WORDS = """model def param return on ipu repeat as import true false none x y m f f32 f32[2] i32 t
( ) [ ] { } , : ; = -> + - * / // % @ < == != . ... "a" 0 1 2.5 -1 \n relu split concat conv load
zeros reshape shape mean transpose softmax cast select max_pool""".split(" ")


@given(st.sampled_from(MODELS), st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_models(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 6))
        text = text[:at] + data.draw(st.sampled_from(WORDS)) + text[at + cut :]
    with contextlib.suppress(PoplarPyError):
        parse_pml(text, "fuzz.pml", dims={"batch": 2})


@given(st.lists(st.sampled_from(WORDS), max_size=25))
@settings(max_examples=150, deadline=None)
def test_statements_of_any_words(words: list[str]) -> None:
    text = "model m(x: f32[2, 4]) -> y: f32[2, 4] {\n" + " ".join(words) + "\ny = x }"
    with contextlib.suppress(PoplarPyError):
        parse_pml(text, "fuzz.pml")


def calls() -> st.SearchStrategy[str]:
    values = st.sampled_from("x x[0] x[:,1:] 0 -1 2 1.5 true none f16 [] [1,2] [x,x] (-x)".split())
    values |= st.just('"a"')
    names = "relu split concat conv reshape mean transpose softmax cast select max_pool avg_pool "
    names += "gather embedding clip sum flatten stack batch_norm global_avg_pool full shape dim "
    names += "len layer_norm top_k slice pad arg_max expand iota lstm one sqrt matmul scatter "
    names += "cumulative"
    return st.builds(
        lambda n, v: f"{n}({', '.join(v)})",
        st.sampled_from(names.split()),
        st.lists(values, max_size=5),
    )


@given(calls())
@settings(max_examples=400, deadline=None)
def test_calls_with_any_arguments(call: str) -> None:
    text = "model m(x: f32[2, 4]) -> y: f32[2, 4] {\nz = " + call + "\ny = x }"
    with contextlib.suppress(PoplarPyError):
        parse_pml(text, "fuzz.pml")
