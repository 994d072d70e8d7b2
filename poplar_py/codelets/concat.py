"""Along which fields and state neighbouring vertices of a codelet may become one.

A codelet whose work is one loop over r, in which every index is `a r + b` and nothing goes from one
round to the next, does for two vertices one after the other exactly what one vertex does whose runs
are theirs put together: the same loads, the same arithmetic, the same stores, in the same order.
`concat_of` finds that in the codelet IR. Maps without row or column inputs and fills work on single
elements, so that any cut gives the same bits; those are told by their names.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.codelet_ir import I32, CodeletIR, Expr, Stmt, Ty, assigned_names
from poplar_py.codelets.depth import deep
from poplar_py.codelets.diskcache import cache_folder, read_entry, source_version, write_entry
from poplar_py.types import DTYPES

__all__ = ["Concat", "concat_of", "derive", "numbers"]

Array = np.ndarray[Any, Any]
MAP = "expr::Map<"
FILLS = frozenset({"popops::Fill"})
"""Codelets besides maps that treat every element by itself: out[i] = value."""
_ONE = Expr("const", I32, (), (1,))
_ZERO = Expr("const", I32, (), (0,))


@dataclass(frozen=True)
class Concat:
    """How vertices are put together.

    ``strides``: elements that a field moves on from one round to the next, as an expression over
    state and numbers of runs; other fields must be the same. ``upper``: the bound of the loop,
    ``step`` its step. ``adds``: the state that adds up, "" when the bound comes from lengths.
    ``flat``: rounds are elements and the state is rows and cols.
    """

    strides: dict[str, Expr]
    upper: Expr
    step: int = 1
    adds: str = ""
    flat: bool = False


class _NotPossible(Exception):
    """The codelet does something that depends on where its vertex begins or ends."""


@dataclass(frozen=True)
class _Value:
    """What is known of a value: `slope` per round (None: 0), `pure` as an expression of state and
    sizes (None: data), the names of state and lengths it `needs`; a reference's field."""

    slope: Expr | None = None
    pure: Expr | None = None
    needs: frozenset[str] = frozenset()
    ref: str = ""


_found: dict[str, Concat | None] = {}
_MOST_FOUND = 4096


def concat_of(codelet: Codelet) -> Concat | None:
    """How neighbours of a built-in codelet may be put together, or None; kept by digest."""
    if codelet.digest in _found:
        return _found[codelet.digest]
    if len(_found) >= _MOST_FOUND:
        _found.clear()
    found = _found[codelet.digest] = _by_name(codelet) or _cached(codelet)
    return found


def _by_name(codelet: Codelet) -> Concat | None:
    if codelet.name.partition("<")[0] in FILLS:
        upper = Expr(
            "len", I32, (Expr("field", Ty(codelet.fields[0].dtype, 1, True), (), ("out",)),)
        )
        return Concat({"out": _ONE}, upper)
    if not codelet.name.startswith(MAP):
        return None
    modes = [p.rpartition(":")[2] for p in codelet.name[len(MAP) : -1].split("|")[2:]]
    if not set(modes) <= {"full", "scalar"}:
        return None
    strides = {"out": _ONE, **{f"in{k}": _ONE for k, m in enumerate(modes) if m == "full"}}
    upper = _binary("mul", _state("rows"), _state("cols"))
    return Concat(strides, upper, flat=True)


def _state(name: str) -> Expr:
    return Expr("state", I32, (), (name,))


# ---------------------------------------------------------------------------- the disk cache
def _cached(codelet: Codelet) -> Concat | None:
    """Deriving needs the IR, which takes longer to decode than the answer."""
    folder = cache_folder() / "codelets"
    path = folder / f"{codelet.digest}-{source_version('poplar_py.codelets')[:16]}.concat"
    data = read_entry(path)
    if data is None:
        found = derive(codelet.ir)
        write_entry(path, marshal.dumps(_plain(found), 2))
        return found
    return _restored(marshal.loads(data))


def _plain(c: Concat | None) -> Any:
    if c is None:
        return None
    strides = [(name, _tuple(e)) for name, e in c.strides.items()]
    return strides, _tuple(c.upper), c.step, c.adds


def _restored(data: Any) -> Concat | None:
    if data is None:
        return None
    strides, upper, step, adds = data
    return Concat({name: _expr(e) for name, e in strides}, _expr(upper), step, adds)


def _tuple(e: Expr) -> Any:
    return e.op, e.ty.dtype.name, e.ty.ref, [_tuple(a) for a in e.args], list(e.attr)


