"""math.*: element-wise ops. Operands broadcast as in NumPy and share one element type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poplar_py.diagnostics import TypeMismatch
from poplar_py.ir.core import COMMUTATIVE, ELEMENTWISE, PURE, Op, Value, op
from poplar_py.types import DType, TensorType, bool_, broadcast_shapes

__all__ = [
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Binary",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "Ceil",
    "Compare",
    "Cos",
    "Cosh",
    "Div",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Greater",
    "GreaterEqual",
    "IsInf",
    "IsNan",
    "Less",
    "LessEqual",
    "Log",
    "Map",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "Pow",
    "Predicate",
    "Reciprocal",
    "Round",
    "Rsqrt",
    "Select",
    "ShiftLeft",
    "ShiftRight",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Sqrt",
    "Sub",
    "Tan",
    "Tanh",
    "Unary",
    "Xor",
]


@dataclass(eq=False, repr=False)
class Unary(Op):
    """Base: the result has the type of x. `kinds` lists the accepted DType kinds."""

    x: Value
    kinds: ClassVar[str] = "f"

    def infer(self) -> TensorType:
        _require_kind(self.x, self.kinds)
        return self.x.type


@dataclass(eq=False, repr=False)
class Predicate(Op):
    """Base of unary ops with a bool result."""

    x: Value

    def infer(self) -> TensorType:
        _require_kind(self.x, "f")
        return self.x.type.with_dtype(bool_)


@dataclass(eq=False, repr=False)
class Binary(Op):
    """Base: a and b share an element type, which the result has too."""

    a: Value
    b: Value
    kinds: ClassVar[str] = "fiu"

    def infer(self) -> TensorType:
        return _binary_type(self.a, self.b, self.kinds)


@dataclass(eq=False, repr=False)
class Compare(Op):
    """Base: a and b share an element type, the result is bool."""

    a: Value
    b: Value
    kinds: ClassVar[str] = "fiu"

    def infer(self) -> TensorType:
        return _binary_type(self.a, self.b, self.kinds).with_dtype(bool_)


def _binary_type(a: Value, b: Value, kinds: str) -> TensorType:
    _require_kind(a, kinds)
    if a.dtype is not b.dtype:
        raise TypeMismatch(f"operands are {a.type} and {b.type}", remedy="cast one of them")
    return TensorType(a.dtype, broadcast_shapes(a.shape, b.shape))


_KIND_NAMES = {"f": "float", "i": "signed integer", "u": "unsigned integer", "b": "bool"}


def _require_kind(value: Value, kinds: str) -> None:
    if value.dtype.kind not in kinds:
        wanted = " or ".join(_KIND_NAMES[k] for k in kinds)
        raise TypeMismatch(f"operand {value.type} is not {wanted}")


@op("math.abs", PURE, ELEMENTWISE)
class Abs(Unary):
    """y = |x|; the smallest signed integer stays. ONNX Abs."""

    kinds = "fiu"


@op("math.neg", PURE, ELEMENTWISE)
class Neg(Unary):
    """y = -x; integers wrap. ONNX Neg."""

    kinds = "fi"


@op("math.sign", PURE, ELEMENTWISE)
class Sign(Unary):
    """-1, 0 or 1; NaN stays NaN. ONNX Sign."""

    kinds = "fiu"


@op("math.exp", PURE, ELEMENTWISE)
class Exp(Unary):
    """y = e^x. ONNX Exp."""


@op("math.log", PURE, ELEMENTWISE)
class Log(Unary):
    """Natural logarithm. ONNX Log."""


@op("math.sqrt", PURE, ELEMENTWISE)
class Sqrt(Unary):
    """Square root, correctly rounded. ONNX Sqrt."""


@op("math.rsqrt", PURE, ELEMENTWISE)
class Rsqrt(Unary):
    """y = 1 / sqrt(x)."""


@op("math.reciprocal", PURE, ELEMENTWISE)
class Reciprocal(Unary):
    """y = 1 / x. ONNX Reciprocal."""


@op("math.sin", PURE, ELEMENTWISE)
class Sin(Unary):
    """ONNX Sin."""


@op("math.cos", PURE, ELEMENTWISE)
class Cos(Unary):
    """ONNX Cos."""


@op("math.tan", PURE, ELEMENTWISE)
class Tan(Unary):
    """ONNX Tan."""


@op("math.asin", PURE, ELEMENTWISE)
class Asin(Unary):
    """ONNX Asin."""


@op("math.acos", PURE, ELEMENTWISE)
class Acos(Unary):
    """ONNX Acos."""


@op("math.atan", PURE, ELEMENTWISE)
class Atan(Unary):
    """ONNX Atan."""


@op("math.sinh", PURE, ELEMENTWISE)
class Sinh(Unary):
    """ONNX Sinh."""


@op("math.cosh", PURE, ELEMENTWISE)
class Cosh(Unary):
    """ONNX Cosh."""


@op("math.tanh", PURE, ELEMENTWISE)
class Tanh(Unary):
    """ONNX Tanh."""


@op("math.asinh", PURE, ELEMENTWISE)
class Asinh(Unary):
    """ONNX Asinh."""


@op("math.acosh", PURE, ELEMENTWISE)
class Acosh(Unary):
    """ONNX Acosh."""


@op("math.atanh", PURE, ELEMENTWISE)
class Atanh(Unary):
    """ONNX Atanh."""


@op("math.erf", PURE, ELEMENTWISE)
class Erf(Unary):
    """Error function. ONNX Erf."""


@op("math.sigmoid", PURE, ELEMENTWISE)
class Sigmoid(Unary):
    """y = 1 / (1 + e^-x), no overflow for large |x|. ONNX Sigmoid."""


@op("math.floor", PURE, ELEMENTWISE)
class Floor(Unary):
    """ONNX Floor."""


@op("math.ceil", PURE, ELEMENTWISE)
class Ceil(Unary):
    """ONNX Ceil."""


@op("math.round", PURE, ELEMENTWISE)
class Round(Unary):
    """To the nearest integer, halves to even. ONNX Round."""


@op("math.not", PURE, ELEMENTWISE)
class Not(Unary):
    """Logical negation. ONNX Not."""

    kinds = "b"


@op("math.bitwise_not", PURE, ELEMENTWISE)
class BitwiseNot(Unary):
    """ONNX BitwiseNot."""

    kinds = "iu"


@op("math.is_nan", PURE, ELEMENTWISE)
class IsNan(Predicate):
    """ONNX IsNaN."""


@op("math.is_inf", PURE, ELEMENTWISE)
class IsInf(Predicate):
    """Whether x is an infinity of a wanted sign. ONNX IsInf."""

    negative: bool = True
    positive: bool = True


@op("math.add", PURE, ELEMENTWISE, COMMUTATIVE)
class Add(Binary):
    """y = a + b; integers wrap. ONNX Add."""


@op("math.sub", PURE, ELEMENTWISE)
class Sub(Binary):
    """y = a - b; integers wrap. ONNX Sub."""


@op("math.mul", PURE, ELEMENTWISE, COMMUTATIVE)
class Mul(Binary):
    """y = a * b; integers wrap. ONNX Mul."""


@op("math.div", PURE, ELEMENTWISE)
class Div(Binary):
    """y = a / b; integers truncate toward zero, and a zero divisor is an error. ONNX Div."""


@op("math.pow", PURE, ELEMENTWISE)
class Pow(Binary):
    """y = a to the power b. ONNX Pow (integers go through a float type)."""

    kinds = "f"


@op("math.min", PURE, ELEMENTWISE, COMMUTATIVE)
class Min(Binary):
    """The smaller; NaN if either is NaN. ONNX Min."""


@op("math.max", PURE, ELEMENTWISE, COMMUTATIVE)
class Max(Binary):
    """The larger; NaN if either is NaN. ONNX Max."""


@op("math.and", PURE, ELEMENTWISE, COMMUTATIVE)
class And(Binary):
    """ONNX And."""

    kinds = "b"


@op("math.or", PURE, ELEMENTWISE, COMMUTATIVE)
class Or(Binary):
    """ONNX Or."""

    kinds = "b"


@op("math.xor", PURE, ELEMENTWISE, COMMUTATIVE)
class Xor(Binary):
    """ONNX Xor."""

    kinds = "b"


@op("math.bitwise_and", PURE, ELEMENTWISE, COMMUTATIVE)
class BitwiseAnd(Binary):
    """ONNX BitwiseAnd."""

    kinds = "iu"


@op("math.bitwise_or", PURE, ELEMENTWISE, COMMUTATIVE)
class BitwiseOr(Binary):
    """ONNX BitwiseOr."""

    kinds = "iu"


@op("math.bitwise_xor", PURE, ELEMENTWISE, COMMUTATIVE)
class BitwiseXor(Binary):
    """ONNX BitwiseXor."""

    kinds = "iu"


@op("math.shift_left", PURE, ELEMENTWISE)
class ShiftLeft(Binary):
    """y = a << (b mod bits of the type). ONNX BitShift LEFT."""

    kinds = "iu"


@op("math.shift_right", PURE, ELEMENTWISE)
class ShiftRight(Binary):
    """y = a >> (b mod bits of the type); signed operands keep their sign. ONNX BitShift RIGHT."""

    kinds = "iu"


@op("math.equal", PURE, ELEMENTWISE, COMMUTATIVE)
class Equal(Compare):
    """a == b. ONNX Equal."""

    kinds = "fiub"


@op("math.less", PURE, ELEMENTWISE)
class Less(Compare):
    """a < b. ONNX Less."""


@op("math.less_equal", PURE, ELEMENTWISE)
class LessEqual(Compare):
    """a <= b. ONNX LessOrEqual."""


@op("math.greater", PURE, ELEMENTWISE)
class Greater(Compare):
    """a > b. ONNX Greater."""


@op("math.greater_equal", PURE, ELEMENTWISE)
class GreaterEqual(Compare):
    """a >= b. ONNX GreaterOrEqual."""


@op("math.mod", PURE, ELEMENTWISE)
class Mod(Binary):
    """Remainder: sign of the divisor, or of the dividend with fmod (as C). ONNX Mod."""

    fmod: bool = False


@op("math.select", PURE, ELEMENTWISE)
class Select(Op):
    """y = a where cond, else b. ONNX Where."""

    cond: Value
    a: Value
    b: Value

    def infer(self) -> TensorType:
        _require_kind(self.cond, "b")
        if self.a.dtype is not self.b.dtype:
            raise TypeMismatch(f"choices are {self.a.type} and {self.b.type}")
        shape = broadcast_shapes(self.cond.shape, self.a.shape, self.b.shape)
        return TensorType(self.a.dtype, shape)


@op("math.cast", PURE, ELEMENTWISE)
class Cast(Op):
    """x as another element type. ONNX Cast.

    Float to integer truncates and saturates, NaN gives 0; float to float rounds to nearest even;
    integer to integer wraps; to bool is x != 0.
    """

    x: Value
    dtype: DType

    def infer(self) -> TensorType:
        return self.x.type.with_dtype(self.dtype)


@op("math.map", PURE, ELEMENTWISE)
class Map(Op):
    """A fused element-wise expression over inputs that broadcast.

    `expr` is text in the expression language of the codelets ("relu(add($0,$1))"); `dtype` is the
    element type of the result.
    """

    inputs: tuple[Value, ...]
    expr: str
    dtype: DType

    def infer(self) -> TensorType:
        return TensorType(self.dtype, broadcast_shapes(*(v.shape for v in self.inputs)))
