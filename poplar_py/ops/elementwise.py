"""math.*: element-wise ops. Operands broadcast as in NumPy and share one element type.

Arithmetic, `Select`, `Cast` and `Map` stand here; functions of a float in `math_functions`, logic,
bits and comparisons in `math_logic`. All of them are names of this module.
"""

from __future__ import annotations

from poplar_py.diagnostics import TypeMismatch
from poplar_py.ir.core import COMMUTATIVE, ELEMENTWISE, PURE, Op, Value, op
from poplar_py.ops.math_base import Binary, Compare, Predicate, Unary, require_kind
from poplar_py.ops.math_functions import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Floor,
    Log,
    Reciprocal,
    Round,
    Rsqrt,
    Sigmoid,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from poplar_py.ops.math_logic import (
    And,
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    Equal,
    Greater,
    GreaterEqual,
    IsInf,
    IsNan,
    Less,
    LessEqual,
    Not,
    Or,
    ShiftLeft,
    ShiftRight,
    Xor,
)
from poplar_py.types import DType, TensorType, broadcast_shapes

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
        require_kind(self.cond, "b")
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
