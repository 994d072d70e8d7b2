"""What each expression of codelet IR must look like; the walk over a codelet is `codelet_check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from poplar_py.codelets.codelet_ir import BOOL, COMPARE, UNARY, Expr, Field, Ty
from poplar_py.types import bf16, bool_, f16, i32, u32

__all__ = ["EXPRESSIONS", "Checker", "arithmetic"]

_FLOAT_OPS = frozenset(
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh "
    "acosh atanh erf sigmoid floor ceil round trunc isnan isinf div fmod atan2 fmin fmax "
    "copysign".split()
)
_INT_OPS = frozenset("inv popcount clz shl shr quot rem".split())
_LOGIC = frozenset("and or xor not min max".split())


class Checker(Protocol):
    """The walk as the rules see it."""

    fields: dict[str, Field]
    types: dict[str, Ty]

    def need(self, ok: bool, message: str) -> None:
        """Raise unless `ok`."""
        ...

    def index(self, e: Expr) -> None:
        """`e` is a scalar int."""
        ...

    def run_field(self, ref: Expr) -> Field:
        """The field a run belongs to."""
        ...

    def array_access(self, name: str, index: Expr, ty: Ty, defined: set[str]) -> Ty:
        """The type of a local array that may be read or written so."""
        ...


def arithmetic(c: Checker, e: Expr) -> None:
    """One operation on operands of one type."""
    count = 1 if e.op in UNARY else 2
    c.need(len(e.args) == count, f"{e.op} wants {count} operands")
    first = e.args[0].ty
    c.need(all(a.ty == first and not a.ty.ref for a in e.args), f"operands of {e.op} differ")
    d = first.dtype
    to_bool = e.op in COMPARE or e.op in ("isnan", "isinf", "not")
    want = Ty(bool_, first.lanes) if to_bool else first
    c.need(e.ty == want, f"{e.op} gives {want}")
    c.need(d not in (f16, bf16), f"{e.op} of {d}: cast to f32")
    c.need(e.op not in _FLOAT_OPS or d.is_float, f"{e.op} wants floats")
    c.need(e.op not in _INT_OPS or d.is_integer, f"{e.op} wants ints")
    c.need(e.op not in ("and", "or", "xor") or not d.is_float, f"{e.op} wants ints or bools")
    c.need(e.op != "not" or d is bool_, "not wants bools")
    c.need(d is not bool_ or e.op in _LOGIC or e.op in COMPARE, f"{e.op} of bools")
    c.need(e.op != "floordiv" or d.is_integer, "floordiv wants ints")


def _const(c: Checker, e: Expr, _defined: set[str]) -> None:
    value, d = e.attr[0], e.ty.dtype
    c.need(not e.ty.ref and not isinstance(value, str), "a constant is a number")
    if d is bool_:
        c.need(isinstance(value, bool), "a bool is true or false")
    elif d.is_float:
        c.need(not isinstance(value, bool), "a float is a number")
    else:
        c.need(isinstance(value, int) and not isinstance(value, bool), f"{value!r} as {d}")
        low = -(1 << d.bits - 1) if d.kind == "i" else 0
        high = (1 << d.bits - (d.kind == "i")) - 1
        assert isinstance(value, int)
        c.need(low <= value <= high, f"{value} does not fit in {d}")


def _local(c: Checker, e: Expr, defined: set[str]) -> None:
    name = str(e.attr[0])
    c.need(name in defined and name in c.types, f"the local {name} may be unset here")
    known = c.types[name]
    c.need(known == e.ty, f"the local {name} is {known}, not {e.ty}")


def _field_ref(c: Checker, e: Expr, _defined: set[str]) -> None:
    f = c.fields.get(str(e.attr[0]))
    c.need(f is not None and f.rank < 2, f"no run {e.attr[0]}")
    assert f is not None
    c.need(not f.literal, f"{f.name} is a scalar of state")
    c.need(e.ty == Ty(f.dtype, 1, True, not f.one_ptr), f"{f.name} has another type")


def _row(c: Checker, e: Expr, _defined: set[str]) -> None:
    f = c.fields.get(str(e.attr[0]))
    c.need(f is not None and f.rank == 2 and len(e.args) == 1, f"no list of rows {e.attr[0]}")
    assert f is not None
    c.index(e.args[0])
    c.need(e.ty == Ty(f.dtype, 1, True, not f.inner_one_ptr), f"{f.name} has another type")


def _state(c: Checker, e: Expr, _defined: set[str]) -> None:
    f = c.fields.get(str(e.attr[0]))
    ok = f is not None and f.kind == "state" and f.rank == 0 and e.ty == Ty(f.dtype)
    c.need(ok, f"no state {e.attr[0]} of type {e.ty}")


def _len(c: Checker, e: Expr, _defined: set[str]) -> None:
    c.need(len(e.args) == 1 and e.args[0].ty.ref and e.args[0].ty.sized, "len of a sized run")
    c.need(e.ty == Ty(i32), "len gives i32")


def _nrows(c: Checker, e: Expr, _defined: set[str]) -> None:
    f = c.fields.get(str(e.attr[0]))
    c.need(f is not None and f.rank == 2 and e.ty == Ty(i32), f"no list of rows {e.attr[0]}")


def _load(c: Checker, e: Expr, _defined: set[str]) -> None:
    c.need(len(e.args) in (2, 3), "load wants a run and an index")
    c.run_field(e.args[0])
    for index in e.args[1:]:
        c.index(index)
    c.need(e.ty.dtype is e.args[0].ty.dtype and not e.ty.ref, "load gives the run's type")
    c.need(len(e.args) == 2 or e.ty.lanes > 1, "a partial load wants lanes")


def _gather(c: Checker, e: Expr, _defined: set[str]) -> None:
    c.need(len(e.args) == 2, "gather wants a run and indices")
    c.run_field(e.args[0])
    index = e.args[1].ty
    c.need(index.dtype.is_integer and index.lanes == e.ty.lanes > 1, "gather wants int lanes")
    c.need(e.ty.dtype is e.args[0].ty.dtype, "gather gives the run's type")


def _aload(c: Checker, e: Expr, defined: set[str]) -> None:
    c.need(len(e.args) == 1 and len(e.attr) == 1, "aload wants an index")
    c.array_access(str(e.attr[0]), e.args[0], e.ty, defined)


def _splat(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 1 and e.args[0].ty == Ty(e.ty.dtype) and e.ty.lanes > 1
    c.need(ok, "splat of a scalar")


def _iota(c: Checker, e: Expr, _defined: set[str]) -> None:
    c.need(e.ty.dtype in (u32, i32) and e.ty.lanes > 1, "iota gives u32 lanes")


def _cast(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 1 and not e.args[0].ty.ref and e.args[0].ty.lanes == e.ty.lanes
    c.need(ok and not e.ty.ref, "cast of a value")


def _bitcast(c: Checker, e: Expr, defined: set[str]) -> None:
    _cast(c, e, defined)
    a, b = e.args[0].ty.dtype, e.ty.dtype
    c.need(a.size == b.size and bool_ not in (a, b), "bitcast keeps the size")


def _extract(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 1 and len(e.attr) == 1 and type(e.attr[0]) is int
    c.need(ok and e.args[0].ty.lanes > 1, "extract of a vector")
    ok = 0 <= int(e.attr[0]) < e.args[0].ty.lanes and e.ty == Ty(e.args[0].ty.dtype)
    c.need(ok, "the lane does not exist")


def _insert(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 2 and len(e.attr) == 1 and type(e.attr[0]) is int
    ok = ok and e.args[0].ty == e.ty and e.ty.lanes > 1 and e.args[1].ty == Ty(e.ty.dtype)
    c.need(ok and 0 <= int(e.attr[0]) < e.ty.lanes, "insert of a lane")


def _shuffle(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 2 and e.args[0].ty == e.args[1].ty and e.args[0].ty.lanes > 1
    ok = ok and e.ty == Ty(e.args[0].ty.dtype, len(e.attr)) and len(e.attr) > 1
    ok = ok and all(type(k) is int and 0 <= k < 2 * e.args[0].ty.lanes for k in e.attr)
    c.need(ok, "shuffle of two vectors")


def _reduce(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 1 and e.args[0].ty.lanes > 1 and e.ty == Ty(e.args[0].ty.dtype)
    ok = ok and not e.args[0].ty.lanes & (e.args[0].ty.lanes - 1)
    c.need(ok and e.ty.dtype not in (f16, bf16, bool_), "a reduction of lanes")


def _fma(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 3 and all(a.ty == e.ty for a in e.args)
    c.need(ok and e.ty.dtype.is_float and e.ty.dtype not in (f16, bf16), "fma of f32 or f64")


def _select(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 3 and e.args[1].ty == e.ty and e.args[2].ty == e.ty and not e.ty.ref
    lanes = 1 if e.op == "choose" else e.ty.lanes
    c.need(ok and e.args[0].ty == Ty(bool_, lanes), f"{e.op} of two equal types")


def _lazy(c: Checker, e: Expr, _defined: set[str]) -> None:
    ok = len(e.args) == 2 and all(a.ty == BOOL for a in e.args) and e.ty == BOOL
    c.need(ok, f"{e.op} of bools")


EXPRESSIONS: dict[str, Callable[[Checker, Expr, set[str]], None]] = {
    "const": _const,
    "local": _local,
    "field": _field_ref,
    "row": _row,
    "state": _state,
    "len": _len,
    "nrows": _nrows,
    "load": _load,
    "gather": _gather,
    "aload": _aload,
    "splat": _splat,
    "iota": _iota,
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
    "choose": _select,
    "andalso": _lazy,
    "orelse": _lazy,
}
