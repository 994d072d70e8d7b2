"""What a name stands for while a graph is imported: tensors, sequences, absent optionals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from poplar_py.diagnostics import UNKNOWN, Location, PoplarPyError
from poplar_py.ir.core import Value
from poplar_py.types import DType, TensorType

if TYPE_CHECKING:
    from poplar_py.frontends.onnx.builder import Builder

__all__ = [
    "ABSENT",
    "NO_DEPS",
    "Absent",
    "Array",
    "Bounded",
    "Item",
    "NeedsStatic",
    "Seq",
    "Strings",
    "Val",
]

Array = np.ndarray[Any, np.dtype[Any]]
NO_DEPS: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class Val:
    """A tensor: a value of the graph, a known array, or both.

    `const` is what is known at compile time. `pure`: it depends on no input, so a constant may
    stand for the value. Otherwise it was found from inputs that are bound (shape-determining ones),
    and the value is still computed on the device where it is used as data. `deps` are the graph
    inputs it depends on, `tag` the ONNX element type where storage differs ("int4", "f8e5m2").
    """

    builder: Builder
    type: TensorType
    value: Value | None = None
    const: Array | None = None
    pure: bool = False
    deps: frozenset[str] = NO_DEPS
    tag: str = ""
    name: str = ""

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape  # type: ignore[return-value]  # shapes are static on import

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def __add__(self, other: Val | float) -> Val:
        return self.builder.add(self, other)

    def __radd__(self, other: float) -> Val:
        return self.builder.add(self, other)

    def __sub__(self, other: Val | float) -> Val:
        return self.builder.sub(self, other)

    def __rsub__(self, other: float) -> Val:
        return self.builder.sub(self.builder.like(other, self), self)

    def __mul__(self, other: Val | float) -> Val:
        return self.builder.mul(self, other)

    def __rmul__(self, other: float) -> Val:
        return self.builder.mul(self, other)

    def __truediv__(self, other: Val | float) -> Val:
        return self.builder.div(self, other)

    def __neg__(self) -> Val:
        return self.builder.neg(self)


@dataclass(eq=False, slots=True)
class Seq:
    """A sequence whose length is known."""

    items: list[Item] = field(default_factory=list["Item"])


@dataclass(eq=False, slots=True)
class Strings:
    """A tensor of strings: only known at compile time."""

    array: Array


@dataclass(eq=False, slots=True)
class Bounded:
    """A tensor of which only the first `count` (i32[]) places along `axis` are meant.

    It may be an output, which the host cuts to size; most ops refuse it.
    """

    val: Val
    count: Val
    axis: int = 0


class Absent:
    """An optional that holds nothing."""


ABSENT = Absent()

Item = Val | Seq | Strings | Absent | Bounded


class NeedsStatic(PoplarPyError):
    """Something has to be known at compile time but depends on inputs (`deps`)."""

    code = "needs-const"

    def __init__(
        self, message: str, deps: frozenset[str], loc: Location = UNKNOWN, remedy: str = ""
    ) -> None:
        super().__init__(message, loc, remedy)
        self.deps = deps
