"""What a product does to its sum before it is stored: bias, a residual, an activation.

An epilogue is an expression of the element-wise language on `$0` (the sum with its bias) and the
extra tensors `$1`, `$2`, ... The forms below run inside the product's vertices; every other
expression runs as an element-wise step after it, with the same meaning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    from poplar_py.poplar import Tensor

__all__ = ["Epilogue", "Inline", "fold_bias", "inline_form", "supports_epilogue"]

Node = tuple[Any, ...]

NONE, RELU, GELU, SIGMOID, SILU, HARDSWISH, CLIP, TANH, LEAKY, HARDSIGMOID, GELU_TANH = range(11)
POST = 16
_SIXTH = 1.0 / 6.0


@dataclass(frozen=True)
class Epilogue:
    """`expr` on `$0` = sum + bias and `$i` = `tensors[i - 1]`, each of the result's shape."""

    expr: str
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Inline:
    """An epilogue the block kernels know: `act`(sum + residual) or `act`(sum) + residual.

    `residual` is the number of the extra tensor (0 none), `post` adds it after the activation;
    `lo` and `hi` are the activation's two numbers.
    """

    act: int = NONE
    residual: int = 0
    post: bool = False
    lo: float = 0.0
    hi: float = 0.0

    @property
    def code(self) -> int:
        """The kernels' template parameter EP."""
        return self.act + (POST if self.post and self.residual else 0)


_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\$\d+|[-+]?[\d.]+(?:[eE][-+]?\d+)?|[(),:])")


def _is_node(value: object) -> TypeGuard[Node]:
    return isinstance(value, tuple)


def _parse(text: str) -> Node | None:
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s+", "", text):
        return None
    node, at = _parse_at(tokens, 0)
    return node if at == len(tokens) else None


def _parse_at(tokens: list[str], at: int) -> tuple[Node | None, int]:
    if at >= len(tokens):
        return None, at
    head = tokens[at]
    if head.startswith("$"):
        return ("$", int(head[1:])), at + 1
    if not (head[0].isalpha() or head[0] == "_"):
        try:
            return ("number", float(head)), at + 1
        except ValueError:
            return None, at
    if at + 1 >= len(tokens) or tokens[at + 1] != "(":
        return ("word", head), at + 1
    if head == "c":
        return _constant(tokens, at + 2)
    args: list[Node] = []
    at += 2
    while at < len(tokens):
        arg, at = _parse_at(tokens, at)
        if arg is None or at >= len(tokens) or tokens[at] not in (",", ")"):
            return None, at
        args.append(arg)
        at += 1
        if tokens[at - 1] == ")":
            return (head, *args), at
    return None, at


def _constant(tokens: list[str], at: int) -> tuple[Node | None, int]:
    """`c(0.5)`, with or without a type behind the number."""
    try:
        value = float(tokens[at])
        end = tokens.index(")", at)
    except (ValueError, IndexError):
        return None, at
    return ("number", value), end + 1


def _number(node: object) -> float | None:
    """The value of a constant."""
    if _is_node(node) and node[0] == "number":
        return float(node[1])
    return None


def _split(node: object, name: str) -> tuple[Node, float] | None:
    """(x, number) of a commutative two-operand call `name(x, c)` or `name(c, x)`."""
    if not _is_node(node) or node[0] != name or len(node) != 3:
        return None
    for x, c in ((node[1], node[2]), (node[2], node[1])):
        value = _number(c)
        if value is not None and _is_node(x):
            return x, value
    return None


def _near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= 1e-6 * max(1.0, abs(wanted))


def _clip(node: Node) -> tuple[Node, float, float] | None:
    """(x, lo, hi) of min(max(x, lo), hi) in either order, or clip(x, lo, hi)."""
    if node[0] in ("clip", "clamp") and len(node) == 4:
        lo, hi = _number(node[2]), _number(node[3])
        if lo is not None and hi is not None and _is_node(node[1]):
            return node[1], lo, hi
        return None
    upper = _split(node, "min")
    if upper is not None:
        lower = _split(upper[0], "max")
        return None if lower is None else (lower[0], lower[1], upper[1])
    lower = _split(node, "max")
    if lower is not None:
        upper = _split(lower[0], "min")
        if upper is not None and lower[1] <= upper[1]:
            return upper[0], lower[1], upper[1]
    return None


