"""The part of fuse that joins products of one operand: queries, keys and values of attention.

    %q = nn.matmul(%x, %wq) + %bq            %m = nn.matmul(%x, [%wq %wk %wv]) + [%bq %bk %bv]
    %k = nn.matmul(%x, %wk) + %bk      =>    %q = tensor.slice(%m) ...
    %v = nn.matmul(%x, %wv) + %bv            %k = ...

One product of three times the width takes one superstep instead of three, and its operand is sent
once. Slices are views. Only products of constant weights are joined, and only where nothing but a
bias follows elementwise: more would lose its place in the vertices of the product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from poplar_py.ir.core import ELEMENTWISE, Graph, Op, Value
from poplar_py.ir.rewrite import graphs_of, replace_values, users
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.ops.core import Constant

__all__ = ["join_siblings"]

_LANES = 16
"""Widths are multiples of it, so that slices end where blocks of the layout end."""


@dataclass(frozen=True)
class _Product:
    """A matmul by constant weights, and the addition of its bias (None: no bias)."""

    op: nn.MatMul
    weights: Constant
    add: ew.Add | None
    bias: Constant | None

    @property
    def result(self) -> Value:
        return self.op.result if self.add is None else self.add.result

    @property
    def width(self) -> int:
        return self.weights.value.shape[1]


def join_siblings(graph: Graph) -> bool:
    """Join products of one operand in the graph and its regions; whether anything changed."""
    used = users(graph)
    outputs = {v for part in graphs_of(graph) for v in part.outputs}
    replaced: dict[Value, Value] = {}
    for part in list(graphs_of(graph)):
        groups: dict[tuple[Value, int | None, bool], list[_Product]] = {}
        for op in part.ops:
            found = _product(op, used, outputs)
            if found is not None:
                key = (found.op.a, op.ipu, found.add is None)
                groups.setdefault(key, []).append(found)
        for products in groups.values():
            if len(products) > 1:
                _join(part, products, replaced)
    replace_values(graph, replaced)
    return bool(replaced)


def _product(op: Op, used: Mapping[Value, list[Op]], outputs: set[Value]) -> _Product | None:
    if not isinstance(op, nn.MatMul) or not isinstance(op.b.owner, Constant):
        return None
    weights = op.b.owner
    if weights.value.ndim != 2 or weights.value.shape[1] % _LANES or not any(weights.value.strides):
        return None
    add, bias = _bias(op, used.get(op.result, []), outputs)
    found = _Product(op, weights, add, bias)
    if found.result in outputs and add is None:
        return None
    elementwise = any(u.has(ELEMENTWISE) for u in used.get(found.result, []))
    return None if elementwise or op.a.rank < 2 else found


def _bias(
    op: nn.MatMul, uses: list[Op], outputs: set[Value]
) -> tuple[ew.Add, Constant] | tuple[None, None]:
    """The only use of a product, if that adds a constant [N]."""
    if len(uses) != 1 or op.result in outputs or not isinstance(uses[0], ew.Add):
        return None, None
    add = uses[0]
    other = add.b if add.a is op.result else add.a
    fits = other.shape == op.result.shape[-1:] and add.result.type == op.result.type
    if not fits or not isinstance(other.owner, Constant) or add.ipu != op.ipu:
        return None, None
    return add, other.owner


def _join(graph: Graph, products: list[_Product], replaced: dict[Value, Value]) -> None:
    """Put one product in the place of the first, and slices of it behind."""
    first = products[0].op
    made: list[Op] = []

    def emit(op: Op, name: str = "") -> Value:
        op.results[0].name = name
        made.append(op)
        return op.results[0]

    def at_first(cls: type[Op], *args: object, **kwargs: object) -> Op:
        return cls(*args, **kwargs, loc=first.loc, ipu=first.ipu)  # pyright: ignore[reportCallIssue]

    wide = np.concatenate([p.weights.value for p in products], axis=1)
    whole = emit(at_first(nn.MatMul, first.a, emit(at_first(Constant, wide))))
    biases = [p.bias.value for p in products if p.bias is not None]
    if biases:
        bias = emit(at_first(Constant, np.concatenate(biases)))
        whole = emit(at_first(ew.Add, whole, bias))
    begin = 0
    for product in products:
        starts = (0,) * (whole.rank - 1) + (begin,)
        sizes = (*whole.shape[:-1], product.width)
        part = at_first(tensor.Slice, whole, starts, sizes, (1,) * whole.rank)
        replaced[product.result] = emit(part, product.result.name)
        begin += product.width
    at = graph.ops.index(first)
    graph.ops[at:at] = made
