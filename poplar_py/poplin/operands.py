"""Operands of products: tensors or arrays, result types, epilogues as steps of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.poplar.faults import fail
from poplar_py.poplin.epilogue import Epilogue, Inline, inline_form
from poplar_py.types import DType, dtype_of, i32, i64, u32, u64

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

    Operand = Tensor | npt.NDArray[Any]

__all__ = [
    "as_tensor",
    "check_bias",
    "finish",
    "operand_dtype",
    "result_dtype",
    "split_epilogue",
]


def operand_dtype(operand: Operand) -> DType:
    """The element type of a tensor or an array."""
    return dtype_of(operand) if isinstance(operand, np.ndarray) else operand.dtype


def as_tensor(graph: Graph, operand: Operand, name: str) -> Tensor:
    """The operand as a tensor; an array becomes a constant, spread over the tiles."""
    if not isinstance(operand, np.ndarray):
        return operand
    return graph.add_constant(dtype_of(operand), operand.shape, operand, name, mapping="linear")


def result_dtype(a: DType, b: DType, wanted: DType | None) -> DType:
    """The result's element type: floats keep theirs, integers below 64 bits give i32 (u32 for u32).

    Raises TypeMismatch when one operand is a float and the other is not, or floats differ.
    """
    if a.is_float != b.is_float or (a.is_float and a is not b) or "b" in (a.kind, b.kind):
        fail(
            TypeMismatch,
            f"a product of {a} and {b} is not defined",
            remedy="cast one operand first",
        )
    if wanted is not None:
        return wanted
    if a.is_float:
        return a
    wide = [t for t in (a, b) if t.size == 8]
    if wide:
        return wide[0] if wide[0].kind == "i" or len(wide) == 2 else i64
    if u64 in (a, b):
        return u64
    return u32 if u32 in (a, b) and "i" not in (a.kind, b.kind) else i32


def check_bias(bias: Operand | None, size: int, dtype: DType) -> Operand | None:
    """The bias [size] in the result's type (arrays are converted)."""
    if bias is None:
        return None
    if tuple(bias.shape) != (size,):
        fail(ShapeError, f"a bias of shape {tuple(bias.shape)} for {size} outputs")
    if isinstance(bias, np.ndarray):
        return bias.astype(dtype.numpy)
    if bias.dtype is not dtype:
        fail(TypeMismatch, f"the bias is {bias.dtype}, the result {dtype}", remedy="cast the bias")
    return bias


def split_epilogue(
    epilogue: Epilogue | None, shape: tuple[int, ...], dtype: DType
) -> tuple[Inline, Tensor | None, Epilogue | None]:
    """(form inside the kernels, its residual, what is left for a step of its own)."""
    if epilogue is None:
        return Inline(), None, None
    form = inline_form(epilogue.expr)
    if form is None or len(epilogue.tensors) > 1 or form.residual > len(epilogue.tensors):
        return Inline(), None, epilogue
    if not form.residual:
        return form, None, None
    residual = epilogue.tensors[form.residual - 1]
    if tuple(residual.shape) != tuple(shape) or residual.dtype is not dtype:
        return Inline(), None, epilogue
    return form, residual, None


def finish(
    graph: Graph, result: Tensor, epilogue: Epilogue | None, prog: Sequence, name: str
) -> Tensor:
    """The epilogue as an element-wise step after a product."""
    if epilogue is None or epilogue.expr.strip() == "$0":
        return result
    from poplar_py import popops

    tensors = [result, *epilogue.tensors]
    return popops.map(graph, epilogue.expr, tensors, prog, f"{name}/epilogue")
