"""The functions of element-wise expressions (see `expr`): name to operand count and IR maker."""

from __future__ import annotations

from collections.abc import Callable

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import Expr
from poplar_py.types import DTYPES, bool_

__all__ = ["FUNCTIONS", "Operand"]

Operand = build.Operand


def _unary(op: str) -> Callable[..., Operand]:
    def function(x: Operand) -> Operand:
        return build.unary(op, x)

    return function


def _binary(op: str) -> Callable[..., Operand]:
    def function(a: Operand, b: Operand) -> Operand:
        return build.binary(op, a, b)

    return function


def _compare(op: str) -> Callable[..., Operand]:
    def function(a: Operand, b: Operand) -> Operand:
        return build.compare(op, a, b)

    return function


def _logical(op: str) -> Callable[..., Operand]:
    def function(a: Operand, b: Operand) -> Operand:
        return build.binary(op, build.to_bool(a), build.to_bool(b))

    return function


def _div(a: Operand, b: Operand) -> Operand:
    x, y = build.promote(a, b)
    return build.binary("div" if x.ty.dtype.is_float else "quot", x, y)


def _fmod(a: Operand, b: Operand) -> Operand:
    x, y = build.promote(a, b)
    return build.binary("fmod" if x.ty.dtype.is_float else "rem", x, y)


def _sign(x: Operand) -> Operand:
    x = build.as_expr(x)
    if x.ty.dtype is bool_:
        return x
    below = build.select(build.compare("lt", x, 0), -1, x) if x.ty.dtype.kind != "u" else x
    return build.select(build.compare("gt", x, 0), build.const(1, x.ty), below)


def _relu(x: Operand) -> Operand:
    return build.binary("max", x, 0)


def _reciprocal(x: Operand) -> Operand:
    return build.binary("div", 1.0, x)


def _bitwise_not(x: Operand) -> Operand:
    x = build.as_expr(x)
    return build.unary("not" if x.ty.dtype is bool_ else "inv", x)


def _clamp(x: Operand, low: Operand, high: Operand) -> Operand:
    return build.binary("min", build.binary("max", x, low), high)


def _round_away(x: Operand) -> Operand:
    """The nearest whole number; halves go away from 0 (`round` takes the even one)."""
    x = build.as_expr(x)
    whole = build.unary("trunc", x)
    half = build.compare("ge", build.unary("abs", build.binary("sub", x, whole)), 0.5)
    return build.binary("add", whole, build.select(half, build.binary("copysign", 1.0, x), 0.0))


def _shift_right_zeros(a: Operand, b: Operand) -> Operand:
    """A shift that fills with zeros, also of signed integers."""
    x, n = build.promote(a, b)
    d = x.ty.dtype
    if d.kind != "i":
        return build.binary("shr", x, n)
    bits = DTYPES[f"u{d.bits}"]
    return build.bitcast(build.binary("shr", build.bitcast(x, bits), build.bitcast(n, bits)), d)


def _square(x: Operand) -> Operand:
    return build.binary("mul", x, x)


def _pow(a: Operand, b: Operand) -> Operand:
    """x^n for small whole constants by multiplication (x^2 is then rounded once)."""
    known = b.attr[0] if isinstance(b, Expr) and b.op == "const" else b
    if isinstance(a, Expr) and not isinstance(known, Expr) and known in (1, 2, 3):
        x = a if not isinstance(b, Expr) else build.promote(a, b)[0]
        if known == 1:
            return x
        square = build.binary("mul", x, x)
        return square if known == 2 else build.binary("mul", square, x)
    return build.binary("pow", a, b)


_UNARY = (
    "neg abs sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh "
    "tanh asinh acosh atanh erf sigmoid floor ceil round trunc isnan isinf popcount clz not"
).split()
_BINARY = "add sub mul min max fmin fmax atan2 copysign floordiv mod shl shr rem quot".split()
_ALIASES = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "is_nan": "isnan",
    "is_inf": "isinf",
    "shift_left": "shl",
    "shift_right": "shr",
    "logical_not": "not",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "inv": "reciprocal",
}
_PLAIN: dict[str, tuple[int, Callable[..., Operand]]] = {
    **{name: (1, _unary(name)) for name in _UNARY},
    **{name: (2, _binary(name)) for name in _BINARY},
    **{name: (2, _compare(name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: (2, _logical(name)) for name in ("and", "or", "xor")},
    "bitwise_and": (2, _binary("and")),
    "bitwise_or": (2, _binary("or")),
    "bitwise_xor": (2, _binary("xor")),
    "bitwise_not": (1, _bitwise_not),
    "div": (2, _div),
    "fmod": (2, _fmod),
    "pow": (2, _pow),
    "sign": (1, _sign),
    "round_away": (1, _round_away),
    "shift_right_zeros": (2, _shift_right_zeros),
    "relu": (1, _relu),
    "reciprocal": (1, _reciprocal),
    "square": (1, _square),
    "clamp": (3, _clamp),
    "select": (3, build.select),
    "fma": (3, build.fma),
}
FUNCTIONS = _PLAIN | {alias: _PLAIN[name] for alias, name in _ALIASES.items()}
