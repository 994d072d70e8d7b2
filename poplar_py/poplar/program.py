"""Programs: the tree of steps a graph runs. Values are shared by reference, as in Poplar."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from poplar_py.diagnostics import Location
from poplar_py.poplar.errors import (
    AliasedWrite,
    GraphError,
    TensorCreationError,
    TensorIndexError,
    TensorTypeError,
)
from poplar_py.poplar.streams import (
    DataStream,
    Function,
    HostFunction,
    RemoteBuffer,
)
from poplar_py.poplar.tensor import Tensor, fail
from poplar_py.poplar.where import caller
from poplar_py.types import bool_

if TYPE_CHECKING:
    from poplar_py.poplar.groups import ComputeSet

__all__ = [
    "Abort",
    "AbortOnCondition",
    "AssumeEqualAcrossReplicas",
    "Block",
    "Call",
    "Copy",
    "CrossReplicaCopy",
    "CycleCount",
    "ErrorProgram",
    "Execute",
    "If",
    "Loop",
    "PrintTensor",
    "PrintTensorFmt",
    "Program",
    "Repeat",
    "RepeatWhileFalse",
    "RepeatWhileTrue",
    "Sequence",
    "Switch",
    "Sync",
    "WriteUndef",
]


class Program:
    """One step. ``loc`` is the user's line, ``name`` a label for profiles."""

    __slots__ = ("loc", "name")

    def __init__(self, name: str = "", loc: Location | None = None) -> None:
        self.name = name
        self.loc = caller() if loc is None else loc

    def children(self) -> list[Program]:
        """Programs inside this one, in order."""
        return []

    def walk(self) -> Iterator[Program]:
        """This program and all inside it, outer first; functions are not entered."""
        todo: list[Program] = [self]
        while todo:
            p = todo.pop()
            yield p
            todo += reversed(p.children())


class Sequence(Program):
    """Steps one after another. ``add`` appends; a Sequence holds references, not copies."""

    __slots__ = ("steps",)

    def __init__(self, *steps: Program | Seq[Program], name: str = "") -> None:
        super().__init__(name)
        self.steps: list[Program] = []
        for s in steps:
            self.steps += [s] if isinstance(s, Program) else list(s)

    def add(self, step: Program) -> None:
        """Append a step."""
        if step is self:
            fail(GraphError, "a sequence cannot contain itself")
        self.steps.append(step)

    def children(self) -> list[Program]:
        return self.steps

    def __len__(self) -> int:
        return len(self.steps)


class Execute(Program):
    """Exchange what a compute set reads, then run its vertices. ``predicate``: a BOOL scalar that
    receives the AND of the vertices' return values."""

    __slots__ = ("compute_set", "predicate")

    def __init__(
        self, compute_set: ComputeSet, predicate: Tensor | None = None, name: str = ""
    ) -> None:
        super().__init__(name)
        if predicate is not None and (predicate.numel != 1 or predicate.dtype is not bool_):
            fail(
                TensorTypeError,
                f"the predicate is {predicate!r}",
                "give a BOOL tensor of one element",
            )
        self.compute_set = compute_set
        self.predicate = predicate


Endpoint = Tensor | DataStream | RemoteBuffer


class Copy(Program):
    """Elements from ``src`` to ``dst``: tensors, a stream, or rows of a remote buffer.

    ``offset`` is the row of the remote buffer: an int32/uint32 tensor of one element (or one per
    row of the tensor), or None for row 0. ``kind`` is one of tensor, from_stream, to_stream,
    from_remote, to_remote.
    """

    __slots__ = ("dst", "kind", "offset", "src")

    def __init__(
        self,
        src: Endpoint,
        dst: Endpoint,
        offset: Tensor | None = None,
        name: str = "",
        dont_outline: bool = False,
        optimise_memory: bool = False,
    ) -> None:
        super().__init__(name)
        self.src = src
        self.dst = dst
        self.offset = offset
        self.kind = _copy_kind(src, dst)
        _check_copy(self)


