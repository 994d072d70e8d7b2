"""Every dump, of the model level and of the tile level, runs to the same bits as the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import poplar_py as pp
from poplar_py import api
from poplar_py.driver.options import CompileOptions, Dumps
from poplar_py.frontends.build import Sizes
from poplar_py.passes.pipeline import PIPELINES

MODEL = """
def dense(x: f32[b, n], m: int) -> f32[b, m] {
    param w: f32[n, m] = glorot_uniform()
    param c: f32[m] = normal()
    return x @ w + c
}
model m(x: f32[batch, 24], ids: i64[batch]) -> (y: f32[batch, 10], z: i32[batch]) {
    param table: f32[50, 24] = normal()
    h = gelu(dense(x + embedding(table, ids), 32))
    y = softmax(dense(h, 10))
    z = arg_max(y, axis=1)
}
"""


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "m.pml").write_text(MODEL)
    options = CompileOptions("ipu", tiles_per_ipu=8, dumps=Dumps(dump_dir=folder / "dumps"))
    api.compile_for(pp.load(folder / "m.pml"), options, Sizes.of(dims={"batch": 4}))
    return folder


def outputs(path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    inputs = {"x": rng.standard_normal((4, 24)).astype("f4"), "ids": rng.integers(0, 50, 4)}
    return pp.Engine(pp.load(path), system="ipu", tiles_per_ipu=8).run(inputs)


def test_every_dump_runs(dumped: Path) -> None:
    expected = outputs(dumped / "m.pml")
    dumps = sorted((dumped / "dumps").glob("*.pir"))
    assert len(dumps) == 1 + len(PIPELINES["@default"])
    for path in dumps:
        found = outputs(path)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"{path.name}: {name}")
