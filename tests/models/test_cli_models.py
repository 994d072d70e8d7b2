"""The real models through the command line: inputs from files, outputs into a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from model_cases import CASES, Array, Case, Inputs, assert_same

from poplar_py.cli.main import run_cli

SPREAD = ("magika", "rapidocr_cls", "silero_vad", "romanizer_decoder")


def run(case: Case, inputs: Inputs, folder: Path, *options: str) -> dict[str, Array]:
    """`poplar-py run`; the outputs by name."""
    arguments = ["run", str(case.path()), "--output", str(folder / "out.npz"), *options]
    for k, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"{k}.npy", array)
        arguments += ["--input", f"{name}={folder / f'{k}.npy'}"]
    assert run_cli(arguments) == 0
    with np.load(folder / "out.npz") as found:
        return {name: found[name] for name in found.files}


def compare(case: Case, inputs: Inputs, outputs: dict[str, Array]) -> None:
    session = onnxruntime.InferenceSession(str(case.path()), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for name, expected in zip(names, session.run(names, inputs), strict=True):
        assert_same(outputs[name], np.asarray(expected), name)


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_run(case: Case, tmp_path: Path) -> None:
    inputs = case.inputs(1)
    report = tmp_path / "report"
    compare(case, inputs, run(case, inputs, tmp_path, "--profile", str(report)))
    assert "largest variables" in (report / "summary.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize("options", [["--placement", "spread"], ["--replicas", "4"]])
def test_run_on_four_ipus(name: str, options: list[str], tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    inputs = case.inputs(4 if "--replicas" in options else 1)
    compare(case, inputs, run(case, inputs, tmp_path, *options))
