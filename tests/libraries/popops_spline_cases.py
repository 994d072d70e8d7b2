"""popops: B-spline bases, by the recursion of Cox and de Boor, and features weighted by them."""

from __future__ import annotations

from itertools import product

import numpy as np

from poplar_py import popops
from poplar_py.types import i32, u8
from tests.libraries.lab import Array, Case, Lab

__all__ = ["CASES"]


def spline(x: float, degree: int) -> float:
    """The B-spline of the degree over the knots 0, 1, .., degree + 1."""
    if degree == 0:
        return float(0 <= x < 1)
    return (x * spline(x, degree - 1) + (degree + 1 - x) * spline(x - 1, degree - 1)) / degree


def bases(x: Array, kernel: Array, opened: Array, degree: int) -> tuple[Array, Array]:
    """Coefficients and weight numbers of every edge of x [edges, dims]."""
    pieces = list(product(range(degree + 1), repeat=x.shape[1]))
    basis, where = (np.zeros((len(x), len(pieces))) for _ in range(2))
    strides = np.cumprod([1, *kernel[:-1]])
    at = x.astype(np.float64) * (kernel - degree * (opened != 0))
    low = np.floor(at)
    for s, piece in enumerate(pieces):
        k = np.array(piece[::-1])  # dim 0 changes fastest
        parts = np.vectorize(spline, otypes=[np.float64])(at - low + degree - k, degree)
        basis[:, s] = parts.prod(1)
        where[:, s] = ((low + k) % kernel * strides).sum(1)
    return basis, where


def _basis(lab: Lab) -> None:
    for degree in (1, 2, 3):
        edges, dims = lab.pick(0, 9), lab.pick(1, 2)
        kernel = lab.values((dims,), degree + 1, 6, i32)
        opened = lab.values((dims,), 0, 1, u8)
        x = np.round(lab.values((edges, dims), 0, 1) * 64).astype(lab.dtype.numpy) / 65
        x = x.astype(lab.dtype.numpy)
        want, where = bases(x, kernel, opened, degree)
        basis, index = lab.put(np.zeros_like(want, lab.dtype.numpy)), lab.variable(i32, where.shape)
        popops.spline_basis(
            lab.graph,
            *(lab.put(a) for a in (x, kernel, opened)),
            basis,
            index,
            degree,
            lab.prog,
        )
        lab.expect(basis, want)
        lab.expect(index, where)


def _weighting(lab: Lab) -> None:
    edges, inputs, outputs = lab.pick(0, 12), lab.pick(1, 6), lab.pick(1, 9)
    kernel, splines = lab.pick(1, 7), lab.pick(1, 4)
    x, w = lab.values((edges, inputs)), lab.values((kernel, inputs, outputs))
    basis, where = (
        lab.values((edges, splines), 0, 1),
        lab.values((edges, splines), 0, kernel - 1, i32),
    )
    tensors = [lab.put(a) for a in (x, w, basis, where)]
    out = popops.spline_weighting(lab.graph, *tensors, lab.prog)
    wide = [a.astype(np.float64) for a in (x, w[where], basis)]
    lab.expect(out, np.einsum("ei,esio,es->eo", *wide))


CASES: dict[str, Case] = {"spline_basis": _basis, "spline_weighting": _weighting}
