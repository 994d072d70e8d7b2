"""SlicePlan: how a table is cut for lookups and updates, and what a lookup is thought to cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.poplar.faults import fail

if TYPE_CHECKING:
    from poplar_py.types import DType

__all__ = ["SlicePlan", "check_plan"]


@dataclass(frozen=True)
class SlicePlan:
    """A table [entries, width] in parts of `rows` x `cols` elements, one tile each.

    ``cycles``: estimate of the lookups and updates it was made for, in tile cycles; ``nbytes``: of
    the fullest tile's memory, table and temporary data. Plans compare by value.
    """

    dtype: DType
    entries: int
    width: int
    lookups: tuple[int, ...]
    cols: int
    rows: int
    cycles: int
    nbytes: int

    @property
    def parts(self) -> int:
        """Parts of the table."""
        return self.width // self.cols * -(-self.entries // self.rows)


def check_plan(plan: SlicePlan, dtype: DType, shape: Sequence[int]) -> None:
    """Raise ShapeError or TypeMismatch for a table of another form than the plan's."""
    if tuple(shape) != (plan.entries, plan.width):
        fail(
            ShapeError,
            f"a plan for tables [{plan.entries}, {plan.width}], the table is {list(shape)}",
        )
    if dtype is not plan.dtype:
        fail(TypeMismatch, f"a plan for {plan.dtype} elements, the table holds {dtype}")