def _expr(data: Any) -> Expr:
    op, dtype, ref, args, attr = data
    return Expr(op, Ty(DTYPES[dtype], 1, ref), tuple(_expr(a) for a in args), tuple(attr))


# ---------------------------------------------------------------------------- from the IR
@deep
def derive(ir: CodeletIR) -> Concat | None:
    """How neighbours may be put together as the IR tells, or None."""
    try:
        return _Walk(ir).run()
    except _NotPossible:
        return None


@dataclass
class _Walk:
    ir: CodeletIR
    env: dict[str, _Value] = field(default_factory=dict[str, _Value])
    arrays: set[str] = field(default_factory=set[str])
    slopes: dict[str, Expr | None] = field(default_factory=dict[str, "Expr | None"])
    used: set[str] = field(default_factory=set[str])
    in_loop: bool = False

    def run(self) -> Concat:
        body = list(self.ir.body)
        if body and body[-1].op == "return" and all(a.op == "const" for a in body[-1].args):
            body.pop()
        _require(not self.ir.multi and bool(body) and body[-1].op == "for")
        loop = body.pop()
        for s in body:
            _require(s.op in ("assign", "array"))
            self.statement(s)
        start, upper = (self.value(a) for a in loop.args)
        _require(start.pure is not None and _constant(start.pure) == 0)
        _require(upper.slope is None and upper.pure is not None)
        self.loop(loop)
        assert upper.pure is not None
        return self.result(upper.pure, upper.needs, int(loop.attr[1]))

    def loop(self, loop: Stmt) -> None:
        """The rounds: what they assign is not known when one begins."""
        self.arrays.clear()
        self.in_loop = True
        for name in assigned_names(loop.body):
            self.env.pop(name, None)
        self.env[str(loop.attr[0])] = _Value(slope=_ONE)
        _require(str(loop.attr[0]) not in assigned_names(loop.body))
        self.block(loop.body)

    def result(self, upper: Expr, needs: frozenset[str], step: int) -> Concat:
        strides = {name: s for name, s in self.slopes.items() if s is not None}
        lengths = {n[4:] for n in needs if n.startswith("len:")}
        states = {n[6:] for n in needs if n.startswith("state:")}
        _require(not any(f"len:{name}" in self.used for name in strides))
        if lengths:
            _require(lengths <= set(strides))
            return Concat(strides, upper, step)
        _require(len(states) == 1 and bool(strides))
        adds = next(iter(states))
        _require(f"state:{adds}" not in self.used)
        return Concat(strides, upper, step, adds)

    # ------------------------------------------------------------ statements
    def block(self, body: list[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        if s.op == "assign":
            self.env[str(s.attr[0])] = self.value(s.args[0])
        elif s.op == "array":
            self.arrays.add(str(s.attr[0]))
        elif s.op == "astore":
            _require(str(s.attr[0]) in self.arrays)
            for a in s.args:
                self.use(a)
        elif s.op == "store":
            _require(self.in_loop)
            self.access(s.args[0], s.args[1])
            for a in s.args[2:]:
                self.use(a)
        elif s.op == "if":
            self.branch(s)
        elif s.op == "for":
            self.inner(s)
        else:
            _require(s.op == "prefetch")  # a hint: what it names does not matter

    def branch(self, s: Stmt) -> None:
        self.use(s.args[0])
        before = dict(self.env)
        self.block(s.body)
        first, self.env = self.env, before
        self.block(s.orelse)
        self.env = {n: _met(v, first[n]) for n, v in self.env.items() if n in first}

    def inner(self, s: Stmt) -> None:
        """A loop inside a round: what it changes must move on with r as before."""
        for a in s.args:
            self.use(a)
        names = assigned_names(s.body)
        before = {n: v if n not in names else _data(v) for n, v in self.env.items()}
        self.env = {**before, str(s.attr[0]): _Value()}
        self.block(s.body)
        after = self.env
        self.env = {n: _met(v, after[n]) for n, v in before.items()}

    # ------------------------------------------------------------ expressions
    def use(self, e: Expr) -> None:
        """A value that must be the same wherever the vertex begins."""
        v = self.value(e)
        _require(v.slope is None)
        self.used |= v.needs

    def access(self, ref: Expr, index: Expr) -> None:
        """A load or store: its field moves on by the slope of the index."""
        name, at = self.field(ref), self.value(index)
        self.used |= at.needs
        known = self.slopes.setdefault(name, at.slope)
        _require(known == at.slope)

    def field(self, ref: Expr) -> str:
        if ref.op == "field":
            return str(ref.attr[0])
        if ref.op == "row":
            self.use(ref.args[0])
            return str(ref.attr[0])
        _require(ref.op == "local")
        found = self.env.get(str(ref.attr[0]))
        _require(found is not None and found.ref != "")
        assert found is not None
        return found.ref

    def value(self, e: Expr) -> _Value:
        if e.ty.ref and e.op != "local":
            return _Value(ref=self.field(e))
        match e.op:
            case "const":
                return _Value(pure=e)
            case "local":
                found = self.env.get(str(e.attr[0]))
                if found is None:
                    raise _NotPossible
                return found
            case "state":
                return _Value(pure=e, needs=frozenset({f"state:{e.attr[0]}"}))
            case "nrows":
                return _Value(pure=e)
            case "len":
                name = self.field(e.args[0])
                pure = e if e.args[0].op == "field" else None
                return _Value(pure=pure, needs=frozenset({f"len:{name}"}))
            case "load" | "gather":
                self.access(e.args[0], e.args[1])
                for a in e.args[2:]:
                    self.use(a)
                return _Value()
            case "aload":
                _require(str(e.attr[0]) in self.arrays)
                self.use(e.args[0])
                return _Value()
            case _:
                return self.computed(e)

    def computed(self, e: Expr) -> _Value:
        args = [self.value(a) for a in e.args]
        needs = frozenset[str]().union(*(a.needs for a in args))
        if all(a.slope is None for a in args):
            pures = [a.pure for a in args]
            pure = None
            if e.op in _NUMBERS and e.ty.lanes == 1 and all(p is not None for p in pures):
                pure = Expr(e.op, e.ty, tuple(p for p in pures if p is not None), e.attr)
            return _Value(None, pure, needs)
        _require(e.ty.lanes == 1 and e.ty.dtype.kind in "iu" and e.ty.dtype.size >= 4)
        return _Value(_slope(e, args), None, needs)


def _slope(e: Expr, args: list[_Value]) -> Expr | None:
    """The slope of a sum, a product with something known, or a conversion."""
    if e.op == "cast":
        return args[0].slope
    _require(e.op in ("add", "sub", "mul"))
    a, b = args
    if e.op == "mul":
        _require(a.slope is None or b.slope is None)
        moving, factor = (a, b) if a.slope is not None else (b, a)
        _require(factor.pure is not None)
        assert factor.pure is not None
        assert moving.slope is not None
        return _binary("mul", moving.slope, factor.pure)
    if b.slope is None:
        return a.slope
    out = _binary(e.op, a.slope or _ZERO, b.slope)
    return None if _constant(out) == 0 else out


def _binary(op: str, a: Expr, b: Expr) -> Expr:
    """An operation on expressions of sizes, folded where constants allow."""
    x, y = _constant(a), _constant(b)
    if x is not None and y is not None:
        return Expr("const", I32, (), (int(_NUMBERS[op](x, y)),))
    if op == "mul" and 1 in (x, y):
        return b if x == 1 else a
    if y == 0 and op in ("add", "sub"):
        return a
    return Expr(op, I32, (a, b))


def _constant(e: Expr) -> int | None:
    return int(e.attr[0]) if e.op == "const" else None


def _data(v: _Value) -> _Value:
    """A value that also depends on the round of an inner loop."""
    return _Value(v.slope, None, v.needs, v.ref)


def _met(a: _Value, b: _Value) -> _Value:
    """What is known where two ways meet."""
    if a == b:
        return a
    _require(a.slope == b.slope and a.ref == b.ref)
    return _Value(a.slope, None, a.needs | b.needs, a.ref)


def _require(condition: bool) -> None:
    if not condition:
        raise _NotPossible


# ---------------------------------------------------------------------------- numbers
def numbers(e: Expr, state: dict[str, Array], sizes: dict[str, Array]) -> Array:
    """The value of a stride or bound for every vertex, int64. ``sizes``: elements of a run, or runs
    of a list, by field."""
    if e.op == "const":
        return np.asarray(int(e.attr[0]), np.int64)
    if e.op == "state":
        return state[str(e.attr[0])]
    if e.op == "nrows":
        return sizes[str(e.attr[0])]
    if e.op == "len":
        return sizes[str(e.args[0].attr[0])]
    args = [numbers(a, state, sizes) for a in e.args]
    return args[0] if e.op == "cast" else np.asarray(_NUMBERS[e.op](*args), np.int64)


def _floordiv(a: Any, b: Any) -> Any:
    return a // np.where(np.asarray(b) == 0, 1, b)


_NUMBERS: dict[str, Any] = {
    "cast": None,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": _floordiv,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
}
