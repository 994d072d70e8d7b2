"""popops, element by element: every function of the tables in its three forms.

`NAME` gives a new tensor, `NAME_in_place` writes over its first operand, `NAME_with_output` writes
a given tensor; which of them exist the library's `__all__` says. What only integers or bools have
is run with i32 where the lab is of f32, and with u32 where it is of f16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from poplar_py import popops
from poplar_py.types import DType, bool_, f16, f32, i32, u32
from tests.libraries.lab import Array, Case, Lab

__all__ = ["CASES", "forms"]

Function = Callable[..., Any]
ROOMY = {f32: 2e-6, f16: 2e-3}
"""Difference allowed to an operation that may round more than once."""


@dataclass(frozen=True)
class Row:
    """What a function computes, in f64, over which operands; `kinds` says of which types: f floats,
    i integers, b bools, s i32 only."""

    meaning: Function
    low: float = -2.0
    high: float = 2.0
    kinds: str = "f"
    exact: bool = False


def _reciprocal_root(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _quotient(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else np.trunc(a.astype(np.float64) / b)


def _bits(f: Function) -> Function:
    """f of the values as Python integers of 32 bits without sign."""
    return np.vectorize(lambda *x: f(*(int(v) & 0xFFFFFFFF for v in x)), otypes=[np.int64])


UNARY = {
    "abs": Row(np.abs, kinds="fi", exact=True),
    "acos": Row(np.arccos, -1, 1),
    "acosh": Row(np.arccosh, 1, 9),
    "asin": Row(np.arcsin, -1, 1),
    "asinh": Row(np.arcsinh, -9, 9),
    "atan": Row(np.arctan, -9, 9),
    "atanh": Row(np.arctanh, -0.9, 0.9),
    "bitwise_not": Row(np.invert, -(1 << 31), (1 << 31) - 1, "i"),
    "cbrt": Row(np.cbrt, -30, 30),
    "ceil": Row(np.ceil, -9, 9, exact=True),
    "clz": Row(_bits(lambda x: 32 - x.bit_length()), -(1 << 31), (1 << 31) - 1, "i"),
    "cos": Row(np.cos, -9, 9),
    "cosh": Row(np.cosh, -3, 3),
    "erf": Row(special.erf),
    "exp": Row(np.exp, -3, 3),
    "exp2": Row(np.exp2, -3, 3),
    "expm1": Row(np.expm1),
    "floor": Row(np.floor, -9, 9, exact=True),
    "gelu_erf": Row(lambda x: x * special.ndtr(x), -4, 4),
    "inv": Row(np.reciprocal, 0.3, 4),
    "is_finite": Row(np.isfinite),
    "is_inf": Row(np.isinf),
    "is_nan": Row(np.isnan),
    "log": Row(np.log, 0.1, 9),
    "log1p": Row(np.log1p, -0.9, 9),
    "logical_not": Row(np.logical_not, kinds="b"),
    "nearby_int": Row(np.rint, -9, 9, exact=True),
    "neg": Row(np.negative, kinds="fs", exact=True),
    "popcount": Row(_bits(int.bit_count), -(1 << 31), (1 << 31) - 1, "i"),
    "reciprocal": Row(np.reciprocal, -4, -0.3),
    "relu": Row(lambda x: np.maximum(x, 0), kinds="fs", exact=True),
    "round": Row(lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), -9, 9, exact=True),
    "rsqrt": Row(_reciprocal_root, 0.2, 9),
    "sigmoid": Row(special.expit, -6, 6),
    "signum": Row(np.sign, kinds="fs", exact=True),
    "sin": Row(np.sin, -9, 9),
    "sinh": Row(np.sinh, -3, 3),
    "sqrt": Row(np.sqrt, 0, 9, exact=True),
    "square": Row(np.square, kinds="fi", exact=True),
    "tan": Row(np.tan, -1.4, 1.4),
    "tanh": Row(np.tanh, -4, 4),
    "trunc": Row(np.trunc, -9, 9, exact=True),
}
BINARY = {
    "add": Row(np.add, kinds="fi", exact=True),
    "atan2": Row(np.arctan2),
    "bitwise_and": Row(np.bitwise_and, -(1 << 31), (1 << 31) - 1, "i"),
    "bitwise_or": Row(np.bitwise_or, -(1 << 31), (1 << 31) - 1, "i"),
    "bitwise_xnor": Row(lambda a, b: ~(a ^ b), -(1 << 31), (1 << 31) - 1, "i"),
    "bitwise_xor": Row(np.bitwise_xor, -(1 << 31), (1 << 31) - 1, "i"),
    "div": Row(_quotient, 1, 9, "fi", exact=True),
    "eq": Row(np.equal, kinds="fib"),
    "gt": Row(np.greater, kinds="fib"),
    "gteq": Row(np.greater_equal, kinds="fib"),
    "log_add": Row(np.logaddexp, -4, 4),
    "logical_and": Row(np.logical_and, kinds="b"),
    "logical_or": Row(np.logical_or, kinds="b"),
    "lt": Row(np.less, kinds="fib"),
    "lteq": Row(np.less_equal, kinds="fib"),
    "max": Row(np.maximum, kinds="fi", exact=True),
    "min": Row(np.minimum, kinds="fi", exact=True),
    "mul": Row(np.multiply, kinds="fi", exact=True),
    "neq": Row(np.not_equal, kinds="fib"),
    "pow": Row(np.power, 0.2, 3),
    "rem": Row(np.fmod, 1, 9, "fi", exact=True),
    "shift_left": Row(lambda a, b: a << b, 0, 31, "i"),
    "shift_right": Row(_bits(lambda a, b: a >> b), 0, 31, "i"),
    "shift_right_sign_extend": Row(lambda a, b: a >> b, 0, 31, "s"),
    "sub": Row(np.subtract, kinds="fi", exact=True),
}
TRUTH = ("is_finite", "is_inf", "is_nan", "eq", "gt", "gteq", "lt", "lteq", "neq")
"""Their form in place leaves 1 and 0 in the operand's type."""


