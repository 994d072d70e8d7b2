"""poplin: matrix products and solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from poplar_py import poplin
from poplar_py.poplin import Epilogue, FullyConnectedParams
from poplar_py.types import DType, f16, f32, i8, i32, u32
from tests.libraries.lab import Array, Case, Lab
from tests.libraries.popops_index_cases import whole

__all__ = ["CASES", "ELSEWHERE", "wide"]

Shape = tuple[int, ...]


def wide(x: Array) -> Array:
    return x.astype(np.float64)


def _size(lab: Lab, limit: int = 20) -> int:
    """A dim, now and then 1, 16 or one that is long."""
    return (1, 16, lab.pick(20, 40))[lab.pick(0, 2)] if lab.chance() else lab.pick(1, limit)


def _operands(lab: Lab, batch: Shape, dtype: DType | None = None) -> tuple[Array, Array]:
    """Whole numbers [*batch, M, K] and [*batch, K, N]."""
    m, k, n = _size(lab), _size(lab), _size(lab)
    if dtype is not None:
        low = 0 if dtype is u32 else -9
        return lab.values((*batch, m, k), low, 9, dtype), lab.values((*batch, k, n), low, 9, dtype)
    return whole(lab, (*batch, m, k)), whole(lab, (*batch, k, n))


# ---------------------------------------------------------------------- products
def _mat_mul(lab: Lab) -> None:
    for _ in range(2):
        a, b = _operands(lab, lab.shape(1, 2, 3) if lab.chance() else ())
        lab.expect(
            poplin.mat_mul(lab.graph, lab.put(a), lab.put(b), lab.prog), wide(a) @ b, exact=True
        )
    _broadcast_batches(lab)
    _with_epilogue(lab)
    _without_elements(lab)
    for dtype in (i8, i32, u32):
        a, b = _operands(lab, (), dtype)
        out = poplin.mat_mul(lab.graph, lab.put(a), lab.put(b), lab.prog)
        lab.expect(out, wide(a) @ b)


def _broadcast_batches(lab: Lab) -> None:
    """Batch dims of 1 and missing ones; a constant second operand; a result in f32."""
    m, k, n = _size(lab), _size(lab), _size(lab)
    a, b = whole(lab, (3, 1, m, k)), whole(lab, (2, k, n))
    out = poplin.mat_mul(lab.graph, lab.put(a), lab.put(b), lab.prog, out_dtype=f32)
    assert out.dtype is f32
    lab.expect(out, wide(a) @ b, exact=True)
    b = whole(lab, (k, n))
    lab.expect(poplin.mat_mul(lab.graph, lab.put(a), b, lab.prog), wide(a) @ b, exact=True)


def _with_epilogue(lab: Lab) -> None:
    """Bias, residual and activation; some tiles alone; little memory."""
    a, b = _operands(lab, ())
    bias, residual = whole(lab, b.shape[-1:]), whole(lab, (a.shape[0], b.shape[1]))
    more = lab.put(residual)
    for expr, f in EPILOGUES.items():
        epilogue = Epilogue(expr, (more,) if "$1" in expr else ())
        rhs: Any = b if lab.chance() else lab.put(b)
        given: Any = bias if lab.chance() else lab.put(bias)
        note: dict[str, Any] = {"available_memory_proportion": 0.1} if lab.chance() else {}
        if lab.chance():
            note["tiles"] = (lab.pick(0, 4), lab.pick(1, 8))
        out = poplin.mat_mul(
            lab.graph, lab.put(a), rhs, lab.prog, bias=given, epilogue=epilogue, **note
        )
        lab.expect(out, f(wide(a) @ b + bias, wide(residual)))


EPILOGUES: dict[str, Callable[[Array, Array], Array]] = {
    "$0": lambda x, _: x,
    "relu(add($0,$1))": lambda x, r: np.maximum(x + r, 0),
    "add(tanh($0),$1)": lambda x, r: np.tanh(x) + r,
    "mul($0,$1)": lambda x, r: x * r,
}


def _without_elements(lab: Lab) -> None:
    """Nothing to sum over gives zeros, no rows or columns give nothing."""
    for m, k, n in ((3, 0, 4), (0, 3, 4), (3, 4, 0)):
        a, b = whole(lab, (m, k)), whole(lab, (k, n))
        lab.expect(poplin.mat_mul(lab.graph, lab.put(a), lab.put(b), lab.prog), wide(a) @ b)


def _batch(lab: Lab, grouped: bool) -> Shape:
    return (lab.pick(1, 4),) if grouped else lab.shape(0, 2, 3)


def _grouped(lab: Lab) -> None:
    a, b = _operands(lab, _batch(lab, True))
    out = poplin.mat_mul_grouped(lab.graph, lab.put(a), lab.put(b), lab.prog)
    lab.expect(out, wide(a) @ b, exact=True)


def _with_output(grouped: bool) -> Case:
    f = poplin.mat_mul_grouped_with_output if grouped else poplin.mat_mul_with_output

    def case(lab: Lab) -> None:
        a, b = _operands(lab, _batch(lab, grouped))
        want = wide(a) @ b
        for out_type in (lab.dtype, f32):
            out = lab.put(lab.values(want.shape, dtype=out_type))
            f(lab.graph, lab.put(a), lab.put(b), out, lab.prog)
            lab.expect(out, want, exact=True)

    return case


def _acc(grouped: bool) -> Case:
    """The sum is a view; the scale a number, a tensor of its type or one of the other type."""
    f = poplin.mat_mul_grouped_acc if grouped else poplin.mat_mul_acc

    def case(lab: Lab) -> None:
        for scale_type in (None, lab.dtype, f32):
            a, b = _operands(lab, _batch(lab, grouped))
            c = whole(lab, (*a.shape[:-1], b.shape[-1]))
            out = lab.put(c)
            scale: Any = 0.5
            if scale_type is not None:
                scale = lab.put(np.full((1,) * lab.pick(0, 2), 0.5, scale_type.numpy))
            f(lab.graph, out, scale, lab.put(a), lab.put(b), lab.prog)
            lab.expect(out, c + 0.5 * (wide(a) @ b), exact=True)

    return case


def _created(side: str, grouped: bool) -> Case:
    """One operand or both where the product reads them."""
    make: Any = {
        ("lhs", False): poplin.create_mat_mul_input_lhs,
        ("rhs", False): poplin.create_mat_mul_input_rhs,
        ("lhs", True): poplin.create_mat_mul_grouped_input_lhs,
        ("rhs", True): poplin.create_mat_mul_grouped_input_rhs,
    }[side, grouped]

    def case(lab: Lab) -> None:
        for dtype in (None, i32):
            a, b = _operands(lab, _batch(lab, grouped), dtype)
            made = make(lab.graph, dtype or lab.dtype, a.shape, b.shape)
            x = lab.put(a, made) if side == "lhs" else lab.put(a)
            y = lab.put(b, made) if side == "rhs" else lab.put(b)
            lab.expect(poplin.mat_mul(lab.graph, x, y, lab.prog), wide(a) @ b, exact=True)

    return case


def _created_for_constant(lab: Lab) -> None:
    """A first operand for a constant second one; other sizes have no layout of their own."""
    rows, n = lab.shape(1, 2, 9), _size(lab)
    a, b = whole(lab, (*rows, 16 * lab.pick(1, 2))), whole(lab, (32, n))
    made = poplin.create_mat_mul_input(lab.graph, lab.dtype, a.shape, "x")
    assert made is not None
    b = b[: a.shape[-1]]
    lab.expect(poplin.mat_mul(lab.graph, lab.put(a, made), b, lab.prog), wide(a) @ b, exact=True)
    for dtype, shape in ((lab.dtype, (3, 17)), (i32, (3, 16)), (lab.dtype, (16,))):
        assert poplin.create_mat_mul_input(lab.graph, dtype, shape, "x") is None


def _pre_arranged(lab: Lab) -> None:
    a, b = _operands(lab, _batch(lab, False))
    held = poplin.pre_arrange_mat_mul_input_rhs(lab.graph, a.shape, lab.put(b), lab.prog)
    for factor in (1, 2):
        x = lab.put((a * factor).astype(a.dtype))
        lab.expect(poplin.mat_mul(lab.graph, x, held, lab.prog), factor * (wide(a) @ b), exact=True)


def _transpose_grouped(lab: Lab) -> None:
    x = lab.values(lab.shape(3, 3))
    lab.expect(poplin.transpose_grouped_matrix(lab.put(x)), x.swapaxes(1, 2), exact=True)


# ---------------------------------------------------------------------- layers
def _layer(lab: Lab) -> tuple[FullyConnectedParams, Array, Array, Array, Array]:
    """Parameters, x, w, y and biases of a grouped layer."""
    g, b, i, o = lab.pick(1, 3), _size(lab, 9), _size(lab, 9), _size(lab, 9)
    shapes = ((g, b, i), (g, i, o), (g, b, o), (g, o))
    x, w, y, bias = (whole(lab, shape) for shape in shapes)
    return FullyConnectedParams(g, b, i, o), x, w, y, bias


def _fully_connected(lab: Lab) -> None:
    params, x, w, _, bias = _layer(lab)
    given = lab.put(x), lab.put(w)
    out = poplin.fully_connected(lab.graph, *given, None, params, lab.prog)
    lab.expect(out, wide(x) @ w, exact=True)
    out = poplin.fully_connected(lab.graph, *given, lab.put(bias), params, lab.prog)
    lab.expect(out, wide(x) @ w + bias[:, None], exact=True)


def _fully_connected_backward(lab: Lab) -> None:
    params, _, w, y, _ = _layer(lab)
    out = poplin.fully_connected_backward(lab.graph, lab.put(y), lab.put(w), params, lab.prog)
    lab.expect(out, wide(y) @ w.swapaxes(1, 2), exact=True)


def _fully_connected_update(lab: Lab) -> None:
    params, x, w, y, _ = _layer(lab)
    held = lab.put(w)
    poplin.fully_connected_weight_update(
        lab.graph, lab.put(y), held, lab.put(x), -0.5, params, lab.prog
    )
    lab.expect(held, w - 0.5 * (wide(x).swapaxes(1, 2) @ y), exact=True)


# ---------------------------------------------------------------------- solvers
def _well_conditioned(lab: Lab, shape: Shape) -> Array:
    """Square matrices with a heavy diagonal."""
    n = shape[-1]
    return (lab.values(shape, -1, 1) / n + 2 * np.eye(n)).astype(lab.dtype.numpy)


def _matrices(lab: Lab) -> tuple[Shape, int]:
    """A shape [.., N, N] and a block size that divides it, or not."""
    n = lab.pick(1, 20)
    return (*lab.shape(0, 2, 3), n, n), (3, 8, 64)[lab.pick(0, 2)]


def _each(f: Callable[[Array], Array], a: Array) -> Array:
    """`f` of every matrix."""
    flat = wide(a).reshape((-1, *a.shape[-2:]))
    return np.stack([f(m) for m in flat]).reshape(a.shape)


def _cholesky(lab: Lab) -> None:
    for lower in (True, False):
        shape, block = _matrices(lab)
        a = _well_conditioned(lab, shape)
        a = ((a + a.swapaxes(-1, -2)) / 2).astype(a.dtype)
        other = np.triu(lab.values(shape), 1) if lower else np.tril(lab.values(shape), -1)
        given = (np.tril(a) if lower else np.triu(a)) + other  # the other triangle is not read
        out = poplin.cholesky(
            lab.graph, lab.put(given.astype(a.dtype)), lower, lab.prog, block_size=block
        )
        want = _each(lambda m, lower=lower: scipy.linalg.cholesky(m, lower=lower), a)
        lab.expect(out, want)


def _triangular_solve(lab: Lab) -> None:
    for _ in range(2):
        left, lower, unit = lab.chance(), lab.chance(), lab.chance()
        shape, block = _matrices(lab)
        a, other = _well_conditioned(lab, shape), lab.pick(1, 9)
        size = (*shape[:-1], other) if left else (*shape[:-2], other, shape[-1])
        b = lab.values(size)
        out = poplin.triangular_solve(
            lab.graph, lab.put(a), lab.put(b), left, lower, unit, lab.prog, block_size=block
        )
        used = np.tril(wide(a)) if lower else np.triu(wide(a))
        if unit:
            used = used - used * np.eye(shape[-1]) + np.eye(shape[-1])
        inverse = np.linalg.inv(used)
        lab.expect(out, inverse @ b if left else wide(b) @ inverse)


def _lu(lab: Lab) -> None:
    shape, block = _matrices(lab)
    a = _well_conditioned(lab, shape)
    lower, upper = poplin.lu_factorization(lab.graph, lab.put(a), lab.prog, block_size=block)
    lab.expect(lower, _each(lambda m: _eliminate(m)[0], a))
    lab.expect(upper, _each(lambda m: _eliminate(m)[1], a))


def _eliminate(m: Array) -> tuple[Array, Array]:
    lower, upper = np.eye(len(m)), m.copy()
    for k in range(len(m)):
        lower[k + 1 :, k] = upper[k + 1 :, k] / upper[k, k]
        upper[k + 1 :] -= lower[k + 1 :, k : k + 1] * upper[k]
    return lower, upper


def _qr(lab: Lab) -> None:
    """Up to the signs of Q's columns: the product, Q's orthogonality and R's triangle."""
    m, n = lab.pick(1, 9), lab.pick(1, 9)
    a = lab.values((m, n))
    q, r = poplin.qr_factorization(lab.graph, lab.put(a), lab.prog)
    tolerance = 1e-2 if lab.dtype is f16 else 1e-5
    found: list[Array] = []

    def orthogonal(got: Array) -> None:
        found.append(wide(got))
        np.testing.assert_allclose(wide(got) @ wide(got).T, np.eye(m), rtol=0, atol=tolerance)

    def triangle(got: Array) -> None:
        np.testing.assert_array_equal(np.tril(got, -1), 0)
        np.testing.assert_allclose(found[0] @ got, a, rtol=0, atol=5 * tolerance)

    assert (q.shape, r.shape) == ((m, m), (m, n))
    lab.check(q, orthogonal)
    lab.check(r, triangle)


