"""`.pml` files: imports, weights, initialisers, limits."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from poplar_py import ir
from poplar_py.diagnostics import NestingTooDeep, ParseError, PoplarPyError, TypeMismatch
from poplar_py.eval import evaluate
from poplar_py.frontends.pml import load_pml, parse_pml, read_pml
from poplar_py.ops.core import Constant

HEAD = "model m(x: f32[4]) -> y: f32[4] {\n"


def body(statements: str) -> ir.Module:
    return parse_pml(f"{HEAD}{statements}\n}}\n", "m.pml")


def weight(text: str, dtype: str = "f32", dims: str = "64, 64") -> np.ndarray:
    module = body(f"param w: {dtype}[{dims}] = {text}\ny = x")
    (constant,) = (op for op in module.main.ops if isinstance(op, Constant))
    return constant.value


def test_initialisers() -> None:
    assert not weight("zeros").any()
    assert (weight("ones()") == 1).all()
    assert (weight("constant(2.5)") == np.float32(2.5)).all()
    wide = weight("normal(std=2.0)")
    assert abs(wide.mean()) < 0.1
    assert 1.9 < wide.std() < 2.1
    flat = weight("uniform(-1, 3)")
    assert flat.min() >= -1
    assert flat.max() < 3
    assert 0.9 < flat.mean() < 1.1
    bound = np.sqrt(6 / 128)
    glorot = weight("glorot_uniform()")
    assert np.abs(glorot).max() <= bound
    assert np.abs(glorot).max() > 0.9 * bound
    assert 0.95 < weight("he_normal()").std() / np.sqrt(2 / 64) < 1.05
    assert weight("uniform()", "f16").dtype == np.float16
    assert (weight("7", "i32") == 7).all()


def test_initialisers_never_change() -> None:
    """These numbers are part of what a model means."""
    np.testing.assert_array_equal(weight("uniform()").reshape(-1)[:3], FIRST_UNIFORM)
    np.testing.assert_allclose(weight("normal()").reshape(-1)[:3], FIRST_NORMAL, rtol=1e-6)
    assert not np.array_equal(weight("uniform(seed=1)"), weight("uniform()"))


FIRST_UNIFORM = np.array([0.29099092, 0.2735262, 0.82433087], np.float32)
FIRST_NORMAL = np.array([0.6044221, -0.5678448, -0.6897452], np.float32)


def test_weights_from_files(tmp_path: Path) -> None:
    w = np.arange(8, dtype=np.float64).reshape(2, 4)
    np.savez(tmp_path / "w.npz", a=w, b=w.T[:, :1])
    np.save(tmp_path / "one.npy", np.float32([[1], [2]]))
    (tmp_path / "m.pml").write_text(
        "model m(x: f32[3, 4]) -> y: f32[3, 2] {\n"
        '    param a: f32[2, 4] = load("w.npz", "a")\n'
        '    param c: f32[2, 1] = load("one.npy")\n'
        "    y = x @ transpose(a) + c[:, 0]\n}\n"
    )
    module = load_pml(tmp_path / "m.pml")
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(evaluate(module.main, [x])[0], x @ w.T.astype("f4") + [1, 2])
    source = (tmp_path / "m.pml").read_text()
    for old, new, message in (
        ('"a")', '"z")', "has no array 'z'"),
        ("a: f32[2, 4]", "a: f32[4, 2]", r"shape \[2, 4\]"),
        ('"w.npz"', '"/etc/passwd"', "outside the folder"),
        ('"one.npy"', '"m.pml"', "cannot read 'm.pml'"),
        ("c: f32[2, 1]", "c: i32[2, 1]", "does not fit the element type i32"),
    ):
        with pytest.raises(PoplarPyError, match=message):
            parse_pml(source.replace(old, new), str(tmp_path / "m.pml"))


def test_imports(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.pml").write_text('import "b.pml"\ndef f(x) { return g(x) + 1 }\n')
    (tmp_path / "sub" / "b.pml").write_text("def g(x) { return x * 2 }\n")
    main = tmp_path / "m.pml"
    main.write_text(f'import "sub/a.pml"\nimport "sub/b.pml"\n{HEAD}y = f(g(x))\n}}\n')
    module = load_pml(main)
    np.testing.assert_array_equal(evaluate(module.main, [np.ones(4, np.float32)])[0], [5] * 4)
    assert module.main.ops[1].loc.file == str(tmp_path / "sub" / "b.pml")
    (tmp_path / "sub" / "b.pml").write_text('import "a.pml"\ndef g(x) { return x }\n')
    with pytest.raises(PoplarPyError, match=r"a\.pml -> b\.pml -> a\.pml"):
        load_pml(main)
    (tmp_path / "sub" / "b.pml").write_text("def f(x) { return x }\n")
    with pytest.raises(PoplarPyError, match="two functions f"):
        load_pml(main)
    main.write_text(f'import "../other.pml"\n{HEAD}y = x\n}}\n')
    with pytest.raises(PoplarPyError, match="outside the folder") as caught:
        load_pml(main)
    assert caught.value.loc.line == 1


def test_several_models() -> None:
    text = "model a(x: f32[2]) -> y: f32[2] { y = x }\nmodel b(x: f32[3]) -> y: f32[3] { y = x }\n"
    assert parse_pml(text, model="b").main.inputs[0].shape == (3,)
    for name, message in (("", "several models"), ("c", "no model c")):
        with pytest.raises(PoplarPyError, match=message):
            parse_pml(text, model=name)


def test_dims_are_bound_while_building() -> None:
    text = (
        "model m(x: f32[n, 4]) -> y: f32[n * 2] {\n"
        "    param w: f32[4, n] = ones\n    y = concat([mean(x @ w, 0), mean(x @ w, 1)])\n}\n"
    )
    module = parse_pml(text, dims={"n": 3})
    assert module.main.outputs[0].shape == (6,)
    with pytest.raises(PoplarPyError, match="free dims"):
        parse_pml(text)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "x" + ")" * 10_000,
        "-" * 10_000 + "x",
        "-(" * 5_000 + "x" + ")" * 5_000,
        "relu(" * 5_000 + "x" + ")" * 5_000,
        "[" * 10_000,
        "x[" * 10_000,
    ],
)
def test_deep_nesting(expression: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(NestingTooDeep) as caught:
        body(f"y = {expression}")
    assert time.perf_counter() - begin < 2.0
    assert caught.value.loc.line == 2
    assert caught.value.loc.col > 256
    assert len(str(caught.value)) < 1000


def test_depth_256_is_fine() -> None:
    deep = 250
    assert len(body("y = " + "-(" * 120 + "x" + ")" * 120).main.ops) == 120
    assert len(body("y = " + "relu(" * deep + "x" + ")" * deep).main.ops) == deep
    assert len(body("y = x" + " + x" * 3000).main.ops) == 3000
    nested = "".join(f"def f{i}(x) {{ return f{i + 1}(x) }}\n" for i in range(deep))
    text = f"{nested}def f{deep}(x) {{ return -x }}\n{HEAD}y = f0(x)\n}}\n"
    assert len(parse_pml(text).main.ops) == 1


@pytest.mark.parametrize(
    "statements",
    [
        "repeat 1000000 { y = x }",
        "repeat 100000 { repeat 100000 { k = 1 } }",
        "repeat 100000 { x = relu(x) }\ny = x",
        "y = x + 2 * 99999999999999999999999999999999999999999999",
        "k = 1\nrepeat 100 { k = k * 1000000000 }\ny = x",
        "y = x[9]",
        "y = x[0, 0]",
        "y = reshape(x, [-1, -1])",
        "y = reshape(x, [3])",
        "y = 1 / 0",
    ],
)
def test_limits(statements: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(PoplarPyError):
        body(statements)
    assert time.perf_counter() - begin < 10.0


def test_every_builtin_has_a_docstring() -> None:
    from poplar_py.frontends.pml.builtins import BUILTINS

    assert all(fn.__doc__ or name == "square" for name, fn in BUILTINS.items())


def test_declared_types() -> None:
    text = "model m(x: f32[n, 4]) -> (y: f32[n, 4], z: f32[n * 2]) { y = x\n z = x[:, 0] }"
    source = read_pml(text)
    assert str(source.inputs) == "{'x': f32[n,4]}"
    assert str(source.outputs) == "{'y': f32[n,4]}"
    with pytest.raises(PoplarPyError, match="no size to compute"):
        source.build()


@pytest.mark.parametrize("name", ["/etc/passwd", "../../other.pml", "sub/../../x.pml"])
def test_imports_stay_in_the_folder(name: str, tmp_path: Path) -> None:
    main = tmp_path / "m.pml"
    main.write_text(f'import "{name}"\n{HEAD}y = x\n}}\n')
    with pytest.raises(PoplarPyError, match="lies outside the folder") as caught:
        load_pml(main)
    assert caught.value.loc.short.endswith("m.pml:1:8")


@pytest.mark.parametrize("given", ['"a"', "[1, 2]", "x"])
@pytest.mark.parametrize("called", ["normal", "uniform", "glorot_uniform", "he_normal"])
def test_initialisers_take_numbers(called: str, given: str) -> None:
    with pytest.raises(TypeMismatch, match="must be a number") as caught:
        body(f"param w: f32[4] = {called}({given})\ny = x + w")
    assert caught.value.loc.line == 2


@pytest.mark.parametrize(
    "text",
    [
        "return x\ny = x",
        "on ipu 0 { return x }\ny = x",
        "on ipu 0 { on ipu 1 { return x } }\nparam w: f32[4] = ones",
        "on ipu 0 { return x\ny = x }",
    ],
)
def test_nothing_follows_return(text: str) -> None:
    with pytest.raises(ParseError, match="never runs") as caught:
        body(text)
    assert caught.value.loc.line == 3
    with pytest.raises(ParseError, match="never runs"):  # in a function that nobody calls as well
        parse_pml(f"def f(x) {{ {text} }}\n{HEAD}y = x\n}}")


def test_numbers_without_digits() -> None:
    module = body("param w: f32[4] = constant(-inf)\ny = max(x + w, -inf) + inf * nan")
    (out,) = evaluate(module.main, {"x": np.ones(4, np.float32)})
    assert np.isnan(out).all()
    assert (weight("constant(-inf)", "f16") == -np.inf).all()
    assert len(body("inf = x\ny = inf + nan").main.ops) == 2
    with pytest.raises(ParseError, match="write inf") as caught:
        body("y = x + 1e999")
    assert caught.value.loc.line == 2
    with pytest.raises(PoplarPyError, match=r"out of range for f16"):
        weight("constant(1e9)", "f16")
    with pytest.raises(TypeMismatch, match="does not fit the element type i32"):
        weight("constant(inf)", "i32")


def test_inputs_know_where_they_are_declared() -> None:
    module = parse_pml("model m(x: f32[4],\n  z: f32[4]) -> y: f32[4] {\ny = x * z\n}", "m.pml")
    assert [v.loc.short for v in ir.clone_module(module).main.inputs] == ["m.pml:1:9", "m.pml:2:3"]
