"""Names the vertex language knows, as plain data."""

from __future__ import annotations

import re

from poplar_py.codelets.codelet_ir import Ty
from poplar_py.types import DTYPES, DType, bool_

__all__ = [
    "BUILTIN_FUNCTIONS",
    "C_NAMES",
    "IPU_NAMES",
    "IPU_REFUSED",
    "LAYOUTS",
    "LIST_LAYOUTS",
    "POPLAR_VECTORS",
    "TYPE_NAMES",
    "VERTEX_BASES",
    "vector_named",
]

TYPE_NAMES: dict[str, DType] = {
    **DTYPES,
    "bool_": bool_,
    "bool": bool_,
    "half": DTYPES["f16"],
    "unsigned": DTYPES["u32"],
}
VERTEX_BASES = frozenset({"Vertex", "MultiVertex", "SupervisorVertex"})

LAYOUTS = {
    name.upper(): name
    for name in (
        "span short_span one_ptr scaled_ptr32 scaled_ptr64 scaled_ptr128 compact_ptr".split()
    )
}
LIST_LAYOUTS = {name.upper(): name for name in ("deltan", "deltanelements", "compact_deltan")}

MATH_UNARY = frozenset(
    "abs sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf sigmoid floor ceil round trunc isnan isinf popcount clz".split()
)
MATH_BINARY = frozenset("min max fmin fmax copysign pow atan2 fmod quot rem".split())
SPECIAL = frozenset(
    "Vec len range unroll array cast bitcast fma select load store load16 store16 load_raw "
    "store_raw splat splat16 iota16 iota insert shuffle sum sum16 max16 min16 prod16 prod "
    "reduce_max reduce_min transpose16 gather prefetch size_of is_float limit_max limit_min lowest "
    "inf nan abort_if Input Output InOut Vector VectorList row_of float int num_workers isfinite "
    "andc urand32 urand64 urand_f32 f32v2grand".split()
)
BUILTIN_FUNCTIONS = MATH_UNARY | MATH_BINARY | SPECIAL

C_NAMES = {"fabs": "abs"}
"""Functions of C's math library, and Python's, by the function here that does the same."""

# `ipu.NAME` and `__builtin_ipu_NAME`: Poplar's intrinsics by the function here that does the same.
IPU_NAMES = {
    **{name: name for name in MATH_UNARY | MATH_BINARY},
    **{name: name for name in ("fma", "sum", "andc", "isfinite", "urand32", "urand64")},
    **{name: name for name in ("urand_f32", "f32v2grand")},
    "fabs": "abs",
    "ln": "log",
    "maxnum": "fmax",
    "minnum": "fmin",
}
_REGISTERS = "registers of the machine have no meaning here"
_POINTERS = "index the field: load(run, i, LANES), store(run, i, v)"
IPU_REFUSED = {
    **dict.fromkeys(("get", "put", "uget", "uput", "tapack", "gina", "ld128putcs"), _REGISTERS),
    **dict.fromkeys(("load_postinc", "store_postinc", "load_step", "store_step"), _POINTERS),
    **dict.fromkeys(
        ("get_scount_l", "get_scount_u"), "time the program: poplar.cycle_count of a Sequence"
    ),
    "get_tile_id": 'give the vertex its tile as state: set_initial_value(v["tile"], tile)',
    **dict.fromkeys(
        ("syncAndStartOnAllWorkers", "syncAllWorkers"), "write a MultiVertex: six workers run it"
    ),
}

_VECTOR = re.compile(r"([a-z]+[0-9]*)x([0-9]{1,2})\Z")
_POPLAR_VECTOR = re.compile(r"([a-z]+)([248])\Z")
_POPLAR_SCALARS = {
    "float": "f32",
    "half": "f16",
    "int": "i32",
    "uint": "u32",
    "short": "i16",
    "ushort": "u16",
    "char": "i8",
    "uchar": "u8",
    "longlong": "i64",
    "ulonglong": "u64",
}

POPLAR_VECTORS = frozenset(f"{name}{n}" for name in _POPLAR_SCALARS for n in (2, 4, 8))


def vector_named(name: str) -> Ty | None:
    """`f32x16` or Poplar's `float2`, `half4`, ... as a type, None for other names."""
    match = _POPLAR_VECTOR.match(name)
    if match is not None and match[1] in _POPLAR_SCALARS:
        return Ty(DTYPES[_POPLAR_SCALARS[match[1]]], int(match[2]))
    match = _VECTOR.match(name)
    if match is None or match[1] not in DTYPES or not 2 <= int(match[2]) <= 64:
        return None
    return Ty(DTYPES[match[1]], int(match[2]))
