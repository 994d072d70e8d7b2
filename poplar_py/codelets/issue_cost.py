"""What straight code costs: issue slots and code bytes of one expression (see `cycles`)."""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.codelets.codelet_ir import BINARY, COMPARE, UNARY, Expr, walk_expr
from poplar_py.types import DType, bf16, bool_, f16, f32

__all__ = ["FUNCTION_BYTES", "Cost", "ExprCost", "issue"]

# Cycles of one auxiliary step (2 floats, 4 halves): PopLibs' element-wise tables.
_STEP: dict[str, tuple[float, float]] = {
    "div": (10, 21),
    "max": (3, 4),
    "min": (3, 4),
    "fmax": (1, 1),
    "fmin": (1, 1),
    "exp": (6, 4),
    "exp2": (6, 4),
    "log": (12, 4),
    "log2": (12, 4),
    "log10": (12, 4),
    "tanh": (12, 2),
    "sigmoid": (12, 6),
    "rsqrt": (8, 19),
    "sqrt": (10, 23),
    "select": (2, 2),
    "abs": (2, 4),
    "eq": (7, 9),
    "ne": (10, 11),
    "lt": (7, 9),
    "le": (7, 9),
    "gt": (7, 9),
    "ge": (7, 9),
}
# Cycles of one element, for functions that run element by element.
_ELEMENT: dict[str, tuple[float, float]] = {
    "pow": (312, 325),
    "fmod": (66, 75),
    "mod": (66, 75),
    "atan2": (136, 144),
    "sin": (2300, 25),
    "cos": (2300, 25),
    "tan": (5100, 5700),
    "erf": (41, 13),
    "floor": (8, 8),
    "ceil": (8, 8),
    "round": (8, 8),
    "trunc": (4, 4),
}
_OTHER_FUNCTION = 150.0  # own: asin, sinh, log1p, ...
_SOFT_DOUBLE = {"add": 60.0, "sub": 60.0, "mul": 70.0, "fma": 130.0, "div": 300.0, "sqrt": 400.0}
_INT_DIVIDE = 270.0
_DIVISIONS = ("quot", "rem", "floordiv", "mod")
_INT_LANE = 5.0  # of a vector operation on ints: 7 an element in all with its load and store
FUNCTION_BYTES = 160  # own: code of a function that is called


@dataclass(slots=True)
class Cost:
    """Instructions of a straight piece of code: main and auxiliary issue slots, and code bytes."""

    main: float = 0.0
    aux: float = 0.0
    code: float = 0.0

    @property
    def cycles(self) -> float:
        return max(self.main, self.aux)


