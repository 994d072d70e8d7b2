"""What lowering rules share: the graph under construction, tensors of values, constants, names."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy.typing as npt

from poplar_py.diagnostics import InternalError, UnsupportedOp
from poplar_py.ir import REGISTRY, Op, Value
from poplar_py.ir import Graph as ModelGraph
from poplar_py.poplar import Graph, Tensor, program
from poplar_py.poplar.where import located
from poplar_py.popops import UpdateTable
from poplar_py.target import Target

__all__ = ["LOWER", "LowerContext", "Rule", "lower_ops", "rule"]

Array = npt.NDArray[Any]
Rule = Callable[["LowerContext", Any], None]
LOWER: dict[type[Op], Rule] = {}
"""What lowering does with each op of the model level."""

RuleT = TypeVar("RuleT", bound=Rule)


def rule(*names: str) -> Callable[[RuleT], RuleT]:
    """Enter a function as the lowering rule of the named ops."""

    def enter(function: RuleT) -> RuleT:
        for name in names:
            LOWER[REGISTRY[name]] = function
        return function

    return enter


class LowerContext:
    """State of one lowering.

    `graph` and `prog` are where the current rule adds to: the (virtual) graph of the op's IPU, and
    the sequence of the region being lowered. `constants` counts uploads, for reports.
    """

    def __init__(self, target: Target) -> None:
        self.whole = Graph(target)
        self.graph: Graph = self.whole
        self.prog = program.Sequence()
        self.values: dict[Value, Tensor] = {}
        self.uses: dict[Value, int] = {}
        self.pending: dict[Value, Any] = {}
        """Products that wait for their user (`lower_products`)."""
        self.tables: dict[Value, UpdateTable] = {}
        """Loop buffers that may be updated in place."""
        self._arrays: dict[Value, Array] = {}
        self._uploads: dict[Value, Tensor] = {}
        self._parts: dict[int, Graph] = {}

    # ------------------------------------------------------------------ values
    def tensor(self, value: Value) -> Tensor:
        """The tensor that holds a value; a constant is uploaded linearly on first use."""
        found = self.values.get(value)
        if found is not None:
            return found
        if value in self.pending:
            return self._settle(value)
        array = self._arrays.get(value)
        if array is None:
            raise InternalError(f"value {value!r} is used before it is lowered")
        held = self._uploads.get(value)
        if held is None:
            held = self.upload(array, value.name or "constant")
            self._uploads[value] = held
        return held

    def _settle(self, value: Value) -> Tensor:
        """Lower a pending product where it stands."""
        waiting = self.pending.pop(value)
        with self.whole.location(waiting.op.loc):
            self.set(value, waiting.emit(waiting.graph, waiting.prog, None, None))
        return self.values[value]

    def upload(self, array: Array, name: str) -> Tensor:
        """A constant spread linearly; repeated rows, columns or numbers are stored once."""
        steps = zip(array.strides, array.shape, strict=True)
        once = tuple(slice(0, 1) if step == 0 and n > 1 else slice(None) for step, n in steps)
        base = array[once]
        mapping = "linear" if base.size > 1 else 0
        held = self.graph.add_constant(None, base.shape, base, name, mapping)
        return held if base.shape == array.shape else held.broadcast_to(array.shape)

    def set(self, value: Value, tensor: Tensor) -> None:
        """Bind the tensor of a result. Raises InternalError when its type is another."""
        if tuple(tensor.shape) != tuple(value.shape) or tensor.dtype is not value.dtype:
            owner = value.owner.opname if value.owner is not None else "?"
            raise InternalError(f"{owner} was lowered to {tensor!r}, its type is {value.type}")
        self.values[value] = tensor

    def set_array(self, value: Value, array: Array) -> None:
        """Bind a value known at compile time; it goes to the device when something asks for it."""
        self._arrays[value] = array

    def constant_array(self, value: Value) -> Array | None:
        """The array of a value known at compile time, else None."""
        return self._arrays.get(value)

    def operand(self, value: Value) -> Tensor | Array:
        """The array of a constant (the consumer chooses its layout), else the tensor."""
        array = self._arrays.get(value)
        return self.tensor(value) if array is None else array

    def scalar(self, value: Value) -> Any:
        """The number of a constant of one (perhaps repeated) element, else None."""
        array = self._arrays.get(value)
        if array is None or array.size == 0:
            return None
        steps = zip(array.strides, array.shape, strict=True)
        if not all(step == 0 or n == 1 for step, n in steps):
            return None
        return array[(0,) * array.ndim]

    # ------------------------------------------------------------------ names and places
    def name(self, op: Op) -> str:
        """A label for variables, compute sets and vertices of an op."""
        return op.loc.name or next((r.name for r in op.results if r.name), "") or op.opname

    def enter(self, op: Op) -> None:
        """Add to the tiles of the op's IPU from now on."""
        self.graph = self.part(op.ipu)

    def part(self, ipu: int | None) -> Graph:
        """The tiles of one IPU as a graph; all of them for None or a machine of one IPU."""
        target = self.whole.target
        if ipu is None or target.num_ipus == 1:
            return self.whole
        found = self._parts.get(ipu)
        if found is None:
            begin = ipu * target.tiles_per_ipu
            found = self.whole.create_virtual_graph(begin, begin + target.tiles_per_ipu)
            self._parts[ipu] = found
        return found

    @contextmanager
    def into(self, prog: program.Sequence) -> Generator[program.Sequence]:
        """Add programs to `prog` inside the `with` block."""
        old = self.prog
        self.prog = prog
        try:
            yield prog
        finally:
            self.prog = old


def lower_ops(ctx: LowerContext, graph: ModelGraph) -> None:
    """Lower all ops of a graph or region in order."""
    for op in graph.ops:
        found = LOWER.get(type(op))
        if found is None:
            raise UnsupportedOp(
                f"{op.opname} has no lowering rule",
                op.loc,
                remedy="express it by ops that `poplar-py ops` lists with LOWER",
            )
        ctx.enter(op)
        with ctx.whole.location(op.loc), located(op.loc):
            found(ctx, op)
