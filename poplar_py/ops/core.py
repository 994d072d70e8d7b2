"""Ops of every model: constants and control flow."""

from __future__ import annotations

import numpy as np

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.ir.core import PURE, Graph, Op, Value, op
from poplar_py.types import TensorType, bool_, dtype_of, i64

__all__ = ["Constant", "If", "Loop"]


@op("core.constant", PURE)
class Constant(Op):
    """A tensor known at compile time. The array is made read-only. ONNX Constant."""

    value: np.ndarray

    def infer(self) -> TensorType:
        dtype = dtype_of(self.value)
        if self.value.flags.writeable or not self.value.flags.c_contiguous:
            self.value = np.array(self.value, dtype=dtype.numpy, order="C")
            self.value.flags.writeable = False
        return TensorType(dtype, tuple(self.value.shape))


@op("core.if")
class If(Op):
    """The results of `then` if `cond` (bool[]), else of `orelse`; both regions take no inputs."""

    cond: Value
    then: Graph
    orelse: Graph

    def infer(self) -> tuple[TensorType, ...]:
        if self.cond.dtype is not bool_:
            raise TypeMismatch(f"the condition must be bool, not {self.cond.type}")
        for region in self.regions():
            if region.inputs:
                raise ShapeError("a branch takes no inputs")
        yes = tuple(v.type for v in self.then.outputs)
        no = tuple(v.type for v in self.orelse.outputs)
        if yes != no:
            texts = " and ".join("(" + ", ".join(map(str, t)) + ")" for t in (yes, no))
            raise ShapeError(
                f"the branches give different types: {texts}",
                remedy="make the condition known at compile time (--const), or the types equal",
            )
        return yes


@op("core.loop")
class Loop(Op):
    """ONNX Loop. The body maps (iteration i64[], cond bool[], carried...) to (cond, carried...,
    scanned...); results are the carried values at the end, then the scanned ones stacked.

    Runs while `cond` (absent: true) and fewer than `trip` iterations (absent: no bound) are done.
    Scanned results need the number of iterations at compile time: `count`; -1 means unknown.
    """

    trip: Value | None
    cond: Value | None
    carried: tuple[Value, ...]
    body: Graph
    count: int = -1

    def infer(self) -> tuple[TensorType, ...]:
        n = len(self.carried)
        inputs, outputs = self.body.inputs, self.body.outputs
        if len(inputs) != n + 2 or len(outputs) < n + 1:
            raise ShapeError(
                f"{n} carried values need {n + 2} body inputs and at least {n + 1} outputs, not "
                f"{len(inputs)} and {len(outputs)}"
            )
        if self.trip is not None and self.trip.dtype is not i64:
            raise TypeMismatch(f"the trip count must be i64, not {self.trip.type}")
        for given, inner, after in zip(self.carried, inputs[2:], outputs[1:], strict=False):
            if not given.type == inner.type == after.type:
                raise ShapeError(
                    f"a carried value changes its type: {given.type} at the start, {inner.type} "
                    f"in the body, {after.type} after it"
                )
        scanned = outputs[n + 1 :]
        if scanned and self.count < 0:
            raise ShapeError(
                "stacked results need a number of iterations known at compile time",
                remedy="give the trip count as a constant (--const)",
            )
        types = [v.type for v in self.carried]
        types += [TensorType(v.dtype, (self.count, *v.shape)) for v in scanned]
        return tuple(types)


