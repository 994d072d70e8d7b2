"""Random intrinsics: every vertex owns one generator, kept in its state from run to run.

The generator is SplitMix64 (Steele, Lea and Flood 2014): a 64-bit counter of odd step through a
mixing function. Its counter is the state field `prng`, which a class may declare to set it
(`set_initial_value(v["prng"], seed)`); a class that does not gets it as its last field. Where it is
never set, a graph starts every vertex at a number made of its tile and its place in the compute
set: neither host threads nor merging change a value, and replicas draw the same.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import Expr, Field, Stmt, Ty
from poplar_py.codelets.lowering import Lowering, Value
from poplar_py.types import f32, u32, u64

__all__ = ["PRNG", "RANDOM_FUNCTIONS", "first_seeds"]

PRNG = "prng"
_STEP = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST = 31
_U64 = Ty(u64)
_TO_UNIT = 2.0**-24


def first_seeds(tiles: npt.NDArray[np.int32], seq: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Counters of vertices nobody seeded: uint64[n] from tile and order of addition."""
    z = (tiles.astype(np.uint64) << np.uint64(32)) + seq.astype(np.uint64) + np.uint64(1)
    z *= np.uint64(_STEP)
    for shift, factor in _MIX:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(_LAST))


def _word(low: Lowering, node: ast.AST) -> Expr:
    """The next 64 random bits."""
    f = low.fields.get(PRNG)
    if f is None:
        f = low.fields[PRNG] = Field(PRNG, "state", u64, 0)
    if f.kind != "state" or f.rank or f.dtype is not u64:
        remedy = f"declare it as {PRNG}: u64, or rename the field"
        raise low.fail(node, f"random numbers need the field {PRNG} for their state", remedy)
    low.assigned_state.add(PRNG)
    step = build.const(_STEP, _U64)
    z = low.temp(build.binary("add", Expr("state", _U64, (), (PRNG,)), step), "random")
    low.emit(Stmt("setstate", (z,), (PRNG,)))
    for shift, factor in _MIX:
        mixed = build.binary("mul", _fold(z, shift), build.const(factor, _U64))
        z = low.temp(mixed, "random")
    return low.temp(_fold(z, _LAST), "random")


def _fold(z: Expr, shift: int) -> Expr:
    return build.binary("xor", z, build.binary("shr", z, build.const(shift, _U64)))


def _high(z: Expr, bits: int) -> Expr:
    """The upper `bits` of 64 as u32."""
    return build.cast(build.binary("shr", z, build.const(64 - bits, _U64)), Ty(u32))


def _low(z: Expr, bits: int) -> Expr:
    return build.cast(build.binary("and", z, build.const((1 << bits) - 1, _U64)), Ty(u32))


def _unit(word: Expr) -> Expr:
    """24 bits as a number in [0, 1), exact."""
    return build.binary("mul", build.cast(word, Ty(f32)), _TO_UNIT)


def _urand32(low: Lowering, node: ast.Call) -> Value:
    return _high(_word(low, node), 32)


def _urand64(low: Lowering, node: ast.Call) -> Value:
    return _word(low, node)


def _urand_f32(low: Lowering, node: ast.Call) -> Value:
    """Uniform in [-0.5, 0.5), as the instruction of the machine."""
    return build.binary("sub", _unit(_high(_word(low, node), 24)), 0.5)


def _f32v2grand(low: Lowering, node: ast.Call) -> Value:
    """Two independent normal numbers by Box and Muller, as f32x2."""
    z = _word(low, node)
    u = build.binary("add", _unit(_high(z, 24)), _TO_UNIT)
    radius = build.unary("sqrt", build.binary("mul", build.unary("log", u), -2.0))
    radius = low.temp(radius, "radius")
    angle = low.temp(build.binary("mul", _unit(_low(z, 24)), 6.283185307179586), "angle")
    pair = build.splat(build.binary("mul", radius, build.unary("cos", angle)), 2)
    sine = build.binary("mul", radius, build.unary("sin", angle))
    return Expr("insert", Ty(f32, 2), (pair, sine), (1,))


RANDOM_FUNCTIONS: dict[str, tuple[int, int, Callable[[Lowering, ast.Call], Value]]] = {
    "urand32": (0, 0, _urand32),
    "urand64": (0, 0, _urand64),
    "urand_f32": (0, 0, _urand_f32),
    "f32v2grand": (0, 0, _f32v2grand),
}
