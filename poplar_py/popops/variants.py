"""Element-wise operations over an operand (`*_in_place`) or into a tensor (`*_with_output`),
and the rarer unary and binary ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from poplar_py.popops.arithmetic import BINARY, UNARY
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place, map_with_output
from poplar_py.popops.operands import Value

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

MORE_UNARY = {
    "cbrt": "mul(sign($0),pow(abs($0),c(0.3333333333)))",
    "clz": "clz($0)",
    "exp2": "exp2($0)",
    "expm1": "expm1($0)",
    "gelu_erf": "mul(mul(c(0.5),$0),add(c(1),erf(mul($0,c(0.7071067811865476)))))",
    "log1p": "log1p($0)",
    "popcount": "popcount($0)",
    "trunc": "trunc($0)",
}
MORE_BINARY = {
    "atan2": "atan2($0,$1)",
    "bitwise_xnor": "bitwise_not(bitwise_xor($0,$1))",
    "shift_right_sign_extend": "shift_right($0,$1)",
}
_TEXT = {**UNARY, **BINARY, **MORE_UNARY, **MORE_BINARY}


class UnaryOp(Protocol):
    def __call__(self, graph: Graph, a: Tensor, prog: Sequence, name: str = "") -> Tensor: ...


class BinaryOp(Protocol):
    def __call__(
        self, graph: Graph, a: Value, b: Value, prog: Sequence, name: str = ""
    ) -> Tensor: ...


class UnaryInPlace(Protocol):
    def __call__(self, graph: Graph, a: Tensor, prog: Sequence, name: str = "") -> None: ...


class BinaryInPlace(Protocol):
    def __call__(
        self, graph: Graph, a: Tensor, b: Value, prog: Sequence, name: str = ""
    ) -> None: ...


class UnaryInto(Protocol):
    def __call__(
        self, graph: Graph, a: Tensor, out: Tensor, prog: Sequence, name: str = ""
    ) -> None: ...


class BinaryInto(Protocol):
    def __call__(
        self, graph: Graph, a: Value, b: Value, out: Tensor, prog: Sequence, name: str = ""
    ) -> None: ...


def _unary(kind: str) -> UnaryOp:
    def op(graph: Graph, a: Tensor, prog: Sequence, name: str = "") -> Tensor:
        return map_expr(graph, _TEXT[kind], [a], prog, name or kind)

    return op


def _binary(kind: str) -> BinaryOp:
    def op(graph: Graph, a: Value, b: Value, prog: Sequence, name: str = "") -> Tensor:
        return map_expr(graph, _TEXT[kind], [a, b], prog, name or kind)

    return op


def _unary_in_place(kind: str) -> UnaryInPlace:
    def op(graph: Graph, a: Tensor, prog: Sequence, name: str = "") -> None:
        map_in_place(graph, _TEXT[kind], [a], prog, name or kind)

    return op


def _binary_in_place(kind: str) -> BinaryInPlace:
    def op(graph: Graph, a: Tensor, b: Value, prog: Sequence, name: str = "") -> None:
        map_in_place(graph, _TEXT[kind], [a, b], prog, name or kind)

    return op


def _unary_into(kind: str) -> UnaryInto:
    def op(graph: Graph, a: Tensor, out: Tensor, prog: Sequence, name: str = "") -> None:
        map_with_output(graph, _TEXT[kind], [a], out, prog, name or kind)

    return op


def _binary_into(kind: str) -> BinaryInto:
    def op(graph: Graph, a: Value, b: Value, out: Tensor, prog: Sequence, name: str = "") -> None:
        map_with_output(graph, _TEXT[kind], [a, b], out, prog, name or kind)

    return op


def clamp_in_place(
    graph: Graph, x: Tensor, low: Tensor, high: Tensor, prog: Sequence, name: str = "clamp"
) -> None:
    """x = min(max(x, low), high)."""
    map_in_place(graph, "min(max($0,$1),$2)", [x, low, high], prog, name)


def clamp_with_output(
    graph: Graph,
    x: Tensor,
    low: Tensor,
    high: Tensor,
    out: Tensor,
    prog: Sequence,
    name: str = "clamp",
) -> None:
    """out = min(max(x, low), high)."""
    map_with_output(graph, "min(max($0,$1),$2)", [x, low, high], out, prog, name)


def select_in_place(
    graph: Graph, a: Tensor, b: Tensor, cond: Tensor, prog: Sequence, name: str = "select"
) -> None:
    """a keeps its elements where cond (bool) is true and takes b's elsewhere."""
    map_in_place(graph, "select($2,$0,$1)", [a, b, cond], prog, name)