def _triangular_mask(lab: Lab) -> None:
    for lower in (True, False):
        n = lab.pick(1, 12)
        ones = np.ones((n, n))
        made = poplin.triangular_mask(lab.graph, n, lower, lab.dtype)
        lab.expect(made, np.tril(ones) if lower else np.triu(ones), exact=True)


def _linspace(lab: Lab) -> None:
    for count in (1, 2, lab.pick(3, 40)):
        left, right = lab.pick(-9, 0), lab.pick(1, 9)
        made = poplin.linspace(lab.graph, lab.dtype, left, right, count)
        lab.expect(made, np.linspace(left, right, count))


def _meshgrid(lab: Lab) -> None:
    x, y = lab.values(lab.shape(1, 1)), lab.values(lab.shape(1, 1))
    across, down = poplin.meshgrid2d(lab.put(x), lab.put(y))
    want = np.meshgrid(x, y)
    lab.expect(across, want[0], exact=True)
    lab.expect(down, want[1], exact=True)


CASES: dict[str, Case] = {
    "mat_mul": _mat_mul,
    "mat_mul_grouped": _grouped,
    "mat_mul_with_output": _with_output(False),
    "mat_mul_grouped_with_output": _with_output(True),
    "mat_mul_acc": _acc(False),
    "mat_mul_grouped_acc": _acc(True),
    "create_mat_mul_input": _created_for_constant,
    "create_mat_mul_input_lhs": _created("lhs", False),
    "create_mat_mul_input_rhs": _created("rhs", False),
    "create_mat_mul_grouped_input_lhs": _created("lhs", True),
    "create_mat_mul_grouped_input_rhs": _created("rhs", True),
    "pre_arrange_mat_mul_input_rhs": _pre_arranged,
    "transpose_grouped_matrix": _transpose_grouped,
    "fully_connected": _fully_connected,
    "fully_connected_backward": _fully_connected_backward,
    "fully_connected_weight_update": _fully_connected_update,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "lu_factorization": _lu,
    "qr_factorization": _qr,
    "triangular_mask": _triangular_mask,
    "linspace": _linspace,
    "meshgrid2d": _meshgrid,
}

