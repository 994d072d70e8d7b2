"""The reference interpreter: `EVAL` gives the NumPy meaning of every model op."""

from __future__ import annotations

from poplar_py.eval import elementwise, nn, random, recurrent, tensor
from poplar_py.eval.interpreter import evaluate, evaluate_op
from poplar_py.eval.registry import EVAL, meaning

__all__ = [
    "EVAL",
    "elementwise",
    "evaluate",
    "evaluate_op",
    "meaning",
    "nn",
    "random",
    "recurrent",
    "tensor",
]