def _gate(node: Node) -> tuple[Node, float, float] | None:
    """(x, alpha, beta) of hardsigmoid: clip(alpha x + beta, 0, 1)."""
    found = _clip(node)
    if found is None or found[1] != 0.0 or found[2] != 1.0:
        return None
    shifted = _split(found[0], "add")
    if shifted is None:
        return None
    scaled = _split(shifted[0], "mul")
    return None if scaled is None else (scaled[0], scaled[1], shifted[1])


def _activation(node: Node) -> tuple[Node, Inline] | None:
    """(argument, form) when the outermost step of `node` is an activation the kernels know."""
    simple = {"relu": RELU, "gelu": GELU, "gelu_erf": GELU, "sigmoid": SIGMOID, "silu": SILU}
    simple |= {"swish": SILU, "hardswish": HARDSWISH, "tanh": TANH, "gelu_tanh": GELU_TANH}
    name = node[0]
    if name in simple and len(node) == 2 and _is_node(node[1]):
        return node[1], Inline(simple[str(name)])
    floor = _split(node, "max")
    if floor is not None and floor[1] == 0.0 and _clip(node) is None:
        return floor[0], Inline(RELU)
    gate = _gate(node)
    if gate is not None:
        return gate[0], Inline(HARDSIGMOID, lo=gate[1], hi=gate[2])
    clip = _clip(node)
    if clip is not None:
        return clip[0], Inline(CLIP, lo=clip[1], hi=clip[2])
    if name == "mul" and len(node) == 3:
        return _gated(node)
    return _leaky(node)


def _gated(node: Node) -> tuple[Node, Inline] | None:
    for x, g in ((node[1], node[2]), (node[2], node[1])):
        if not _is_node(x) or not _is_node(g):
            continue
        if g == ("sigmoid", x):
            return x, Inline(SILU)
        gate = _gate(g)
        if gate is not None and gate[0] == x and _near(gate[1], _SIXTH) and gate[2] == 0.5:
            return x, Inline(HARDSWISH)
    return None


def _leaky(node: Node) -> tuple[Node, Inline] | None:
    if node[0] != "select" or len(node) != 4:
        return None
    test, low, high = node[1:]
    if not _is_node(test) or test[0] not in ("lt", "less") or len(test) != 3:
        return None
    scaled = _split(low, "mul")
    if scaled is None or _number(test[2]) != 0.0 or test[1] != high or scaled[0] != high:
        return None
    return scaled[0], Inline(LEAKY, lo=scaled[1])


def _logistic(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


_EVALUATE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "neg": np.negative,
    "exp": np.exp,
    "tanh": np.tanh,
    "reciprocal": np.reciprocal,
    "square": np.square,
    "erf": np.vectorize(math.erf),
    "sigmoid": _logistic,
    "min": np.minimum,
    "max": np.maximum,
}
_SAMPLES = np.concatenate([np.linspace(-12.0, 12.0, 193), [-80.0, -40.0, -20.0, 20.0, 40.0, 80.0]])


@lru_cache(maxsize=1)
def _smooth_forms() -> tuple[tuple[int, Any], ...]:
    x = _SAMPLES
    erf = np.array([math.erf(v) for v in x / math.sqrt(2.0)])
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    gate = 1.0 / (1.0 + np.exp(-x))
    forms = ((GELU, 0.5 * x * (1 + erf)), (GELU_TANH, 0.5 * x * (1 + np.tanh(inner))))
    step = np.clip(x + 3.0, 0.0, 6.0)
    known = ((SILU, x * gate), (SIGMOID, gate), (TANH, np.tanh(x)), (HARDSWISH, x * step / 6.0))
    return (*forms, *known)