PLAN = "says what a product costs and makes no tensor; tests/poplin/"
ELSEWHERE: dict[str, str] = {
    "get_fwd_flops": f"{PLAN}test_flops.py::test_gradients_cost_what_the_forward_pass_does",
    "get_bwd_flops": f"{PLAN}test_flops.py::test_gradients_cost_what_the_forward_pass_does",
    "get_wu_flops": f"{PLAN}test_flops.py::test_gradients_cost_what_the_forward_pass_does",
    "get_fwd_perfect_cycle_count": f"{PLAN}test_flops.py::test_perfect_cycles_by_type",
    "get_bwd_perfect_cycle_count": f"{PLAN}test_flops.py::test_perfect_cycles_by_type",
    "get_wu_perfect_cycle_count": f"{PLAN}test_flops.py::test_perfect_cycles_by_type",
    "mat_mul_report_plan": f"{PLAN}test_multi.py::test_planning_cache",
    "plan_report": f"{PLAN}test_plan.py::test_a_graph_reports_its_plans",
    "plans": f"{PLAN}test_plan.py::test_a_graph_reports_its_plans",
    "preplan": f"{PLAN}test_multi.py::test_planning_cache",
    "preplan_mat_muls": f"{PLAN}test_multi.py::test_planning_cache",
    "report_plan_estimated_costs": f"{PLAN}test_multi.py::test_reports_of_convolutions",
    "report_plan_info": f"{PLAN}test_multi.py::test_reports_of_convolutions",
    "supports_epilogue": f"{PLAN}test_plan.py::test_inline_forms",
}
