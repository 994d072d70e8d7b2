"""Damaged files and wrong options, many of them: an error that tells, exit code 1 or 2, soon, no
traceback, no death of the process, and no output left behind."""

from __future__ import annotations

import importlib.util
import io
import json
import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from poplar_py.cli.main import run_cli

SMALL = ("--tiles-per-ipu", "8", "--system", "ipu")
RANDOM = ("--random-inputs", "1")
TEXT = """model m(x: f32[2, 6], i: i32[2]) -> y: f32[2, 3] {
    param w: f32[6, 3] = glorot_uniform()
    param t: f32[9, 6] = normal()
    y = softmax(relu((x + gather(t, i, axis=0)) @ w))
}
"""
NUMBERS = (-1, 0, 1, 7, 64, 1000, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63), 2**63 - 1)


def _load_hostile() -> ModuleType:
    path = Path(__file__).with_name("hostile.py")
    spec = importlib.util.spec_from_file_location("must_show_hostile", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


hostile = _load_hostile()


def check(commands: list[list[str]], folder: Path, codes: tuple[int, ...] = (0, 1)) -> None:
    before = sorted(folder.rglob("*"))
    for outcome in hostile.run_all(commands, folder):
        outcome.check(codes)
    assert sorted(folder.rglob("*")) == before


def small_onnx() -> bytes:
    w = numpy_helper.from_array(np.ones((6, 3), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("Relu", ["h"], ["y"], "act"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    return onnx.ModelProto.SerializeToString(model)


def files(parts: Iterator[bytes], folder: Path, ending: str) -> list[list[str]]:
    """A run of each damaged file."""
    commands: list[list[str]] = []
    for number, data in enumerate(parts):
        path = folder / f"{number}.{ending}"
        path.write_bytes(data)
        commands.append(["run", path.name, *RANDOM, *SMALL, "--timeout", "2"])
    return commands


def flips(data: bytes, count: int, r: random.Random) -> Iterator[bytes]:
    for _ in range(count):
        bad = bytearray(data)
        for _ in range(r.choice((1, 1, 2, 4))):
            bad[r.randrange(len(bad))] = r.randrange(256)
        yield bytes(bad)


def test_onnx_bytes(tmp_path: Path) -> None:
    good, r = small_onnx(), random.Random(1)

    def parts() -> Iterator[bytes]:
        yield from (good[:n] for n in range(len(good)))
        yield from flips(good, 150, r)
        yield from (r.randbytes(r.randrange(400)) for _ in range(60))

    check(files(parts(), tmp_path, "onnx"), tmp_path)


def test_pml_text(tmp_path: Path) -> None:
    r = random.Random(2)
    signs = '(){}[]:,;=->@+*/."\n0aZ \x00é'

    def parts() -> Iterator[bytes]:
        yield from (TEXT[:n].encode() for n in range(0, len(TEXT), 2))
        for _ in range(80):
            text = list(TEXT)
            for _ in range(3):
                text[r.randrange(len(text))] = r.choice(signs)
            yield "".join(text).encode()
        for dim in (2**31, 2**40, 2**63, 10**30):
            for start in ("zeros", "normal()"):
                yield (
                    f"model d(x: f32[4]) -> y: f32[4] {{\n param w: f32[{dim}] = {start}\n"
                    " y = x + w[:4]\n}\n"
                ).encode()
            yield f"model d(x: f32[{dim}]) -> y: f32[{dim}] {{\n y = relu(x)\n}}\n".encode()
            yield (
                f"model d(x: f32[1]) -> y: f32[] {{\n y = sum(expand(x, [{dim}]))\n}}\n"
            ).encode()

    check(files(parts(), tmp_path, "pml"), tmp_path)


@pytest.fixture
def pexe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    """The entries of a good `.pexe`."""
    (tmp_path / "m.pml").write_text(TEXT)
    path = tmp_path / "m.pexe"
    assert run_cli(["compile", str(tmp_path / "m.pml"), *SMALL, "-o", str(path)]) == 0
    capsys.readouterr()
    with zipfile.ZipFile(path) as z:
        return {name: z.read(name) for name in z.namelist()}


def packed(entries: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as z:
        for name, data in entries.items():
            z.writestr(name, data)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def damaged_arrays(entries: dict[str, bytes], r: random.Random) -> Iterator[bytes]:
    for name in [n for n in entries if n.endswith(".npy")]:
        array = np.load(io.BytesIO(entries[name]))
        yield packed({n: d for n, d in entries.items() if n != name})
        yield packed({**entries, name: npy(array[:-1])})
        yield packed({**entries, name: npy(array.astype(np.float64))})
        header = io.BytesIO()
        kind = {"descr": array.dtype.str, "fortran_order": False, "shape": (2**50,)}
        np.lib.format.write_array_header_1_0(header, kind)
        yield packed({**entries, name: header.getvalue()})
        for _ in range(5 if array.size and array.dtype.kind in "iu" else 0):
            limits = np.iinfo(array.dtype)
            bad = array.copy()
            number = min(max(r.choice(NUMBERS), limits.min), limits.max)
            bad.reshape(-1)[r.randrange(bad.size)] = number
            yield packed({**entries, name: npy(bad)})


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def damaged_manifests(entries: dict[str, bytes], count: int, r: random.Random) -> Iterator[bytes]:
    known = list(places(json.loads(entries["manifest.json"])))
    values = (None, 0, -1, 2**31, 2**40, 2**70, -(2**62), 1e308, "", "x", [], {}, True, "f32")
    for _ in range(count):
        manifest = json.loads(entries["manifest.json"])
        *way, last = r.choice(known)
        inner = manifest
        for key in way:
            inner = inner[key]
        inner[last] = r.choice(values)
        yield packed({**entries, "manifest.json": json.dumps(manifest).encode()})


def damaged_lines(text: str, count: int, r: random.Random, words: str) -> Iterator[str]:
    for _ in range(count):
        lines = text.split("\n")
        at, kind = r.randrange(len(lines)), r.randrange(4)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, r.choice(lines))
        elif kind == 2:
            parts = lines[at].split(" ")
            parts[r.randrange(len(parts))] = r.choice(words.split())
            lines[at] = " ".join(parts)
        else:
            cut = r.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + r.choice('0123456789(){}[]:,%"-') + lines[at][cut + 1 :]
        yield "\n".join(lines)


WORDS = (
    "f32 i32 0 99999999999999999999 -1 } { ( ) [ ] %x %0 while for bool f32x16 f32[1099511627776]"
)


@pytest.mark.parametrize("count", [40, pytest.param(700, marks=pytest.mark.slow)])
def test_pexe(count: int, pexe: dict[str, bytes], tmp_path: Path) -> None:
    raw, r = (tmp_path / "m.pexe").read_bytes(), random.Random(count)

    def parts() -> Iterator[bytes]:
        yield from (raw[:n] for n in range(0, len(raw), len(raw) // 30))
        yield from flips(raw, count // 2, r)
        yield from damaged_arrays(pexe, r)
        yield from damaged_manifests(pexe, count, r)
        for name in [n for n in pexe if n.startswith("codelets/")]:
            for text in damaged_lines(pexe[name].decode(), count // 8, r, WORDS):
                yield packed({**pexe, name: text.encode()})
        yield packed({**pexe, "x.npy": b"\0" * 10**7}, zipfile.ZIP_DEFLATED)

    commands = files(parts(), tmp_path, "pexe")
    check([[a for a in c if a not in SMALL] for c in commands], tmp_path)


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_pir(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, folder = tmp_path / "m.pml", tmp_path / "dumps"
    model.write_text(TEXT)
    arguments = ["run", str(model), *RANDOM, *SMALL, "--dump-dir", str(folder)]
    assert run_cli(arguments) == 0
    capsys.readouterr()
    dumps, r = sorted(folder.glob("*.pir")), random.Random(count)
    texts = [dumps[0].read_text(), dumps[-1].read_text()]
    for old in dumps:
        old.unlink()

    def parts() -> Iterator[bytes]:
        for text in texts:
            yield from (text[:n].encode() for n in range(0, len(text), len(text) // 15))
            yield from (t.encode() for t in damaged_lines(text, count, r, WORDS))

    # 2: a damaged number of tiles contradicts --tiles-per-ipu
    check(files(parts(), folder, "pir"), folder, (0, 1, 2))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "m.pml").write_text("model m(x: f32[batch, 6]) -> y: f32[batch, 6] { y = relu(x) }")
    np.save(tmp_path / "x.npy", np.ones((2, 6), np.float32))
    np.save(tmp_path / "whole.npy", np.ones((2, 6), np.int32))
    np.save(tmp_path / "five.npy", np.ones((2, 6, 5), np.float32))
    np.save(tmp_path / "objects.npy", np.array([1, "a", None], object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=1)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    header = io.BytesIO()
    kind = {"descr": "<f4", "fortran_order": False, "shape": (2**40,)}
    np.lib.format.write_array_header_1_0(header, kind)
    (tmp_path / "huge.npy").write_bytes(header.getvalue())
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_options(here: Path) -> None:
    run = ["run", "m.pml", *SMALL]
    good = [*run, *RANDOM, "--dim", "batch=2"]
    values = {
        "--dim": ["batch", "=", "batch=-1", "batch=1.5", "q=3", f"batch={2**40}", "batch=²",
                  f"batch={2**31}", f"batch={10**17}", "batch=" + "9" * 5000],
        "--shape": ["x", "x=2x", "x=axb", "q=2x6", "x=2x5", "x=scalar", f"x={2**40}x6",
                    "x=" + "x".join(["1"] * 2000)],
    }  # fmt: skip
    commands = [[*run, *RANDOM, name, v] for name, many in values.items() for v in many]
    more = {
        "--const": ["x", "q=1", "x=abc", "x=none.npy", "x=broken.npy", "x=[]", "x=huge.npy"],
        "--passes": ["x", "fuse{", "@nope", "lower,lower", "fuse{zz=1}", "fuse{max-ops=x}"],
        "--system": ["", "x", "folder", "broken.npy"],
        "--timeout": ["-1", "nan", "x"],
        "--threads": ["0", "x", "99999999"],
        "--stop-after": ["zzz"],
        "--random-inputs": ["x"],
    }
    commands += [[*good, name, v] for name, many in more.items() for v in many]
    arrays = "x x= q=x.npy x=none.npy x=whole.npy x=five.npy x=broken.npy x=objects.npy x=huge.npy"
    commands += [[*run, "--input", v] for v in [*arrays.split(), "x=several.npz", "x=folder"]]
    commands += [["run", name, *RANDOM] for name in ("file", "folder", "none.onnx", "", "m.pml/x")]
    commands += [["run", "m.pml", "--format", k, *RANDOM] for k in ("pir", "onnx", "pexe")]
    check(commands, here, (1, 2))


def test_outputs_that_cannot_be_written(here: Path) -> None:
    """Refused before and after the work; devices are written to, never replaced."""
    good = [*RANDOM, "--dim", "batch=2", *SMALL]
    bad = ["folder", "file/y", "none/y", "a" * 300, "/proc/y", "/dev/full"]
    commands = [["run", "m.pml", *good, "--output", name] for name in bad]
    compile_ = ["compile", "m.pml", "--dim", "batch=2", *SMALL]
    commands += [[*compile_, "-o", name] for name in bad]
    commands += [[*compile_, "--emit", "tile-ir", "-o", name] for name in bad]
    for name in ("file", "file/y", "a" * 300, "/dev/full"):
        commands.append(["run", "m.pml", *good, "--profile", name])
        commands.append(["run", "m.pml", *good, "--dump-dir", name])
    check(commands, here, (1, 2))
    assert Path("/dev/full").is_char_device()
