"""fuse: chains of elementwise ops become one map.

    %1 = nn.conv(%x, %w, %b) ...            %1 = nn.conv(%x, %w, %b) ...
    %2 = math.add(%1, %r)              =>   %y = math.map([%1, %r]) {expr = "relu(add($0,$1))", ...}
    %y = nn.relu(%2)

Ops join when the value between them has no other use, the shape of the last one, and the same IPU.
What can be the epilogue of a matmul or convolution (`poplin.supports_epilogue`: a bias, a residual,
an activation) becomes a map of its own behind the product, which lowering then puts into the
product's vertices. A single op stays as it is. Before that, products of one operand are joined
(fuse_siblings.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from poplar_py.ir.core import ELEMENTWISE, Graph, Module, Op, Value
from poplar_py.ir.rewrite import graphs_of, replace_values, use_counts
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.ops.core import Constant
from poplar_py.passes.context import PassContext
from poplar_py.passes.fuse_expressions import (
    Call,
    Tree,
    expression,
    inputs_of,
    size_of,
    text_of,
)
from poplar_py.passes.fuse_siblings import join_siblings
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.simplify import remove_dead
from poplar_py.poplin.epilogue import fold_bias, supports_epilogue
from poplar_py.types import broadcast_shapes

__all__ = ["Fuse", "fuse_graph"]


@register
@dataclass(frozen=True)
class Fuse(Pass):
    """Join elementwise chains into maps, split where a product can take a part.

    `max_ops` bounds the calls of one expression, `max_inputs` its tensors. `siblings` also joins
    matmuls of one operand.
    """

    name: ClassVar[str] = "fuse"
    max_ops: int = 32
    max_inputs: int = 6
    siblings: bool = True

    def run(self, module: Module, ctx: PassContext) -> bool:
        changed = [fuse_graph(g, self) for g in module.graphs.values()]
        return any(changed)


def fuse_graph(graph: Graph, options: Fuse) -> bool:
    """Fuse inside one graph and its regions; whether anything changed."""
    changed = options.siblings and join_siblings(graph)
    if changed:
        remove_dead(graph)
    uses = use_counts(graph)
    for part in list(graphs_of(graph)):
        changed |= _Fuser(part, uses, options).run()
    if changed:
        remove_dead(graph)
    return changed


class _Fuser:
    """Fuses the ops of one block."""

    def __init__(self, graph: Graph, uses: dict[Value, int], options: Fuse) -> None:
        self.graph = graph
        self.uses = uses
        self.options = options
        self.place = {op: i for i, op in enumerate(graph.ops)}
        self.replaced: dict[Value, Value] = {}
        self.groups: dict[Op, set[Op]] = {}

    def run(self) -> bool:
        roots: dict[Op, Tree] = {}
        joined: set[Op] = set()
        for op in reversed(self.graph.ops):
            if op in joined or not op.has(ELEMENTWISE):
                continue
            group, tree = self._group(op)
            if tree is not None:
                roots[op] = tree
                joined |= group - {op}
                self.groups[op] = group
        kept = [op for op in self.graph.ops if op not in joined]
        self.graph.ops[:] = [new for op in kept for new in self._emit(op, roots.get(op))]
        replace_values(self.graph, self.replaced)
        return bool(self.replaced)

    # --- groups

    def _group(self, root: Op) -> tuple[set[Op], Tree | None]:
        """The elementwise ops that end in `root`, and the tree of its result."""
        group = {root}
        inner: dict[Value, int] = {}
        self._count(root, inner)
        best = self._tree(root, group)
        refused: set[Op] = set()
        while best is not None:
            op = self._next(root, inner, group, refused)
            if op is None:
                break
            tree = self._tree(root, group | {op})
            if tree is None or not self._fits(tree):
                refused.add(op)
                continue
            group.add(op)
            self._count(op, inner)
            best = tree
        return group, best

    def _fits(self, tree: Tree) -> bool:
        few = len(inputs_of(tree)) <= self.options.max_inputs
        return few and size_of(tree) <= self.options.max_ops

    def _count(self, op: Op, inner: dict[Value, int]) -> None:
        for value in op.operands():
            inner[value] = inner.get(value, 0) + 1

    def _next(
        self, root: Op, inner: dict[Value, int], group: set[Op], refused: set[Op]
    ) -> Op | None:
        """The last op before the group all of whose uses are inside it."""
        found: Op | None = None
        for value, count in inner.items():
            op = value.owner
            if op is None or op in group or op in refused or op not in self.place:
                continue
            joins = op.has(ELEMENTWISE) and op.ipu == root.ipu and self.uses[value] == count
            if not joins or value.shape != root.result.shape or isinstance(op, ew.Map):
                continue
            if found is None or self.place[op] > self.place[found]:
                found = op
        return found

    def _tree(self, root: Op, group: set[Op]) -> Tree | None:
        """The tree of root's result with the ops of the group inside it."""
        trees: dict[Value, Tree] = {}
        for op in sorted(group, key=self.place.__getitem__):
            tree = expression(op, trees)
            if tree is None:
                return None
            trees[op.result] = tree
            if size_of(tree) > self.options.max_ops:
                return None
        shape = broadcast_shapes(*(v.shape for v in inputs_of(trees[root.result])))
        return trees[root.result] if shape == root.result.shape else None

    # --- emission

    def _emit(self, op: Op, tree: Tree | None) -> list[Op]:
        """What stands in the place of an op: itself, or maps."""
        if tree is None or len(self.groups[op]) == 1:
            return [op]
        made: list[Op] = []
        for value in self._products(op, tree):
            part = _epilogue_part(tree, value)
            if part is None or part == tree:
                continue
            inputs = inputs_of(part)
            fused = ew.Map(inputs, text_of(part, inputs), value.dtype, loc=op.loc, ipu=op.ipu)
            made.append(fused)
            tree = _substitute(tree, part, fused.result)
        inputs = inputs_of(tree)
        fused = ew.Map(inputs, text_of(tree, inputs), op.result.dtype, loc=op.loc, ipu=op.ipu)
        fused.result.name = op.result.name
        self.replaced[op.result] = fused.result
        return [*made, fused]

    def _products(self, op: Op, tree: Tree) -> list[Value]:
        """Results of products that nothing but this tree uses, the last one first."""
        found = [v for v in inputs_of(tree) if self._is_open(v, op)]
        return sorted(found, key=lambda v: -self.place[cast("Op", v.owner)])

    def _is_open(self, value: Value, op: Op) -> bool:
        product = value.owner
        if not isinstance(product, _PRODUCTS) or product not in self.place:
            return False
        inside = sum(v is value for user in self.groups[op] for v in user.operands())
        same = value.shape == op.result.shape and product.ipu == op.ipu
        return same and self.uses.get(value, 0) == inside