def _copy_kind(src: Endpoint, dst: Endpoint) -> str:
    if isinstance(src, Tensor) and isinstance(dst, Tensor):
        return "tensor"
    if isinstance(src, DataStream) and isinstance(dst, Tensor):
        return "from_stream"
    if isinstance(src, Tensor) and isinstance(dst, DataStream):
        return "to_stream"
    if isinstance(src, RemoteBuffer) and isinstance(dst, Tensor):
        return "from_remote"
    if isinstance(src, Tensor) and isinstance(dst, RemoteBuffer):
        return "to_remote"
    return fail(TensorTypeError, f"copy from {src!r} to {dst!r}", "one side at least is a tensor")


def _check_copy(copy: Copy) -> None:
    src, dst = copy.src, copy.dst
    if src.dtype is not dst.dtype:
        fail(
            TensorTypeError,
            f"copy of {src.dtype.name} to {dst.dtype.name}",
            "use popops.cast to convert",
        )
    if isinstance(src, DataStream) and src.to_host:
        fail(TensorTypeError, f"stream {src.handle!r} goes to the host")
    if isinstance(dst, DataStream) and not dst.to_host:
        fail(TensorTypeError, f"stream {dst.handle!r} comes from the host")
    if isinstance(src, RemoteBuffer) or isinstance(dst, RemoteBuffer):
        _check_remote(copy)
    elif src.numel != dst.numel:
        fail(
            TensorIndexError,
            f"copy of {src.numel} elements to {dst.numel}",
            "the sizes must agree",
        )
    if isinstance(dst, Tensor):
        check_writable(dst, "the destination of a copy")


def _check_remote(copy: Copy) -> None:
    buffer, tensor = (
        (copy.src, copy.dst) if isinstance(copy.src, RemoteBuffer) else (copy.dst, copy.src)
    )
    rows = 1 if copy.offset is None else copy.offset.numel
    if tensor.numel != buffer.numel * rows:
        fail(
            TensorIndexError,
            f"{rows} row(s) of remote buffer have {buffer.numel * rows} elements, "
            f"the tensor has {tensor.numel}",
        )
    if copy.offset is not None and copy.offset.dtype.name not in ("i32", "u32"):
        fail(TensorTypeError, f"the row index is {copy.offset!r}", "give an int or unsigned int")


def check_writable(tensor: Tensor, what: str) -> None:
    """Raise unless every element of the tensor may be written."""
    for v in tensor.variables():
        if v.constant is not None:
            fail(AliasedWrite, f"{what} is the constant {v.name!r}")
    if tensor.contains_aliases():
        fail(
            AliasedWrite,
            f"{what} holds an element more than once",
            "write to a tensor without broadcast or repeated slices",
        )


class Repeat(Program):
    """The body ``times`` times."""

    __slots__ = ("body", "times")

    def __init__(self, times: int, body: Program, name: str = "") -> None:
        super().__init__(name)
        if times < 0:
            fail(TensorIndexError, f"repeat {times} times")
        self.times = times
        self.body = body

    def children(self) -> list[Program]:
        return [self.body]


class Loop(Program):
    """The body for ever (until the engine is stopped or a program aborts)."""

    __slots__ = ("body",)

    def __init__(self, body: Program, name: str = "") -> None:
        super().__init__(name)
        self.body = body

    def children(self) -> list[Program]:
        return [self.body]


def _check_scalar(tensor: Tensor, what: str, kinds: str) -> None:
    if tensor.numel != 1 or tensor.dtype.kind not in kinds:
        fail(TensorTypeError, f"{what} is {tensor!r}", "give one integer or BOOL element")


class _While(Program):
    __slots__ = ("body", "condition", "predicate")

    def __init__(
        self, condition: Program, predicate: Tensor, body: Program, name: str = ""
    ) -> None:
        super().__init__(name)
        _check_scalar(predicate, "the predicate", "biu")
        self.condition = condition
        self.predicate = predicate
        self.body = body

    def children(self) -> list[Program]:
        return [self.condition, self.body]


class RepeatWhileTrue(_While):
    """Run ``condition``; while the predicate is nonzero run the body, then the condition again."""

    __slots__ = ()


