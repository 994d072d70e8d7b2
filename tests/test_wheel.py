"""The wheel holds every package and grammar, and runs a model on its own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.mark.slow
def test_wheel_runs_a_sample(repo_root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*command, str(repo_root)], check=True, cwd=tmp_path, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for part in ("passes/lower.py", "grammar/ir.lark", "codelets/builtin/poplin_block.py"):
        assert (site / "poplar_py" / part).is_file()
    run = "import sys, poplar_py; from poplar_py.cli.main import run_cli; "
    run += "print(poplar_py.__file__); sys.exit(run_cli(sys.argv[1:]))"
    model = str(repo_root / "samples/models/mlp.pml")
    arguments = ["run", model, "--random-inputs", "1", "--dim", "batch=2"]
    done = subprocess.run(
        [sys.executable, "-c", run, *arguments],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))
    assert "logits: float32[2,10]" in done.stdout