_PRODUCTS = (nn.MatMul, nn.Conv, nn.ConvTranspose)


def _epilogue_part(tree: Tree, value: Value) -> Tree | None:
    """The largest part of a tree that the kernels of the product `value` compute at its end.

    It holds every appearance of `value`; at most one other tensor, of the product's type, and a
    constant bias.
    """
    part: Tree = tree
    while isinstance(part, Call) and value in inputs_of(part):
        if _is_epilogue(part, value):
            return part
        holders = [a for a in part.args if value in inputs_of(a)]
        if any(h != holders[0] for h in holders):
            return None
        part = holders[0]
    return None


def _is_epilogue(part: Tree, value: Value) -> bool:
    extra = tuple(v for v in inputs_of(part) if v is not value)
    text = text_of(part, (value, *extra))
    for index, other in enumerate(extra, 1):
        if not isinstance(other.owner, Constant) or other.type == value.type:
            continue
        folded = fold_bias(text, index)
        if folded is not None:
            text, extra = folded, tuple(v for v in extra if v is not other)
            break
    if len(extra) > 1 or any(v.type != value.type for v in extra):
        return False
    return text == "$0" or supports_epilogue(text)


def _substitute(tree: Tree, part: Tree, new: Value) -> Tree:
    if tree == part:
        return new
    if not isinstance(tree, Call):
        return tree
    return Call(tree.name, tuple(_substitute(a, part, new) for a in tree.args), tree.words)
