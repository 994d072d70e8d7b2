"""simplify: constant folding, common subexpressions, algebra, layout cancelling, dead ops.

    %c: f32[4,8] = core.constant() ...                %w: f32[8,4] = core.constant() ...
    %w: f32[8,4] = tensor.transpose(%c) ...    =>     %y: f32[2,4] = nn.matmul(%x, %w)
    %z: f32[2,8] = tensor.reshape(%x) ...
    %y: f32[2,4] = nn.matmul(%z, %w)

Only what depends on no input is computed here, by the reference meaning of each op. The rules for
single ops are in simplify_rules.py, simplify_norm.py and simplify_weights.py. Runs until nothing
changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from poplar_py.diagnostics import PoplarPyError
from poplar_py.eval.interpreter import evaluate_op
from poplar_py.ir.attributes import attribute_text
from poplar_py.ir.core import COMMUTATIVE, PURE, RANDOM, Graph, Kind, Module, Op, Value
from poplar_py.ir.rewrite import replace_values, use_counts
from poplar_py.ops import elementwise
from poplar_py.ops.core import Constant, If, Loop
from poplar_py.passes.context import PassContext
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.simplify_norm import scale_into_norm
from poplar_py.passes.simplify_rules import RULES, Rewriter
from poplar_py.passes.simplify_weights import scale_into_weights

__all__ = ["Simplify", "remove_dead", "simplify_graph"]

Array = np.ndarray[Any, Any]
assert {scale_into_norm, scale_into_weights} <= set(RULES[elementwise.Mul])


@register
@dataclass(frozen=True)
class Simplify(Pass):
    """Fold constants, merge equal ops, apply algebra, drop dead ops.

    `max_fold` bounds, in bytes, folded results that are larger than what they are made of;
    `rounds` bounds the repetitions.
    """

    name: ClassVar[str] = "simplify"
    max_fold: int = 1 << 20
    rounds: int = 12

    def run(self, module: Module, ctx: PassContext) -> bool:
        changed = [simplify_graph(g, self.max_fold, self.rounds) for g in module.graphs.values()]
        return any(changed)


def simplify_graph(graph: Graph, max_fold: int = 1 << 20, rounds: int = 12) -> bool:
    """Simplify one graph in place until nothing changes; whether anything did."""
    changed = remove_dead(graph)
    for _ in range(rounds):
        walk = _Round(graph, max_fold)
        walk.block(graph, _Known())
        replace_values(graph, walk.rewriter.replaced)
        dead = remove_dead(graph)
        if not walk.changed and not dead:
            return changed
        changed = True
    return changed


def remove_dead(graph: Graph) -> bool:
    """Drop ops whose results nobody uses, in the graph and its regions."""
    return _sweep(graph, set())


def _sweep(graph: Graph, live: set[Value]) -> bool:
    """Backwards over a graph: ops none of whose results is in `live` go."""
    live.update(graph.outputs)
    kept: list[Op] = []
    changed = False
    for op in reversed(graph.ops):
        if live.isdisjoint(op.results):
            changed = True
            continue
        for region in op.regions():
            changed |= _sweep(region, live)
        live.update(op.operands())
        kept.append(op)
    if changed:
        graph.ops[:] = reversed(kept)
    return changed


@dataclass
class _Known:
    """Expressions seen so far in this graph, then in those around it."""

    outer: _Known | None = None
    ops: dict[tuple[Any, ...], Op] = field(default_factory=dict[tuple[Any, ...], Op])

    def find(self, key: tuple[Any, ...]) -> Op | None:
        scope: _Known | None = self
        while scope is not None:
            if key in scope.ops:
                return scope.ops[key]
            scope = scope.outer
        return None


class _Round:
    """One forward walk: each op is rewritten, folded or merged where it stands."""

    def __init__(self, graph: Graph, max_fold: int) -> None:
        self.max_fold = max_fold
        self.rewriter = Rewriter(use_counts(graph))
        self.changed = False
        self.order: dict[Value, int] = {}

    def block(self, graph: Graph, known: _Known) -> None:
        self._number(graph.inputs)
        todo = list(reversed(graph.ops))
        done: list[Op] = []
        while todo:
            op = todo.pop()
            op.map_operands(self.rewriter.final)
            new = self._replacement(op, known)
            if new is not None:
                self.changed = True
                emitted, values = new
                self.rewriter.replace(op, values)
                todo.extend(reversed(emitted))
                continue
            for region in op.regions():
                self.block(region, _Known(known))
            self._number(op.results)
            done.append(op)
        graph.ops[:] = done
        graph.outputs = [self.rewriter.final(v) for v in graph.outputs]

    def _number(self, values: Sequence[Value]) -> None:
        for value in values:
            self.order[value] = len(self.order)

    def _replacement(self, op: Op, known: _Known) -> tuple[list[Op], tuple[Value, ...]] | None:
        """Ops to put in the place of `op`, and the values that stand for its results."""
        if isinstance(op, (If, Loop)):
            return _inlined(op)
        folded = self._fold(op)
        if folded is not None:
            return list(folded), tuple(c.result for c in folded)
        for rule in RULES.get(type(op), ()):
            self.rewriter.begin(op)
            value = rule(op, self.rewriter)
            if value is not None:
                assert value.type == op.result.type, f"{rule.__name__}: {value.type} for {op}"
                return self.rewriter.emitted, (value,)
        return self._merge(op, known)

    def _fold(self, op: Op) -> list[Constant] | None:
        if isinstance(op, Constant) or not op.has(PURE) or op.has(RANDOM) or op.regions():
            return None
        arrays = _constant_operands(op)
        if arrays is None or not all(v.type.is_static for v in op.results):
            return None
        size = sum(v.type.nbytes for v in op.results)
        given = sum(a.nbytes for a in arrays if a is not None and any(a.strides))
        if size > max(self.max_fold, given):
            return None
        try:
            results = evaluate_op(op, *arrays)
        except PoplarPyError:
            return None  # it will fail when it runs, if it runs
        made: list[Constant] = []
        for value, array in zip(op.results, results, strict=True):
            held = np.ascontiguousarray(array, dtype=value.dtype.numpy).reshape(
                value.type.static_shape
            )
            constant = Constant(held, loc=op.loc, ipu=op.ipu)
            made.append(constant)
        return made

    def _merge(self, op: Op, known: _Known) -> tuple[list[Op], tuple[Value, ...]] | None:
        """An equal op that stands above, if any; otherwise enters this one."""
        if not op.has(PURE) or op.has(RANDOM):
            return None
        key = self._key(op)
        if key is None:
            return None
        same = known.find(key)
        if same is None:
            known.ops[key] = op
            return None
        return [], same.results

    def _key(self, op: Op) -> tuple[Any, ...] | None:
        if isinstance(op, Constant):
            array = op.value
            if array.nbytes <= 256:
                return (op.ipu, op.result.type, np.ascontiguousarray(array).tobytes())
            return (op.ipu, id(array))
        operands: list[Any] = []
        for spec in op.spec.operands:
            held = getattr(op, spec.name)
            operands.append(held if held is None or isinstance(held, Value) else tuple(held))
        if op.has(COMMUTATIVE):
            operands[:2] = sorted(operands[:2], key=lambda v: self.order.get(v, -1))
        attributes = tuple(attribute_text(v) for v in op.attributes().values())
        return (op.opname, op.ipu, tuple(operands), attributes)


def _constant_operands(op: Op) -> list[Array | None] | None:
    """Arrays of the operands in field order, or None when one is not a constant."""
    arrays: list[Array | None] = []
    for spec in op.spec.operands:
        held = getattr(op, spec.name)
        if held is None:
            arrays.append(None)
            continue
        for value in held if spec.kind is Kind.LIST else (held,):
            if not isinstance(value.owner, Constant):
                return None
            arrays.append(value.owner.value)
    return arrays


def _inlined(op: If | Loop) -> tuple[list[Op], tuple[Value, ...]] | None:
    """The branch taken, the body of a loop that runs once, or nothing for one that never runs."""
    if isinstance(op, If):
        taken = _flag(op.cond)
        if taken is None:
            return None
        branch = op.then_branch if taken else op.else_branch
        return list(branch.ops), tuple(branch.outputs)
    if op.trip == 0 or (op.cond is not None and _flag(op.cond) is False):
        return [], op.carried
    if op.trip != 1 or op.cond is not None or op.limit is not None:
        return None
    first = Constant(np.zeros((), np.int32), loc=op.loc, ipu=op.ipu)
    inputs = dict(zip(op.body.inputs, (first.result, *op.carried), strict=True))
    replace_values(op.body, inputs)
    return [first, *op.body.ops], tuple(op.body.outputs)


def _flag(value: Value) -> bool | None:
    owner = value.owner
    if not isinstance(owner, Constant) or math.prod(owner.value.shape) != 1:
        return None
    return bool(owner.value.reshape(()))
