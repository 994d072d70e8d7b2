"""Names the vertex language knows, as plain data."""

from __future__ import annotations

import re

from poplar_py.codelets.codelet_ir import Ty
from poplar_py.types import DTYPES, DType, bool_

__all__ = ["BUILTIN_FUNCTIONS", "LAYOUTS", "TYPE_NAMES", "vector_named"]

TYPE_NAMES: dict[str, DType] = {**DTYPES, "bool_": bool_, "bool": bool_}

LAYOUTS = {
    name.upper(): name
    for name in (
        "span short_span one_ptr scaled_ptr32 scaled_ptr64 scaled_ptr128 compact_ptr".split()
    )
}

MATH_UNARY = frozenset(
    "abs sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf sigmoid floor ceil round trunc isnan isinf popcount clz".split()
)
MATH_BINARY = frozenset("min max fmin fmax copysign pow atan2 fmod quot rem".split())
SPECIAL = frozenset(
    "Vec len range unroll array cast bitcast fma select load store load16 store16 load_raw "
    "store_raw "
    "splat splat16 iota16 iota insert shuffle sum sum16 max16 min16 prod16 prod reduce_max "
    "reduce_min "
    "transpose16 gather prefetch size_of is_float limit_max limit_min lowest inf nan abort_if "
    "Input Output InOut Vector row_of float int num_workers".split()
)
BUILTIN_FUNCTIONS = MATH_UNARY | MATH_BINARY | SPECIAL

_VECTOR = re.compile(r"([a-z]+[0-9]*)x([0-9]{1,2})\Z")


def vector_named(name: str) -> Ty | None:
    """`f32x16` as a type, None for other names."""
    match = _VECTOR.match(name)
    if match is None or match[1] not in DTYPES or not 2 <= int(match[2]) <= 64:
        return None
    return Ty(DTYPES[match[1]], int(match[2]))
