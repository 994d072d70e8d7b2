"""Dense solvers: Cholesky, triangular systems, LU, QR.

All but QR go block by block: a vertex does a diagonal block, vertices on many tiles the panel
beside it, and a product updates the rest. Matrices are [.., N, N]; f16 is worked on in f32.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError, ShapeError, TypeMismatch
from poplar_py.poplar import Edges
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program import Copy, Execute, Sequence
from poplar_py.poplin.matmul import mat_mul
from poplar_py.popops.control import counted_loop
from poplar_py.popops.dynamic import dynamic_slice
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place
from poplar_py.popops.fill import iota
from poplar_py.popops.reduction import reduce
from poplar_py.poputil.boxes import grid_boxes
from poplar_py.poputil.layout import fresh
from poplar_py.poputil.place import place_near
from poplar_py.types import bool_, f16, f32, f64, i32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.types import DType

__all__ = ["cholesky", "lu_factorization", "qr_factorization", "triangular_solve"]

BLOCK = 64
"""Rows of a diagonal block."""


# ---------------------------------------------------------------------- interface
def cholesky(
    graph: Graph,
    a: Tensor,
    lower: bool,
    prog: Sequence,
    name: str = "cholesky",
    *,
    block_size: int = BLOCK,
) -> Tensor:
    """L with a = L L^T, or with `lower` false U with a = U^T U; only that triangle of a is read.

    a [.., N, N] is symmetric; where it is not positive definite the result holds NaN. Raises
    OptionError or ShapeError.
    """
    n = _square(a, block_size)
    w = _working(graph, a if lower else _turned(a), prog, name)
    for k in range(0, n, block_size):
        e = min(k + block_size, n)
        diagonal = _part(w, k, e, k, e)
        _factor(graph, "CholeskyBlock", diagonal, prog, f"{name}/diagonal")
        if e == n:
            break
        panel, rest = _part(w, e, n, k, e), _part(w, e, n, e, n)
        _solve(graph, diagonal, panel, prog, f"{name}/panel", by_rows=True)
        product = mat_mul(graph, panel, _turned(panel), prog, f"{name}/product")
        map_in_place(graph, "sub($0,$1)", [rest, product], prog, f"{name}/update")
    out = _triangle(graph, w, a.dtype, np.tril(np.ones((n, n), np.bool_)), 0.0, prog, name)
    out = out.reshape(a.shape)
    return out if lower else _turned(out)


def triangular_solve(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    prog: Sequence,
    name: str = "triangular_solve",
    *,
    block_size: int = BLOCK,
) -> Tensor:
    """x with a x = b, or x a = b with `left_side` false; a [.., N, N] is lower or upper triangular.

    The other triangle of a is not read, its diagonal neither with `unit_diagonal`. Raises
    OptionError or ShapeError.
    """
    n = _square(a, block_size)
    if not left_side:  # a^T x^T = b^T
        a, b, lower = _turned(a), _turned(b), not lower
    if b.rank != a.rank or b.shape[:-1] != a.shape[:-1]:
        fail(ShapeError, f"a {tuple(a.shape)} and b {tuple(b.shape)} do not fit")
    if not lower:  # from the last row to the first
        a, b = a.reverse(a.rank - 1).reverse(a.rank - 2), b.reverse(b.rank - 2)
    w = _working(graph, a, prog, f"{name}/matrix")
    x = _working(graph, b, prog, name)
    for k in range(0, n, block_size):
        e = min(k + block_size, n)
        done = x.slice(k, e, 1)
        diagonal = _part(w, k, e, k, e)
        _solve(graph, diagonal, done, prog, f"{name}/block", unit=unit_diagonal)
        if e < n:
            product = mat_mul(graph, _part(w, e, n, k, e), done, prog, f"{name}/product")
            rest = x.slice(e, n, 1)
            map_in_place(graph, "sub($0,$1)", [rest, product], prog, f"{name}/update")
    if b.dtype is not x.dtype:
        x = map_expr(graph, f"cast($0,{b.dtype.name})", [x], prog, f"{name}/cast", b.dtype)
    x = x.reshape(b.shape)
    x = x if lower else x.reverse(x.rank - 2)
    return x if left_side else _turned(x)


def lu_factorization(
    graph: Graph, a: Tensor, prog: Sequence, name: str = "lu", *, block_size: int = BLOCK
) -> tuple[Tensor, Tensor]:
    """(L, U) with a = L U, L with ones on its diagonal; rows are not exchanged.

    a [.., N, N] needs leading minors that are not 0. Raises OptionError or ShapeError.
    """
    n = _square(a, block_size)
    w = _working(graph, a, prog, name)
    for k in range(0, n, block_size):
        e = min(k + block_size, n)
        diagonal = _part(w, k, e, k, e)
        _factor(graph, "LUBlock", diagonal, prog, f"{name}/diagonal")
        if e == n:
            break
        column, row = _part(w, e, n, k, e), _part(w, k, e, e, n)
        _solve(graph, diagonal, row, prog, f"{name}/row", unit=True)
        _solve(graph, diagonal, column, prog, f"{name}/column", by_rows=True, turned=True)
        product = mat_mul(graph, column, row, prog, f"{name}/product")
        rest = _part(w, e, n, e, n)
        map_in_place(graph, "sub($0,$1)", [rest, product], prog, f"{name}/update")
    below = np.tril(np.ones((n, n), np.bool_), -1)
    lower = _triangle(graph, w, a.dtype, below, 1.0, prog, f"{name}/l")
    upper = _triangle(graph, w, a.dtype, ~below, 0.0, prog, f"{name}/u")
    return lower.reshape(a.shape), upper.reshape(a.shape)


def qr_factorization(
    graph: Graph, a: Tensor, prog: Sequence, name: str = "qr"
) -> tuple[Tensor, Tensor]:
    """(Q [M, M], R [M, N]) with a [M, N] = Q R, Q orthogonal, R zero below its diagonal.

    Householder reflections, one a turn of a loop. Raises ShapeError.
    """
    if a.rank != 2 or 0 in a.shape:
        fail(ShapeError, f"a matrix, not {tuple(a.shape)}")
    m, n = a.shape
    r = _working(graph, a, prog, f"{name}/r").reshape((m, n))
    q = fresh(graph, r.dtype, (m, m), f"{name}/q")
    one = graph.add_constant(r.dtype, (m, m), np.eye(m, dtype=r.dtype.numpy), mapping="linear")
    prog.add(Copy(one, q))
    rows = iota(graph, m, i32, 0, f"{name}/rows").reshape((m, 1))
    turns = min(m - 1, n)

    def turn(j: Tensor) -> Sequence:
        body = Sequence()
        _reflect(graph, r, q, rows, j, body, name)
        return body

    if turns:
        prog.add(counted_loop(graph, turns, turn, f"{name}/loop"))
    keep = np.triu(np.ones((m, n), np.bool_))
    upper = _triangle(graph, r.reshape((1, m, n)), a.dtype, keep, 0.0, prog, f"{name}/r")
    if a.dtype is not q.dtype:
        q = map_expr(graph, f"cast($0,{a.dtype.name})", [q], prog, f"{name}/cast", a.dtype)
    return q, upper.reshape((m, n))


def _reflect(
    graph: Graph, r: Tensor, q: Tensor, rows: Tensor, j: Tensor, prog: Sequence, name: str
) -> None:
    """r = H r and q = q H, with H the reflection that clears column j of r below row j."""
    dtype, one = r.dtype, (1, 1)
    at = j.reshape(one)
    column = dynamic_slice(graph, r, j, 1, 1, prog, f"{name}/column")
    text = "select(less($1,$2),c(0),$0)"
    x = map_expr(graph, text, [column, rows, at], prog, f"{name}/below", dtype)
    text = "select(equal($1,$2),$0,c(0))"
    first = map_expr(graph, text, [column, rows, at], prog, f"{name}/first", dtype)
    head = reduce(graph, first, (0, 1), "sum", prog, f"{name}/head").reshape(one)
    square = reduce(graph, x, (0, 1), "square_sum", prog, f"{name}/norm").reshape(one)
    end = "select(less($1,c(0)),neg(sqrt($2)),sqrt($2))"
    text = f"select(equal($3,$4),add($0,{end}),$0)"
    v = map_expr(graph, text, [x, head, square, rows, at], prog, f"{name}/v", dtype)
    length = reduce(graph, v, (0, 1), "square_sum", prog, f"{name}/length").reshape(one)
    text = "select(equal($0,c(0)),c(0),div(c(2),$0))"
    factor = map_expr(graph, text, [length], prog, f"{name}/factor", dtype)
    across = v.dim_shuffle((1, 0))
    row = mat_mul(graph, across, r, prog, f"{name}/row")
    text = "sub($0,mul(mul($1,$2),$3))"
    map_in_place(graph, text, [r, factor, v, row], prog, f"{name}/r")
    side = mat_mul(graph, q, v, prog, f"{name}/side")
    map_in_place(graph, text, [q, factor, side, across], prog, f"{name}/q")


# ---------------------------------------------------------------------- parts
def _square(a: Tensor, block_size: int) -> int:
    if a.rank < 2 or a.shape[-1] != a.shape[-2] or 0 in a.shape:
        fail(ShapeError, f"square matrices, not {tuple(a.shape)}")
    if block_size < 1:
        fail(OptionError, f"blocks of {block_size} rows", "at least 1")
    return a.shape[-1]


def _turned(t: Tensor) -> Tensor:
    """The last two dims exchanged."""
    return t.dim_shuffle((*range(t.rank - 2), t.rank - 1, t.rank - 2))


def _working(graph: Graph, t: Tensor, prog: Sequence, name: str) -> Tensor:
    """A copy [batch, rows, columns] of t in f32 or f64."""
    if t.dtype not in (f16, f32, f64):
        fail(TypeMismatch, f"solvers take f16, f32 and f64, not {t.dtype}")
    shape = (prod(t.shape[:-2]), *t.shape[-2:])
    if t.dtype is f16:
        t = map_expr(graph, "cast($0,f32)", [t], prog, f"{name}/wide", f32)
    out = fresh(graph, t.dtype, shape, name)
    prog.add(Copy(t.reshape(shape), out))
    return out


def _part(w: Tensor, top: int, bottom: int, left: int, right: int) -> Tensor:
    return w.slice(top, bottom, 1).slice(left, right, 2)


def _triangle(
    graph: Graph,
    w: Tensor,
    dtype: DType,
    keep: npt.NDArray[np.bool_],
    diagonal: float,
    prog: Sequence,
    name: str,
) -> Tensor:
    """w [batch, M, N] where `keep`, elsewhere 0, on the diagonal of the rest `diagonal`."""
    mask = graph.add_constant(bool_, keep.shape, keep, f"{name}/mask", "linear")
    other = (np.eye(keep.shape[0], keep.shape[1]) * diagonal).astype(w.dtype.numpy)
    rest = graph.add_constant(w.dtype, keep.shape, other, f"{name}/rest", "linear")
    text = f"cast(select($1,$0,$2),{dtype.name})"
    return map_expr(graph, text, [w, mask, rest], prog, name, dtype)


def _factor(graph: Graph, kind: str, block: Tensor, prog: Sequence, name: str) -> None:
    """One vertex a matrix of block [batch, n, n], in place."""
    batch, n, _ = block.shape
    lo, size = grid_boxes(tuple(block.shape), (1, n, n))
    tile = place_near(graph, block.flatten(), np.arange(batch, dtype=np.int64) * n * n)
    cs = graph.add_compute_set(name)
    edges = {"a": Edges.boxes(block, lo, size)}
    codelet = f"poplin::{kind}<{block.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, {"n": n}, name=name)
    prog.add(Execute(cs))


def _solve(
    graph: Graph,
    block: Tensor,
    x: Tensor,
    prog: Sequence,
    name: str,
    *,
    unit: bool = False,
    by_rows: bool = False,
    turned: bool = False,
) -> None:
    """block y = x for x [batch, n, columns], y over x; vertices take some columns each.

    `by_rows`: x [batch, rows, n], and each row is a right side. `turned`: block is transposed.
    """
    batch, n, _ = block.shape
    count = x.shape[1] if by_rows else x.shape[2]
    each = max(1, -(-batch * count // graph.num_tiles))
    step = (1, each, n) if by_rows else (1, n, each)
    lo, size = grid_boxes(tuple(x.shape), step)
    cols = size[:, 1] if by_rows else size[:, 2]
    matrix = np.stack([lo[:, 0], np.zeros(len(lo), np.int64), np.zeros(len(lo), np.int64)], 1)
    whole = np.tile(np.array([1, n, n]), (len(lo), 1))
    at = (lo[:, 0] * x.shape[1] + lo[:, 1]) * x.shape[2] + lo[:, 2]
    tile = place_near(graph, x.flatten(), at)
    edges = {"x": Edges.boxes(x, lo, size), "l": Edges.boxes(block, matrix, whole)}
    state = {
        "n": n,
        "cols": cols.astype(np.int32),
        "l_row": 1 if turned else n,
        "l_col": n if turned else 1,
        "x_row": np.ones(len(lo), np.int32) if by_rows else cols.astype(np.int32),
        "x_col": n if by_rows else 1,
        "unit": int(unit),
    }
    cs = graph.add_compute_set(name)
    codelet = f"poplin::SolveBlock<{x.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    prog.add(Execute(cs))
