"""math.*: logic, bits and comparisons."""

from __future__ import annotations

from poplar_py.ir.core import COMMUTATIVE, ELEMENTWISE, PURE, op
from poplar_py.ops.math_base import Binary, Compare, Predicate, Unary


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
