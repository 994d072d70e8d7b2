"""What element-wise ops share: their type rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poplar_py.diagnostics import TypeMismatch
from poplar_py.ir.core import Op, Value
from poplar_py.types import TensorType, bool_, broadcast_shapes


@dataclass(eq=False, repr=False)
class Unary(Op):
    """Base: the result has the type of x. `kinds` lists the accepted DType kinds."""

    x: Value
    kinds: ClassVar[str] = "f"

    def infer(self) -> TensorType:
        require_kind(self.x, self.kinds)
        return self.x.type


@dataclass(eq=False, repr=False)
class Predicate(Op):
    """Base of unary ops with a bool result."""

    x: Value

    def infer(self) -> TensorType:
        require_kind(self.x, "f")
        return self.x.type.with_dtype(bool_)


@dataclass(eq=False, repr=False)
class Binary(Op):
    """Base: a and b share an element type, which the result has too."""

    a: Value
    b: Value
    kinds: ClassVar[str] = "fiu"

    def infer(self) -> TensorType:
        return _binary_type(self.a, self.b, self.kinds)


@dataclass(eq=False, repr=False)
class Compare(Op):
    """Base: a and b share an element type, the result is bool."""

    a: Value
    b: Value
    kinds: ClassVar[str] = "fiu"

    def infer(self) -> TensorType:
        return _binary_type(self.a, self.b, self.kinds).with_dtype(bool_)


def _binary_type(a: Value, b: Value, kinds: str) -> TensorType:
    require_kind(a, kinds)
    if a.dtype is not b.dtype:
        raise TypeMismatch(f"operands are {a.type} and {b.type}", remedy="cast one of them")
    return TensorType(a.dtype, broadcast_shapes(a.shape, b.shape))


_KIND_NAMES = {"f": "float", "i": "signed integer", "u": "unsigned integer", "b": "bool"}


def require_kind(value: Value, kinds: str) -> None:
    """TypeMismatch unless the element type is of one of the kinds ("fiub")."""
    if value.dtype.kind not in kinds:
        wanted = " or ".join(_KIND_NAMES[k] for k in kinds)
        raise TypeMismatch(f"operand {value.type} is not {wanted}")