class RepeatWhileFalse(_While):
    """Run ``condition``; while the predicate is zero run the body, then the condition again."""

    __slots__ = ()


class If(Program):
    """One of two programs by a device scalar (nonzero is true)."""

    __slots__ = ("if_false", "if_true", "predicate")

    def __init__(
        self, predicate: Tensor, if_true: Program, if_false: Program | None = None, name: str = ""
    ) -> None:
        super().__init__(name)
        _check_scalar(predicate, "the predicate", "biu")
        self.predicate = predicate
        self.if_true = if_true
        self.if_false: Program = Sequence() if if_false is None else if_false

    def children(self) -> list[Program]:
        return [self.if_true, self.if_false]


class Switch(Program):
    """The case whose number equals a device integer, else the default.

    ``unreachable_default``: the caller promises that some case matches.
    """

    __slots__ = ("cases", "control", "default", "unreachable_default")

    def __init__(
        self,
        control: Tensor,
        cases: Seq[tuple[int, Program]] = (),
        default: Program | None = None,
        name: str = "",
    ) -> None:
        super().__init__(name)
        _check_scalar(control, "the control value", "iu")
        self.control = control
        self.cases: list[tuple[int, Program]] = []
        self.default: Program = Sequence() if default is None else default
        self.unreachable_default = False
        for value, program in cases:
            self.add(value, program)

    @staticmethod
    def switch_with_bounds_checking(
        control: Tensor, cases: Seq[tuple[int, Program]] = (), name: str = ""
    ) -> Switch:
        """A switch that stops the program when no case matches."""
        stop = ErrorProgram("no case of the switch matches", control)
        return Switch(control, cases, stop, name)

    @staticmethod
    def switch_with_unreachable_default(
        control: Tensor, cases: Seq[tuple[int, Program]] = (), name: str = ""
    ) -> Switch:
        """A switch of which the caller knows that some case matches."""
        out = Switch(control, cases, None, name)
        out.unreachable_default = True
        return out

    def add(self, value: int, program: Program) -> Switch:
        """One more case; returns the switch."""
        if any(v == value for v, _ in self.cases):
            fail(TensorIndexError, f"the switch has a case {value} already")
        self.cases.append((int(value), program))
        return self

    def children(self) -> list[Program]:
        return [*(p for _, p in self.cases), self.default]


class Call(Program):
    """Run a function of the graph, or a host function on tensors."""

    __slots__ = ("function", "inputs", "outputs")

    def __init__(
        self,
        function: Function | HostFunction,
        inputs: Seq[Tensor] = (),
        outputs: Seq[Tensor] = (),
        name: str = "",
    ) -> None:
        super().__init__(name)
        self.function = function
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        if isinstance(function, HostFunction):
            _check_host_call(function, self.inputs, self.outputs)


def _check_host_call(function: HostFunction, ins: list[Tensor], outs: list[Tensor]) -> None:
    for what, args, want in (("input", ins, function.inputs), ("output", outs, function.outputs)):
        if len(args) != len(want):
            fail(
                TensorIndexError,
                f"host function {function.handle!r} has {len(want)} {what}s, {len(args)} given",
            )
        for i, (t, (dtype, size)) in enumerate(zip(args, want, strict=True)):
            if t.dtype is not dtype or t.numel != size:
                fail(
                    TensorTypeError,
                    f"{what} {i} of host function {function.handle!r} is {t!r}, declared "
                    f"{dtype.name}[{size}]",
                )
    for t in outs:
        check_writable(t, "an output of a host function")


class PrintTensorFmt:
    """How PrintTensor writes: summary threshold, edge items, line width, digits, brackets."""

    __slots__ = (
        "close_bracket",
        "edge_items",
        "float_format",
        "max_line_width",
        "open_bracket",
        "precision",
        "separator",
        "threshold",
    )

    def __init__(
        self,
        threshold: int = 1000,
        edge_items: int = 3,
        max_line_width: int = 75,
        precision: int = 4,
        float_format: str = "auto",
        separator: str = ",",
        open_bracket: str = "[",
        close_bracket: str = "]",
    ) -> None:
        self.threshold = threshold
        self.edge_items = edge_items
        self.max_line_width = max_line_width
        self.precision = precision
        self.float_format = float_format
        self.separator = separator
        self.open_bracket = open_bracket
        self.close_bracket = close_bracket


