"""ONNX matrix products: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn, tensor
from poplar_py.types import i8, i16, i32, u8, u16

__all__ = ["einsum", "product"]


def product(b: Builder, a: Val, c: Val) -> Val:
    """Matrix product of any element type."""
    if a.dtype.is_float:
        return b.matmul(a, c)
    if a.dtype in (i8, u8, i16, u16, i32):
        out = b.emit(nn.MatMulInteger, _narrow(b, a), _narrow(b, c))
        return b.cast(out, a.dtype)
    return _wide_product(b, a, c)


def _narrow(b: Builder, x: Val) -> Val:
    return x if x.dtype in (i8, u8, i32) else b.cast(x, i32)


def _wide_product(b: Builder, a: Val, c: Val) -> Val:
    """32-bit unsigned and 64-bit products: multiply and sum, exactly."""
    a2 = a if a.rank > 1 else b.unsqueeze(a, 0)
    c2 = c if c.rank > 1 else b.unsqueeze(c, 1)
    if a2.shape[-1] != c2.shape[-2]:
        raise ShapeError(f"inner sizes differ: {a.type} and {c.type}", b.loc)
    out = b.sum(b.unsqueeze(a2, -1) * b.unsqueeze(c2, -3), (-2,))
    shape = list(out.shape)
    if a.rank == 1:
        del shape[-2]
    if c.rank == 1:
        del shape[-1]
    return b.reshape(out, shape)


@imports("MatMul")
def matmul(b: Builder, n: Node) -> Val:
    return product(b, n[0], n[1])


@imports("Gemm")
def gemm(b: Builder, n: Node) -> Val:
    a, c = n[0], n[1]
    if a.rank != 2 or c.rank != 2:
        raise ShapeError(f"operands {a.type} and {c.type} are no matrices", n.loc)
    a = b.swap(a, 0, 1) if n.int("transA") else a
    c = b.swap(c, 0, 1) if n.int("transB") else c
    alpha, beta = n.float("alpha", 1.0), n.float("beta", 1.0)
    out = product(b, a, c)
    out = out if alpha == 1.0 else out * alpha
    if not n.has(2) or beta == 0.0:
        return out
    return out + (n[2] if beta == 1.0 else n[2] * beta)


@imports("Einsum")
def einsum_rule(b: Builder, n: Node) -> Val:
    return einsum(b, n.str("equation"), n.tensors())


def einsum(b: Builder, equation: str, operands: Sequence[Val]) -> Val:
    """Einstein's summation by transposes, broadcast products, matrix products and sums."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands) or not operands:
        raise InputError(f"{len(operands)} operands for {equation!r}", b.loc)
    labels = [_labels(term, x) for term, x in zip(terms, operands, strict=True)]
    if arrow:
        out = _expand_dots(right, max((_dots(t, x) for t, x in zip(terms, operands, strict=True))))
    else:
        out = _implicit(labels)
    values = list(operands)
    for i, x in enumerate(values):
        values[i], labels[i] = _diagonals(b, x, labels[i])
    value, names = values[0], labels[0]
    for i in range(1, len(values)):
        later = {c for rest in labels[i + 1 :] for c in rest} | set(out)
        value, names = _pair(b, value, names, values[i], labels[i], later)
    drop = [i for i, c in enumerate(names) if c not in out]
    if drop:
        value = b.sum(value, drop)
        names = [c for c in names if c in out]
    if sorted(names) != sorted(out):
        raise InputError(f"the result of {equation!r} names an unknown index", b.loc)
    return b.transpose(value, [names.index(c) for c in out])


def _dots(term: str, x: Val) -> int:
    return x.rank - len(term.replace("...", "")) if "..." in term else 0


def _expand_dots(term: str, count: int) -> list[str]:
    head, dots, tail = term.partition("...")
    middle = [f"#{i}" for i in range(count, 0, -1)] if dots else []
    return [*head, *middle, *tail]


def _labels(term: str, x: Val) -> list[str]:
    found = _expand_dots(term, _dots(term, x))
    if len(found) != x.rank or not all(c.isalpha() or c[0] == "#" for c in found):
        raise InputError(f"indices {term!r} do not fit {x.type}", x.builder.loc)
    return found


def _implicit(labels: list[list[str]]) -> list[str]:
    every = [c for term in labels for c in term]
    dots = sorted({c for c in every if c[0] == "#"}, reverse=True)
    return dots + sorted({c for c in every if c[0] != "#" and every.count(c) == 1})


