"""The table of NumPy meanings: one function per op class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from poplar_py.ir.core import Op
from poplar_py.types import bf16, dtype_of, f16

__all__ = ["EVAL", "Array", "Rule", "meaning", "narrow", "widen"]

Array = np.ndarray[Any, np.dtype[Any]]
Rule = Callable[..., "Array | tuple[Array, ...]"]

EVAL: dict[type[Op], Rule] = {}
"""Op class -> `fn(op, *arrays)`. Operands come in field order: an absent optional one is None, a
tuple of operands is spread. Returns one array or a tuple."""


def meaning(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Enter a function into EVAL for some op classes."""

    def enter(fn: Rule) -> Rule:
        for cls in classes:
            EVAL[cls] = fn
        return fn

    return enter


def widen(x: Array) -> Array:
    """f16 and bf16 as f32 (arithmetic of one op is done in f32); others unchanged."""
    return x.astype(np.float32) if _is_short(x) else x


def narrow(x: Array, like: Array) -> Array:
    """Round a result back to the element type of `like`."""
    return x if x.dtype == like.dtype else x.astype(like.dtype)


def _is_short(x: Array) -> bool:
    return dtype_of(x.dtype) in (f16, bf16)
