"""Options that contradict one another, outputs that are inputs, damaged .npy inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from poplar_py.cli.main import run_cli

TEXT = """model m(x: f32[b, 2]) -> y: f32[b, 2] {
    y = x * 2.0
}
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.pml"
    path.write_text(TEXT)
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    return path


@pytest.mark.parametrize(
    "pair", [["--dim", "b=3", "--dim", "b=4"], ["--shape", "x=3x2", "--shape", "x=4x2"]]
)
def test_a_size_given_twice(
    model: Path, pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["compile", str(model), *pair, "--emit", "model-ir"]) == 2
    assert " and " in capsys.readouterr().err


def test_the_same_size_twice_is_fine(model: Path) -> None:
    assert run_cli(["compile", str(model), "--dim", "b=3", "--dim", "b=3", "--emit", "dot"]) == 0


@pytest.mark.parametrize("output", ["m.pml", "./m.pml", "-"])
def test_compile_writes_over_no_input(
    model: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["compile", "m.pml", "--dim", "b=3", "-o", output]) == 1
    assert "= help: name a" in capsys.readouterr().err
    assert model.read_text() == TEXT
    assert sorted(p.name for p in model.parent.iterdir()) == ["m.pml", "x.npy"]


def test_run_writes_over_no_input(model: Path) -> None:
    before = (model.parent / "x.npy").read_bytes()
    assert run_cli(["run", "m.pml", "--input", "x=x.npy", "--output", "x.npy"]) == 1
    assert (model.parent / "x.npy").read_bytes() == before


@pytest.mark.parametrize("to_file", [False, True])
def test_emit_as_json(model: Path, to_file: bool, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["-o", "out.pir"] if to_file else []
    args = ["compile", "m.pml", "--dim", "b=3", "--emit", "model-ir", "--json", *where]
    assert run_cli(args) == 0
    told = json.loads(capsys.readouterr().out)
    text = Path(told["file"]).read_text() if to_file else told["text"]
    assert text.startswith("module @m")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"(3, 2), }", b"(3, 2,   "),  # a bracket that is never closed
        (b"(3, 2), }          ", b"(99999999999999, 2)}"[:19]),
        (b"(3, 2), }            ", b"(88888888888, 2), } "),
        (b"'<f4'", b"'<f9'"),
        (b"'descr'", b"'descx'"),
    ],
)
def test_damaged_npy(
    model: Path, old: bytes, new: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model.parent / "x.npy"
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new.ljust(len(old))))
    assert run_cli(["run", "m.pml", "--input", "x=x.npy"]) == 1
    err = capsys.readouterr().err
    assert "input 'x'" in err
    assert "--> x.npy" in err
