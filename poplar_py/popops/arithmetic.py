"""Named element-wise operations as PopLibs has them: `popops.add(graph, a, b, prog, name)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program_data import check_writable
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_with_output, split_work
from poplar_py.popops.operands import Value
from poplar_py.popops.overlap import apart
from poplar_py.poputil.layout import mapping_of, memory_order, plain_order
from poplar_py.types import DType, f16, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

Unary = Callable[..., "Tensor"]
Binary = Callable[..., "Tensor"]

UNARY = {
    "abs": "abs($0)",
    "acos": "acos($0)",
    "acosh": "acosh($0)",
    "asin": "asin($0)",
    "asinh": "asinh($0)",
    "atan": "atan($0)",
    "atanh": "atanh($0)",
    "bitwise_not": "bitwise_not($0)",
    "ceil": "ceil($0)",
    "cos": "cos($0)",
    "cosh": "cosh($0)",
    "erf": "erf($0)",
    "exp": "exp($0)",
    "floor": "floor($0)",
    "inv": "reciprocal($0)",
    "is_finite": "not(or(is_inf($0),is_nan($0)))",
    "is_inf": "is_inf($0)",
    "is_nan": "is_nan($0)",
    "log": "log($0)",
    "logical_not": "not($0)",
    "neg": "neg($0)",
    "nearby_int": "round($0)",
    "reciprocal": "reciprocal($0)",
    "relu": "relu($0)",
    "round": "round_away($0)",
    "rsqrt": "rsqrt($0)",
    "sigmoid": "sigmoid($0)",
    "signum": "sign($0)",
    "sin": "sin($0)",
    "sinh": "sinh($0)",
    "sqrt": "sqrt($0)",
    "square": "mul($0,$0)",
    "tan": "tan($0)",
    "tanh": "tanh($0)",
}
BINARY = {
    "add": "add($0,$1)",
    "bitwise_and": "bitwise_and($0,$1)",
    "bitwise_or": "bitwise_or($0,$1)",
    "bitwise_xor": "bitwise_xor($0,$1)",
    "div": "div($0,$1)",
    "eq": "equal($0,$1)",
    "gt": "greater($0,$1)",
    "gteq": "greater_equal($0,$1)",
    "logical_and": "and($0,$1)",
    "logical_or": "or($0,$1)",
    "lt": "less($0,$1)",
    "lteq": "less_equal($0,$1)",
    "max": "max($0,$1)",
    "min": "min($0,$1)",
    "mul": "mul($0,$1)",
    "neq": "not(equal($0,$1))",
    "pow": "pow($0,$1)",
    "rem": "fmod($0,$1)",
    "shift_left": "shift_left($0,$1)",
    "shift_right": "shift_right_zeros($0,$1)",
    "sub": "sub($0,$1)",
}


def _unary(name: str, text: str) -> Unary:
    def op(graph: Graph, a: Tensor, prog: program.Sequence, name: str = name) -> Tensor:
        return map_expr(graph, text, [a], prog, name)

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"A new tensor: {text} of every element."
    return op


def _binary(kind: str) -> Binary:
    def op(graph: Graph, a: Value, b: Value, prog: program.Sequence, name: str = kind) -> Tensor:
        return map_expr(graph, BINARY[kind], [a, b], prog, name)

    op.__name__ = op.__qualname__ = kind
    op.__doc__ = f"A new tensor: {BINARY[kind]} of the broadcast operands; one may be a number."
    return op


abs = _unary("abs", UNARY["abs"])
acos = _unary("acos", UNARY["acos"])
acosh = _unary("acosh", UNARY["acosh"])
asin = _unary("asin", UNARY["asin"])
asinh = _unary("asinh", UNARY["asinh"])
atan = _unary("atan", UNARY["atan"])
atanh = _unary("atanh", UNARY["atanh"])
bitwise_not = _unary("bitwise_not", UNARY["bitwise_not"])
ceil = _unary("ceil", UNARY["ceil"])
cos = _unary("cos", UNARY["cos"])
cosh = _unary("cosh", UNARY["cosh"])
erf = _unary("erf", UNARY["erf"])
exp = _unary("exp", UNARY["exp"])
floor = _unary("floor", UNARY["floor"])
inv = _unary("inv", UNARY["inv"])
is_finite = _unary("is_finite", UNARY["is_finite"])
is_inf = _unary("is_inf", UNARY["is_inf"])
is_nan = _unary("is_nan", UNARY["is_nan"])
log = _unary("log", UNARY["log"])
logical_not = _unary("logical_not", UNARY["logical_not"])
neg = _unary("neg", UNARY["neg"])
nearby_int = _unary("nearby_int", UNARY["nearby_int"])
reciprocal = _unary("reciprocal", UNARY["reciprocal"])
relu = _unary("relu", UNARY["relu"])
round = _unary("round", UNARY["round"])
rsqrt = _unary("rsqrt", UNARY["rsqrt"])
sigmoid = _unary("sigmoid", UNARY["sigmoid"])
signum = _unary("signum", UNARY["signum"])
sin = _unary("sin", UNARY["sin"])
sinh = _unary("sinh", UNARY["sinh"])
sqrt = _unary("sqrt", UNARY["sqrt"])
square = _unary("square", UNARY["square"])
tan = _unary("tan", UNARY["tan"])
tanh = _unary("tanh", UNARY["tanh"])
add = _binary("add")
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")
div = _binary("div")
eq = _binary("eq")
gt = _binary("gt")
gteq = _binary("gteq")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
lt = _binary("lt")
lteq = _binary("lteq")
max = _binary("max")
min = _binary("min")
mul = _binary("mul")
neq = _binary("neq")
pow = _binary("pow")
rem = _binary("rem")
shift_left = _binary("shift_left")
shift_right = _binary("shift_right")
sub = _binary("sub")


def select(
    graph: Graph, a: Value, b: Value, cond: Tensor, prog: program.Sequence, name: str = "select"
) -> Tensor:
    """a where cond (bool) is true, else b; broadcasting."""
    return map_expr(graph, "select($2,$0,$1)", [a, b, cond], prog, name)


def clamp(
    graph: Graph, x: Tensor, low: Value, high: Value, prog: program.Sequence, name: str = "clamp"
) -> Tensor:
    """min(max(x, low), high); broadcasting."""
    return map_expr(graph, "min(max($0,$1),$2)", [x, low, high], prog, name)


def cast(
    graph: Graph, x: Tensor, dtype: DType, prog: program.Sequence, name: str = "cast"
) -> Tensor:
    """x as another type, in the same layout. Float to integer truncates and saturates."""
    if x.dtype is dtype:
        return x
    return map_expr(graph, f"cast($0,{dtype.name})", [x], prog, name, dtype)


def add_in_place(
    graph: Graph, a: Tensor, b: Value, prog: program.Sequence, name: str = "add"
) -> None:
    """a += b."""
    map_with_output(graph, "add($0,$1)", [a, b], a, prog, name)


def mul_in_place(
    graph: Graph, a: Tensor, b: Value, prog: program.Sequence, name: str = "mul"
) -> None:
    """a *= b."""
    map_with_output(graph, "mul($0,$1)", [a, b], a, prog, name)


def scaled_add_to(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale: float | Tensor,
    prog: program.Sequence,
    name: str = "scaled_add",
    *,
    scale_a: float | Tensor = 1.0,
) -> None:
    """a = scale_a * a + scale * b in place; the shapes agree, scales are numbers or one element.

    Floats of different types are added in f32 and rounded once to the type of a. Raises ShapeError,
    and TypeMismatch unless the types agree or all are f16 or f32.
    """
    scales = [s for s in (scale, scale_a) if not isinstance(s, int | float)]
    kinds = {t.dtype for t in (a, b, *scales)}
    if len(kinds) > 1 and not kinds <= {f16, f32}:
        fail(TypeMismatch, f"scaled add of {a.dtype} and {b.dtype}", remedy="cast one of them")
    if a.shape != b.shape:
        fail(ShapeError, f"scaled add of {list(b.shape)} to {list(a.shape)}")
    if len(kinds) > 1 or scale_a != 1.0:
        _scaled_sum(graph, a, b, (scale_a, scale), prog, name)
    elif a.numel:
        _scaled_add(graph, a, b, scale, prog, name)


def _scaled_sum(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scales: Sequence[float | Tensor],
    prog: program.Sequence,
    name: str,
) -> None:
    """a = scales[0] * a + scales[1] * b as one expression, in f32 where a type is f16."""
    wide = a.dtype if a.dtype is not f16 else f32
    tensors, terms = [a, b], ["", ""]
    for i, scale in enumerate(scales):
        if isinstance(scale, int | float):
            factor = f"c({scale!r},{wide.name})"
        else:
            factor = f"cast(${len(tensors)},{wide.name})"
            tensors.append(scale.reshape(()))
        terms[i] = f"mul(cast(${i},{wide.name}),{factor})"
    text = f"cast(add({terms[0]},{terms[1]}),{a.dtype.name})"
    map_with_output(graph, text, tensors, a, prog, name)


def _scaled_add(
    graph: Graph, a: Tensor, b: Tensor, scale: float | Tensor, prog: program.Sequence, name: str
) -> None:
    order = memory_order(a) or plain_order(tuple(a.shape))
    check_writable(a, f"the target of {name}")
    y, x = order.apply(a).flatten(), order.apply(b).flatten()
    if isinstance(scale, int | float):
        factor = graph.add_constant(a.dtype, (1,), np.asarray(scale), f"{name}/scale", 0)
    else:
        factor = scale
    x, factor = apart(graph, [x, factor], y, prog, name)
    work = split_work(mapping_of(graph, y), y.numel, y.numel)
    edges = {
        "y": Edges.flat(y, work.begin, work.end),
        "x": Edges.flat(x, work.begin, work.end),
        "scale": Edges.elements(factor.flatten(), np.zeros(len(work.tile), np.int64)),
    }
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, f"popops::ScaledAdd<{a.dtype.name}>", work.tile, edges, name=name)
    prog.add(program.Execute(cs))


def scaled_subtract_from(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale: float | Tensor,
    prog: program.Sequence,
    name: str = "scaled_subtract",
    *,
    scale_a: float | Tensor = 1.0,
) -> None:
    """a = scale_a * a - scale * b in place; as `scaled_add_to` otherwise."""
    if isinstance(scale, int | float):
        minus: float | Tensor = -scale
    else:
        minus = map_expr(graph, "neg($0)", [scale], prog, f"{name}/minus")
    scaled_add_to(graph, a, b, minus, prog, name, scale_a=scale_a)


def one_hot(
    graph: Graph,
    indices: Tensor,
    depth: int,
    dtype: DType,
    prog: program.Sequence,
    name: str = "one_hot",
) -> Tensor:
    """1 where the new last dim equals the index, else 0: [*indices, depth]."""
    from poplar_py.popops.fill import iota

    steps = iota(graph, depth, indices.dtype, 0, f"{name}/steps")
    column = indices.reshape((*indices.shape, 1))
    return map_expr(graph, f"cast(equal($0,$1),{dtype.name})", [column, steps], prog, name, dtype)
