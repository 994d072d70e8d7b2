"""Room for recursion over expression trees, which bounds of their own keep finite."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["MAX_DEPTH", "deep"]

P = ParamSpec("P")
R = TypeVar("R")
MAX_DEPTH = 1000  # of expressions and of blocks, in any codelet IR
_LIMIT = 20_000


def deep(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with a recursion limit that fits MAX_DEPTH levels of several calls each."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        before = sys.getrecursionlimit()
        if before >= _LIMIT:
            return function(*args, **kwargs)
        sys.setrecursionlimit(_LIMIT)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setrecursionlimit(before)

    return run