class ExprCost:
    """Adds the cost of expressions to a `Cost`; `functions` are those called, counted once."""

    def __init__(self) -> None:
        self.functions: set[str] = set()

    def memory(self, nbytes: int, cost: Cost) -> None:
        issue(cost, main=-(-nbytes // 8))

    def index(self, e: Expr, cost: Cost) -> None:
        """Counters, constants and sums or products of them cost nothing (post-increment)."""
        for node in walk_expr(e):
            if node.op in ("local", "const", "add", "sub", "mul", "cast", "state", "len", "nrows"):
                continue
            self._one(node, cost)

    def expr(self, e: Expr, cost: Cost) -> None:
        if e.op in ("load", "gather"):
            self.index(e.args[1], cost)
            loads = e.ty.lanes if e.op == "gather" else -(-e.ty.nbytes // 8)
            issue(cost, main=loads)
            return
        if e.op == "aload":
            if e.args[0].op != "const":
                self.index(e.args[0], cost)
                self.memory(e.ty.nbytes, cost)
            return
        narrow = _narrow_form(e)
        if narrow is not None:
            for arg in narrow.args:
                if arg.op == "cast":
                    self.expr(arg.args[0], cost)
            lanes = max(narrow.ty.lanes, narrow.args[0].ty.lanes)
            self._arithmetic(narrow.op, f16, lanes, cost)
            return
        for arg in e.args:
            if not arg.ty.ref:
                self.expr(arg, cost)
        self._one(e, cost)

    def _one(self, e: Expr, cost: Cost) -> None:
        """The node itself, without its operands."""
        op = e.op
        if op in ("const", "local", "field", "len", "nrows", "splat", "extract", "bitcast", "iota"):
            return
        if op == "state":
            return
        d = e.args[0].ty.dtype if e.args else e.ty.dtype
        lanes = max([e.ty.lanes, *(a.ty.lanes for a in e.args)])
        if op == "cast":
            _cast_cost(d, e.ty.dtype, lanes, cost)
        elif op.startswith("reduce_"):
            self._arithmetic(op.removeprefix("reduce_"), d, lanes, cost)
        elif op in ("insert", "shuffle"):
            issue(cost, aux=-(-e.ty.nbytes // 8))
        elif op in ("andalso", "orelse", "choose"):
            issue(cost, main=1)
        elif op in _DIVISIONS and _power_of_two(e.args[1]) and not d.is_float:
            words = 1 if d.size <= 4 else 3
            issue(cost, main=words * lanes * (1 if op in ("floordiv", "mod") else 3))
        elif op in UNARY or op in BINARY or op in COMPARE or op in ("fma", "select"):
            self._arithmetic(op, d if op != "select" else e.ty.dtype, lanes, cost)

    def _arithmetic(self, op: str, d: DType, lanes: int, cost: Cost) -> None:
        if d.is_float:
            self._float(op, d, lanes, cost)
            return
        if op in _DIVISIONS or op == "pow":
            cost.main += _INT_DIVIDE * lanes
            cost.code += 4
            self.functions.add("int divide")
            return
        words = 1 if d.size <= 4 else 3
        if lanes == 1 or d is bool_:
            issue(cost, main=words * -(-lanes // 8))
            return
        cost.main += words * _INT_LANE * lanes
        cost.code += 4 * words * lanes

    def _float(self, op: str, d: DType, lanes: int, cost: Cost) -> None:
        half = d in (f16, bf16)
        if d.size == 8:
            cost.main += lanes * _SOFT_DOUBLE.get(op, 30.0 if op in COMPARE else 1000.0)
            cost.code += 8
            self.functions.add(f"f64 {op}")
            return
        steps = -(-lanes // (4 if half else 2))
        if op in _STEP:
            cost.aux += steps * _STEP[op][half]
            cost.code += 4 * steps
        elif op in _ELEMENT:
            cost.aux += lanes * _ELEMENT[op][half]
            cost.code += 8
            self.functions.add(op)
        elif op in UNARY and op not in ("neg", "isnan", "isinf"):
            cost.aux += lanes * _OTHER_FUNCTION
            cost.code += 8
            self.functions.add(op)
        else:
            issue(cost, aux=steps)


def _power_of_two(e: Expr) -> bool:
    """A divisor that makes a division a shift or a mask, with two more steps where it truncates."""
    value = e.attr[0] if e.op == "const" else 0
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def _narrow_form(e: Expr) -> Expr | None:
    """The f32 operation of f16/bf16 values that the tile does in one half instruction."""
    wide = e.args[0] if e.op == "cast" and e.ty.dtype in (f16, bf16) else e
    if wide.op not in UNARY | BINARY | COMPARE and wide.op != "fma":
        return None
    if wide is e and e.op not in COMPARE:
        return None
    casts = [a for a in wide.args if a.op == "cast" and a.args[0].ty.dtype in (f16, bf16)]
    others = [a for a in wide.args if a not in casts]
    return wide if casts and all(a.op == "const" for a in others) else None


def issue(cost: Cost, main: float = 0.0, aux: float = 0.0) -> None:
    cost.main += main
    cost.aux += aux
    cost.code += 4 * (main + aux)


def _cast_cost(a: DType, b: DType, lanes: int, cost: Cost) -> None:
    if not a.is_float and not b.is_float:
        return
    if {a, b} <= {f16, f32, bf16}:
        issue(cost, aux=-(-lanes // (4 if a is f32 else 2)))
        return
    cost.aux += lanes * (2.0 if max(a.size, b.size) <= 4 else 60.0)
    cost.code += 8 * lanes
