"""Codelets: what one vertex computes, written in typed Python and turned into codelet IR.

The vertex language (the same for built-ins in `codelets/builtin/*.py` and for users' files)
============================================================================================

A source file is parsed, never imported. It holds, at module level: imports (ignored), a docstring,
`NAMESPACE = "popops"` (built-ins: the prefix of every class in the file), `T = TypeVar("T", f16,
f32)`, `N = IntParam("N")`, `B = BoolParam("B")`, constants in CAPITALS, helper functions (`def`,
optionally `@device`) and vertex classes.

    NAMESPACE = "popops"
    T = TypeVar("T", f16, f32)

    @vertex
    class ScaledAdd(Vertex, Generic[T]):
        y: InOut[Vector[T]]
        x: Input[Vector[T]]
        scale: f32                              # vertex state

        def compute(self) -> bool:              # or -> None
            for i in range(len(self.y)):
                self.y[i] += cast(self.scale * f32(self.x[i]), T)
            return True

Instances are named `popops::ScaledAdd<half>`; parameters in the order of `Generic[...]`, types by
Poplar's or our names (`float` = `f32`, `half` = `f16`, `int`, `unsigned int`, ...), ints, `true`,
`false`. A `MultiVertex` has `compute(self, worker_id: u32)`, called for worker_id 0..5 in order.

Fields, in row order (see `rows.py`)
    Input[T] Output[T] InOut[T]                     rank 0: `self.a[0]` or `self.a` reads, `=` writes
    Input[Vector[T]]  Input[Vector[T, ONE_PTR]]     rank 1: `self.a[i]`, `len(self.a)` (not ONE_PTR)
    Vector[Input[Vector[T]]]                        rank 2: `self.a[j][i]`, `len(self.a)`,
    Vector[Input[Vector[T, ONE_PTR]]]               `len(self.a[j])`; `row = self.a[j]` is an alias
    name: f32                                       state; assigned in compute: lives in tile memory
    name: Vector[u16]                               state vector (read only unless assigned)
    LIMIT = 16, LIMIT = 2 * N                       class constant, compile time
    After the layout may follow a minimum alignment in bytes: Vector[T, SPAN, 16].
    Field types may use compile-time choices: `Input[Vector[f16 if HALF else f32]]`.

Types
    f16 f32 f64 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool; short vectors `f32x16` = `Vec[f32, 16]`
    (any element type, 2 to 64 lanes). Integer literals and float literals take the type of the other
    operand; alone they are i32 and f32. Mixed ints: the wider one, and signed at equal width. Int with
    float: the float type. f16/bf16 with f32: f32. f16 and bf16 arithmetic rounds once per operation.
    Ints wrap. Index expressions are evaluated exactly (64 bits, no wrap).
    `f32(x)`, `cast(x, T)` convert (float to int saturates, NaN gives 0; to f16/bf16 round to nearest
    even); `bitcast(x, u32)` reinterprets. Works on vectors too, lane by lane.

Statements
    for i in range(n) / range(a, b) / range(a, b, step)   step is a non-zero compile-time int
    for p in unroll(N) / unroll(a, b, step)                unrolled; p is a compile-time int
    while c / break / continue / return / pass / if / elif / else; `a if c else b`; and/or/not short
    circuit; `if` on a compile-time value is folded and the dead branch is not even typed.
    x = e, x: f32 = e, x += e (every arithmetic operator); locals have one type for good.
    ALL-CAPS locals, and locals holding a known int, are compile-time values.
    acc = array(f32x16, 28): zeroed local array. With compile-time indices everywhere it lives in
    registers; otherwise on the stack (at most 16 KiB in all). Arrays and fields can be passed to helpers.
    `assert` on compile-time values; helpers may be recursive never; helpers are always inlined.
    Operators: + - * / // % ** & | ^ << >> ~ comparisons (chained too). `/` needs floats. // and %
    on ints follow Python (floor). Shift counts are masked.

Functions (scalars and vectors alike unless said)
    fma(a, b, c) abs min max sqrt exp exp2 log log2 log10 tanh erf sigmoid rsqrt sin cos tan pow floor ceil
    round (half to even) trunc copysign isnan isinf sinh cosh asin acos atan atan2 asinh acosh atanh expm1
    log1p fmod select(c, a, b) popcount clz
    min/max on floats: NaN if either is NaN (`fmin`/`fmax`: the number wins).
    load16(field_or_row, i) / store16(field_or_row, i, v): 16 elements at i; f16 and bf16 memory is
    converted to and from f32. An optional last argument n loads/stores only the first n lanes
    (others read as 0). load(field, i, LANES), store(...) for other lane counts (LANES compile time);
    `load_raw`/`store_raw(field, i, LANES[, n])` keep the memory type. load16/store16/load/store also
    take a local array of scalars instead of a field (the array then lies on the stack).
    splat16(s) = splat(s, 16); iota16() = u32x16 0..15; v[k] with compile-time k extracts a lane;
    insert(v, k, s); shuffle(a, b, (compile-time lane numbers, b's lanes follow a's));
    sum16(v), max16(v), min16(v), prod16(v): fixed tree (lane i with i+8, then 4, 2, 1); `sum`, ... any lanes;
    transpose16(acc) transposes an array of sixteen f32x16 in place (compile-time indices);
    load2d / gather(field, idx_vec): vector of elements; prefetch(field_or_row, i): a hint, never faults;
    prefetch(field, i, n): element i of that rank-1 field of the vertex n rows on, in the host's order.
    len(x), u32 in rows, i32 in expressions. `T is f16`, `T == f16` compare types at compile time.
    size_of(T), is_float(T), limit_max(T), limit_min(T), lowest(T), inf(T).
    abort_if(cond): ends the run with a TileException.

`codelets.get("popops::ScaledAdd<float>")` returns a built-in; `CodeletLibrary` adds user sources.
"""

from __future__ import annotations

from poplar_py.codelets.codelet import Codelet, CodeletLibrary, get
from poplar_py.codelets.codelet_ir import Field
from poplar_py.codelets.errors import CodeletError
from poplar_py.codelets.expr import map_codelet
from poplar_py.codelets.rows import RowLayout, row_layout

__all__ = [
    "Codelet",
    "CodeletError",
    "CodeletLibrary",
    "Field",
    "RowLayout",
    "get",
    "map_codelet",
    "row_layout",
]