def _diagonals(b: Builder, x: Val, names: list[str]) -> tuple[Val, list[str]]:
    """Take the diagonal for every index that occurs twice."""
    for c in dict.fromkeys(names):
        while names.count(c) > 1:
            i = names.index(c)
            j = names.index(c, i + 1)
            size = x.shape[i]
            rest = [k for k in range(x.rank) if k not in (i, j)]
            flat = b.transpose(x, (i, j, *rest))
            flat = b.reshape(flat, (size * size, *(x.shape[k] for k in rest)))
            x = b.slice(flat, 0, 0, size, size + 1) if size else flat
            names = [c, *(names[k] for k in rest)]
    return x, names


def _pair(
    b: Builder, x: Val, xn: list[str], y: Val, yn: list[str], later: set[str]
) -> tuple[Val, list[str]]:
    """Product of two operands, summed over the indices that only they have."""
    x, xn = _sum_out(b, x, xn, set(yn) | later)
    y, yn = _sum_out(b, y, yn, set(xn) | later)
    shared = [c for c in xn if c in yn]
    summed = [c for c in shared if c not in later]
    batch = [c for c in shared if c in later]
    rows, cols = [c for c in xn if c not in yn], [c for c in yn if c not in xn]
    sizes: dict[str, int] = {}
    for c, d in [*zip(xn, x.shape, strict=True), *zip(yn, y.shape, strict=True)]:
        sizes[c] = d if sizes.get(c, 1) == 1 else sizes[c]
    order_x, order_y = batch + rows + summed, batch + summed + cols
    x = b.expand(b.transpose(x, [xn.index(c) for c in order_x]), [sizes[c] for c in order_x])
    y = b.expand(b.transpose(y, [yn.index(c) for c in order_y]), [sizes[c] for c in order_y])
    if not summed:
        left = b.reshape(x, [*x.shape, *(1 for _ in cols)])
        mid = [sizes[c] for c in batch] + [1] * len(rows) + [sizes[c] for c in cols]
        return left * b.reshape(y, mid), batch + rows + cols
    head = [sizes[c] for c in batch]
    m, k, p = (math.prod(sizes[c] for c in part) for part in (rows, summed, cols))
    out = product(b, b.reshape(x, [*head, m, k]), b.reshape(y, [*head, k, p]))
    names = batch + rows + cols
    return b.reshape(out, [sizes[c] for c in names]), names


def _sum_out(b: Builder, x: Val, names: list[str], keep: set[str]) -> tuple[Val, list[str]]:
    drop = [i for i, c in enumerate(names) if c not in keep]
    return (b.sum(x, drop), [c for c in names if c in keep]) if drop else (x, names)


@imports("Det")
def det(b: Builder, n: Node) -> Val:
    """Determinant: LU with row exchanges, unrolled."""
    x = n[0]
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] > 64:
        raise ShapeError(f"{x.type} is not square (or larger than 64)", n.loc)
    size = x.shape[-1]
    batch = x.shape[:-2]
    rows = b.reshape(x, (math.prod(batch), size, size))
    result = b.const(np.ones((math.prod(batch), 1)), x.dtype)
    for k in range(size):
        column = b.pick(b.slice(rows, 2, 0, 1), 2, 0)
        pivot = b.unsqueeze(b.emit(tensor.ArgMax, b.emit(ew.Abs, column), axis=1), 1)
        left = size - k
        hit = b.equal(b.iota(left), pivot)  # [batch, left]
        weight = b.unsqueeze(b.cast(hit, x.dtype), 2)
        chosen = b.sum(rows * weight, (1,))  # the pivot row
        first = b.pick(rows, 1, 0)
        swapped = b.select(b.unsqueeze(hit, 2), b.unsqueeze(first, 1), rows)
        value = b.slice(chosen, 1, 0, 1)
        moved = b.emit(ew.Greater, pivot, b.const(0, i32))
        result = result * b.select(moved, -value, value)
        if left == 1:
            break
        safe = b.select(b.equal(value, 0), 1.0, value)
        below = b.slice(swapped, 1, 1, left - 1)
        factor = b.slice(below, 2, 0, 1) / b.unsqueeze(safe, 2)
        rows = b.slice(below - factor * b.unsqueeze(chosen, 1), 2, 1, left - 1)
    return b.reshape(result, batch)
