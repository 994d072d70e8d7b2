"""Calls in the vertex language: conversions, the function table, inlined helpers."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from poplar_py.codelets import build
from poplar_py.codelets.arrays import MAX_ARRAY_BYTES
from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, Ty
from poplar_py.codelets.errors import place
from poplar_py.codelets.language_names import MATH_BINARY, MATH_UNARY
from poplar_py.codelets.lower_expr import (
    as_operand,
    condition,
    constant_int,
    index_expr,
    lower_expr,
    lower_operands,
    rvalue,
    to_ref,
    type_value,
)
from poplar_py.codelets.lowering import (
    MAX_INLINE_DEPTH,
    ArrayRef,
    Builtin,
    FieldRef,
    Frame,
    Helper,
    Local,
    Lowering,
    SelfRef,
    Value,
    compile_time,
    guard,
    stored_names,
)
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import DTYPES, DType, bf16, bool_, f16, f32, u32

__all__ = ["lower_call"]


def lower_call(low: Lowering, node: ast.Call) -> Value:
    if node.keywords:
        raise low.fail(node, "keyword arguments are not in the vertex language")
    target = lower_expr(low, node.func)
    if isinstance(target, Helper):
        return inline(low, node, target)
    if isinstance(target, (DType, Ty)):
        _arity(low, node, 1, 1)
        return _convert(low, node, rvalue(low, node.args[0]), target)
    if isinstance(target, Builtin):
        return _builtin(low, node, target.name)
    raise low.fail(node, "this cannot be called")


def _arity(low: Lowering, node: ast.Call, least: int, most: int) -> None:
    if not least <= len(node.args) <= most:
        want = str(least) if least == most else f"{least} to {most}"
        raise low.fail(node, f"{want} arguments are wanted, found {len(node.args)}")


def _builtin(low: Lowering, node: ast.Call, name: str) -> Value:
    if name in MATH_UNARY:
        _arity(low, node, 1, 1)
        return _math_unary(low, node, name, rvalue(low, node.args[0]))
    if name in MATH_BINARY:
        return _math_binary(low, node, name)
    entry = _SPECIAL.get(name)
    if entry is None:
        raise low.fail(node, f"{name} cannot be called here")
    least, most, function = entry
    _arity(low, node, least, most)
    return function(low, node)


_FOLD: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
}


def _math_unary(low: Lowering, node: ast.Call, name: str, value: build.Operand) -> Value:
    if isinstance(value, Expr):
        return build.unary(name, value)
    if name not in _FOLD:
        return build.unary(name, build.as_expr(float(value)))
    try:
        return _FOLD[name](value)
    except (ValueError, OverflowError) as error:
        raise low.fail(node, f"compile-time {name}: {error}") from None


def _math_binary(low: Lowering, node: ast.Call, name: str) -> Value:
    _arity(low, node, 2, 16 if name in ("min", "max") else 2)
    values = lower_operands(low, node.args)
    known = [compile_time(v) for v in values]
    if name in ("min", "max") and all(isinstance(v, int) for v in known):
        return (min if name == "min" else max)(v for v in known if v is not None)
    result = values[0]
    for value in values[1:]:
        result = build.binary(name, result, value)
    return result


def _convert(low: Lowering, node: ast.AST, value: build.Operand, target: DType | Ty) -> Value:
    ty = Ty(target) if isinstance(target, DType) else target
    lanes = value.ty.lanes if isinstance(value, Expr) and isinstance(target, DType) else ty.lanes
    ty = Ty(ty.dtype, lanes)
    if isinstance(value, Expr):
        if ty.dtype is bool_:
            return build.splat(build.to_bool(value), lanes)
        return build.cast(value, ty)
    if isinstance(value, float) and ty.dtype.is_integer:
        value = _saturate(value, ty.dtype)
    return build.const(value, ty)


def _saturate(value: float, dtype: DType) -> int:
    low = -(1 << dtype.bits - 1) if dtype.kind == "i" else 0
    high = (1 << dtype.bits - (dtype.kind == "i")) - 1
    if math.isnan(value):
        return 0
    return low if value <= low else high if value >= high else int(value)


# ---------------------------------------------------------------- special functions


def _len(low: Lowering, node: ast.Call) -> Value:
    value = lower_expr(low, node.args[0])
    if isinstance(value, tuple):
        return len(value)
    if isinstance(value, ArrayRef):
        return value.size
    if isinstance(value, FieldRef) and value.field.rank == 2:
        return Expr("nrows", I32, (), (value.field.name,))
    ref = to_ref(low, node.args[0])
    if not ref.ty.sized:
        raise low.fail(
            node, "a ONE_PTR field has no length", "use a state field for it, or another layout"
        )
    return Expr("len", I32, (ref,))


def _cast(low: Lowering, node: ast.Call) -> Value:
    target = lower_expr(low, node.args[1])
    if not isinstance(target, (DType, Ty)):
        raise low.fail(node.args[1], "cast(x, T) wants a type as its second argument")
    return _convert(low, node, rvalue(low, node.args[0]), target)


def _bitcast(low: Lowering, node: ast.Call) -> Value:
    value = build.as_expr(rvalue(low, node.args[0]))
    return build.bitcast(value, type_value(low, node.args[1]).dtype)


def _fma(low: Lowering, node: ast.Call) -> Value:
    a, b, c = lower_operands(low, node.args)
    return build.fma(a, b, c)


def _select(low: Lowering, node: ast.Call) -> Value:
    c, a, b = lower_operands(low, node.args)
    return build.select(c, a, b)


def _array(low: Lowering, node: ast.Call) -> Value:
    ty = type_value(low, node.args[0])
    size = constant_int(low, node.args[1], "the size of an array")
    if not 1 <= size * ty.nbytes <= MAX_ARRAY_BYTES:
        raise low.fail(
            node,
            f"a local array of {size * ty.nbytes} bytes: 1 to {MAX_ARRAY_BYTES} are possible",
            "use an InOut field as scratch",
        )
    name = low.fresh("array")
    low.arrays[name] = place(low.frame.module.file, node)
    low.emit(Stmt("array", (), (name, size), ty=ty))
    return ArrayRef(name, ty, size)


def _lanes(low: Lowering, node: ast.expr) -> int:
    lanes = constant_int(low, node, "the lane count")
    if not 1 <= lanes <= 64:
        raise low.fail(node, f"{lanes} lanes: 1 to 64 are possible")
    return lanes


def _array_argument(low: Lowering, node: ast.Call, lanes: int | None) -> ArrayRef | None:
    """The first argument when it is a local array of scalars."""
    name = node.args[0]
    found = low.frame.names.get(name.id) if isinstance(name, ast.Name) else None
    if not isinstance(found, ArrayRef):
        return None
    known = compile_time(index_expr(low, node.args[1]))
    if found.ty.lanes > 1:
        raise low.fail(node, "an array of vectors is indexed, not loaded", "write a[i]")
    if known is not None and lanes and not 0 <= known <= found.size - lanes:
        raise low.fail(node.args[1], f"{lanes} lanes at {known} leave the array of {found.size}")
    return found


def _load_lanes(low: Lowering, node: ast.Call, lanes: int, tail: int, widen: bool) -> Expr:
    array = _array_argument(low, node, lanes)
    if array is not None:
        if len(node.args) > tail:
            raise low.fail(node, "an array is loaded by whole vectors")
        index = index_expr(low, node.args[1])
        value = Expr("aload", Ty(array.ty.dtype, lanes), (index,), (array.name,))
        wide = widen and array.ty.dtype in (f16, bf16)
        return build.cast(value, Ty(f32, lanes)) if wide else value
    ref = to_ref(low, node.args[0])
    index = index_expr(low, node.args[1])
    count = index_expr(low, node.args[tail]) if len(node.args) > tail else None
    value = build.load(ref, index, lanes, count)
    if widen and ref.ty.dtype in (f16, bf16):
        value = build.cast(value, Ty(f32, lanes))
    return value


def _load16(low: Lowering, node: ast.Call) -> Value:
    return _load_lanes(low, node, 16, 2, True)


def _load(low: Lowering, node: ast.Call) -> Value:
    return _load_lanes(low, node, _lanes(low, node.args[2]), 3, True)


def _load_raw(low: Lowering, node: ast.Call) -> Value:
    return _load_lanes(low, node, _lanes(low, node.args[2]), 3, False)


def _store_array(low: Lowering, node: ast.Call, array: ArrayRef, lanes: int | None) -> None:
    if len(node.args) > 3:
        raise low.fail(node, "an array is stored by whole vectors")
    index, value = index_expr(low, node.args[1]), build.as_expr(rvalue(low, node.args[2]))
    if value.ty.dtype.is_float and not array.ty.dtype.is_float:
        raise low.fail(node.args[2], f"{value.ty} stored in an array of {array.ty}")
    stored = build.cast(value, Ty(array.ty.dtype, lanes or value.ty.lanes))
    known = compile_time(index)
    if known is not None and not 0 <= known <= array.size - stored.ty.lanes:
        raise low.fail(node.args[1], f"the vector leaves the array of {array.size}")
    low.emit(Stmt("astore", (index, stored), (array.name,)))


def _store_lanes(low: Lowering, node: ast.Call, lanes: int | None) -> Value:
    array = _array_argument(low, node, lanes)
    if array is not None:
        return _store_array(low, node, array, lanes)
    ref = to_ref(low, node.args[0])
    check_writable(low, node.args[0], ref)
    index = index_expr(low, node.args[1])
    value = rvalue(low, node.args[2])
    try:
        stored = build.store_value(ref, value, lanes)
    except PoplarPyError as error:
        raise error.at(place(low.frame.module.file, node.args[2])) from None
    args = [ref, index, stored]
    if len(node.args) > 3:
        args.append(index_expr(low, node.args[3]))
    low.emit(Stmt("store", tuple(args)))
    return None


def _store16(low: Lowering, node: ast.Call) -> Value:
    return _store_lanes(low, node, 16)


def _store(low: Lowering, node: ast.Call) -> Value:
    return _store_lanes(low, node, None)


def check_writable(low: Lowering, node: ast.AST, ref: Expr) -> None:
    """A run that may be written: Output or InOut. (A local alias was checked when made.)"""
    name = str(ref.attr[0])
    if ref.op == "local":
        name = low.row_fields.get(name, "")
    f = low.fields.get(name)
    if f is None or f.kind in ("out", "inout"):
        return
    if f.kind == "state":
        low.assigned_state.add(name)
        return
    raise low.fail(node, f"{name} is an Input: it cannot be written", "make it an InOut or Output")


def _splat(low: Lowering, node: ast.Call) -> Value:
    value = build.as_expr(rvalue(low, node.args[0]))
    return build.splat(value, _lanes(low, node.args[1]) if len(node.args) > 1 else 16)


def _splat16(low: Lowering, node: ast.Call) -> Value:
    value = rvalue(low, node.args[0])
    expr = build.as_expr(value, Ty(f32) if isinstance(value, float) else None)
    return build.splat(expr, 16)


def _num_workers(_low: Lowering, _node: ast.Call) -> Value:
    return 6


def _iota(low: Lowering, node: ast.Call) -> Value:
    return Expr("iota", Ty(u32, _lanes(low, node.args[0]) if node.args else 16))


def _insert(low: Lowering, node: ast.Call) -> Value:
    vector, scalar = lower_operands(low, [node.args[0], node.args[2]])
    lane = constant_int(low, node.args[1], "the lane of a vector")
    vector = build.as_expr(vector)
    if not 0 <= lane < vector.ty.lanes:
        raise low.fail(node, f"lane {lane} of {vector.ty} does not exist")
    value = build.cast(build.as_expr(scalar, Ty(vector.ty.dtype)), Ty(vector.ty.dtype))
    return Expr("insert", vector.ty, (vector, value), (lane,))


def _shuffle(low: Lowering, node: ast.Call) -> Value:
    a, b = lower_operands(low, node.args[:2])
    lanes = lower_expr(low, node.args[2])
    a, b = build.as_expr(a), build.as_expr(b)
    if not isinstance(lanes, tuple) or not 1 <= len(lanes) <= 64:
        raise low.fail(node.args[2], "the lane numbers must be a tuple known at compile time")
    numbers = [compile_time(k) for k in lanes]
    if a.ty != b.ty:
        raise low.fail(node, f"shuffle of {a.ty} and {b.ty}: types must be equal")
    if not all(isinstance(k, int) and 0 <= k < 2 * a.ty.lanes for k in numbers):
        raise low.fail(node.args[2], f"lane numbers must be from 0 to {2 * a.ty.lanes - 1}")
    attr = tuple(int(k) for k in numbers if k is not None)
    return Expr("shuffle", Ty(a.ty.dtype, len(attr)), (a, b), attr)


def _reduce(kind: str) -> Callable[[Lowering, ast.Call], Value]:
    def function(low: Lowering, node: ast.Call) -> Value:
        return build.reduce(kind, build.as_expr(rvalue(low, node.args[0])))

    return function


def _transpose16(low: Lowering, node: ast.Call) -> Value:
    array = lower_expr(low, node.args[0])
    first = constant_int(low, node.args[1], "the first index") if len(node.args) > 1 else 0
    if not isinstance(array, ArrayRef) or array.ty.lanes != 16 or array.size < first + 16:
        raise low.fail(node, "transpose16 wants an array of sixteen vectors of 16 lanes")
    names = [low.fresh("tr") for _ in range(16)]
    rows = [_element(array, first + k) for k in range(16)]
    for step in (1, 2, 4, 8):
        rows = _transpose_step(low, array.ty, names, rows, step)
    for k in range(16):
        low.emit(Stmt("astore", (build.const(first + k, I32), rows[k]), (array.name,)))
    return None


def _element(array: ArrayRef, k: int) -> Expr:
    return Expr("aload", array.ty, (build.const(k, I32),), (array.name,))


def _transpose_step(
    low: Lowering, ty: Ty, names: list[str], rows: list[Expr], step: int
) -> list[Expr]:
    """Swap the off-diagonal step x step blocks of every 2 step x 2 step block."""
    out: list[Expr] = list(rows)
    low_lanes = tuple(j if not j & step else 16 + (j ^ step) for j in range(16))
    high_lanes = tuple(j | step if not j & step else 16 + j for j in range(16))
    for i in range(16):
        if i & step:
            continue
        a, b = rows[i], rows[i | step]
        out[i] = low.temp(Expr("shuffle", ty, (a, b), low_lanes), names[i])
        out[i | step] = low.temp(Expr("shuffle", ty, (a, b), high_lanes), names[i | step])
    return out


def _gather(low: Lowering, node: ast.Call) -> Value:
    ref = to_ref(low, node.args[0])
    index = build.as_expr(rvalue(low, node.args[1]))
    if not index.ty.dtype.is_integer:
        raise low.fail(node.args[1], "gather wants a vector of integers")
    value = Expr("gather", Ty(ref.ty.dtype, index.ty.lanes), (ref, index))
    wide = ref.ty.dtype in (f16, bf16)
    return build.cast(value, Ty(f32, index.ty.lanes)) if wide else value


def _prefetch(low: Lowering, node: ast.Call) -> Value:
    args = [to_ref(low, node.args[0]), index_expr(low, node.args[1])]
    if len(node.args) > 2:
        if args[0].op != "field":
            raise low.fail(node.args[0], "only a rank-1 field of a later vertex can be prefetched")
        args.append(index_expr(low, node.args[2]))
    low.emit(Stmt("prefetch", tuple(args)))
    return None


def _abort_if(low: Lowering, node: ast.Call) -> Value:
    cond = condition(low, node.args[0])
    if cond is not False:
        low.emit(Stmt("abort", (build.as_expr(cond),)))
    return None


def _size_of(low: Lowering, node: ast.Call) -> Value:
    return type_value(low, node.args[0]).nbytes


def _is_float(low: Lowering, node: ast.Call) -> Value:
    return type_value(low, node.args[0]).dtype.is_float


_FLOAT_MAX = {"f16": 65504.0, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}
_FLOAT_MAX["bf16"] = 3.3895313892515355e38


def _limit(which: str) -> Callable[[Lowering, ast.Call], Value]:
    def function(low: Lowering, node: ast.Call) -> Value:
        ty = type_value(low, node.args[0])
        return build.const(_limit_value(ty.dtype, which), ty)

    return function


def _limit_value(d: DType, which: str) -> int | float | bool:
    if which in ("inf", "nan"):
        return math.inf if which == "inf" else math.nan
    if d is bool_:
        return which == "max"
    if d.is_float:
        top = _FLOAT_MAX[d.name]
        return {"max": top, "min": -top, "lowest": -math.inf}[which]
    if which == "max":
        return (1 << d.bits - (d.kind == "i")) - 1
    return -(1 << d.bits - 1) if d.kind == "i" else 0


def _number(name: str) -> Callable[[Lowering, ast.Call], Value]:
    def function(low: Lowering, node: ast.Call) -> Value:
        value = as_operand(low, node, lower_expr(low, node.args[0]))
        if not isinstance(value, Expr):
            return float(value) if name == "f32" else int(value)
        return _convert(low, node, value, DTYPES[name])

    return function


_SPECIAL: dict[str, tuple[int, int, Callable[[Lowering, ast.Call], Value]]] = {
    "len": (1, 1, _len),
    "cast": (2, 2, _cast),
    "bitcast": (2, 2, _bitcast),
    "fma": (3, 3, _fma),
    "select": (3, 3, _select),
    "array": (2, 2, _array),
    "load16": (2, 3, _load16),
    "load": (3, 4, _load),
    "load_raw": (3, 4, _load_raw),
    "store16": (3, 4, _store16),
    "store": (3, 4, _store),
    "store_raw": (3, 4, _store),
    "splat": (1, 2, _splat),
    "splat16": (1, 1, _splat16),
    "iota16": (0, 0, _iota),
    "iota": (0, 1, _iota),
    "insert": (3, 3, _insert),
    "shuffle": (3, 3, _shuffle),
    "sum": (1, 1, _reduce("sum")),
    "sum16": (1, 1, _reduce("sum")),
    "prod": (1, 1, _reduce("prod")),
    "prod16": (1, 1, _reduce("prod")),
    "max16": (1, 1, _reduce("max")),
    "min16": (1, 1, _reduce("min")),
    "reduce_max": (1, 1, _reduce("max")),
    "reduce_min": (1, 1, _reduce("min")),
    "transpose16": (1, 2, _transpose16),
    "gather": (2, 2, _gather),
    "prefetch": (2, 3, _prefetch),
    "abort_if": (1, 1, _abort_if),
    "size_of": (1, 1, _size_of),
    "is_float": (1, 1, _is_float),
    "limit_max": (1, 1, _limit("max")),
    "limit_min": (1, 1, _limit("min")),
    "lowest": (1, 1, _limit("lowest")),
    "inf": (1, 1, _limit("inf")),
    "nan": (1, 1, _limit("nan")),
    "num_workers": (0, 0, _num_workers),
    "float": (1, 1, _number("f32")),
    "int": (1, 1, _number("i32")),
}


# ---------------------------------------------------------------- helpers


def inline(low: Lowering, node: ast.Call, helper: Helper) -> Value:
    """The body of a helper in place of its call. Returns its result."""
    function = helper.node
    if function.name in low.inlining:
        raise low.fail(node, f"{function.name} calls itself: recursion is not possible on a tile")
    if len(low.inlining) >= MAX_INLINE_DEPTH:
        raise low.fail(node, "helpers call each other too deeply")
    from poplar_py.codelets.lower_stmt import lower_body

    frame = Frame({}, helper.module, low.fresh(function.name), None, function.returns)
    _bind_arguments(low, node, helper, frame)
    caller, low.frame = low.frame, frame
    low.inlining.append(function.name)
    saved, low.out = low.out, []
    loops, low.loops = low.loops, 0
    try:
        ends = lower_body(low, function.body)
        if frame.results is not None and not ends:
            raise low.fail(function, f"{function.name} does not return a value on every path")
    finally:
        body, low.out = low.out, saved
        low.inlining.pop()
        low.frame, low.loops = caller, loops
    _emit_inlined(low, frame, body)
    if frame.results is None:
        return None
    values: list[Value] = [Expr("local", r.ty, (), (r.name,)) for r in frame.results]
    return values[0] if len(values) == 1 and not frame.returns_tuple else tuple(values)


def _emit_inlined(low: Lowering, frame: Frame, body: list[Stmt]) -> None:
    """Drop the block when its only `leave` is the last statement."""
    if body and body[-1].op == "leave" and body[-1].attr == (frame.label,):
        body.pop()
    if frame.leaves > 1 or (frame.leaves == 1 and _mentions(body, frame.label)):
        low.emit(Stmt("block", (), (frame.label,), body))
    else:
        low.out.extend(body)


def _mentions(body: list[Stmt], label: str) -> bool:
    from poplar_py.codelets.codelet_ir import walk_stmts

    return any(s.op == "leave" and s.attr == (label,) for s in walk_stmts(body))


def _bind_arguments(low: Lowering, node: ast.Call, helper: Helper, frame: Frame) -> None:
    spec = helper.node.args
    if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs:
        raise low.fail(helper.node, "a helper has plain positional parameters only")
    params = list(spec.args)
    if helper.method:
        frame.names[params.pop(0).arg if params else "self"] = SelfRef()
    least = len(params) - len(spec.defaults)
    if not least <= len(node.args) <= len(params):
        raise low.fail(node, f"{helper.node.name} wants {len(params)} arguments")
    values = [lower_expr(low, a) for a in node.args]
    values += [lower_expr(low, d) for d in spec.defaults[len(node.args) - least :]]
    nodes = [*node.args, *spec.defaults[len(node.args) - least :]]
    for param, value, at in zip(params, values, nodes, strict=True):
        with guard(low, at):
            bound = _bind_argument(low, helper, param, value, at)
            frame.names[param.arg] = bound
            if isinstance(bound, Local):
                frame.ir_names[param.arg] = bound.name
                if not bound.ty.ref:
                    frame.types[param.arg] = bound.ty


def _bind_argument(
    low: Lowering, helper: Helper, param: ast.arg, value: Value, at: ast.expr
) -> Local | Value:
    if isinstance(value, FieldRef) and value.field.rank == 0 and param.annotation is not None:
        value = as_operand(low, at, value)
    if isinstance(value, Expr) and value.ty.ref:
        return low.alias(value, param.arg) if value.op == "row" else value
    if not isinstance(value, (Expr, int, float)):
        return value
    if param.annotation is not None:
        caller, low.frame = low.frame, Frame({}, helper.module)
        annotated = lower_expr(low, param.annotation)
        low.frame = caller
        if isinstance(annotated, (DType, Ty)):
            ty = Ty(annotated) if isinstance(annotated, DType) else annotated
            value = build.cast(build.as_expr(value, ty), ty)
    if not isinstance(value, Expr):
        if param.arg not in stored_names(helper.node):
            return value
        value = build.as_expr(value)
    name = low.fresh(param.arg)
    known = value if value.op == "const" and value.ty.lanes == 1 else None
    low.emit(Stmt("assign", (value,), (name,)))
    return Local(name, value.ty, known if known and isinstance(known.attr[0], int) else None)
