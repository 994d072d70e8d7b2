"""Trip counts and conditions as NumPy values over the vertices of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.codelets.codelet_ir import (
    Expr,
)

__all__ = ["SizeEnv", "select_values"]

Array = np.ndarray[Any, Any]
Sizes = dict[str, Array]


@dataclass(slots=True)
class SizeEnv:
    """Values of locals as arrays over the vertices; None where they depend on data."""

    sizes: Sizes
    state: Sizes
    locals: dict[str, Any]
    rows: dict[str, str]

    def value(self, e: Expr) -> Any:
        match e.op:
            case "const":
                return np.float64(e.attr[0])
            case "local":
                return self.locals.get(str(e.attr[0]))
            case "state":
                found = self.state.get(str(e.attr[0]))
                return None if found is None else np.asarray(found, np.float64)
            case "nrows":
                return self._size(str(e.attr[0]))
            case "len":
                return self._length(e.args[0])
            case "cast":
                return self.value(e.args[0])
            case _:
                args = [self.value(a) for a in e.args]
                if any(a is None for a in args) or e.op not in _ARITHMETIC:
                    return None
                return _ARITHMETIC[e.op](*args)

    def _size(self, name: str) -> Any:
        found = self.sizes.get(name)
        return None if found is None else np.asarray(found, np.float64)

    def _length(self, ref: Expr) -> Any:
        """Of a row: the mean over the rows, which is exact for costs linear in the length."""
        if ref.op == "field":
            return self._size(str(ref.attr[0]))
        name = str(ref.attr[0])
        while name in self.rows:
            name = self.rows[name]
        total, rows = self._size(f"{name}[]"), self._size(name)
        if total is None or rows is None:
            return None
        return total / np.maximum(rows, 1)


Function = Callable[..., Any]


def _floor_divide(a: Any, b: Any) -> Any:
    return np.floor(a / np.where(b == 0, 1, b))


def _modulo(a: Any, b: Any) -> Any:
    return a - b * _floor_divide(a, b)


def _bits(op: Function) -> Function:
    def function(a: Any, b: Any) -> Any:
        with np.errstate(invalid="ignore"):  # an unknown size is NaN
            return op(np.asarray(a, np.int64), np.asarray(b, np.int64)).astype(np.float64)

    return function


def _truth(op: Function) -> Function:
    def function(*args: Any) -> Any:
        return np.asarray(op(*args), np.float64)

    return function


def select_values(c: Any, a: Any, b: Any) -> Any:
    chosen: Array = np.where(np.asarray(c, np.bool_), np.asarray(a), np.asarray(b))
    return chosen


_ARITHMETIC: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": _floor_divide,
    "quot": _floor_divide,
    "mod": _modulo,
    "rem": _modulo,
    "min": np.minimum,
    "max": np.maximum,
    "and": _bits(np.bitwise_and),
    "or": _bits(np.bitwise_or),
    "shl": _bits(np.left_shift),
    "shr": _bits(np.right_shift),
    "neg": np.negative,
    "not": _truth(np.logical_not),
    "eq": _truth(np.equal),
    "ne": _truth(np.not_equal),
    "lt": _truth(np.less),
    "le": _truth(np.less_equal),
    "gt": _truth(np.greater),
    "ge": _truth(np.greater_equal),
    "select": select_values,
    "andalso": _truth(np.logical_and),
    "orelse": _truth(np.logical_or),
    "choose": select_values,
}