def _value(node: Node, variable: Node) -> Any:
    """The node over the samples with `variable` as x; None when it holds anything else."""
    if node == variable:
        return _SAMPLES
    if node[0] == "number":
        return np.float64(node[1])
    function = _EVALUATE.get(str(node[0]))
    if function is None:
        return None
    args = [_value(a, variable) for a in node[1:] if _is_node(a)]
    if len(args) != len(node) - 1 or any(a is None for a in args):
        return None
    return function(*args)


def _inner_sums(node: Node) -> list[Node]:
    """The distinct subtrees `add($0, $i)`, in either order, and `$0`, largest first."""
    found: list[Node] = []

    def walk(n: Node) -> None:
        if _residual(n) and n not in found:
            found.append(n)
        for a in n[1:]:
            if _is_node(a):
                walk(a)

    walk(node)
    return [*found, ("$", 0)]


def _smooth(node: Node) -> tuple[Node, Inline] | None:
    """An activation spelled out in arithmetic (gelu, silu, ...), recognised by its values."""
    for variable in _inner_sums(node):
        with np.errstate(all="ignore"):
            value = _value(node, variable)
        if value is None or np.shape(value) != _SAMPLES.shape or node == variable:
            continue
        near = [a for a, wanted in _smooth_forms() if _equal_values(value, wanted)]
        if near:
            return variable, Inline(near[0])
    return None


def _equal_values(a: Any, b: Any) -> bool:
    return bool((np.abs(a - b) <= 1e-6 * (1.0 + np.abs(b))).all())


def fold_bias(expr: str, index: int) -> str | None:
    """`expr` with every `add($0, $index)` as `$0`; None unless that removes all of `$index`.

    Later tensors are renumbered: `$index + 1` becomes `$index`, and so on.
    """
    node = _parse(expr)
    if node is None:
        return None
    return _text(_fold(node, index), index)


def _fold(node: Node, index: int) -> Node:
    if node[0] == "add" and set(node[1:]) == {("$", 0), ("$", index)}:
        return ("$", 0)
    return (node[0], *(_fold(a, index) if _is_node(a) else a for a in node[1:]))


def _text(node: Node, dropped: int) -> str | None:
    """The node as text without tensor `dropped`; None when it still occurs."""
    if node[0] == "$":
        number = int(node[1])
        return None if number == dropped else f"${number - (number > dropped)}"
    if node[0] == "number":
        return f"c({node[1]!r})"
    if node[0] == "word":
        return str(node[1])
    args = [_text(a, dropped) for a in node[1:] if _is_node(a)]
    known = [a for a in args if a is not None]
    return None if len(known) != len(args) else f"{node[0]}({','.join(known)})"


@lru_cache(maxsize=1024)
def inline_form(expr: str) -> Inline | None:
    """The kernels' form of an expression, or None where it needs a step of its own."""
    node = _parse(expr)
    if node is None:
        return None
    found = _activation(node) or _smooth(node)
    inner, form = found if found is not None else (node, Inline())
    if inner == ("$", 0):
        return form
    residual = _residual(inner)
    if residual:
        return Inline(form.act, residual, False, form.lo, form.hi)
    return _post_residual(node)


def _residual(node: Node) -> int:
    """i of add($0, $i) in either order, else 0."""
    if node[0] != "add" or len(node) != 3:
        return 0
    for a, b in ((node[1], node[2]), (node[2], node[1])):
        if a == ("$", 0) and _is_node(b) and b[0] == "$" and b[1] != 0:
            return int(b[1])
    return 0


def _post_residual(node: Node) -> Inline | None:
    """add(act($0), $i) in either order."""
    if node[0] != "add" or len(node) != 3:
        return None
    for a, b in ((node[1], node[2]), (node[2], node[1])):
        if not _is_node(a) or not _is_node(b) or b[0] != "$" or b[1] == 0:
            continue
        found = _activation(a) or _smooth(a)
        if found is not None and found[0] == ("$", 0):
            return Inline(found[1].act, int(b[1]), True, found[1].lo, found[1].hi)
    return None


def supports_epilogue(expr: str) -> bool:
    """Whether the block kernels compute `expr` themselves (else a step of its own follows)."""
    return inline_form(expr) is not None
