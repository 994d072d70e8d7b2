"""Text emission of one LLVM function: names, blocks, value numbering, SSA merges.

`env` maps variable keys to SSA values. Keys are local names, `name#p`/`name#n` for the pointer and
size of a row alias, `array#k` for element k of an array kept in registers, and `#...` for our own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from poplar_py.codelets.codelet_ir import Ty
from poplar_py.types import DType, bf16, bool_, f16, f32

__all__ = ["Edge", "Emitter", "Target", "const_text", "llvm_type", "memory_type"]

_SCALAR = {"f16": "half", "f32": "float", "f64": "double", "bf16": "i16", "bool": "i1"}


def scalar_type(dtype: DType) -> str:
    return _SCALAR.get(dtype.name) or f"i{dtype.bits}"


def llvm_type(ty: Ty) -> str:
    """The SSA type: bf16 is i16, bool is i1."""
    if ty.ref:
        return "ptr"
    scalar = scalar_type(ty.dtype)
    return scalar if ty.lanes == 1 else f"<{ty.lanes} x {scalar}>"


def memory_type(ty: Ty) -> str:
    """The type in memory: bool is i8."""
    scalar = "i8" if ty.dtype is bool_ else scalar_type(ty.dtype)
    return scalar if ty.lanes == 1 else f"<{ty.lanes} x {scalar}>"


def scalar_const(value: object, dtype: DType) -> str:
    if dtype is bool_:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))  # type: ignore[call-overload]
    with np.errstate(over="ignore", invalid="ignore"):
        number = dtype.numpy.type(value)
    if dtype is f16:
        return f"0xH{int(number.view(np.uint16)):04X}"
    if dtype is bf16:
        return str(int(number.view(np.uint16)))
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"


def const_text(value: object, ty: Ty) -> str:
    """A constant operand without its type, splat over the lanes."""
    text = scalar_const(value, ty.dtype)
    if ty.lanes == 1:
        return text
    if text in ("0", "false") or (text == scalar_const(0.0, f32) and ty.dtype is f32):
        return "zeroinitializer"
    return f"splat ({scalar_type(ty.dtype)} {text})"


Edge = tuple[str, dict[str, str]]


@dataclass(slots=True)
class Target:
    """Where break, continue and leave go: `edges` collects (block, env) pairs."""

    label: str
    name: str = ""
    loop: bool = False
    edges: list[Edge] = field(default_factory=lambda: [])
    continues: list[Edge] = field(default_factory=lambda: [])


class Emitter:
    """Text of one function body."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.declares: set[str] = set()
        self.memo: list[dict[str, str]] = [{}]
        self.env: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.targets: list[Target] = []
        self.label = "entry"
        self.dead = False
        self.counter = 0

    # -- names and lines

    def name(self, prefix: str = "v") -> str:
        self.counter += 1
        return f"%{prefix}{self.counter}"

    def block_name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def raw(self, rhs: str) -> str:
        """A value computed here and now (loads, phis, things with effects)."""
        result = self.name()
        self.lines.append(f"  {result} = {rhs}")
        return result

    def op(self, rhs: str) -> str:
        """A pure value: reused when the same text was computed where it dominates."""
        for scope in self.memo:
            found = scope.get(rhs)
            if found is not None:
                return found
        result = self.raw(rhs)
        self.memo[-1][rhs] = result
        return result

    def call(self, result: str, function: str, *args: str) -> str:
        """A call of a pure function or intrinsic; args as "type value"."""
        self.declare(result, function, *(a.rpartition(" ")[0] for a in args))
        return self.op(f"call {result} @{function}({', '.join(args)})")

    def declare(self, result: str, function: str, *types: str) -> None:
        plain = [_without_splat(t) for t in types]
        self.declares.add(f"declare {result} @{function}({', '.join(plain)})")

    def intrinsic(self, name: str, ty: str, *args: str) -> str:
        """An overloaded intrinsic of one type, for example fma or sqrt."""
        function = f"llvm.{name}.{mangle(ty)}"
        self.declares.add(f"declare {ty} @{function}({', '.join([ty] * len(args))})")
        return self.op(f"call {ty} @{function}({', '.join(f'{ty} {a}' for a in args)})")

    # -- blocks

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label
        self.dead = False

    def jump(self, label: str) -> None:
        if not self.dead:
            self.line(f"br label %{label}")
            self.dead = True

    def branch(self, cond: str, yes: str, no: str, cold: str = "") -> None:
        weights = ""
        if cold:
            weights = ", !prof !1" if cold == "yes" else ", !prof !2"
        self.line(f"br i1 {cond}, label %{yes}, label %{no}{weights}")
        self.dead = True

    def edge(self) -> Edge:
        return self.label, dict(self.env)

    def scoped(self, body: Callable[[], None]) -> None:
        """Run `body` in its own value-numbering scope."""
        self.memo.append({})
        body()
        self.memo.pop()

    def merge(self, label: str, edges: Iterable[Edge]) -> None:
        """Start `label`, reached over `edges` (each already jumps there), and join their values."""
        edges = list(edges)
        if not edges:
            self.dead = True
            return
        self.start(label)
        first = edges[0][1]
        env: dict[str, str] = {}
        for key, value in first.items():
            values = [e.get(key) for _, e in edges]
            if any(v is None for v in values):
                continue
            if all(v == value for v in values):
                env[key] = value
                continue
            incoming = ", ".join(f"[{v}, %{b}]" for v, (b, _) in zip(values, edges, strict=True))
            env[key] = self.raw(f"phi {self.types[key]} {incoming}")
        self.env = env

    # -- loops

    def loop(
        self,
        carried: Iterable[str],
        body: Callable[[Target], None],
        latch: Callable[[], str],
        head: str = "",
    ) -> Target:
        """A do-while loop entered from here. `latch()` ends a round and gives the go-on condition
        ("true": endless). Returns the loop's target; the caller merges its exit edges."""
        label = self.block_name(head or "loop")
        target = Target(label + "x", loop=True)
        keys = [k for k in sorted(carried) if k in self.env]
        pre, before = self.label, dict(self.env)
        self.jump(label)
        self.start(label)
        at = len(self.lines)
        phis = {k: self.name("c") for k in keys}
        self.env.update(phis)
        self.targets.append(target)
        self.memo.append({})
        body(target)
        back = label + "l"
        edges = list(target.continues)
        if not self.dead:
            edges.append(self.edge())
            self.jump(back)
        self.merge(back, edges)
        incoming: dict[str, str] = {}
        if not self.dead:
            cond = latch()
            end = self.label
            if cond == "true":
                self.jump(label)
            else:
                target.edges.append(self.edge())
                self.branch(cond, label, target.label)
            incoming = {k: f", [{self.env[k]}, %{end}]" for k in keys}
        self.memo.pop()
        self.targets.pop()
        self.lines[at:at] = [
            f"  {phis[k]} = phi {self.types[k]} [{before[k]}, %{pre}]{incoming.get(k, '')}"
            for k in keys
        ]
        return target


def mangle(ty: str) -> str:
    """`<16 x float>` as v16f32, for intrinsic names."""
    if ty.startswith("<"):
        lanes, _, scalar = ty[1:-1].partition(" x ")
        return f"v{lanes}{mangle(scalar)}"
    return {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(ty, ty)


def _without_splat(text: str) -> str:
    return text.split(" splat")[0]
