"""Malformed and hostile files end in a located error with exit code 1, within seconds."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poplar_py.cli.main import run_cli

F32 = TensorProto.FLOAT


def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, list(shape))


def model_of(
    nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto] | None = None
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [value("x", 2, 2)], [value("y", 2, 2)], tensors or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_cycle() -> onnx.ModelProto:
    return model_of(
        [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"]),
         helper.make_node("Relu", ["b"], ["y"])]
    )  # fmt: skip


def unknown_op() -> onnx.ModelProto:
    return model_of([helper.make_node("Frobnicate", ["x"], ["y"], "odd")])


def missing_value() -> onnx.ModelProto:
    return model_of([helper.make_node("Add", ["x", "nowhere"], ["y"])])


def huge_initialiser() -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=F32, dims=[1 << 40, 1 << 20])
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def short_initialiser() -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=F32, dims=[2, 2], raw_data=b"\0" * 4)
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def outside_data() -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=F32, dims=[2, 2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "../../secret.bin"), ("offset", "0"), ("length", "16")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    begin = time.perf_counter()
    code = run_cli(arguments)
    shown = capsys.readouterr()
    assert code == 1, shown.err
    assert "error[" in shown.err
    assert "Traceback" not in shown.err
    assert time.perf_counter() - begin < 20
    assert shown.out == ""
    return shown.err


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (with_cycle, "cycle"),
        (unknown_op, "Frobnicate"),
        (missing_value, "nowhere"),
        (huge_initialiser, "shape"),
        (short_initialiser, "w"),
        (outside_data, "folder"),
    ],
)
def test_bad_models(
    make: Callable[[], onnx.ModelProto],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "out.npz"
    path.write_bytes(make().SerializeToString())
    text = failing(["run", str(path), "--random-inputs", "1", "--output", str(out)], capsys)
    assert words in text
    assert "m.onnx" in text
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@pytest.fixture(scope="module")
def pexe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("pexe")
    (folder / "t.pml").write_text(
        "model t(x: f32[4, 6]) -> y: f32[4, 3] {\n"
        "    param w: f32[6, 3] = glorot_uniform()\n    y = x @ w\n}\n"
    )
    arguments = ["compile", str(folder / "t.pml"), "-o", str(folder / "t.pexe")]
    assert run_cli([*arguments, "--tiles-per-ipu", "8"]) == 0
    return (folder / "t.pexe").read_bytes()


def edited(pexe: bytes, name: str, change: Callable[[np.ndarray], None]) -> bytes:
    """The file with one of its arrays changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(pexe)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == f"{name}.npy":
                array = np.load(io.BytesIO(data))
                change(array)
                held = io.BytesIO()
                np.save(held, array)
                data = held.getvalue()
            new.writestr(info.filename, data)
    return out.getvalue()


def array_names(pexe: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(pexe)) as archive:
        names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
    return sorted(names)


def test_edited_pexe(pexe: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any number of any array made absurd: an error or other values, never a crash."""
    path = tmp_path / "bad.pexe"
    codes: set[int] = set()
    for name in array_names(pexe):
        for absurd in (-1, 1 << 30):

            def change(array: np.ndarray, absurd: int = absurd) -> None:
                if array.size and array.dtype.kind in "iu":
                    flat = array.reshape(-1)
                    info = np.iinfo(array.dtype)
                    flat[flat.size // 2] = min(max(absurd, info.min), info.max)

            path.write_bytes(edited(pexe, name, change))
            codes.add(run_cli(["run", str(path), "--random-inputs", "1", "--timeout", "5"]))
            assert "Traceback" not in capsys.readouterr().err
    assert codes <= {0, 1}
    assert 1 in codes


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_truncated_pexe(
    part: float, pexe: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.pexe"
    path.write_bytes(pexe[: int(len(pexe) * part)])
    assert "bad.pexe" in failing(["run", str(path), "--random-inputs", "1"], capsys)
