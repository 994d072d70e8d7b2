"""Random programs: the same text runs as Python and as machine code, and must agree."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from poplar_py.codegen.run_codelet import run_codelet
from poplar_py.codelets import Codelet, CodeletLibrary
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet

NAMES = ["a", "b", "c", "d"]
HELPER = """
def clip(n, k):
    if n > k:
        return k
    while n < 0:
        n += 7
        if n % 5 == 3:
            return n - 1
    return n + 1
"""


class Maker:
    """Writes statements over the int locals a, b, c, d, the array t, the state s and edges x, y."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0
        self.counter = 0

    def expr(self, depth: int = 0) -> str:
        r = self.rng.random()
        if depth > 2 or r < 0.25:
            return self.rng.choice([*NAMES, "self.s", str(self.rng.randrange(-9, 30)), "self.x[3]"])
        a, b = self.expr(depth + 1), self.expr(depth + 1)
        forms = [
            f"({a} + {b})", f"({a} - {b})", f"(({a}) * ({b}) % 97)", f"min({a}, {b})",
            f"max({a}, {b})", f"(({a}) // (({b}) % 5 + 7))", f"(({a}) % 11)", f"abs({a})",
            f"({a} if {self.cond(depth + 1)} else {b})", f"clip({a}, {b})", f"t[({a}) % 8]",
            f"self.x[({a}) % 5]", f"(({a}) & 255 ^ ({b}) & 15)", f"-({a})",
        ]  # fmt: skip
        return self.rng.choice(forms)

    def cond(self, depth: int = 0) -> str:
        a, b = self.expr(depth + 1), self.expr(depth + 1)
        simple = f"{a} {self.rng.choice(['<', '<=', '>', '==', '!='])} {b}"
        if self.rng.random() < 0.3 and depth < 2:
            other = self.cond(depth + 1)
            return f"({simple}) {self.rng.choice(['and', 'or'])} ({other})"
        return f"not ({simple})" if self.rng.random() < 0.1 else simple

    def add(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def statement(self, indent: int, depth: int) -> bool:
        """Write one statement; True when it jumps."""
        r = self.rng.random()
        if depth < 3 and r < 0.2:
            self.add(indent, f"if {self.cond()}:")
            first = self.block(indent + 1, depth + 1)
            if self.rng.random() < 0.6:
                self.add(indent, "else:")
                return self.block(indent + 1, depth + 1) and first
            return False
        if depth < 3 and r < 0.4:
            self.loop(indent, depth)
            return False
        if self.loops and r < 0.5:
            self.add(indent, self.rng.choice(["break", "continue"]))
            return True
        if depth and r < 0.53:
            self.add(indent, "return")
            return True
        name = self.rng.choice([*NAMES, "self.s", "t[2]", "t[(a + b) % 8]", "self.y[c % 6]"])
        self.add(indent, f"{name} = ({self.expr()}) % 1009")
        return False

    def loop(self, indent: int, depth: int) -> None:
        self.counter += 1
        kind = self.rng.random()
        if kind < 0.35:
            start, stop = self.rng.randrange(-2, 3), self.rng.randrange(0, 6)
            step = self.rng.choice([1, 1, 2, -1])
            bound = self.rng.choice([str(stop), f"({self.expr()}) % 6"])
            self.add(indent, f"for i{self.counter} in range({start}, {bound}, {step}):")
            self.add(indent + 1, f"a = (a + i{self.counter}) % 1009")
        elif kind < 0.5:
            self.add(indent, "for v in self.x:")
            self.add(indent + 1, "b = (b * 3 + v) % 1009")
        elif kind < 0.65:
            self.add(indent, f"for p{self.counter} in unroll(3):")
            self.add(indent + 1, f"t[p{self.counter} * 2] = (t[p{self.counter}] + d) % 1009")
            loops, self.loops = self.loops, 0
            for _ in range(2):
                self.add(indent + 1, f"c = (c + {self.expr()}) % 1009")
            self.loops = loops
            return
        else:
            k = f"k{self.counter}"
            self.add(indent, f"{k} = 0")
            self.add(indent, f"while {k} < 5 and ({self.cond()}):")
            self.add(indent + 1, f"{k} += 1")
        self.loops += 1
        self.block(indent + 1, depth + 1)
        self.loops -= 1

    def block(self, indent: int, depth: int) -> bool:
        return any(self.statement(indent, depth) for _ in range(self.rng.randrange(1, 5)))

    def program(self) -> str:
        self.add(2, "t = array(i32, 8)")
        for n, name in enumerate(NAMES):
            self.add(2, f"{name} = self.x[{n}] + 0")
        for _ in range(6):
            self.statement(2, 0)
        for n, name in enumerate(NAMES):
            self.add(2, f"self.y[{n}] = {name} + t[{n}]")
        return "\n".join(self.lines)


def run_python(body: str, x: np.ndarray, y: np.ndarray, s: int) -> tuple[list[int], int]:
    scope: dict[str, Any] = {"unroll": range, "array": lambda _t, n: [0] * n, "i32": int}
    text = HELPER + "def compute(self):\n" + body.replace("\n    ", "\n")[4:]
    exec(text, scope)
    me = SimpleNamespace(x=[int(v) for v in x], y=[int(v) for v in y], s=s)
    scope["compute"](me)
    return me.y, me.s


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed) -> None:
    body = Maker(seed).program()
    source = HELPER + (
        "@vertex\nclass P(Vertex):\n    x: Input[Vector[i32]]\n    y: InOut[Vector[i32]]\n"
        "    s: i32\n    def compute(self):\n        self.s = self.s + 0\n" + body + "\n"
    )
    library = CodeletLibrary()
    library.add_source(source, "p.py")
    codelet = library.get("P")
    text = print_codelet(codelet.ir)
    again = Codelet(parse_codelet(text))
    assert print_codelet(again.ir) == text
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-20, 50, 5).astype(np.int32), rng.integers(0, 9, 6).astype(np.int32)
    want, state = run_python(body, x, y, 5)
    row = {"x": x, "y": y, "s": np.array([5], np.int32)}
    for made, checked in ((codelet, False), (codelet, True), (again, False)):
        result = run_codelet(made, row, checked=checked)
        assert result.ctx[1] == 0
        assert result["y"].tolist() == want
        assert result["s"][0] == state
