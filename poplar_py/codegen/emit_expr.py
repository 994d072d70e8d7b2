"""Codelet expressions to LLVM text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from poplar_py.codegen.emit_core import const_text, llvm_type, mangle, memory_type, scalar_type
from poplar_py.codelets.codelet_ir import Expr, Ty
from poplar_py.types import bool_, i32, u8

if TYPE_CHECKING:
    from poplar_py.codegen.emit import Kernel

__all__ = ["HANDLERS", "address", "emit_expr", "index64", "reference"]


def emit_expr(k: Kernel, e: Expr) -> str:
    """The SSA value of an expression."""
    return HANDLERS[e.op](k, e)


def index64(k: Kernel, e: Expr) -> tuple[str | None, int]:
    """An index as i64: (variable part or None, constant part). Exact: no wrap at 32 bits."""
    if e.op == "const":
        return None, int(e.attr[0])
    if e.op == "local" and e.attr[0] in k.counters:
        return k.e.env[str(e.attr[0])], 0
    if e.op == "len":
        return reference(k, e.args[0])[1], 0
    if e.op == "nrows":
        return k.row_count(str(e.attr[0])), 0
    if e.op in ("add", "sub") and e.ty.dtype.is_integer:
        return _index_sum(k, e)
    if e.op in ("mul", "shl") and e.ty.dtype.is_integer:
        found = _index_product(k, e)
        if found is not None:
            return found
    if e.op == "cast" and e.args[0].ty.dtype.is_integer and e.ty.dtype.is_integer:
        inner = e.args[0].ty.dtype
        if e.ty.dtype.size >= inner.size and (e.ty.dtype.kind == inner.kind or inner.kind == "u"):
            return index64(k, e.args[0])
    value, d = emit_expr(k, e), e.ty.dtype
    if d.size == 8:
        return value, 0
    extend = "sext" if d.kind == "i" else "zext"
    return k.e.op(f"{extend} {scalar_type(d)} {value} to i64"), 0


def _index_sum(k: Kernel, e: Expr) -> tuple[str | None, int]:
    a, ca = index64(k, e.args[0])
    b, cb = index64(k, e.args[1])
    if e.op == "add":
        if a is None or b is None:
            return (b if a is None else a), ca + cb
        return k.e.op(f"add i64 {a}, {b}"), ca + cb
    if b is None:
        return a, ca - cb
    return k.e.op(f"sub i64 {a or 0}, {b}"), ca - cb


def _index_product(k: Kernel, e: Expr) -> tuple[str | None, int] | None:
    a, ca = index64(k, e.args[0])
    if e.op == "shl":
        if e.args[1].op != "const":
            return None
        b, cb = None, 1 << (int(e.args[1].attr[0]) & (e.ty.dtype.bits - 1))
    else:
        b, cb = index64(k, e.args[1])
    if a is None and b is None:
        return None, ca * cb
    if b is None:
        return _scaled(k, a, cb), ca * cb
    if a is None:
        return _scaled(k, b, ca), ca * cb
    x = k.e.op(f"add i64 {a}, {ca}") if ca else a
    y = k.e.op(f"add i64 {b}, {cb}") if cb else b
    return k.e.op(f"mul i64 {x}, {y}"), 0


def _scaled(k: Kernel, value: str | None, factor: int) -> str | None:
    if value is None or factor == 0:
        return None
    return value if factor == 1 else k.e.op(f"mul i64 {value}, {factor}")


def whole_index(k: Kernel, e: Expr) -> str:
    """An index as one i64 value."""
    value, constant = index64(k, e)
    if value is None:
        return str(constant)
    return value if constant == 0 else k.e.op(f"add i64 {value}, {constant}")


def reference(k: Kernel, e: Expr) -> tuple[str, str | None]:
    """Pointer and size (i64, None when unknown) of a run of elements."""
    if e.op == "field":
        name = str(e.attr[0])
        return k.field_pointer(name), k.field_size(name)
    if e.op == "local":
        name = str(e.attr[0])
        return k.e.env[name + "#p"], k.e.env.get(name + "#n")
    assert e.op == "row"
    return k.row_pointer(str(e.attr[0]), e.args[0])


def address(k: Kernel, ref: Expr, index: Expr, lanes: int | str = 1) -> str:
    """The address of element `index`; checked code checks that `lanes` elements lie inside."""
    pointer, size = reference(k, ref)
    if k.checked:
        k.check_bounds(ref, pointer, size, whole_index(k, index), lanes)
    variable, constant = index64(k, index)
    scalar = memory_type(Ty(ref.ty.dtype))
    if variable is not None:
        pointer = k.e.op(f"getelementptr {scalar}, ptr {pointer}, i64 {variable}")
    if constant:
        offset = constant * ref.ty.dtype.size
        pointer = k.e.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")
    return pointer


# ---------------------------------------------------------------- leaves and memory


def _const(k: Kernel, e: Expr) -> str:
    return const_text(e.attr[0], e.ty)


def _local(k: Kernel, e: Expr) -> str:
    name = str(e.attr[0])
    value = k.e.env[name]
    if name in k.counters and e.ty.dtype.size < 8:
        return k.e.op(f"trunc i64 {value} to {scalar_type(e.ty.dtype)}")
    return value


def _iota(k: Kernel, e: Expr) -> str:
    return "<" + ", ".join(f"i32 {i}" for i in range(e.ty.lanes)) + ">"


def _splat(k: Kernel, e: Expr) -> str:
    return broadcast(k, emit_expr(k, e.args[0]), e.ty)


def broadcast(k: Kernel, value: str, ty: Ty) -> str:
    vector, scalar = llvm_type(ty), scalar_type(ty.dtype)
    one = k.e.op(f"insertelement {vector} poison, {scalar} {value}, i32 0")
    mask = f"<{ty.lanes} x i32> zeroinitializer"
    return k.e.op(f"shufflevector {vector} {one}, {vector} poison, {mask}")


def _state(k: Kernel, e: Expr) -> str:
    return k.state_value(str(e.attr[0]))


def _len(k: Kernel, e: Expr) -> str:
    _, size = reference(k, e.args[0])
    assert size is not None
    return k.e.op(f"trunc i64 {size} to i32")


def _nrows(k: Kernel, e: Expr) -> str:
    return k.e.op(f"trunc i64 {k.row_count(str(e.attr[0]))} to i32")


def _load(k: Kernel, e: Expr) -> str:
    ty = e.ty
    if len(e.args) == 3:
        return _masked_load(k, e)
    pointer = address(k, e.args[0], e.args[1], ty.lanes)
    value = k.e.raw(f"load {memory_type(ty)}, ptr {pointer}, align {ty.dtype.size}")
    return from_memory(k, value, ty)


def from_memory(k: Kernel, value: str, ty: Ty) -> str:
    if ty.dtype is not bool_:
        return value
    return k.e.op(f"icmp ne {memory_type(ty)} {value}, {const_text(0, Ty(u8, ty.lanes))}")


def to_memory(k: Kernel, value: str, ty: Ty) -> str:
    if ty.dtype is not bool_:
        return value
    return k.e.op(f"zext {llvm_type(ty)} {value} to {memory_type(ty)}")


def lane_mask(k: Kernel, count: str, lanes: int) -> str:
    """<lanes x i1>: lane number below `count` (i64, 0..lanes)."""
    narrow = Ty(i32, lanes)
    small = k.e.op(f"trunc i64 {count} to i32")
    every = broadcast(k, small, narrow)
    numbers = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
    return k.e.op(f"icmp slt {llvm_type(narrow)} {numbers}, {every}")


def clamped_count(k: Kernel, e: Expr, lanes: int) -> str:
    """The lane count of a partial access, at least 0 and at most `lanes`."""
    count = whole_index(k, e)
    if not count.startswith("%"):
        return str(max(0, min(int(count), lanes)))
    low = k.e.intrinsic("smax", "i64", count, "0")
    return k.e.intrinsic("smin", "i64", low, str(lanes))


def _masked_load(k: Kernel, e: Expr) -> str:
    ty = e.ty
    count = clamped_count(k, e.args[2], ty.lanes)
    pointer = address(k, e.args[0], e.args[1], count)
    vector, mask_type = memory_type(ty), f"<{ty.lanes} x i1>"
    mask = lane_mask(k, count, ty.lanes)
    name = f"llvm.masked.load.{mangle(vector)}.p0"
    k.e.declares.add(f"declare {vector} @{name}(ptr, {mask_type}, {vector})")
    args = f"ptr align {ty.dtype.size} {pointer}, {mask_type} {mask}, {vector} zeroinitializer"
    return from_memory(k, k.e.raw(f"call {vector} @{name}({args})"), ty)


def _gather(k: Kernel, e: Expr) -> str:
    """Lane by lane: the same on every CPU."""
    ref, index = e.args
    pointer, size = reference(k, ref)
    indices, ity = emit_expr(k, index), index.ty
    vector, scalar = memory_type(e.ty), memory_type(Ty(e.ty.dtype))
    extend = "sext" if ity.dtype.kind == "i" else "zext"
    result = "poison"
    for lane in range(e.ty.lanes):
        one = k.e.op(f"extractelement {llvm_type(ity)} {indices}, i32 {lane}")
        if ity.dtype.size < 8:
            one = k.e.op(f"{extend} {scalar_type(ity.dtype)} {one} to i64")
        if k.checked:
            k.check_bounds(ref, pointer, size, one, 1)
        at = k.e.op(f"getelementptr {scalar}, ptr {pointer}, i64 {one}")
        value = k.e.raw(f"load {scalar}, ptr {at}, align {e.ty.dtype.size}")
        result = k.e.op(f"insertelement {vector} {result}, {scalar} {value}, i32 {lane}")
    return from_memory(k, result, e.ty)


def _aload(k: Kernel, e: Expr) -> str:
    name = str(e.attr[0])
    array = k.arrays[name]
    if array.registers:
        return k.e.env[f"{name}#{int(e.args[0].attr[0])}"]
    pointer = k.array_address(array, e.args[0], e.ty.lanes)
    value = k.e.raw(f"load {memory_type(e.ty)}, ptr {pointer}, align {array.align}")
    return from_memory(k, value, e.ty)


HANDLERS: dict[str, Callable[[Kernel, Expr], str]] = {
    "const": _const,
    "local": _local,
    "iota": _iota,
    "splat": _splat,
    "state": _state,
    "len": _len,
    "nrows": _nrows,
    "load": _load,
    "gather": _gather,
    "aload": _aload,
}
