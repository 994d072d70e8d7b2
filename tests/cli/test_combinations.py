"""Options that a command cannot heed are told, never ignored; those that it can are heeded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poplar_py.cli.main import run_cli

TEXT = """model m(x: f32[b, 2]) -> y: f32[b, 2] {
    y = relu(x * 2.0)
}
"""
SMALL = ["--dim", "b=3", "--system", "ipu", "--tiles-per-ipu", "4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """m.pml, its executable m.pexe and its program t.pir."""
    path = tmp_path_factory.mktemp("cli")
    (path / "m.pml").write_text(TEXT)
    np.save(path / "x.npy", np.ones((3, 2), np.float32))
    model = str(path / "m.pml")
    assert run_cli(["compile", model, *SMALL, "-o", str(path / "m.pexe")]) == 0
    program = str(path / "t.pir")
    assert run_cli(["compile", model, *SMALL, "--emit", "tile-ir", "-o", program]) == 0
    return path


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def told(arguments: str, code: int, capsys: pytest.CaptureFixture[str]) -> str:
    before = sorted(Path().rglob("*"))
    assert run_cli(arguments.split()) == code
    assert sorted(Path().rglob("*")) == before, "nothing is written on an error"
    return capsys.readouterr().err


COMPILING = [
    "--system ipu",
    "--ipus 1",
    "--tiles-per-ipu 4",
    "--placement one",
    "--replicas 1",
    "--passes @none",
    "--dim b=3",
    "--shape x=3x2",
    "--const x=1",
    "--print-ir-before fuse",
    "--print-ir-after fuse",
    "--print-ir-after-all",
    "--print-ir-diff",
    "--dump-dir d",
    "--time-passes",
    "--stop-after fuse",
    "--inline-resources",
]


@pytest.mark.parametrize("option", COMPILING)
@pytest.mark.parametrize("command", ["run m.pexe --random-inputs 1", "compile m.pexe --emit llvm"])
def test_an_executable_is_compiled_already(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(f"{command} {option}", 2, capsys)
    assert option.split()[0] in text


def test_no_option_of_compiling_is_missing_above() -> None:
    from poplar_py.cli.compile import compile_command
    from poplar_py.cli.given import COMPILING as names

    texts = {p.name: p.opts[-1] for p in compile_command.params}
    assert {texts[n] for n in names} == {option.split()[0] for option in COMPILING}
    assert set(texts) - set(names) == {"model", "output", "emit", "as_json", "format"}


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ("run t.pir --random-inputs 1 --system m2000", 2, "made for 1 x 4 tiles of ipu"),
        ("run t.pir --random-inputs 1 --tiles-per-ipu 8", 2, "made for 1 x 4 tiles of ipu"),
        ("run t.pir --random-inputs 1 --placement one", 2, "placed already"),
        ("run t.pir --random-inputs 1 --replicas 2", 1, "one replica"),
        ("run t.pir --random-inputs 1 --dim b=3", 1, "unknown dim 'b'"),
        ("run t.pir --random-inputs 1 --const x=3", 1, "unknown compile-time input 'x'"),
        ("run t.pir --random-inputs 1 --print-ir-after fuse", 1, "has no pass 'fuse'"),
        ("opt t.pir -p map-tiles --system m2000", 2, "made for 1 x 4 tiles of ipu"),
        ("opt t.pir -p lower", 1, "takes the model level"),
        ("opt m.pml -p simplify", 1, "--emit model-ir"),
        ("opt m.pexe -p simplify", 1, "opt reads .pir"),
        ("run m.pml --dim b=3 --dry-run --output y.npz", 2, "--output: a dry run"),
        ("run m.pml --dim b=3 --random-inputs 1 --stop-after lower", 1, "--emit model-ir"),
        ("run m.pml --dim b=3 --random-inputs -1", 2, "--random-inputs"),
        ("run m.pml --shape x=3,2 --random-inputs 1", 2, "separated by x"),
        ("compile m.pml --dim b=3 -o y.pexe --stop-after lower", 1, "--emit model-ir"),
        ("compile m.pml --dim b=3 -o y.pexe --stop-after nothing", 1, "no such pass"),
        ("compile m.pml --dim b=3 --emit llvm --stop-after lower", 1, "--emit model-ir"),
        ("compile m.pml --dim b=3 --emit tile-ir --stop-after fuse", 1, "--emit model-ir"),
        ("compile m.pml --dim b=3 --emit tile-ir --passes infer-shapes", 1, "no tile-ir"),
        ("compile m.pml --dim b=3 --emit model-ir --print-ir-after lower", 1, "no pass 'lower'"),
        ("compile m.pml --dim b=3 --emit tile-ir -o y.pexe", 2, "names an executable"),
        ("compile m.pml --dim b=3 -o y.pexe --inline-resources", 2, "--inline-resources"),
        ("compile m.pml --dim b=3 --emit dot --inline-resources", 2, "--inline-resources"),
        ("compile m.pexe -o y.pexe", 2, "compiled already"),
        ("compile m.pexe --emit tile-ir", 1, "holds no tile-ir"),
        ("compile - --format pexe --emit llvm", 1, "standard input"),
        ("compile t.pir --emit model-ir", 1, "no form above"),
        ("passes @nothing", 1, "unknown pipeline"),
        ("ops add_", 1, "did you mean"),
    ],
)
def test_what_cannot_be_heeded_is_told(
    arguments: str, code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in told(arguments, code, capsys)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("run t.pir --input x=x.npy --system ipu --tiles-per-ipu 4 --ipus 2", "y: float32[3,2]"),
        ("run m.pml --random-inputs 1 --dim b=3 --stop-after plan-memory", "y: float32[3,2]"),
        ("compile t.pir --emit memory-map", "fullest tile"),
        ("compile t.pir --emit tile-ir --stop-after map-tiles", 'tile @main target "ipu"'),
        ("compile m.pexe --emit memory-map", "fullest tile"),
        ("compile m.pexe --emit codelet-ir", 'codelet "expr::Map'),
        ("compile m.pml --dim b=3 --emit model-ir --stop-after simplify", "math.mul"),
        (
            "compile m.pml --dim b=3 --emit model-ir --stop-after fuse --inline-resources",
            "math.map",
        ),
        ("compile m.pml --dim b=3 --emit tile-ir --stop-after lower", "expr::Map"),
        ("opt t.pir -p map-tiles --system ipu", 'tile @main target "ipu"'),
        ("passes @none", "infer-shapes"),
        ("ops matmul", "nn.matmul"),
    ],
)
def test_what_can_be_heeded_is(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(arguments.split()) == 0
    assert expected in capsys.readouterr().out


def test_an_empty_pipeline_still_dumps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_cli(["opt", "t.pir", "-p", "", "--dump-dir", str(tmp_path), "--time-passes"]) == 0
    assert [p.name for p in tmp_path.glob("*.pir")] == ["00-input.pir"]
    assert "time per pass" in capsys.readouterr().err
    assert run_cli(["opt", "t.pir", "-p", "", "--print-ir-after", "fuse"]) == 1
    assert "it is empty" in capsys.readouterr().err


def test_printed_ir_holds_its_constants_if_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.pml").write_text("""model m(x: f32[3, 8]) -> y: f32[3, 8] {
    param w: f32[8, 8] = normal()
    y = x @ w
}
""")
    show = ["compile", "w.pml", "-o", "w.pexe", "--print-ir-after", "simplify"]
    assert run_cli(show) == 0
    assert "resource sha256" not in capsys.readouterr().err
    assert run_cli([*show, "--inline-resources"]) == 0
    assert "resource sha256" in capsys.readouterr().err
