"""The NumPy meaning of `math.map`: the reference interpreter uses the expression language's own.

Entered here because the expression language stands above `eval`; importing this fills EVAL.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py.codelets import expr
from poplar_py.eval.registry import meaning
from poplar_py.ops.elementwise import Map

__all__ = ["evaluate_map"]

Array = np.ndarray[Any, np.dtype[Any]]


@meaning(Map)
def evaluate_map(op: Map, *inputs: Array) -> Array:
    """`op.expr` over the inputs, broadcast to the result's shape."""
    out = np.asarray(expr.evaluate(op.expr, inputs)).astype(op.dtype.numpy, copy=False)
    return np.broadcast_to(out, np.broadcast_shapes(*(a.shape for a in inputs)))
