"""The issue model: worker cycles and code bytes of a codelet, from its IR.

A worker issues one bundle per worker cycle: a main instruction (integers, loads, stores, control)
and beside it one auxiliary instruction (floating point, 8 bytes wide). A straight piece of code
takes max(main, auxiliary) cycles; latencies are hidden because six workers take turns. Loads and
stores move 8 bytes; addresses that follow loop counters are post-incremented for free. Costs of
functions are those of PopLibs' published cycle estimators (per element, 2 floats or 4 halves
a step); figures marked "own" are estimates.

Trip counts follow from field sizes and state, so that cycles are a NumPy function of them, also
for a `while` that counts (see `counted`). What depends on data is taken as follows: the dearer
branch of an `if`, `NOMINAL_TRIPS` rounds of a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from poplar_py.codelets.codelet_ir import (
    CodeletIR,
    Expr,
    Field,
    Stmt,
    walk_expr,
    walk_stmts,
)
from poplar_py.codelets.counted import counted_while
from poplar_py.codelets.cycle_sizes import SizeEnv, select_values
from poplar_py.codelets.depth import deep
from poplar_py.codelets.issue_cost import FUNCTION_BYTES, Cost, ExprCost, issue
from poplar_py.codelets.partial import masked

__all__ = ["IssueModel", "Sizes"]

Array = np.ndarray[Any, Any]
Sizes = dict[str, Array]
NOMINAL_TRIPS = 8
MOST = 2.0**53
"""Rounds and cycles beyond which a figure means nothing: state may hold any value."""
WORKERS = 6
VERTEX_OVERHEAD = 8  # own: entry, exit, fetching the state
SUPERVISOR_OVERHEAD = 11  # basicOpSupervisorOverhead of PopLibs
# Unpacking the pointers of a layout, and of each row of a VectorList: PopLibs' cycle tables.
UNPACK = {
    "short_span": 2,
    "scaled_ptr32": 2,
    "scaled_ptr64": 1,
    "scaled_ptr128": 1,
    "deltan": 5,
    "deltanelements": 5,
    "compact_deltan": 5,
}
ROW_UNPACK = 2
LOOP_SETUP = 2  # own
LOOP_ROUND = 1  # own: decrement and branch; an innermost loop repeats for nothing
ROUNDS = "rounds"
"""Locals of this name count the rounds of a loop with a step that only the vertex knows. The
quotient that finds them here costs nothing: a tile compares in every round instead."""


@dataclass(slots=True)
class Node:
    """A step of the cost program: fixed cycles, or something that depends on sizes.

    kind: fixed, assign, if, for, while, block; part (the body on `exprs[0]` of `step` lanes,
    `cycles` of them at a time) and masked (a loop of such parts).
    """

    kind: str
    cycles: float = 0.0
    name: str = ""
    exprs: tuple[Expr, ...] = ()
    step: int = 1
    body: list[Node] = field(default_factory=lambda: [])
    orelse: list[Node] = field(default_factory=lambda: [])


class _Kind(Protocol):
    """What runs a codelet."""

    multi: bool
    supervisor: bool
    worker: str


class IssueModel:
    """Cycles and code bytes of one codelet."""

    @deep
    def __init__(self, ir: CodeletIR) -> None:
        self.multi, self.worker, self.supervisor = ir.multi, ir.worker, ir.supervisor
        self.costs = ExprCost()
        self.rows: dict[str, str] = {}
        self.packed_rows = {f.name for f in ir.fields if f.inner_layout == "delta_row"}
        self.code = 0.0
        self.wanted = _wanted_locals(ir.body)
        self.program = self._body(ir.body)
        words = sum(_field_words(f) for f in ir.fields)
        unpacked = sum(UNPACK.get(f.layout, 0) for f in ir.fields)
        self.overhead = VERTEX_OVERHEAD + (words + 1) // 2 + unpacked
        # 4 bytes an instruction, loop control and entry included, functions counted once
        fixed = 4 * (VERTEX_OVERHEAD + len(ir.fields))
        self.code_bytes = int(self.code) + fixed + FUNCTION_BYTES * len(self.costs.functions)

    @classmethod
    def restored(
        cls,
        program: list[Node],
        overhead: int,
        code_bytes: int,
        rows: dict[str, str],
        codelet: _Kind,
    ) -> IssueModel:
        """A model from what a cache kept of it."""
        model = cls.__new__(cls)
        model.program, model.overhead, model.code_bytes = program, overhead, code_bytes
        model.rows, model.multi, model.worker = rows, codelet.multi, codelet.worker
        model.supervisor = codelet.supervisor
        return model

    @deep
    def cycles(self, sizes: Sizes, state: Sizes) -> Array:
        """Worker cycles per vertex, int64[n].

        Tile cycles of a MultiVertex with its launch, and of a SupervisorVertex, which issues one
        instruction a cycle while no worker runs.
        """
        shape = np.broadcast_shapes(*(np.shape(v) for v in (*sizes.values(), *state.values())))
        count = shape or (1,)
        if not self.multi:
            cycles = self._run(self.program, SizeEnv(sizes, state, {}, self.rows)) + self.overhead
            cycles = cycles + SUPERVISOR_OVERHEAD if self.supervisor else cycles
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
            part = masked(s.body)
            if part is not None and part.lanes == int(s.attr[1]):
                return Node("masked", part.step, str(s.attr[0]), s.args, part.lanes, body)
            return Node("for", rounds, str(s.attr[0]), s.args, int(s.attr[1]), body)
        self.code += 8
        if s.op == "if":
            part = masked(s.body)
            if part is not None and not s.orelse:
                body = [Node("part", part.step, "", (part.count,), part.lanes, body)]
            return Node("if", 1.0, "", s.args, 1, body, orelse)
        if s.op == "block":
            return Node("block", 0.0, body=body)
        counted = counted_while(s)
        if counted is None:
            return Node("while", LOOP_ROUND, body=body)
        name, bounds = str(counted.counter.attr[0]), (counted.counter, counted.stop)
        return Node("for", LOOP_ROUND, name, bounds, counted.step, body)

    def _statement(self, s: Stmt, cost: Cost) -> None:
        match s.op:
            case "for":
                return
            case "store":
                self.costs.expr(s.args[2], cost)
                self.costs.index(s.args[1], cost)
                self.costs.memory(s.args[2].ty.nbytes, cost)
            case "astore":
                self.costs.expr(s.args[1], cost)
                if s.args[0].op != "const":
                    self.costs.index(s.args[0], cost)
                    self.costs.memory(s.args[1].ty.nbytes, cost)
            case "setstate":
                self.costs.expr(s.args[0], cost)
                issue(cost, main=1)
            case "prefetch" | "array":
                return
            case "assign" if str(s.attr[0]).startswith(f"{ROUNDS}."):
                issue(cost, main=1)
            case _:
                for arg in s.args:
                    if not arg.ty.ref:
                        self.costs.expr(arg, cost)
                    elif arg.op == "row":
                        self.costs.index(arg.args[0], cost)
                        packed = str(arg.attr[0]) in self.packed_rows
                        issue(cost, main=1 + (ROW_UNPACK if packed else 0))

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
        if node.kind == "part":
            share = np.minimum(_share(env.value(node.exprs[0]), node), 1.0)
            return self._run(node.body, env) * share
        start, stop = env.value(node.exprs[0]), env.value(node.exprs[1])
        if node.kind == "masked":
            env.locals[node.name] = None
            length = None if start is None or stop is None else stop - start
            return LOOP_SETUP + _share(length, node) * self._run(node.body, env)
        if start is None or stop is None:
            env.locals[node.name] = None
            trips: Any = np.float64(NOMINAL_TRIPS)
        else:
            trips = np.clip(np.ceil((stop - start) / node.step), 0.0, MOST)
            trips = np.where(np.isnan(trips), NOMINAL_TRIPS, trips)  # an unknown size is NaN
            env.locals[node.name] = start + node.step * np.maximum(trips - 1, 0) / 2
        rounds = trips * (node.cycles + self._run(node.body, env))
        env.locals[node.name] = None if start is None else start + node.step * trips
        return np.where(trips > 0, LOOP_SETUP, 1) + rounds

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


def _share(count: Any, node: Node) -> Any:
    """`count` elements, `node.cycles` at a time, as a share of vectors of `node.step` lanes."""
    if count is None:
        return np.float64(1.0)
    steps = np.ceil(np.clip(count, 0.0, MOST) / node.cycles)
    return np.where(np.isnan(steps), 1.0, steps * node.cycles / node.step)


def _whole(cycles: Array) -> Array:
    return np.ceil(np.minimum(cycles, MOST) - 1e-6).astype(np.int64)


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
        if stmt.op in ("for", "if") or counted_while(stmt) is not None:
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
