"""Elementwise ops as trees of the expression language (codelets.expr).

A tree is a `Value` (an input), a `Literal`, or a `Call`. `TEMPLATES` says which call stands for an
op; the text is what `math.map` and epilogues hold: `relu(add($0,c(0.5)))`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.codelets.meaning import evaluate_map
from poplar_py.ir.core import Op, Value
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.ops.core import Constant

__all__ = [
    "Call",
    "Literal",
    "Tree",
    "evaluate_map",
    "expression",
    "inputs_of",
    "literal_of",
    "size_of",
    "text_of",
]


@dataclass(frozen=True)
class Literal:
    """A number, in the element type of what it is combined with."""

    text: str


@dataclass(frozen=True)
class Call:
    """`name(args...)`; `words` are arguments that are no values, as the type of a cast."""

    name: str
    args: tuple[Tree, ...]
    words: tuple[str, ...] = ()


Tree = Value | Literal | Call

_UNARY: tuple[type[Op], ...] = (
    ew.Abs, ew.Neg, ew.Sign, ew.Exp, ew.Log, ew.Sqrt, ew.Rsqrt, ew.Reciprocal, ew.Sin, ew.Cos,
    ew.Tan, ew.Asin, ew.Acos, ew.Atan, ew.Sinh, ew.Cosh, ew.Tanh, ew.Asinh, ew.Acosh, ew.Atanh,
    ew.Erf, ew.Sigmoid, ew.Floor, ew.Ceil, ew.Round, ew.Not, ew.BitwiseNot, ew.IsNan, nn.Relu,
)  # fmt: skip
_BINARY: tuple[type[Op], ...] = (
    ew.Add, ew.Sub, ew.Mul, ew.Div, ew.Pow, ew.Min, ew.Max, ew.And, ew.Or, ew.Xor, ew.BitwiseAnd,
    ew.BitwiseOr, ew.BitwiseXor, ew.ShiftLeft, ew.ShiftRight, ew.Equal, ew.Less, ew.LessEqual,
    ew.Greater, ew.GreaterEqual,
)  # fmt: skip

Template = Callable[[Any, tuple[Tree, ...]], Tree]


def _by_name(op: Op, args: tuple[Tree, ...]) -> Tree:
    return Call(op.opname.partition(".")[2], args)


def _mod(op: ew.Mod, args: tuple[Tree, ...]) -> Tree:
    return Call("fmod" if op.fmod else "mod", args)


def _cast(op: ew.Cast, args: tuple[Tree, ...]) -> Tree:
    return Call("cast", args, (op.dtype.name,))


def _gelu(op: nn.Gelu, args: tuple[Tree, ...]) -> Tree:
    """x / 2 * (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) * (x + 0.044715 x^3))."""
    x = args[0]
    if op.approximate == "none":
        gate = Call("erf", (_mul(x, _number(0.7071067811865476)),))
    else:
        cubic = _mul(_number(0.044715), _mul(x, _mul(x, x)))
        gate = Call("tanh", (_mul(_number(0.7978845608028654), Call("add", (x, cubic))),))
    return _mul(_mul(x, _number(0.5)), Call("add", (_number(1.0), gate)))


def _mul(a: Tree, b: Tree) -> Tree:
    return Call("mul", (a, b))


def _number(value: float) -> Tree:
    return Literal(repr(value))


def _leaky(op: nn.LeakyRelu, args: tuple[Tree, ...]) -> Tree:
    below = Call("less", (args[0], _number(0.0)))
    return Call("select", (below, _mul(args[0], _number(float(op.alpha))), args[0]))


TEMPLATES: Mapping[type[Op], Template] = {
    **dict.fromkeys((*_UNARY, *_BINARY, ew.Select), _by_name),
    ew.Mod: _mod,
    ew.Cast: _cast,
    nn.Gelu: _gelu,
    nn.LeakyRelu: _leaky,
}


def expression(op: Op, trees: Mapping[Value, Tree]) -> Tree | None:
    """The tree of an op; `trees` gives those of operands that are computed inside.

    None for an op that has no expression.
    """
    template = TEMPLATES.get(type(op))
    if template is None:
        return None
    operands = op.operands()
    args: list[Tree] = [trees.get(v, v) for v in operands]
    for i, value in enumerate(operands):
        literal = literal_of(value)
        typed = any(
            not isinstance(args[k], Literal) and other.dtype is value.dtype
            for k, other in enumerate(operands)
            if k != i
        )
        if literal is not None and typed:
            args[i] = literal
    return template(op, tuple(args))


def literal_of(value: Value) -> Literal | None:
    """A constant of one finite number as a literal."""
    owner = value.owner
    if not isinstance(owner, Constant) or math.prod(owner.value.shape) != 1:
        return None
    number = owner.value.reshape(())[()]
    if value.dtype.kind in "iu":
        return Literal(str(int(number)))
    if not value.dtype.is_float or not math.isfinite(float(number)):
        return None
    short = str(number)
    same = np.dtype(value.dtype.numpy).type(float(short)) == number
    return Literal(short if same and ("." in short or "e" in short) else repr(float(number)))


def inputs_of(tree: Tree) -> tuple[Value, ...]:
    """The values of a tree in order of first appearance."""
    return tuple(dict.fromkeys(_values(tree)))


def _values(tree: Tree) -> Iterator[Value]:
    if isinstance(tree, Value):
        yield tree
    elif isinstance(tree, Call):
        for arg in tree.args:
            yield from _values(arg)


def size_of(tree: Tree) -> int:
    """Calls in a tree, shared ones counted each time."""
    return 1 + sum(map(size_of, tree.args)) if isinstance(tree, Call) else 0


def text_of(tree: Tree, inputs: tuple[Value, ...]) -> str:
    """The expression with `$i` for `inputs[i]`."""
    if isinstance(tree, Value):
        return f"${inputs.index(tree)}"
    if isinstance(tree, Literal):
        return f"c({tree.text})"
    parts = [text_of(arg, inputs) for arg in tree.args]
    return f"{tree.name}({','.join((*parts, *tree.words))})"
