"""Arrays, short vectors and memory in the vertex language."""

from __future__ import annotations

import ast
from collections.abc import Callable

from poplar_py.codelets import build
from poplar_py.codelets.arrays import MAX_ARRAY_BYTES
from poplar_py.codelets.codelet_ir import I32, Expr, Stmt, Ty
from poplar_py.codelets.errors import place
from poplar_py.codelets.lower_expr import (
    as_operand,
    constant_int,
    index_expr,
    lower_expr,
    lower_operands,
    pin,
    rvalue,
    to_ref,
    type_value,
)
from poplar_py.codelets.lowering import (
    ArrayRef,
    Lowering,
    Value,
    compile_time,
)
from poplar_py.diagnostics import PoplarPyError
from poplar_py.types import bf16, f16, f32, u32

__all__ = ["VECTOR_FUNCTIONS", "check_writable"]


def _array(low: Lowering, node: ast.Call) -> Value:
    ty = type_value(low, node.args[0])
    given = lower_expr(low, node.args[1])
    values = list(given) if isinstance(given, tuple) else []
    size = len(values) or constant_int(low, node.args[1], "the size of an array")
    if not 1 <= size * ty.nbytes <= MAX_ARRAY_BYTES:
        raise low.fail(
            node,
            f"a local array of {size * ty.nbytes} bytes: 1 to {MAX_ARRAY_BYTES} are possible",
            "use an InOut field as scratch",
        )
    name = low.fresh("array")
    low.arrays[name] = place(low.frame.module.file, node)
    low.emit(Stmt("array", (), (name, size), ty=ty))
    for i, value in enumerate(values):
        number = build.as_expr(as_operand(low, node.args[1], value), ty)
        low.emit(Stmt("astore", (build.const(i, I32), build.cast(number, ty)), (name,)))
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
        return _widened(value) if widen else value
    ref = to_ref(low, node.args[0])
    index = index_expr(low, node.args[1])
    count = index_expr(low, node.args[tail]) if len(node.args) > tail else None
    value = build.load(ref, index, lanes, count)
    return _widened(value) if widen else value


def _widened(value: Expr) -> Expr:
    """Lanes of f16 and bf16 as f32."""
    narrow = value.ty.dtype in (f16, bf16)
    return build.cast(value, Ty(f32, value.ty.lanes)) if narrow else value


def _load16(low: Lowering, node: ast.Call) -> Value:
    return _load_lanes(low, node, 16, 2, True)


def _load(low: Lowering, node: ast.Call) -> Value:
    return _load_lanes(low, node, _lanes(low, node.args[2]), 3, True)


def _load_raw(low: Lowering, node: ast.Call) -> Value:
    return _load_lanes(low, node, _lanes(low, node.args[2]), 3, False)


def _index_and_value(low: Lowering, node: ast.Call) -> tuple[Expr, build.Operand]:
    """The index and the value of a store, in this order."""
    index = index_expr(low, node.args[1])
    mark = len(low.out)
    value = rvalue(low, node.args[2])
    return pin(low, index, mark) if len(low.out) > mark else index, value


def _store_array(low: Lowering, node: ast.Call, array: ArrayRef, lanes: int | None) -> None:
    if len(node.args) > 3:
        raise low.fail(node, "an array is stored by whole vectors")
    index, operand = _index_and_value(low, node)
    value = build.as_expr(operand)
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
    index, value = _index_and_value(low, node)
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
    return _widened(Expr("gather", Ty(ref.ty.dtype, index.ty.lanes), (ref, index)))


def _prefetch(low: Lowering, node: ast.Call) -> Value:
    args = [to_ref(low, node.args[0]), index_expr(low, node.args[1])]
    if len(node.args) > 2:
        if args[0].op != "field":
            raise low.fail(node.args[0], "only a rank-1 field of a later vertex can be prefetched")
        args.append(index_expr(low, node.args[2]))
    low.emit(Stmt("prefetch", tuple(args)))
    return None


VECTOR_FUNCTIONS: dict[str, tuple[int, int, Callable[[Lowering, ast.Call], Value]]] = {
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
}
