"""Numbers of the vertex language in NumPy: promotion, wrapping, saturation, rounding.

`Num` is a scalar or a short vector of one element type. What has no value raises `Trap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.types import DTYPES, DType, bool_

Array = npt.NDArray[Any]
I32, U32, I64, F16, F32 = (DTYPES[n] for n in ("i32", "u32", "i64", "f16", "f32"))


class Trap(Exception):
    """An index out of range, a division without a value, an abort."""


class Num:
    """`a`: an array of shape () or (lanes,) of the NumPy type of `t`."""

    __slots__ = ("a", "t")

    def __init__(self, t: DType, a: Any) -> None:
        self.t, self.a = t, np.asarray(a, t.numpy)

    @property
    def lanes(self) -> int:
        return self.a.size if self.a.ndim else 1

    def __bool__(self) -> bool:
        assert self.a.ndim == 0
        return bool(self.a != 0)

    def __index__(self) -> int:
        return int(self.a)

    def __getitem__(self, lane: int) -> Num:
        return Num(self.t, self.a[lane])

    def __add__(self, o: Any) -> Num:
        return arithmetic("add", self, o)

    def __radd__(self, o: Any) -> Num:
        return arithmetic("add", o, self)

    def __sub__(self, o: Any) -> Num:
        return arithmetic("sub", self, o)

    def __rsub__(self, o: Any) -> Num:
        return arithmetic("sub", o, self)

    def __mul__(self, o: Any) -> Num:
        return arithmetic("mul", self, o)

    def __rmul__(self, o: Any) -> Num:
        return arithmetic("mul", o, self)

    def __truediv__(self, o: Any) -> Num:
        return arithmetic("div", self, o)

    def __rtruediv__(self, o: Any) -> Num:
        return arithmetic("div", o, self)

    def __floordiv__(self, o: Any) -> Num:
        return arithmetic("floordiv", self, o)

    def __rfloordiv__(self, o: Any) -> Num:
        return arithmetic("floordiv", o, self)

    def __mod__(self, o: Any) -> Num:
        return arithmetic("mod", self, o)

    def __rmod__(self, o: Any) -> Num:
        return arithmetic("mod", o, self)

    def __and__(self, o: Any) -> Num:
        return arithmetic("and", self, o)

    def __rand__(self, o: Any) -> Num:
        return arithmetic("and", o, self)

    def __or__(self, o: Any) -> Num:
        return arithmetic("or", self, o)

    def __ror__(self, o: Any) -> Num:
        return arithmetic("or", o, self)

    def __xor__(self, o: Any) -> Num:
        return arithmetic("xor", self, o)

    def __rxor__(self, o: Any) -> Num:
        return arithmetic("xor", o, self)

    def __lshift__(self, o: Any) -> Num:
        return shift(self, o, left=True)

    def __rshift__(self, o: Any) -> Num:
        return shift(self, o, left=False)

    def __pow__(self, n: int) -> Num:
        square = as_int(self) if n == 1 else self * self
        return square * self if n == 3 else square * square if n == 4 else square

    def __iadd__(self, o: Any) -> Num:
        return cast(self + o, self.t)

    def __isub__(self, o: Any) -> Num:
        return cast(self - o, self.t)

    def __imul__(self, o: Any) -> Num:
        return cast(self * o, self.t)

    def __neg__(self) -> Num:
        x = as_int(self)
        return Num(x.t, -x.a if x.t.is_float else wrapped(0 - x.a.astype(object), x.t))

    def __invert__(self) -> Num:
        x = as_int(self)
        return Num(x.t, ~x.a)

    def __lt__(self, o: Any) -> Num:
        return compare(np.less, self, o)

    def __le__(self, o: Any) -> Num:
        return compare(np.less_equal, self, o)

    def __gt__(self, o: Any) -> Num:
        return compare(np.greater, self, o)

    def __ge__(self, o: Any) -> Num:
        return compare(np.greater_equal, self, o)

    def __eq__(self, o: object) -> Num:  # type: ignore[override]
        return compare(np.equal, self, o)

    def __ne__(self, o: object) -> Num:  # type: ignore[override]
        return compare(np.not_equal, self, o)

    __hash__ = None  # type: ignore[assignment]


# ---------------------------------------------------------------- types


def wrapped(values: Any, t: DType) -> Array:
    """Python ints modulo the width of the type."""
    array = np.asarray(values, object)
    mask, sign = (1 << t.bits) - 1, 1 << (t.bits - 1)
    flat = [int(v) & mask for v in array.ravel()]
    if t.kind == "i":
        flat = [v - 2 * sign if v & sign else v for v in flat]
    return np.array(flat, t.numpy).reshape(array.shape)


def cast(x: Any, t: DType) -> Num:
    """Convert: ints wrap, floats saturate (NaN: 0), one rounding."""
    if not isinstance(x, Num):
        if isinstance(x, float) and t.is_integer:
            return cast(Num(DTYPES["f64"], x), t)
        return Num(t, x)
    s = x.t
    if s is t:
        return x
    if t is bool_:
        return Num(t, x.a != 0)
    if t.is_float:
        return Num(t, x.a.astype(t.numpy))
    if not s.is_float:
        return Num(t, wrapped(x.a.astype(object), t))
    info = np.iinfo(t.numpy)
    flat = [_saturate(float(v), info) for v in np.ravel(x.a)]
    return Num(t, np.array(flat, object).reshape(x.a.shape).astype(t.numpy))


def _saturate(v: float, info: Any) -> int:
    if v != v:
        return 0
    return int(info.min) if v <= info.min else int(info.max) if v >= info.max else int(v)


def _join(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a is bool_ or b is bool_:
        return b if a is bool_ else a
    if a.size != b.size:
        return a if a.size > b.size else b
    return a if a.kind == "i" else b


def as_int(x: Any) -> Any:
    """C's integer promotion: a scalar int of 8 or 16 bits counts as i32."""
    narrow = isinstance(x, Num) and x.t.is_integer and x.t is not bool_ and x.t.size < 4
    return cast(x, I32) if narrow and x.a.ndim == 0 else x


