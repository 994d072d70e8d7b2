"""The command line: exit codes, which stream says what, files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poplar_py.cli.main import run_cli

SMALL = ("--tiles-per-ipu", "16")
TEXT = """
model tiny(x: f32[batch, 6]) -> y: f32[batch, 3] {
    param w: f32[6, 3] = glorot_uniform()
    y = relu(x @ w)
}
"""


@pytest.fixture
def pml(tmp_path: Path) -> str:
    path = tmp_path / "tiny.pml"
    path.write_text(TEXT)
    return str(path)


def doubling(path: Path) -> str:
    """An ONNX model y = x + x with one free dim."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"], "twice")], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, str(path))
    return str(path)


def test_run_prints_outputs_and_tables_apart(pml: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", pml, "--random-inputs", "1", "--dim", "batch=2", *SMALL]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("y: float32[2,3]\n")
    assert "cycles" in shown.err
    assert "cycles" not in shown.out


def test_run_with_files(tmp_path: Path) -> None:
    model, x = doubling(tmp_path / "m.onnx"), np.arange(8, dtype=np.float32).reshape(2, 4)
    np.save(tmp_path / "x.npy", x)
    out, report = tmp_path / "y.npz", tmp_path / "report"
    arguments = ["run", model, "--input", f"x={tmp_path / 'x.npy'}", "--output", str(out)]
    assert run_cli([*arguments, "--profile", str(report), *SMALL]) == 0
    with np.load(out) as found:
        np.testing.assert_array_equal(found["y"], 2 * x)
    summary = (report / "summary.txt").read_text()
    assert "per IPU" in summary
    assert "steps with most cycles" in summary
    assert "largest variables" in summary
    assert json.loads((report / "summary.json").read_text())["cycles"] > 0


def test_outputs_without_dims_keep_their_rank(tmp_path: Path) -> None:
    model, out = tmp_path / "m.pml", tmp_path / "y.npz"
    model.write_text("model m(x: f32[4]) -> y: f32[] {\n    y = sum(x)\n}\n")
    arguments = ["run", str(model), "--random-inputs", "1", "--output", str(out), *SMALL]
    assert run_cli(arguments) == 0
    with np.load(out) as found:
        assert found["y"].shape == ()


def test_json_is_one_document(pml: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", pml, "--random-inputs", "1", "--dim", "batch=2", "--json", *SMALL]
    assert run_cli(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["outputs"]["y"]["shape"] == [2, 3]
    assert document["cycles"] > 0
    assert document["per_ipu"][0]["compute"] > 0


def test_dry_run_needs_no_values(pml: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", pml, "--dry-run", "--dim", "batch=2", "--json", *SMALL]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["static"] is True
    assert document["outputs"] == {}


def test_pexe_gives_the_same(pml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pexe = str(tmp_path / "tiny.pexe")
    assert run_cli(["compile", pml, "--dim", "batch=2", "-o", pexe, *SMALL]) == 0
    capsys.readouterr()
    assert run_cli(["run", pexe, "--random-inputs", "3"]) == 0
    from_file = capsys.readouterr().out
    assert run_cli(["run", pml, "--random-inputs", "3", "--dim", "batch=2", *SMALL]) == 0
    assert capsys.readouterr().out == from_file


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("model-ir", "nn.matmul"),
        ("tile-ir", "tile @"),
        ("codelet-ir", "codelet"),
        ("llvm", "define"),
        ("asm", ".text"),
        ("memory-map", "live-load bound"),
        ("dot", "digraph"),
    ],
)
def test_emit(form: str, expected: str, pml: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["compile", pml, "--dim", "batch=2", "--emit", form, *SMALL]) == 0
    assert expected in capsys.readouterr().out


def test_opt_prints_what_it_parsed(
    pml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pir = tmp_path / "tiny.pir"
    assert run_cli(["compile", pml, "--dim", "batch=2", "--emit", "model-ir", "-o", str(pir)]) == 0
    assert run_cli(["opt", str(pir), "-p", "", "-o", str(tmp_path / "again.pir")]) == 0
    assert (tmp_path / "again.pir").read_text() == pir.read_text()
    assert run_cli(["opt", str(pir), "-p", "simplify,fuse"]) == 0
    assert "graph @main" in capsys.readouterr().out


def test_dumps(pml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "dumps"
    arguments = ["run", pml, "--random-inputs", "1", "--dim", "batch=2", *SMALL]
    arguments += ["--dump-dir", str(folder), "--print-ir-after", "simplify", "--time-passes"]
    assert run_cli(arguments) == 0
    assert "simplify" in capsys.readouterr().err
    names = sorted(path.name for path in folder.glob("*.pir"))
    assert names[0].startswith("00-")
    assert any("lower" in name for name in names)


@pytest.mark.parametrize("command", ["run", "compile", "opt", "info", "passes", "ops"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([command, "--help"]) == 0
    assert "Usage: poplar-py" in capsys.readouterr().out


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["info"], ["passes"], ["passes", "fuse"], ["ops"], ["ops", "nn.matmul"]):
        assert run_cli(arguments) == 0
        assert capsys.readouterr().out
        assert run_cli([*arguments, "--json"]) == 0
        json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run"],
        ["run", "m.onnx", "--placement", "everywhere"],
        ["run", "m.onnx", "--input", "x"],
        ["compile", "m.onnx"],
        ["compile", "m.onnx", "--emit", "nonsense"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert run_cli(arguments) == 2


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Runs a command that must end with exit code 1 and an error without traceback."""
    assert run_cli(arguments) == 1
    text = capsys.readouterr().err
    assert text.startswith("error[")
    assert "Traceback" not in text
    return text


def test_user_errors(pml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = doubling(tmp_path / "m.onnx")
    assert "free dims" in failing(["run", model, "--random-inputs", "1"], capsys)
    assert "missing" in failing(["run", model, "--dim", "n=2"], capsys)
    assert "cannot read" in failing(["run", str(tmp_path / "none.onnx")], capsys)
    assert "--format" in failing(["run", str(tmp_path / "x.txt")], capsys)
    np.save(tmp_path / "bad.npy", np.zeros((2, 5), np.float32))
    bad = ["run", model, "--input", f"x={tmp_path / 'bad.npy'}"]
    assert "[2,5]" in failing(bad, capsys)
    np.save(tmp_path / "int.npy", np.zeros((2, 4), np.int32))
    assert "int32" in failing(["run", model, "--input", f"x={tmp_path / 'int.npy'}"], capsys)
    assert "system" in failing(["run", model, "--dim", "n=2", "--system", "m3000"], capsys)
    many = ["run", model, "--dim", "n=10", "--replicas", "10", "--dry-run"]
    assert "replicas" in failing(many, capsys)
    assert "no pass" in failing(["compile", model, "--dim", "n=2", "--passes", "x", "-o",
                                 str(tmp_path / "m.pexe")], capsys)  # fmt: skip
    assert "did you mean" in failing(["ops", "nn.matmull"], capsys)


@pytest.mark.parametrize("size", [0, 1, 10, 100])
def test_broken_onnx(size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = Path(doubling(tmp_path / "m.onnx")).read_bytes()
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(good[:size])
    failing(["run", str(bad), "--random-inputs", "1"], capsys)
    bad.write_bytes(np.random.default_rng(size).bytes(4 * size + 1))
    failing(["run", str(bad), "--random-inputs", "1"], capsys)


@pytest.mark.parametrize("nested", ["(" * 10_000 + "x" + ")" * 10_000, "-" * 10_000 + "x"])
def test_deep_nesting(nested: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.pml"
    path.write_text(f"model deep(x: f32[4]) -> y: f32[4] {{\n    y = {nested}\n}}\n")
    begin = time.perf_counter()
    text = failing(["run", str(path), "--random-inputs", "1"], capsys)
    assert time.perf_counter() - begin < 10
    assert "deep.pml:2" in text


def test_huge_dim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = ["--random-inputs", "1", "--dim", f"n={2**40}"]
    text = failing(["run", doubling(tmp_path / "m.onnx"), *huge], capsys)
    assert "m.onnx, input x" in text
    path = tmp_path / "sum.pml"
    path.write_text("model m(\n  x: f32[n, 4]\n) -> y: f32[] { y = sum(x) }\n")
    text = failing(["run", str(path), *huge], capsys)
    assert "sum.pml:2:3" in text


def test_unknown_names_are_told_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.pml"
    path.write_text("model m(image: f32[n, 4]) -> y: f32[n, 4] { y = image }\n")
    for option in ("--const=imgae=1", "--shape=imgae=2x4"):
        text = failing(["compile", str(path), "-o", str(tmp_path / "m.pexe"), option], capsys)
        assert "did you mean 'image'?" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="the super-user may write anywhere")
def test_read_only_output(pml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    arguments = ["compile", pml, "--dim", "batch=2", "-o", str(folder / "m.pexe"), *SMALL]
    assert "cannot write" in failing(arguments, capsys)
    assert not list(folder.iterdir())


def test_output_into_a_missing_folder(
    pml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "none" / "m.pexe"
    failing(["compile", pml, "--dim", "batch=2", "-o", str(target), *SMALL], capsys)
    assert not target.parent.exists()


def test_internal_error_leaves_a_report(
    pml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from poplar_py import api

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("for the test")

    monkeypatch.setattr(api, "load", broken)
    monkeypatch.chdir(tmp_path)
    assert run_cli(["run", pml, "--random-inputs", "1"]) == 3
    assert "Please report" in capsys.readouterr().err
    (report,) = tmp_path.glob("poplar-py-reproducer-*.txt")
    text = report.read_text()
    assert "poplar-py run" in text
    assert "ZeroDivisionError" in text


def test_standard_input_as_a_command() -> None:
    """The installed command, its stdin, and its speed of start."""
    command = [sys.executable, "-m", "poplar_py.cli", "run", "-", "--format", "pml"]
    command += ["--random-inputs", "1", "--dim", "batch=2", *SMALL]
    done = subprocess.run(command, input=TEXT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("y: float32[2,3]")


def test_help_is_quick() -> None:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "poplar_py.cli", "--help"], check=True,
                   capture_output=True)  # fmt: skip
    assert time.perf_counter() - begin < 3
