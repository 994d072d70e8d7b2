"""Binding of free dims, checks of inputs, and the split of a batch over replicas."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.diagnostics import InputError, PoplarPyError, UnboundDims
from poplar_py.driver.signature import Port, Signature, bind_inputs, check_names
from poplar_py.types import TensorType, f32, i32, i64

BATCHED = {"x": TensorType(f32, ("batch", 3)), "state": TensorType(f32, (2, "batch", 4))}
FIXED = {"x": TensorType(f32, (1, 3)), "rate": TensorType(i64, ())}


def test_free_dims_come_from_shapes() -> None:
    binding = bind_inputs(BATCHED, {}, {"x": (8, 3)})
    assert binding.shapes == {"x": (8, 3), "state": (2, 8, 4)}


def test_unbound_dims_are_listed() -> None:
    with pytest.raises(UnboundDims, match="batch"):
        bind_inputs(BATCHED, {}, {})


@pytest.mark.parametrize("shape", [(8,), (8, 4)])
def test_contradicting_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="model declares"):
        bind_inputs(BATCHED, {}, {"x": shape})


def test_dim_bound_twice() -> None:
    with pytest.raises(InputError, match="elsewhere"):
        bind_inputs(BATCHED, {}, {"x": (8, 3), "state": (2, 4, 4)})


def test_replicas_split_where_the_batch_stands() -> None:
    binding = bind_inputs(BATCHED, {}, {"x": (8, 3)}, replicas=4)
    assert binding.shapes == {"x": (2, 3), "state": (2, 2, 4)}
    assert binding.splits == {"x": 0, "state": 1}


def test_uneven_batch() -> None:
    with pytest.raises(InputError, match="cannot be split"):
        bind_inputs(BATCHED, {"batch": 6}, {}, replicas=4)


def test_static_models_take_longer_arrays() -> None:
    binding = bind_inputs(FIXED, {}, {"x": (4, 3), "rate": ()}, replicas=4)
    assert binding.shapes == {"x": (1, 3), "rate": ()}
    assert binding.splits == {"x": 0, "rate": None}
    shared = bind_inputs(FIXED, {}, {"x": (1, 3), "rate": ()}, replicas=4)
    assert shared.splits["x"] is None


def test_shard_and_join() -> None:
    port = Port("state", TensorType(f32, (2, 2, 4)), 1)
    signature = Signature((port,), (port,), 3)
    array = np.arange(48, dtype=np.float32).reshape(2, 6, 4)
    checked = signature.check({"state": array})["state"]
    parts = [signature.shard(port, checked, r) for r in range(3)]
    assert all(part.shape == (2, 2, 4) for part in parts)
    np.testing.assert_array_equal(signature.join(port, parts), array)
    assert Signature.from_json(signature.to_json()) == signature


def test_all_faults_at_once() -> None:
    signature = Signature((Port("a", TensorType(f32, (2,))), Port("b", TensorType(i32, (2,)))), ())
    with pytest.raises(PoplarPyError) as caught:
        signature.check({"a": np.zeros(3, np.float32), "c": np.zeros(2)})
    text = str(caught.value)
    assert "unknown input 'c'" in text
    assert "input 'b' is missing" in text
    assert "[3], not [2]" in text


def test_element_types() -> None:
    signature = Signature((Port("a", TensorType(f32, (2,))), Port("b", TensorType(i32, (2,)))), ())
    good = signature.check({"a": np.zeros(2), "b": np.array([1, 2], np.int64)})
    assert good["a"].dtype == np.float32
    assert good["b"].dtype == np.int32
    with pytest.raises(InputError, match="element type"):
        signature.check({"a": np.zeros(2, np.int32), "b": np.zeros(2, np.int32)})
    with pytest.raises(InputError, match="do not fit"):
        signature.check({"a": np.zeros(2), "b": np.array([1, 1 << 40])})


def test_missing_input_names_the_options_of_the_command_line() -> None:
    with pytest.raises(PoplarPyError) as caught:
        Signature((Port("x", TensorType(f32, (2, 3))),), ()).check({})
    text = str(caught.value)
    assert "f32[2,3]" in text
    assert "--input x=FILE.npy" in text
    assert "--random-inputs SEED" in text


def test_misspelt_names_tell_the_nearest() -> None:
    with pytest.raises(PoplarPyError) as caught:
        check_names("dim", ["bacth"], ("batch", "tokens"))
    text = str(caught.value)
    assert "unknown dim 'bacth'" in text
    assert "did you mean 'batch'? dims are: batch, tokens" in text
