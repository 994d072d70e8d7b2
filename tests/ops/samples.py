"""One or more small graphs for every model op, with inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.ir.core import Graph, Module, Op, Value
from poplar_py.ops import core, nn, tensor
from poplar_py.ops import elementwise as ew
from poplar_py.types import (
    TensorType,
    bf16,
    bool_,
    dtype_of,
    f16,
    f32,
    i8,
    i32,
    i64,
    u8,
)

Array = np.ndarray[Any, np.dtype[Any]]
R = np.random.default_rng(11)


@dataclass(frozen=True)
class Sample:
    """`build(graph, values)` appends ops for the inputs and gives the outputs."""

    name: str
    inputs: tuple[Array, ...]
    build: Callable[[Graph, list[Value]], list[Value]]

    def module(self) -> Module:
        graph = Graph("main")
        values = [
            graph.add_input(TensorType(dtype_of(a.dtype), a.shape), f"x{i}")
            for i, a in enumerate(self.inputs)
        ]
        for i, value in enumerate(self.build(graph, values)):
            graph.add_output(value, f"y{i}")
        return Module("sample", [graph])


def one(cls: type[Op], *inputs: Array, name: str = "", **attributes: Any) -> Sample:
    """A graph of a single op over its inputs."""

    def build(graph: Graph, values: list[Value]) -> list[Value]:
        return list(graph.append(cls(*values, **attributes)).results)

    return Sample(name or cls.opname, tuple(inputs), build)


def optional(cls: type[Op], slots: list[int | None], *inputs: Array, **attributes: Any) -> Sample:
    """A single op whose operands are inputs by number, or absent."""

    def build(graph: Graph, values: list[Value]) -> list[Value]:
        operands = [None if s is None else values[s] for s in slots]
        return list(graph.append(cls(*operands, **attributes)).results)

    return Sample(cls.opname, tuple(inputs), build)


def listed(cls: type[Op], *inputs: Array, **attributes: Any) -> Sample:
    """A single op with a list of operands."""

    def build(graph: Graph, values: list[Value]) -> list[Value]:
        return list(graph.append(cls(tuple(values), **attributes)).results)

    return Sample(cls.opname, tuple(inputs), build)


def floats(*shape: int, low: float = -2.0, high: float = 2.0, dtype: Any = np.float32) -> Array:
    return R.uniform(low, high, shape).astype(dtype)


def ints(*shape: int, low: int = -20, high: int = 20, dtype: Any = np.int32) -> Array:
    return R.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> Array:
    return R.integers(0, 2, shape).astype(bool)


X = floats(3, 5)
UNIT = floats(3, 5, low=-0.9, high=0.9)
POSITIVE = floats(3, 5, low=0.1, high=4.0)

_ANY = (ew.Abs, ew.Neg, ew.Sign, ew.Exp, ew.Sin, ew.Cos, ew.Tan, ew.Atan, ew.Sinh, ew.Cosh, ew.Tanh)
_ANY_MORE = (ew.Asinh, ew.Erf, ew.Sigmoid, ew.Floor, ew.Ceil, ew.Round)
_UNARY = [
    *(one(c, X) for c in (*_ANY, *_ANY_MORE)),
    *(one(c, UNIT) for c in (ew.Asin, ew.Acos, ew.Atanh)),
    *(one(c, POSITIVE) for c in (ew.Log, ew.Sqrt, ew.Rsqrt, ew.Reciprocal)),
    one(ew.Acosh, POSITIVE + 1),
    one(ew.Not, bools(7)),
    one(ew.BitwiseNot, ints(7)),
    one(ew.IsNan, np.asarray([1, np.nan, np.inf], np.float32)),
    one(ew.IsInf, np.asarray([1, np.nan, np.inf, -np.inf], np.float32), negative=False),
    one(ew.Exp, X.astype(np.float16), name="math.exp f16"),
    one(ew.Tanh, X.astype(bf16.numpy), name="math.tanh bf16"),
    one(ew.Abs, ints(9, dtype=np.int64), name="math.abs i64"),
]

_BINARY = [
    *(one(c, X, floats(5)) for c in (ew.Add, ew.Sub, ew.Mul, ew.Min, ew.Max)),
    one(ew.Div, X, POSITIVE),
    one(ew.Div, ints(20), ints(20, low=1, high=9), name="math.div i32"),
    one(ew.Pow, POSITIVE, X),
    one(ew.Mod, ints(20), ints(20, low=1, high=9)),
    one(ew.Mod, X, POSITIVE, fmod=True, name="math.mod fmod"),
    one(ew.Add, ints(3, 5, dtype=np.int64), ints(1, dtype=np.int64), name="math.add i64"),
    one(ew.Mul, ints(9, dtype=np.int8), ints(9, dtype=np.int8), name="math.mul i8"),
    *(one(c, bools(9), bools(9)) for c in (ew.And, ew.Or, ew.Xor)),
    *(one(c, ints(9), ints(9)) for c in (ew.BitwiseAnd, ew.BitwiseOr, ew.BitwiseXor)),
    *(one(c, ints(9), ints(9, low=0, high=8)) for c in (ew.ShiftLeft, ew.ShiftRight)),
    *(one(c, ints(3, 9), ints(9)) for c in (ew.Equal, ew.Less, ew.LessEqual)),
    *(one(c, X, floats(3, 1)) for c in (ew.Greater, ew.GreaterEqual)),
    one(ew.Select, bools(3, 1), X, floats(5)),
    one(ew.Cast, X * 300, dtype=i8),
    one(ew.Cast, ints(9), dtype=f16, name="math.cast to f16"),
    one(ew.Cast, X, dtype=bool_, name="math.cast to bool"),
    one(ew.Cast, ints(9, dtype=np.int64), dtype=i32, name="math.cast i64"),
    one(ew.Cast, X, dtype=bf16, name="math.cast bf16"),
    listed(ew.Map, X, floats(5), expr="relu(add(mul($0,$1),c(0.5)))", dtype=f32),
]

_LAYOUT = [
    one(tensor.Reshape, X, shape=(5, 3)),
    one(tensor.Transpose, floats(2, 3, 4), perm=(2, 0, 1)),
    one(tensor.Expand, floats(3, 1), shape=(2, 3, 4)),
    one(tensor.Slice, floats(4, 6), starts=(3, 1), sizes=(2, 3), steps=(-2, 2)),
    listed(tensor.Concat, floats(2, 3), floats(2, 1), axis=1),
    one(tensor.Pad, X, before=(1, 0), after=(0, 2), value=1.5),
    one(tensor.Bitcast, X, dtype=i32),
    one(tensor.Iota, shape=(2, 4), axis=1, dtype=i64),
]


def _index(*values: int) -> Array:
    return np.asarray(values, np.int32)


_INDEX = [
    one(tensor.Gather, floats(4, 3), _index(3, 0, 3).reshape(3, 1), axis=0),
    one(tensor.Gather, floats(2, 4, 3), _index(1, 2), axis=1, name="tensor.gather axis 1"),
    *(
        one(
            tensor.Scatter,
            floats(5, 2),
            _index(4, 0, 4),
            floats(3, 2),
            reduction=kind,
            name=f"tensor.scatter {kind}",
        )
        for kind in tensor.SCATTER_KINDS
    ),
    one(tensor.DynamicSlice, floats(6, 3), _index(2).reshape(()), axis=0, size=2),
    one(tensor.DynamicUpdate, floats(6, 3), floats(6, 1), _index(1).reshape(()), axis=1),
]

_REDUCE = [
    *(
        one(tensor.Reduce, floats(3, 4, 5), kind=kind, axes=(0, 2), name=f"tensor.reduce {kind}")
        for kind in ("sum", "prod", "max", "min")
    ),
    one(tensor.Reduce, bools(3, 4), kind="and", axes=(1,), keep=True, name="tensor.reduce and"),
    one(tensor.Reduce, bools(3, 4), kind="or", axes=(0,), name="tensor.reduce or"),
    one(tensor.Reduce, ints(3, 4), kind="sum", axes=(0, 1), name="tensor.reduce i32"),
    one(tensor.Reduce, X.astype(np.float16), kind="sum", axes=(1,), name="tensor.reduce f16"),
    one(tensor.Cumulative, floats(3, 6), axis=1, exclusive=True),
    one(tensor.Cumulative, floats(6), kind="prod", reverse=True, name="tensor.cumulative prod"),
    one(tensor.TopK, floats(3, 7), k=3, axis=1),
    one(tensor.TopK, ints(7, low=0, high=3), k=7, axis=0, largest=False, name="tensor.top_k ties"),
    one(tensor.ArgMax, floats(3, 7), axis=1),
    one(tensor.ArgMin, ints(3, 7, low=0, high=2), axis=0, last=True),
]

_CONV: dict[str, Any] = {"strides": (2, 1), "pads": (1, 0, 1, 2), "dilations": (1, 2), "groups": 2}
_POOL: dict[str, Any] = {
    "kernel": (3, 2),
    "strides": (2, 2),
    "pads": (1, 0, 1, 1),
    "dilations": (1, 1),
}
_T, _B, _I, _H = 4, 2, 3, 5

_NN = [
    one(nn.Relu, X),
    one(nn.LeakyRelu, X, alpha=0.2),
    one(nn.Gelu, X),
    one(nn.Gelu, X, approximate="tanh", name="nn.gelu tanh"),
    one(nn.Softmax, floats(3, 7), axis=0),
    one(nn.LogSoftmax, floats(3, 7)),
    one(nn.LayerNorm, floats(2, 3, 8), floats(8), floats(8)),
    optional(nn.LayerNorm, [0, None, None], floats(2, 3, 8), axis=1),
    one(nn.MatMul, floats(2, 3, 4), floats(4, 5)),
    one(nn.MatMul, floats(4), floats(4), name="nn.matmul vectors"),
    one(nn.MatMul, X.astype(np.float16), floats(5, 2).astype(np.float16), name="nn.matmul f16"),
    one(nn.MatMulInteger, ints(3, 9, low=0, high=255, dtype=np.uint8), ints(9, 2, dtype=np.int8)),
    one(nn.Conv, floats(2, 4, 9, 8), floats(6, 2, 3, 2), floats(6), **_CONV),
    optional(nn.ConvInteger, [0, 1, None], ints(1, 2, 5, dtype=np.int8),
             ints(3, 2, 3, dtype=np.int8), strides=(1,), pads=(1, 1), dilations=(1,)),
    optional(nn.ConvTranspose, [0, 1, None], floats(1, 4, 5, 4), floats(4, 3, 3, 2),
             strides=(2, 1), pads=(1, 0, 0, 0), dilations=(1, 2), groups=2),
    one(nn.MaxPool, floats(1, 2, 7, 6), **_POOL),
    one(nn.MaxPool, floats(1, 2, 7, 6), **_POOL, indices=True, name="nn.max_pool indices"),
    one(nn.AvgPool, floats(1, 2, 7, 6), **_POOL),
    one(nn.AvgPool, floats(1, 2, 7, 6), **_POOL, count_include_pad=True, extra=(0, 1),
        name="nn.avg_pool with padding"),
    one(nn.Lstm, floats(_T, _B, _I), floats(4 * _H, _I), floats(4 * _H, _H), floats(4 * _H),
        floats(_B, _H), floats(_B, _H), reverse=True),
    one(nn.Gru, floats(_T, _B, _I), floats(3 * _H, _I), floats(3 * _H, _H), floats(6 * _H),
        floats(_B, _H)),
    one(nn.Gru, floats(_T, _B, _I), floats(3 * _H, _I), floats(3 * _H, _H), floats(6 * _H),
        floats(_B, _H), linear_before_reset=True, name="nn.gru linear"),
    one(nn.Rnn, floats(_T, _B, _I), floats(_H, _I), floats(_H, _H), floats(_H), floats(_B, _H)),
]  # fmt: skip


def _if_sample() -> Sample:
    def build(graph: Graph, values: list[Value]) -> list[Value]:
        flag, x = values
        branches: list[Graph] = []
        for cls in (ew.Exp, ew.Neg):
            branch = Graph(cls.opname)
            branch.add_output(branch.append(cls(x)).result)
            branches.append(branch)
        return list(graph.append(core.If(flag, *branches)).results)

    return Sample("core.if", (np.asarray(True), X), build)


def _loop_sample(trip: int, limit: bool, cond: bool) -> Sample:
    def build(graph: Graph, values: list[Value]) -> list[Value]:
        x, bound, flag = values
        body = Graph("body")
        number = body.add_input(TensorType(i32, ()))
        carried = body.add_input(x.type)
        step = body.append(ew.Cast(number, f32)).result
        following = body.append(ew.Add(carried, step)).result
        if cond:
            top = body.append(tensor.Reduce(following, "max", (0, 1))).result
            edge = body.append(core.Constant(np.asarray(9, np.float32))).result
            body.add_output(body.append(ew.Less(top, edge)).result)
        body.add_output(following)
        made = core.Loop((x,), bound if limit else None, flag if cond else None, body, trip=trip)
        return list(graph.append(made).results)

    inputs = (X, np.asarray(4, np.int32), np.asarray(True))
    return Sample(f"core.loop {trip} {limit} {cond}", inputs, build)


def _constant_sample() -> Sample:
    def build(graph: Graph, values: list[Value]) -> list[Value]:
        weight = graph.append(core.Constant(np.broadcast_to(np.float32(2), (3, 5)))).result
        return [graph.append(ew.Add(values[0], weight)).result]

    return Sample("core.constant", (X,), build)


_CORE = [
    _constant_sample(),
    _if_sample(),
    _loop_sample(3, False, False),
    _loop_sample(-1, True, False),
    _loop_sample(-1, False, True),
    one(core.RandomUniform, shape=(3, 5), low=-1.0, high=2.0, seed=5),
    one(core.RandomNormal, shape=(3, 5), mean=1.0, scale=0.5, seed=6),
]

SAMPLES = [*_UNARY, *_BINARY, *_LAYOUT, *_INDEX, *_REDUCE, *_NN, *_CORE]
KINDS = (f16, u8)  # also used by the tests of element types
