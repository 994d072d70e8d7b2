"""Poplar's names for reductions, and its order of arguments for `reduce`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poplar_py.poplar import Tensor

__all__ = ["Operation", "ReduceParams"]


class Operation(StrEnum):
    """A reduction; every member is the text that functions here take as well."""

    ADD = "add"
    SQUARE_ADD = "square_add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    LOGICAL_AND = "logical_and"
    LOGICAL_OR = "logical_or"
    LOG_ADD = "log_add"


@dataclass(frozen=True)
class ReduceParams:
    """A reduction with a scale of its result; `update` adds it to what the output holds."""

    op: str = Operation.ADD
    update: bool = False
    scale: Tensor | float | None = None
