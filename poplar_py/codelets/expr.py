"""Element-wise expressions as text, and the codelets that compute them.

    relu(add(mul($0, $1), c(0.5)))      select(less($0, c(0)), $1, $0)      cast($0, f16)

`$i` is input i. `c(v)` is a number that takes the other operand's type, `c(v, f16)` a typed one.
Every function name of `FUNCTIONS` takes values and gives one. Types promote as in the vertex
language (`codelets` package docstring); f16 and bf16 round once per function; comparisons and
predicates give bool; `div` of ints truncates, `mod` follows the divisor's sign, `fmod` the
dividend's.

`map_codelet` makes a codelet for a [rows, cols] block; `evaluate` computes the same with NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from poplar_py.codelets import build
from poplar_py.codelets.codelet import Codelet, register_maker
from poplar_py.codelets.codelet_ir import Expr, Ty
from poplar_py.codelets.depth import deep
from poplar_py.codelets.expr_eval import evaluate_ir
from poplar_py.codelets.expr_functions import FUNCTIONS, Operand
from poplar_py.codelets.expr_map import MODES, map_ir
from poplar_py.diagnostics import ParseError, PoplarPyError, TypeMismatch
from poplar_py.types import DTYPES, DType, bool_, dtype_of

__all__ = [
    "FUNCTIONS",
    "Tree",
    "constant",
    "evaluate",
    "map_codelet",
    "parse",
    "result_dtype",
    "to_text",
    "typed",
]

Tree = tuple[Any, ...]
MAX_DEPTH = 150
MAX_NODES = 4000
PREFIX = "expr::Map"


_TOKEN = re.compile(
    r"\s*(?:\$(?P<input>\d{1,4})|(?P<number>-?(?:inf|nan|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.]))"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<punct>[(),]))"
)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.nodes = text, 0, 0

    def fail(self, message: str) -> ParseError:
        return ParseError(f"expression {_short(self.text)}: {message} at character {self.at + 1}")

    def next(self) -> re.Match[str]:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.fail("a value is wanted")
        self.at = match.end()
        return match

    def want(self, punct: str) -> None:
        match = _TOKEN.match(self.text, self.at)
        if match is None or match["punct"] != punct:
            raise self.fail(f"{punct!r} is wanted")
        self.at = match.end()

    def peek(self, punct: str) -> bool:
        match = _TOKEN.match(self.text, self.at)
        return match is not None and match["punct"] == punct

    def value(self, depth: int) -> Tree:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise self.fail("nested too deeply, or too long")
        match = self.next()
        if match["input"] is not None:
            return ("$", int(match["input"]))
        name = match["word"]
        if name is None:
            raise self.fail("a function or $i is wanted (write numbers as c(0.5))")
        self.want("(")
        if name == "c":
            return self.number()
        if name == "cast":
            inner = self.value(depth + 1)
            self.want(",")
            return ("cast", inner, self.dtype())
        if name not in FUNCTIONS:
            raise self.fail(f"there is no function {name!r}")
        args = [self.value(depth + 1)]
        while not self.peek(")"):
            self.want(",")
            args.append(self.value(depth + 1))
        self.want(")")
        arity = FUNCTIONS[name][0]
        if len(args) != arity:
            raise self.fail(f"{name} takes {arity} values, found {len(args)}")
        return (name, *args)

    def number(self) -> Tree:
        match = self.next()
        text = match["number"] or match["word"] or ""
        if text in ("true", "false"):
            value: int | float | bool = text == "true"
        else:
            try:
                value = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
            except ValueError:
                raise self.fail("a number is wanted") from None
        dtype = None
        if not self.peek(")"):
            self.want(",")
            return ("c", value, self.dtype())
        self.want(")")
        return ("c", value, dtype)

    def dtype(self) -> DType:
        name = self.next()["word"]
        if name not in DTYPES:
            raise self.fail(f"{name!r} is no element type")
        self.want(")")
        return DTYPES[name]


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


@lru_cache(maxsize=4096)
def parse(text: str) -> Tree:
    """The tree of an expression.

    Nodes: ("$", i), ("c", value, dtype or None), ("cast", tree, dtype), (function, tree, ...).
    Raises ParseError.
    """
    parser = _Parser(text)
    tree = parser.value(0)
    if text[parser.at :].strip():
        raise parser.fail("nothing more is expected")
    return tree


def to_text(tree: Tree) -> str:
    """The canonical text of a tree; `parse(to_text(t)) == t`."""
    if tree[0] == "$":
        return f"${tree[1]}"
    if tree[0] == "c":
        tail = f",{tree[2].name})" if tree[2] is not None else ")"
        return f"c({_number(tree[1])}{tail}"
    if tree[0] == "cast":
        return f"cast({to_text(tree[1])},{tree[2].name})"
    return f"{tree[0]}({','.join(to_text(t) for t in tree[1:])})"


def _number(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def constant(value: Any) -> str:
    """A NumPy scalar as a typed constant, `c(0.5,f32)`."""
    dtype = dtype_of(value)
    item = np.asarray(value).item()
    if dtype.name == "bf16":
        item = float(value)
    return f"c({_number(item)},{dtype.name})"


def typed(tree: Tree, inputs: Sequence[Expr], lanes: int = 1) -> Operand:
    """The tree over codelet IR values. Raises TypeMismatch."""
    kind: str = tree[0]
    if kind == "$":
        if tree[1] >= len(inputs):
            raise TypeMismatch(f"the expression uses ${tree[1]}, but has {len(inputs)} inputs")
        found: Expr = inputs[int(tree[1])]
        return found
    if kind == "c":
        value, dtype = tree[1], tree[2]
        return value if dtype is None else build.const(value, Ty(dtype))
    if kind == "cast":
        return _cast(typed(tree[1], inputs, lanes), tree[2])
    args = [typed(t, inputs, lanes) for t in tree[1:]]
    try:
        return FUNCTIONS[kind][1](*args)
    except PoplarPyError as error:
        error.message = f"{kind}: {error.message}"
        error.args = (error.message,)
        raise


def _cast(value: Operand, dtype: DType) -> Expr:
    if not isinstance(value, Expr):
        value = build.as_expr(value, Ty(dtype))
    if dtype is bool_:
        return build.to_bool(value)
    return build.cast(value, Ty(dtype, value.ty.lanes))


@lru_cache(maxsize=4096)
@deep
def result_dtype(text: str, dtypes: tuple[DType, ...]) -> DType:
    """Element type of the expression over inputs of the given types."""
    return _scalar_ir(text, dtypes).ty.dtype


@lru_cache(maxsize=4096)
def _scalar_ir(text: str, dtypes: tuple[DType, ...]) -> Expr:
    inputs = [Expr("local", Ty(d), (), (f"in{i}",)) for i, d in enumerate(dtypes)]
    return build.as_expr(typed(parse(text), inputs))


@deep
def evaluate(text: str, arrays: Sequence[Any]) -> np.ndarray:
    """The expression over NumPy arrays, broadcast; the same types and roundings as the codelet.

    Elementary functions are NumPy's, so that their last bits may differ.
    """
    values = [np.asarray(a) for a in arrays]
    ir = _scalar_ir(text, tuple(dtype_of(a) for a in values))
    return evaluate_ir(ir, {f"in{i}": a for i, a in enumerate(values)})


@deep
def map_codelet(
    text: str,
    in_dtypes: Sequence[DType],
    out_dtype: DType | None,
    modes: Sequence[str],
) -> Codelet:
    """A codelet that writes the expression over a [rows, cols] block.

    Fields: out (rank 1, rows * cols), in0, in1, ... and the state `rows`, `cols` (u32). modes[i]
    says what in<i> holds: "full" rows * cols elements, "row" cols elements used by every row,
    "col" one element per row, "scalar" one element. `out` may be exactly one of the full inputs.
    """
    if out_dtype is None:
        out_dtype = result_dtype(text, tuple(in_dtypes))
    return _map_codelet(to_text(parse(text)), tuple(in_dtypes), out_dtype, tuple(modes))


@lru_cache(maxsize=4096)
def _map_codelet(
    text: str, in_dtypes: tuple[DType, ...], out_dtype: DType, modes: tuple[str, ...]
) -> Codelet:
    if len(modes) != len(in_dtypes) or any(m not in MODES for m in modes):
        raise TypeMismatch(f"modes {modes} do not fit {len(in_dtypes)} inputs")
    parts = [text, out_dtype.name]
    parts += [f"{d.name}:{m}" for d, m in zip(in_dtypes, modes, strict=True)]
    tree = parse(text)

    def compute(inputs: Sequence[Expr]) -> Operand:
        value = typed(tree, inputs)
        return _cast(value, out_dtype)

    return Codelet(
        map_ir(f"{PREFIX}<{'|'.join(parts)}>", in_dtypes, out_dtype, modes, compute), builtin=True
    )


def _from_name(name: str) -> Codelet:
    """The map codelet of a name that `map_codelet` gave."""
    parts = name[len(PREFIX) + 1 : -1].split("|")
    inputs = [p.split(":") for p in parts[2:]]
    known = all(len(i) == 2 and i[0] in DTYPES for i in inputs)
    if len(parts) < 2 or not name.endswith(">") or parts[1] not in DTYPES or not known:
        raise ParseError(f"{name!r} is no expression codelet")
    dtypes = tuple(DTYPES[i[0]] for i in inputs)
    return map_codelet(parts[0], dtypes, DTYPES[parts[1]], tuple(i[1] for i in inputs))


register_maker(PREFIX, _from_name)
