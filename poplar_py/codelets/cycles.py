"""The issue model: worker cycles and code bytes of a codelet, from its IR.

A worker issues one bundle per worker cycle: a main instruction (integers, loads, stores, control)
and beside it one auxiliary instruction (floating point, 8 bytes wide). A straight piece of code
takes max(main, auxiliary) cycles; latencies are hidden because six workers take turns. Loads and
stores move 8 bytes; addresses that follow loop counters are post-incremented for free. Costs of
functions are those of PopLibs' published cycle estimators (per element, 2 floats or 4 halves
a step); figures marked "own" are estimates.

Trip counts follow from field sizes and state, so that cycles are a NumPy function of them. What
depends on data is taken as follows: the dearer branch of an `if`, `NOMINAL_TRIPS` rounds of a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poplar_py.codelets.codelet_ir import (
    BINARY,
    COMPARE,
    UNARY,
    CodeletIR,
    Expr,
    Field,
    Stmt,
    walk_expr,
    walk_stmts,
)
from poplar_py.codelets.cycle_sizes import SizeEnv, select_values
from poplar_py.codelets.depth import deep
from poplar_py.types import DType, bf16, bool_, f16, f32

__all__ = ["IssueModel", "Sizes"]

Array = np.ndarray[Any, Any]
Sizes = dict[str, Array]
NOMINAL_TRIPS = 8
WORKERS = 6
VERTEX_OVERHEAD = 8  # own: entry, exit, fetching the state
SUPERVISOR_OVERHEAD = 11  # basicOpSupervisorOverhead of PopLibs
LOOP_SETUP = 2  # own
LOOP_ROUND = 1  # own: decrement and branch; an innermost loop repeats for nothing

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
_INT_LANE = 5.0  # of a vector operation on ints: 7 an element in all with its load and store
_FUNCTION_BYTES = 160  # own: code of a function that is called


@dataclass(slots=True)
class Cost:
    """Instructions of a straight piece of code: main and auxiliary issue slots, and code bytes."""

    main: float = 0.0
    aux: float = 0.0
    code: float = 0.0

    @property
    def cycles(self) -> float:
        return max(self.main, self.aux)


@dataclass(slots=True)
class Node:
    """A step of the cost program: fixed cycles, or something that depends on sizes."""

    kind: str
    cycles: float = 0.0
    name: str = ""
    exprs: tuple[Expr, ...] = ()
    step: int = 1
    body: list[Node] = field(default_factory=lambda: [])
    orelse: list[Node] = field(default_factory=lambda: [])


class IssueModel:
    """Cycles and code bytes of one codelet."""

    @deep
    def __init__(self, ir: CodeletIR) -> None:
        self.multi, self.worker = ir.multi, ir.worker
        self.functions: set[str] = set()
        self.rows: dict[str, str] = {}
        self.code = 0.0
        self.wanted = _wanted_locals(ir.body)
        self.program = self._body(ir.body)
        words = sum(_field_words(f) for f in ir.fields)
        self.overhead = VERTEX_OVERHEAD + (words + 1) // 2
        # 4 bytes an instruction, loop control and entry included, functions counted once
        fixed = 4 * (VERTEX_OVERHEAD + len(ir.fields))
        self.code_bytes = int(self.code) + fixed + _FUNCTION_BYTES * len(self.functions)

    @classmethod
    def restored(
        cls,
        program: list[Node],
        overhead: int,
        code_bytes: int,
        rows: dict[str, str],
        multi: bool,
        worker: str,
    ) -> IssueModel:
        """A model from what a cache kept of it."""
        model = cls.__new__(cls)
        model.program, model.overhead, model.code_bytes = program, overhead, code_bytes
        model.rows, model.multi, model.worker = rows, multi, worker
        return model

    @deep
    def cycles(self, sizes: Sizes, state: Sizes) -> Array:
        """Worker cycles per vertex, int64[n]; of a MultiVertex, tile cycles with its launch."""
        shape = np.broadcast_shapes(*(np.shape(v) for v in (*sizes.values(), *state.values())))
        count = shape or (1,)
        if not self.multi:
            cycles = self._run(self.program, SizeEnv(sizes, state, {}, self.rows)) + self.overhead
            return _whole(np.broadcast_to(cycles, count))
        per_worker = [
            self._run(self.program, SizeEnv(sizes, state, {self.worker: np.float64(w)}, self.rows))
            for w in range(WORKERS)
        ]
        worst = np.maximum.reduce(np.broadcast_arrays(*per_worker)) + self.overhead
        return _whole(np.broadcast_to(worst * WORKERS + SUPERVISOR_OVERHEAD, count))

    # -- the cost program

    def _body(self, body: list[Stmt]) -> list[Node]:
        nodes: list[Node] = []
        cost = Cost()
        for stmt in body:
            nested = stmt.op in ("if", "for", "while", "loop", "block")
            self._statement(stmt, cost)
            if stmt.op == "assign" and str(stmt.attr[0]) in self.wanted:
                nodes.append(Node("assign", name=str(stmt.attr[0]), exprs=stmt.args))
            if stmt.op == "assign" and stmt.args[0].ty.ref:
                self.rows[str(stmt.attr[0])] = str(stmt.args[0].attr[0])
            if nested:
                self._flush(nodes, cost)
                cost = Cost()
                nodes.append(self._nested(stmt))
        self._flush(nodes, cost)
        return nodes

    def _flush(self, nodes: list[Node], cost: Cost) -> None:
        self.code += cost.code
        if cost.cycles:
            nodes.append(Node("fixed", cycles=cost.cycles))

    def _nested(self, s: Stmt) -> Node:
        body, orelse = self._body(s.body), self._body(s.orelse)
        if s.op == "for":
            inner = not any(b.op in ("for", "while", "loop", "if") for b in walk_stmts(s.body))
            self.code += 8
            rounds = 0.0 if inner else LOOP_ROUND
            return Node("for", rounds, str(s.attr[0]), s.args, int(s.attr[1]), body)
        self.code += 8
        if s.op == "if":
            return Node("if", 1.0, "", s.args, 1, body, orelse)
        if s.op == "block":
            return Node("block", 0.0, body=body)
        return Node("while", LOOP_ROUND, body=body)

    def _statement(self, s: Stmt, cost: Cost) -> None:
        match s.op:
            case "for":
                return
            case "store":
                self._expr(s.args[2], cost)
                self._index(s.args[1], cost)
                self._memory(s.args[2].ty.nbytes, cost)
            case "astore":
                self._expr(s.args[1], cost)
                if s.args[0].op != "const":
                    self._index(s.args[0], cost)
                    self._memory(s.args[1].ty.nbytes, cost)
            case "setstate":
                self._expr(s.args[0], cost)
                _issue(cost, main=1)
            case "prefetch" | "array":
                return
            case _:
                for arg in s.args:
                    if not arg.ty.ref:
                        self._expr(arg, cost)
                    elif arg.op == "row":
                        self._index(arg.args[0], cost)
                        _issue(cost, main=1)

    def _memory(self, nbytes: int, cost: Cost) -> None:
        _issue(cost, main=-(-nbytes // 8))

    def _index(self, e: Expr, cost: Cost) -> None:
        """Counters, constants and sums or products of them cost nothing (post-increment)."""
        for node in walk_expr(e):
            if node.op in ("local", "const", "add", "sub", "mul", "cast", "state", "len", "nrows"):
                continue
            self._one(node, cost)

    def _expr(self, e: Expr, cost: Cost) -> None:
        if e.op in ("load", "gather"):
            self._index(e.args[1], cost)
            loads = e.ty.lanes if e.op == "gather" else -(-e.ty.nbytes // 8)
            _issue(cost, main=loads)
            return
        if e.op == "aload":
            if e.args[0].op != "const":
                self._index(e.args[0], cost)
                self._memory(e.ty.nbytes, cost)
            return
        narrow = _narrow_form(e)
        if narrow is not None:
            for arg in narrow.args:
                if arg.op == "cast":
                    self._expr(arg.args[0], cost)
            lanes = max(narrow.ty.lanes, narrow.args[0].ty.lanes)
            self._arithmetic(narrow.op, f16, lanes, cost)
            return
        for arg in e.args:
            if not arg.ty.ref:
                self._expr(arg, cost)
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
            _issue(cost, aux=-(-e.ty.nbytes // 8))
        elif op in ("andalso", "orelse", "choose"):
            _issue(cost, main=1)
        elif op in UNARY or op in BINARY or op in COMPARE or op in ("fma", "select"):
            self._arithmetic(op, d if op != "select" else e.ty.dtype, lanes, cost)

    def _arithmetic(self, op: str, d: DType, lanes: int, cost: Cost) -> None:
        if d.is_float:
            self._float(op, d, lanes, cost)
            return
        if op in ("quot", "rem", "floordiv", "mod", "pow"):
            cost.main += _INT_DIVIDE * lanes
            cost.code += 4
            self.functions.add("int divide")
            return
        words = 1 if d.size <= 4 else 3
        if lanes == 1 or d is bool_:
            _issue(cost, main=words * -(-lanes // 8))
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
            _issue(cost, aux=steps)

    # -- running it over sizes

    def _run(self, nodes: list[Node], env: SizeEnv) -> Any:
        total: Any = np.float64(0.0)
        for node in nodes:
            if node.kind == "fixed":
                total = total + node.cycles
            elif node.kind == "assign":
                env.locals[node.name] = env.value(node.exprs[0])
            else:
                total = total + self._run_nested(node, env)
        return total

    def _run_nested(self, node: Node, env: SizeEnv) -> Any:
        if node.kind == "if":
            return self._run_if(node, env)
        if node.kind == "block":
            return self._run(node.body, env)
        if node.kind == "while":
            return LOOP_SETUP + NOMINAL_TRIPS * (node.cycles + self._run(node.body, env))
        start, stop = env.value(node.exprs[0]), env.value(node.exprs[1])
        if start is None or stop is None:
            env.locals[node.name] = None
            trips: Any = np.float64(NOMINAL_TRIPS)
        else:
            trips = np.maximum(0.0, np.ceil((stop - start) / node.step))
            env.locals[node.name] = start + node.step * np.maximum(trips - 1, 0) / 2
        return np.where(trips > 0, LOOP_SETUP, 1) + trips * (
            node.cycles + self._run(node.body, env)
        )

    def _run_if(self, node: Node, env: SizeEnv) -> Any:
        cond = env.value(node.exprs[0])
        before = dict(env.locals)
        yes = self._run(node.body, env)
        then, env.locals = env.locals, before
        no = self._run(node.orelse, env)
        for name, value in then.items():
            other = env.locals.get(name)
            if value is not other:
                both = cond is not None and value is not None and other is not None
                env.locals[name] = np.where(cond != 0, value, other) if both else None
        if cond is None:
            return node.cycles + np.maximum(yes, no)
        return node.cycles + select_values(cond, yes, no)


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


def _whole(cycles: Array) -> Array:
    return np.ceil(cycles - 1e-6).astype(np.int64)


def _issue(cost: Cost, main: float = 0.0, aux: float = 0.0) -> None:
    cost.main += main
    cost.aux += aux
    cost.code += 4 * (main + aux)


def _cast_cost(a: DType, b: DType, lanes: int, cost: Cost) -> None:
    if not a.is_float and not b.is_float:
        return
    if {a, b} <= {f16, f32, bf16}:
        _issue(cost, aux=-(-lanes // (4 if a is f32 else 2)))
        return
    cost.aux += lanes * (2.0 if max(a.size, b.size) <= 4 else 60.0)
    cost.code += 8 * lanes


def _field_words(f: Field) -> int:
    if f.kind == "state" and f.rank == 0:
        return -(-f.dtype.size // 4)
    return 1 if f.rank == 0 or f.one_ptr else 2


def _wanted_locals(body: list[Stmt]) -> set[str]:
    """Locals that trip counts or conditions depend on."""
    wanted: set[str] = set()
    assigns: dict[str, list[Expr]] = {}
    for stmt in walk_stmts(body):
        if stmt.op == "assign" and not stmt.args[0].ty.ref:
            assigns.setdefault(str(stmt.attr[0]), []).append(stmt.args[0])
        if stmt.op in ("for", "if"):
            for arg in stmt.args:
                wanted |= set(_local_names(arg))
    queue = list(wanted)
    while queue:
        for value in assigns.get(queue.pop(), []):
            new = set(_local_names(value)) - wanted
            wanted |= new
            queue += new
    return wanted


def _local_names(e: Expr) -> Iterator[str]:
    for node in walk_expr(e):
        if node.op == "local" and not node.ty.ref:
            yield str(node.attr[0])
