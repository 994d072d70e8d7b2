"""One set of bits: host threads, faithful exchange, merging of vertices, kinds of host code,
permuted tiles; every dump of a model parses back to the same bytes and runs to the same values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from model_cases import CASES, LIGHT, Array, Case, Inputs, light_path

import poplar_py as pp
from poplar_py import api
from poplar_py.driver.executable import INPUT, OUTPUT, Executable
from poplar_py.driver.options import CompileOptions, Dumps
from poplar_py.frontends.build import Sizes
from poplar_py.runtime.engine import TileEngine

BLOCKS = """
def attend(x: f32[t, d], h: int) -> f32[t, d] {
    param wq: f32[d, d] = glorot_uniform()
    param wk: f32[d, d] = glorot_uniform()
    param wv: f32[d, d] = glorot_uniform()
    q = transpose(reshape(x @ wq, [t, h, d // h]), [1, 0, 2])
    k = transpose(reshape(x @ wk, [t, h, d // h]), [1, 2, 0])
    v = transpose(reshape(x @ wv, [t, h, d // h]), [1, 0, 2])
    a = softmax(q @ k / sqrt(8.0), axis=-1) @ v
    return reshape(transpose(a, [1, 0, 2]), [t, d])
}
model bert(x: f32[16, 32]) -> y: f32[16, 32] {
    param w1: f32[32, 64] = glorot_uniform()
    param w2: f32[64, 32] = glorot_uniform()
    h = x + attend(x, 4)
    y = h + gelu(h @ w1) @ w2
}
"""
CNN = """
model cnn(x: f32[2, 3, 13, 13]) -> y: f32[2, 5] {
    param w1: f32[8, 3, 3, 3] = he_normal()
    param w2: f32[8, 8, 3, 3] = he_normal()
    param w3: f32[8, 5] = glorot_uniform()
    a = relu(conv(x, w1, pad=1))
    b = max_pool(relu(conv(a, w2)), 2, stride=2)
    y = softmax(mean(b, axes=[2, 3]) @ w3)
}
"""
REAL = {
    case.name: case
    for case in CASES
    if case.name in ("magika", "silero_vad", "rapidocr_cls", "romanizer_encoder")
}


def run(exe: Executable, inputs: Inputs, *, cpu: str = "native") -> dict[str, Array]:
    """The outputs of a run with code for a kind of CPU."""
    arrays = exe.signature.check(exe.complete(inputs))
    with TileEngine(exe.tile, threads=2, cpu=cpu) as engine:
        for port in exe.signature.inputs:
            engine.write(INPUT + port.name, exe.signature.stack(port, arrays[port.name]))
        engine.run(0)
        return {p.name: engine.read(OUTPUT + p.name) for p in exe.signature.outputs}


def same(found: dict[str, Array], expected: dict[str, Array], what: str) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        a, b = found[name].reshape(-1), array.reshape(-1)
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes(), f"{what}: {name}"


def sample(name: str, folder: Path) -> tuple[pp.LoadedModel, Inputs]:
    rng = np.random.default_rng(3)
    if name in REAL:
        return pp.load(REAL[name].path()), REAL[name].inputs(1)
    text, shape = {"bert": (BLOCKS, (16, 32)), "cnn": (CNN, (2, 3, 13, 13))}[name]
    (folder / f"{name}.pml").write_text(text)
    return pp.load(folder / f"{name}.pml"), {"x": rng.standard_normal(shape).astype(np.float32)}


def compiled(model: pp.LoadedModel, inputs: Inputs, tiles: int | None = None) -> Executable:
    shapes = {name: array.shape for name, array in inputs.items()}
    options = CompileOptions("ipu", tiles_per_ipu=tiles)
    return api.compile_for(model, options, Sizes.of(shapes=shapes, values=inputs))


SLOW_BITS = ("magika", "rapidocr_cls")
BITS = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_BITS else [])
    for name in ("bert", "cnn", *REAL)
]


@pytest.mark.parametrize("name", BITS)
def test_one_set_of_bits(name: str, tmp_path: Path) -> None:
    model, inputs = sample(name, tmp_path)
    exe = compiled(model, inputs, None if name in REAL else 48)
    flat = {n: np.asarray(a) for n, a in model.flatten(inputs).items()}
    flat = {n: a for n, a in flat.items() if n in {p.name for p in exe.signature.inputs}}
    expected = pp.Engine(exe, threads=1).run(flat)
    for threads, faithful in ((2, False), (4, False), (1, True), (4, True)):
        engine = pp.Engine(exe, threads=threads, faithful_exchange=faithful)
        same(engine.run(flat), expected, f"{threads} threads, faithful {faithful}")
    for threads, faithful in ((1, False), (2, False), (3, True)):
        engine = pp.Engine(exe, threads=threads, faithful_exchange=faithful, merge_vertices=False)
        same(engine.run(flat), expected, f"not merged, {threads} threads, faithful {faithful}")
    same(run(exe, flat, cpu="x86-64-v2"), run(exe, flat), "x86-64-v2")


@pytest.mark.parametrize("name", ["bert", "cnn", "silero_vad"])
def test_permuted_tiles(name: str, tmp_path: Path) -> None:
    """Tiles change their numbers; who adds what to what stays."""
    model, inputs = sample(name, tmp_path)
    shapes = {n: a.shape for n, a in inputs.items()}
    folder = tmp_path / "dumps"
    options = CompileOptions("ipu", tiles_per_ipu=24, dumps=Dumps(dump_dir=folder))
    exe = api.compile_for(model, options, Sizes.of(shapes=shapes, values=inputs))
    flat = {p.name: np.asarray(model.flatten(inputs)[p.name]) for p in exe.signature.inputs}
    expected = pp.Engine(exe).run(flat)
    lowered = next(folder.glob("*-lower.pir"))
    order = np.random.default_rng(5).permutation(24)
    source = pp.load(lowered)
    fresh = source.fresh

    moved: list[int] = []

    def permuted() -> object:
        module = fresh()
        for variable in module.graph.variables:
            mapping = variable.mapping
            if mapping is not None:
                placed = mapping.tile >= 0
                mapping.tile[placed] = order[mapping.tile[placed]]
        for compute_set in module.graph.compute_sets:
            for group in compute_set.groups:
                moved.append(int((order[group.tiles] != group.tiles).sum()))
                group.tiles[:] = order[group.tiles]
        return module

    source.fresh = permuted
    same(pp.Engine(source, system="ipu", tiles_per_ipu=24).run(flat), expected, "permuted")
    assert sum(moved) > 0


def dumps_of(path: Path, inputs: Inputs, folder: Path) -> tuple[dict[str, Array], list[Path]]:
    """Outputs of a model, and a file for every pass."""
    model = pp.load(path)
    shapes = {n: a.shape for n, a in inputs.items()}
    options = CompileOptions("m2000", dumps=Dumps(dump_dir=folder))
    exe = api.compile_for(model, options, Sizes.of(shapes=shapes, values=inputs))
    flat = {p.name: np.asarray(model.flatten(inputs)[p.name]) for p in exe.signature.inputs}
    np.savez(folder / "inputs.npz", **flat)
    return pp.Engine(exe).run(flat), sorted(folder.glob("*.pir"))


def check_dump(dump: Path, folder: Path, expected: dict[str, Array]) -> None:
    from poplar_py.cli.main import run_cli

    again = folder / f"again-{dump.name}"
    assert run_cli(["opt", str(dump), "-p", "", "-o", str(again)]) == 0
    assert again.read_bytes() == dump.read_bytes(), dump.name
    with np.load(folder / "inputs.npz") as found:
        flat = {name: found[name] for name in found.files}
    same(pp.Engine(pp.load(dump)).run(flat), expected, dump.name)


QUICK_DUMPS = ("silero_vad",)


def marked(case: Case) -> object:
    quick = case.name in QUICK_DUMPS
    return pytest.param(case, id=case.name, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_dumps(case: Case, tmp_path: Path) -> None:
    expected, dumps = dumps_of(case.path(), case.inputs(1), tmp_path)
    assert len(dumps) >= 8
    picked = [dumps[0], dumps[3], dumps[-1]] if case.name in QUICK_DUMPS else dumps
    for dump in picked:
        check_dump(dump, tmp_path, expected)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # vgg19 has 575 MB of weights in each of its dumps
@pytest.mark.parametrize("name", LIGHT)
def test_light_dumps(name: str, tmp_path: Path) -> None:
    model = pp.load(light_path(name))
    (port, kind), *_ = model.inputs.items()
    image = np.random.default_rng(6).standard_normal(kind.static_shape).astype(np.float32)
    expected, dumps = dumps_of(light_path(name), {port: image}, tmp_path)
    for dump in dumps:
        check_dump(dump, tmp_path, expected)


def _run_child(arguments: list[str], folder: Path) -> None:
    """Runs a command in a folder; when it fails, the test says what the command said."""
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stderr}"


def test_dumps_by_command_line(tmp_path: Path) -> None:
    """The same through `poplar-py`, in processes of their own."""
    (tmp_path / "cnn.pml").write_text(CNN)
    command = [sys.executable, "-m", "poplar_py.cli", "run"]
    common = ["--random-inputs", "4", "--system", "ipu", "--tiles-per-ipu", "16"]
    arguments = [*command, "cnn.pml", *common, "--output", "a.npz", "--dump-dir", "d"]
    _run_child(arguments, tmp_path)
    dumps = sorted((tmp_path / "d").glob("*.pir"))
    for number, dump in enumerate((dumps[1], dumps[-1])):
        out = f"{number}.npz"
        _run_child([*command, str(dump), *common, "--output", out], tmp_path)
        with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / out) as b:
            same(dict(b), dict(a), dump.name)
