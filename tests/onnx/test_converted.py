"""The other cases of the onnx package: models that PyTorch exported, and simple ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import node_cases
import onnx
import pytest
from onnx import numpy_helper

KINDS = ("pytorch-converted", "pytorch-operator", "simple")
REFUSED = ("strnorm", "gradient")


def _read(path: Path, info: Any) -> Any:
    data = path.read_bytes()
    if info.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _files(folder: Path, kind: str, infos: Any) -> list[Any]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [_read(folder / f"{kind}_{i}.pb", infos[i]) for i in range(count)]


def _case(test: Any) -> node_cases.Case:
    if test.model_dir is None:
        return node_cases.Case(
            test.name, "", test.model, tuple(test.data_sets), test.rtol, test.atol
        )
    root = Path(test.model_dir)
    model = onnx.load(str(root / "model.onnx"))
    sets = tuple(
        (_files(d, "input", model.graph.input), _files(d, "output", model.graph.output))
        for d in sorted(root.glob("test_data_set*"))
    )
    return node_cases.Case(test.name, "", model, sets, test.rtol, test.atol)


@pytest.mark.parametrize("kind", KINDS)
def test_cases(kind: str) -> None:
    from onnx.backend.test.loader import load_model_tests

    tests = [t for t in load_model_tests(kind=kind) if not any(r in t.name for r in REFUSED)]
    assert tests
    for test in tests:
        node_cases.run_case(_case(test), node_cases.reference)
