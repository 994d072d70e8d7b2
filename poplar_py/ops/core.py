"""core.*: constants, control flow and random numbers."""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.ir.core import PURE, RANDOM, Graph, Op, Value, op
from poplar_py.types import DType, Shape, TensorType, bool_, dtype_of, f32, i32

__all__ = ["Constant", "If", "Loop", "RandomNormal", "RandomUniform"]


@op("core.constant", PURE)
class Constant(Op):
    """An array known at compile time. The result carries the weight's name.

    `value` may be a broadcast view (strides of 0): a weight of one repeated number costs nothing.
    """

    value: np.ndarray

    def infer(self) -> TensorType:
        return TensorType(dtype_of(self.value.dtype), tuple(self.value.shape))


@op("core.if")
class If(Op):
    """Results are the outputs of `then_branch` where cond is true, else of `else_branch`.

    `cond` is bool with one element. Both regions take no inputs and may use outer values; their
    output types are equal. ONNX If.
    """

    cond: Value
    then_branch: Graph
    else_branch: Graph

    def infer(self) -> tuple[TensorType, ...]:
        _require_flag(self.cond)
        a = tuple(v.type for v in self.then_branch.outputs)
        b = tuple(v.type for v in self.else_branch.outputs)
        if a != b:
            raise TypeMismatch(f"the branches give {_list(a)} and {_list(b)}")
        return a


@op("core.loop")
class Loop(Op):
    """Runs `body` again and again over carried values; the results are their last values.

    `trip` >= 0 is a static number of iterations, -1 none. `limit` (i32, one element) bounds the
    iterations at run time. With `cond` (bool, one element) the loop goes on while the condition
    holds: it is tested before every iteration, first with `cond` itself. At least one of the three
    is given; the first to end the loop wins.

    `body` inputs: iteration number i32[], then the carried values. `body` outputs: the next
    condition bool[] if `cond` is given, then the next carried values with the same types.
    ONNX Loop and Scan (scan outputs are carried buffers written by tensor.dynamic_update).
    """

    carried: tuple[Value, ...]
    limit: Value | None
    cond: Value | None
    body: Graph
    trip: int = -1

    def infer(self) -> tuple[TensorType, ...]:
        if self.trip < 0 and self.limit is None and self.cond is None:
            raise ShapeError("a loop wants a trip count, a limit or a condition")
        if self.limit is not None and (self.limit.dtype is not i32 or not _single(self.limit)):
            raise TypeMismatch(f"the limit is {self.limit.type}, not i32[]")
        if self.cond is not None:
            _require_flag(self.cond)
        types = tuple(v.type for v in self.carried)
        want_in = (TensorType(i32, ()), *types)
        want_out = types if self.cond is None else (TensorType(bool_, ()), *types)
        got_in = tuple(v.type for v in self.body.inputs)
        got_out = tuple(v.type for v in self.body.outputs)
        if got_in != want_in:
            raise TypeMismatch(f"the body takes {_list(got_in)}, not {_list(want_in)}")
        if got_out != want_out:
            raise TypeMismatch(f"the body gives {_list(got_out)}, not {_list(want_out)}")
        return types


@op("core.random_uniform", RANDOM)
class RandomUniform(Op):
    """Numbers uniform in [low, high). ONNX RandomUniform, Bernoulli.

    Element e is low + (high - low) * u, where u are the upper 24 bits of word e % 4 of Philox 4x32
    block e // 4 under the seed: equal on every mapping and machine.
    """

    shape: Shape
    dtype: DType = f32
    low: float = 0.0
    high: float = 1.0
    seed: int = 0

    def infer(self) -> TensorType:
        return _random_type(self.dtype, self.shape)


@op("core.random_normal", RANDOM)
class RandomNormal(Op):
    """Normal numbers: mean + scale * z, two z by Box and Muller of two words. ONNX RandomNormal.

    Of words u, v of RandomUniform: (r cos t, r sin t), r = sqrt(-2 log(u + 2^-24)), t = 2 pi v.
    """

    shape: Shape
    dtype: DType = f32
    mean: float = 0.0
    scale: float = 1.0
    seed: int = 0

    def infer(self) -> TensorType:
        return _random_type(self.dtype, self.shape)


def _random_type(dtype: DType, shape: Shape) -> TensorType:
    if not dtype.is_float:
        raise TypeMismatch(f"random numbers are of a float type, not {dtype}")
    return TensorType(dtype, tuple(shape))


def _single(value: Value) -> bool:
    return all(d == 1 for d in value.shape)


def _require_flag(value: Value) -> None:
    if value.dtype is not bool_ or not _single(value):
        raise TypeMismatch(f"the condition is {value.type}, not one bool")


def _list(types: tuple[TensorType, ...]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"