def select_with_output(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    cond: Tensor,
    out: Tensor,
    prog: Sequence,
    name: str = "select",
) -> None:
    """out = a where cond (bool) is true, else b."""
    map_with_output(graph, "select($2,$0,$1)", [a, b, cond], out, prog, name)


def variance_to_inv_std_dev(
    graph: Graph, variance: Tensor, epsilon: float, prog: Sequence, name: str = ""
) -> Tensor:
    """1 / sqrt(variance + epsilon)."""
    text = f"rsqrt(add($0,c({epsilon!r})))"
    return map_expr(graph, text, [variance], prog, name or "inv_std_dev")


def inv_std_dev_to_variance(
    graph: Graph, inv_std_dev: Tensor, epsilon: float, prog: Sequence, name: str = ""
) -> Tensor:
    """1 / inv_std_dev^2 - epsilon."""
    text = f"sub(reciprocal(mul($0,$0)),c({epsilon!r}))"
    return map_expr(graph, text, [inv_std_dev], prog, name or "variance")


def variance_to_inv_std_dev_with_output(
    graph: Graph, variance: Tensor, epsilon: float, out: Tensor, prog: Sequence, name: str = ""
) -> None:
    """`variance_to_inv_std_dev` written to `out`."""
    text = f"rsqrt(add($0,c({epsilon!r})))"
    map_with_output(graph, text, [variance], out, prog, name or "variance_to_inv_std_dev")


def variance_to_inv_std_dev_in_place(
    graph: Graph, variance: Tensor, epsilon: float, prog: Sequence, name: str = ""
) -> None:
    """`variance_to_inv_std_dev` written over its operand."""
    variance_to_inv_std_dev_with_output(graph, variance, epsilon, variance, prog, name)


def inv_std_dev_to_variance_with_output(
    graph: Graph, inv_std_dev: Tensor, epsilon: float, out: Tensor, prog: Sequence, name: str = ""
) -> None:
    """`inv_std_dev_to_variance` written to `out`."""
    text = f"sub(reciprocal(mul($0,$0)),c({epsilon!r}))"
    map_with_output(graph, text, [inv_std_dev], out, prog, name or "inv_std_dev_to_variance")


def inv_std_dev_to_variance_in_place(
    graph: Graph, inv_std_dev: Tensor, epsilon: float, prog: Sequence, name: str = ""
) -> None:
    """`inv_std_dev_to_variance` written over its operand."""
    inv_std_dev_to_variance_with_output(graph, inv_std_dev, epsilon, inv_std_dev, prog, name)