def promote(a: Any, b: Any) -> tuple[Num, Num]:
    """Both in the common type; a Python number takes the other's type where that keeps its kind."""
    if not isinstance(a, Num):
        y, x = promote(b, a)
        return x, y
    if not isinstance(b, Num):
        literal = F32 if isinstance(b, float) and not a.t.is_float else a.t
        b = Num(literal, b)
    t = _join(a.t, b.t)
    x, y = cast(a, t), cast(b, t)
    shape = np.broadcast_shapes(x.a.shape, y.a.shape)
    return Num(t, np.broadcast_to(x.a, shape)), Num(t, np.broadcast_to(y.a, shape))


_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def arithmetic(op: str, a: Any, b: Any) -> Num:
    a, b = as_int(a), as_int(b)
    if op in ("floordiv", "mod") and _mixed(a, b):
        return cast(_division(op, cast(a, I64), cast(b, I64)), a.t)
    x, y = promote(a, b)
    t = x.t
    if t is bool_ and op in ("and", "or", "xor"):
        return Num(t, _PYTHON[op](x.a, y.a))
    if t.is_float:
        with np.errstate(all="ignore"):
            function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[op]
            return Num(t, function(x.a, y.a))
    if op in ("floordiv", "mod"):
        return _division(op, x, y)
    return Num(t, wrapped(_PYTHON[op](x.a.astype(object), y.a.astype(object)), t))


def _mixed(a: Any, b: Any) -> bool:
    """One i32 and one u32, both scalars: the dividend's type holds the quotient of the numbers."""
    both = isinstance(a, Num) and isinstance(b, Num) and a.a.ndim == b.a.ndim == 0
    return both and {a.t, b.t} == {I32, U32}


def _division(op: str, x: Num, y: Num) -> Num:
    """Python's; a scalar by zero, or INT_MIN by -1, has no value. Lanes: by zero counts as by 1."""
    t = x.t
    out: list[int] = []
    for a, b in zip(np.ravel(x.a).tolist(), np.ravel(y.a).tolist(), strict=True):
        if x.lanes == 1 and (b == 0 or (t.kind == "i" and b == -1 and a == np.iinfo(t.numpy).min)):
            raise Trap("division")
        divisor = b or 1
        out.append(a // divisor if op == "floordiv" else a % divisor)
    return Num(t, wrapped(np.array(out, object).reshape(x.a.shape), t))


def shift(a: Num, b: Any, *, left: bool) -> Num:
    """The count takes the type of the left operand and is masked."""
    a, b = as_int(a), as_int(b)
    count = np.asarray(cast(b, a.t).a).astype(object) & (a.t.bits - 1)
    values = a.a.astype(object)
    return Num(a.t, wrapped(values << count if left else values >> count, a.t))


def compare(op: Callable[[Array, Array], Array], a: Any, b: Any) -> Num:
    x, y = promote(as_int(a), as_int(b))
    return Num(bool_, op(x.a, y.a))
