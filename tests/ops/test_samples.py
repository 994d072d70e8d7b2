"""Every op: its NumPy meaning against the compiled program, and its place in the tables."""

from __future__ import annotations

import numpy as np
import pytest

import poplar_py as pp
from poplar_py.codelets import meaning
from poplar_py.eval import EVAL, evaluate
from poplar_py.ir import REGISTRY
from poplar_py.ir.verifier import verify
from poplar_py.ops import core, elementwise
from samples import SAMPLES, Sample


def test_every_op_has_a_sample_and_a_meaning() -> None:
    used = {op.opname for sample in SAMPLES for op in sample.module().walk()}
    assert set(REGISTRY) <= used
    assert meaning.evaluate_map is EVAL[elementwise.Map]
    regions = {core.If, core.Loop}  # the interpreter itself runs them
    assert all(cls in EVAL or cls in regions for cls in REGISTRY.values())
    assert all(cls.__doc__ for cls in REGISTRY.values())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name.replace(" ", "_"))
def test_compiled_equals_meaning(sample: Sample) -> None:
    module = sample.module()
    verify(module)
    want = evaluate(module.main, list(sample.inputs))
    for value, array in zip(module.main.outputs, want, strict=True):
        assert value.type.static_shape == array.shape
        assert value.dtype.numpy == array.dtype
    executable = pp.compile(sample.module(), system="ipu", tiles_per_ipu=8)
    feeds = {f"x{i}": a for i, a in enumerate(sample.inputs)}
    got = pp.Engine(executable, threads=1).run(feeds)
    for i, array in enumerate(want):
        short = array.dtype.itemsize == 2 and array.dtype.kind not in "iu"
        compare(got[f"y{i}"], array, 2e-2 if short else 2e-5)


def compare(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )
