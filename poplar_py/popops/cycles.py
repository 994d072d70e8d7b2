"""Cycles of the reduction vertices as PopLibs' estimators give them, in worker cycles.

PopLibs, popops reduction estimators: a strided reduction takes, for each group of columns that
fills 64 bits, about 11 cycles and for each result 3 and one for every further value; a continuous
one takes one cycle a group of values and 12 a result, 17 in all besides. That holds for every
operation but log-add. Half sums kept in float take two accumulations a group. Integers of up to 32
bits go one by one in two cycles (own: the load and the operation both need the main pipeline).
Other types, logic and log-add follow the issue model of their code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.cycle_tables import cycles_of
from poplar_py.types import DTYPES

__all__ = ["reduce_cols_cycles", "reduce_rows_cycles"]

Array = np.ndarray[Any, Any]
Values = dict[str, Array]
FIXED = 17  # of a continuous reduction: entry, exit and the state
STRIDED_FIXED = 22  # 16 + 6 of the generic Reduce vertex
GROUP, RESULT_STRIDED, RESULT = 11, 3, 12
LANES = {"float": 2, "half": 4}  # values in 64 bits
PUBLISHED = frozenset({"0", "1", "2", "3", "6", "7"})  # sum, product, extremes, squares, mean
INTEGERS = frozenset(t.poplar for t in DTYPES.values() if t.is_integer and t.size <= 4)


def _steps(codelet: Codelet) -> tuple[int, int] | None:
    """(values a load, accumulations a load); None when the figures are not published."""
    value, kept, _, kind = codelet.name.partition("<")[2].rstrip(">").split(",")
    if kind not in PUBLISHED or value not in (*LANES, *INTEGERS):
        return None
    if value in INTEGERS:
        return 1, 2
    return LANES[value], 2 if (value, kept) == ("half", "float") else 1


@cycles_of("popops::ReduceCols")
def reduce_cols_cycles(codelet: Codelet, sizes: Values, state: Values) -> Array:
    """Strided: columns lie side by side, the reduced values `cols` apart."""
    steps = _steps(codelet)
    if steps is None:
        return codelet.model.cycles(sizes, state)
    lanes, each = steps
    cols = np.maximum(np.asarray(state["cols"], np.int64), 1)
    outer = -(-np.asarray(sizes["out"], np.int64) // cols)
    more = np.asarray(state["n"], np.int64) - 1
    groups = -(-cols // lanes)
    return STRIDED_FIXED + groups * (GROUP + outer * (RESULT_STRIDED + each * more))


@cycles_of("popops::ReduceRows")
def reduce_rows_cycles(codelet: Codelet, sizes: Values, state: Values) -> Array:
    """Continuous: the reduced values lie side by side."""
    steps = _steps(codelet)
    if steps is None:
        return codelet.model.cycles(sizes, state)
    lanes, each = steps
    groups = -(-np.asarray(state["n"], np.int64) // lanes)
    return FIXED + np.asarray(sizes["out"], np.int64) * (RESULT + each * groups)
