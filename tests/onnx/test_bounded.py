"""Ops over tensors whose size the device counts, against onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from compiled import interpreter_blocked
from test_control import expected

import poplar_py as pp
from poplar_py.diagnostics import FileError, UnsupportedOp
from poplar_py.driver.options import CompileOptions, Dumps
from poplar_py.frontends.build import Sizes, compile_model
from poplar_py.poplar.tile_parse import is_tile_text

Array = np.ndarray[Any, np.dtype[Any]]
R = np.random.default_rng(6)
X = R.standard_normal((12, 4)).astype(np.float32)

CHAINS = {
    "gather": "y = Gather(x, k)",
    "gather_columns": "e = Gather<axis=1>(w, k) y = Gather(e, zero)",
    "gather_counted": "e = Gather(x, k) y = Gather(e, negative)",
    "gather_other_axis": "e = Gather(x, k) y = Gather<axis=1>(e, k2)",
    "gather_nd": "u = Unsqueeze(k, last) y = GatherND(x, u)",
    "arithmetic": "e = Gather(x, k) s = Sigmoid(e) p = Mul(s, two) y = Sub(p, e)",
    "divide": "h = Div(k, k1) y = Cast<to=1>(h)",
    "rows": "e = Gather(x, k) y = MatMul(e, m)",
    "gemm": "e = Gather(x, k) y = Gemm(e, m, c)",
    "contracted": "e = Gather(x, k) t = Transpose<perm=[1,0]>(e) y = MatMul(t, e)",
    "softmax": "e = Gather(x, k) y = Softmax<axis=-1>(e)",
    "sum": "e = Gather(x, k) y = ReduceSum<keepdims=0>(e, zero)",
    "sum_columns": "e = Gather(x, k) y = ReduceSum<keepdims=0>(e, last)",
    "max": "e = Gather(x, k) y = ReduceMax<axes=[0], keepdims=0>(e)",
    "mean": "e = Gather(x, k) y = ReduceMean<axes=[0]>(e)",
    "best": "e = Gather(x, k) y = ArgMax<axis=0, keepdims=0>(e)",
    "flat": "e = Gather(x, k) y = Reshape(e, last)",
    "apart": "e = Gather(x, k) y = Reshape(e, pairs)",
    "first": "e = Gather(x, k) y = Slice(e, zero, three, zero)",
    "columns": "e = Gather(x, k) y = Slice(e, zero, three, last)",
    "halves": "e = Gather(x, k) a, b2 = Split<axis=1>(e, sizes) y = Concat<axis=1>(b2, a)",
    "joined": "e = Gather(x, k) y = Concat<axis=0>(e, e, x)",
    "size": "e = Gather(x, k) y = Shape(e)",
    "count": "y = Size(k)",
    "again": "e = Gather(x, k) g = Slice(e, zero, one, last) f = Reshape(g, last)"
    " p = Greater(f, nought) y = Compress<axis=0>(e, p)",
    "places": "e = Gather(x, k) p = Greater(e, nought) y = NonZero(p)",
    "running": "e = Gather(x, k) y = CumSum(e, zero1)",
}
CONSTANTS = """
    zero = Constant<value_ints=[0]>() last = Constant<value_ints=[-1]>()
    negative = Constant<value_ints=[-1, 0]>() three = Constant<value_ints=[3]>()
    one = Constant<value_ints=[1]>() k2 = Constant<value_ints=[2, 0, 1]>()
    pairs = Constant<value_ints=[-1, 2]>() sizes = Constant<value_ints=[1, 3]>()
    zero1 = Constant<value_int=0>() two = Constant<value_floats=[2.0, 1.0, 3.0, 0.5]>()
    nought = Constant<value_float=0.0>() w = Transpose<perm=[1, 0]>(x)
    k1 = Add(k, one) c = Constant<value_floats=[0.5, -1.0, 2.0]>()
"""


def model(chain: str) -> onnx.ModelProto:
    """`chain` after the indices k of the rows of x[12, 4] whose largest number exceeds `edge`."""
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[12, 4] x, float edge) => (y)
        <float[4, 3] m = {{1,2,3,4,5,6,7,8,9,10,11,12}}>
        {{ top = ReduceMax<axes=[1], keepdims=0>(x) f0 = Greater(top, edge) n = NonZero(f0)
          ax = Constant<value_ints=[0]>() k = Squeeze(n, ax) {CONSTANTS} {chain} }}"""
    )


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("edge", [0.9, -9.0])
def test_counted_rows(name: str, edge: float) -> None:
    made, feeds = model(CHAINS[name]), {"x": X, "edge": np.asarray(edge, np.float32)}
    engine = pp.Engine(pp.load(made), system="ipu", tiles_per_ipu=8, threads=1)
    engine.run(feeds)  # compiles
    with interpreter_blocked():
        ours = engine.run(feeds)["y"]
    (reference,) = expected(made, feeds)
    assert (ours.shape, ours.dtype) == (reference.shape, reference.dtype)
    np.testing.assert_allclose(ours, reference, rtol=2e-5, atol=1e-6)


