"""Expressions as objects, under Poplar's names: `expr.Mul(expr.Exp(expr._1), expr.Const(0.5))`.

`popops.map` takes them as well as text; `_1` is its first tensor. The operators of Python join
expressions and numbers: `expr._1 * 2.0 + expr._2`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poplar_py.types import DType

__all__ = ["BINARY_NAMES", "UNARY_NAMES", "Any", "Cast", "Clamp", "Const", "PlaceHolder", "Select"]

UNARY_NAMES = {
    "Abs": "abs({})", "Asin": "asin({})", "BitwiseNot": "bitwise_not({})", "Ceil": "ceil({})",
    "Cbrt": "mul(sign({0}),pow(abs({0}),c(0.3333333333333333)))", "CountLeadingZeros": "clz({})",
    "Cos": "cos({})", "Erf": "erf({})", "Exp": "exp({})", "Exp2": "exp2({})", "Expm1": "expm1({})",
    "Floor": "floor({})", "Inv": "reciprocal({})", "IsFinite": "not(or(is_inf({0}),is_nan({0})))",
    "IsInf": "is_inf({})", "IsNaN": "is_nan({})", "Log": "log({})", "Log1p": "log1p({})",
    "Neg": "neg({})", "NearbyInt": "round({})", "Not": "not({})", "Popcount": "popcount({})",
    "Relu": "relu({})", "Round": "round_away({})", "Rsqrt": "rsqrt({})", "Sigmoid": "sigmoid({})",
    "Signum": "sign({})", "Sin": "sin({})", "Sqrt": "sqrt({})", "Square": "square({})",
    "Tan": "tan({})", "Tanh": "tanh({})", "Trunc": "trunc({})",
}  # fmt: skip
BINARY_NAMES = {
    "Add": "add({},{})", "And": "and({},{})", "Atan2": "atan2({},{})", "Divide": "div({},{})",
    "BitwiseAnd": "bitwise_and({},{})", "BitwiseOr": "bitwise_or({},{})",
    "BitwiseXor": "bitwise_xor({},{})", "BitwiseXnor": "bitwise_not(bitwise_xor({},{}))",
    "Equal": "equal({},{})", "Gt": "greater({},{})", "Gte": "greater_equal({},{})",
    "Lt": "less({},{})", "Lte": "less_equal({},{})", "Max": "max({},{})", "Min": "min({},{})",
    "Mul": "mul({},{})", "NotEqual": "not_equal({},{})", "Or": "or({},{})", "Pow": "pow({},{})",
    "Rem": "fmod({},{})", "Shl": "shift_left({},{})", "Shr": "shift_right_zeros({},{})",
    "ShrSE": "shift_right({},{})",
    "Sub": "sub({},{})",
    "InvStdDevToVariance": "sub(reciprocal(mul({0},{0})),{1})",
    "VarianceToInvStdDev": "rsqrt(add({0},{1}))",
}  # fmt: skip


@dataclass(frozen=True)
class Any:
    """An expression; `text` is its form in the expression language, `str()` gives it."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Operand) -> Any:
        return _join("add", self, other)

    def __radd__(self, other: Operand) -> Any:
        return _join("add", other, self)

    def __sub__(self, other: Operand) -> Any:
        return _join("sub", self, other)

    def __rsub__(self, other: Operand) -> Any:
        return _join("sub", other, self)

    def __mul__(self, other: Operand) -> Any:
        return _join("mul", self, other)

    def __rmul__(self, other: Operand) -> Any:
        return _join("mul", other, self)

    def __truediv__(self, other: Operand) -> Any:
        return _join("div", self, other)

    def __rtruediv__(self, other: Operand) -> Any:
        return _join("div", other, self)

    def __mod__(self, other: Operand) -> Any:
        return _join("fmod", self, other)

    def __lt__(self, other: Operand) -> Any:
        return _join("less", self, other)

    def __le__(self, other: Operand) -> Any:
        return _join("less_equal", self, other)

    def __gt__(self, other: Operand) -> Any:
        return _join("greater", self, other)

    def __ge__(self, other: Operand) -> Any:
        return _join("greater_equal", self, other)

    def __and__(self, other: Operand) -> Any:
        return _join("bitwise_and", self, other)

    def __or__(self, other: Operand) -> Any:
        return _join("bitwise_or", self, other)

    def __xor__(self, other: Operand) -> Any:
        return _join("bitwise_xor", self, other)

    def __neg__(self) -> Any:
        return Any(f"neg({self.text})")

    def __invert__(self) -> Any:
        return Any(f"bitwise_not({self.text})")


Operand = Any | float | int | bool


def _operand(value: Operand) -> str:
    return value.text if isinstance(value, Any) else Const(value).text


def _join(function: str, a: Operand, b: Operand) -> Any:
    return Any(f"{function}({_operand(a)},{_operand(b)})")


def PlaceHolder(number: int) -> Any:
    """The `number`-th tensor of the map, from 1."""
    if number < 1:
        raise ValueError("tensors of a map are counted from 1")
    return Any(f"${number - 1}")


def Const(value: float | int | bool, dtype: DType | None = None) -> Any:
    """A number; without a type it takes that of the other operand."""
    number = repr(int(value) if isinstance(value, bool) else value)
    return Any(f"c({number},{dtype.name})" if dtype is not None else f"c({number})")


def Cast(a: Operand, dtype: DType) -> Any:
    """a as another type."""
    return Any(f"cast({_operand(a)},{dtype.name})")


def Select(a: Operand, b: Operand, condition: Operand) -> Any:
    """a where the condition holds, else b."""
    return Any(f"select({_operand(condition)},{_operand(a)},{_operand(b)})")


def Clamp(a: Operand, low: Operand, high: Operand) -> Any:
    """min(max(a, low), high)."""
    return Any(f"min(max({_operand(a)},{_operand(low)}),{_operand(high)})")


def _function(name: str, template: str) -> Callable[..., Any]:
    count = 1 if name in UNARY_NAMES else 2

    def make(*operands: Operand) -> Any:
        if len(operands) != count:
            raise TypeError(f"{name} takes {count} operand(s), {len(operands)} given")
        return Any(template.format(*(_operand(o) for o in operands)))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{template.format(*('abc'[:count]))} as an expression."
    return make


def __getattr__(name: str) -> Any | Callable[..., Any]:
    """`Add`, `Exp`, ... of the tables, and `_1`, `_2`, ... for the tensors."""
    template = UNARY_NAMES.get(name) or BINARY_NAMES.get(name)
    if template is not None:
        return _function(name, template)
    if name.startswith("_") and name[1:].isdigit():
        return PlaceHolder(int(name[1:]))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
