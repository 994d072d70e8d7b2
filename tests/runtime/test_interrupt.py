"""Ctrl-C while the main thread is in native code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("graphs", sys.argv[1])
graphs = importlib.util.module_from_spec(spec)
sys.modules["graphs"] = graphs
spec.loader.exec_module(graphs)
from poplar_py.executable.build import build_executable
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.program import Execute, Loop
from poplar_py.runtime.engine import TileEngine
from poplar_py.types import f32

g = graphs.new_graph()
x = g.add_variable(f32, (4,), "x", mapping="linear")
cs = g.add_compute_set("cs")
if sys.argv[2] == "vertex":
    g.add_vertices(cs, "Forever", [1], {"x": Edges.flat(x, [0], [4])})
    prog = Execute(cs)
else:
    g.add_vertices(cs, "Scale", [1], {"x": Edges.flat(x, [0], [4])}, {"by": 1.0})
    prog = Loop(Execute(cs))
with TileEngine(build_executable(g, [prog]), threads=2) as engine:
    print("ready", flush=True)
    try:
        engine.run()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    try:
        engine.run(timeout=0.01)
    except Exception as error:
        print(error.code, flush=True)
"""


@pytest.mark.parametrize("what", ["vertex", "loop"])
def test_ctrl_c(what: str) -> None:
    graphs = Path(__file__).with_name("graphs.py")
    command = [sys.executable, "-c", SCRIPT, str(graphs), what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        begin = time.monotonic()
        os.kill(child.pid, signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        taken = time.monotonic() - begin
        assert child.stdout.readline() == "timeout\n"
        assert child.wait(10) == 0
    assert taken < 0.5  # 0.1 on a quiet machine
