"""Random codelets: nested loops, vectors, helpers, jagged edges, kinds, parameters, all widths.

`Maker(seed).make()` gives a `Case`: the source, the instance, values of its fields, and the text of
`compute` for `language_model`. Every expression is built with a known type, so that all cases are
legal; most indices and divisors are made safe, some are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from program_exprs import FLOATS, INTS, SCALARS, SIZES, Expressions, edge_values

ENUM = {"RED": 0, "GREEN": 5, "BLUE": -3}


@dataclass
class Case:
    """One codelet with values. `fields`: name -> (kind, type); `values`: arrays, lists, scalars."""

    source: str
    name: str
    kind: str
    body: str
    helpers: str
    fields: dict[str, tuple[str, str]]
    values: dict[str, Any]
    constants: dict[str, Any] = field(default_factory=lambda: {})


class Maker(Expressions):
    """Writes one case."""

    # ------------------------------------------------------------ statements
    def add(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, depth: int, count: int = 3) -> bool:
        return any(self.statement(indent, depth) for _ in range(self.rng.randrange(1, count + 1)))

    def statement(self, indent: int, depth: int) -> bool:
        """One statement; True when it jumps."""
        r = self.rng.random()
        if depth < 4 and r < 0.14:
            return self.branch(indent, depth)
        if depth < 4 and r < 0.30:
            self.loop(indent, depth)
            return False
        if depth < 3 and r < 0.34:
            self.match(indent, depth)
            return False
        if self.loops and r < 0.38:
            self.add(indent, self.rng.choice(["break", "continue"]))
            return True
        if depth and r < 0.40:
            self.leave(indent)
            return True
        if r < 0.41:
            self.add(indent, f"abort_if({self.condition(2)} and {self.condition(2)} and not N)")
            return False
        self.assignment(indent)
        return False

    def leave(self, indent: int) -> None:
        if self.in_function:
            self.add(indent, f"return {self.result}({self.scalar(self.result, 2)})")
        else:
            self.add(indent, f"return {self.condition(2)}")

    result = "i32"

    def assignment(self, indent: int) -> None:
        target, t = self.target()
        if t in self.locals and self.locals[t][1] > 1:
            k, lanes = self.locals[t]
            self.add(indent, f"{target} = {self.vector(k, lanes, 1)}")
            return
        if self.chance(0.1) and self.sees_self:
            self.store_lanes(indent)
            return
        if self.chance(0.15) and t in INTS:
            self.add(
                indent, f"{target} {self.rng.choice(['+', '-', '*', '^'])}= {self.scalar(t, 1)}"
            )
            return
        text = self.scalar(t)
        kept = text.startswith(f"{t}(") and text.endswith(")") and text.count("(") == 1
        self.add(indent, f"{target} = {text}" if kept else f"{target} = {t}({text})")

    def target(self) -> tuple[str, str]:
        """A place to assign and its type; of a vector local, its own name instead."""
        names = [(n, n if k[1] > 1 else k[0]) for n, k in self.locals.items()]
        if not self.sees_self:
            return self.rng.choice(names)
        names.append((f"self.y[{self.index(SIZES['y'])}]", self.fields["y"][1]))
        names.append((f"self.y[{self.index(SIZES['y'])}]", self.fields["y"][1]))
        names += [(f"self.{n}", k) for n, (kind, k) in self.fields.items() if kind == "state"]
        names += [(f"{n}[{self.index(m)}]", k) for n, (k, m) in self.arrays.items()]
        names.append(("self.o", self.fields["o"][1]))
        names.append((self.row_element(), self.fields["rows"][1]))
        return self.rng.choice(names)

    def store_lanes(self, indent: int) -> None:
        t = self.fields["y"][1]
        lanes = self.rng.choice([2, 4, 8])
        at = self.rng.randrange(SIZES["y"] - lanes + 1)
        count = f", ({self.scalar('i32', 3)}) % {lanes + 1}" if self.chance(0.3) else ""
        if t == "bool":
            self.add(indent, "pass")
            return
        how = self.rng.choice(["store", "store_raw"])
        self.add(indent, f"{how}(self.y, {at}, {self.vector(t, lanes, 1)}{count})")

    def branch(self, indent: int, depth: int) -> bool:
        test = self.condition(1)
        if self.chance(0.15):
            test = self.rng.choice(["B", "N > 2", "K is Color.RED", "not B", "T is f32"])
        self.add(indent, f"if {test}:")
        ends = self.block(indent + 1, depth + 1)
        if self.chance(0.25):
            self.add(indent, f"elif {self.condition(1)}:")
            ends &= self.block(indent + 1, depth + 1)
        if self.chance(0.6):
            self.add(indent, "else:")
            return self.block(indent + 1, depth + 1) and ends
        return False

    def match(self, indent: int, depth: int) -> None:
        """Over an int of the run, or over the enum parameter."""
        known = self.chance(0.3)
        self.add(indent, "match K:" if known else f"match i32({self.scalar('i32', 2)}) % 5:")
        pool = [f"Color.{m}" for m in ENUM] if known else ["0", "1 | 2", "3"]
        for pattern in pool[: self.rng.randrange(1, 4)]:
            guard = f" if {self.condition(2)}" if self.chance(0.2) else ""
            self.add(indent + 1, f"case {pattern}{guard}:")
            self.block(indent + 2, depth + 2, 2)
        if self.chance(0.6):
            self.add(indent + 1, "case _:")
            self.block(indent + 2, depth + 2, 2)

    def loop(self, indent: int, depth: int) -> None:
        if depth > 2 and self.loops > 2:
            self.assignment(indent)
            return
        r = self.rng.random()
        if r < 0.4:
            name = self.fresh("n")
            start, step = self.rng.randrange(-2, 3), self.rng.choice([1, 1, 2, -1, 3])
            bound = self.rng.choice([str(self.rng.randrange(5)), f"({self.scalar('i32', 2)}) % 5"])
            self.add(indent, f"for {name} in range({start}, {bound}, {step}):")
            self.inside(indent, depth, [name])
        elif r < 0.6 and self.sees_self:
            self.walk(indent, depth)
        elif r < 0.75:
            name = self.fresh("p")
            self.add(indent, f"for {name} in unroll({self.rng.randrange(1, 4)}):")
            loops, self.loops = self.loops, 0
            for _ in range(2):
                self.assignment(indent + 1)
            self.loops = loops
        else:
            name = self.fresh("k")
            self.add(indent, f"{name} = i32(0)")
            self.add(indent, f"while {name} < 4 and {self.condition(2)}:")
            self.add(indent + 1, f"{name} += 1")
            self.inside(indent, depth, [])

    def inside(self, indent: int, depth: int, names: list[str]) -> None:
        self.loops += 1
        self.loop_vars += names
        self.block(indent + 1, depth + 1)
        del self.loop_vars[len(self.loop_vars) - len(names) :]
        self.loops -= 1

    def walk(self, indent: int, depth: int) -> None:
        """Over a run, or over jagged rows and their elements."""
        name = self.fresh("v")
        if self.chance(0.5):
            run, k = self.rng.choice(
                [(n, k) for n, (kind, k) in self.fields.items() if kind == "edge"]
            )
            self.add(indent, f"for {name} in self.{run}:")
            at = indent + 1
        else:
            run, k = "rows", self.fields["rows"][1]
            self.add(indent, "for row in self.rows:")
            self.add(indent + 1, f"for {name} in row:")
            at = indent + 2
        self.locals[name] = (k, 1)
        target = self.rng.choice([n for n, (_, lanes) in self.locals.items() if lanes == 1])
        t = self.locals[target][0]
        if target != name:
            self.add(at, f"{target} = {t}({self.scalar(t, 2)})")
        self.loops += 1
        self.block(at, depth + 2, 2)
        self.loops -= 1
        del self.locals[name]

    # ------------------------------------------------------------ the codelet
    def make(self) -> Case:
        kind = self.rng.choice(["Vertex"] * 4 + ["MultiVertex", "SupervisorVertex"])
        t = self.rng.choice(INTS + FLOATS)
        pick = self.rng.choice
        self.fields = {
            "x": ("edge", t),
            "y": ("edge", pick(SCALARS)),
            "rows": ("rows", pick(INTS + FLOATS)),
            "o": ("scalar", pick(SCALARS)),
            "k": ("scalar", pick(INTS)),
            "s": ("state", pick(INTS + FLOATS)),
            "c": ("constant", pick(SCALARS)),
            "tab": ("table", pick(INTS)),
        }
        layout = pick(["Vector[InOut[Vector[{}]]]", "InOut[VectorList[{}, DELTANELEMENTS]]"])
        constants = {"N": self.rng.randrange(6), "B": self.chance(0.5), "K": pick(list(ENUM))}
        helpers = self.functions()
        methods = self.class_methods()
        body = self.compute(kind)
        source = self.source(kind, t, layout, helpers, methods, body)
        args = f"{t},{constants['N']},{str(constants['B']).lower()},Color::{constants['K']}"
        return Case(
            source, f"V<{args}>", kind, "\n".join(body), helpers + methods, self.fields,
            self.values(), constants,
        )  # fmt: skip

    def functions(self) -> str:
        out: list[str] = []
        for _ in range(self.rng.randrange(1, 4)):
            out += self.helper("h", "", 0)
        return "\n".join(out) + "\n"

    def helper(self, base: str, first: str, indent: int) -> list[str]:
        """A function or method of up to three typed parameters with a local and early returns."""
        name = self.fresh(base)
        params = tuple(self.rng.choice(SCALARS) for _ in range(self.rng.randrange(1, 4)))
        self.result = self.rng.choice(SCALARS)
        self.lines, self.loop_vars, self.loops = [], [], 0
        self.sees_self, self.in_function = bool(first), True
        arrays, self.arrays = self.arrays, {}
        self.locals = {f"a{n}": (p, 1) for n, p in enumerate(params)}
        texts = [f"a{n}: {p}" for n, p in enumerate(params)]
        header = f"def {name}({', '.join([first] * bool(first) + texts)}) -> {self.result}:"
        self.add(indent, header)
        kind = self.rng.choice(INTS + FLOATS)
        self.add(indent + 1, f"w = {kind}({self.scalar(kind, 2)})")
        self.locals["w"] = (kind, 1)
        self.block(indent + 1, 1)
        if first and self.chance(0.6):
            t = self.fields["s"][1]
            self.add(indent + 1, f"self.s = {t}({self.scalar(t, 2)})")
        self.add(indent + 1, f"return {self.result}({self.scalar(self.result, 2)})")
        (self.methods if first else self.helpers)[name] = (params, self.result)
        lines, self.lines, self.locals = self.lines, [], {}
        self.arrays, self.sees_self, self.in_function = arrays, True, False
        return lines

    def class_methods(self) -> str:
        if self.chance(0.5):
            return ""
        return "\n".join(self.helper("m", "self", 1)) + "\n"

    def compute(self, kind: str) -> list[str]:
        self.lines, self.loop_vars, self.loops = [], [], 0
        for name in ("t", "u"):
            self.arrays[name] = (self.rng.choice(INTS + FLOATS), self.rng.randrange(2, 7))
            k, size = self.arrays[name]
            self.add(2, f"{name} = array({k}, {size})")
        self.add(2, f"self.s = self.s + {self.fields['s'][1]}(0)")
        self.locals = {}
        for name in "abcdef":
            k = self.rng.choice(SCALARS)
            self.add(2, f"{name} = {k}({self.scalar(k, 2)})")
            self.locals[name] = (k, 1)
        for name in ("v", "z"):
            k, lanes = self.rng.choice(INTS + FLOATS), self.rng.choice([2, 4, 8])
            self.add(2, f"{name} = {self.vector(k, lanes, 2)}")
            self.locals[name] = (k, lanes)
        if kind == "MultiVertex":
            self.loop_vars.append("i32(worker_id)")
        for _ in range(self.rng.randrange(4, 9)):
            self.statement(2, 0)
        t = self.fields["y"][1]
        for n, (name, (_, lanes)) in enumerate(self.locals.items()):
            self.add(2, f"self.y[{n}] = {t}({name}{'[1]' if lanes > 1 else ''})")
        self.add(2, f"return {self.condition(2)}")
        return self.lines

    def source(
        self, kind: str, t: str, layout: str, helpers: str, methods: str, body: list[str]
    ) -> str:
        f = {n: k for n, (_, k) in self.fields.items()}
        worker = ", worker_id: u32" if kind == "MultiVertex" else ""
        members = "".join(f"    {n} = {v}\n" for n, v in ENUM.items())
        return (
            f"class Color(Enum):\n{members}"
            'T = TypeVar("T")\nN = IntParam("N")\nB = BoolParam("B")\nK = EnumParam("K", Color)\n'
            f"{helpers}@vertex\nclass V({kind}, Generic[T, N, B, K]):\n"
            f"    x: Input[Vector[T]]\n    y: InOut[Vector[{f['y']}]]\n"
            f"    rows: {layout.format(f['rows'])}\n"
            f"    o: InOut[{f['o']}]\n    k: Input[{f['k']}]\n"
            f"    s: {f['s']}\n    c: {f['c']}\n    tab: Vector[{f['tab']}]\n{methods}"
            f"    def compute(self{worker}) -> bool:\n"
            + "\n".join(body) + "\n"
        )  # fmt: skip

    def values(self) -> dict[str, Any]:
        f = {n: k for n, (_, k) in self.fields.items()}
        sizes = (self.rng.randrange(1, 5), 3, self.rng.randrange(1, 8), self.rng.randrange(0, 3))
        values: dict[str, Any] = {n: edge_values(self.np, f[n], SIZES[n]) for n in SIZES}
        values["rows"] = [edge_values(self.np, f["rows"], n) for n in sizes]
        values |= {n: edge_values(self.np, f[n], 1) for n in ("o", "k", "s")}
        values["c"] = edge_values(self.np, f["c"], 1)[0]
        return values