COUNTED = {
    "rows": CHAINS[sorted(CHAINS)[0]],
    "nonzero": "q = Greater(x, edge) y = NonZero(q)",
    "compress": "y = Compress<axis=0>(x, f0)",
    "boxes": """a = Abs(x) ax1 = Constant<value_ints=[0]>() boxes = Unsqueeze(a, ax1)
        s0 = Unsqueeze(top, ax1) scores = Unsqueeze(s0, ax1) most = Constant<value_ints=[5]>()
        iou = Constant<value_floats=[0.3]>() y = NonMaxSuppression(boxes, scores, most, iou, edge1)
        """,
}
"""Outputs that the device counts, along the first axis and along others."""


@pytest.mark.parametrize("name", COUNTED)
def test_every_way_of_running_cuts_the_same(name: str, tmp_path: Path) -> None:
    chain = COUNTED[name].replace("edge1", "e1")
    made = model(f"e1 = Unsqueeze(edge, ax) {chain}")
    feeds = {"x": X, "edge": np.asarray(0.9, np.float32)}
    (reference,) = expected(made, feeds)
    assert reference.size > 0
    options = CompileOptions("ipu", tiles_per_ipu=8, dumps=Dumps(dump_dir=tmp_path / "dumps"))
    exe = compile_model(pp.load(made), options, Sizes.of()).executable
    exe.save(tmp_path / "m.pexe")
    dumps = sorted((tmp_path / "dumps").glob("*.pir"))
    levels = [dumps[0], dumps[-1]]
    assert [is_tile_text(path.read_text()) for path in levels] == [False, True]
    texts = [pp.compile(pp.load(path), system="ipu", tiles_per_ipu=8) for path in levels]
    for what in (exe, pp.Executable.load(tmp_path / "m.pexe"), *texts):
        outputs = pp.Engine(what, threads=1).run(feeds)
        assert list(outputs) == ["y"]
        assert outputs["y"].shape == reference.shape
        np.testing.assert_allclose(outputs["y"], reference, rtol=2e-5, atol=1e-6)


def test_a_count_that_is_missing_is_told(tmp_path: Path) -> None:
    exe = pp.compile(pp.load(model(COUNTED["nonzero"])), system="ipu", tiles_per_ipu=8)
    (counted,) = exe.signature.results
    assert counted.counted == 1
    moved = (replace(counted, counted=0), *exe.signature.outputs[1:])
    exe.signature = replace(exe.signature, outputs=moved)
    exe.save(tmp_path / "m.pexe")
    with pytest.raises(FileError, match="number of elements of 'y' is missing"):
        pp.Executable.load(tmp_path / "m.pexe")


@pytest.mark.parametrize("chain", ["t = Gather(x, k) y = Softmax<axis=0>(t)", "y = Mul(k, k9)"])
def test_what_looks_across_is_refused(chain: str) -> None:
    text = "q = Abs(x) f1 = Less(top, edge) n1 = NonZero(f1) k9 = Squeeze(n1, ax) " + chain
    with pytest.raises(UnsupportedOp) as caught:
        pp.compile(pp.load(model(text)), system="ipu", tiles_per_ipu=8)
    assert "device" in caught.value.message


def test_loop_that_stops_collects_what_it_made() -> None:
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[3] x) => (last, all) {
          most = Constant<value_int=40>()
          last, all = Loop(most, , x) <body = b (int64 i, bool go, float[3] v)
              => (bool more, float[3] next, float[3] seen) {
            half = Constant<value_float=0.6>() edge = Constant<value_float=0.05>()
            next = Mul(v, half) seen = Neg(next) top = ReduceMax<keepdims=0>(next)
            more = Greater(top, edge) }> }"""
    )
    for scale in (1.0, 3.0, 0.01):
        feeds: dict[str, Array] = {"x": np.asarray([0.5, 1.0, 0.25], np.float32) * scale}
        feeds["x"] = feeds["x"].astype(np.float32)
        outputs = pp.Engine(pp.load(made), system="ipu", tiles_per_ipu=4, threads=1).run(feeds)
        for name, reference in zip(("last", "all"), expected(made, feeds), strict=True):
            np.testing.assert_allclose(outputs[name], reference, rtol=1e-6)
