"""ONNX optimisers (domain ai.onnx.preview.training)."""

from __future__ import annotations

from poplar_py.diagnostics import InputError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _groups(n: Node, kinds: int) -> list[list[Val]]:
    """Operands behind rate and step, per optimised tensor."""
    rest = n.tensors(2)
    count, left = divmod(len(rest), kinds)
    if left:
        raise InputError(f"{len(rest)} operands are no multiple of {kinds}", n.loc)
    return [[rest[k * count + i] for k in range(kinds)] for i in range(count)]


def _columns(rows: list[list[Val]]) -> list[Val]:
    return [v for column in zip(*rows, strict=True) for v in column]


def _decayed(n: Node, x: Val, gradient: Val) -> Val:
    norm = n.float("norm_coefficient")
    return gradient if norm == 0.0 else x * norm + gradient


@imports("Adagrad", domain=_DOMAIN)
def adagrad(b: Builder, n: Node) -> list[Val]:
    rate, step = b.reshape(n[0], ()), b.cast(b.reshape(n[1], ()), n[0].dtype)
    rate = rate / (step * n.float("decay_factor") + 1)
    rows: list[list[Val]] = []
    for x, gradient, history in _groups(n, 3):
        g = _decayed(n, x, gradient)
        total = history + g * g
        root = b.emit(ew.Sqrt, total) + n.float("epsilon", 1e-6)
        rows.append([x - rate * g / root, total])
    return _columns(rows)


@imports("Momentum", domain=_DOMAIN)
def momentum(b: Builder, n: Node) -> list[Val]:
    rate, step = b.reshape(n[0], ()), b.reshape(n[1], ())
    alpha, beta = n.float("alpha"), n.float("beta")
    nesterov = n.str("mode", "standard") == "nesterov"
    rows: list[list[Val]] = []
    for x, gradient, velocity in _groups(n, 3):
        g = _decayed(n, x, gradient)
        first = b.equal(step, 0)
        factor = b.select(first, b.like(1.0, g), b.like(beta, g))
        moved = velocity * alpha + g * factor
        change = g + moved * alpha if nesterov else moved
        rows.append([x - rate * change, moved])
    return _columns(rows)


@imports("Adam", domain=_DOMAIN)
def adam(b: Builder, n: Node) -> list[Val]:
    rate, step = b.reshape(n[0], ()), b.cast(b.reshape(n[1], ()), n[0].dtype)
    alpha, beta = n.float("alpha", 0.9), n.float("beta", 0.999)
    after = n.float("norm_coefficient_post")
    rows: list[list[Val]] = []
    for x, gradient, first, second in _groups(n, 4):
        g = _decayed(n, x, gradient)
        v, h = first * alpha + g * (1 - alpha), second * beta + g * g * (1 - beta)
        root = b.emit(ew.Sqrt, h) + n.float("epsilon", 1e-6)
        started = b.emit(ew.Greater, step, b.like(0, step))
        fix = b.emit(ew.Sqrt, 1.0 - b.power(b.like(beta, step), step)) / (
            1.0 - b.power(b.like(alpha, step), step)
        )
        adjusted = rate * b.select(started, fix, 1.0)
        new = x - adjusted * v / root
        rows.append([new * (1 - after) if after else new, v, h])
    return _columns(rows)