cbrt = _unary("cbrt")
clz = _unary("clz")
exp2 = _unary("exp2")
expm1 = _unary("expm1")
gelu_erf = _unary("gelu_erf")
log1p = _unary("log1p")
popcount = _unary("popcount")
trunc = _unary("trunc")
atan2 = _binary("atan2")
bitwise_xnor = _binary("bitwise_xnor")
shift_right_sign_extend = _binary("shift_right_sign_extend")
abs_in_place = _unary_in_place("abs")
abs_with_output = _unary_into("abs")
asin_in_place = _unary_in_place("asin")
asin_with_output = _unary_into("asin")
bitwise_not_in_place = _unary_in_place("bitwise_not")
bitwise_not_with_output = _unary_into("bitwise_not")
cbrt_in_place = _unary_in_place("cbrt")
cbrt_with_output = _unary_into("cbrt")
ceil_in_place = _unary_in_place("ceil")
ceil_with_output = _unary_into("ceil")
cos_in_place = _unary_in_place("cos")
cos_with_output = _unary_into("cos")
clz_in_place = _unary_in_place("clz")
clz_with_output = _unary_into("clz")
erf_in_place = _unary_in_place("erf")
erf_with_output = _unary_into("erf")
exp_in_place = _unary_in_place("exp")
exp_with_output = _unary_into("exp")
exp2_in_place = _unary_in_place("exp2")
exp2_with_output = _unary_into("exp2")
expm1_in_place = _unary_in_place("expm1")
expm1_with_output = _unary_into("expm1")
floor_in_place = _unary_in_place("floor")
floor_with_output = _unary_into("floor")
gelu_erf_in_place = _unary_in_place("gelu_erf")
gelu_erf_with_output = _unary_into("gelu_erf")
inv_in_place = _unary_in_place("inv")
inv_with_output = _unary_into("inv")
is_finite_with_output = _unary_into("is_finite")
is_inf_with_output = _unary_into("is_inf")
is_nan_with_output = _unary_into("is_nan")
log_in_place = _unary_in_place("log")
log_with_output = _unary_into("log")
log1p_in_place = _unary_in_place("log1p")
log1p_with_output = _unary_into("log1p")
logical_not_in_place = _unary_in_place("logical_not")
logical_not_with_output = _unary_into("logical_not")
neg_in_place = _unary_in_place("neg")
neg_with_output = _unary_into("neg")
nearby_int_in_place = _unary_in_place("nearby_int")
nearby_int_with_output = _unary_into("nearby_int")
popcount_in_place = _unary_in_place("popcount")
popcount_with_output = _unary_into("popcount")
relu_in_place = _unary_in_place("relu")
relu_with_output = _unary_into("relu")
signum_in_place = _unary_in_place("signum")
signum_with_output = _unary_into("signum")
sin_in_place = _unary_in_place("sin")
sin_with_output = _unary_into("sin")
tan_in_place = _unary_in_place("tan")
tan_with_output = _unary_into("tan")
tanh_in_place = _unary_in_place("tanh")
tanh_with_output = _unary_into("tanh")
round_in_place = _unary_in_place("round")
round_with_output = _unary_into("round")
sqrt_in_place = _unary_in_place("sqrt")
sqrt_with_output = _unary_into("sqrt")
square_in_place = _unary_in_place("square")
square_with_output = _unary_into("square")
sigmoid_in_place = _unary_in_place("sigmoid")
sigmoid_with_output = _unary_into("sigmoid")
rsqrt_in_place = _unary_in_place("rsqrt")
rsqrt_with_output = _unary_into("rsqrt")
trunc_in_place = _unary_in_place("trunc")
trunc_with_output = _unary_into("trunc")
add_with_output = _binary_into("add")
atan2_in_place = _binary_in_place("atan2")
atan2_with_output = _binary_into("atan2")
bitwise_and_in_place = _binary_in_place("bitwise_and")
bitwise_and_with_output = _binary_into("bitwise_and")
bitwise_or_in_place = _binary_in_place("bitwise_or")
bitwise_or_with_output = _binary_into("bitwise_or")
bitwise_xor_in_place = _binary_in_place("bitwise_xor")
bitwise_xor_with_output = _binary_into("bitwise_xor")
bitwise_xnor_in_place = _binary_in_place("bitwise_xnor")
bitwise_xnor_with_output = _binary_into("bitwise_xnor")
div_in_place = _binary_in_place("div")
div_with_output = _binary_into("div")
eq_with_output = _binary_into("eq")
gteq_with_output = _binary_into("gteq")
gt_with_output = _binary_into("gt")
neq_with_output = _binary_into("neq")
lteq_with_output = _binary_into("lteq")
lt_with_output = _binary_into("lt")
logical_and_in_place = _binary_in_place("logical_and")
logical_and_with_output = _binary_into("logical_and")
logical_or_in_place = _binary_in_place("logical_or")
logical_or_with_output = _binary_into("logical_or")
max_in_place = _binary_in_place("max")
max_with_output = _binary_into("max")
min_in_place = _binary_in_place("min")
min_with_output = _binary_into("min")
mul_with_output = _binary_into("mul")
pow_in_place = _binary_in_place("pow")
pow_with_output = _binary_into("pow")
rem_in_place = _binary_in_place("rem")
rem_with_output = _binary_into("rem")
shift_left_in_place = _binary_in_place("shift_left")
shift_left_with_output = _binary_into("shift_left")
shift_right_in_place = _binary_in_place("shift_right")
shift_right_with_output = _binary_into("shift_right")
shift_right_sign_extend_in_place = _binary_in_place("shift_right_sign_extend")
shift_right_sign_extend_with_output = _binary_into("shift_right_sign_extend")
sub_in_place = _binary_in_place("sub")
sub_with_output = _binary_into("sub")
