"""One ONNX node while it is imported: operands resolved, attributes decoded, opset known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poplar_py.diagnostics import InputError, Location, UnsupportedOp
from poplar_py.frontends.onnx import protos
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.proto import element_type
from poplar_py.frontends.onnx.values import Absent, Array, Bounded, Item, Seq, Strings, Val
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.frontends.onnx.importer import Scope

__all__ = ["IMPORT", "Node", "Result", "imports"]

Result = Item | Sequence[Item]
RuleFn = Callable[[Builder, "Node"], Result]

IMPORT: dict[tuple[str, str], RuleFn] = {}
"""(domain, op type) -> rule; "ai.onnx" is the domain ""."""


def imports(*names: str, domain: str = "") -> Callable[[RuleFn], RuleFn]:
    """Enter a rule for some op types."""

    def enter(fn: RuleFn) -> RuleFn:
        for name in names:
            IMPORT[domain, name] = fn
        return fn

    return enter


@dataclass(eq=False)
class Node:
    """`inputs` are resolved (None where left out), `version` is the opset of its domain."""

    op_type: str
    domain: str
    version: int
    name: str
    loc: Location
    inputs: list[Item | None]
    outputs: list[str]
    attributes: dict[str, protos.AttributeProto]
    scope: Scope

    # operands

    def __len__(self) -> int:
        return len(self.inputs)

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and not isinstance(self.inputs[i], Absent | None)

    def raw(self, i: int) -> Item:
        """Operand i, whatever it is. Raises InputError when it is left out."""
        item = self.inputs[i] if i < len(self.inputs) else None
        if item is None:
            raise InputError(f"{self.op_type}: input {i} is missing", self.loc)
        return item

    def __getitem__(self, i: int) -> Val:
        """Operand i, a tensor."""
        item = self.raw(i)
        if isinstance(item, Val):
            return item
        if isinstance(item, Bounded):
            raise UnsupportedOp(
                f"{self.op_type}: the size of input {i} depends on values computed on the device",
                self.loc,
                "let the host do what follows, or use a mask of fixed size",
            )
        kind = type(item).__name__.lower()
        raise InputError(f"{self.op_type}: input {i} is {kind}, not a numeric tensor", self.loc)

    def get(self, i: int) -> Val | None:
        """Operand i, or None where it is left out."""
        return self[i] if self.has(i) else None

    def tensors(self, start: int = 0) -> list[Val]:
        """All operands from `start`, tensors."""
        return [self[i] for i in range(start, len(self.inputs))]

    def seq(self, i: int) -> Seq:
        """Operand i, a sequence."""
        item = self.raw(i)
        if not isinstance(item, Seq):
            raise InputError(f"{self.op_type}: input {i} is not a sequence", self.loc)
        return item

    def text(self, i: int) -> Array | None:
        """Operand i where it is a known tensor of strings."""
        item = self.raw(i)
        return item.array if isinstance(item, Strings) else None

    # attributes

    def _attr(self, name: str, kind: int) -> protos.AttributeProto | None:
        found = self.attributes.get(name)
        if found is not None and found.type not in (kind, protos.AttributeProto.UNDEFINED):
            want = protos.AttributeProto.AttributeType.Name(kind).lower()  # type: ignore[arg-type]
            raise InputError(f"{self.op_type}: attribute {name} is not of kind {want}", self.loc)
        return found

    def int(self, name: str, default: int = 0) -> int:
        found = self._attr(name, protos.AttributeProto.INT)
        return default if found is None else int(found.i)

    def float(self, name: str, default: float = 0.0) -> float:
        found = self._attr(name, protos.AttributeProto.FLOAT)
        return default if found is None else float(found.f)

    def str(self, name: str, default: str = "") -> str:
        found = self._attr(name, protos.AttributeProto.STRING)
        return default if found is None else found.s.decode("utf-8", "replace")

    def ints(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        found = self._attr(name, protos.AttributeProto.INTS)
        return tuple(default) if found is None else tuple(int(v) for v in found.ints)

    def floats(self, name: str, default: Sequence[float] = ()) -> tuple[float, ...]:
        found = self._attr(name, protos.AttributeProto.FLOATS)
        return tuple(default) if found is None else tuple(float(v) for v in found.floats)

    def strs(self, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        found = self._attr(name, protos.AttributeProto.STRINGS)
        if found is None:
            return tuple(default)
        return tuple(s.decode("utf-8", "replace") for s in found.strings)

    def set(self, name: str) -> bool:
        """Whether an attribute is given."""
        return name in self.attributes

    def graph(self, name: str) -> protos.GraphProto:
        found = self._attr(name, protos.AttributeProto.GRAPH)
        if found is None:
            raise InputError(f"{self.op_type}: attribute {name} is missing", self.loc)
        return found.g

    def tensor(self, name: str) -> Val | Strings | None:
        """A tensor attribute as a known value."""
        found = self._attr(name, protos.AttributeProto.TENSOR)
        return None if found is None else self.scope.known_tensor(found.t, self.loc)

    def dtype(self, name: str, default: int) -> tuple[DType, str]:
        """An attribute that holds an ONNX element type: storage type and tag."""
        return element_type(self.int(name, default), self.loc)

    def axes(self, b: Builder, i: int = 1) -> tuple[int, ...] | None:
        """Axes from input i (newer opsets) or the attribute; None when neither is given."""
        if self.has(i):
            return b.ints(self[i], f"{self.op_type}: axes")
        return self.ints("axes") if self.set("axes") else None
