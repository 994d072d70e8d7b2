"""math.*: functions of one float: powers, logarithms, circles, the error function, rounding."""

from __future__ import annotations

from poplar_py.ir.core import ELEMENTWISE, PURE, op
from poplar_py.ops.math_base import Unary


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
