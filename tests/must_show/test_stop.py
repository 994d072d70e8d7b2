"""`--timeout`, `Engine.stop` and Ctrl-C end a long native run soon: of a model, through the Python
API and the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import poplar_py as pp
from poplar_py.diagnostics import RunTimeout, Stopped

SOON = 0.3
"""Seconds: 0.1 is the promise, on a machine that does nothing else."""


def endless(path: Path, size: int) -> Path:
    """x is multiplied by a matrix until its largest element falls below minus one: never."""
    f = TensorProto.FLOAT
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["p"], "product"),
            helper.make_node("Tanh", ["p"], ["h_out"], "squash"),
            helper.make_node("ReduceMax", ["h_out"], ["m"], "largest", keepdims=0),
            helper.make_node("Greater", ["m", "low"], ["go_on"], "again"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", f, [size, size]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h_out", f, [size, size]),
        ],
    )
    shape = [size, size]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "yes", "x"], ["y"], "forever", body=body)],
        "endless",
        [
            helper.make_tensor_value_info("x", f, shape),
            helper.make_tensor_value_info("w", f, shape),
        ],
        [helper.make_tensor_value_info("y", f, shape)],
        [
            helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
            helper.make_tensor("low", f, [], [-2.0]),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> pp.Engine:
    model = pp.load(endless(tmp_path_factory.mktemp("stop") / "endless.onnx", 384))
    made = pp.Engine(pp.compile(model, system="ipu"))
    made.prepare()
    return made


def inputs() -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((384, 384)).astype(np.float32)
    return {"x": x, "w": x / 20}


def test_timeout(engine: pp.Engine) -> None:
    for limit in (0.0, 0.2, 0.2):
        begin = time.perf_counter()
        with pytest.raises(RunTimeout):
            engine.run(inputs(), timeout=limit)
        assert time.perf_counter() - begin - limit < SOON


def test_stop_from_another_thread(engine: pp.Engine) -> None:
    stopped: list[float] = []

    def stop() -> None:
        stopped.append(time.perf_counter())
        engine.stop()

    timer = threading.Timer(0.3, stop)
    timer.start()
    with pytest.raises(Stopped):
        engine.run(inputs())
    assert time.perf_counter() - stopped[0] < SOON
    timer.join()


def test_ctrl_c(engine: pp.Engine) -> None:
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.perf_counter())
        signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.run(inputs())
    assert time.perf_counter() - sent[0] < SOON
    timer.join()


def test_command_line(tmp_path: Path) -> None:
    path = endless(tmp_path / "endless.onnx", 64)
    command = [sys.executable, "-m", "poplar_py.cli", "run", str(path), "--random-inputs", "1"]
    command += ["--system", "ipu", "--tiles-per-ipu", "16", "--output", str(tmp_path / "y.npz")]
    done = subprocess.run(
        [*command, "--timeout", "0.2"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.lstrip().startswith("error[timeout]")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        time.sleep(3)  # compiled by now, or interrupted while it compiles: the same end
        begin = time.perf_counter()
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 130
        taken = time.perf_counter() - begin
        assert child.stderr is not None
        assert "Traceback" not in child.stderr.read()
    assert taken < 1.5  # with the end of the interpreter
    assert not (tmp_path / "y.npz").exists()
    assert not list(tmp_path.glob(".y*"))
