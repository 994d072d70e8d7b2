"""Small models of kinds that people run, written here, against onnxruntime.

Weights are seeded and He-scaled; inputs have free dims where exporters leave them free. The tables
are in `kinds_*.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from kind_cases import Array, Inputs, Kind, build
from kinds_audio import AUDIO
from kinds_basic import BASIC
from kinds_converted import CONVERTED, OPSETS, OPTIMISED
from kinds_other import OTHER
from kinds_text import TEXT
from kinds_vision import VISION

import poplar_py as pp
from poplar_py.cli.main import run_cli

WRITTEN = BASIC | VISION | TEXT | AUDIO | OTHER
KINDS: dict[str, Kind] = WRITTEN | CONVERTED
LONG = (*OPSETS, *(f"optimised_{name}" for name in OPTIMISED))
SMALL = {"system": "ipu", "tiles_per_ipu": 16, "threads": 1}
LATE = {"loop_limit_and_stop": "k", "nested_if_loop": "k", "grid_resize_dynamic": "size"}
"""Kinds with an input whose value decides shapes or counts."""


def reference(model: onnx.ModelProto, feeds: Inputs) -> dict[str, Array]:
    """Outputs of onnxruntime without its optimisations, which change the rounding of integers, on
    one thread: several quantise a batch in parts."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def compare(outputs: dict[str, Array], expected: dict[str, Array], tolerance: float) -> None:
    assert set(outputs) >= set(expected)
    for name, wanted in expected.items():
        ours = outputs[name]
        assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype), name
        if wanted.dtype.kind != "f":
            np.testing.assert_array_equal(ours, wanted, err_msg=name)
            continue
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        np.testing.assert_allclose(
            ours.astype(np.float64),
            wanted.astype(np.float64),
            rtol=0,
            atol=tolerance * float(largest) + 1e-5,
            err_msg=name,
        )


def case(name: str) -> tuple[Kind, onnx.ModelProto, Inputs, dict[str, Array]]:
    kinds = KINDS | OPSETS | {f"optimised_{k}": v for k, v in OPTIMISED.items()}
    kind = kinds[name]
    model, feeds = build(kind), kind.feeds(np.random.default_rng(11))
    return kind, model, feeds, reference(model, feeds)


def check(name: str, **options: object) -> None:
    kind, model, feeds, expected = case(name)
    engine = pp.Engine(pp.load(model), **options)  # type: ignore[arg-type]
    compare(engine.run(feeds), expected, kind.tolerance)


@pytest.mark.parametrize("name", KINDS)
def test_kind(name: str) -> None:
    check(name, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_kind_of_a_converter(name: str) -> None:
    check(name, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_kind_spread(name: str) -> None:
    check(name, placement="spread")


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_kind_from_the_command_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a model, and as an executable compiled for the shapes: the same bits."""
    kind, model, feeds, expected = case(name)
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "m.onnx")
    given: list[str] = []
    sizes: list[str] = []
    for key, value in feeds.items():
        np.save(f"{key}.npy", value)
        given += ["--input", f"{key}={key}.npy"]
        late = LATE.get(name) == key
        shape = "x".join(map(str, value.shape)) or "scalar"
        sizes += ["--const", f"{key}={key}.npy"] if late else ["--shape", f"{key}={shape}"]
    small = ["--system", "ipu", "--tiles-per-ipu", "16"]
    assert run_cli(["run", "m.onnx", *given, *small, "--output", "a.npz"]) == 0
    outputs = dict(np.load("a.npz"))
    compare(outputs, expected, kind.tolerance)
    assert run_cli(["compile", "m.onnx", *small, *sizes, "-o", "m.pexe"]) == 0
    assert run_cli(["run", "m.pexe", *given, "--output", "b.npz"]) == 0
    again = dict(np.load("b.npz"))
    assert {k: v.tobytes() for k, v in again.items()} == {
        k: v.tobytes() for k, v in outputs.items()
    }
