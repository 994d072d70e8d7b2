"""Random expressions of the vertex language, each of a known type (see `program_maker`)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from poplar_py.types import DTYPES

INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "f32", "f64")
SCALARS = (*INTS, *FLOATS, "bool")
SIZES = {"x": 11, "y": 13, "tab": 5}


def edge_values(rng: np.random.Generator, name: str, shape: int | tuple[()]) -> Any:
    """Random values of a type mixed with its extremes."""
    t = DTYPES[name].numpy
    n = int(np.prod(shape, dtype=np.int64))
    if name == "bool":
        return (rng.random(n) < 0.5).reshape(shape)
    if name in FLOATS:
        pool = [0.0, -0.0, 1.5, -2.5, 0.1, 7e4, -6e4, np.inf, -np.inf, np.nan, 255.5, 6e-8, 3e38]
        with np.errstate(over="ignore"):
            special = np.array(pool).astype(t)
            values = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 6, n)).astype(t)
    else:
        info = np.iinfo(t)
        special = np.array([0, 1, 2, 7, info.min, info.max, info.max - 1], t)
        small = rng.integers(0, 20, n).astype(t)
        values = rng.integers(info.min, info.max, n, dtype=t, endpoint=True)
        values = np.where(rng.random(n) < 0.5, small, values)
    take = rng.random(n) < 0.3
    values[take] = rng.choice(special, int(take.sum()))
    return values.reshape(shape)


class Expressions:
    """Writes expressions of a wanted type over the locals, fields, arrays and helpers in scope."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.counter = 0
        self.loops = 0
        self.locals: dict[str, tuple[str, int]] = {}
        self.loop_vars: list[str] = []
        self.helpers: dict[str, tuple[tuple[str, ...], str]] = {}
        self.methods: dict[str, tuple[tuple[str, ...], str]] = {}
        self.arrays: dict[str, tuple[str, int]] = {}
        self.in_function = self.nested = False
        self.sees_self = True
        self.fields: dict[str, tuple[str, str]] = {}

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def fresh(self, base: str) -> str:
        self.counter += 1
        return f"{base}{self.counter}"

    # ------------------------------------------------------------ expressions
    def literal(self, t: str) -> str:
        if t == "bool":
            return f"bool({self.chance(0.5)})"
        if t in FLOATS:
            return f"{t}({self.rng.choice([0.0, 1.0, -1.5, 0.1, 1000.25, 65519.0, 1e-7])!r})"
        info = np.iinfo(DTYPES[t].numpy)
        pool = [1, 2, 3, 5, 17, int(info.max), int(info.min), int(info.max) // 3]
        return f"{t}({self.rng.choice(pool)})"

    def leaf(self, t: str) -> str:
        forms = [n for n, (k, lanes) in self.locals.items() if k == t and lanes == 1]
        if self.sees_self:
            forms += [
                f"self.{n}[{self.index(SIZES[n])}]" for n, (kind, k) in self.fields.items()
                if k == t and kind in ("edge", "table")
            ]  # fmt: skip
            forms += [
                f"self.{n}" for n, (kind, k) in self.fields.items()
                if k == t and kind in ("state", "constant", "scalar")
            ]  # fmt: skip
            forms += [f"{n}[{self.index(m)}]" for n, (k, m) in self.arrays.items() if k == t]
            if self.fields.get("rows", ("", ""))[1] == t and self.chance(0.5):
                forms.append(self.row_element())
        if t == "i32":
            forms += self.loop_vars
        if t == "i32" and self.sees_self:
            forms += ["len(self.x)", "len(self.rows)", "i32(N)", "i32(K)"]
        return self.rng.choice(forms) if forms and self.chance(0.8) else self.literal(t)

    def row_element(self) -> str:
        """An element of a jagged edge: its row is one of 4, its place often too far."""
        if self.chance(0.8):
            return f"self.rows[{self.index(3)}][0]"
        return f"self.rows[{self.index(4)}][{self.index(4)}]"

    def index(self, size: int) -> str:
        """Mostly inside `size` elements."""
        r = self.rng.random()
        if r < 0.35:
            return str(self.rng.randrange(size))
        ints = [n for n, (k, lanes) in self.locals.items() if k in INTS and lanes == 1]
        if r < 0.5 and self.loop_vars:
            return f"{self.rng.choice(self.loop_vars)} % {size}"
        if r < 0.97 and ints:
            return f"i32({self.rng.choice(ints)}) % {size}"
        if ints and r > 0.99:
            return self.rng.choice(ints)
        if self.nested or not ints:
            return str(self.rng.randrange(size))
        self.nested = True
        text = f"({self.scalar('i32', 3)}) % {size}"
        self.nested = False
        return text

    def scalar(self, t: str, depth: int = 0) -> str:
        """An expression of exactly this type."""
        if depth > 3 or self.chance(0.2):
            return self.leaf(t)
        forms = [self.convert, self.choose, self.mixed]
        forms += [self.call] * 2 + [self.lanes_to_scalar]
        if t == "bool":
            forms += [self.truth] * 4
        else:
            forms += [self.operate] * 6 + [self.function] * 3
        return self.rng.choice(forms)(t, depth + 1)

    def convert(self, t: str, depth: int) -> str:
        form = "cast({1}, {0})" if self.chance(0.2) else "{0}({1})"
        return form.format(t, self.scalar(self.rng.choice(SCALARS), depth))

    def choose(self, t: str, depth: int) -> str:
        a, b = self.scalar(t, depth), self.scalar(t, depth)
        if self.chance(0.3):
            return f"select({self.scalar('bool', depth)}, {a}, {b})"
        if t in INTS and DTYPES[t].size < 4:  # the account sees one branch, so both say their type
            a, b = f"{t}({a})", f"{t}({b})"
        return f"({a} if {self.condition(depth)} else {b})"

    def mixed(self, t: str, depth: int) -> str:
        """Operands of two types, in their common type, then converted."""
        kinds = INTS if self.chance(0.5) else (*FLOATS, "i32", "u8")
        a, b = (self.scalar(self.rng.choice(kinds), depth) for _ in range(2))
        return f"{t}({a} {self.rng.choice('+-*')} {b})"

    def operate(self, t: str, depth: int) -> str:
        a, b = self.scalar(t, depth), self.scalar(t, depth)
        if self.chance(0.15):
            b = str(self.rng.randrange(1, 9)) if t in INTS else repr(self.rng.choice([0.5, 3.0]))
        if t in FLOATS:
            return f"({a} {self.rng.choice('+-*/')} {b})"
        if self.chance(0.25):
            return self.divide(t, a, b)
        if self.chance(0.3):
            return f"({a} {self.rng.choice(['<<', '>>'])} {b})"
        return f"({a} {self.rng.choice(['+', '-', '*', '&', '|', '^'])} {b})"

    def divide(self, t: str, a: str, b: str) -> str:
        op = self.rng.choice(["//", "%"])
        if self.chance(0.04):
            return f"({a} {op} {b})"
        return f"({a} {op} ({b} % {t}(13) + {t}(14)))"

    def function(self, t: str, depth: int) -> str:
        a = self.scalar(t, depth)
        if t in FLOATS and self.chance(0.6):
            one = ["sqrt", "floor", "ceil", "trunc", "round", "abs", "-"]
            if self.chance(0.5):
                return f"{self.rng.choice(one)}({a})"
            if t != "f64" and self.chance(0.5):
                return f"fma({a}, {self.scalar(t, depth)}, {self.scalar(t, depth)})"
            two = ["min", "max", "fmin", "fmax", "copysign"]
            return f"{self.rng.choice(two)}({a}, {self.scalar(t, depth)})"
        if t in INTS and self.chance(0.4):
            form = self.rng.choice(["popcount({})", "clz({})", "~({})", "-({})", "abs({})"])
            return form.format(a)
        if t in INTS and self.chance(0.3):
            return f"andc({a}, {self.scalar(t, depth)})"
        if self.chance(0.3):
            return f"({a}) ** {self.rng.randrange(1, 5)}"
        return f"{self.rng.choice(['min', 'max'])}({a}, {self.scalar(t, depth)})"

    def truth(self, t: str, depth: int) -> str:
        r = self.rng.random()
        if r < 0.15:
            name = self.rng.choice(["isnan", "isinf", "isfinite"])
            return f"{name}({self.scalar(self.rng.choice(FLOATS), depth)})"
        if r < 0.3:
            op = self.rng.choice(["&", "|", "^"])
            return f"({self.scalar('bool', depth)} {op} {self.scalar('bool', depth)})"
        return f"bool({self.condition(depth)})"

    def condition(self, depth: int) -> str:
        r = self.rng.random()
        if r < 0.15 and depth < 3:
            return f"not ({self.condition(depth + 1)})"
        if r < 0.4 and depth < 3:
            op = self.rng.choice(["and", "or"])
            return f"({self.condition(depth + 1)} {op} {self.condition(depth + 1)})"
        if r < 0.5:
            return self.scalar("bool", depth + 2)
        kinds = INTS if self.chance(0.6) else (*FLOATS, "i16", "u64")
        a, b = (self.scalar(self.rng.choice(kinds), depth + 1) for _ in range(2))
        op = self.rng.choice(["<", "<=", ">", ">=", "==", "!="])
        if self.chance(0.1):
            return f"{a} < {b} <= {self.scalar(self.rng.choice(kinds), depth + 1)}"
        return f"{a} {op} {b}"

    def call(self, t: str, depth: int) -> str:
        """A helper's result, converted."""
        pool = list(self.helpers.items())
        pool += [] if not self.sees_self else [(f"self.{n}", v) for n, v in self.methods.items()]
        if not pool:
            return self.leaf(t)
        name, (params, _) = self.rng.choice(pool)
        return f"{t}({name}({', '.join(self.scalar(p, depth + 1) for p in params)}))"

    def lanes_to_scalar(self, t: str, depth: int) -> str:
        if t == "bool" or depth > 2:
            return self.leaf(t)
        lanes = self.rng.choice([2, 4, 8])
        v = self.vector(t, lanes, depth + 1)
        if self.chance(0.5):
            return f"({v})[{self.rng.randrange(lanes)}]"
        return f"{self.rng.choice(['sum', 'prod', 'reduce_max', 'reduce_min'])}({v})"

    def vector(self, t: str, lanes: int, depth: int) -> str:
        """An expression of exactly this vector type."""
        same = [n for n, k in self.locals.items() if k == (t, lanes)]
        r = self.rng.random()
        if same and r < 0.3:
            return self.rng.choice(same)
        if depth > 3 or r < 0.4:
            return f"{t}x{lanes}({self.scalar(t, depth + 1)})"
        if r < 0.55 and self.sees_self:
            return self.load(t, lanes)
        if r < 0.65:
            return f"{t}x{lanes}(iota({lanes}))"
        a, b = self.vector(t, lanes, depth + 1), self.vector(t, lanes, depth + 1)
        if r < 0.75:
            return self.lanes_form(t, lanes, a, b, depth)
        if r < 0.83:
            other = self.rng.choice(INTS + FLOATS)
            return f"{t}x{lanes}({self.vector(other, lanes, depth + 1)})"
        if r < 0.9:
            c = f"({a} < {b})" if self.chance(0.5) else f"({a} != {self.scalar(t, depth + 1)})"
            return f"select({c}, {a}, {b})"
        if t in FLOATS:
            return f"({a} {self.rng.choice('+-*/')} {b})"
        return f"({a} {self.rng.choice(['+', '-', '*', '&', '^', '<<', '>>', '//', '%'])} {b})"

    def lanes_form(self, t: str, lanes: int, a: str, b: str, depth: int) -> str:
        if self.chance(0.4):
            return f"insert({a}, {self.rng.randrange(lanes)}, {self.scalar(t, depth + 1)})"
        if self.chance(0.4):
            order = tuple(self.rng.randrange(2 * lanes) for _ in range(lanes))
            return f"shuffle({a}, {b}, {order})"
        return f"{self.rng.choice(['min', 'max'])}({a}, {b})"

    def load(self, t: str, lanes: int) -> str:
        runs = [(n, SIZES[n], k) for n, (kind, k) in self.fields.items() if kind == "edge"]
        name, size, k = self.rng.choice(runs)
        count = f", ({self.scalar('i32', 3)}) % {lanes + 1}" if self.chance(0.3) else ""
        at = self.rng.randrange(max(1, size - lanes + 1)) if self.chance(0.97) else size - 1
        if k == "bool":
            return f"{t}x{lanes}({self.literal(t)})"
        if self.chance(0.2):
            index = f"i32x{lanes}(iota({lanes})) % {size}"
            return f"{t}x{lanes}(gather(self.{name}, {index}))"
        how = self.rng.choice(["load", "load_raw"])
        return f"{t}x{lanes}({how}(self.{name}, {at}, {lanes}{count}))"
