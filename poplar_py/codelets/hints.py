"""What to write instead: names and forms of C++ and Python that the vertex language has not.

Data for messages only; nothing here decides what is legal.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable

__all__ = ["cpp_hint", "expression_hint", "name_hint", "near_names", "statement_hint"]

_C_TYPES = {
    "int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64", "short": "i16",
    "uint8_t": "u8", "uint16_t": "u16", "uint32_t": "u32", "uint64_t": "u64", "size_t": "u32",
    "char": "i8", "uchar": "u8", "ushort": "u16", "uint": "u32", "long": "i32", "double": "f64",
    "float16": "f16", "float32": "f32", "int32": "i32", "uint8": "u8", "FLOAT": "f32",
    "HALF": "f16", "INT": "i32", "UNSIGNED_INT": "u32",
}  # fmt: skip
_NO_STRINGS = "a tile has no strings; PrintTensor prints tensors from the program"
_PLAIN = "functions stand without a module: sqrt(x), max(a, b), abs(x)"
_NAMES = {
    **{name: f"the type is {ours}" for name, ours in _C_TYPES.items()},
    "true": "write True",
    "false": "write False",
    "nullptr": "there are no pointers: index the field",
    "NULL": "there are no pointers: index the field",
    "this": "write self",
    "auto": "a local takes the type of its first value",
    "print": _NO_STRINGS,
    "printf": _NO_STRINGS,
    "std": _PLAIN,
    "np": _PLAIN,
    "numpy": _PLAIN,
    "sizeof": "write size_of(T)",
    "static_cast": "write cast(x, T)",
    "reinterpret_cast": "index the field: load(run, i, LANES); bitcast(x, T) keeps the bits",
    "memcpy": "copy in a loop",
    "memset": "fill in a loop",
    "reversed": "write range(n - 1, -1, -1)",
    "divmod": "write a // b and a % b",
    "hypot": "write sqrt(x * x + y * y)",
    "Array": "a state array is Vector[T]; a local one is array(T, n)",
    "any": "write a loop",
    "all": "write a loop",
    "list": "a local array is array(T, n)",
    "swap": "write a, b = b, a",
}
_SUFFIXED = re.compile(r"(\w+?)[fl]?\Z")

_LOOP = "use array(T, n) and a loop"
_EXPRESSIONS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Slice: ("a slice", "loop over the elements, or cut the tensor that is connected"),
    ast.NamedExpr: ("an assignment inside an expression", "assign on a line of its own"),
    ast.JoinedStr: ("a string with values", _NO_STRINGS),
    ast.ListComp: ("a list comprehension", _LOOP),
    ast.SetComp: ("a set", _LOOP),
    ast.DictComp: ("a dict", _LOOP),
    ast.GeneratorExp: ("a generator", _LOOP),
    ast.Dict: ("a dict", "use an array with the keys as indices"),
    ast.Set: ("a set", _LOOP),
    ast.Lambda: ("a lambda", "write a helper function"),
    ast.Starred: ("a starred argument", "write the arguments out"),
    ast.Await: ("await", ""),
    ast.Yield: ("yield", "write the values to an Output"),
}
_NO_EXCEPTIONS = "there are no exceptions on a tile; abort_if(c) ends the run with a TileException"
_LASTING = "what lasts is a field of the vertex: name: f32"
_STATEMENTS: dict[type[ast.AST], tuple[str, str]] = {
    ast.FunctionDef: ("a function inside a function", "put it at module level or into the class"),
    ast.AsyncFunctionDef: ("an async function", ""),
    ast.ClassDef: ("a class inside a function", "put it at module level"),
    ast.Try: ("try", _NO_EXCEPTIONS),
    ast.Raise: ("raise", _NO_EXCEPTIONS),
    ast.With: ("with", ""),
    ast.Global: ("global", _LASTING),
    ast.Nonlocal: ("nonlocal", _LASTING),
    ast.Delete: ("del", "a local needs no end"),
    ast.Import: ("an import", "imports stand at the top of the file"),
    ast.ImportFrom: ("an import", "imports stand at the top of the file"),
}
_CPP = re.compile(
    r"^\s*(#\s*include\b|using\s+namespace\b|template\s*<|(class|struct)\s+\w+\s*:\s*public\b"
    r"|public\s*:|(const|auto|float|half|int|unsigned|bool|char|double)\s+\w+\s*[=;(]|\w+(\+\+|--)"
    r"|.*;\s*$)",
    re.MULTILINE,
)


def cpp_hint(text: str) -> str:
    """The remedy for a source that is C++; empty for one that does not look like it."""
    if not _CPP.search(text):
        return ""
    return "this looks like C++: codelets are typed Python here, docs/porting.md shows both"


def name_hint(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown name."""
    if name in _NAMES:
        return _NAMES[name]
    names = set(known)
    match = _SUFFIXED.match(name)
    if match is not None and match[1] in names:
        return f"write {match[1]}"
    near = difflib.get_close_matches(name, sorted(names), 3)
    return f"names like it: {', '.join(near)}" if near else ""


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Vertex classes of nearly this name, or of this name in another namespace."""
    names = sorted(known)
    own = name.rpartition("::")[2]
    return [n for n in names if n.rpartition("::")[2] == own] or difflib.get_close_matches(
        name, names, 3
    )


def expression_hint(node: ast.AST) -> tuple[str, str]:
    """An expression form in words, and what to write instead."""
    words = f"the expression form {type(node).__name__.lower()!r}"
    return _EXPRESSIONS.get(type(node), (words, ""))


def statement_hint(node: ast.AST) -> tuple[str, str]:
    """A statement in words, and what to write instead."""
    return _STATEMENTS.get(type(node), (f"the statement {type(node).__name__.lower()!r}", ""))
