"""Codelet expressions to LLVM text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from poplar_py.codegen import mathlib
from poplar_py.codegen.emit_core import const_text, llvm_type, mangle, memory_type, scalar_type
from poplar_py.codegen.lanes import Lanes
from poplar_py.codelets.codelet_ir import BINARY, COMPARE, UNARY, Expr, Ty
from poplar_py.types import bf16, bool_, f16, f32, f64, i32, u8

if TYPE_CHECKING:
    from poplar_py.codegen.emit import Kernel

__all__ = ["address", "emit_expr", "index64", "reference"]


def emit_expr(k: Kernel, e: Expr) -> str:
    """The SSA value of an expression."""
    handler = _HANDLERS.get(e.op)
    if handler is not None:
        return handler(k, e)
    if e.op in BINARY:
        return _binary(k, e)
    if e.op in COMPARE:
        return _compare(k, e)
    assert e.op in UNARY, e.op
    return _unary(k, e)


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


# ---------------------------------------------------------------- conversions


def _cast(k: Kernel, e: Expr) -> str:
    return convert(k, emit_expr(k, e.args[0]), e.args[0].ty, e.ty)


def convert(k: Kernel, value: str, src: Ty, dst: Ty) -> str:
    """Numeric conversion, lane by lane."""
    a, b, s, d = src.dtype, dst.dtype, llvm_type(src), llvm_type(dst)
    if a is bf16:
        return convert(k, mathlib.bf16_to_f32(k.e, value, src.lanes), Ty(f32, src.lanes), dst)
    if a is b:
        return value
    if b is bf16 or (b is f16 and a is f64):
        return _narrow(k, value, src, dst)
    if b is bool_:
        if a.is_float:
            return k.e.op(f"fcmp une {s} {value}, {const_text(0, src)}")
        return k.e.op(f"icmp ne {s} {value}, {const_text(0, src)}")
    if a is bool_:
        return k.e.op(f"{'uitofp' if b.is_float else 'zext'} {s} {value} to {d}")
    if a.is_float and b.is_float:
        return k.e.op(f"{'fpext' if b.size > a.size else 'fptrunc'} {s} {value} to {d}")
    if a is f32 and src.lanes > 1 and (b.size < 4 or b is i32):
        return Lanes(k.e, value, src).saturated(b).text
    if a.is_float:
        sat = "fptosi.sat" if b.kind == "i" else "fptoui.sat"
        return k.e.call(d, f"llvm.{sat}.{mangle(d)}.{mangle(s)}", f"{s} {value}")
    if b is f16:
        # exact below 2^24, infinite above 65504: the step over f32 rounds once
        wide = Ty(f32, src.lanes)
        return convert(k, convert(k, value, src, wide), wide, dst)
    if b.is_float:
        return k.e.op(f"{'sitofp' if a.kind == 'i' else 'uitofp'} {s} {value} to {d}")
    if a.size == b.size:
        return value
    if a.size > b.size:
        return k.e.op(f"trunc {s} {value} to {d}")
    return k.e.op(f"{'sext' if a.kind == 'i' else 'zext'} {s} {value} to {d}")


def _narrow(k: Kernel, value: str, src: Ty, dst: Ty) -> str:
    """To bf16, or f64 to f16: one rounding, by an odd step over f32."""
    if src.dtype.is_integer or src.dtype is bool_:
        value, src = convert(k, value, src, Ty(f64, src.lanes)), Ty(f64, src.lanes)
    if src.dtype is f64:
        value, src = mathlib.f64_to_f32_odd(k.e, value, src.lanes), Ty(f32, src.lanes)
    if dst.dtype is bf16:
        return mathlib.f32_to_bf16(k.e, convert(k, value, src, Ty(f32, src.lanes)), src.lanes)
    return convert(k, value, src, dst)


def _bitcast(k: Kernel, e: Expr) -> str:
    a, b = llvm_type(e.args[0].ty), llvm_type(e.ty)
    value = emit_expr(k, e.args[0])
    return value if a == b else k.e.op(f"bitcast {a} {value} to {b}")


# ---------------------------------------------------------------- lanes


def _extract(k: Kernel, e: Expr) -> str:
    vector = e.args[0]
    return k.e.op(f"extractelement {llvm_type(vector.ty)} {emit_expr(k, vector)}, i32 {e.attr[0]}")


def _insert(k: Kernel, e: Expr) -> str:
    v, s = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    scalar = scalar_type(e.ty.dtype)
    return k.e.op(f"insertelement {llvm_type(e.ty)} {v}, {scalar} {s}, i32 {e.attr[0]}")


def _shuffle(k: Kernel, e: Expr) -> str:
    a, b = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    return shuffle(k, llvm_type(e.args[0].ty), a, b, [int(i) for i in e.attr])


def shuffle(k: Kernel, vector: str, a: str, b: str, lanes: list[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in lanes)
    return k.e.op(f"shufflevector {vector} {a}, {vector} {b}, <{len(lanes)} x i32> <{mask}>")


def _reduce(k: Kernel, e: Expr) -> str:
    """Fold the upper half onto the lower one until one lane is left."""
    op = {"add": "add", "mul": "mul", "min": "min", "max": "max"}[e.op.removeprefix("reduce_")]
    value, ty = emit_expr(k, e.args[0]), e.args[0].ty
    while ty.lanes > 1:
        half, vector = Ty(ty.dtype, ty.lanes // 2), llvm_type(ty)
        first = list(range(half.lanes))
        low = shuffle(k, vector, value, "poison", first)
        high = shuffle(k, vector, value, "poison", [i + half.lanes for i in first])
        if half.lanes == 1:
            low, high = _lane0(k, low, half), _lane0(k, high, half)
        value, ty = binary_op(k, op, low, high, half), half
    return value


def _lane0(k: Kernel, value: str, ty: Ty) -> str:
    return k.e.op(f"extractelement <1 x {scalar_type(ty.dtype)}> {value}, i32 0")


# ---------------------------------------------------------------- arithmetic


def _binary(k: Kernel, e: Expr) -> str:
    a, b = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    if e.op in ("quot", "rem", "floordiv", "mod") and e.ty.dtype.is_integer:
        return k.int_division(e, a, b)
    return binary_op(k, e.op, a, b, e.ty)


_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fmod": "frem"}


def binary_op(k: Kernel, op: str, a: str, b: str, ty: Ty) -> str:
    text, d = llvm_type(ty), ty.dtype
    if op in ("min", "max", "fmin", "fmax"):
        return min_max(k, op, a, b, ty)
    if d.is_float:
        if op in _FLOAT:
            return k.e.op(f"{_FLOAT[op]} {text} {a}, {b}")
        if op == "copysign":
            return k.e.intrinsic("copysign", text, a, b)
        if op == "mod":
            return mathlib.float_mod(k.e, a, b, ty)
        return mathlib.binary(k.e, op, a, b, ty)
    if op in _INT:
        return k.e.op(f"{_INT[op]} {text} {a}, {b}")
    if op in ("shl", "shr"):
        count = k.e.op(f"and {text} {b}, {const_text(d.bits - 1, ty)}")
        name = "shl" if op == "shl" else "ashr" if d.kind == "i" else "lshr"
        return k.e.op(f"{name} {text} {a}, {count}")
    assert op == "pow", op
    return mathlib.int_power(k.e, a, b, ty)


def min_max(k: Kernel, op: str, a: str, b: str, ty: Ty) -> str:
    """Compare and select: the same bits everywhere. min/max give NaN if either operand is NaN,
    fmin/fmax the number. Between equal values (also 0 and -0) the first operand wins."""
    text, d = llvm_type(ty), ty.dtype
    small = op in ("min", "fmin")
    mask = f"<{ty.lanes} x i1>" if ty.lanes > 1 else "i1"
    if d is bool_:
        return k.e.op(f"{'and' if small else 'or'} {text} {a}, {b}")
    if not d.is_float:
        name = ("s" if d.kind == "i" else "u") + ("min" if small else "max")
        return k.e.intrinsic(name, text, a, b)
    test = k.e.op(f"fcmp {'ogt' if small else 'olt'} {text} {a}, {b}")
    best = k.e.op(f"select {mask} {test}, {text} {b}, {text} {a}")
    wins = b if op in ("min", "max") else a
    if not wins.startswith("%") and "0x7FF8" not in wins:
        return best
    unordered = k.e.op(f"fcmp uno {text} {wins}, {wins}")
    return k.e.op(f"select {mask} {unordered}, {text} {b}, {text} {best}")


_ICMP = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FCMP = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def _compare(k: Kernel, e: Expr) -> str:
    a, b = emit_expr(k, e.args[0]), emit_expr(k, e.args[1])
    ty = e.args[0].ty
    text, d = llvm_type(ty), ty.dtype
    if d.is_float:
        return k.e.op(f"fcmp {_FCMP[e.op]} {text} {a}, {b}")
    code = _ICMP[e.op]
    if code not in ("eq", "ne"):
        code = ("s" if d.kind == "i" else "u") + code
    return k.e.op(f"icmp {code} {text} {a}, {b}")


_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


def _unary(k: Kernel, e: Expr) -> str:
    value, ty = emit_expr(k, e.args[0]), e.args[0].ty
    text = llvm_type(ty)
    match e.op:
        case "neg":
            if ty.dtype.is_float:
                return k.e.op(f"fneg {text} {value}")
            return k.e.op(f"sub {text} {const_text(0, ty)}, {value}")
        case "not" | "inv":
            return k.e.op(f"xor {text} {value}, {const_text(_ones(ty), ty)}")
        case "abs":
            if ty.dtype.is_float:
                return k.e.intrinsic("fabs", text, value)
            return k.e.call(text, f"llvm.abs.{mangle(text)}", f"{text} {value}", "i1 false")
        case "sqrt":
            return k.e.intrinsic("sqrt", text, value)
        case "isnan":
            return k.e.op(f"fcmp uno {text} {value}, {value}")
        case "isinf":
            size = k.e.intrinsic("fabs", text, value)
            return k.e.op(f"fcmp oeq {text} {size}, {const_text(float('inf'), ty)}")
        case "popcount":
            return k.e.intrinsic("ctpop", text, value)
        case "clz":
            return k.e.call(text, f"llvm.ctlz.{mangle(text)}", f"{text} {value}", "i1 false")
        case _ if e.op in _ROUNDING:
            return k.e.intrinsic(_ROUNDING[e.op], text, value)
        case _:
            return mathlib.unary(k.e, e.op, value, ty)


def _ones(ty: Ty) -> object:
    return True if ty.dtype is bool_ else -1


def _fma(k: Kernel, e: Expr) -> str:
    a, b, c = (emit_expr(k, x) for x in e.args)
    return k.e.intrinsic("fma", llvm_type(e.ty), a, b, c)


def _select(k: Kernel, e: Expr) -> str:
    c, a, b = (emit_expr(k, x) for x in e.args)
    text = llvm_type(e.ty)
    return k.e.op(f"select {llvm_type(e.args[0].ty)} {c}, {text} {a}, {text} {b}")


# ---------------------------------------------------------------- what branches


def _lazy(k: Kernel, e: Expr) -> str:
    """andalso, orelse, choose: only the wanted operand is evaluated."""
    cond = emit_expr(k, e.args[0])
    yes, no, end = (k.e.block_name(p) for p in ("yes", "no", "end"))
    if e.op == "andalso":
        yes_expr, no_expr = e.args[1], None
    elif e.op == "orelse":
        yes_expr, no_expr = None, e.args[1]
    else:
        yes_expr, no_expr = e.args[1], e.args[2]
    k.e.branch(cond, yes, no)
    parts = [_lazy_arm(k, yes, yes_expr, end, "true"), _lazy_arm(k, no, no_expr, end, "false")]
    k.e.start(end)
    incoming = ", ".join(f"[{value}, %{block}]" for value, block in parts)
    return k.e.raw(f"phi {llvm_type(e.ty)} {incoming}")


def _lazy_arm(
    k: Kernel, label: str, expr: Expr | None, end: str, otherwise: str
) -> tuple[str, str]:
    k.e.start(label)
    k.e.memo.append({})
    value = otherwise if expr is None else emit_expr(k, expr)
    k.e.memo.pop()
    block = k.e.label
    k.e.jump(end)
    return value, block


_HANDLERS: dict[str, Callable[[Kernel, Expr], str]] = {
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
    "cast": _cast,
    "bitcast": _bitcast,
    "extract": _extract,
    "insert": _insert,
    "shuffle": _shuffle,
    "reduce_add": _reduce,
    "reduce_mul": _reduce,
    "reduce_min": _reduce,
    "reduce_max": _reduce,
    "fma": _fma,
    "select": _select,
    "andalso": _lazy,
    "orelse": _lazy,
    "choose": _lazy,
}
