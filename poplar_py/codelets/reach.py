"""How far vertices reach into their fields, from their state and sizes alone.

An interval for every integer of the codelet IR, as NumPy arrays over the vertices of a table, gives
the least and the largest element of every field that a vertex may touch. Loops are walked twice:
once to see what a round adds to the numbers it carries on, once with the range those have over all
rounds. Both ways of a branch are walked, each with what the condition says of a number. Where data
decide an index, its interval is all that a loaded number may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poplar_py.codelets.codelet_ir import I32, CodeletIR, Expr, Stmt, Ty, assigned_names, walk_stmts
from poplar_py.codelets.depth import deep
from poplar_py.codelets.intervals import (
    ANY,
    Interval,
    Number,
    added,
    bounded_product,
    cast_interval,
    compute,
    in_type,
    join,
    of_type,
    only_where,
    total_rounds,
)

__all__ = ["Reach", "Sizes", "reach_of"]

Array = np.ndarray[Any, Any]
MOST_STATEMENTS = 20_000
"""Statements walked: every level of loops doubles them, and a file may nest as it likes."""
_FLOW = frozenset("while loop block leave break continue".split())


@dataclass
class Sizes:
    """Of every vertex, int64[n]: ``state`` values; ``count``: elements of a run or runs of a list;
    ``inner``: least and most elements of the runs of a list (missing: the table does not say)."""

    n: int
    state: dict[str, Array]
    count: dict[str, Array]
    inner: dict[str, tuple[Array, Array]]


@dataclass
class Reach:
    """``low``, ``high`` int64[n] by field: the first element touched, and the one after the last
    (for a list, of any of its runs); ``known`` bool[n]: whether that holds; ``rounds`` int64[n]: at
    most so many of a nest of loops."""

    low: dict[str, Array]
    high: dict[str, Array]
    known: Array
    rounds: Array


class _Unknown(Exception):
    """The codelet does something that this account does not follow."""


@deep
def reach_of(ir: CodeletIR, sizes: Sizes) -> Reach | None:
    """The reach of every vertex, or None for a codelet whose flow cannot be followed."""
    body = list(ir.body)
    if body and body[-1].op == "return":
        body.pop()
    if any(s.op in _FLOW or s.op == "return" for s in walk_stmts(body)):
        return None
    walk = _Walk(ir, sizes)
    try:
        walk.run(body)
    except _Unknown:
        return None
    return walk.reach


@dataclass(frozen=True)
class _Ref:
    """A run: the field it belongs to."""

    name: str


@dataclass
class _Walk:
    ir: CodeletIR
    sizes: Sizes
    env: dict[str, Interval | _Ref] = field(default_factory=dict[str, "Interval | _Ref"])
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    active: Number = True
    recording: bool = True
    rounds: Number = 1
    left: int = MOST_STATEMENTS

    def __post_init__(self) -> None:
        self.fields = {f.name: f for f in self.ir.fields}
        n = self.sizes.n
        names = [f.name for f in self.ir.fields if f.kind != "state" or f.rank]
        self.reach = Reach(
            {k: np.zeros(n, np.int64) for k in names},
            {k: np.zeros(n, np.int64) for k in names},
            np.ones(n, np.bool_),
            np.ones(n, np.int64),
        )

    def run(self, body: list[Stmt]) -> None:
        if self.ir.multi:
            self.env[self.ir.worker] = Interval(0, 5)
        self.block(body)

    # ------------------------------------------------------------ statements
    def block(self, body: list[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Unknown
        if s.op == "assign":
            self.env[str(s.attr[0])] = (
                self.ref(s.args[0]) if s.args[0].ty.ref else self.value(s.args[0])
            )
        elif s.op == "array":
            assert s.ty is not None
            self.arrays[str(s.attr[0])] = int(s.attr[1]), s.ty.lanes
        elif s.op == "astore":
            self.in_array(str(s.attr[0]), s.args[0], s.args[1].ty.lanes)
            self.value(s.args[1])
        elif s.op == "store":
            self.value(s.args[2])
            self.touch(s.args[0], s.args[1], s.args[2].ty.lanes, s.args[3:])
        elif s.op == "if":
            self.branch(s)
        elif s.op == "for":
            self.loop(s)
        elif s.op in ("abort", "setstate"):
            self.value(s.args[0])
        elif s.op == "prefetch":  # where a hint points to does not matter; see also check
            self.ref(s.args[0])
            for a in s.args[1:]:
                self.value(a)
        else:
            raise _Unknown

    def branch(self, s: Stmt) -> None:
        test, active, before = self.value(s.args[0]), self.active, dict(self.env)
        self.active = np.logical_and(active, test.high > 0)
        self.assume(s.args[0], True)
        self.block(s.body)
        first, self.env = self.env, before
        self.active = np.logical_and(active, test.low < 1)
        self.assume(s.args[0], False)
        self.block(s.orelse)
        self.active = active
        names = first.keys() & self.env.keys()
        self.env = {n: _met(first[n], self.env[n]) for n in names if not n.startswith("@")}

    def loop(self, s: Stmt) -> None:
        """Rounds of the body: first what one adds, then all of them."""
        start, stop = self.value(s.args[0]), self.value(s.args[1])
        name, step = str(s.attr[0]), int(s.attr[1])
        mark = f" of loop {self.left}"  # no two loops on the way have walked as far
        index, rounds = total_rounds(start, stop, step)
        index = in_type(index, I32)
        outer, active, recording, before = self.env, self.active, self.recording, self.rounds
        changed = sorted(assigned_names(s.body) & outer.keys())
        self.rounds = bounded_product(before, np.maximum(rounds, 1))
        self.active = np.logical_and(active, rounds > 0)
        if self.recording:
            most = self.reach.rounds
            np.maximum(most, self.rounds, out=most, where=self.active)
        self.recording = False
        self.env = {**outer, **{n: _carried(outer[n], n + mark) for n in changed}, name: index}
        self.block(s.body)
        after = self.env
        self.recording = recording
        before_last = np.maximum(rounds - 1, 0)
        begin = {n: _over(outer[n], after[n], n + mark, before_last) for n in changed}
        self.env = {**outer, **begin, name: index}
        self.block(s.body)
        end = {n: _over(outer[n], self.env[n], n + mark, rounds) for n in changed}
        self.env = {**outer, **end}
        self.env.pop(name, None)
        self.active, self.rounds = active, before

    def assume(self, e: Expr, holds: bool) -> None:
        """Narrow what a condition compares with something."""
        if e.op in (("and", "andalso") if holds else ("or", "orelse")):
            for a in e.args:
                self.assume(a, holds)
            return
        if e.op == "not":
            self.assume(e.args[0], not holds)
            return
        if e.op not in _SWAPPED or e.args[0].ty.lanes > 1:
            return
        a, b = e.args
        op = e.op if holds else _OPPOSITE[e.op]
        self.narrow(a, op, b)
        self.narrow(b, _SWAPPED[op], a)

    def narrow(self, e: Expr, op: str, other: Expr) -> None:
        name = {"local": "", "state": "@"}.get(e.op)
        if name is None or not e.ty.dtype.is_integer or not other.ty.dtype.is_integer:
            return
        v, bound = self.value(e), self.value(other)
        if not v.base and not bound.base:
            found = only_where(v, op, bound)
            self.env[name + str(e.attr[0])] = found
            self.active = np.logical_and(self.active, found.low <= found.high)

    # ------------------------------------------------------------ what is touched
    def ref(self, e: Expr) -> _Ref:
        """The field of a run; the number of a run of a list must lie inside the list."""
        if e.op == "field":
            return _Ref(str(e.attr[0]))
        if e.op == "row":
            name, j = str(e.attr[0]), self.value(e.args[0])
            self.need((j.low >= 0) & (j.high < self.sizes.count[name]), j)
            return _Ref(name)
        found = self.env.get(str(e.attr[0]))
        if not isinstance(found, _Ref):
            raise _Unknown
        return found

    def touch(self, ref: Expr, index: Expr, lanes: int, count: tuple[Expr, ...]) -> None:
        """Elements index .. index + lanes - 1, or the first `count` of them."""
        name, i = self.ref(ref).name, self.value(index)
        some: Number = self.active
        extent: Number = lanes
        if count:
            c = self.value(count[0])
            extent = np.clip(c.high, 0, lanes)
            some = np.logical_and(some, c.high > 0)
        self.need(True, i)
        if not self.recording:
            return
        low, high = self.reach.low[name], self.reach.high[name]
        np.minimum(low, i.low, out=low, where=some)
        np.maximum(high, i.high + extent, out=high, where=some)

    def in_array(self, name: str, index: Expr, lanes: int) -> None:
        size, own = self.arrays[name]
        i = self.value(index)
        room = size - (0 if lanes == own else lanes - 1)
        self.need((i.low >= 0) & (i.high < room), i)

    def need(self, condition: Number, v: Interval) -> None:
        """What must hold of the vertices that get here."""
        if self.recording:
            fine = np.logical_and(condition, not v.base)
            self.reach.known &= np.logical_or(fine, np.logical_not(self.active))

    # ------------------------------------------------------------ numbers
    def value(self, e: Expr) -> Interval:
        match e.op:
            case "const":
                return Interval(int(e.attr[0]), int(e.attr[0])) if _whole(e.ty) else ANY
            case "local":
                found = self.env.get(str(e.attr[0]))
                return found if isinstance(found, Interval) else ANY
            case "state":
                return self.state(e)
            case "nrows":
                return _exact(self.sizes.count.get(str(e.attr[0])))
            case "len":
                return self.length(self.ref(e.args[0]).name, e.args[0])
            case "load" | "gather":
                lanes = e.ty.lanes if e.op == "load" else 1
                self.touch(e.args[0], e.args[1], lanes, e.args[2:])
                return of_type(e.ty)
            case "aload":
                self.in_array(str(e.attr[0]), e.args[0], e.ty.lanes)
                return of_type(e.ty)
            case "iota":
                return Interval(0, e.ty.lanes - 1)
            case "cast" | "splat" | "extract" | "insert" | "shuffle":
                return self.moved(e)
            case _:
                args = [self.value(a) for a in e.args]
                return compute(e, args) if _whole(e.ty) else ANY

    def moved(self, e: Expr) -> Interval:
        """The same number, or one of several, in another form."""
        args = [self.value(a) for a in e.args]
        if e.op == "cast":
            return cast_interval(args[0], e.args[0].ty, e.ty)
        out = args[0]
        for a in args[1:]:
            out = join(out, a)
        return out if _whole(e.ty) else ANY

    def state(self, e: Expr) -> Interval:
        name = str(e.attr[0])
        found = self.env.get("@" + name)
        if isinstance(found, Interval):
            return found
        known = self.sizes.state.get(name)
        return of_type(e.ty) if known is None or not _whole(e.ty) else _exact(known)

    def length(self, name: str, ref: Expr) -> Interval:
        if self.fields[name].rank == 2 or ref.op != "field":
            found = self.sizes.inner.get(name)
            return ANY if found is None else Interval(*found)
        return _exact(self.sizes.count.get(name))


def _whole(ty: Ty) -> bool:
    return ty.dtype.is_integer or ty.dtype.kind == "b"


def _exact(values: Array | None) -> Interval:
    return ANY if values is None else Interval(values, values)


def _carried(v: Interval | _Ref, name: str) -> Interval | _Ref:
    """A number as what it was when a round began."""
    return v if isinstance(v, _Ref) else Interval(0, 0, name)


def _over(
    entry: Interval | _Ref, after: Interval | _Ref, base: str, rounds: Number
) -> Interval | _Ref:
    """The range of a number after 0 .. rounds rounds; ``base``: as what it began a round."""
    if isinstance(entry, _Ref) or isinstance(after, _Ref):
        if entry != after:
            raise _Unknown
        return entry
    if after.base == base:
        return added(entry, after.low, after.high, rounds)
    return join(entry, after)


def _met(a: Interval | _Ref, b: Interval | _Ref) -> Interval | _Ref:
    if isinstance(a, _Ref) or isinstance(b, _Ref):
        if a != b:
            raise _Unknown
        return a
    return join(a, b)


_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
