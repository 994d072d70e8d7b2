"""Names of poplin made of the planned product and convolution: operands, accumulation, biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program import Copy
from poplar_py.poplin.convolution import convolution
from poplar_py.poplin.gradients import add_scaled
from poplar_py.poplin.matmul import mat_mul
from poplar_py.popops.elementwise import map_in_place
from poplar_py.poputil.shapes import need_room
from poplar_py.types import DType, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.conv_params import ConvParams
    from poplar_py.poplin.params import ConvForm

__all__ = [
    "add_bias",
    "convolution_with_output",
    "linspace",
    "mat_mul_acc",
    "mat_mul_grouped",
    "mat_mul_grouped_acc",
    "mat_mul_grouped_with_output",
    "mat_mul_with_output",
    "meshgrid2d",
    "transpose_grouped_matrix",
    "triangular_mask",
    "weights_transpose_chans_flip_xy",
]


def _grouped(*operands: Tensor) -> None:
    for t in operands:
        if t.rank != 3:
            fail(ShapeError, f"a grouped matrix is [groups, rows, columns], not {list(t.shape)}")
    if len({t.shape[0] for t in operands}) != 1:
        fail(ShapeError, f"groups differ: {[t.shape[0] for t in operands]}")


def mat_mul_grouped(
    graph: Graph, a: Tensor, b: Tensor, prog: Sequence, name: str = "matmul"
) -> Tensor:
    """a [G, M, K] times b [G, K, N]: [G, M, N]. Raises ShapeError."""
    _grouped(a, b)
    return mat_mul(graph, a, b, prog, name)


def mat_mul_with_output(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, prog: Sequence, name: str = "matmul"
) -> None:
    """out = a b."""
    prog.add(Copy(mat_mul(graph, a, b, prog, name, out_dtype=out.dtype), out))


def mat_mul_grouped_with_output(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, prog: Sequence, name: str = "matmul"
) -> None:
    """out [G, M, N] = a b."""
    _grouped(a, b, out)
    mat_mul_with_output(graph, a, b, out, prog, name)


def mat_mul_acc(
    graph: Graph,
    c: Tensor,
    scale: float | Tensor,
    a: Tensor,
    b: Tensor,
    prog: Sequence,
    name: str = "matmul_acc",
) -> None:
    """c += scale * (a b), in place; `scale` is a number or a tensor of one element."""
    product = mat_mul(graph, a, b, prog, name, out_dtype=c.dtype)
    add_scaled(graph, c, product, scale, prog, f"{name}/add")


def mat_mul_grouped_acc(
    graph: Graph,
    c: Tensor,
    scale: float | Tensor,
    a: Tensor,
    b: Tensor,
    prog: Sequence,
    name: str = "matmul_acc",
) -> None:
    """c [G, M, N] += scale * (a b), in place."""
    _grouped(a, b, c)
    mat_mul_acc(graph, c, scale, a, b, prog, name)


def transpose_grouped_matrix(t: Tensor) -> Tensor:
    """[G, M, N] seen as [G, N, M]."""
    _grouped(t)
    return t.dim_shuffle((0, 2, 1))


def add_bias(
    graph: Graph, activations: Tensor, biases: Tensor, prog: Sequence, name: str = "bias"
) -> None:
    """activations [N, O, *spatial] += biases [O], in place. Raises ShapeError."""
    if activations.rank < 2 or tuple(biases.shape) != tuple(activations.shape[1:2]):
        fail(ShapeError, f"biases {list(biases.shape)} for {list(activations.shape)}")
    column = biases.reshape((biases.numel, *(1,) * (activations.rank - 2)))
    map_in_place(graph, "add($0,$1)", [activations, column], prog, name)


def convolution_with_output(
    graph: Graph,
    x: Tensor,
    w: Tensor,
    out: Tensor,
    params: ConvParams | ConvForm,
    prog: Sequence,
    name: str = "conv",
) -> None:
    """out [N, O, *out] = x convolved with w."""
    made = convolution(graph, x, w, None, params, prog, name, out_dtype=out.dtype)
    prog.add(Copy(made, out))


def weights_transpose_chans_flip_xy(w: Tensor, *, grouped: bool = False) -> Tensor:
    """Weights [O, C, *kernel] seen as those of the backward pass: [C, O, *flipped kernel].

    `grouped`: [groups, O, C, *kernel] seen as [groups, C, O, *flipped kernel].
    """
    first = int(grouped)
    for d in range(first + 2, w.rank):
        w = w.reverse(d)
    return w.dim_shuffle((*range(first), first + 1, first, *range(first + 2, w.rank)))


def linspace(
    graph: Graph, dtype: DType, left: float, right: float, count: int, name: str = "linspace"
) -> Tensor:
    """`count` evenly spaced constants from left to right, both included. Raises ShapeError."""
    if count < 0:
        fail(ShapeError, f"{count} numbers from {left} to {right}")
    need_room(graph, (count,))
    with np.errstate(over="ignore"):  # numbers that the type does not hold are infinite
        values = np.linspace(float(left), float(right), count).astype(dtype.numpy)
    return graph.add_constant(dtype, (count,), values, name, "linear")


def meshgrid2d(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x along columns and y along rows, both seen as [len(y), len(x)]."""
    n, m = x.numel, y.numel
    across = x.flatten().reshape((1, n)).broadcast(m, 0)
    return across, y.flatten().reshape((m, 1)).broadcast(n, 1)


def triangular_mask(
    graph: Graph, n: int, lower: bool = True, dtype: DType = f32, name: str = "mask"
) -> Tensor:
    """A constant [n, n] of ones on and below the diagonal (above it with lower=False).

    Raises ShapeError.
    """
    if not 0 <= n <= 1 << 16:
        fail(ShapeError, f"a mask of {n} rows", "from 0 to 65,536 rows")
    ones = np.ones((int(n), int(n)), dtype.numpy)
    values = np.tril(ones) if lower else np.triu(ones)
    return graph.add_constant(dtype, (n, n), values, name, "linear")