class PrintTensor(Program):
    """Print a tensor on the host when reached: ``PrintTensor([title,] tensor[, fmt])``."""

    __slots__ = ("fmt", "tensor", "title")

    def __init__(
        self,
        title: str | Tensor,
        tensor: Tensor | PrintTensorFmt | None = None,
        fmt: PrintTensorFmt | None = None,
        name: str = "",
    ) -> None:
        super().__init__(name)
        if isinstance(title, Tensor):
            self.title, self.tensor = "", title
            self.fmt = tensor if isinstance(tensor, PrintTensorFmt) else fmt
            return
        if not isinstance(tensor, Tensor):
            fail(TensorTypeError, "PrintTensor needs a tensor")
        self.title, self.tensor, self.fmt = title, tensor, fmt


class WriteUndef(Program):
    """The old contents of the tensor are dead from here on."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor, name: str = "") -> None:
        super().__init__(name)
        self.tensor = tensor


class AssumeEqualAcrossReplicas(Program):
    """A promise that a tensor holds the same values on every replica."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor, name: str = "") -> None:
        super().__init__(name)
        self.tensor = tensor


class CrossReplicaCopy(Program):
    """``src`` of replica r to ``dst`` of replica ``replica_map[r]``."""

    __slots__ = ("dst", "replica_map", "src")

    def __init__(
        self, src: Tensor, dst: Tensor, replica_map: dict[int, int], name: str = ""
    ) -> None:
        super().__init__(name)
        if src.dtype is not dst.dtype or src.numel != dst.numel:
            fail(TensorTypeError, f"copy across replicas of {src!r} to {dst!r}")
        check_writable(dst, "the destination of a copy")
        if len(set(replica_map.values())) != len(replica_map):
            fail(TensorIndexError, "two replicas are copied to one")
        self.src = src
        self.dst = dst
        self.replica_map = dict(replica_map)


SYNC_TYPES = ("internal", "external", "global")


class Sync(Program):
    """A barrier: internal (tiles of an IPU), external (with the host) or global (all IPUs)."""

    __slots__ = ("kind",)

    def __init__(self, kind: str = "internal", name: str = "") -> None:
        super().__init__(name)
        if kind.lower() not in SYNC_TYPES:
            fail(TensorCreationError, f"unknown sync {kind!r}", f"one of {', '.join(SYNC_TYPES)}")
        self.kind = kind.lower()


class ErrorProgram(Program):
    """Stop with a message and the contents of a tensor."""

    __slots__ = ("message", "tensor")

    def __init__(self, message: str, tensor: Tensor | None = None, name: str = "") -> None:
        super().__init__(name)
        self.message = message
        self.tensor = tensor


class Abort(Program):
    """Stop with a message."""

    __slots__ = ("message",)

    def __init__(self, message: str = "", name: str = "") -> None:
        super().__init__(name)
        self.message = message


class AbortOnCondition(Program):
    """Stop with a message where a device scalar is nonzero."""

    __slots__ = ("message", "predicate")

    def __init__(self, predicate: Tensor, message: str = "", name: str = "") -> None:
        super().__init__(name)
        _check_scalar(predicate, "the predicate", "biu")
        self.predicate = predicate
        self.message = message


class Block(Program):
    """A program that nothing is moved into or out of; a row of its own in profiles."""

    __slots__ = ("body",)

    def __init__(self, body: Program, name: str = "") -> None:
        super().__init__(name)
        self.body = body

    def children(self) -> list[Program]:
        return [self.body]


class CycleCount(Program):
    """Store the tile cycles of the body, or (no body) a time stamp: two uint32, low word first."""

    __slots__ = ("body", "tensor", "tile")

    def __init__(self, body: Program | None, tensor: Tensor, tile: int, name: str = "") -> None:
        super().__init__(name)
        self.body = body
        self.tensor = tensor
        self.tile = tile

    def children(self) -> list[Program]:
        return [] if self.body is None else [self.body]
