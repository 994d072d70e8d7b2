"""A start that finds its executable in the cache: same results, little of the package loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poplar_py import api
from poplar_py.diagnostics import FileError
from poplar_py.driver import cache
from poplar_py.driver.options import CompileOptions

CHILD = """
import json, sys
from pathlib import Path
import poplar_py as pp
exe = pp.compile(pp.load(Path(sys.argv[1])), system="ipu", tiles_per_ipu=8)
print(json.dumps([exe.name, sorted(sys.modules)]))
"""

NEEDLESS = ("onnx", "poplar_py.frontends.onnx", "poplar_py.ops", "poplar_py.passes.lower",
            "poplar_py.popops", "poplar_py.poplin")  # fmt: skip


def write_model(path: Path, value: float) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    c = onnx.numpy_helper.from_array(np.full(4, value, np.float32), "c")
    graph = helper.make_graph([helper.make_node("Add", ["x", "c"], ["y"])], "g", [x], [y], [c])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.fixture
def keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that keeps every compilation, however short."""
    monkeypatch.setenv("POPLAR_PY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POPLAR_PY_EXECUTABLE_CACHE", "1")
    monkeypatch.setattr(cache, "WORTH_KEEPING", 0.0)
    return tmp_path


def compiled(path: Path) -> api.Executable:
    return api.compile(api.load(path), system="ipu", tiles_per_ipu=8)


def test_a_hit_loads_no_compiler(keeping: Path) -> None:
    path = keeping / "m.onnx"
    write_model(path, 1)
    compiled(path)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    name, loaded = json.loads(done.stdout)
    assert name == "m"
    assert not [m for m in NEEDLESS if m in loaded]


def test_an_edited_model_is_another(keeping: Path) -> None:
    path = keeping / "m.onnx"
    x = np.arange(4, dtype=np.float32)
    for value in (1.0, 2.0, 1.0):
        write_model(path, value)
        np.testing.assert_array_equal(api.Engine(compiled(path)).run({"x": x})["y"], x + value)
    assert len(list((keeping / "cache" / "executables").glob("*.pexe"))) == 2


def test_a_damaged_entry_is_made_again(keeping: Path) -> None:
    path = keeping / "m.onnx"
    write_model(path, 1)
    compiled(path)
    (entry,) = (keeping / "cache" / "executables").glob("*.pexe")
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 255
    entry.write_bytes(data)
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(api.Engine(compiled(path)).run({"x": x})["y"], x + 1)


def test_a_cut_file_is_refused_when_loaded(keeping: Path) -> None:
    path = keeping / "m.onnx"
    write_model(path, 1)
    compiled(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileError):
        api.load(path)


def test_the_machine_is_in_the_key() -> None:
    keys = {
        cache.key_of(b"model", CompileOptions(system, tiles_per_ipu=tiles), {}, {})
        for system, tiles in (("ipu", 8), ("ipu", 9), ("m2000", 8))
    }
    assert len(keys) == 3