def dtypes_of(lab: Lab, kinds: str) -> list[DType]:
    """The element types a lab of f32 or f16 tries."""
    found = {"f": lab.dtype, "i": i32 if lab.dtype is f32 else u32, "s": i32, "b": bool_}
    return [found[kind] for kind in kinds]


def broadcast(lab: Lab, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to the given one: dims that are 1, leading ones gone."""
    dims = [1 if lab.pick(0, 2) == 0 else n for n in shape]
    return tuple(dims[lab.pick(0, len(dims)) if lab.pick(0, 2) == 0 else 0 :])


def widened(array: Array) -> Array:
    """Floats in f64, integers as they are."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def numbers(lab: Lab, shape: tuple[int, ...], row: Row, dtype: DType) -> Array:
    low, high = row.low, row.high
    if dtype is u32:
        low, high = max(low, 0.0), high if high > 9 else 9.0
    if dtype.is_float and lab.chance():  # halves and equal numbers happen
        return np.asarray(np.round(lab.values(shape, low, high, dtype) * 2) / 2).clip(low, high)
    return lab.values(shape, low, high, dtype)


def forms(lab: Lab, name: str, arrays: list[Array], want: Array, note: dict[str, Any]) -> None:
    """Calls the one form `name` is of; operands that are not written keep their values."""
    operands = [lab.put(a) for a in arrays]
    call = getattr(popops, name)
    if name.endswith("_with_output"):
        out = lab.put(lab.values(want.shape, 0, 1, _dtype_like(want, arrays[0])))
        call(lab.graph, *operands, out, lab.prog)
    elif name.endswith("_in_place"):
        call(lab.graph, *operands, lab.prog)
        out, operands, arrays = operands[0], operands[1:], arrays[1:]
    else:
        out = call(lab.graph, *operands, lab.prog)
    lab.expect(out, want, **note)
    for tensor, array in zip(operands, arrays, strict=True):
        lab.expect(tensor, array, exact=True)


def _dtype_like(want: Array, array: Array) -> DType:
    return bool_ if want.dtype == np.bool_ else _DTYPE[array.dtype]


_DTYPE = {d.numpy: d for d in (f32, f16, i32, u32, bool_)}


def _unary(kind: str, name: str, row: Row) -> Case:
    def case(lab: Lab) -> None:
        for dtype in dtypes_of(lab, row.kinds):
            x = numbers(lab, lab.odd_shape(), row, dtype)
            if kind in TRUTH and x.size:
                x.flat[lab.pick(0, x.size - 1)] = [np.nan, np.inf, -np.inf][lab.pick(0, 2)]
            want = np.asarray(row.meaning(widened(x)))
            forms(lab, name, [x], _result(want, x), _note(row, dtype))
        if name == kind and "f" in row.kinds:
            specials(lab, name, row, 1)

    return case


def _binary(kind: str, name: str, row: Row) -> Case:
    def case(lab: Lab) -> None:
        for dtype in dtypes_of(lab, row.kinds):
            shape = lab.odd_shape()
            shapes = [shape, broadcast(lab, shape)]
            if lab.chance() and not name.endswith("_in_place"):
                shapes.reverse()
            arrays = [numbers(lab, s, row, dtype) for s in shapes]
            if "shift" in kind:  # the operand has all bits, the counts fit
                low = 0 if dtype is u32 else -(1 << 31)
                arrays[0] = lab.values(shapes[0], low, (1 << 31) - 1, dtype)
            want = np.asarray(row.meaning(*map(widened, arrays)))
            forms(lab, name, arrays, _result(want, arrays[0]), _note(row, dtype))
        if name == kind and "f" in row.kinds:
            specials(lab, name, row, 2)

    return case


SPECIAL = (0.0, np.inf, -np.inf, np.nan, -1, 1, 0.5, -0.5, 2.5, 1e-3, 6e4, -6e4, 88, -88)


def specials(lab: Lab, name: str, row: Row, count: int) -> None:
    """Infinities, NaNs, ends of the range and of the domain, all pairs of them for two operands."""
    x = np.array(SPECIAL).astype(lab.dtype.numpy)
    arrays = [g.ravel() for g in np.meshgrid(*[x] * count)]
    with np.errstate(all="ignore"):
        want = np.asarray(row.meaning(*(a.astype(np.float64) for a in arrays)))
        want = want.astype(np.bool_ if want.dtype == np.bool_ else lab.dtype.numpy)
    out = getattr(popops, name)(lab.graph, *map(lab.put, arrays), lab.prog)
    room = 2e-3 if lab.dtype is f16 else 3e-6
    lab.check(out, lambda got: np.testing.assert_allclose(got, want, room, 1e-6))


def _result(want: Array, x: Array) -> Array:
    """In the result's type: bools stay bools, integers wrap."""
    return want if want.dtype.kind in "fb" else want.astype(x.dtype)


def _note(row: Row, dtype: DType) -> dict[str, Any]:
    return {"exact": row.exact} if row.exact else {"tolerance": ROOMY.get(dtype)}


def _table() -> dict[str, Case]:
    out: dict[str, Case] = {}
    for make, rows in ((_unary, UNARY), (_binary, BINARY)):
        for kind, row in rows.items():
            for name in (kind, f"{kind}_in_place", f"{kind}_with_output"):
                if name in popops.__all__:
                    out[name] = make(kind, name, row)
    return out


# ---------------------------------------------------------------------- three operands
def _select(name: str) -> Case:
    def case(lab: Lab) -> None:
        for dtype in (lab.dtype, i32, bool_):
            shape = lab.odd_shape()
            a = lab.values(shape, dtype=dtype)
            b = lab.values(broadcast(lab, shape), dtype=dtype)
            where = lab.values(broadcast(lab, shape), dtype=bool_)
            forms(lab, name, [a, b, where], np.where(where, a, b), {"exact": True})

    return case


def _clamp(name: str) -> Case:
    def case(lab: Lab) -> None:
        for dtype in (lab.dtype, i32):
            shape = lab.odd_shape()
            x = lab.values(shape, -3, 3, dtype)
            low = lab.values(broadcast(lab, shape), -2, 0, dtype)
            high = lab.values(broadcast(lab, shape), 0, 2, dtype)
            forms(lab, name, [x, low, high], np.minimum(np.maximum(x, low), high), {"exact": True})

    return case


# ---------------------------------------------------------------------- with a number
def _variance(name: str, meaning: Function) -> Case:
    def case(lab: Lab) -> None:
        x = lab.values(lab.odd_shape(), 0.5, 2)
        epsilon = float(lab.rng.uniform(0.1, 0.3))
        t, call = lab.put(x), getattr(popops, name)
        want = np.asarray(meaning(x.astype(np.float64), epsilon))
        if name.endswith("_with_output"):
            out = lab.put(np.zeros_like(x))
            call(lab.graph, t, epsilon, out, lab.prog)
        elif name.endswith("_in_place"):
            out = t
            call(lab.graph, t, epsilon, lab.prog)
        else:
            out = call(lab.graph, t, epsilon, lab.prog)
        lab.expect(out, want, 1e-2 if lab.dtype is f16 else 1e-5)

    return case


VARIANCE = {
    "variance_to_inv_std_dev": lambda v, e: 1 / np.sqrt(v + e),
    "inv_std_dev_to_variance": lambda s, e: 1 / s**2 - e,
}


def _scaled(sign: int) -> Case:
    """scale_a a +- scale b: scales that are numbers or tensors, operands of two types."""

    def case(lab: Lab) -> None:
        call = popops.scaled_add_to if sign > 0 else popops.scaled_subtract_from
        other = f16 if lab.dtype is f32 else f32
        for dtype, of_b, of_scale in ((lab.dtype,) * 3, (lab.dtype, other, f32)):
            shape = lab.odd_shape()
            a, b = (np.round(lab.values(shape, -9, 9)) for _ in range(2))
            y, x = lab.put(a.astype(dtype.numpy)), lab.put(b.astype(of_b.numpy))
            scale, scale_a = (lab.pick(-3, 3) / 2 for _ in range(2))
            by, by_a = (_scale(lab, s, of_scale) for s in (scale, scale_a))
            if lab.chance():
                call(lab.graph, y, x, by, lab.prog, scale_a=by_a)
            else:
                scale_a = 1
                call(lab.graph, y, x, by, lab.prog)
            lab.expect(y, scale_a * a.astype(np.float64) + sign * scale * b, exact=True)
            lab.expect(x, b, exact=True)

    return case


def _scale(lab: Lab, value: float, dtype: DType) -> Any:
    return lab.put(np.array(value, dtype.numpy)) if lab.chance() else value


# ---------------------------------------------------------------------- expressions, casts
EXPRESSIONS: dict[str, Function] = {
    "add(mul($0,$1),$2)": lambda a, b, c: a * b + c,
    "select(less($0,$1),$2,neg($0))": lambda a, b, c: np.where(a < b, c, -a),
    "relu(sub($0,mul($1,c(0.5))))": lambda a, b, c: np.maximum(a - b * 0.5, 0),
    "max($2,min($1,add($0,c(1))))": lambda a, b, c: np.maximum(c, np.minimum(b, a + 1)),
}


def _map(name: str) -> Case:
    def case(lab: Lab) -> None:
        for text, meaning in EXPRESSIONS.items():
            shape = lab.odd_shape()
            arrays = [lab.values(shape), *(lab.values(broadcast(lab, shape)) for _ in range(2))]
            want = np.asarray(meaning(*(a.astype(np.float64) for a in arrays)))
            tensors = [lab.put(a) for a in arrays]
            if name == "map":
                out = popops.map(lab.graph, text, tensors, lab.prog)
            elif name == "map_in_place":
                out = tensors[0]
                popops.map_in_place(lab.graph, text, tensors, lab.prog)
            else:
                out = lab.put(lab.values(shape))
                popops.map_with_output(lab.graph, text, tensors, out, lab.prog)
            lab.expect(out, want, 2 * ROOMY[lab.dtype])

    return case


def _cast(name: str) -> Case:
    """Floats to every type and back; halves are cut off towards zero."""

    def case(lab: Lab) -> None:
        for source, to in [(lab.dtype, d) for d in CASTS] + [(d, lab.dtype) for d in CASTS]:
            low = 0 if "u" in (source.kind, to.kind) else -9
            x = lab.values(lab.odd_shape(), low, 9, source)
            t = lab.put(x)
            if name == "cast":
                out = popops.cast(lab.graph, t, to, lab.prog)
            else:
                out = lab.put(lab.values(x.shape, 0, 9, to))
                popops.cast_with_output(lab.graph, t, out, lab.prog)
            lab.expect(out, x.astype(to.numpy), exact=True)

    return case


CASTS = (f32, f16, i32, u32, bool_)

CASES: dict[str, Case] = {
    **_table(),
    **{name: _select(name) for name in ("select", "select_in_place", "select_with_output")},
    **{name: _clamp(name) for name in ("clamp", "clamp_in_place", "clamp_with_output")},
    **{
        kind + form: _variance(kind + form, meaning)
        for kind, meaning in VARIANCE.items()
        for form in ("", "_in_place", "_with_output")
    },
    "scaled_add_to": _scaled(1),
    "scaled_subtract_from": _scaled(-1),
    **{name: _map(name) for name in ("map", "map_in_place", "map_with_output")},
    **{name: _cast(name) for name in ("cast", "cast_with_output")},
}
