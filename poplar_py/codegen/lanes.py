"""Arithmetic on SSA values with Python operators, for the function library."""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.codegen.emit_core import Emitter, const_text, llvm_type
from poplar_py.codelets.codelet_ir import Ty
from poplar_py.types import DTYPES, DType, bool_, f64

__all__ = ["Lanes", "poly", "power_of_two", "select"]

Number = int | float


@dataclass(frozen=True, slots=True)
class Lanes:
    """An SSA value of one type: a scalar or a short vector. Numbers are splat as needed."""

    e: Emitter
    text: str
    ty: Ty

    def const(self, value: Number) -> Lanes:
        return Lanes(self.e, const_text(value, self.ty), self.ty)

    def _operand(self, other: Lanes | Number) -> str:
        return other.text if isinstance(other, Lanes) else const_text(other, self.ty)

    def _binary(self, name: str, a: str, b: str) -> Lanes:
        prefix = "f" if self.ty.dtype.is_float and name in ("add", "sub", "mul", "div") else ""
        return Lanes(self.e, self.e.op(f"{prefix}{name} {llvm_type(self.ty)} {a}, {b}"), self.ty)

    def __add__(self, other: Lanes | Number) -> Lanes:
        return self._binary("add", self.text, self._operand(other))

    def __sub__(self, other: Lanes | Number) -> Lanes:
        return self._binary("sub", self.text, self._operand(other))

    def __rsub__(self, other: Number) -> Lanes:
        return self._binary("sub", self._operand(other), self.text)

    def __mul__(self, other: Lanes | Number) -> Lanes:
        return self._binary("mul", self.text, self._operand(other))

    def __truediv__(self, other: Lanes | Number) -> Lanes:
        return self._binary("div", self.text, self._operand(other))

    def __rtruediv__(self, other: Number) -> Lanes:
        return self._binary("div", self._operand(other), self.text)

    def __and__(self, other: Lanes | Number) -> Lanes:
        return self._binary("and", self.text, self._operand(other))

    def __or__(self, other: Lanes | Number) -> Lanes:
        return self._binary("or", self.text, self._operand(other))

    def __xor__(self, other: Lanes | Number) -> Lanes:
        return self._binary("xor", self.text, self._operand(other))

    def __lshift__(self, count: int) -> Lanes:
        return self._binary("shl", self.text, self._operand(count))

    def __rshift__(self, count: int) -> Lanes:
        """Arithmetic shift right."""
        return self._binary("ashr", self.text, self._operand(count))

    def __neg__(self) -> Lanes:
        return Lanes(self.e, self.e.op(f"fneg {llvm_type(self.ty)} {self.text}"), self.ty)

    def _compare(self, code: str, other: Lanes | Number) -> Lanes:
        kind = "fcmp" if self.ty.dtype.is_float else "icmp"
        line = f"{kind} {code} {llvm_type(self.ty)} {self.text}, {self._operand(other)}"
        return Lanes(self.e, self.e.op(line), Ty(bool_, self.ty.lanes))

    def __lt__(self, other: Lanes | Number) -> Lanes:
        return self._compare("olt" if self.ty.dtype.is_float else "slt", other)

    def __gt__(self, other: Lanes | Number) -> Lanes:
        return self._compare("ogt" if self.ty.dtype.is_float else "sgt", other)

    def equals(self, other: Lanes | Number) -> Lanes:
        return self._compare("oeq" if self.ty.dtype.is_float else "eq", other)

    def differs(self, other: Lanes | Number) -> Lanes:
        return self._compare("une" if self.ty.dtype.is_float else "ne", other)

    def is_nan(self) -> Lanes:
        return self._compare("uno", self)

    def fma(self, b: Lanes | Number, c: Lanes | Number) -> Lanes:
        """self * b + c, rounded once."""
        text = llvm_type(self.ty)
        value = self.e.intrinsic("fma", text, self.text, self._operand(b), self._operand(c))
        return Lanes(self.e, value, self.ty)

    def _intrinsic(self, name: str, *others: Lanes | Number) -> Lanes:
        args = [self.text, *(self._operand(o) for o in others)]
        return Lanes(self.e, self.e.intrinsic(name, llvm_type(self.ty), *args), self.ty)

    def abs(self) -> Lanes:
        return self._intrinsic("fabs")

    def copysign(self, sign: Lanes) -> Lanes:
        return self._intrinsic("copysign", sign)

    def sqrt(self) -> Lanes:
        return self._intrinsic("sqrt")

    def floor(self) -> Lanes:
        return self._intrinsic("floor")

    def round(self) -> Lanes:
        return self._intrinsic("roundeven")

    def at_most(self, limit: Number) -> Lanes:
        """min(self, limit); NaN stays NaN."""
        return select(self > limit, self.const(limit), self)

    def at_least(self, limit: Number) -> Lanes:
        """max(self, limit); NaN stays NaN."""
        return select(self < limit, self.const(limit), self)

    def bits(self, dtype: DType) -> Lanes:
        """The same bits as another type."""
        ty = Ty(dtype, self.ty.lanes)
        line = f"bitcast {llvm_type(self.ty)} {self.text} to {llvm_type(ty)}"
        return Lanes(self.e, self.e.op(line), ty)

    def to_float(self, dtype: DType) -> Lanes:
        """From a float type or signed ints to a float type."""
        ty, size = Ty(dtype, self.ty.lanes), self.ty.dtype.size
        resize = "fpext" if dtype.size > size else "fptrunc"
        op = resize if self.ty.dtype.is_float else "sitofp"
        line = f"{op} {llvm_type(self.ty)} {self.text} to {llvm_type(ty)}"
        return Lanes(self.e, self.e.op(line), ty)

    def to_int(self, dtype: DType) -> Lanes:
        """To signed ints that can hold the truncated value; NaN gives 0.

        (The saturating intrinsic would become one scalar conversion a lane.)
        """
        ty = Ty(dtype, self.ty.lanes)
        known = select(self.is_nan(), self.const(0.0), self)
        line = f"fptosi {llvm_type(self.ty)} {known.text} to {llvm_type(ty)}"
        return Lanes(self.e, self.e.op(line), ty)

    def saturated(self, dtype: DType) -> Lanes:
        """f32 to i32 or a narrower int, saturating; NaN gives 0."""
        bits, signed = 8 * dtype.size, dtype.kind == "i"
        low = -(2.0 ** (bits - 1)) if signed else 0.0
        top = 2 ** (bits - 1 if signed else bits) - 1
        exact = float(top) if bits < 32 else 2147483520.0
        i32 = DTYPES["i32"]
        value = self.at_most(exact).at_least(low).to_int(i32)
        if bits == 32:
            return select(self > exact, value.const(top), value)
        narrow = Ty(dtype, self.ty.lanes)
        line = f"trunc {llvm_type(value.ty)} {value.text} to {llvm_type(narrow)}"
        return Lanes(self.e, self.e.op(line), narrow)


def select(cond: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """a where `cond` holds, else b."""
    mask, text = llvm_type(cond.ty), llvm_type(a.ty)
    line = f"select {mask} {cond.text}, {text} {a.text}, {text} {b.text}"
    return Lanes(a.e, a.e.op(line), a.ty)


def power_of_two(n: Lanes) -> Lanes:
    """2^n for i64 n in -1022..1023, as f64."""
    return ((n + 1023) << 52).bits(f64)


def poly(x: Lanes, coefficients: tuple[float, ...], fused: bool = True) -> Lanes:
    """Horner, highest power first: by fma, or by multiply and add."""
    value = x.const(coefficients[0])
    for c in coefficients[1:]:
        value = value.fma(x, c) if fused else value * x + c
    return value
